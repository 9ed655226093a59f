//! The outside of an engine: start it, submit to it, ask how it does, stop it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{JoinHandle, Thread};

use mortise_kernels::pool::ThreadPool;
use mortise_model::{BLOCK_TOKENS, KvCache, Model};

use crate::SubmitError;
use crate::beam_group::BeamSubmission;
use crate::block_pool::BlockPool;
use crate::config::{EngineConfig, EngineError, Speculation};
use crate::doorbell::{Stalled, StreamDoorbell};
use crate::drafter::Drafter;
use crate::event::TokenStream;
use crate::forward::{ForwardPass, LocalModel};
use crate::load::{Counters, EngineLoad};
use crate::outbox::Outbox;
use crate::prefill_chunk::PrefillChunk;
use crate::queue::{Queue, QueueBounds, QueuePlace};
use crate::request::{BeamRequest, SequenceRequest};
use crate::scheduler::{Scheduler, StepLimits};
use crate::sequence::Submission;
use crate::shares::Share;
use crate::step_loop::{Shared, StepLoop, Submitted};

/// Starts engines.
#[derive(Debug)]
pub struct Engine;

/// A running engine. Dropping it stops the engine.
#[derive(Debug)]
pub struct EngineHandle {
    shared: Arc<Shared>,
    submissions: mpsc::SyncSender<Submitted>,
    max_sequences: usize,
    engine: Thread,
    join: Mutex<Option<JoinHandle<()>>>,
    vocabulary: usize,
    context_length: usize,
}

impl Engine {
    /// Allocate a KV cache for the model and start an engine on a thread of its own.
    pub fn start(model: Arc<Model>, config: EngineConfig) -> Result<EngineHandle, EngineError> {
        Self::start_local(model, None, config)
    }

    /// The same with a smaller model that guesses what the first one says. They must know the same
    /// tokens, by the same numbers; which is the caller's to see to. The draft model's KV cache is
    /// part of what the configuration allows.
    pub fn start_drafted(
        model: Arc<Model>,
        draft: Arc<Model>,
        config: EngineConfig,
    ) -> Result<EngineHandle, EngineError> {
        Self::start_local(model, Some(draft), config)
    }

    fn start_local(
        model: Arc<Model>,
        draft: Option<Arc<Model>>,
        config: EngineConfig,
    ) -> Result<EngineHandle, EngineError> {
        config.check()?;
        let blocks = config.cache_blocks(model.spec(), draft.as_ref().map(|draft| draft.spec()))?;
        let with_cache = |model: Arc<Model>| -> Result<Box<dyn ForwardPass>, EngineError> {
            let cache = KvCache::new(model.spec(), blocks, config.kv_type);
            let cache = cache.map_err(EngineError::Cache)?;
            Ok(Box::new(LocalModel { model, cache }))
        };
        let draft = draft.map(with_cache).transpose()?;
        Self::launch(with_cache(model)?, draft, config)
    }

    /// Start an engine on anything that computes logits and brings its cache.
    pub fn start_with(
        model: Box<dyn ForwardPass>,
        config: EngineConfig,
    ) -> Result<EngineHandle, EngineError> {
        Self::launch(model, None, config)
    }

    /// The same with a draft model; see [`Engine::start_drafted`].
    pub fn start_drafted_with(
        model: Box<dyn ForwardPass>,
        draft: Box<dyn ForwardPass>,
        config: EngineConfig,
    ) -> Result<EngineHandle, EngineError> {
        Self::launch(model, Some(draft), config)
    }

    fn launch(
        model: Box<dyn ForwardPass>,
        draft: Option<Box<dyn ForwardPass>>,
        config: EngineConfig,
    ) -> Result<EngineHandle, EngineError> {
        config.check()?;
        let wanted = matches!(config.speculation, Speculation::DraftModel { .. });
        if wanted != draft.is_some() {
            let problem = match wanted {
                true => "asks for a draft model, and none is given",
                false => "asks for no draft model, and one is given",
            };
            return Err(EngineError::Config {
                field: "speculation",
                problem: problem.to_owned(),
            });
        }
        let shared = Arc::new(Shared {
            counters: Counters::new(config.speculation),
            queue: Queue::new(QueueBounds {
                sequences: config.max_queue,
                tokens: config.max_queued_tokens,
                reserved: config.reserve_queue,
            }),
            stopping: AtomicBool::new(false),
        });
        let (submissions, receiver) = mpsc::sync_channel(config.max_queue);
        let (vocabulary, blocks) = (model.vocabulary(), model.cache_blocks());
        let context_length = model
            .context_length()
            .min(blocks.saturating_mul(BLOCK_TOKENS));
        let pool = BlockPool::new(blocks, BLOCK_TOKENS, config.prefix_cache);
        let limits = StepLimits {
            sequences: config.max_sequences,
            tokens: config.step_token_budget,
        };
        let step_loop = StepLoop {
            model,
            scheduler: Scheduler::new(limits, pool),
            prefill_chunk: PrefillChunk::new(config.prefill_chunk),
            submissions: receiver,
            shared: Arc::clone(&shared),
            sequences: BTreeMap::new(),
            beams: Vec::new(),
            next_id: 0,
            draft_max: config.speculation.draft_max(),
            drafter: Drafter::new(config.speculation, draft, config.step_token_budget),
            in_flight: Vec::new(),
        };
        let join = spawn(step_loop, config.threads)?;
        Ok(EngineHandle {
            shared,
            submissions,
            max_sequences: config.max_sequences,
            engine: join.thread().clone(),
            join: Mutex::new(Some(join)),
            vocabulary,
            context_length,
        })
    }
}

/// Start the engine's thread, which is the first of the threads that compute.
fn spawn(step_loop: StepLoop, threads: usize) -> Result<JoinHandle<()>, EngineError> {
    let (ready, started) = mpsc::sync_channel(1);
    let run = move || {
        let (built, pool) = match ThreadPool::new(threads) {
            Ok(pool) => (Ok(()), Some(pool)),
            Err(error) => (Err(error.to_string()), None),
        };
        // Nobody listens only if the starter is gone, and with it the engine's handle.
        if ready.send(built).is_ok()
            && let Some(pool) = pool
        {
            pool.install(|| step_loop.run());
        }
    };
    let threads_error = |error: String| EngineError::Threads(error);
    let join = std::thread::Builder::new()
        .name("mortise-engine".to_owned())
        .spawn(run)
        .map_err(|error| threads_error(error.to_string()))?;
    match started.recv() {
        Ok(built) => built.map(|()| join).map_err(threads_error),
        Err(_) => Err(threads_error(
            "the engine's thread ended at once".to_owned(),
        )),
    }
}

impl EngineHandle {
    /// Queue a sequence. Dropping the stream cancels it.
    pub fn submit(&self, request: SequenceRequest) -> Result<TokenStream, SubmitError> {
        request
            .check(self.vocabulary)
            .map_err(SubmitError::Invalid)?;
        let (place, tokens_max) =
            self.admit(&request.prompt, request.max_tokens, &request.share)?;
        let (outbox, stream) = self.stream(&place);
        self.send(Submitted::Sequence(Submission {
            request,
            place,
            tokens_max,
            outbox,
        }))?;
        Ok(stream)
    }

    /// Queue a beam search. Each of the streams, of which there are as many as results, gets one
    /// continuation, the best one first, when the search is over. Dropping all of them cancels it.
    pub fn submit_beams(&self, request: BeamRequest) -> Result<Vec<TokenStream>, SubmitError> {
        request
            .check(self.vocabulary, self.max_sequences)
            .map_err(SubmitError::Invalid)?;
        let (place, tokens_max) =
            self.admit(&request.prompt, request.max_tokens, &request.share)?;
        let results = (0..request.beams.results).map(|_| self.stream(&place));
        let (outboxes, streams) = results.unzip();
        self.send(Submitted::Beams(BeamSubmission {
            request,
            place,
            tokens_max,
            outboxes,
        }))?;
        Ok(streams)
    }

    /// A place in the queue, and the tokens that prompt and output may have together.
    fn admit(
        &self,
        prompt: &[u32],
        max_tokens: u32,
        share: &Share,
    ) -> Result<(QueuePlace, usize), SubmitError> {
        let (prompt, context) = (prompt.len(), self.context_length);
        if prompt >= context {
            return Err(SubmitError::ContextLength { prompt, context });
        }
        if self.shared.stopping.load(Ordering::Acquire) {
            return Err(SubmitError::Stopped);
        }
        let tokens_max = prompt.saturating_add(max_tokens as usize).min(context);
        let place = self.shared.queue.enter(&share.tenant, prompt)?;
        Ok((place, tokens_max))
    }

    fn stream(&self, place: &QueuePlace) -> (Outbox, TokenStream) {
        let stalled = Stalled::default();
        let doorbell = StreamDoorbell::new(self.engine.clone(), Arc::clone(&stalled));
        let (sender, stream) = TokenStream::with_doorbell(doorbell, place.timer().clone());
        (Outbox::new(sender, stalled), stream)
    }

    fn send(&self, submitted: Submitted) -> Result<(), SubmitError> {
        // The channel has as many places as the queue: it is never full here.
        if self.submissions.try_send(submitted).is_err() {
            return Err(SubmitError::Stopped);
        }
        self.engine.unpark();
        Ok(())
    }

    /// Tokens that a sequence may have, prompt and output together.
    pub fn context_length(&self) -> usize {
        self.context_length
    }

    /// Tokens that the model knows.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// What the engine is doing now.
    pub fn load(&self) -> EngineLoad {
        self.shared.counters.read(&self.shared.queue)
    }

    /// Stop after the current step and wait for that. Streams that are not finished are closed.
    pub fn shutdown(&self) {
        self.shared.stopping.store(true, Ordering::Release);
        self.engine.unpark();
        let join = self
            .join
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(join) = join
            && join.join().is_err()
        {
            tracing::error!("the engine's thread panicked");
        }
    }
}

impl Drop for EngineHandle {
    fn drop(&mut self) {
        self.shutdown();
    }
}
