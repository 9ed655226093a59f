//! The second kind of runtime: conversation in, events out.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use mortise_engine::{EngineLoad, Share, SubmitError};
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{mpsc, watch};

use crate::conversation::{Conversation, TemplateArguments, ToolDeclaration};
use crate::output::{Delta, FinishReason, TokenLogprob, Usage};

/// Answers conversations: a remote server or a child process that renders, encodes, constrains and
/// parses by itself, or a script. The service admits and accounts for its requests, runs the tools of
/// the server, and passes its events on.
pub trait ConversationRuntime: Send + Sync {
    /// Submit a conversation for one choice. Must not block: a runtime that has to connect first
    /// reports failures in the stream. Dropping the stream cancels the choice. A runtime may work only while
    /// the stream is waited for.
    ///
    /// # Errors
    /// When the request cannot be answered, or too many requests wait.
    fn submit(&self, request: ConversationRequest) -> Result<OutputStream, SubmitError>;

    /// Submit a prompt that was rendered here, for one choice. Otherwise as [`Self::submit`]: deltas are raw text,
    /// which the caller parses.
    ///
    /// # Errors
    /// When the runtime takes conversations only, else as [`Self::submit`].
    fn submit_rendered(&self, request: RenderedRequest) -> Result<OutputStream, SubmitError> {
        let RenderedRequest { request_id, .. } = request;
        Err(SubmitError::Invalid(format!(
            "the request {request_id} was rendered for a model that renders its conversations itself"
        )))
    }

    /// Whether a request must say that it may leave this machine.
    fn requires_allow_remote(&self) -> bool {
        false
    }

    /// Tokens that a conversation and its answer may have together, if known.
    fn context_length(&self) -> Option<usize>;

    /// Counters and gauges of the runtime, as far as they are known.
    fn load(&self) -> EngineLoad;

    /// Resident memory of the processes that the runtime runs on this machine, in bytes.
    fn memory_bytes(&self) -> u64 {
        0
    }

    /// Watch of the end of a runtime that may end by itself; `None` if it ends only when it is dropped.
    fn end(&self) -> Option<RuntimeEnd> {
        None
    }
}

/// Whether a runtime has ended by itself. The sender goes away with the runtime.
pub type RuntimeEnd = watch::Receiver<Option<UnexpectedEnd>>;

/// End of a runtime that nobody asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnexpectedEnd {
    /// Message for callers.
    pub cause: String,
    /// Message for operators: the cause, with the last output of the runtime.
    pub detail: String,
}

/// A conversation to answer. `None` leaves a setting to the runtime.
#[derive(Debug, Clone)]
pub struct ConversationRequest {
    /// Server's id of the request, to be passed on.
    pub request_id: String,
    /// Account that the request counts against.
    pub share: Share,
    /// Messages.
    pub conversation: Conversation,
    /// Further arguments of the runtime's chat template.
    pub arguments: TemplateArguments,
    /// Continue the last message instead of answering it.
    pub continue_final_message: bool,
    /// Tools that the model may call.
    pub tools: Vec<ToolDeclaration>,
    /// Constraint on tool calls.
    pub tool_use: ToolUse,
    /// Flag: one answer may hold several tool calls.
    pub parallel_tool_calls: bool,
    /// Format of the content.
    pub format: Option<OutputFormat>,
    /// Most tokens to generate.
    pub max_tokens: u32,
    /// `max_tokens` is the caller's or a policy's. Otherwise it is this server's default, which is left out where
    /// another server knows what its context has room for.
    pub max_tokens_given: bool,
    /// Strings that end the answer. They are not part of it.
    pub stop: Vec<String>,
    /// Sampling.
    pub sampling: RequestedSampling,
    /// Report log-probabilities with this many alternatives.
    pub logprobs: Option<u32>,
}

/// A prompt to complete. `None` leaves a setting to the runtime.
#[derive(Debug, Clone)]
pub struct RenderedRequest {
    /// Server's id of the request, to be passed on.
    pub request_id: String,
    /// Account that the request counts against.
    pub share: Share,
    /// Token ids.
    pub prompt: Vec<u32>,
    /// Control tokens of the answer are part of its text.
    pub keep_special: bool,
    /// Format of the answer.
    pub format: Option<OutputFormat>,
    /// Most tokens to generate.
    pub max_tokens: u32,
    /// Strings that end the answer. They are not part of it.
    pub stop: Vec<String>,
    /// Sampling.
    pub sampling: RequestedSampling,
}

/// Sampling parameters that a caller gave.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RequestedSampling {
    /// Temperature, 0 to 2.
    pub temperature: Option<f64>,
    /// Cumulative probability of the candidates.
    pub top_p: Option<f64>,
    /// Number of candidates; 0 is off.
    pub top_k: Option<u32>,
    /// Least probability of a candidate, relative to the most likely one.
    pub min_p: Option<f64>,
    /// Seed of the random numbers.
    pub seed: Option<i64>,
    /// Repetition penalty.
    pub repetition_penalty: Option<f64>,
    /// Frequency penalty.
    pub frequency_penalty: Option<f64>,
    /// Presence penalty.
    pub presence_penalty: Option<f64>,
}

/// Constraint on tool calls.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ToolUse {
    /// No tool calls.
    None,
    /// The model decides.
    #[default]
    Auto,
    /// At least one tool call.
    Required,
    /// A call of this tool.
    Named(String),
}

/// Format that the content must follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutputFormat {
    /// A JSON object.
    JsonObject,
    /// JSON that matches this JSON Schema.
    JsonSchema(String),
    /// Text that matches this regular expression.
    Regex(String),
    /// Text that follows this Lark grammar.
    Lark(String),
    /// Text that follows this grammar in GBNF.
    Gbnf(String),
    /// Text that follows this structural tag.
    StructuralTag(serde_json::Map<String, serde_json::Value>),
}

/// Event of one choice, in order. Exactly one `Finished` or `Failed` comes last.
#[derive(Debug, Clone, PartialEq)]
pub enum OutputEvent {
    /// The runtime has begun to answer; nothing has been generated yet. A runtime may leave it out.
    Begun,
    /// The choice grew: by one token, if the runtime streams token by token.
    Delta {
        /// Increment. Calls are numbered from 0 in the order in which they begin.
        delta: Delta,
        /// Log-probabilities of the tokens that it came from, if they were requested.
        logprobs: Vec<TokenLogprob>,
    },
    /// The choice is complete.
    Finished {
        /// Reason.
        reason: FinishReason,
        /// Usage, if the runtime reports it.
        usage: Option<Usage>,
    },
    /// The choice failed.
    Failed(RuntimeError),
}

/// Failure of a runtime after it has taken a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuntimeError {
    /// The request is at fault.
    #[error("{0}")]
    Invalid(String),
    /// The conversation does not fit the context.
    #[error(
        "the conversation has {prompt} tokens, {requested} more were asked for, and the context \
         holds {context}"
    )]
    ContextLength {
        /// Tokens of the conversation.
        prompt: usize,
        /// Tokens asked for.
        requested: usize,
        /// Tokens that the context holds, answer included.
        context: usize,
    },
    /// The model's server cannot be reached, failed, or broke its protocol.
    #[error("{0}")]
    Upstream(String),
    /// The runtime takes no requests at present.
    #[error("{message}")]
    Unavailable {
        /// Description of the failure.
        message: String,
        /// Seconds after which to retry.
        retry_after: u32,
    },
    /// The runtime itself failed.
    #[error("{0}")]
    Failed(String),
}

/// The receiving end of a choice. Dropping it cancels the choice: sends fail, which a runtime takes
/// as its cue to free what the choice holds.
pub struct OutputStream {
    receiver: mpsc::Receiver<OutputEvent>,
    /// An event that came and was not read.
    came: Option<OutputEvent>,
    /// Work that sends the events, where nobody else does it.
    work: Option<Work>,
}

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

impl OutputStream {
    /// Events that may wait for the reader. A full stream is backpressure for its choice, and for no
    /// other.
    pub const CAPACITY: usize = 64;

    /// A stream and the sender that feeds it.
    pub fn channel() -> (mpsc::Sender<OutputEvent>, Self) {
        let (sender, receiver) = mpsc::channel(Self::CAPACITY);
        let stream = Self {
            receiver,
            came: None,
            work: None,
        };
        (sender, stream)
    }

    /// A stream whose events are sent by work that goes on while the stream is read, on the reader's task: no other is
    /// woken for each event. It is dropped with the stream, wherever it stands.
    pub fn worked<F>(work: impl FnOnce(mpsc::Sender<OutputEvent>) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (sender, mut stream) = Self::channel();
        stream.work = Some(Box::pin(work(sender)));
        stream
    }

    /// The next event; `None` after the last, or when the runtime has stopped.
    pub async fn next(&mut self) -> Option<OutputEvent> {
        match self.came.take() {
            Some(event) => Some(event),
            None => poll_fn(|context| self.poll_receive(context)).await,
        }
    }

    /// Wait until the runtime has begun to answer, or has failed before it did: its failure then. What has come is read by
    /// [`next`](Self::next) as ever.
    pub async fn begun(&mut self) -> Option<&RuntimeError> {
        if self.came.is_none() {
            self.came = poll_fn(|context| self.poll_receive(context)).await;
        }
        match &self.came {
            Some(OutputEvent::Failed(error)) => Some(error),
            _ => None,
        }
    }

    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<Option<OutputEvent>> {
        let Some(work) = &mut self.work else {
            return self.receiver.poll_recv(context);
        };
        match self.receiver.try_recv() {
            Ok(event) => return Poll::Ready(Some(event)),
            Err(TryRecvError::Disconnected) => return Poll::Ready(None),
            Err(TryRecvError::Empty) => {}
        }
        if work.as_mut().poll(context).is_ready() {
            self.work = None;
            return self.receiver.poll_recv(context);
        }
        // The work has seen to it that this is polled again.
        self.receiver
            .try_recv()
            .map_or(Poll::Pending, |event| Poll::Ready(Some(event)))
    }
}

impl fmt::Debug for OutputStream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("OutputStream")
            .field("receiver", &self.receiver)
            .field("came", &self.came)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const SENT: usize = 3 * OutputStream::CAPACITY;

    fn delta(number: usize) -> OutputEvent {
        OutputEvent::Delta {
            delta: Delta::Content(number.to_string()),
            logprobs: Vec::new(),
        }
    }

    #[tokio::test]
    async fn work_goes_on_while_it_is_waited_for() {
        let mut stream = OutputStream::worked(async |sender| {
            for number in 0..SENT {
                if number % 7 == 0 {
                    tokio::task::yield_now().await;
                }
                sender.send(delta(number)).await.expect("a reader");
            }
        });
        for number in 0..SENT {
            assert_eq!(stream.next().await, Some(delta(number)));
        }
        assert_eq!(stream.next().await, None);
        assert_eq!(stream.next().await, None);
    }

    #[tokio::test]
    async fn the_beginning_is_read_again() {
        let mut stream = OutputStream::worked(async |sender| {
            sender.send(OutputEvent::Begun).await.expect("a reader");
        });
        assert_eq!(stream.begun().await, None);
        assert_eq!(stream.next().await, Some(OutputEvent::Begun));
        assert_eq!(stream.next().await, None);
    }

    #[tokio::test]
    async fn work_ends_with_its_stream() {
        let held = Arc::new(());
        let kept = Arc::clone(&held);
        let mut stream = OutputStream::worked(async move |sender| {
            sender.send(delta(0)).await.expect("a reader");
            std::future::pending::<()>().await;
            drop(kept);
        });
        assert_eq!(stream.next().await, Some(delta(0)));
        assert_eq!(Arc::strong_count(&held), 2);
        drop(stream);
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
