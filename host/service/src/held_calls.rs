//! Tool calls of a conversation runtime, held back until their arguments are known to be usable.
//!
//! Servers send arguments as their models write them. A call whose arguments are no JSON object in the end is text
//! instead, so nothing of it may be sent as a call before; what comes behind a call waits for it. So is a call of a tool
//! that may not be called: clients run what they are told to call.

use std::collections::VecDeque;

use mortise_models::{Delta, TokenLogprob};
use mortise_plugin::{Arguments, Nesting, call_as_text};

use crate::error::ServiceError;

/// A delta with what its tokens were likely.
pub(crate) type CallPiece = (Delta, Vec<TokenLogprob>);

/// Calls of one choice, and what waits for them.
#[derive(Debug, Default)]
pub(crate) struct HeldCalls {
    /// Names of the tools that may be called.
    callable: Vec<String>,
    calls: Vec<Call>,
    /// Pieces that wait: those from the first call on whose end is not known.
    waiting: VecDeque<CallPiece>,
    /// Calls that were handed out.
    shown: u32,
}

#[derive(Debug, Default)]
struct Call {
    /// Flag: the call may be made.
    callable: bool,
    text: String,
    nesting: Nesting,
    /// Judgement of the arguments, known once the call has ended.
    arguments: Option<Arguments>,
    /// Number of the call among those that are handed out; `None` of a call that becomes text.
    shown: Option<u32>,
}

impl Call {
    fn end(&mut self) {
        if self.arguments.is_none() {
            self.arguments = Some(match self.callable {
                true => Arguments::of(&self.text),
                false => Arguments::Unusable,
            });
        }
    }
}

impl HeldCalls {
    /// No calls yet, and these tools that may be called.
    pub(crate) fn new(callable: Vec<String>) -> Self {
        Self {
            callable,
            ..Self::default()
        }
    }

    /// Calls that were handed out so far.
    pub(crate) fn shown(&self) -> u32 {
        self.shown
    }

    /// Take a delta, and hand out what need not wait. Calls begin in the order of their indices.
    ///
    /// # Errors
    /// When calls are out of order, or one goes on after its end.
    pub(crate) fn push(
        &mut self,
        piece: CallPiece,
        hand_out: &mut impl FnMut(CallPiece),
    ) -> Result<(), ServiceError> {
        match &piece.0 {
            Delta::CallArguments { index, delta } => self.more(*index, delta)?,
            Delta::CallBegin { index, .. } if *index as usize != self.calls.len() => {
                return Err(out_of_order());
            }
            Delta::CallBegin { name, .. } => {
                self.end_whole();
                self.calls.push(Call {
                    callable: self.callable.contains(name),
                    ..Call::default()
                });
            }
            Delta::Content(_) | Delta::Reasoning(_) => self.end_whole(),
        }
        self.waiting.push_back(piece);
        self.hand_out(hand_out);
        Ok(())
    }

    /// The answer has ended: hand out everything. Of one that was `cut` off, a call that is not whole is none.
    pub(crate) fn finish(&mut self, cut: bool, hand_out: &mut impl FnMut(CallPiece)) {
        for call in &mut self.calls {
            if cut && call.arguments.is_none() && !call.nesting.is_closed() {
                call.arguments = Some(Arguments::Unusable);
            }
            call.end();
        }
        self.hand_out(hand_out);
    }

    /// More of the arguments of a call.
    fn more(&mut self, index: u32, delta: &str) -> Result<(), ServiceError> {
        let call = self
            .calls
            .get_mut(index as usize)
            .ok_or_else(out_of_order)?;
        if call.arguments.is_some() && !delta.trim().is_empty() {
            let message = "the model's server went on with a tool call after its end";
            return Err(ServiceError::Engine(message.to_owned()));
        }
        call.text.push_str(delta);
        delta.chars().for_each(|c| call.nesting.feed(c));
        Ok(())
    }

    /// Something else has begun: calls whose brackets are closed have ended. Others may go on.
    fn end_whole(&mut self) {
        let calls = self.calls.iter_mut();
        let whole = calls.filter(|call| call.nesting.is_closed());
        whole.for_each(Call::end);
    }

    fn hand_out(&mut self, hand_out: &mut impl FnMut(CallPiece)) {
        while let Some((delta, logprobs)) = self.waiting.pop_front() {
            match delta {
                Delta::CallBegin { index, id, name } => {
                    let Some(call) = self.calls.get_mut(index as usize) else {
                        continue;
                    };
                    let mended = match &call.arguments {
                        None => {
                            let begin = Delta::CallBegin { index, id, name };
                            return self.waiting.push_front((begin, logprobs));
                        }
                        Some(Arguments::Unusable) => {
                            let text = Delta::Content(call_as_text(&name, &call.text));
                            hand_out((text, logprobs));
                            continue;
                        }
                        Some(Arguments::Mended(text)) => Some(text.clone()),
                        Some(Arguments::Usable) => None,
                    };
                    let index = self.shown;
                    call.shown = Some(index);
                    self.shown += 1;
                    hand_out((Delta::CallBegin { index, id, name }, logprobs));
                    if let Some(delta) = mended {
                        hand_out((Delta::CallArguments { index, delta }, Vec::new()));
                    }
                }
                Delta::CallArguments { index, delta } => {
                    let call = self.calls.get(index as usize);
                    let usable = call.filter(|call| call.arguments == Some(Arguments::Usable));
                    if let Some(index) = usable.and_then(|call| call.shown) {
                        hand_out((Delta::CallArguments { index, delta }, logprobs));
                    }
                }
                text => hand_out((text, logprobs)),
            }
        }
    }
}

fn out_of_order() -> ServiceError {
    ServiceError::Engine("the model's server sent tool calls out of order".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(index: u32) -> Delta {
        Delta::CallBegin {
            index,
            id: format!("c{index}"),
            name: "f".to_owned(),
        }
    }

    fn arguments(index: u32, delta: &str) -> Delta {
        let delta = delta.to_owned();
        Delta::CallArguments { index, delta }
    }

    fn content(text: &str) -> Delta {
        Delta::Content(text.to_owned())
    }

    /// Feed deltas; the number of pieces handed out after each delta, and all pieces at the end.
    fn handed_out(deltas: Vec<Delta>) -> Result<(Vec<usize>, Vec<Delta>), ServiceError> {
        let (mut held, mut out) = (HeldCalls::new(vec!["f".to_owned()]), Vec::new());
        let mut counts = Vec::new();
        for delta in deltas {
            held.push((delta, Vec::new()), &mut |(delta, _)| out.push(delta))?;
            counts.push(out.len());
        }
        held.finish(false, &mut |(delta, _)| out.push(delta));
        Ok((counts, out))
    }

    #[test]
    fn calls_of_use_come_out_piece_by_piece_once_they_are_whole() {
        let deltas = vec![
            content("Let me see."),
            begin(0),
            arguments(0, "{\"a\":"),
            arguments(0, "\"}\"}"),
            begin(1),
            arguments(1, "{}"),
        ];
        let (counts, out) = handed_out(deltas.clone()).expect("in order");
        assert_eq!(counts, [1, 1, 1, 1, 4, 4]);
        assert_eq!(out, deltas);
        // Pieces of two calls in turn.
        let deltas = vec![
            begin(0),
            arguments(0, "{\"a\""),
            begin(1),
            arguments(1, "{}"),
            arguments(0, ":1}"),
            content("Done."),
        ];
        let (counts, out) = handed_out(deltas.clone()).expect("in order");
        assert_eq!(counts, [0, 0, 0, 0, 0, 6]);
        assert_eq!(out, deltas);
    }

    #[test]
    fn calls_of_no_use_are_text_and_others_are_mended_and_numbered_anew() {
        let deep = format!("{{\"a\":{}", "[".repeat(100));
        for broken in [
            "{\"a\":NaN}",
            "{\"a\":\"\\ud800\"}",
            "{\"a\":1e9999}",
            "{\"a\":\"unterminated",
            deep.as_str(),
        ] {
            let deltas = vec![
                begin(0),
                arguments(0, broken),
                begin(1),
                arguments(1, "{\"a\":\"x\ny\"}"),
                begin(2),
            ];
            let (_, out) = handed_out(deltas).expect("in order");
            let mut expected = vec![content(&call_as_text("f", broken))];
            for (index, delta) in [(0, "{\"a\":\"x\\u000ay\"}"), (1, "{}")] {
                let id = format!("c{}", index + 1);
                let name = "f".to_owned();
                expected.push(Delta::CallBegin { index, id, name });
                expected.push(arguments(index, delta));
            }
            assert_eq!(out, expected, "{broken}");
        }
    }

    #[test]
    fn a_call_that_is_cut_off_before_its_arguments_is_none() {
        for (cut, expected) in [
            (true, vec![content(&call_as_text("f", ""))]),
            (false, vec![begin(0), arguments(0, "{}")]),
        ] {
            let (mut held, mut out) = (HeldCalls::new(vec!["f".to_owned()]), Vec::new());
            let pushed = held.push((begin(0), Vec::new()), &mut |(delta, _)| out.push(delta));
            pushed.expect("in order");
            held.finish(cut, &mut |(delta, _)| out.push(delta));
            assert_eq!(out, expected);
        }
    }

    #[test]
    fn a_call_that_goes_on_after_its_end_breaks_the_answer_off() {
        let whole = || vec![begin(0), arguments(0, "{}"), content("So.")];
        let mut blanks = whole();
        blanks.push(arguments(0, " \n"));
        assert!(handed_out(blanks).is_ok());
        let mut more = whole();
        more.push(arguments(0, "{}"));
        assert!(handed_out(more).is_err());
        // Without anything in between it is one text, which is no object.
        let twice = vec![begin(0), arguments(0, "{}"), arguments(0, "{}")];
        let (_, out) = handed_out(twice).expect("in order");
        assert_eq!(out, [content(&call_as_text("f", "{}{}"))]);
        assert!(handed_out(vec![arguments(0, "{}")]).is_err());
        assert!(handed_out(vec![begin(1)]).is_err());
    }
}
