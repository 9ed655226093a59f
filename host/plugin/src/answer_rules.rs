//! Rules for the events of one answer: the contract on tool calls, bounds on their number and text, and arguments that
//! clients can use.
//! Each call of `feed` has a bound of its own, but an answer has as many calls as tokens.

use crate::attribution::Load;
use crate::call_arguments::{Arguments, call_as_text};
use crate::limits::MAX_TOOL_CALLS;
use crate::{Fault, ParserEvent, ParserSetup, ToolChoice};

/// Bytes of a name that an error shows.
const MAX_SHOWN_BYTES: usize = 64;

/// Fewest bytes of text that a model writes a tool call in, such as `f()` and a comma. A parser that begins
/// more calls than the text has room for makes them up.
const MIN_CALL_BYTES: usize = 4;

/// Bytes of events that a parser may honestly make of one byte of text: a control character, escaped in JSON,
/// is six times as long.
const MAX_GROWTH: usize = 8;

/// A call of an answer.
#[derive(Debug, Default)]
struct Call {
    ended: bool,
    /// Its number among those that are passed on; `None` of one that is text instead.
    shown: Option<u32>,
    /// Arguments that were passed on before the end of the call.
    text: String,
}

/// A call that can be judged as a whole.
struct Judged {
    index: u32,
    text: String,
    ended: bool,
    arguments: Arguments,
}

/// Progress of one answer, checked against the rules.
pub(crate) struct AnswerRules {
    /// Tools that may be called.
    callable: Vec<String>,
    /// Calls that have begun.
    calls: Vec<Call>,
    /// Calls whose beginning has been handed out, as a call or as text.
    begun: u32,
    /// Calls among them that are calls.
    shown: u32,
    /// Calls wait until they are whole. Where one is forced, a grammar holds the text to JSON, and they are passed on as
    /// they come.
    holds: bool,
    /// Events that wait for the end of a call.
    waiting: Vec<ParserEvent>,
    /// Bytes of what the caller has sent about tools and format.
    setup_bytes: usize,
    /// Bytes of text that the model has written.
    text_bytes: usize,
    /// Bytes that further events may carry.
    bytes_left: usize,
    /// Bytes that all events of the answer may carry.
    bytes_max: usize,
}

impl AnswerRules {
    pub(crate) fn new(setup: &ParserSetup, bytes_max: usize) -> Self {
        Self {
            callable: callable(setup),
            calls: Vec::new(),
            begun: 0,
            shown: 0,
            holds: setup.tool_choice == ToolChoice::Auto,
            waiting: Vec::new(),
            setup_bytes: setup.tools.len(),
            text_bytes: 0,
            bytes_left: bytes_max,
            bytes_max,
        }
    }

    /// Note text of the model that the parser is about to see.
    pub(crate) fn note_text(&mut self, bytes: usize) {
        self.text_bytes = self.text_bytes.saturating_add(bytes);
    }

    /// Reason that the parser may have to take more than it is granted.
    pub(crate) fn load(&self) -> Load {
        Load::of(self.setup_bytes, self.text_bytes)
    }

    /// Check events in their order, and hand out those that need not wait. Calls whose arguments nobody can use become text.
    ///
    /// # Errors
    /// [`Fault::InvalidResult`] where the parser broke the rules, and [`Fault::ModelOutput`] where the text
    /// of the model is more than an answer may have.
    pub(crate) fn check(&mut self, events: Vec<ParserEvent>) -> Result<Vec<ParserEvent>, Fault> {
        self.take(events)?;
        let ready = self.ready();
        let events: Vec<ParserEvent> = self.waiting.drain(..ready).collect();
        Ok(self.passed_on(events, false))
    }

    /// Check the last events of an answer, and hand out all that waited for them. A call that has not ended is text.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub(crate) fn check_last(
        &mut self,
        events: Vec<ParserEvent>,
    ) -> Result<Vec<ParserEvent>, Fault> {
        self.take(events)?;
        let events = std::mem::take(&mut self.waiting);
        Ok(self.passed_on(events, self.holds))
    }

    fn take(&mut self, events: Vec<ParserEvent>) -> Result<(), Fault> {
        events.iter().try_for_each(|event| self.check_one(event))?;
        for event in events {
            match (self.waiting.last_mut(), event) {
                // A long call is one event, not one for each of its tokens.
                (
                    Some(ParserEvent::CallArguments { index, delta }),
                    ParserEvent::CallArguments {
                        index: next,
                        delta: more,
                    },
                ) if *index == next => delta.push_str(&more),
                (_, event) => self.waiting.push(event),
            }
        }
        Ok(())
    }

    /// Events that can be handed out: those before the first call that has not ended, or of which something comes behind
    /// the beginning of such a call.
    fn ready(&self) -> usize {
        let ended = |index: u32| self.calls.get(index as usize).is_none_or(|call| call.ended);
        match self.waiting.first() {
            // Most often, and looked at with each token.
            Some(ParserEvent::CallBegin { index, .. }) if self.holds && !ended(*index) => return 0,
            _ if !self.holds => return self.waiting.len(),
            _ => {}
        }
        let mut begun: Vec<(u32, usize)> = Vec::new();
        let mut ready = self.waiting.len();
        for (at, event) in self.waiting.iter().enumerate() {
            match event {
                ParserEvent::CallBegin { index, .. } => {
                    begun.push((*index, at));
                    if !ended(*index) {
                        ready = ready.min(at);
                    }
                }
                ParserEvent::CallEnd { index } if at > ready => {
                    let begin = begun.iter().find(|(begun, _)| begun == index);
                    ready = begin.map_or(ready, |(_, begin)| ready.min(*begin));
                }
                _ => {}
            }
        }
        ready
    }

    /// Events as they are passed on; in the `last` ones, calls that have not ended are text.
    fn passed_on(&mut self, events: Vec<ParserEvent>, last: bool) -> Vec<ParserEvent> {
        let judged = self.judged(&events, last);
        let verdict = |index: u32| judged.iter().find(|judged| judged.index == index);
        let mut passed = Vec::with_capacity(events.len());
        for event in events {
            match event {
                ParserEvent::CallBegin { index, id, name } => {
                    self.begun += 1;
                    let arguments = verdict(index).map(|judged| &judged.arguments);
                    if let (Some(judged), Some(Arguments::Unusable)) = (verdict(index), arguments) {
                        passed.push(ParserEvent::Content(call_as_text(&name, &judged.text)));
                        continue;
                    }
                    let index = self.show(index);
                    passed.push(ParserEvent::CallBegin { index, id, name });
                    if let Some(Arguments::Mended(delta)) = arguments {
                        let delta = delta.clone();
                        passed.push(ParserEvent::CallArguments { index, delta });
                    }
                }
                ParserEvent::CallArguments { index, delta } => {
                    let arguments = verdict(index).map(|judged| &judged.arguments);
                    let call = self.calls.get_mut(index as usize);
                    let call = call.filter(|_| !matches!(arguments, Some(Arguments::Mended(_))));
                    let Some((call, index)) = call.and_then(|call| {
                        let shown = call.shown?;
                        Some((call, shown))
                    }) else {
                        continue;
                    };
                    if arguments.is_none() {
                        call.text.push_str(&delta);
                    }
                    passed.push(ParserEvent::CallArguments { index, delta });
                }
                ParserEvent::CallEnd { index } => {
                    self.end(index, verdict(index).is_some(), &mut passed);
                }
                text => passed.push(text),
            }
        }
        passed
    }

    /// The number of a call among those that are passed on.
    fn show(&mut self, index: u32) -> u32 {
        let shown = self.shown;
        self.shown += 1;
        if let Some(call) = self.calls.get_mut(index as usize) {
            call.shown = Some(shown);
        }
        shown
    }

    /// Pass the end of a call on, unless its arguments, which were passed on before, are of no use: who began to read it
    /// then knows that it did not end.
    fn end(&mut self, index: u32, judged: bool, passed: &mut Vec<ParserEvent>) {
        let Some(call) = self.calls.get_mut(index as usize) else {
            return;
        };
        let Some(shown) = call.shown else {
            return;
        };
        let text = std::mem::take(&mut call.text);
        if !judged && Arguments::of(&text) != Arguments::Usable {
            if !text.trim().is_empty() {
                return;
            }
            let delta = "{}".to_owned();
            passed.push(ParserEvent::CallArguments {
                index: shown,
                delta,
            });
        }
        passed.push(ParserEvent::CallEnd { index: shown });
    }

    /// Calls that begin and end in these events, with their arguments and what can be done with those; and those that only
    /// begin in the `last` ones.
    fn judged(&self, events: &[ParserEvent], last: bool) -> Vec<Judged> {
        let first = self.begun;
        let mut judged: Vec<Judged> = Vec::new();
        for event in events {
            match event {
                ParserEvent::CallBegin { index, .. } => judged.push(Judged {
                    index: *index,
                    text: String::new(),
                    ended: false,
                    arguments: Arguments::Unusable,
                }),
                // Calls begin in the order of their numbers.
                ParserEvent::CallArguments { index, delta } => {
                    if let Some(call) = index.checked_sub(first).map(|at| at as usize)
                        && let Some(call) = judged.get_mut(call)
                    {
                        call.text.push_str(delta);
                    }
                }
                ParserEvent::CallEnd { index } => {
                    if let Some(call) = index.checked_sub(first).map(|at| at as usize)
                        && let Some(call) = judged.get_mut(call)
                    {
                        call.ended = true;
                        call.arguments = Arguments::of(&call.text);
                    }
                }
                ParserEvent::Content(_) | ParserEvent::Reasoning(_) => {}
            }
        }
        judged.retain(|call| call.ended || last);
        judged
    }

    fn check_one(&mut self, event: &ParserEvent) -> Result<(), Fault> {
        let bytes = match event {
            ParserEvent::Content(text) | ParserEvent::Reasoning(text) => text.len(),
            ParserEvent::CallBegin { index, id, name } => {
                self.begin(*index, name)?;
                name.len() + id.as_deref().map_or(0, str::len)
            }
            ParserEvent::CallArguments { index, delta } => {
                self.open_call(*index)?;
                delta.len()
            }
            ParserEvent::CallEnd { index } => {
                self.open_call(*index)?.ended = true;
                0
            }
        };
        match self.bytes_left.checked_sub(bytes) {
            Some(left) => self.bytes_left = left,
            None => {
                let max = self.bytes_max;
                return Err(match self.text_bytes.saturating_mul(MAX_GROWTH) > max {
                    true => Fault::ModelOutput(format!("comes to more than {max} bytes")),
                    false => invalid(format!("made more than {max} bytes of one answer")),
                });
            }
        }
        Ok(())
    }

    fn begin(&mut self, index: u32, name: &str) -> Result<(), Fault> {
        let next = self.calls.len();
        if index as usize != next {
            return Err(invalid(format!(
                "began tool call {index} where {next} comes next"
            )));
        }
        if name.is_empty() {
            return Err(invalid(format!("began tool call {index} without a name")));
        }
        if !self.callable.iter().any(|callable| callable == name) {
            return Err(invalid(format!(
                "called `{}`, a tool that may not be called",
                excerpt(name).escape_debug()
            )));
        }
        if next >= MAX_TOOL_CALLS {
            return Err(match self.text_bytes >= next * MIN_CALL_BYTES {
                true => Fault::ModelOutput(format!("has more than {MAX_TOOL_CALLS} tool calls")),
                false => invalid(format!("began more than {MAX_TOOL_CALLS} tool calls")),
            });
        }
        self.calls.push(Call::default());
        Ok(())
    }

    fn open_call(&mut self, index: u32) -> Result<&mut Call, Fault> {
        match self.calls.get_mut(index as usize) {
            Some(call) if !call.ended => Ok(call),
            Some(_) => Err(invalid(format!(
                "went on with tool call {index} after its end"
            ))),
            None => Err(invalid(format!(
                "went on with tool call {index}, which never began"
            ))),
        }
    }
}

fn invalid(reason: String) -> Fault {
    Fault::InvalidResult(reason)
}

/// Names of the tools that an answer may call. What is declared in another shape cannot be called.
fn callable(setup: &ParserSetup) -> Vec<String> {
    let declared: serde_json::Value = serde_json::from_str(&setup.tools).unwrap_or_default();
    let names = declared.as_array().into_iter().flatten();
    let names = names.filter_map(|tool| tool.pointer("/function/name")?.as_str());
    let choice = |name: &&str| match &setup.tool_choice {
        ToolChoice::None => false,
        ToolChoice::Auto | ToolChoice::Required => true,
        ToolChoice::Named(wanted) => name == wanted,
    };
    names.filter(choice).map(str::to_owned).collect()
}

/// The first characters of a text that may be long.
fn excerpt(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_SHOWN_BYTES)]
}

#[cfg(test)]
mod tests;
