//! One attempt at a request: ask one upstream, and relay its answer as it arrives.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, LOCATION, RETRY_AFTER};
use http::{HeaderMap, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use mortise_models::{OutputEvent, RuntimeError, UpstreamTimeouts, Usage};
use mortise_trace::Span;
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::timeout;

use crate::answer::AnswerReader;
use crate::breaker::AttemptOutcome;
use crate::client::{UpstreamClient, beginning_of, with_causes};
use crate::limits::MAX_ERROR_BYTES;
use crate::members::InFlight;
use crate::refusal::{ErrorAnswer, shortened};
use crate::spans::{self, AttemptEnd};

/// Request to an upstream, with the channel of whoever waits for its answer.
pub(crate) struct UpstreamRequest<'a> {
    pub(crate) client: &'a UpstreamClient,
    pub(crate) timeouts: UpstreamTimeouts,
    pub(crate) request_id: &'a str,
    /// Path below the base URL.
    pub(crate) path: &'static str,
    pub(crate) body: Bytes,
    /// Span that the attempts are parts of.
    pub(crate) span: &'a Span,
    pub(crate) sender: &'a Sender<OutputEvent>,
}

/// End of an attempt.
pub(crate) enum Attempt {
    /// The upstream answered.
    Relayed(Relayed),
    /// The attempt failed before any event was relayed.
    Failed {
        error: RuntimeError,
        /// Detail for the operator, not for callers.
        detail: String,
        /// Pause before the same upstream may be asked again; `None` where a retry is not safe.
        retry: Option<Duration>,
    },
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

impl Attempt {
    /// End of the attempt, for its span.
    fn ended(&self) -> AttemptEnd<'_> {
        match self {
            Self::Failed { error, .. } => AttemptEnd::Failed(error),
            Self::Relayed(relayed) => match &relayed.last {
                OutputEvent::Failed(error) => AttemptEnd::Failed(error),
                _ => AttemptEnd::Answered(relayed.usage),
            },
        }
    }

    fn failed(what: impl std::fmt::Display, detail: String) -> Self {
        Self::Failed {
            error: RuntimeError::Upstream(format!("the model's server {what}")),
            detail,
            retry: None,
        }
    }
}

impl UpstreamRequest<'_> {
    /// Ask the upstream of this place, `resent` requests after the first.
    pub(crate) async fn ask(&self, place: &mut InFlight, resent: u32) -> Attempt {
        let span = spans::of_attempt(self.span, place.url(), resent);
        let attempt = self.attempt(place, &span.0).await;
        span.end(&attempt.ended());
        attempt
    }

    async fn attempt(&self, place: &mut InFlight, span: &Span) -> Attempt {
        let url = place.url().join(self.path);
        let limit = self.timeouts.connect + self.timeouts.first_byte;
        let asked = self
            .client
            .post(&url, self.body.clone(), self.request_id, span);
        let attempt = match timeout(limit, asked).await {
            Err(_) => {
                let what = format!("did not answer within {} ms", limit.as_millis());
                Attempt::failed(what, String::new())
            }
            Ok(Err(none)) if none.unsent => Attempt::Failed {
                error: RuntimeError::Upstream("the model's server cannot be reached".to_owned()),
                detail: none.text,
                retry: Some(Duration::ZERO),
            },
            Ok(Err(none)) => Attempt::failed("broke off before it answered", none.text),
            Ok(Ok(response)) => {
                let status = i64::from(response.status().as_u16());
                span.set("http.response.status_code", status);
                return self.answered(response, place).await;
            }
        };
        place.note(AttemptOutcome::Failed);
        attempt
    }

    async fn answered(&self, response: Response<Incoming>, place: &mut InFlight) -> Attempt {
        let status = response.status();
        if !status.is_success() {
            return self.refused(response, place).await;
        }
        let headers = response.headers();
        let attempt = if !text_of(headers, CONTENT_TYPE.as_str()).starts_with("text/event-stream") {
            let kind = text_of(headers, CONTENT_TYPE.as_str());
            let what = format!("answered with `{kind}` where a stream of events was asked for");
            Attempt::failed(what, String::new())
        } else if headers.contains_key(CONTENT_ENCODING) {
            let coding = text_of(headers, CONTENT_ENCODING.as_str());
            let what = format!("answered in the encoding `{coding}`, which nobody asked for");
            Attempt::failed(what, String::new())
        } else {
            self.send(OutputEvent::Begun).await;
            return self.relay(response.into_body(), place).await;
        };
        place.note(AttemptOutcome::Failed);
        attempt
    }

    /// Read an answer with an error status.
    async fn refused(&self, response: Response<Incoming>, place: &mut InFlight) -> Attempt {
        let (parts, body) = response.into_parts();
        let location = text_of(&parts.headers, LOCATION.as_str());
        let retry_after = text_of(&parts.headers, RETRY_AFTER.as_str()).parse().ok();
        let read = timeout(self.timeouts.chunk, beginning_of(body, MAX_ERROR_BYTES));
        let body = read.await.map(|(body, _)| body).unwrap_or_default();
        place.note(match parts.status {
            StatusCode::TOO_MANY_REQUESTS => AttemptOutcome::Unknown,
            status if status.is_server_error() => AttemptOutcome::Failed,
            _ => AttemptOutcome::Answered,
        });
        let busy = [
            StatusCode::TOO_MANY_REQUESTS,
            StatusCode::BAD_GATEWAY,
            StatusCode::SERVICE_UNAVAILABLE,
        ];
        let retry = busy.contains(&parts.status).then(|| {
            let seconds: u32 = retry_after.unwrap_or(0);
            Duration::from_secs(seconds.into())
        });
        let answer = ErrorAnswer {
            status: parts.status.as_u16(),
            retry_after,
            body,
        };
        let mut detail = format!("HTTP {}: {}", answer.status, answer.text());
        if !location.is_empty() {
            detail = format!("{detail}; location: {location}");
        }
        Attempt::Failed {
            error: answer.failure(),
            detail,
            retry,
        }
    }

    /// Hand an event on. Its reader is there: the work of an answer ends with its stream.
    async fn send(&self, event: OutputEvent) {
        if let Err(TrySendError::Full(event)) = self.sender.try_send(event) {
            let _ = self.sender.send(event).await;
        }
    }

    /// Relay the events of a stream, each piece as it comes.
    async fn relay(&self, mut body: Incoming, place: &mut InFlight) -> Attempt {
        let mut reader = AnswerReader::default();
        let mut events = Vec::new();
        let mut pieces = 0;
        let defect = loop {
            let limit = match pieces {
                0 => self.timeouts.first_byte,
                _ => self.timeouts.chunk,
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
        Attempt::Relayed(Relayed {
            last,
            pieces,
            usage: reader.usage(),
            rest: body,
        })
    }
}

fn upstream(what: impl std::fmt::Display) -> RuntimeError {
    RuntimeError::Upstream(format!("the model's server {what}"))
}

/// A header as text; nothing if there is none.
fn text_of(headers: &HeaderMap, name: &str) -> String {
    let value = headers.get(name).and_then(|value| value.to_str().ok());
    shortened(value.unwrap_or_default())
}
