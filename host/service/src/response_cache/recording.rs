//! An answer as it is kept: its events, and the tokens that it took.

use std::sync::Arc;

use mortise_models::{Delta, FinishReason, TokenLogprob, Usage};

use super::ResponseCache;
use super::key::{Likeness, RequestDigest};
use crate::event::Event;

/// Bytes of an event beside its texts.
const EVENT_BYTES: usize = 96;

/// An event of an answer, with the number of its choice among those of its prompt.
#[derive(Debug, Clone, PartialEq)]
enum Step {
    Delta {
        choice: u32,
        delta: Delta,
        logprobs: Vec<TokenLogprob>,
        tokens: Vec<u32>,
    },
    Finished {
        choice: u32,
        reason: FinishReason,
        stop: Option<String>,
        tokens: Vec<u32>,
    },
}

/// An answer that is complete.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Recorded {
    steps: Vec<Step>,
    bytes: usize,
    pub(crate) usage: Usage,
}

impl Recorded {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The events, of choices that are numbered from `first`.
    pub(crate) fn events(&self, first: u32) -> impl Iterator<Item = Event> + '_ {
        self.steps.iter().cloned().map(move |step| match step {
            Step::Delta {
                choice,
                delta,
                logprobs,
                tokens,
            } => Event::Delta {
                choice: first + choice,
                delta,
                logprobs,
                tokens,
            },
            Step::Finished {
                choice,
                reason,
                stop,
                tokens,
            } => Event::Finished {
                choice: first + choice,
                reason,
                stop,
                tokens,
            },
        })
    }

    /// Choices of the answer.
    pub(crate) fn choices(&self) -> u32 {
        let finished = |step: &&Step| matches!(step, Step::Finished { .. });
        u32::try_from(self.steps.iter().filter(finished).count()).unwrap_or(u32::MAX)
    }
}

/// Answer that is recorded while it is made, and kept in the response cache when it ends as it should.
#[derive(Debug)]
pub(crate) struct AnswerRecording {
    cache: Arc<ResponseCache>,
    key: RequestDigest,
    tenant: Arc<str>,
    likeness: Option<Likeness>,
    /// Number of the first choice.
    first: u32,
    answer: Recorded,
    /// Flag of an answer that cannot be kept.
    given_up: bool,
}

impl AnswerRecording {
    pub(crate) fn new(
        cache: Arc<ResponseCache>,
        key: RequestDigest,
        tenant: Arc<str>,
        likeness: Option<Likeness>,
        first: u32,
    ) -> Self {
        Self {
            cache,
            key,
            tenant,
            likeness,
            first,
            answer: Recorded::default(),
            given_up: false,
        }
    }

    /// Take an event.
    pub(crate) fn note(&mut self, event: &Event) {
        if self.given_up {
            return;
        }
        let number = |choice: u32| choice.saturating_sub(self.first);
        let step = match event {
            Event::Delta {
                choice,
                delta,
                logprobs,
                tokens,
            } => Step::Delta {
                choice: number(*choice),
                delta: delta.clone(),
                logprobs: logprobs.clone(),
                tokens: tokens.clone(),
            },
            Event::Finished {
                choice,
                reason: reason @ (FinishReason::Stop | FinishReason::ToolCalls),
                stop,
                tokens,
            } => Step::Finished {
                choice: number(*choice),
                reason: *reason,
                stop: stop.clone(),
                tokens: tokens.clone(),
            },
            // An answer that was cut, and one in which tools ran, may come out otherwise. Requests with
            // log-probabilities of their prompts are not looked up.
            Event::Finished { .. } | Event::ServerToolCall { .. } | Event::Prompt { .. } => {
                return self.give_up();
            }
            Event::Completed { .. } | Event::Failed(_) => return,
        };
        self.answer.bytes += bytes_of(&step);
        self.answer.steps.push(step);
        if self.answer.bytes > self.cache.max_entry_bytes() {
            self.give_up();
        }
    }

    fn give_up(&mut self) {
        self.given_up = true;
        self.answer = Recorded::default();
    }

    /// The answer is complete.
    pub(crate) fn complete(self, usage: Usage) {
        if self.given_up {
            return;
        }
        let answer = Recorded {
            usage,
            ..self.answer
        };
        self.cache
            .keep(self.key, &self.tenant, answer, self.likeness);
    }
}

fn bytes_of(step: &Step) -> usize {
    EVENT_BYTES
        + match step {
            Step::Delta {
                delta,
                logprobs,
                tokens,
                ..
            } => {
                let top = |entry: &TokenLogprob| -> usize {
                    let each = entry.top.iter();
                    each.map(|(text, bytes, _)| EVENT_BYTES + text.len() + bytes.len())
                        .sum()
                };
                let logprobs: usize = logprobs
                    .iter()
                    .map(|entry| EVENT_BYTES + entry.token.len() + entry.bytes.len() + top(entry))
                    .sum();
                text_bytes(delta) + logprobs + 4 * tokens.len()
            }
            Step::Finished { stop, tokens, .. } => {
                stop.as_ref().map_or(0, String::len) + 4 * tokens.len()
            }
        }
}

fn text_bytes(delta: &Delta) -> usize {
    match delta {
        Delta::Content(text) | Delta::Reasoning(text) => text.len(),
        Delta::CallBegin { id, name, .. } => id.len() + name.len(),
        Delta::CallArguments { delta, .. } => delta.len(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::CacheConfig;
    use super::*;

    fn cache(max_entry_bytes: usize) -> Arc<ResponseCache> {
        Arc::new(ResponseCache::new(CacheConfig {
            max_bytes: 1 << 20,
            tenant_max_bytes: 1 << 20,
            max_entry_bytes,
            max_age: Duration::from_secs(60),
            rules: Vec::new(),
        }))
    }

    fn content(choice: u32, text: &str) -> Event {
        Event::Delta {
            choice,
            delta: Delta::Content(text.to_owned()),
            logprobs: Vec::new(),
            tokens: vec![7],
        }
    }

    fn finished(reason: FinishReason) -> Event {
        Event::Finished {
            choice: 4,
            reason,
            stop: None,
            tokens: Vec::new(),
        }
    }

    fn kept(events: &[Event], max_entry_bytes: usize) -> Option<Arc<Recorded>> {
        let (cache, key) = (cache(max_entry_bytes), RequestDigest([1; 32]));
        let mut recording = AnswerRecording::new(Arc::clone(&cache), key, Arc::from("a"), None, 4);
        events.iter().for_each(|event| recording.note(event));
        recording.complete(Usage::default());
        cache.find(&key)
    }

    #[test]
    fn feature_k3_events_come_again_under_other_numbers() {
        let answer = kept(&[content(4, "a"), finished(FinishReason::Stop)], 4096);
        let answer = answer.expect("it is kept");
        assert_eq!(answer.choices(), 1);
        let again: Vec<String> = answer.events(2).map(|event| format!("{event:?}")).collect();
        let expected = content(2, "a");
        assert_eq!(again[0], format!("{expected:?}"));
        assert!(again[1].contains("choice: 2"), "{again:?}");
    }

    #[test]
    fn feature_k3_cut_and_long_answers_are_not_kept() {
        assert!(kept(&[content(4, "a"), finished(FinishReason::Length)], 4096).is_none());
        assert!(
            kept(
                &[content(4, "a"), finished(FinishReason::ContentFilter)],
                4096
            )
            .is_none()
        );
        let long = "x".repeat(5000);
        assert!(kept(&[content(4, &long), finished(FinishReason::Stop)], 4096).is_none());
    }
}
