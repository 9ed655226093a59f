//! One choice of an answer: tokens in; text, reasoning and calls out.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use mortise_engine::{
    FinishReason as EngineFinish, GeneratedToken, SequenceError, SequenceUsage, TokenEvent,
    TokenStream,
};
use mortise_plugin::{Finish, ParserEvent, PluginError};
use uuid::Uuid;

use crate::constraint::MatcherFault;
use crate::error::ServiceError;
use crate::event::{Delta, FinishReason, TokenLogprob};
use crate::observer::Observer;
use crate::plugins::ParseSession;
use crate::stop::StopMatcher;
use crate::trail::{Claims, TokenTrail, TrailToken};
use mortise_tokenizer::Detokenizer;

/// Random characters in the id of a tool call.
const CALL_ID_CHARACTERS: usize = 24;

/// Something happened in a choice.
#[derive(Debug)]
pub(crate) enum ChoiceEvent {
    Delta {
        delta: Delta,
        logprobs: Vec<TokenLogprob>,
    },
    Finished(FinishReason),
    Failed(ServiceError),
}

/// Counts of one choice, readable while it goes on elsewhere.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) completion_tokens: AtomicU32,
    pub(crate) reasoning_tokens: AtomicU32,
    /// Of the prompt of the first round.
    pub(crate) cached_tokens: AtomicU32,
    /// Of the prompts that the choice was continued from after tools had run.
    pub(crate) later_prompt_tokens: AtomicU32,
    /// Of those, cached.
    pub(crate) later_cached_tokens: AtomicU32,
    /// Sum of the log-probabilities of the tokens, where they are known: the bits of an f64. Only
    /// the choice writes it.
    logprob: AtomicU64,
}

impl Tally {
    fn add_logprob(&self, logprob: f32) {
        let sum = f64::from_bits(self.logprob.load(Ordering::Relaxed)) + f64::from(logprob);
        self.logprob.store(sum.to_bits(), Ordering::Relaxed);
    }

    /// The mean log-probability of a token; that of no tokens is the lowest.
    pub(crate) fn mean_logprob(&self) -> f64 {
        let sum = f64::from_bits(self.logprob.load(Ordering::Relaxed));
        match self.completion_tokens.load(Ordering::Relaxed) {
            0 => f64::NEG_INFINITY,
            tokens => sum / f64::from(tokens),
        }
    }
}

/// What the engine says of a choice.
pub(crate) struct ChoiceStream {
    pub(crate) tokens: TokenStream,
    /// Why the engine says that the constraint failed.
    pub(crate) fault: MatcherFault,
}

impl ChoiceStream {
    /// A failed constraint is the fault of its plugin, which says whose fault that is.
    fn failure(&self, error: &SequenceError) -> ServiceError {
        match (error, self.fault.get()) {
            (SequenceError::Constraint(_), Some(fault)) => ServiceError::Plugin(fault.clone()),
            _ => ServiceError::Engine(error.to_string()),
        }
    }
}

/// What a choice is made of.
pub(crate) struct ChoiceParts {
    pub(crate) stream: ChoiceStream,
    pub(crate) detokenizer: Detokenizer,
    pub(crate) stop: StopMatcher,
    pub(crate) parser: Option<Box<dyn ParseSession>>,
    /// The prompt ended inside a reasoning block.
    pub(crate) reasoning: bool,
    pub(crate) logprobs: bool,
    /// Tools have run before.
    pub(crate) resumes: bool,
    pub(crate) tally: Arc<Tally>,
    pub(crate) watch: Watch,
}

/// Who hears of the tokens of a choice.
pub(crate) struct Watch {
    pub(crate) model: Arc<str>,
    pub(crate) observer: Arc<dyn Observer>,
    /// When the request arrived, then when the last token did. `None` right after tools have run:
    /// that wait is no time between tokens.
    pub(crate) last: Option<Instant>,
    pub(crate) seen_token: bool,
}

impl Watch {
    fn token(&mut self) {
        let now = Instant::now();
        let seen = std::mem::replace(&mut self.seen_token, true);
        if let Some(last) = self.last.replace(now) {
            let after = now.duration_since(last);
            match seen {
                true => self.observer.next_token(&self.model, after),
                false => self.observer.first_token(&self.model, after),
            }
        }
    }
}

/// One choice while it is generated.
pub(crate) struct Choice {
    stream: ChoiceStream,
    detokenizer: Detokenizer,
    stop: StopMatcher,
    /// Taken when it is closed.
    parser: Option<Box<dyn ParseSession>>,
    trail: TokenTrail,
    claims: Claims,
    /// Bytes of raw text that went past the stop strings.
    passed: usize,
    /// Log-probabilities of tokens without text, for the next delta.
    silent: Vec<TokenLogprob>,
    in_reasoning: bool,
    called: bool,
    logprobs: bool,
    resumes: bool,
    tally: Arc<Tally>,
    watch: Watch,
    ready: VecDeque<ChoiceEvent>,
    done: bool,
}

impl Choice {
    pub(crate) fn new(parts: ChoiceParts) -> Self {
        Self {
            stream: parts.stream,
            detokenizer: parts.detokenizer,
            stop: parts.stop,
            parser: parts.parser,
            trail: TokenTrail::default(),
            claims: Claims::default(),
            passed: 0,
            silent: Vec::new(),
            in_reasoning: parts.reasoning,
            called: false,
            logprobs: parts.logprobs,
            resumes: parts.resumes,
            tally: parts.tally,
            watch: parts.watch,
            ready: VecDeque::new(),
            done: false,
        }
    }

    pub(crate) fn tally(&self) -> Arc<Tally> {
        Arc::clone(&self.tally)
    }

    /// The next event; `None` after `Finished` or `Failed`.
    pub(crate) async fn next(&mut self) -> Option<ChoiceEvent> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.done {
                return None;
            }
            if let Err(error) = self.step().await {
                self.done = true;
                return Some(ChoiceEvent::Failed(error));
            }
        }
    }

    async fn step(&mut self) -> Result<(), ServiceError> {
        match self.stream.tokens.next().await {
            Some(TokenEvent::Token(token)) => self.take(token).await,
            Some(TokenEvent::Finished { reason, usage }) => {
                self.record(&usage);
                self.end(reason).await
            }
            Some(TokenEvent::Failed(error)) => Err(self.stream.failure(&error)),
            // The engine ends a stream without an ending only when it stops.
            None => Err(ServiceError::Stopping),
        }
    }

    async fn take(&mut self, token: GeneratedToken) -> Result<(), ServiceError> {
        self.watch.token();
        self.tally.completion_tokens.fetch_add(1, Ordering::Relaxed);
        if let Some(logprobs) = &token.logprobs {
            self.tally.add_logprob(logprobs.chosen);
        }
        let logprob = match self.logprobs {
            true => logprob_of(&self.detokenizer, &token),
            false => None,
        };
        let mut text = String::new();
        let bytes = self.detokenizer.push(token.id, &mut text);
        self.trail.push(
            token.id,
            logprob,
            bytes,
            text.len(),
            self.detokenizer.held(),
        );
        let mut passed = String::new();
        let stopped = self.stop.push(&text, &mut passed);
        self.passed += passed.len();
        let tokens = match stopped {
            true => self.trail.release_cut(self.passed),
            false => self.trail.release(self.passed),
        };
        self.pass(&passed, tokens).await?;
        if stopped {
            self.close(EngineFinish::Stop).await?;
        }
        Ok(())
    }

    /// The engine has ended the sequence: let go of everything that was held back.
    async fn end(&mut self, reason: EngineFinish) -> Result<(), ServiceError> {
        let mut text = String::new();
        self.detokenizer.finish(&mut text);
        self.trail.finish(text.len());
        let mut passed = String::new();
        let stopped = self.stop.push(&text, &mut passed);
        if !stopped {
            self.stop.finish(&mut passed);
        }
        self.passed += passed.len();
        let tokens = self.trail.release_cut(self.passed);
        let silent = self.trail.release(if stopped { 0 } else { usize::MAX });
        self.pass(&passed, tokens.into_iter().chain(silent).collect())
            .await?;
        self.close(if stopped { EngineFinish::Stop } else { reason })
            .await
    }

    async fn close(&mut self, reason: EngineFinish) -> Result<(), ServiceError> {
        self.done = true;
        let finish = match reason {
            EngineFinish::Stop => Finish::Stop,
            EngineFinish::Length => Finish::Length,
        };
        if let Some(parser) = self.parser.take() {
            let events = parser.close(finish).await?;
            self.speak(events, 0);
        }
        if !self.silent.is_empty() {
            let logprobs = std::mem::take(&mut self.silent);
            let delta = Delta::Content(String::new());
            self.ready.push_back(ChoiceEvent::Delta { delta, logprobs });
        }
        self.ready.push_back(ChoiceEvent::Finished(match reason {
            EngineFinish::Stop if self.called => FinishReason::ToolCalls,
            EngineFinish::Stop => FinishReason::Stop,
            EngineFinish::Length => FinishReason::Length,
        }));
        Ok(())
    }

    /// Text that is certain to belong to the answer goes to the parser, if there is one.
    async fn pass(&mut self, text: &str, tokens: Vec<TrailToken>) -> Result<(), PluginError> {
        let Some(parser) = self.parser.as_mut() else {
            self.silent
                .extend(tokens.into_iter().filter_map(|token| token.logprob));
            if !text.is_empty() {
                let logprobs = std::mem::take(&mut self.silent);
                let delta = Delta::Content(text.to_owned());
                self.ready.push_back(ChoiceEvent::Delta { delta, logprobs });
            }
            return Ok(());
        };
        if text.is_empty() && tokens.is_empty() {
            return Ok(());
        }
        let ids: Vec<u32> = tokens.iter().map(|token| token.id).collect();
        let events = parser.feed(text, &ids).await?;
        if self.logprobs {
            self.claims.offer(text, tokens);
        }
        self.speak(events, ids.len() as u32);
        Ok(())
    }

    /// What the parser made of the text of `tokens` tokens.
    fn speak(&mut self, events: Vec<ParserEvent>, tokens: u32) {
        let (mut reasoned, mut answered) = (false, false);
        let before = self.in_reasoning;
        for event in events {
            let delta = match event {
                ParserEvent::Content(text) => {
                    self.in_reasoning = false;
                    answered = true;
                    Delta::Content(text)
                }
                ParserEvent::Reasoning(text) => {
                    self.in_reasoning = true;
                    reasoned = true;
                    Delta::Reasoning(text)
                }
                ParserEvent::CallBegin { index, id, name } => {
                    self.in_reasoning = false;
                    answered = true;
                    self.called = true;
                    let id = id.unwrap_or_else(new_call_id);
                    Delta::CallBegin { index, id, name }
                }
                ParserEvent::CallArguments { index, delta } => {
                    Delta::CallArguments { index, delta }
                }
                ParserEvent::CallEnd { .. } => continue,
            };
            let logprobs = match &delta {
                Delta::Content(text) | Delta::Reasoning(text) if text.is_empty() => continue,
                Delta::CallArguments { delta, .. } if delta.is_empty() => continue,
                Delta::Content(text) | Delta::Reasoning(text) if self.logprobs => {
                    self.claims.claim(text)
                }
                Delta::CallArguments { delta, .. } if self.logprobs => self.claims.claim(delta),
                _ => Vec::new(),
            };
            self.ready.push_back(ChoiceEvent::Delta { delta, logprobs });
        }
        // Tokens that the parser keeps silent about belong to where the answer was before.
        if reasoned || (before && !answered) {
            self.tally
                .reasoning_tokens
                .fetch_add(tokens, Ordering::Relaxed);
        }
    }

    fn record(&self, usage: &SequenceUsage) {
        let cached = match self.resumes {
            true => &self.tally.later_cached_tokens,
            false => &self.tally.cached_tokens,
        };
        cached.fetch_add(usage.cached_tokens, Ordering::Relaxed);
    }
}

/// An id for a call that the model gave none.
fn new_call_id() -> String {
    const ALPHABET: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let mut id = String::from("call_");
    // Each half of the characters takes 71 of the 122 random bits of an identifier of its own.
    for _ in 0..2 {
        let mut random = Uuid::new_v4().as_u128();
        for _ in 0..CALL_ID_CHARACTERS / 2 {
            id.push(char::from(ALPHABET[(random % 62) as usize]));
            random /= 62;
        }
    }
    id
}

/// What is reported of a token that comes next.
fn logprob_of(detokenizer: &Detokenizer, token: &GeneratedToken) -> Option<TokenLogprob> {
    let logprobs = token.logprobs.as_ref()?;
    let shown = |id: u32| {
        let bytes = detokenizer.next_bytes(id);
        (String::from_utf8_lossy(bytes).into_owned(), bytes.to_vec())
    };
    let (text, bytes) = shown(token.id);
    let alternative = |&(id, logprob): &(u32, f32)| {
        let (text, bytes) = shown(id);
        (text, bytes, logprob)
    };
    Some(TokenLogprob {
        token: text,
        bytes,
        logprob: logprobs.chosen,
        top: logprobs.top.iter().map(alternative).collect(),
    })
}
