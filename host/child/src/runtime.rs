//! Runtime of a model that a child process answers for.

use std::io;
use std::time::Duration;

use mortise_engine::{EngineLoad, SubmitError};
use mortise_models::lifecycle::{LoadProgress, LoadStage};
use mortise_models::{
    BaseUrl, ChildConfig, ConversationRequest, ConversationRuntime, ModelConfig, OutputStream,
    RemoteEmbeddingFuture, RemoteEmbeddingRequest, RemoteEmbeddingRuntime, RenderedRequest,
    RuntimeEnd, UpstreamConfig,
};
use mortise_upstream::{ClientError, Probe, UpstreamRuntime};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::arguments::{BadCommand, HOST, PlaceholderValues, check, model_of};
use crate::output::quoted;
use crate::ports::{Port, Ports};
use crate::process::Process;

/// Pause between two looks whether a process serves.
const POLL: Duration = Duration::from_millis(100);

/// A process that does not come to serve.
#[derive(Debug, thiserror::Error)]
pub enum ChildError {
    /// The command of the process is wrong.
    #[error(transparent)]
    Command(#[from] BadCommand),
    /// The working directory of the process is not there.
    #[error("the directory `{0}` is not there")]
    NoDirectory(String),
    /// No port is free near the first one of the model's range.
    #[error("no port from {0} up is free")]
    NoPort(u16),
    /// The process cannot be started.
    #[error("the process cannot be started: {0}")]
    Start(#[source] io::Error),
    /// The process ended before it was ready.
    #[error("{0}")]
    Ended(String),
    /// The process was not ready in time.
    #[error(
        "the process was not ready after {} ms: {problem}; {said}",
        limit.as_millis()
    )]
    NotReady {
        /// Time that the process had.
        limit: Duration,
        /// Outcome of the last readiness probe.
        problem: String,
        /// Last lines of the process's output.
        said: String,
    },
    /// The HTTP client for the process cannot be made.
    #[error(transparent)]
    Client(#[from] ClientError),
}

/// Starts the processes of all models.
#[derive(Debug, Default)]
pub struct Children {
    ports: Ports,
}

impl Children {
    /// Check that the process of a model could be started, before other models are unloaded for it.
    ///
    /// # Errors
    /// When its program or its directory is not there.
    pub fn check(&self, config: &ChildConfig) -> Result<(), ChildError> {
        if let Some(directory) = config.directory.as_ref().filter(|path| !path.is_dir()) {
            return Err(ChildError::NoDirectory(directory.display().to_string()));
        }
        Ok(check(config)?)
    }

    /// Start the process of a model, and wait until it is ready.
    ///
    /// # Errors
    /// When the process cannot be started, ends, or is not ready in time. No part of it is left running then.
    pub async fn start(
        &self,
        model: &ModelConfig,
        config: &ChildConfig,
        progress: &LoadProgress,
    ) -> Result<ChildRuntime, ChildError> {
        let port = self.ports.take(config.base_port);
        let port = port.ok_or(ChildError::NoPort(config.base_port))?;
        let files = model_of(model);
        let place = PlaceholderValues {
            model: files.as_deref(),
            name: &config.upstream.model,
            port: port.number,
        };
        let command = place.fill(&config.command)?;
        let output = progress.output();
        let process = Process::start(&model.name, &command, config, output);
        let process = process.map_err(ChildError::Start)?;
        tracing::info!(
            model = model.name,
            port = port.number,
            command = command.join(" "),
            "process started"
        );
        progress.stage(LoadStage::Starting);
        let starting = Starting {
            config,
            process,
            port,
            upstream: UpstreamConfig {
                urls: vec![url(&place, config)?],
                ..config.upstream.clone()
            },
        };
        let ready = starting.ready().await;
        let said = || quoted(&output.last(usize::MAX));
        if let Err(problem) = ready {
            return Err(match problem {
                Unready::Ended(detail) => ChildError::Ended(detail),
                Unready::Late(problem) => ChildError::NotReady {
                    limit: config.ready_timeout,
                    problem,
                    said: said(),
                },
                Unready::Client(error) => error.into(),
            });
        }
        starting.serve(&model.name)
    }
}

/// Base URL of the process's API.
fn url(place: &PlaceholderValues<'_>, config: &ChildConfig) -> Result<BaseUrl, ChildError> {
    let url = format!("http://{HOST}:{}{}", place.port, config.base_path);
    let url = url.parse::<BaseUrl>();
    url.map_err(|error| ChildError::Start(io::Error::other(error)))
}

/// A process that has been started.
struct Starting<'a> {
    config: &'a ChildConfig,
    process: Process,
    port: Port,
    upstream: UpstreamConfig,
}

/// Reason for which a process is not ready.
enum Unready {
    Ended(String),
    Late(String),
    Client(ClientError),
}

impl Starting<'_> {
    /// Wait until the process answers with 200.
    async fn ready(&self) -> Result<(), Unready> {
        let probe = Probe::new(&self.upstream).map_err(Unready::Client)?;
        let mut end = self.process.end();
        let deadline = Instant::now() + self.config.ready_timeout;
        let mut problem = "it was never asked".to_owned();
        loop {
            let next = Instant::now() + POLL;
            let path = &self.config.health_path;
            let mut serves = false;
            match timeout_at(deadline, probe.status(path)).await {
                Ok(Ok(200)) => serves = true,
                Ok(Ok(status)) => problem = format!("`{path}` answers HTTP {status}"),
                Ok(Err(error)) => problem = error,
                Err(_) => {}
            }
            // A process that ended did not answer: somebody else took its port.
            if let Some(ended) = end.borrow().as_ref() {
                return Err(Unready::Ended(ended.detail.clone()));
            }
            if serves {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(Unready::Late(problem));
            }
            tokio::select! {
                _ = end.changed() => {}
                () = sleep_until(next) => {}
            }
        }
    }

    fn serve(self, model: &str) -> Result<ChildRuntime, ChildError> {
        let end = self.process.end();
        let upstream = UpstreamRuntime::start_until(model, self.upstream, end)?;
        tracing::info!(
            model,
            port = self.port.number,
            pid = self.process.pid(),
            "the process serves"
        );
        Ok(ChildRuntime {
            upstream,
            process: self.process,
            _port: self.port,
        })
    }
}

/// Answers conversations, and makes embeddings, by asking a process that this server has started. Dropping it ends the process.
#[derive(Debug)]
pub struct ChildRuntime {
    upstream: UpstreamRuntime,
    process: Process,
    _port: Port,
}

impl RemoteEmbeddingRuntime for ChildRuntime {
    fn embed(&self, request: RemoteEmbeddingRequest) -> RemoteEmbeddingFuture<'_> {
        self.upstream.embed(request)
    }

    fn has_prompts(&self) -> bool {
        self.upstream.has_prompts()
    }

    fn embedding_requires_allow_remote(&self) -> bool {
        self.upstream.embedding_requires_allow_remote()
    }

    fn text_length(&self) -> Option<usize> {
        self.upstream.text_length()
    }

    fn embedding_load(&self) -> EngineLoad {
        self.upstream.embedding_load()
    }

    fn process_bytes(&self) -> u64 {
        self.process.memory_bytes()
    }

    fn process_end(&self) -> Option<RuntimeEnd> {
        Some(self.process.end())
    }
}

impl ConversationRuntime for ChildRuntime {
    fn submit(&self, request: ConversationRequest) -> Result<OutputStream, SubmitError> {
        self.upstream.submit(request)
    }

    fn submit_rendered(&self, request: RenderedRequest) -> Result<OutputStream, SubmitError> {
        self.upstream.submit_rendered(request)
    }

    fn memory_bytes(&self) -> u64 {
        self.process.memory_bytes()
    }

    fn requires_allow_remote(&self) -> bool {
        self.upstream.requires_allow_remote()
    }

    fn context_length(&self) -> Option<usize> {
        self.upstream.context_length()
    }

    fn load(&self) -> EngineLoad {
        self.upstream.load()
    }

    fn end(&self) -> Option<RuntimeEnd> {
        Some(self.process.end())
    }
}
