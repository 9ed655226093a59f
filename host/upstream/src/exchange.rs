//! One attempt at an answer that is streamed: its events are relayed as they arrive.

use http::Response;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use mortise_models::{OutputEvent, RuntimeError, Usage};
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::timeout;

use crate::answer::AnswerReader;
use crate::attempt::{AskUpstream, FailedAttempt, UpstreamRequest, check_media_type, upstream};
use crate::breaker::AttemptOutcome;
use crate::client::with_causes;
use crate::members::InFlight;
use crate::spans::{self, AttemptEnd};

/// Media type of streams.
pub(crate) const EVENT_STREAM: &str = "text/event-stream";

/// Request for a stream, with the channel of whoever waits for its events.
pub(crate) struct StreamRequest<'a> {
    pub(crate) request: UpstreamRequest<'a>,
    pub(crate) sender: &'a Sender<OutputEvent>,
}

/// An answer that was relayed, but for its last event.
pub(crate) struct Relayed {
    pub(crate) last: OutputEvent,
    /// Pieces of the body that the answer came in.
    pub(crate) pieces: u64,
    pub(crate) usage: Option<Usage>,
    /// Rest of the body; the connection can be used again once this has ended.
    pub(crate) rest: Incoming,
}

impl Relayed {
    /// End of the attempt, for its span.
    fn ended(&self) -> AttemptEnd<'_> {
        match &self.last {
            OutputEvent::Failed(error) => AttemptEnd::Failed(error),
            _ => AttemptEnd::Answered(self.usage),
        }
    }
}

impl AskUpstream for StreamRequest<'_> {
    type Answer = Relayed;

    async fn ask(&self, place: &mut InFlight, resent: u32) -> Result<Relayed, FailedAttempt> {
        let span = spans::of_attempt(self.request.span, place.url(), resent);
        let answered = match self.request.send(place, &span.0).await {
            Ok(response) => self.answered(response, place).await,
            Err(failed) => Err(failed),
        };
        span.end(&match &answered {
            Ok(relayed) => relayed.ended(),
            Err(failed) => AttemptEnd::Failed(&failed.error),
        });
        answered
    }
}

impl StreamRequest<'_> {
    async fn answered(
        &self,
        response: Response<Incoming>,
        place: &mut InFlight,
    ) -> Result<Relayed, FailedAttempt> {
        let asked = "a stream of events";
        if let Err(failed) = check_media_type(response.headers(), EVENT_STREAM, asked) {
            place.note(AttemptOutcome::Failed);
            return Err(failed);
        }
        self.send(OutputEvent::Begun).await;
        Ok(self.relay(response.into_body(), place).await)
    }

    /// Hand an event on. Its reader is there: the work of an answer ends with its stream.
    async fn send(&self, event: OutputEvent) {
        if let Err(TrySendError::Full(event)) = self.sender.try_send(event) {
            let _ = self.sender.send(event).await;
        }
    }

    /// Relay the events of a stream, each piece as it comes.
    async fn relay(&self, mut body: Incoming, place: &mut InFlight) -> Relayed {
        let timeouts = self.request.timeouts;
        let mut reader = AnswerReader::default();
        let mut events = Vec::new();
        let mut pieces = 0;
        let defect: Option<RuntimeError> = loop {
            let limit = match pieces {
                0 => timeouts.first_byte,
                _ => timeouts.chunk,
            };
            let data = match timeout(limit, body.frame()).await {
                Err(_) => {
                    let what = format!("sent nothing for {} ms", limit.as_millis());
                    break Some(upstream(what));
                }
                Ok(None) => break None,
                Ok(Some(Err(error))) => {
                    let what = format!("broke off its answer: {}", with_causes(&error));
                    break Some(upstream(what));
                }
                Ok(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => data,
                    Err(_) => continue,
                },
            };
            if pieces == 0 {
                place.note(AttemptOutcome::Begun);
            }
            pieces += 1;
            let complete = reader.feed(&data, &mut events);
            for event in events.drain(..) {
                self.send(event).await;
            }
            match complete {
                Ok(false) => {}
                Ok(true) => break None,
                Err(error) => break Some(error),
            }
        };
        reader.end(defect, &mut events);
        let last = events
            .pop()
            .unwrap_or_else(|| OutputEvent::Failed(upstream("ended its answer in the middle")));
        place.note(match &last {
            OutputEvent::Failed(_) => AttemptOutcome::Failed,
            _ => AttemptOutcome::Answered,
        });
        for event in events {
            self.send(event).await;
        }
        Relayed {
            last,
            pieces,
            usage: reader.usage(),
            rest: body,
        }
    }
}
