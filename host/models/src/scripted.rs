//! A backend that says what it is told to say: given text goes through the real tokenizer, stop
//! strings, output parser and stream, so that everything around a model can be tested without one.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use mortise_engine::{
    Constraint, EngineLoad, FinishReason, GeneratedToken, MaskStep, SequenceError, SequenceRequest,
    SequenceUsage, SubmitError, TokenEvent, TokenLogprobs, TokenStream,
};
use tokio::sync::mpsc::Sender;

use crate::token_runtime::TokenRuntime;

/// What a scripted backend says.
#[derive(Debug, Clone)]
pub struct Script {
    /// The first line whose `when` occurs in the prompt is spoken.
    pub lines: Vec<ScriptLine>,
    /// Spoken when no line matches.
    pub default: String,
    /// Pause before each token.
    pub token_delay: Duration,
    /// How often the text is spoken, one after the other; at least once.
    pub repeat: u32,
    /// Tokens that prompt and output may have together.
    pub context_length: usize,
    /// Sequences that may speak at once; further ones are refused.
    pub max_sequences: usize,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            lines: Vec::new(),
            default: "This answer was scripted.".to_owned(),
            token_delay: Duration::ZERO,
            repeat: 1,
            context_length: 32_768,
            max_sequences: 256,
        }
    }
}

/// One line of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptLine {
    /// A part of the prompt.
    pub when: String,
    /// What to say.
    pub say: String,
}

/// Text to tokens; control tokens are recognised.
pub type EncodeText = dyn Fn(&str) -> Vec<u32> + Send + Sync;

/// Tokens to text, control tokens included.
pub type DecodeTokens = dyn Fn(&[u32]) -> String + Send + Sync;

/// The model's tokenizer as two functions, since this room knows no tokenizers.
#[derive(Clone)]
pub struct ScriptCodec {
    /// For the script.
    pub encode: Arc<EncodeText>,
    /// For prompts.
    pub decode: Arc<DecodeTokens>,
}

impl std::fmt::Debug for ScriptCodec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ScriptCodec")
    }
}

/// Speaks a [`Script`]: one token at a time, within `max_tokens`, the context and the constraint.
#[derive(Debug)]
pub struct Scripted {
    script: Script,
    codec: ScriptCodec,
    counters: Arc<Counters>,
}

#[derive(Debug, Default)]
struct Counters {
    running: AtomicUsize,
    steps: AtomicU64,
    prefill_tokens: AtomicU64,
}

impl Scripted {
    /// A backend that speaks `script` in the tokens of `codec`.
    pub fn new(script: Script, codec: ScriptCodec) -> Self {
        Self {
            script,
            codec,
            counters: Arc::default(),
        }
    }

    fn text_for(&self, prompt: &[u32]) -> &str {
        let prompt = (self.codec.decode)(prompt);
        self.script
            .lines
            .iter()
            .find(|line| prompt.contains(&line.when))
            .map_or(self.script.default.as_str(), |line| line.say.as_str())
    }

    fn check(&self, request: &SequenceRequest) -> Result<(), SubmitError> {
        if request.prompt.is_empty() {
            return Err(SubmitError::Invalid("the prompt has no tokens".to_owned()));
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
        let turn = Turn::begin(&self.counters, self.script.max_sequences)?;
        let text = self
            .text_for(&request.prompt)
            .repeat(self.script.repeat.max(1) as usize);
        let room = self.script.context_length - request.prompt.len();
        let limit = room.min(request.max_tokens as usize);
        turn.counters
            .prefill_tokens
            .fetch_add(request.prompt.len() as u64, Ordering::Relaxed);
        let (sender, stream) = TokenStream::channel();
        let speaker = Speaker {
            tokens: (self.codec.encode)(&text),
            limit,
            delay: self.script.token_delay,
            request,
            sender,
            turn,
        };
        // A thread and not a task: waiting for a constraint blocks, as it does in the engine.
        thread::Builder::new()
            .name("scripted".to_owned())
            .spawn(move || speaker.run())
            .map_err(|error| SubmitError::Invalid(format!("cannot start a thread: {error}")))?;
        Ok(stream)
    }

    fn context_length(&self) -> usize {
        self.script.context_length
    }

    fn load(&self) -> EngineLoad {
        let steps = self.counters.steps.load(Ordering::Relaxed);
        EngineLoad {
            running: self.counters.running.load(Ordering::Relaxed),
            steps,
            prefill_tokens: self.counters.prefill_tokens.load(Ordering::Relaxed),
            decode_tokens: steps,
            ..EngineLoad::default()
        }
    }
}

/// One of the sequences that may speak at once; given back when dropped.
struct Turn {
    counters: Arc<Counters>,
}

impl Turn {
    fn begin(counters: &Arc<Counters>, limit: usize) -> Result<Self, SubmitError> {
        let turn = Self {
            counters: Arc::clone(counters),
        };
        // Dropping the turn gives the place back if there was none.
        if turn.counters.running.fetch_add(1, Ordering::Relaxed) >= limit {
            return Err(SubmitError::QueueFull { limit });
        }
        Ok(turn)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.counters.running.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One sequence being spoken, on a thread of its own.
struct Speaker {
    tokens: Vec<u32>,
    limit: usize,
    delay: Duration,
    request: SequenceRequest,
    sender: Sender<TokenEvent>,
    turn: Turn,
}

/// Why a sequence stopped being spoken.
enum End {
    Finished(FinishReason),
    Failed(SequenceError),
    Cancelled,
}

impl Speaker {
    fn run(mut self) {
        let mut spoken = 0;
        let event = match self.speak(&mut spoken) {
            End::Cancelled => return,
            End::Failed(error) => TokenEvent::Failed(error),
            End::Finished(reason) => TokenEvent::Finished {
                reason,
                usage: SequenceUsage {
                    prompt_tokens: self.request.prompt.len() as u32,
                    cached_tokens: 0,
                    completion_tokens: spoken,
                },
            },
        };
        // The place is free before the end is heard, so that a caller who has heard it finds one.
        let Self { sender, turn, .. } = self;
        drop(turn);
        // A reader that has gone away needs no ending.
        let _ = sender.blocking_send(event);
    }

    fn speak(&mut self, spoken: &mut u32) -> End {
        let mut guide = self.request.constraint.take().map(Guide::new);
        for position in 0..=self.tokens.len() {
            let next = self.tokens.get(position).copied();
            let next = next.filter(|id| !self.request.stop_tokens.contains(id));
            if let Some(guide) = &mut guide {
                match self.ask(guide, position, next) {
                    Ok(Verdict::Allowed) => {}
                    Ok(Verdict::Complete) => return End::Finished(FinishReason::Stop),
                    Err(error) => return End::Failed(error),
                }
            }
            let Some(id) = next else {
                return End::Finished(FinishReason::Stop);
            };
            if *spoken as usize == self.limit {
                return End::Finished(FinishReason::Length);
            }
            if !self.say(id) {
                return End::Cancelled;
            }
            *spoken += 1;
            if let Some(guide) = &mut guide {
                guide.committed.push(id);
            }
        }
        End::Finished(FinishReason::Stop)
    }

    /// Say one token; false if nobody listens any more.
    fn say(&self, id: u32) -> bool {
        if !self.delay.is_zero() {
            thread::sleep(self.delay);
        }
        let logprobs = self.request.logprobs.map(|params| TokenLogprobs {
            chosen: 0.0,
            top: (params.top > 0).then_some((id, 0.0)).into_iter().collect(),
        });
        self.turn.counters.steps.fetch_add(1, Ordering::Relaxed);
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
        constraint.wait();
        let mask = match constraint.poll() {
            None => return fail("it has no outcome after waiting".to_owned()),
            Some(Err(error)) => return fail(error.to_string()),
            Some(Ok(MaskStep::Finished)) => return Ok(Verdict::Complete),
            Some(Ok(MaskStep::Allow(mask))) => mask,
            Some(Ok(MaskStep::Forced(tokens))) => {
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

/// A constraint and what it is still to be told, or has said in advance.
struct Guide {
    constraint: Box<dyn Constraint>,
    /// Tokens said since it was last told.
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
