//! The handle of an engine: start, submit, read the load, shut down.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::task::Waker;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mortise_kernels::pool::ThreadPool;
use mortise_model::{BLOCK_TOKENS, Decoder, KvCache};

use crate::beam_group::BeamSubmission;
use crate::block_pool::BlockPool;
use crate::circuit::Circuit;
use crate::config::{EngineConfig, EngineError, Speculation};
use crate::event::TokenStream;
use crate::fair_queue::Share;
use crate::forward::{ForwardPass, LocalModel};
use crate::load::{EngineLoad, LoadCounters};
use crate::outbox::Outbox;
use crate::prefill_chunk::PrefillChunk;
use crate::queue::{Queue, QueueBounds, QueuePlace};
use crate::request::{BeamRequest, SequenceRequest};
use crate::scheduler::{Scheduler, StepLimits};
use crate::sequence::Submission;
use crate::speculator::Speculator;
use crate::step_loop::{EngineShared, StepLoop, Submitted};
use crate::submit_error::SubmitError;
use crate::tenant_load::{TenantLoad, TenantQuery, sum_tenants};
use crate::waker::{Stalled, StreamWaker, thread_waker};
use crate::warm_up::warm_up;

/// Time within which the engine's thread comes to forget its prefixes: a step, or several while it begins anew.
const CLEAR_TIME: Duration = Duration::from_secs(30);

/// Time that a look at the tenants waits for a step, which an operator waits for too.
const TENANTS_TIME: Duration = Duration::from_secs(2);

/// Starts engines.
#[derive(Debug)]
pub struct Engine;

/// A running engine. Dropping it stops the engine.
#[derive(Debug)]
pub struct EngineHandle {
    shared: Arc<EngineShared>,
    submissions: mpsc::SyncSender<Submitted>,
    max_sequences: usize,
    waker: Waker,
    join: Mutex<Option<JoinHandle<()>>>,
    vocabulary: usize,
    context_length: usize,
    /// Bytes of a block of the cache, and of one of the draft model's; 0 where another owns them.
    block_bytes: usize,
    /// Duration of the warm-up, if there was one.
    warm_up: Option<Duration>,
}

impl Engine {
    /// Allocate a KV cache for the model and start an engine on a thread of its own.
    pub fn start(model: Arc<Decoder>, config: EngineConfig) -> Result<EngineHandle, EngineError> {
        Self::start_local(model, None, config)
    }

    /// Start with a smaller draft model for speculative decoding. The caller ensures that both models
    /// have the same vocabulary. The draft model's KV cache counts towards the configured bound.
    pub fn start_drafted(
        model: Arc<Decoder>,
        draft: Arc<Decoder>,
        config: EngineConfig,
    ) -> Result<EngineHandle, EngineError> {
        Self::start_local(model, Some(draft), config)
    }

    fn start_local(
        model: Arc<Decoder>,
        draft: Option<Arc<Decoder>>,
        config: EngineConfig,
    ) -> Result<EngineHandle, EngineError> {
        config.check()?;
        let blocks = config.cache_blocks(model.spec(), draft.as_ref().map(|draft| draft.spec()))?;
        let models = std::iter::once(&model).chain(&draft);
        let block_bytes = models.map(|model| KvCache::block_bytes(model.spec(), config.kv_type));
        let block_bytes = block_bytes.sum();
        let with_cache = |model: Arc<Decoder>| -> Result<Box<dyn ForwardPass>, EngineError> {
            let cache = KvCache::new(model.spec(), blocks, config.kv_type);
            let cache = cache.map_err(EngineError::Cache)?;
            Ok(Box::new(LocalModel { model, cache }))
        };
        let draft = draft.map(with_cache).transpose()?;
        let mut handle = Self::launch(with_cache(model)?, draft, config)?;
        handle.block_bytes = block_bytes;
        Ok(handle)
    }

    /// Start an engine on any forward pass that has its own cache.
    pub fn start_with(
        model: Box<dyn ForwardPass>,
        config: EngineConfig,
    ) -> Result<EngineHandle, EngineError> {
        Self::launch(model, None, config)
    }

    /// Start on any forward passes, with a draft model; see [`Engine::start_drafted`].
    pub fn start_drafted_with(
        model: Box<dyn ForwardPass>,
        draft: Box<dyn ForwardPass>,
        config: EngineConfig,
    ) -> Result<EngineHandle, EngineError> {
        Self::launch(model, Some(draft), config)
    }

    fn launch(
        mut model: Box<dyn ForwardPass>,
        mut draft: Option<Box<dyn ForwardPass>>,
        config: EngineConfig,
    ) -> Result<EngineHandle, EngineError> {
        config.check()?;
        check_draft(config.speculation, draft.is_some())?;
        let shared = Arc::new(EngineShared {
            counters: LoadCounters::new(config.speculation),
            queue: Queue::new(queue_bounds(&config)),
            circuit: Circuit::new(
                Arc::clone(&config.model),
                config.breaker_failures,
                config.stall,
            ),
            stopping: AtomicBool::new(false),
            questions: Mutex::default(),
        });
        let (submissions, receiver) = mpsc::sync_channel(config.max_queue);
        let (vocabulary, blocks) = (model.vocabulary(), model.cache_blocks());
        let context_length = model
            .context_length()
            .min(blocks.saturating_mul(BLOCK_TOKENS));
        let pool = BlockPool::new(blocks, BLOCK_TOKENS, config.prefix_cache);
        let limits = step_limits(&config);
        let for_loop = Arc::clone(&shared);
        let (max_sequences, threads) = (config.max_sequences, config.threads);
        let run = move |waker, started: &dyn Fn(Started)| {
            let warmed = warmed(std::iter::once(&mut model).chain(&mut draft), &config);
            let good = warmed.is_ok();
            started(warmed);
            if !good {
                return;
            }
            StepLoop {
                model,
                waker,
                scheduler: Scheduler::new(limits, pool),
                prefill_chunk: PrefillChunk::new(config.prefill_chunk),
                submissions: receiver,
                shared: for_loop,
                sequences: BTreeMap::new(),
                beams: Vec::new(),
                next_id: 0,
                draft_max: config.speculation.draft_max(),
                speculator: Speculator::new(config.speculation, draft, config.step_token_budget),
                in_flight: Vec::new(),
                blocked_since: None,
                fault: config.fault.0,
                began: Instant::now(),
            }
            .run();
        };
        let (join, warm_up) = spawn(run, threads)?;
        Ok(EngineHandle {
            shared,
            submissions,
            max_sequences,
            waker: thread_waker(join.thread().clone()),
            join: Mutex::new(Some(join)),
            vocabulary,
            context_length,
            block_bytes: 0,
            warm_up,
        })
    }
}

/// Bounds of a step.
fn step_limits(config: &EngineConfig) -> StepLimits {
    StepLimits {
        sequences: config.max_sequences,
        tokens: config.step_token_budget,
        per_tenant: config.max_sequences_per_tenant,
        idle_tenant_s: config.idle_tenant.map_or(0, |time| time.as_secs().max(1)),
    }
}

/// Bounds of the queue.
fn queue_bounds(config: &EngineConfig) -> QueueBounds {
    QueueBounds {
        sequences: config.max_queue,
        tokens: config.max_queued_tokens,
        reserved: config.reserve_queue,
        per_tenant: config.max_queue_per_tenant,
        expected_wait: config.max_expected_wait,
    }
}

/// Check that there is a draft model where the method of speculation wants one.
fn check_draft(speculation: Speculation, given: bool) -> Result<(), EngineError> {
    let wanted = matches!(speculation, Speculation::DraftModel { .. });
    if wanted == given {
        return Ok(());
    }
    let problem = match wanted {
        true => "asks for a draft model, and none is given",
        false => "asks for no draft model, and one is given",
    };
    Err(EngineError::Config {
        field: "speculation",
        problem: problem.to_owned(),
    })
}

/// Outcome of a start: duration of the warm-up, if there was one.
type Started = Result<Option<Duration>, EngineError>;

/// Warm up the model and the draft model, if that is configured.
fn warmed<'a>(
    models: impl Iterator<Item = &'a mut Box<dyn ForwardPass>>,
    config: &EngineConfig,
) -> Started {
    if !config.warm_up {
        return Ok(None);
    }
    let begun = Instant::now();
    for model in models {
        warm_up(&mut **model, config.max_sequences).map_err(EngineError::WarmUp)?;
    }
    Ok(Some(begun.elapsed()))
}

/// Run `step_loop` on the engine's thread, which is the first of the threads that compute; the others are
/// shared by all engines of as many. It gets the waker of that thread, and tells when requests may come. Returns the
/// thread and how long it warmed up.
fn spawn(
    step_loop: impl FnOnce(Waker, &dyn Fn(Started)) + Send + 'static,
    threads: usize,
) -> Result<(JoinHandle<()>, Option<Duration>), EngineError> {
    let (ready, started) = mpsc::sync_channel(1);
    let threads_error = |error: String| EngineError::Threads(error);
    let run = move || {
        // The send fails only if the starting thread is gone, and with it the handle.
        let tell = |started| drop(ready.send(started));
        match ThreadPool::shared(threads) {
            Ok(pool) => {
                pool.install(|| step_loop(thread_waker(std::thread::current()), &tell));
            }
            Err(error) => tell(Err(threads_error(error.to_string()))),
        }
    };
    let join = std::thread::Builder::new()
        .name("mortise-engine".to_owned())
        .spawn(run)
        .map_err(|error| threads_error(error.to_string()))?;
    match started.recv() {
        Ok(started) => started.map(|warm_up| (join, warm_up)),
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

    /// Queue a beam search. There is one stream for each result; each gets one continuation, the best
    /// first, when the search is over. Dropping all streams cancels the search.
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

    /// Take a place in the queue. Returns it with the bound on the tokens of prompt and output together.
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
        let turn = self.shared.counters.turn_time();
        let passed = self.shared.circuit.pass(Instant::now(), turn);
        passed.map_err(|retry_after| SubmitError::Broken { retry_after })?;
        let place = self.shared.queue.enter(&share.tenant, prompt)?;
        Ok((place, tokens_max))
    }

    fn stream(&self, place: &QueuePlace) -> (Outbox, TokenStream) {
        let stalled = Stalled::default();
        let waker = StreamWaker::new(self.waker.clone(), Arc::clone(&stalled));
        let (sender, stream) = TokenStream::with_waker(waker, place.timer().clone());
        (Outbox::new(sender, stalled), stream)
    }

    fn send(&self, submitted: Submitted) -> Result<(), SubmitError> {
        // The channel has as many places as the queue: it is never full here.
        if self.submissions.try_send(submitted).is_err() {
            return Err(SubmitError::Stopped);
        }
        self.waker.wake_by_ref();
        Ok(())
    }

    /// The context length in tokens, prompt and output together.
    pub fn context_length(&self) -> usize {
        self.context_length
    }

    /// Duration of the warm-up, if there was one.
    pub fn warm_up_time(&self) -> Option<Duration> {
        self.warm_up
    }

    /// Size of the model's vocabulary.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// Current gauges and counters.
    pub fn load(&self) -> EngineLoad {
        let load = self.shared.counters.read(&self.shared.queue);
        let (circuit, circuit_opened) = self.shared.circuit.state(load.step_time);
        EngineLoad {
            max_running: self.max_sequences,
            kv_block_bytes: self.block_bytes,
            circuit,
            circuit_opened,
            ..load
        }
    }

    /// Forget the cached prefixes that no sequence uses, after the current step. Returns how many blocks held them.
    /// Blocks.
    pub fn clear_prefixes(&self) -> usize {
        let (sender, cleared) = mpsc::channel();
        self.ask(TenantQuery::ClearPrefixes(sender));
        cleared.recv_timeout(CLEAR_TIME).unwrap_or(0)
    }

    /// Figures of tenants, after the current step. If that takes too long, those of the queue alone. Blocks.
    pub fn tenants(&self) -> Vec<TenantLoad> {
        let (sender, told) = mpsc::channel();
        self.ask(TenantQuery::Tenants(sender));
        let told = told.recv_timeout(TENANTS_TIME).unwrap_or_default();
        sum_tenants(told.into_iter().chain(self.shared.queue.tenants()))
    }

    /// Have the engine's thread answer a question.
    fn ask(&self, question: TenantQuery) {
        let questions = self.shared.questions.lock();
        questions
            .unwrap_or_else(PoisonError::into_inner)
            .push(question);
        self.waker.wake_by_ref();
    }

    /// Stop after the current step, and wait until the thread has ended. Unfinished streams are closed.
    pub fn shutdown(&self) {
        self.shared.stopping.store(true, Ordering::Release);
        self.waker.wake_by_ref();
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
