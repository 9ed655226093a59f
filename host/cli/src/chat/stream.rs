//! One answer, shown while it comes.

use std::io::{BufRead, BufReader, Read as _};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use super::screen::Screen;
use crate::caller::ServerClient;
use crate::interrupt::Interrupt;

/// Bytes of an event of a stream.
const EVENT_BYTES_MAX: u64 = 1 << 20;
/// Events that are read before they are shown.
const EVENTS: usize = 64;
/// Time between two looks for Ctrl-C.
const LOOK: Duration = Duration::from_millis(50);

/// An answer.
#[derive(Debug, Default)]
pub(super) struct ChatAnswer {
    pub(super) text: String,
    /// Text of its reasoning.
    reasoning: String,
    /// Calls of tools that the server ran, as it tells them.
    server_calls: Vec<Value>,
    usage: Value,
    /// Names of tools that the caller is to run.
    pub(super) calls: Vec<String>,
    /// Ctrl-C ended it.
    pub(super) stopped: bool,
    /// `14 + 57 tokens in 0.4 s`
    pub(super) figures: String,
    thinking: bool,
}

/// Ask for an answer and show it until it ends, or until Ctrl-C comes.
pub(super) fn answer(
    caller: &ServerClient,
    request: &Value,
    interrupt: &Interrupt,
    screen: &Screen,
) -> anyhow::Result<ChatAnswer> {
    interrupt.came();
    let begun = Instant::now();
    let response = caller.post("/v1/chat/completions", request)?;
    let lines = BufReader::new(response.into_body().into_reader());
    let (sender, events) = sync_channel(EVENTS);
    // The reader waits for the server, this thread for the reader and for Ctrl-C.
    std::thread::spawn(move || read(lines, &sender));
    let mut answer = ChatAnswer::default();
    loop {
        if interrupt.came() {
            answer.stopped = true;
            return Ok(answer);
        }
        match events.recv_timeout(LOOK) {
            Ok(Some(event)) => answer.add(&event?, screen, begun)?,
            Ok(None) => return Ok(answer),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => bail!("the answer broke off"),
        }
    }
}

/// An event, what is wrong with it, or the end of the answer.
type Read = Option<anyhow::Result<Value>>;

/// Send all events. Ends when nobody takes them any more, which closes the connection.
fn read(mut lines: impl BufRead, sender: &SyncSender<Read>) {
    loop {
        let event = next(&mut lines).transpose();
        let last = !matches!(event, Some(Ok(_)));
        if sender.send(event).is_err() {
            return;
        }
        if last {
            // To the very end: an answer that is left before counts as cancelled.
            let _ = std::io::copy(&mut lines.take(EVENT_BYTES_MAX), &mut std::io::sink());
            return;
        }
    }
}

/// The next event; `None` at the end of the answer.
fn next(lines: &mut impl BufRead) -> anyhow::Result<Option<Value>> {
    loop {
        let mut line = String::new();
        let read = lines.by_ref().take(EVENT_BYTES_MAX).read_line(&mut line);
        let read = read.context("the answer broke off")?;
        if !line.ends_with('\n') {
            bail!(match read as u64 {
                EVENT_BYTES_MAX => "the server sent an event of more than a mebibyte",
                _ => "the answer broke off",
            });
        }
        match line.trim_end().strip_prefix("data: ") {
            None => {}
            Some("[DONE]") => return Ok(None),
            Some(data) => {
                let event: Value = serde_json::from_str(data).context("an event is not JSON")?;
                if let Some(message) = event["error"]["message"].as_str() {
                    bail!("{message}");
                }
                return Ok(Some(event));
            }
        }
    }
}

impl ChatAnswer {
    /// The answer of a model, for programs.
    pub(super) fn json(&self, model: &str) -> Value {
        json!({
            "model": model,
            "content": self.text,
            "reasoning": self.reasoning,
            "server_tool_calls": self.server_calls,
            "tool_calls": self.calls,
            "usage": self.usage,
        })
    }

    fn add(&mut self, event: &Value, screen: &Screen, begun: Instant) -> anyhow::Result<()> {
        let usage = &event["usage"];
        if let (Some(prompt), Some(answer)) = (
            usage["prompt_tokens"].as_u64(),
            usage["completion_tokens"].as_u64(),
        ) {
            let seconds = begun.elapsed().as_secs_f64();
            self.usage = usage.clone();
            self.figures = format!("{prompt} + {answer} tokens in {seconds:.1} s");
        }
        let delta = &event["choices"][0]["delta"];
        if let Some(text) = delta["reasoning_content"]
            .as_str()
            .filter(|text| !text.is_empty())
        {
            self.thinking = true;
            self.reasoning.push_str(text);
            screen.aside(text)?;
        }
        for call in delta["server_tool_calls"].as_array().into_iter().flatten() {
            let part = |name: &str| call[name].as_str().unwrap_or_default();
            let (name, arguments, output) = (part("name"), part("arguments"), part("output"));
            screen.aside(&format!("{name} {arguments} → {output}\n"))?;
            self.server_calls.push(call.clone());
        }
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            self.calls
                .extend(call["function"]["name"].as_str().map(str::to_owned));
        }
        if let Some(text) = delta["content"].as_str().filter(|text| !text.is_empty()) {
            if std::mem::take(&mut self.thinking) {
                screen.aside("\n\n")?;
            }
            // Templates leave empty lines between reasoning and answer.
            let text = if self.text.is_empty() {
                text.trim_start_matches('\n')
            } else {
                text
            };
            screen.answer(text)?;
            self.text.push_str(text);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_end_with_the_last_and_nowhere_else() {
        let mut whole = ": keep-alive\n\ndata: {\"a\": 1}\n\ndata: [DONE]\n\n".as_bytes();
        assert_eq!(
            next(&mut whole).expect("an event").expect("an event")["a"],
            1
        );
        assert!(next(&mut whole).expect("the end").is_none());
        for broken in [
            "",
            "data: {\"a\": 1}",
            "data: {\n\n",
            "data: {\"error\": {\"message\": \"no\"}}\n",
        ] {
            assert!(next(&mut broken.as_bytes()).is_err(), "{broken:?}");
        }
        let long = format!("data: \"{}\"\n", "a".repeat(EVENT_BYTES_MAX as usize));
        assert!(next(&mut long.as_bytes()).is_err());
    }
}
