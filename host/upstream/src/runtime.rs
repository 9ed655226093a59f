//! Runtime of a model whose answers come from other servers.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use mortise_engine::{EngineLoad, Queue, QueueBounds, QueuePlace, Share, SubmitError};
use mortise_models::{
    ConversationRequest, ConversationRuntime, OutputEvent, OutputStream, RenderedRequest,
    RuntimeEnd, UpstreamConfig,
};
use mortise_supervise::supervise;
use mortise_trace::Span;
use tokio::runtime::Handle;
use tokio::sync::mpsc::Sender;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::affinity::{beginning, beginning_of_prompt};
use crate::attempt::UpstreamRequest;
use crate::client::{ClientError, UpstreamClient};
use crate::dispatch::{Counters, Dispatcher};
use crate::exchange::{EVENT_STREAM, Relayed, StreamRequest};
use crate::health::watch;
use crate::members::UpstreamMembers;
use crate::request_body::{completion_body, request_body};
use crate::unsupported::UnsupportedSetting;

/// Time for the end of an answer that has said all, so that its connection can be used again.
const REST: Duration = Duration::from_secs(1);

/// Answers conversations, and makes embeddings, by asking OpenAI-compatible servers.
pub struct UpstreamRuntime {
    pub(crate) dispatcher: Arc<Dispatcher>,
    runtime: Handle,
    checks: Vec<JoinHandle<()>>,
}

/// Request to upstreams.
struct Asked {
    request_id: String,
    tenant: Arc<str>,
    /// Path below the base URL.
    path: &'static str,
    body: Bytes,
    /// Hash of the beginning of the prompt, where that decides on the upstream.
    beginning: [u8; 32],
    /// Span of the answer.
    span: Span,
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
                "the key of this upstream and all that it is asked go over the network without TLS"
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
            dispatcher: Arc::new(Dispatcher {
                name: name.to_owned(),
                client,
                members,
                places: Queue::new(QueueBounds::places(
                    config.max_requests,
                    config.reserve_places,
                )),
                config,
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
            .field("name", &self.dispatcher.name)
            .field("config", &self.dispatcher.config)
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
        let body = request_body(&request, &self.dispatcher.config).map_err(invalid)?;
        let asked = Asked {
            beginning: self.dispatcher.beginning(|| beginning(&request)),
            request_id: request.request_id.clone(),
            tenant: Arc::clone(&request.share.tenant),
            path: "chat/completions",
            body: body.into(),
            span: Span::current(),
        };
        self.ask(&request.share, asked)
    }

    fn submit_rendered(&self, request: RenderedRequest) -> Result<OutputStream, SubmitError> {
        let body = completion_body(&request, &self.dispatcher.config).map_err(invalid)?;
        let asked = Asked {
            beginning: self
                .dispatcher
                .beginning(|| beginning_of_prompt(&request.prompt)),
            request_id: request.request_id.clone(),
            tenant: Arc::clone(&request.share.tenant),
            path: "completions",
            body: body.into(),
            span: Span::current(),
        };
        self.ask(&request.share, asked)
    }

    fn requires_allow_remote(&self) -> bool {
        self.dispatcher.config.require_allow_remote
    }

    fn context_length(&self) -> Option<usize> {
        self.dispatcher.config.context_length
    }

    fn load(&self) -> EngineLoad {
        self.dispatcher.load()
    }
}

fn invalid(refused: UnsupportedSetting) -> SubmitError {
    SubmitError::Invalid(refused.to_string())
}

impl UpstreamRuntime {
    fn ask(&self, share: &Share, asked: Asked) -> Result<OutputStream, SubmitError> {
        let place = self.dispatcher.places.enter(&share.tenant, 0)?;
        let (dispatcher, runtime) = (Arc::clone(&self.dispatcher), self.runtime.clone());
        Ok(OutputStream::worked(|sender| {
            answer(dispatcher, place, asked, sender, runtime)
        }))
    }
}

/// Ask upstreams until one answers, and send its answer.
async fn answer(
    dispatcher: Arc<Dispatcher>,
    place: QueuePlace,
    asked: Asked,
    sender: Sender<OutputEvent>,
    runtime: Handle,
) {
    let request = StreamRequest {
        request: UpstreamRequest {
            client: &dispatcher.client,
            timeouts: dispatcher.config.timeouts,
            request_id: &asked.request_id,
            path: asked.path,
            accept: EVENT_STREAM,
            body: asked.body.clone(),
            span: &asked.span,
            repeatable: false,
        },
        sender: &sender,
    };
    let who = (asked.request_id.as_str(), &asked.tenant);
    let attempts = dispatcher.attempts(who, &asked.beginning, &request);
    let (last, rest) = match attempts.await {
        Ok(Relayed {
            last,
            pieces,
            usage,
            rest,
        }) => {
            dispatcher.counters.add(pieces, usage.unwrap_or_default());
            if let OutputEvent::Failed(error) = &last {
                dispatcher.log(&asked.request_id, &error.to_string());
            }
            (last, Some(rest))
        }
        Err(error) => (OutputEvent::Failed(error), None),
    };
    // The place is free before the end is sent, so that a caller who has read it finds one.
    drop(place);
    let last = match last {
        OutputEvent::Failed(error) => OutputEvent::Failed(dispatcher.told(error).await),
        other => other,
    };
    // The reader needs no more than the last event, and takes this work with it.
    if let Some(mut rest) = rest {
        runtime.spawn(async move { timeout(REST, rest.frame()).await });
    }
    // A reader that has gone away needs no ending.
    let _ = sender.send(last).await;
}
