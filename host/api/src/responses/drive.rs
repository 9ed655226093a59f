//! The making of a response: events of the service become events of the dialect, and the response is written before
//! its last event tells of it.

use std::sync::Arc;
use std::time::Instant;

use futures::FutureExt as _;
use mortise_http::{Problem, Reservation};
use mortise_service::{Event, Principal, ServiceError, Summary};
use mortise_store::{Store, StoreError};
use mortise_trace::Span;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::assembly::ResponseAssembly;
use super::keep::ResponseKey;
use super::recent::Continued;
use crate::answering::Answering;
use crate::stored::store_problem;

/// Events that are ready are given together, up to so many.
const BATCH: usize = 32;

/// A response that is being made. Dropping it cancels the answer.
pub(super) struct Driver {
    answering: Answering,
    pub(super) assembly: ResponseAssembly,
    store: Arc<dyn Store>,
    pub(super) keep: Option<ResponseKey>,
    /// Memory of the connection, where it has one.
    continued: Option<Continued>,
    /// Memory of both.
    _memory: Reservation,
    stage: Stage,
    /// The problem that ended the answer, if one did.
    pub(super) problem: Option<Problem>,
    /// The server stopped before the answer had ended.
    pub(super) stopped: bool,
}

enum Stage {
    Opening,
    Running,
    /// The response is being written to the store. The commit goes on by itself, whatever happens to its reader.
    Keeping(JoinHandle<Result<(), StoreError>>),
    Ended,
}

impl Driver {
    pub(super) fn new(
        answering: Answering,
        assembly: ResponseAssembly,
        store: Arc<dyn Store>,
        keep: Option<ResponseKey>,
        continued: Option<Continued>,
        memory: Reservation,
    ) -> Self {
        Self {
            answering,
            assembly,
            store,
            keep,
            continued,
            _memory: memory,
            stage: Stage::Opening,
            problem: None,
            stopped: false,
        }
    }

    /// Set that the response is streamed.
    pub(super) fn streams(&mut self) {
        self.answering.streams();
    }

    /// Caller of the request.
    pub(super) fn principal(&self) -> Principal {
        self.answering.principal()
    }

    /// The next events; `None` at the end. A call that is dropped before it returns loses nothing.
    pub(super) async fn next(&mut self) -> Option<Vec<Value>> {
        loop {
            let mut out = Vec::new();
            match &mut self.stage {
                Stage::Opening => {
                    self.assembly.opening(&mut out);
                    self.stage = Stage::Running;
                    return Some(out);
                }
                Stage::Running => {
                    let event = self.answering.next().await;
                    self.take(event, &mut out);
                    while out.len() < BATCH && matches!(self.stage, Stage::Running) {
                        match self.answering.next().now_or_never() {
                            Some(event) => self.take(event, &mut out),
                            None => break,
                        }
                    }
                    if !out.is_empty() {
                        return Some(out);
                    }
                }
                Stage::Keeping(commit) => {
                    let result = commit.await;
                    let failed = |_| StoreError::Unavailable("a write broke off".to_owned());
                    if let Err(error) = result.map_err(failed).flatten() {
                        self.fail(store_problem(error));
                    }
                    self.stage = Stage::Ended;
                    self.assembly.ending(&mut out);
                    return Some(out);
                }
                Stage::Ended => return None,
            }
        }
    }

    fn take(&mut self, event: Event, out: &mut Vec<Value>) {
        match event {
            Event::Completed { usage } => {
                if self.assembly.wants_metrics() {
                    let metrics = self.answering.summary().map(|summary| {
                        let pool = self.answering.record().arrived();
                        metrics(&summary, pool)
                    });
                    self.assembly.set("metrics", json!(metrics));
                }
                self.assembly.completed(usage, out);
                self.end(out);
            }
            Event::Failed(error) => {
                self.stopped = matches!(error, ServiceError::Stopping);
                let problem = self.answering.failed(error);
                self.fail(problem);
                self.end(out);
            }
            event => self.assembly.event(event, out),
        }
    }

    fn fail(&mut self, problem: Problem) {
        self.assembly.failed(&problem);
        self.problem = Some(problem);
    }

    /// Write the response, if it is to be kept, and send its last event after that.
    fn end(&mut self, out: &mut Vec<Value>) {
        if let Some(continued) = self.continued.take() {
            let whole = self.problem.is_none();
            continued.ended(self.assembly.id(), self.assembly.items(), whole);
        }
        // What the server's stop ends in the background is taken up after the next start.
        let resumes = self.stopped && self.keep.as_ref().is_some_and(|keep| keep.live.is_some());
        match self.keep.as_ref().filter(|_| !resumes) {
            // A response that is made in the background is written by its task, with all of its events.
            Some(keep) if keep.live.is_none() => {
                let commit = self.commit(keep);
                self.stage = Stage::Keeping(commit);
            }
            _ => {
                self.stage = Stage::Ended;
                self.assembly.ending(out);
            }
        }
    }

    /// Write the response as it is now.
    pub(super) fn commit(&self, keep: &ResponseKey) -> JoinHandle<Result<(), StoreError>> {
        let changes = keep.ended(&self.assembly.response(), self.assembly.items());
        let store = Arc::clone(&self.store);
        tokio::spawn(Span::current().run(async move { store.commit(changes).await }))
    }
}

/// Timers of an answer, each within the next: the runtime, the engine with its queue, the whole request. What is not
/// known is null.
fn metrics(summary: &Summary<'_>, arrived: Instant) -> Value {
    let ms = |time: std::time::Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
    let queued = summary.queued.unwrap_or_default();
    let engine = summary.elapsed;
    let backend = engine.saturating_sub(queued);
    let first = summary
        .first_token
        .map(|first| first.saturating_sub(queued));
    let tokens = summary.usage.completion_tokens;
    let rate = match backend.as_secs_f64() {
        seconds if seconds > 0.0 => Some((f64::from(tokens) / seconds * 100.0).round() / 100.0),
        _ => None,
    };
    json!({
        "backend_inference_wall_ms": ms(backend),
        "engine_total_wall_ms": ms(engine),
        "pool_total_wall_ms": ms(arrived.elapsed().max(engine)),
        "engine_outside_backend_wall_ms": ms(engine.saturating_sub(backend)),
        "engine_queue_wait_ms": summary.queued.map(ms),
        "engine_tokenize_ms": null,
        "gpu_time_to_first_token_ms": first.map(ms),
        "gpu_generate_total_ms": ms(backend),
        "gpu_decode_after_first_token_ms": first.map(|first| ms(backend.saturating_sub(first))),
        "engine_prompt_tokens": summary.usage.prompt_tokens,
        "engine_cached_prompt_tokens": summary.usage.cached_tokens,
        "engine_output_tokens": tokens,
        "engine_tokens_per_second": rate,
    })
}
