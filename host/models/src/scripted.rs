//! Scripted token runtime: the text of a script as tokens, so that everything around a model can be
//! tested without one. Constraints, limits and cancellation work as in the engine.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use mortise_engine::{
    Constraint, EngineLoad, GeneratedToken, MaskStep, SequenceEnd, SequenceError, SequenceRequest,
    SequenceUsage, SubmitError, TokenEvent, TokenLogprobs, TokenStream, blocking_poll,
};
use tokio::sync::mpsc::Sender;

use crate::script::{Script, ScriptCounters, ScriptSlot};
use crate::token_runtime::TokenRuntime;

/// Text to tokens; control tokens are recognised.
pub type EncodeText = dyn Fn(&str) -> Vec<u32> + Send + Sync;

/// Tokens to text, control tokens included.
pub type DecodeTokens = dyn Fn(&[u32]) -> String + Send + Sync;

/// The model's tokenizer as two functions.
#[derive(Clone)]
pub struct ScriptCodec {
    /// Encodes the script.
    pub encode: Arc<EncodeText>,
    /// Decodes prompts.
    pub decode: Arc<DecodeTokens>,
}

impl std::fmt::Debug for ScriptCodec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ScriptCodec")
    }
}

/// Generates the text of a [`Script`]: one token at a time, within `max_tokens`, the context and the
/// constraint.
#[derive(Debug)]
pub struct Scripted {
    script: Script,
    codec: ScriptCodec,
    counters: Arc<ScriptCounters>,
}

impl Scripted {
    /// A runtime that generates `script` in the tokens of `codec`.
    pub fn new(script: Script, codec: ScriptCodec) -> Self {
        Self {
            script,
            codec,
            counters: Arc::default(),
        }
    }

    fn check(&self, request: &SequenceRequest) -> Result<(), SubmitError> {
        if request.prompt.is_empty() {
            return Err(SubmitError::Invalid("the prompt has no tokens".to_owned()));
        }
        if request.prompt_logprobs.is_some() {
            return Err(SubmitError::Invalid(
                "a script has no log-probabilities of its prompts".to_owned(),
            ));
        }
        if request.max_tokens == 0 {
            return Err(SubmitError::Invalid(
                "max_tokens is 0; at least 1 is needed".to_owned(),
            ));
        }
        if request.prompt.len() >= self.script.context_length {
            return Err(SubmitError::ContextLength {
                prompt: request.prompt.len(),
                context: self.script.context_length,
            });
        }
        Ok(())
    }
}

impl TokenRuntime for Scripted {
    fn submit(&self, request: SequenceRequest) -> Result<TokenStream, SubmitError> {
        self.check(&request)?;
        let slot = ScriptSlot::take(&self.counters, self.script.max_sequences)?;
        let text = self.script.text_for(&(self.codec.decode)(&request.prompt));
        let room = self.script.context_length - request.prompt.len();
        let limit = room.min(request.max_tokens as usize);
        self.counters.add_prompt(request.prompt.len());
        let (sender, stream) = TokenStream::channel();
        let playback = Playback {
            tokens: (self.codec.encode)(&text),
            limit,
            delay: self.script.token_delay,
            request,
            sender,
            slot,
        };
        // A thread and not a task: waiting for a constraint blocks, as it does in the engine.
        thread::Builder::new()
            .name("scripted".to_owned())
            .spawn(move || playback.run())
            .map_err(|error| SubmitError::Invalid(format!("cannot start a thread: {error}")))?;
        Ok(stream)
    }

    fn context_length(&self) -> usize {
        self.script.context_length
    }

    fn load(&self) -> EngineLoad {
        self.counters.load()
    }
}

/// One sequence in progress, on a thread of its own.
struct Playback {
    tokens: Vec<u32>,
    limit: usize,
    delay: Duration,
    request: SequenceRequest,
    sender: Sender<TokenEvent>,
    slot: ScriptSlot,
}

/// End of a sequence.
enum End {
    Finished(SequenceEnd),
    Failed(SequenceError),
    Cancelled,
}

impl Playback {
    fn run(mut self) {
        let mut emitted = 0;
        let event = match self.play(&mut emitted) {
            End::Cancelled => return,
            End::Failed(error) => TokenEvent::Failed(error),
            End::Finished(reason) => TokenEvent::Finished {
                reason,
                usage: SequenceUsage {
                    prompt_tokens: self.request.prompt.len() as u32,
                    cached_tokens: 0,
                    completion_tokens: emitted,
                },
            },
        };
        // The slot is free before the end is sent, so that a caller who has read it finds one.
        let Self { sender, slot, .. } = self;
        drop(slot);
        // A reader that has gone away needs no ending.
        let _ = sender.blocking_send(event);
    }

    fn play(&mut self, emitted: &mut u32) -> End {
        let mut guide = self.request.constraint.take().map(Guide::new);
        for position in 0..=self.tokens.len() {
            let next = self.tokens.get(position).copied();
            let next = next.filter(|id| !self.request.stop_tokens.contains(id));
            if let Some(guide) = &mut guide {
                match self.ask(guide, position, next) {
                    Ok(Verdict::Allowed) => {}
                    Ok(Verdict::Complete) => return End::Finished(SequenceEnd::Stop),
                    Err(error) => return End::Failed(error),
                }
            }
            let Some(id) = next else {
                return End::Finished(SequenceEnd::Stop);
            };
            if *emitted as usize == self.limit {
                return End::Finished(SequenceEnd::Length);
            }
            if !self.emit(id) {
                return End::Cancelled;
            }
            *emitted += 1;
            if let Some(guide) = &mut guide {
                guide.committed.push(id);
            }
        }
        End::Finished(SequenceEnd::Stop)
    }

    /// Emit one token; false if the stream was dropped.
    fn emit(&self, id: u32) -> bool {
        if !self.delay.is_zero() {
            thread::sleep(self.delay);
        }
        let logprobs = self.request.logprobs.map(|params| TokenLogprobs {
            chosen: 0.0,
            top: (params.top > 0).then_some((id, 0.0)).into_iter().collect(),
        });
        self.slot.step();
        let token = GeneratedToken { id, logprobs };
        self.sender.blocking_send(TokenEvent::Token(token)).is_ok()
    }

    /// Whether the constraint lets the script go on with `next`, or end when there is no next.
    fn ask(
        &self,
        guide: &mut Guide,
        position: usize,
        next: Option<u32>,
    ) -> Result<Verdict, SequenceError> {
        let fail = |message: String| Err(SequenceError::Constraint(message));
        let Guide {
            constraint,
            committed,
            forced,
        } = guide;
        let forces = |token: u32| {
            if next == Some(token) {
                return Ok(Verdict::Allowed);
            }
            fail(format!(
                "the script's token {position} is not allowed here: it must be {token}"
            ))
        };
        if let Some(token) = forced.pop_front() {
            return forces(token);
        }
        constraint.advance(committed);
        committed.clear();
        let mask = match blocking_poll(constraint.as_mut()) {
            Err(error) => return fail(error.to_string()),
            Ok(MaskStep::Finished) => return Ok(Verdict::Complete),
            Ok(MaskStep::Any) => return Ok(Verdict::Allowed),
            Ok(MaskStep::Allow(mask)) => mask,
            Ok(MaskStep::Forced(tokens)) => {
                forced.extend(tokens);
                return match forced.pop_front() {
                    Some(token) => forces(token),
                    None => fail("it forces tokens and names none".to_owned()),
                };
            }
        };
        match next {
            Some(id) if is_allowed(mask, id) => Ok(Verdict::Allowed),
            Some(id) => fail(format!(
                "the script's token {position} (id {id}) is not allowed here"
            )),
            None if self.request.stop_tokens.is_empty() => Ok(Verdict::Allowed),
            None if self
                .request
                .stop_tokens
                .iter()
                .any(|&id| is_allowed(mask, id)) =>
            {
                Ok(Verdict::Allowed)
            }
            None => fail(format!(
                "the script ends after {position} tokens, and the text is not complete"
            )),
        }
    }
}

/// A constraint with the tokens that it has not been told yet, and those that it has forced.
struct Guide {
    constraint: Box<dyn Constraint>,
    /// Tokens emitted since it was last advanced.
    committed: Vec<u32>,
    /// Tokens that must follow.
    forced: VecDeque<u32>,
}

impl Guide {
    fn new(constraint: Box<dyn Constraint>) -> Self {
        Self {
            constraint,
            committed: Vec::new(),
            forced: VecDeque::new(),
        }
    }
}

enum Verdict {
    Allowed,
    Complete,
}

fn is_allowed(mask: &[u32], id: u32) -> bool {
    mask.get(id as usize / 32)
        .is_some_and(|word| word >> (id % 32) & 1 == 1)
}

#[cfg(test)]
mod tests;
