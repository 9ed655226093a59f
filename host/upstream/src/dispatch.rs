//! Dispatch of requests to the upstreams of a model: which is asked, how often, and what is counted.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use mortise_engine::{EngineLoad, Queue};
use mortise_models::{RuntimeEnd, RuntimeError, UpstreamConfig, Usage};
use tokio::time::{sleep, timeout};

use crate::attempt::{AskUpstream, FailedAttempt};
use crate::client::UpstreamClient;
use crate::limits::MAX_RETRY_WAIT;
use crate::members::UpstreamMembers;

/// First pause before the same upstream is asked again; it doubles.
const BACKOFF: Duration = Duration::from_millis(100);
/// Time in which the end of a process is known after its connections break.
const END_KNOWN: Duration = Duration::from_secs(1);

/// Upstreams of one model, with what all requests to them share.
pub(crate) struct Dispatcher {
    /// Public name of the model.
    pub(crate) name: String,
    pub(crate) config: UpstreamConfig,
    pub(crate) client: UpstreamClient,
    pub(crate) members: UpstreamMembers,
    pub(crate) counters: Counters,
    /// Requests under way.
    pub(crate) places: Queue,
    /// End of the process that answers, if this server has started it.
    pub(crate) end: Option<RuntimeEnd>,
}

/// Numbers since the start. They are independent of one another: no order is needed.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) finished: AtomicU64,
    pub(crate) pieces: AtomicU64,
    pub(crate) prompt_tokens: AtomicU64,
    pub(crate) cached_tokens: AtomicU64,
    pub(crate) completion_tokens: AtomicU64,
}

impl Dispatcher {
    /// Hash of the beginning of a request, where that decides on the upstream.
    pub(crate) fn beginning(&self, hash: impl FnOnce() -> [u8; 32]) -> [u8; 32] {
        let decides = self.members.go_by_beginnings();
        decides.then(hash).unwrap_or_default()
    }

    /// Counters and gauges of all requests.
    pub(crate) fn load(&self) -> EngineLoad {
        let (circuit, circuit_opened) = self.members.circuit();
        let (on_standby, standby_requests) = self.members.standby();
        EngineLoad {
            circuit,
            circuit_opened,
            on_standby,
            standby_requests,
            running: self.places.waiting().0,
            ..self.counters.load()
        }
    }

    /// A failure as callers are told it: with the end of the process behind it, and without the key.
    pub(crate) async fn told(&self, error: RuntimeError) -> RuntimeError {
        self.without_key(self.explained(error).await)
    }

    /// Ask one upstream after another, as long as nothing of an answer has come and it is safe.
    pub(crate) async fn attempts<A: AskUpstream>(
        &self,
        (request_id, tenant): (&str, &Arc<str>),
        beginning: &[u8; 32],
        asked: &A,
    ) -> Result<A::Answer, RuntimeError> {
        let mut tried = HashSet::new();
        let mut attempt = 0;
        loop {
            let mut place = match self.members.place(beginning, &tried, tenant) {
                Ok(place) => place,
                Err(wait) => return Err(left_alone(wait)),
            };
            let url = place.url().clone();
            let ended = asked.ask(&mut place, attempt).await;
            drop(place);
            let FailedAttempt {
                error,
                detail,
                retry,
            } = match ended {
                Ok(answer) => return Ok(answer),
                Err(failed) => failed,
            };
            let told = format!("{url}: {error} ({detail})");
            let hushed = self.hushed(&told);
            tracing::debug!(request_id, error = hushed, "an attempt failed");
            tried.insert(url);
            let untried = tried.len() < self.members.all().len();
            let pause = match retry {
                Some(_) if untried => Some(Duration::ZERO),
                Some(wait) if wait <= MAX_RETRY_WAIT => {
                    Some(wait.max(BACKOFF * 2_u32.saturating_pow(attempt.min(5))))
                }
                _ => None,
            };
            let Some(pause) = pause.filter(|_| attempt < self.config.max_retries) else {
                self.log(request_id, &told);
                return Err(error);
            };
            attempt += 1;
            sleep(pause).await;
        }
    }

    pub(crate) fn log(&self, request_id: &str, error: &str) {
        let error = self.hushed(error);
        tracing::warn!(
            model = self.name,
            request_id,
            error,
            "an upstream failed a request"
        );
    }

    /// The failure of a request, or the end of the process that was to answer it: it may be known a moment
    /// after the connection breaks.
    async fn explained(&self, error: RuntimeError) -> RuntimeError {
        let Some(mut end) = self.end.clone() else {
            return error;
        };
        if !matches!(
            error,
            RuntimeError::Upstream(_) | RuntimeError::Unavailable { .. }
        ) {
            return error;
        }
        match timeout(END_KNOWN, end.wait_for(Option::is_some)).await {
            Ok(Ok(ended)) => match ended.as_ref() {
                Some(ended) => {
                    RuntimeError::Upstream(format!("the model crashed: {}", ended.cause))
                }
                None => error,
            },
            _ => error,
        }
    }

    /// A text without the upstream's key, which an upstream may quote.
    fn hushed(&self, text: &str) -> String {
        match &self.config.key {
            Some(key) => text.replace(key.secret(), "***"),
            None => text.to_owned(),
        }
    }

    fn without_key(&self, error: RuntimeError) -> RuntimeError {
        match error {
            RuntimeError::Invalid(text) => RuntimeError::Invalid(self.hushed(&text)),
            RuntimeError::Upstream(text) => RuntimeError::Upstream(self.hushed(&text)),
            RuntimeError::Failed(text) => RuntimeError::Failed(self.hushed(&text)),
            RuntimeError::Unavailable {
                message,
                retry_after,
            } => RuntimeError::Unavailable {
                message: self.hushed(&message),
                retry_after,
            },
            error @ RuntimeError::ContextLength { .. } => error,
        }
    }
}

impl Counters {
    pub(crate) fn load(&self) -> EngineLoad {
        let prompt = self.prompt_tokens.load(Relaxed);
        let cached = self.cached_tokens.load(Relaxed);
        EngineLoad {
            finished: self.finished.load(Relaxed),
            steps: self.pieces.load(Relaxed),
            prefill_tokens: prompt.saturating_sub(cached),
            decode_tokens: self.completion_tokens.load(Relaxed),
            prefix_queried_tokens: prompt,
            prefix_hit_tokens: cached,
            ..EngineLoad::default()
        }
    }

    pub(crate) fn add(&self, pieces: u64, usage: Usage) {
        self.finished.fetch_add(1, Relaxed);
        self.pieces.fetch_add(pieces, Relaxed);
        for (counter, tokens) in [
            (&self.prompt_tokens, usage.prompt_tokens),
            (&self.cached_tokens, usage.cached_tokens),
            (&self.completion_tokens, usage.completion_tokens),
        ] {
            counter.fetch_add(tokens.into(), Relaxed);
        }
    }
}

/// All upstreams have failed lately.
fn left_alone(wait: Duration) -> RuntimeError {
    let seconds = u32::try_from(wait.as_millis().div_ceil(1000)).unwrap_or(u32::MAX);
    RuntimeError::Unavailable {
        message: "the model's server has failed several times in a row and is left alone for a moment; retry later"
            .to_owned(),
        retry_after: seconds.max(1),
    }
}
