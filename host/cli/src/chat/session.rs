//! A conversation in a terminal: lines with editing and a history, commands, and answers that Ctrl-C stops.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{Config, Editor};

use super::commands::{HELP, Slash, parse};
use super::conversation::ChatHistory;
use super::screen::Screen;
use super::stream::answer;
use crate::caller::ServerClient;
use crate::interrupt::Interrupt;

/// Lines that the history keeps.
const HISTORY_MAX: usize = 1000;

struct Session {
    caller: ServerClient,
    conversation: ChatHistory,
    screen: Screen,
    interrupt: Interrupt,
}

/// Read messages and commands until the user ends it.
pub(super) fn talk(
    caller: ServerClient,
    conversation: ChatHistory,
    screen: Screen,
    interrupt: Interrupt,
    history: Option<PathBuf>,
) -> anyhow::Result<()> {
    let mut editor = editor(history.as_deref())?;
    let mut session = Session {
        caller,
        conversation,
        screen,
        interrupt,
    };
    let (model, url) = (&session.conversation.model, &session.caller.url);
    screen.aside(&format!("{model} at {url}. /help lists the commands.\n"))?;
    loop {
        match message(&mut editor) {
            Ok(text) if text.trim().is_empty() => {}
            Ok(text) => {
                // What is not remembered is no reason to end.
                let _ = editor.add_history_entry(&text);
                if !session.line(text.trim())? {
                    break;
                }
            }
            Err(ReadlineError::Interrupted) => screen.aside("Ctrl-D or /quit ends it.\n")?,
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(error).context("cannot read from the terminal"),
        }
    }
    if let Some(path) = history
        && let Err(error) = keep(&mut editor, &path)
    {
        screen.problem(&format!("the history is not kept: {error:#}"));
    }
    Ok(())
}

fn editor(history: Option<&Path>) -> anyhow::Result<Editor<(), FileHistory>> {
    let config = Config::builder()
        .max_history_size(HISTORY_MAX)
        .context("the history has no room")?
        .history_ignore_space(true)
        .build();
    let mut editor = Editor::with_config(config).context("cannot read from the terminal")?;
    if let Some(path) = history {
        // There is none before the first time.
        let _ = editor.load_history(path);
    }
    Ok(editor)
}

/// Write the history where only the user reads it.
fn keep(editor: &mut Editor<(), FileHistory>, path: &Path) -> anyhow::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make the folder `{}`", folder.display()))?;
    }
    let saved = editor.save_history(path);
    saved.with_context(|| format!("cannot write `{}`", path.display()))
}

/// A message, of several lines where they end with a backslash.
fn message(editor: &mut Editor<(), FileHistory>) -> Result<String, ReadlineError> {
    let mut text = editor.readline("› ")?;
    while text.ends_with('\\') {
        text.pop();
        text.push('\n');
        text.push_str(&editor.readline("… ")?);
    }
    Ok(text)
}

impl Session {
    /// Do what a line says. False if that is to end.
    fn line(&mut self, line: &str) -> anyhow::Result<bool> {
        match parse(line) {
            Ok(None) => {
                self.conversation.say(line);
                self.ask()?;
            }
            Ok(Some(Slash::Quit)) => return Ok(false),
            Ok(Some(command)) => {
                if let Err(error) = self.command(command) {
                    self.screen.problem(&format!("{error:#}"));
                }
            }
            Err(error) => self.screen.problem(&error.to_string()),
        }
        Ok(true)
    }

    fn command(&mut self, command: Slash) -> anyhow::Result<()> {
        let told = match command {
            Slash::Help => HELP.to_owned(),
            Slash::Model(None) => self.models()?,
            Slash::Model(Some(name)) => {
                // A name that finds no model is told at once; what it finds is the server's to say.
                self.caller
                    .json(&format!(
                        "/v1/models/{}",
                        utf8_percent_encode(&name, NON_ALPHANUMERIC)
                    ))
                    .with_context(|| format!("`{name}` is not taken"))?;
                self.conversation.model.clone_from(&name);
                format!("{name} answers from now on.\n")
            }
            Slash::System(text) => {
                self.conversation.system = text;
                match self.conversation.system {
                    Some(_) => "The system prompt is set.\n".to_owned(),
                    None => "There is no system prompt.\n".to_owned(),
                }
            }
            Slash::File(path) => {
                let bytes = self.conversation.attach(&path)?;
                format!("{bytes} bytes go with the next message.\n")
            }
            Slash::Retry if self.conversation.retry() => return self.ask(),
            Slash::Retry => "There is nothing to answer.\n".to_owned(),
            Slash::Clear => {
                self.conversation.clear();
                "All is forgotten.\n".to_owned()
            }
            Slash::Save(path) => {
                self.conversation.save(&path)?;
                format!("It is in {}.\n", path.display())
            }
            Slash::Load(path) => {
                let count = self.conversation.load(&path)?;
                format!("{count} messages.\n")
            }
            Slash::Quit => String::new(),
        };
        self.screen.aside(&told)
    }

    fn models(&self) -> anyhow::Result<String> {
        let list = self.caller.json("/v1/models")?;
        let names = list["data"].as_array().into_iter().flatten();
        let names = names.filter_map(|model| model["id"].as_str());
        Ok(names.map(|name| format!("{name}\n")).collect())
    }

    /// Ask for an answer to what was said. A failure is told, and the message taken back.
    fn ask(&mut self) -> anyhow::Result<()> {
        let request = self.conversation.request();
        match answer(&self.caller, &request, &self.interrupt, &self.screen) {
            Ok(answer) => {
                self.screen.end()?;
                if answer.stopped {
                    self.screen.aside("Stopped. /retry asks again.\n")?;
                } else if let Some(name) = answer.calls.first() {
                    let told = format!("The model calls the tool `{name}`, which nobody offered.");
                    self.screen.problem(&told);
                } else {
                    self.screen.aside(&format!("{}\n", answer.figures))?;
                }
                self.conversation.answered(answer.text);
            }
            Err(error) => {
                self.screen.problem(&format!("{error:#}"));
                self.conversation.take_back();
            }
        }
        Ok(())
    }
}
