//! `mortise chat`: a conversation with a running server, in a terminal or through pipes.

mod commands;
mod conversation;
mod screen;
mod session;
mod stream;

use std::io::{IsTerminal as _, Read as _};

use anyhow::{Context as _, bail};
use clap::Args;
use mortise_config::terminal;
use mortise_harness::print_json;

use self::conversation::{ChatHistory, ChatSettings};
use self::screen::Screen;
use crate::caller::{ServerClient, ServerTarget};
use crate::interrupt::Interrupt;

/// Bytes of a message from standard input.
const INPUT_BYTES_MAX: u64 = 4 << 20;

/// Arguments of the command line.
#[derive(Debug, Args)]
pub(crate) struct ChatArgs {
    /// A message; without one, lines are read from the terminal, or all of standard input is the message
    #[arg(value_name = "MESSAGE")]
    message: Vec<String>,
    #[command(flatten)]
    target: ServerTarget,
    /// The model's name [default: the first one that is loaded]
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// A system prompt
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// 0 for the likeliest tokens, up to 2 [default: the model's]
    #[arg(long, value_name = "NUMBER")]
    temperature: Option<f64>,
    /// Most tokens of an answer [default: the server's]
    #[arg(long, value_name = "TOKENS")]
    max_tokens: Option<u32>,
    /// Seed of the sampling; equal seeds give equal answers
    #[arg(long, value_name = "NUMBER")]
    seed: Option<i64>,
    /// A tool that the server runs itself; may be given several times
    #[arg(long, value_name = "NAME")]
    server_tool: Vec<String>,
    /// Consent to send the conversation to another server, where the operator asks for it
    #[arg(long)]
    allow_remote: bool,
    /// Print the answer as JSON when it is complete: text, reasoning, tokens, calls of server tools
    #[arg(long)]
    json: bool,
}

/// Do what the command line says.
pub(crate) fn run(args: ChatArgs) -> anyhow::Result<()> {
    let caller = ServerClient::of(&args.target)?;
    let model = match args.model {
        Some(model) => model,
        None => first_model(&caller)?,
    };
    let settings = ChatSettings {
        temperature: args.temperature,
        max_tokens: args.max_tokens,
        seed: args.seed,
        server_tools: args.server_tool,
        allow_remote: args.allow_remote,
    };
    let conversation = ChatHistory::new(model, args.system, settings);
    let (reads, writes) = (
        std::io::stdin().is_terminal(),
        std::io::stdout().is_terminal(),
    );
    let environment = terminal();
    let screen = match args.json {
        true => Screen::silent(),
        false => Screen::new(writes, writes && environment.colours),
    };
    if reads && writes && args.message.is_empty() && !args.json {
        let history = environment.state.map(|folder| folder.join("chat_history"));
        return session::talk(caller, conversation, screen, Interrupt::listen()?, history);
    }
    let mut message = args.message.join(" ");
    // What is piped in is what the message is about: `git diff | mortise chat "Review this:"`.
    if !reads {
        let text = input()?;
        if !message.is_empty() && !text.is_empty() {
            message.push_str("\n\n");
        }
        message.push_str(&text);
    }
    once(&caller, conversation, &screen, &message)
}

/// One message and its answer.
fn once(
    caller: &ServerClient,
    mut conversation: ChatHistory,
    screen: &Screen,
    message: &str,
) -> anyhow::Result<()> {
    if message.trim().is_empty() {
        bail!("there is no message; write one behind the command, or pipe it in");
    }
    conversation.say(message);
    let caught = Interrupt::default();
    let answer = stream::answer(caller, &conversation.request(), &caught, screen)?;
    if screen.is_silent() {
        print_json(&answer.json(&conversation.model))?;
    }
    screen.end()?;
    match answer.calls.first() {
        Some(name) => bail!("the model calls the tool `{name}`, which nobody offered"),
        None => Ok(()),
    }
}

fn input() -> anyhow::Result<String> {
    let mut text = String::new();
    let read = std::io::stdin()
        .lock()
        .take(INPUT_BYTES_MAX + 1)
        .read_to_string(&mut text);
    read.context("cannot read standard input as text")?;
    if text.len() as u64 > INPUT_BYTES_MAX {
        bail!("standard input has more than {INPUT_BYTES_MAX} bytes");
    }
    Ok(text.trim_end().to_owned())
}

fn first_model(caller: &ServerClient) -> anyhow::Result<String> {
    let models = caller.json("/v1/models")?;
    let models = models["data"].as_array().map_or(&[][..], Vec::as_slice);
    let loaded = models.iter().find(|model| model["loaded"] != false);
    let model = loaded
        .or(models.first())
        .and_then(|model| model["id"].as_str());
    let model =
        model.context("the server has no model that you may use; see `mortise models list`")?;
    Ok(model.to_owned())
}
