//! Runtime of a model whose answers come from other servers.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use mortise_engine::{EngineLoad, SubmitError};
use mortise_models::{
    ConversationRequest, ConversationRuntime, OutputEvent, OutputStream, RenderedRequest,
    RuntimeEnd, RuntimeError, UpstreamConfig, Usage,
};
use mortise_supervise::supervise;
use mortise_trace::Span;
use tokio::runtime::Handle;
use tokio::sync::mpsc::Sender;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::affinity::{beginning, beginning_of_prompt};
use crate::client::{ClientError, UpstreamClient};
use crate::exchange::{Attempt, Relayed, UpstreamRequest};
use crate::health::watch;
use crate::limits::MAX_RETRY_WAIT;
use crate::members::UpstreamMembers;
use crate::request_body::{completion_body, request_body};
use crate::unsupported::UnsupportedSetting;

/// First pause before the same upstream is asked again; it doubles.
const BACKOFF: Duration = Duration::from_millis(100);
/// Time for the end of an answer that has said all, so that its connection can be used again.
const REST: Duration = Duration::from_secs(1);
/// Time in which the end of a process is known after its connections break.
const END_KNOWN: Duration = Duration::from_secs(1);

/// Answers conversations by asking OpenAI-compatible servers.
pub struct UpstreamRuntime {
    shared: Arc<Shared>,
    runtime: Handle,
    checks: Vec<JoinHandle<()>>,
}

struct Shared {
    /// Public name of the model.
    name: String,
    config: UpstreamConfig,
    client: UpstreamClient,
    members: UpstreamMembers,
    counters: Counters,
    /// End of the process that answers, if this server has started it.
    end: Option<RuntimeEnd>,
}

/// Numbers since the start. They are independent of one another: no order is needed.
#[derive(Default)]
struct Counters {
    running: AtomicUsize,
    finished: AtomicU64,
    pieces: AtomicU64,
    prompt_tokens: AtomicU64,
    cached_tokens: AtomicU64,
    completion_tokens: AtomicU64,
}

/// Request to upstreams.
struct Asked {
    request_id: String,
    /// Path below the base URL.
    path: &'static str,
    body: Bytes,
    /// Hash of the beginning of the prompt, where that decides on the upstream.
    beginning: [u8; 32],
    /// Span of the answer.
    span: Span,
}

/// One of the requests that may be under way; freed when dropped.
struct Slot(Arc<Shared>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.counters.running.fetch_sub(1, Relaxed);
    }
}

impl UpstreamRuntime {
    /// A runtime for the model of this public name. Its health checks run until it is dropped; answers
    /// that are under way then go on.
    ///
    /// # Errors
    /// When TLS or the key cannot be set up, or outside of a tokio runtime.
    pub fn start(name: &str, config: UpstreamConfig) -> Result<Self, ClientError> {
        Self::start_with(name, config, None)
    }

    /// A runtime that asks a process of this machine, whose end tells why requests fail.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_until(
        name: &str,
        config: UpstreamConfig,
        end: RuntimeEnd,
    ) -> Result<Self, ClientError> {
        Self::start_with(name, config, Some(end))
    }

    fn start_with(
        name: &str,
        config: UpstreamConfig,
        end: Option<RuntimeEnd>,
    ) -> Result<Self, ClientError> {
        let runtime = Handle::try_current().map_err(|_| ClientError::NoRuntime)?;
        let client = UpstreamClient::new(&config)?;
        if config.key.is_some()
            && let Some(url) = config
                .urls
                .iter()
                .chain(&config.standby)
                .find(|url| url.is_open())
        {
            tracing::warn!(
                model = name,
                upstream = url.as_str(),
                "the key of this upstream and all conversations go over the network without TLS"
            );
        }
        let members = UpstreamMembers::new(&config.urls, &config.standby, config.dispatch);
        let checks = match &config.health {
            None => Vec::new(),
            Some(health) => members
                .all()
                .iter()
                .map(|member| {
                    let (client, member) = (client.clone(), Arc::clone(member));
                    let health = health.clone();
                    supervise("upstream-health", move || {
                        watch(client.clone(), Arc::clone(&member), health.clone())
                    })
                })
                .collect(),
        };
        Ok(Self {
            shared: Arc::new(Shared {
                name: name.to_owned(),
                config,
                client,
                members,
                counters: Counters::default(),
                end,
            }),
            runtime,
            checks,
        })
    }
}

impl std::fmt::Debug for UpstreamRuntime {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("UpstreamRuntime")
            .field("name", &self.shared.name)
            .field("config", &self.shared.config)
            .finish_non_exhaustive()
    }
}

impl Drop for UpstreamRuntime {
    fn drop(&mut self) {
        self.checks.iter().for_each(JoinHandle::abort);
    }
}

impl ConversationRuntime for UpstreamRuntime {
    fn submit(&self, request: ConversationRequest) -> Result<OutputStream, SubmitError> {
        let body = request_body(&request, &self.shared.config).map_err(invalid)?;
        self.ask(Asked {
            beginning: self.beginning(|| beginning(&request)),
            request_id: request.request_id,
            path: "chat/completions",
            body: body.into(),
            span: Span::current(),
        })
    }

    fn submit_rendered(&self, request: RenderedRequest) -> Result<OutputStream, SubmitError> {
        let body = completion_body(&request, &self.shared.config).map_err(invalid)?;
        self.ask(Asked {
            beginning: self.beginning(|| beginning_of_prompt(&request.prompt)),
            request_id: request.request_id,
            path: "completions",
            body: body.into(),
            span: Span::current(),
        })
    }

    fn requires_allow_remote(&self) -> bool {
        self.shared.config.require_allow_remote
    }

    fn context_length(&self) -> Option<usize> {
        self.shared.config.context_length
    }

    fn load(&self) -> EngineLoad {
        let (circuit, circuit_opened) = self.shared.members.circuit();
        let (on_standby, standby_requests) = self.shared.members.standby();
        EngineLoad {
            circuit,
            circuit_opened,
            on_standby,
            standby_requests,
            ..self.shared.counters.load()
        }
    }
}

fn invalid(refused: UnsupportedSetting) -> SubmitError {
    SubmitError::Invalid(refused.to_string())
}

impl UpstreamRuntime {
    fn beginning(&self, hash: impl FnOnce() -> [u8; 32]) -> [u8; 32] {
        let decides = self.shared.members.go_by_beginnings();
        decides.then(hash).unwrap_or_default()
    }

    fn ask(&self, asked: Asked) -> Result<OutputStream, SubmitError> {
        let limit = self.shared.config.max_requests;
        let slot = Slot(Arc::clone(&self.shared));
        // Dropping the slot undoes this if there was no room.
        if self.shared.counters.running.fetch_add(1, Relaxed) >= limit {
            return Err(SubmitError::QueueFull { limit });
        }
        let runtime = self.runtime.clone();
        Ok(OutputStream::worked(|sender| {
            answer(slot, asked, sender, runtime)
        }))
    }
}

/// Ask upstreams until one answers, and send its answer.
async fn answer(slot: Slot, asked: Asked, sender: Sender<OutputEvent>, runtime: Handle) {
    let shared = Arc::clone(&slot.0);
    let (last, rest) = match shared.attempts(&asked, &sender).await {
        Attempt::Relayed(Relayed {
            last,
            pieces,
            usage,
            rest,
        }) => {
            shared.counters.add(pieces, usage.unwrap_or_default());
            if let OutputEvent::Failed(error) = &last {
                shared.log(&asked.request_id, &error.to_string());
            }
            (last, Some(rest))
        }
        Attempt::Failed { error, .. } => (OutputEvent::Failed(error), None),
    };
    // The slot is free before the end is sent, so that a caller who has read it finds one.
    drop(slot);
    let last = match last {
        OutputEvent::Failed(error) => {
            let error = shared.explained(error).await;
            OutputEvent::Failed(shared.without_key(error))
        }
        other => other,
    };
    // The reader needs no more than the last event, and takes this work with it.
    if let Some(mut rest) = rest {
        runtime.spawn(async move { timeout(REST, rest.frame()).await });
    }
    // A reader that has gone away needs no ending.
    let _ = sender.send(last).await;
}

impl Shared {
    /// Ask one upstream after another, as long as nothing of an answer has come and it is safe.
    async fn attempts(&self, asked: &Asked, sender: &Sender<OutputEvent>) -> Attempt {
        let question = UpstreamRequest {
            client: &self.client,
            timeouts: self.config.timeouts,
            request_id: &asked.request_id,
            path: asked.path,
            body: asked.body.clone(),
            span: &asked.span,
            sender,
        };
        let mut tried = HashSet::new();
        let mut attempt = 0;
        loop {
            let mut place = match self.members.place(&asked.beginning, &tried) {
                Ok(place) => place,
                Err(wait) => return left_alone(wait),
            };
            let url = place.url().clone();
            let ended = question.ask(&mut place, attempt).await;
            drop(place);
            let Attempt::Failed {
                error,
                detail,
                retry,
            } = ended
            else {
                return ended;
            };
            let told = format!("{url}: {error} ({detail})");
            let hushed = self.hushed(&told);
            tracing::debug!(
                request_id = asked.request_id,
                error = hushed,
                "an attempt failed"
            );
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
                self.log(&asked.request_id, &told);
                return Attempt::Failed {
                    error,
                    detail,
                    retry: None,
                };
            };
            attempt += 1;
            sleep(pause).await;
        }
    }

    fn log(&self, request_id: &str, error: &str) {
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
    fn load(&self) -> EngineLoad {
        let prompt = self.prompt_tokens.load(Relaxed);
        let cached = self.cached_tokens.load(Relaxed);
        EngineLoad {
            running: self.running.load(Relaxed),
            finished: self.finished.load(Relaxed),
            steps: self.pieces.load(Relaxed),
            prefill_tokens: prompt.saturating_sub(cached),
            decode_tokens: self.completion_tokens.load(Relaxed),
            prefix_queried_tokens: prompt,
            prefix_hit_tokens: cached,
            ..EngineLoad::default()
        }
    }

    fn add(&self, pieces: u64, usage: Usage) {
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
fn left_alone(wait: Duration) -> Attempt {
    let seconds = u32::try_from(wait.as_millis().div_ceil(1000)).unwrap_or(u32::MAX);
    Attempt::Failed {
        error: RuntimeError::Unavailable {
            message:
                "the model's server has failed several times in a row and is left alone for a \
                      moment; retry later"
                    .to_owned(),
            retry_after: seconds.max(1),
        },
        detail: String::new(),
        retry: None,
    }
}
