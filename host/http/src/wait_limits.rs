//! Time limits until an answer begins: as long as the caller says that it waits, and no
//! longer than the operator lets requests wait.

use std::future::Future;
use std::time::{Duration, Instant};

use http::{HeaderMap, StatusCode};

use crate::problem::Problem;

/// Headers in which callers say how many seconds they wait. The second is what OpenAI's clients send of
/// themselves, so a value of it that makes no sense is passed over.
const REQUEST_TIMEOUT: &str = "x-request-timeout";
const CLIENT_TIMEOUT: &str = "x-stainless-timeout";

/// Time that a caller can name: a week. More is as good as none.
const WAIT_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// Seconds after which a client may ask again when the server was too busy.
const RETRY_AFTER: &str = "5";

/// Times at which a request has waited long enough.
#[derive(Debug, Clone, Copy, Default)]
pub struct WaitLimits {
    /// Time at which the caller gives the answer up.
    client: Option<Instant>,
    /// Time by which the answer must have begun, by the operator's limit.
    queue: Option<Instant>,
    streams: bool,
}

impl WaitLimits {
    /// The limits of a request that arrived at `arrived`, under the operator's limit.
    ///
    /// # Errors
    /// When the caller's header is no time.
    pub fn of(
        headers: &HeaderMap,
        arrived: Instant,
        queue: Option<Duration>,
    ) -> Result<Self, Problem> {
        let own = match headers.get(REQUEST_TIMEOUT) {
            None => None,
            Some(value) => Some(value.to_str().ok().and_then(seconds).ok_or_else(wrong)?),
        };
        let clients = headers
            .get(CLIENT_TIMEOUT)
            .and_then(|value| seconds(value.to_str().ok()?));
        let shorter = own.into_iter().chain(clients).min();
        let from = |limit: Duration| arrived.checked_add(limit);
        Ok(Self {
            client: shorter.filter(|limit| *limit < WAIT_MAX).and_then(from),
            queue: queue.and_then(from),
            streams: false,
        })
    }

    /// Set that the answer is streamed: the limits hold until its first piece.
    pub fn streams(&mut self) {
        self.streams = true;
    }

    /// Note that the first piece of the answer is made. Ends the operator's limit, and the caller's if the answer is
    /// streamed.
    pub fn begun(&mut self) {
        self.queue = None;
        if self.streams {
            self.client = None;
        }
    }

    /// Wait until the first limit has passed, if there is one.
    pub async fn passed(self) -> WaitEnd {
        tokio::select! {
            biased;
            () = at(self.client) => WaitEnd::Client,
            () = at(self.queue) => WaitEnd::Queue,
        }
    }

    /// Do `work` within the limits.
    ///
    /// # Errors
    /// When `work` fails, or a limit has passed.
    pub async fn bound<T>(
        self,
        work: impl Future<Output = Result<T, Problem>>,
    ) -> Result<T, Problem> {
        tokio::select! {
            biased;
            done = work => done,
            end = self.passed() => Err(end.problem()),
        }
    }
}

/// The limit that ended a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitEnd {
    /// The caller's own.
    Client,
    /// The operator's limit on waiting requests.
    Queue,
}

impl WaitEnd {
    /// Problem that the caller is answered with.
    pub fn problem(self) -> Problem {
        match self {
            Self::Client => Problem::new(
                StatusCode::REQUEST_TIMEOUT,
                "request_timeout",
                "the answer was not there within the time that the request waits, as its header \
                 `x-request-timeout` or `x-stainless-timeout` says",
            )
            // Who no longer waits must not have the work done again.
            .with_header("x-should-retry", "false"),
            Self::Queue => Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "queue_timeout",
                "the request has waited as long as this server lets requests wait; retry later",
            )
            .with_header("retry-after", RETRY_AFTER),
        }
    }
}

async fn at(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}

/// A number of seconds, with or without a fraction, above 0.
fn seconds(text: &str) -> Option<Duration> {
    let plain = |byte: u8| byte.is_ascii_digit() || byte == b'.';
    let text = text.trim();
    if text.is_empty() || !text.bytes().all(plain) {
        return None;
    }
    let seconds: f64 = text.parse().ok()?;
    let limit = Duration::try_from_secs_f64(seconds).unwrap_or(WAIT_MAX);
    (limit > Duration::ZERO).then_some(limit)
}

fn wrong() -> Problem {
    Problem::new(
        StatusCode::BAD_REQUEST,
        "invalid_value",
        format!("the header `{REQUEST_TIMEOUT}` must be a number of seconds above 0"),
    )
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn limits(pairs: &[(&'static str, &'static str)]) -> Result<Option<Duration>, Problem> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.insert(*name, HeaderValue::from_static(value));
        }
        let arrived = Instant::now();
        let limits = WaitLimits::of(&headers, arrived, None)?;
        Ok(limits.client.map(|at| at - arrived))
    }

    #[test]
    fn the_shorter_of_the_callers_limits_holds() {
        let seconds = |seconds| Some(Duration::from_secs_f64(seconds));
        for (pairs, expected) in [
            (&[][..], None),
            (&[("x-request-timeout", "2")], seconds(2.0)),
            (&[("x-request-timeout", " 0.25 ")], seconds(0.25)),
            (&[("x-stainless-timeout", "600")], seconds(600.0)),
            (&[("x-stainless-timeout", "NOT_GIVEN")], None),
            (&[("x-stainless-timeout", "-1")], None),
            (&[("x-stainless-timeout", "0")], None),
            (
                &[("x-request-timeout", "9"), ("x-stainless-timeout", "3")],
                seconds(3.0),
            ),
            (
                &[("x-request-timeout", "3"), ("x-stainless-timeout", "9")],
                seconds(3.0),
            ),
            (&[("x-request-timeout", "99999999999999999999999999")], None),
        ] {
            assert_eq!(limits(pairs).expect("limits"), expected, "{pairs:?}");
        }
        for wrong in ["", "0", "-1", "1e3", "2s", "NaN", "inf", "0x10", "1.2.3"] {
            assert!(limits(&[("x-request-timeout", wrong)]).is_err(), "{wrong}");
        }
    }

    #[tokio::test]
    async fn what_takes_longer_is_ended_with_the_reason() {
        let soon = Some(Duration::from_millis(5));
        let mut limits = WaitLimits::of(&HeaderMap::new(), Instant::now(), soon).expect("limits");
        let never = std::future::pending::<Result<(), Problem>>;
        let error = limits.bound(never()).await.expect_err("ended");
        assert_eq!(
            (error.status.as_u16(), error.code.as_str()),
            (503, "queue_timeout")
        );
        limits.begun();
        let done = limits.bound(async { Ok(7) }).await.expect("done");
        assert_eq!(done, 7);
    }
}
