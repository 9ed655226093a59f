//! Output to the terminal, or to whatever stands in its place.

use std::io::Write as _;

use anyhow::Context as _;

const DIM: &str = "\x1b[2m";
const RED: &str = "\x1b[31m";
const RESET: &str = "\x1b[0m";

/// Standard output and standard error, written piece by piece.
#[derive(Debug, Clone, Copy)]
pub(super) struct Screen {
    /// A person reads it.
    terminal: bool,
    colours: bool,
    /// Nothing is shown before the answer is complete.
    silent: bool,
}

impl Screen {
    pub(super) fn new(terminal: bool, colours: bool) -> Self {
        Self {
            terminal,
            colours,
            silent: false,
        }
    }

    /// A screen on which only errors are shown.
    pub(super) fn silent() -> Self {
        Self {
            terminal: false,
            colours: false,
            silent: true,
        }
    }

    pub(super) fn is_silent(self) -> bool {
        self.silent
    }

    /// A piece of the answer.
    pub(super) fn answer(self, text: &str) -> anyhow::Result<()> {
        match self.terminal {
            true => self.write(&harmless(text)),
            false => self.write(text),
        }
    }

    /// A piece of what is beside the answer: reasoning, tools, figures. Nothing where only the answer is wanted.
    pub(super) fn aside(self, text: &str) -> anyhow::Result<()> {
        match (self.terminal, self.colours) {
            (false, _) => Ok(()),
            (true, false) => self.write(&harmless(text)),
            (true, true) => self.write(&format!("{DIM}{}{RESET}", harmless(text))),
        }
    }

    /// Error after which the conversation goes on.
    pub(super) fn problem(self, text: &str) {
        let text = harmless(text);
        match self.colours {
            true => eprintln!("{RED}{text}{RESET}"),
            false => eprintln!("{text}"),
        }
    }

    /// The end of an answer.
    pub(super) fn end(self) -> anyhow::Result<()> {
        self.write("\n")
    }

    fn write(self, text: &str) -> anyhow::Result<()> {
        if self.silent {
            return Ok(());
        }
        let mut out = std::io::stdout().lock();
        let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        written.context("cannot write the answer")
    }
}

/// A text without characters that command a terminal: a model could move the cursor, or write to the clipboard.
fn harmless(text: &str) -> String {
    let safe = |character: char| match character {
        '\n' | '\t' => character,
        character if character.is_control() => '\u{fffd}',
        character => character,
    };
    text.chars().map(safe).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_command_no_terminal() {
        assert_eq!(harmless("a\n\tb é 👋"), "a\n\tb é 👋");
        let hostile = harmless("\x1b]52;c;eA==\x07\x1b[2J\r\u{9b}31m\x7f");
        assert!(!hostile.contains(char::is_control), "{hostile:?}");
    }
}
