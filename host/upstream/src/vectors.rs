//! One attempt at an answer of vectors: it is read whole, within a bound, and checked.

use http::Response;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::time::timeout;

use crate::attempt::{AskUpstream, FailedAttempt, UpstreamRequest, check_media_type, failed};
use crate::breaker::AttemptOutcome;
use crate::client::with_causes;
use crate::embedding_answer::{EmbeddingAnswer, read_answer};
use crate::limits::{MAX_EMBEDDING_ANSWER_BYTES, MAX_EMBEDDING_BYTES};
use crate::members::InFlight;
use crate::spans::{self, AttemptEnd};

/// Media type of whole answers.
pub(crate) const JSON: &str = "application/json";

/// Request for the vectors of so many texts.
pub(crate) struct VectorRequest<'a> {
    pub(crate) request: UpstreamRequest<'a>,
    pub(crate) texts: usize,
}

impl AskUpstream for VectorRequest<'_> {
    type Answer = EmbeddingAnswer;

    async fn ask(
        &self,
        place: &mut InFlight,
        resent: u32,
    ) -> Result<EmbeddingAnswer, FailedAttempt> {
        let span = spans::of_attempt(self.request.span, place.url(), resent);
        let answered = match self.request.send(place, &span.0).await {
            Ok(response) => {
                let read = self.read(response).await;
                place.note(match &read {
                    Ok(_) => AttemptOutcome::Answered,
                    Err(_) => AttemptOutcome::Failed,
                });
                read
            }
            Err(failed) => Err(failed),
        };
        span.end(&match &answered {
            Ok(_) => AttemptEnd::Answered(None),
            Err(failed) => AttemptEnd::Failed(&failed.error),
        });
        answered
    }
}

impl VectorRequest<'_> {
    async fn read(&self, response: Response<Incoming>) -> Result<EmbeddingAnswer, FailedAttempt> {
        check_media_type(response.headers(), JSON, "JSON")?;
        let body = self.body(response.into_body()).await?;
        read_answer(&body, self.texts).map_err(|what| failed(what, String::new()))
    }

    /// Read a body to its end.
    async fn body(&self, mut body: Incoming) -> Result<Vec<u8>, FailedAttempt> {
        let timeouts = self.request.timeouts;
        let most = MAX_EMBEDDING_ANSWER_BYTES + self.texts.saturating_mul(MAX_EMBEDDING_BYTES);
        let mut bytes = Vec::new();
        loop {
            let limit = match bytes.is_empty() {
                true => timeouts.first_byte,
                false => timeouts.chunk,
            };
            let frame = match timeout(limit, body.frame()).await {
                Err(_) => {
                    let what = format!("sent nothing for {} ms", limit.as_millis());
                    return Err(failed(what, String::new()));
                }
                Ok(None) => return Ok(bytes),
                Ok(Some(Err(error))) => {
                    let told = with_causes(&error);
                    return Err(self.request.broken("broke off its answer", told));
                }
                Ok(Some(Ok(frame))) => frame,
            };
            let Some(data) = frame.data_ref() else {
                continue;
            };
            if bytes.len() + data.len() > most {
                let texts = self.texts;
                let what = format!("answered {texts} texts with more than {most} bytes");
                return Err(failed(what, String::new()));
            }
            bytes.extend_from_slice(data);
        }
    }
}
