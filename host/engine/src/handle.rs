//! The outside of an engine: start it, submit to it, ask how it does, stop it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{JoinHandle, Thread};

use mortise_model::{BLOCK_TOKENS, KvCache, Model};

use crate::SubmitError;
use crate::block_pool::BlockPool;
use crate::config::{EngineConfig, EngineError};
use crate::doorbell::{Stalled, StreamDoorbell};
use crate::event::TokenStream;
use crate::forward::{ForwardPass, LocalModel};
use crate::load::{Counters, EngineLoad};
use crate::queue::{Queue, QueueBounds};
use crate::request::SequenceRequest;
use crate::scheduler::{Scheduler, StepLimits};
use crate::sequence::Submission;
use crate::step_loop::{Shared, StepLoop};

/// Starts engines.
#[derive(Debug)]
pub struct Engine;

/// A running engine. Dropping it stops the engine.
#[derive(Debug)]
pub struct EngineHandle {
    shared: Arc<Shared>,
    submissions: mpsc::SyncSender<Submission>,
    engine: Thread,
    join: Mutex<Option<JoinHandle<()>>>,
    vocabulary: usize,
    context_length: usize,
}

impl Engine {
    /// Allocate a KV cache for the model and start an engine on a thread of its own.
    pub fn start(model: Arc<Model>, config: EngineConfig) -> Result<EngineHandle, EngineError> {
        config.check()?;
        let blocks = config.cache_blocks(model.spec())?;
        let cache = KvCache::new(model.spec(), blocks, config.kv_type);
        let cache = cache.map_err(EngineError::Cache)?;
        Self::start_with(Box::new(LocalModel { model, cache }), config)
    }

    /// Start an engine on anything that computes logits and brings its cache.
    pub fn start_with(
        model: Box<dyn ForwardPass>,
        config: EngineConfig,
    ) -> Result<EngineHandle, EngineError> {
        config.check()?;
        let shared = Arc::new(Shared {
            counters: Counters::default(),
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
            submissions: receiver,
            shared: Arc::clone(&shared),
            sequences: BTreeMap::new(),
            next_id: 0,
            draft_max: config.speculation.draft_max(),
        };
        let join = spawn(step_loop, config.threads)?;
        Ok(EngineHandle {
            shared,
            submissions,
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
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .use_current_thread()
            .thread_name(|number| format!("mortise-compute-{number}"))
            .build();
        let built = pool.as_ref().map(|_| ()).map_err(ToString::to_string);
        let go_on = built.is_ok();
        // Nobody listens only if the starter is gone, and with it the engine's handle.
        if ready.send(built).is_ok() && go_on {
            step_loop.run();
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
        let (prompt, context) = (request.prompt.len(), self.context_length);
        if prompt >= context {
            return Err(SubmitError::ContextLength { prompt, context });
        }
        if self.shared.stopping.load(Ordering::Acquire) {
            return Err(SubmitError::Stopped);
        }
        let tokens_max = prompt
            .saturating_add(request.max_tokens as usize)
            .min(context);
        let place = self.shared.queue.enter(&request.share.tenant, prompt)?;
        let stalled = Stalled::default();
        let doorbell = StreamDoorbell::new(self.engine.clone(), Arc::clone(&stalled));
        let (sender, stream) = TokenStream::with_doorbell(doorbell);
        let submission = Submission {
            request,
            place,
            tokens_max,
            sender,
            stalled,
        };
        // The channel has as many places as the queue: it is never full here.
        if self.submissions.try_send(submission).is_err() {
            return Err(SubmitError::Stopped);
        }
        self.engine.unpark();
        Ok(stream)
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
