//! One attempt at a request, up to the head of the answer: what all kinds of answers have in common.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, LOCATION, RETRY_AFTER};
use http::{HeaderMap, Response, StatusCode};
use hyper::body::Incoming;
use mortise_models::{RuntimeError, UpstreamTimeouts};
use mortise_trace::Span;
use tokio::time::timeout;

use crate::breaker::AttemptOutcome;
use crate::client::{UpstreamClient, beginning_of};
use crate::limits::MAX_ERROR_BYTES;
use crate::members::InFlight;
use crate::refusal::{ErrorAnswer, shortened};

/// Request to an upstream.
pub(crate) struct UpstreamRequest<'a> {
    pub(crate) client: &'a UpstreamClient,
    pub(crate) timeouts: UpstreamTimeouts,
    pub(crate) request_id: &'a str,
    /// Path below the base URL.
    pub(crate) path: &'static str,
    /// Media type of the answer.
    pub(crate) accept: &'static str,
    pub(crate) body: Bytes,
    /// Span that the attempts are parts of.
    pub(crate) span: &'a Span,
    /// The request may be computed twice: it is asked again after a failure that may have come in the middle of it.
    pub(crate) repeatable: bool,
}

/// An attempt that failed before anything of its answer was used.
pub(crate) struct FailedAttempt {
    pub(crate) error: RuntimeError,
    /// Detail for the operator, not for callers.
    pub(crate) detail: String,
    /// Pause before the same upstream may be asked again; `None` where a retry is not safe.
    pub(crate) retry: Option<Duration>,
}

/// A kind of request, with the way in which its answer is read.
pub(crate) trait AskUpstream {
    /// Answer, read.
    type Answer;

    /// Ask the upstream of this place, `resent` requests after the first.
    fn ask(
        &self,
        place: &mut InFlight,
        resent: u32,
    ) -> impl Future<Output = Result<Self::Answer, FailedAttempt>> + Send;
}

/// The failure of an attempt that is not made again.
pub(crate) fn failed(what: impl std::fmt::Display, detail: String) -> FailedAttempt {
    FailedAttempt {
        error: upstream(what),
        detail,
        retry: None,
    }
}

/// A failure that callers are told of the model's server.
pub(crate) fn upstream(what: impl std::fmt::Display) -> RuntimeError {
    RuntimeError::Upstream(format!("the model's server {what}"))
}

impl UpstreamRequest<'_> {
    /// Send the request to the upstream of this place, and read the head of an answer that accepts it.
    pub(crate) async fn send(
        &self,
        place: &mut InFlight,
        span: &Span,
    ) -> Result<Response<Incoming>, FailedAttempt> {
        let url = place.url().join(self.path);
        let limit = self.timeouts.connect + self.timeouts.first_byte;
        let asked = self
            .client
            .post(&url, self.accept, self.body.clone(), self.request_id, span);
        let attempt = match timeout(limit, asked).await {
            Err(_) => {
                let what = format!("did not answer within {} ms", limit.as_millis());
                failed(what, String::new())
            }
            Ok(Err(none)) if none.unsent => FailedAttempt {
                error: upstream("cannot be reached"),
                detail: none.text,
                retry: Some(Duration::ZERO),
            },
            Ok(Err(none)) => self.broken("broke off before it answered", none.text),
            Ok(Ok(response)) => {
                let status = response.status();
                span.set("http.response.status_code", i64::from(status.as_u16()));
                return match status.is_success() {
                    true => Ok(response),
                    false => Err(self.refused(response, place).await),
                };
            }
        };
        place.note(AttemptOutcome::Failed);
        Err(attempt)
    }

    /// The failure of an attempt that may have been computed in part.
    pub(crate) fn broken(&self, what: impl std::fmt::Display, detail: String) -> FailedAttempt {
        FailedAttempt {
            retry: self.repeatable.then_some(Duration::ZERO),
            ..failed(what, detail)
        }
    }

    /// Read an answer with an error status.
    async fn refused(&self, response: Response<Incoming>, place: &mut InFlight) -> FailedAttempt {
        let (parts, body) = response.into_parts();
        let location = text_of(&parts.headers, LOCATION.as_str());
        let retry_after = text_of(&parts.headers, RETRY_AFTER.as_str()).parse().ok();
        let read = timeout(self.timeouts.chunk, beginning_of(body, MAX_ERROR_BYTES));
        let body = read.await.map(|(body, _)| body).unwrap_or_default();
        let answer = ErrorAnswer {
            status: parts.status.as_u16(),
            retry_after,
            body,
        };
        let fails = answer.is_failure();
        place.note(match parts.status {
            StatusCode::TOO_MANY_REQUESTS => AttemptOutcome::Unknown,
            _ if fails => AttemptOutcome::Failed,
            _ => AttemptOutcome::Answered,
        });
        let busy = [
            StatusCode::TOO_MANY_REQUESTS,
            StatusCode::BAD_GATEWAY,
            StatusCode::SERVICE_UNAVAILABLE,
        ];
        let again = busy.contains(&parts.status) || self.repeatable && fails;
        let retry = again.then(|| {
            let seconds: u32 = retry_after.unwrap_or(0);
            Duration::from_secs(seconds.into())
        });
        let mut detail = format!("HTTP {}: {}", answer.status, answer.text());
        if !location.is_empty() {
            detail = format!("{detail}; location: {location}");
        }
        FailedAttempt {
            error: answer.failure(),
            detail,
            retry,
        }
    }
}

/// Refuse an answer of another media type than that which was asked for, and one that is encoded. `what` is what was
/// asked for, in words.
pub(crate) fn check_media_type(
    headers: &HeaderMap,
    accept: &str,
    what: &str,
) -> Result<(), FailedAttempt> {
    let kind = text_of(headers, CONTENT_TYPE.as_str());
    if !kind.starts_with(accept) {
        let told = format!("answered with `{kind}` where {what} was asked for");
        return Err(failed(told, String::new()));
    }
    if headers.contains_key(CONTENT_ENCODING) {
        let coding = text_of(headers, CONTENT_ENCODING.as_str());
        let told = format!("answered in the encoding `{coding}`, which nobody asked for");
        return Err(failed(told, String::new()));
    }
    Ok(())
}

/// A header as text; nothing if there is none.
fn text_of(headers: &HeaderMap, name: &str) -> String {
    let value = headers.get(name).and_then(|value| value.to_str().ok());
    shortened(value.unwrap_or_default())
}
