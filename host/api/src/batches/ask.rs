//! One line of a batch as a request to its route.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::response::{IntoResponse as _, Response};
use futures::FutureExt as _;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, header};
use mortise_http::{AccessRecord, Context, Own, Problem, panicked};
use mortise_service::Granted;
use serde::Deserialize;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::check::LineRequest;
use super::live::LiveBatch;
use super::record::Tokens;
use crate::call::OwnCall;
use crate::limits::MAX_KEPT_BYTES;
use crate::openai_error::error_body;

/// Steps of priority that lines leave to others: more than any policy grants.
const WAIVED: i32 = 1 << 30;

/// Least and longest pause before a line is sent again after a 429 or 503.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Sends the lines of one batch.
pub(super) struct LineSender {
    pub(super) routes: Router,
    pub(super) live: Arc<LiveBatch>,
    /// Grant of the policies when the batch was made; where its caller is not known, they are not asked again.
    pub(super) grant: Granted,
    pub(super) endpoint: &'static str,
}

/// Outcome of a line.
pub(super) enum LineOutcome {
    /// An answer, or a refusal that stands.
    Answered {
        /// A line of the file of answers, or of that of errors.
        written: Vec<u8>,
        succeeded: bool,
        tokens: Tokens,
    },
    /// A 429 or 503: the pause before it is sent again.
    Later(Duration),
}

impl LineSender {
    /// Send a line, and wait for its answer.
    pub(super) async fn ask(&self, line: LineRequest) -> LineOutcome {
        let id: Arc<str> = uuid::Uuid::new_v4().simple().to_string().into();
        let request = self.request(&id, Value::Object(line.body));
        let answered = AssertUnwindSafe(self.routes.clone().oneshot(request));
        let response = match answered.catch_unwind().await {
            Ok(Ok(response)) => response,
            Ok(Err(never)) => match never {},
            Err(_) => panicked().into_response(),
        };
        if let Some(problem) = response.extensions().get::<Problem>() {
            return match pause(problem) {
                Some(pause) => LineOutcome::Later(pause),
                None => refused(problem, &line.custom_id, &id),
            };
        }
        whole(response, &line.custom_id, &id).await
    }

    fn request(&self, id: &Arc<str>, body: Value) -> Request<Body> {
        let known = self.live.credentials();
        let granted = known.is_none().then(|| self.grant.clone());
        let nobody = || (HeaderMap::new(), IpAddr::V4(Ipv4Addr::LOCALHOST));
        let (headers, peer) = known.unwrap_or_else(nobody);
        let mut request = Request::new(Body::from(body.to_string()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = Uri::from_static(self.endpoint);
        *request.headers_mut() = headers;
        let json = HeaderValue::from_static("application/json");
        request.headers_mut().insert(header::CONTENT_TYPE, json);
        request.extensions_mut().insert(Context {
            id: Arc::clone(id),
            peer: SocketAddr::from((peer, 0)),
            route: self.endpoint,
            record: Arc::new(AccessRecord::new(Instant::now())),
            own: Some(Own(Arc::new(OwnCall {
                granted,
                waived_priority: WAIVED,
            }))),
        });
        request
    }
}

/// The time to wait before a line is sent again; `None` if its refusal stands.
fn pause(problem: &Problem) -> Option<Duration> {
    let header = |wanted: &str| {
        let found = problem.headers.iter().find(|(name, _)| name == wanted);
        found.map(|(_, value)| value.as_str())
    };
    let passing = [
        StatusCode::TOO_MANY_REQUESTS,
        StatusCode::SERVICE_UNAVAILABLE,
    ];
    if !passing.contains(&problem.status) || header("x-should-retry") == Some("false") {
        return None;
    }
    let seconds = header("retry-after").and_then(|value| value.parse().ok());
    let pause = seconds.map_or(PAUSE, Duration::from_secs);
    Some(pause.clamp(PAUSE, LONGEST_PAUSE))
}

fn refused(problem: &Problem, custom_id: &str, id: &str) -> LineOutcome {
    let body = error_body(problem).to_string();
    LineOutcome::Answered {
        written: written(custom_id, id, problem.status, &body),
        succeeded: false,
        tokens: Tokens::default(),
    }
}

/// The whole answer, which is one line of JSON.
async fn whole(response: Response, custom_id: &str, id: &str) -> LineOutcome {
    let status = response.status();
    let body = to_bytes(response.into_body(), MAX_KEPT_BYTES).await;
    let text = body
        .ok()
        .and_then(|body| String::from_utf8(body.to_vec()).ok());
    let Some(text) = text.filter(|text| !text.contains(['\n', '\r'])) else {
        let problem = format!(
            "the answer broke off, or has more than {MAX_KEPT_BYTES} bytes; ask for fewer choices or tokens"
        );
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        return refused(
            &Problem::new(status, "answer_too_long", problem),
            custom_id,
            id,
        );
    };
    LineOutcome::Answered {
        written: written(custom_id, id, status, &text),
        succeeded: status.is_success(),
        tokens: tokens(&text),
    }
}

fn written(custom_id: &str, id: &str, status: StatusCode, body: &str) -> Vec<u8> {
    let (custom_id, status) = (json!(custom_id), status.as_u16());
    let line = format!(
        "{{\"id\":\"batch_req_{id}\",\"custom_id\":{custom_id},\"response\":{{\"status_code\":{status},\
         \"request_id\":\"{id}\",\"body\":{body}}},\"error\":null}}\n"
    );
    line.into_bytes()
}

/// A line that was not answered before the batch expired.
pub(super) fn expired(custom_id: &str) -> Vec<u8> {
    let id = uuid::Uuid::new_v4().simple();
    let line = json!({
        "id": format!("batch_req_{id}"),
        "custom_id": custom_id,
        "response": null,
        "error": {
            "code": "batch_expired",
            "message": "This request could not be executed before the completion window expired.",
        },
    });
    format!("{line}\n").into_bytes()
}

/// Tokens that an answer says it took.
fn tokens(answer: &str) -> Tokens {
    #[derive(Default, Deserialize)]
    struct Answer {
        usage: Option<Usage>,
    }
    #[derive(Default, Deserialize)]
    struct Usage {
        #[serde(default, alias = "input_tokens")]
        prompt_tokens: u64,
        #[serde(default, alias = "output_tokens")]
        completion_tokens: u64,
        #[serde(alias = "input_tokens_details")]
        prompt_tokens_details: Option<Cached>,
        #[serde(alias = "output_tokens_details")]
        completion_tokens_details: Option<Reasoning>,
    }
    #[derive(Default, Deserialize)]
    struct Cached {
        #[serde(default)]
        cached_tokens: u64,
    }
    #[derive(Default, Deserialize)]
    struct Reasoning {
        #[serde(default)]
        reasoning_tokens: u64,
    }
    let answer: Answer = serde_json::from_str(answer).unwrap_or_default();
    let usage = answer.usage.unwrap_or_default();
    Tokens {
        input: usage.prompt_tokens,
        cached: usage
            .prompt_tokens_details
            .unwrap_or_default()
            .cached_tokens,
        output: usage.completion_tokens,
        reasoning: usage
            .completion_tokens_details
            .unwrap_or_default()
            .reasoning_tokens,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feature_e29_what_passes_is_waited_for() {
        let problem = |status: u16| {
            let status = StatusCode::from_u16(status).expect("a status");
            Problem::new(status, "x", "x")
        };
        assert_eq!(pause(&problem(429)), Some(PAUSE));
        assert_eq!(pause(&problem(400)), None);
        assert_eq!(pause(&problem(500)), None);
        let header = |name: &str, value: &str| problem(503).with_header(name, value);
        assert_eq!(
            pause(&header("retry-after", "7")),
            Some(Duration::from_secs(7))
        );
        assert_eq!(pause(&header("retry-after", "86400")), Some(LONGEST_PAUSE));
        assert_eq!(pause(&header("retry-after", "soon")), Some(PAUSE));
        assert_eq!(pause(&header("x-should-retry", "false")), None);
    }

    #[test]
    fn tokens_of_every_route_are_counted() {
        let chat = r#"{"usage": {"prompt_tokens": 5, "completion_tokens": 3,
            "prompt_tokens_details": {"cached_tokens": 2},
            "completion_tokens_details": {"reasoning_tokens": 1}, "total_tokens": 8}}"#;
        let response = r#"{"usage": {"input_tokens": 5, "output_tokens": 3,
            "input_tokens_details": {"cached_tokens": 2},
            "output_tokens_details": {"reasoning_tokens": 1}}}"#;
        let expected = Tokens {
            input: 5,
            cached: 2,
            output: 3,
            reasoning: 1,
        };
        assert_eq!((tokens(chat), tokens(response)), (expected, expected));
        let embedding = tokens(r#"{"usage": {"prompt_tokens": 4, "total_tokens": 4}}"#);
        assert_eq!((embedding.input, embedding.output), (4, 0));
        assert_eq!(tokens(r#"{"error": {}}"#), Tokens::default());
    }
}
