//! Rules for the events of one answer: the contract on tool calls, and bounds on their number and text.
//! Each call of `feed` has a bound of its own, but an answer has as many calls as tokens.

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

/// Progress of one answer, checked against the rules.
pub(crate) struct AnswerRules {
    /// Tools that may be called.
    callable: Vec<String>,
    /// For each call that has begun, whether it has ended.
    ended: Vec<bool>,
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
            ended: Vec::new(),
            text_bytes: 0,
            bytes_left: bytes_max,
            bytes_max,
        }
    }

    /// Note text of the model that the parser is about to see.
    pub(crate) fn note_text(&mut self, bytes: usize) {
        self.text_bytes = self.text_bytes.saturating_add(bytes);
    }

    /// Check events in their order.
    ///
    /// # Errors
    /// [`Fault::InvalidResult`] where the parser broke the rules, and [`Fault::ModelOutput`] where the text
    /// of the model is more than an answer may have.
    pub(crate) fn check(&mut self, events: Vec<ParserEvent>) -> Result<Vec<ParserEvent>, Fault> {
        events.iter().try_for_each(|event| self.check_one(event))?;
        Ok(events)
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
                *self.open_call(*index)? = true;
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
        let next = self.ended.len();
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
        self.ended.push(false);
        Ok(())
    }

    fn open_call(&mut self, index: u32) -> Result<&mut bool, Fault> {
        match self.ended.get_mut(index as usize) {
            Some(ended) if !*ended => Ok(ended),
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
mod tests {
    use super::*;
    use crate::Cause;

    const TOOLS: &str = r#"[{"type":"function","function":{"name":"f"}}]"#;

    fn rules() -> AnswerRules {
        let setup = ParserSetup {
            tools: TOOLS.to_owned(),
            ..ParserSetup::default()
        };
        AnswerRules::new(&setup, 100)
    }

    fn begin(index: u32) -> ParserEvent {
        ParserEvent::CallBegin {
            index,
            id: None,
            name: "f".to_owned(),
        }
    }

    fn arguments(index: u32) -> ParserEvent {
        ParserEvent::CallArguments {
            index,
            delta: "{".to_owned(),
        }
    }

    fn check(events: &[ParserEvent]) -> Result<(), String> {
        let checked = rules().check(events.to_vec());
        checked.map(drop).map_err(|fault| fault.to_string())
    }

    #[test]
    fn calls_may_interleave_and_must_not_skip() {
        let end = |index| ParserEvent::CallEnd { index };
        assert_eq!(
            check(&[
                begin(0),
                begin(1),
                arguments(0),
                end(0),
                arguments(1),
                end(1)
            ]),
            Ok(())
        );
        assert!(
            check(&[begin(1)])
                .unwrap_err()
                .contains("where 0 comes next")
        );
        assert!(
            check(&[begin(0), begin(0)])
                .unwrap_err()
                .contains("where 1 comes next")
        );
        assert!(check(&[arguments(0)]).unwrap_err().contains("never began"));
        assert!(
            check(&[begin(0), end(0), arguments(0)])
                .unwrap_err()
                .contains("after its end")
        );
        let nameless = ParserEvent::CallBegin {
            index: 0,
            id: None,
            name: String::new(),
        };
        assert!(check(&[nameless]).unwrap_err().contains("without a name"));
    }

    #[test]
    fn only_tools_that_may_be_called_are() {
        let named = |tool_choice| ParserSetup {
            tools: r#"[{"type":"function","function":{"name":"f"}},
                       {"type":"function","function":{"name":"g"}}, 7]"#
                .to_owned(),
            tool_choice,
            ..ParserSetup::default()
        };
        assert_eq!(callable(&named(ToolChoice::Auto)), ["f", "g"]);
        assert_eq!(callable(&named(ToolChoice::Required)), ["f", "g"]);
        assert_eq!(callable(&named(ToolChoice::Named("g".to_owned()))), ["g"]);
        assert!(callable(&named(ToolChoice::None)).is_empty());
        let undeclared = ParserEvent::CallBegin {
            index: 0,
            id: None,
            name: "rm\n".to_owned(),
        };
        let message = check(&[undeclared]).unwrap_err();
        assert!(message.contains("`rm\\n`"), "{message}");
    }

    #[test]
    fn an_answer_is_bounded_over_all_its_events_and_its_cause_is_who_wrote_so_much() {
        let sixty = || vec![ParserEvent::Content("x".repeat(60))];
        let mut invented = rules();
        invented.note_text(12);
        assert!(invented.check(sixty()).is_ok());
        let fault = invented.check(sixty()).unwrap_err();
        assert_eq!(fault.cause(), Cause::Plugin, "{fault}");
        assert!(fault.to_string().contains("more than 100 bytes"), "{fault}");
        let mut written = rules();
        written.note_text(120);
        assert!(written.check(sixty()).is_ok());
        let fault = written.check(sixty()).unwrap_err();
        assert_eq!(fault.cause(), Cause::Model, "{fault}");
    }

    #[test]
    fn more_calls_than_an_answer_may_have_are_the_models_if_it_wrote_them() {
        let all = || (0..=MAX_TOOL_CALLS).map(|index| begin(index as u32));
        for (written, cause) in [(10, Cause::Plugin), (20 * MAX_TOOL_CALLS, Cause::Model)] {
            let setup = ParserSetup {
                tools: TOOLS.to_owned(),
                ..ParserSetup::default()
            };
            let mut rules = AnswerRules::new(&setup, 1 << 20);
            rules.note_text(written);
            assert!(rules.check(all().take(MAX_TOOL_CALLS).collect()).is_ok());
            let fault = rules
                .check(all().skip(MAX_TOOL_CALLS).collect())
                .unwrap_err();
            assert_eq!(fault.cause(), cause, "{fault}");
            assert_eq!(fault.is_breakdown(), cause == Cause::Plugin);
        }
    }
}
