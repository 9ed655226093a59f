//! Output of the engine: one bounded stream of events for each sequence.

use std::time::Duration;

use tokio::sync::mpsc;

use crate::queue_time::QueueTimer;
use crate::waker::StreamWaker;

/// Events of one sequence, in order. Exactly one `Finished` or `Failed` comes last, unless the
/// engine stops first, which closes the stream without it.
#[derive(Debug, Clone, PartialEq)]
pub enum TokenEvent {
    /// Tokens of the prompt, in order, with their log-probabilities, if these were asked for. All come before the first
    /// generated token.
    Prompt(Vec<ScoredToken>),
    /// A token was committed.
    Token(GeneratedToken),
    /// The sequence is complete.
    Finished {
        /// Reason of the end.
        reason: SequenceEnd,
        /// Token counts.
        usage: SequenceUsage,
    },
    /// The sequence failed; no other is affected.
    Failed(SequenceError),
}

/// A committed token.
#[derive(Debug, Clone, PartialEq)]
pub struct GeneratedToken {
    /// Token id.
    pub id: u32,
    /// Log-probabilities, if they were asked for.
    pub logprobs: Option<TokenLogprobs>,
}

/// Natural logarithms of probabilities under the model, before temperature, filters and masks
/// but after `logit_bias` and penalties.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenLogprobs {
    /// Log-probability of the committed token.
    pub chosen: f32,
    /// Likeliest tokens with their log-probabilities, highest first.
    pub top: Vec<(u32, f32)>,
}

/// Token of the prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct ScoredToken {
    /// Token id.
    pub id: u32,
    /// Log-probabilities behind the tokens before it; `None` for the first.
    pub logprobs: Option<PromptLogprobs>,
}

/// Natural logarithms of probabilities under the model, without anything that changes how tokens are sampled.
#[derive(Debug, Clone, PartialEq)]
pub struct PromptLogprobs {
    /// Log-probability of the token.
    pub own: f32,
    /// One more than the number of tokens that are likelier.
    pub rank: u32,
    /// Likeliest tokens with their log-probabilities, highest first.
    pub top: Vec<(u32, f32)>,
}

/// Reason that a sequence is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SequenceEnd {
    /// A stop token was sampled, or the constraint said that the text is complete.
    Stop,
    /// `max_tokens` or the context length was reached.
    Length,
}

/// Token counts of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SequenceUsage {
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// Prompt tokens that were found in the prefix cache.
    pub cached_tokens: u32,
    /// Tokens generated, the stop token not counted.
    pub completion_tokens: u32,
}

/// Reason that a sequence failed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SequenceError {
    /// The constraint failed.
    #[error("constraint failed: {0}")]
    Constraint(String),
    /// The forward pass or the sampler failed on this sequence.
    #[error("inference failed: {0}")]
    Inference(String),
}

/// The receiving end of a sequence. Dropping it cancels the sequence: the engine frees its blocks
/// at the next step.
#[derive(Debug)]
pub struct TokenStream {
    receiver: mpsc::Receiver<TokenEvent>,
    /// Wakes the engine that feeds the stream.
    waker: Option<StreamWaker>,
    /// Timer of the queue time; `None` where the backend has no queue.
    queue: Option<QueueTimer>,
}

impl TokenStream {
    /// Events that a stream buffers. A full stream pauses its sequence (backpressure), and no other.
    pub const CAPACITY: usize = 64;

    /// A stream and the sender that feeds it.
    pub fn channel() -> (mpsc::Sender<TokenEvent>, Self) {
        let (sender, receiver) = mpsc::channel(Self::CAPACITY);
        (
            sender,
            Self {
                receiver,
                waker: None,
                queue: None,
            },
        )
    }

    /// A stream whose reader wakes the engine when it makes room.
    pub(crate) fn with_waker(
        waker: StreamWaker,
        queue: QueueTimer,
    ) -> (mpsc::Sender<TokenEvent>, Self) {
        let (sender, receiver) = mpsc::channel(Self::CAPACITY);
        (
            sender,
            Self {
                receiver,
                waker: Some(waker),
                queue: Some(queue),
            },
        )
    }

    /// Time that the sequence waited for its first step; `None` while it still waits, zero where the
    /// backend has no queue. Recorded by the engine, so a slow reader does not lengthen it.
    pub fn queue_time(&self) -> Option<Duration> {
        match &self.queue {
            Some(timer) => timer.get(),
            None => Some(Duration::ZERO),
        }
    }

    /// The next event; `None` after the last.
    pub async fn next(&mut self) -> Option<TokenEvent> {
        let event = self.receiver.recv().await;
        self.wake_if_stalled();
        event
    }

    /// The next event if one is waiting.
    pub fn try_next(&mut self) -> Option<TokenEvent> {
        let event = self.receiver.try_recv().ok();
        self.wake_if_stalled();
        event
    }

    /// Block until the next event; `None` after the last. Not for asynchronous code.
    pub fn blocking_next(&mut self) -> Option<TokenEvent> {
        let event = self.receiver.blocking_recv();
        self.wake_if_stalled();
        event
    }

    fn wake_if_stalled(&self) {
        if let Some(waker) = &self.waker {
            waker.wake_if_stalled();
        }
    }
}

impl Drop for TokenStream {
    fn drop(&mut self) {
        // Closed first, so that the engine finds it closed when it wakes.
        self.receiver.close();
        if let Some(waker) = &self.waker {
            waker.wake();
        }
    }
}
