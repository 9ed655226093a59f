//! Configuration of an engine, and its errors.

use std::sync::Arc;
use std::time::Duration;

use mortise_model::{BLOCK_TOKENS, KvCache, KvType, ModelError, ModelSpec};

/// Limits of an engine. [`EngineConfig::default`] suits small models.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineConfig {
    /// Name of the model in the log.
    pub model: Arc<str>,
    /// Most sequences in a step.
    pub max_sequences: usize,
    /// Most queued sequences; more are refused.
    pub max_queue: usize,
    /// Most prompt tokens of queued sequences together; more are refused. A longer prompt may wait alone.
    pub max_queued_tokens: usize,
    /// Reserve places in the queue: a tenant may queue fewer sequences than there are free places, so that
    /// a tenant that floods the queue leaves half of it to the others.
    pub reserve_queue: bool,
    /// Most queued sequences of one tenant; 0 is no bound but those above.
    pub max_queue_per_tenant: usize,
    /// Most places of the batch that a tenant is entitled to, whatever its weight; 0 is no bound. Places that are free
    /// are lent to anybody.
    pub max_sequences_per_tenant: usize,
    /// Time after which a tenant without sequences is forgotten, even if it got more than its share. `None`: when the
    /// others have caught up.
    pub idle_tenant: Option<Duration>,
    /// Longest time that a sequence is expected to wait in the queue, as it is measured; those that would wait longer are
    /// refused. `None`: they wait.
    pub max_expected_wait: Option<Duration>,
    /// Most tokens computed in one step, decode and prefill together. At least `max_sequences`. A smaller
    /// budget lowers inter-token latency beside long prompts, a larger one raises prefill throughput.
    pub step_token_budget: usize,
    /// Target time of a step with prefill while sequences decode; at least 32 prompt tokens are computed
    /// however long they take, and more than 256 only in the time of eight steps without prefill. `None`:
    /// as many as the budget leaves.
    pub prefill_chunk: Option<Duration>,
    /// Tokens that the KV cache holds, of all sequences together. `None`: as many as
    /// `max_sequences` full contexts need, within `kv_cache_bytes`.
    pub kv_cache_tokens: Option<usize>,
    /// Bound of the KV cache where `kv_cache_tokens` is not given. Memory is used as it fills.
    pub kv_cache_bytes: usize,
    /// Element type of the KV cache.
    pub kv_type: KvType,
    /// Keep the blocks of sequences that have ended, for others that begin with the same tokens.
    pub prefix_cache: bool,
    /// Speculative decoding.
    pub speculation: Speculation,
    /// Threads that compute, the engine's own included; 0 is one for each processor.
    pub threads: usize,
    /// Compute a few tokens before the engine takes requests, so that the first is as fast as the next.
    pub warm_up: bool,
    /// Failures in a row, without a sequence that ended well, after which requests are refused for a pause; 0 is never.
    pub breaker_failures: u32,
    /// Time of one turn of the loop from which on the engine is stuck and refuses requests. `None`: they wait.
    pub stall: Option<Duration>,
    /// Fault injection into the engine's loop.
    pub fault: FaultPoint,
}

/// A function that the engine's loop calls in each turn, if there is one. Only fault injection has a use for it:
/// what panics there panics in the loop.
#[derive(Debug, Clone, Copy, Default)]
pub struct FaultPoint(pub Option<fn()>);

/// Always equal: fault injection does not change how an engine computes.
impl PartialEq for FaultPoint {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for FaultPoint {}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            model: Arc::from(""),
            max_sequences: 64,
            max_queue: 256,
            max_queued_tokens: 1 << 18,
            reserve_queue: false,
            max_queue_per_tenant: 0,
            max_sequences_per_tenant: 0,
            idle_tenant: None,
            max_expected_wait: None,
            step_token_budget: 512,
            prefill_chunk: Some(Duration::from_millis(150)),
            kv_cache_tokens: None,
            kv_cache_bytes: 1 << 30,
            kv_type: KvType::F32,
            prefix_cache: true,
            speculation: Speculation::Off,
            threads: 0,
            warm_up: false,
            breaker_failures: 0,
            stall: None,
            fault: FaultPoint::default(),
        }
    }
}

/// Method of speculative decoding. Draft tokens are accepted only if the sampler takes them, so that
/// speculation changes the speed and never the tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Speculation {
    /// No speculative decoding.
    #[default]
    Off,
    /// Draft tokens from behind the latest earlier occurrence of the last tokens. Pays where answers quote
    /// their prompts; costs computation where they do not.
    PromptLookup {
        /// Most draft tokens of a sequence in a step, 1 to 32.
        draft_tokens: usize,
    },
    /// Draft tokens of a smaller model ([`Engine::start_drafted`](crate::Engine::start_drafted)). Pays
    /// where that model is several times as fast and often agrees.
    DraftModel {
        /// Most draft tokens of a sequence in a step, 1 to 32.
        draft_tokens: usize,
    },
}

impl Speculation {
    /// The method's name, as configurations and metrics write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::PromptLookup { .. } => "prompt-lookup",
            Self::DraftModel { .. } => "draft-model",
        }
    }

    /// Most draft tokens of a sequence in a step.
    pub fn draft_max(self) -> usize {
        match self {
            Self::Off => 0,
            Self::PromptLookup { draft_tokens } | Self::DraftModel { draft_tokens } => draft_tokens,
        }
    }
}

/// Reason that an engine did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// A setting is out of its bounds.
    #[error("engine setting `{field}` {problem}")]
    Config {
        /// The setting.
        field: &'static str,
        /// The problem, as the rest of a sentence.
        problem: String,
    },
    /// The KV cache cannot be allocated.
    #[error("cannot allocate the KV cache")]
    Cache(#[source] ModelError),
    /// The model could not compute the tokens of the warm-up.
    #[error("the model could not be warmed up: {0}")]
    WarmUp(String),
    /// The system gave no threads.
    #[error("cannot start the engine's threads: {0}")]
    Threads(String),
}

impl EngineConfig {
    /// Configuration with speculative decoding off if its method is a draft model, else unchanged.
    pub fn without_draft_model(self) -> Self {
        match self.speculation {
            Speculation::DraftModel { .. } => Self {
                speculation: Speculation::Off,
                ..self
            },
            _ => self,
        }
    }

    const SEQUENCES_MAX: usize = 1 << 12;
    const QUEUE_MAX: usize = 1 << 16;
    const QUEUED_TOKENS_MAX: usize = 1 << 32;
    const DRAFT_MAX: usize = 32;
    const STEP_TOKENS_MAX: usize = 1 << 20;
    const THREADS_MAX: usize = 1 << 10;

    pub(crate) fn check(&self) -> Result<(), EngineError> {
        let within = |field, value, least: usize, most: usize| {
            if (least..=most).contains(&value) {
                return Ok(());
            }
            let problem = format!("is {value}; expected {least} to {most}");
            Err(EngineError::Config { field, problem })
        };
        within("max_sequences", self.max_sequences, 1, Self::SEQUENCES_MAX)?;
        within("max_queue", self.max_queue, 1, Self::QUEUE_MAX)?;
        within(
            "max_queued_tokens",
            self.max_queued_tokens,
            1,
            Self::QUEUED_TOKENS_MAX,
        )?;
        if self.speculation != Speculation::Off {
            let draft_tokens = self.speculation.draft_max();
            within("draft_tokens", draft_tokens, 1, Self::DRAFT_MAX)?;
        }
        within("threads", self.threads, 0, Self::THREADS_MAX)?;
        if self.step_token_budget < self.max_sequences {
            let problem = format!(
                "is {}; it must be at least `max_sequences`, which is {}",
                self.step_token_budget, self.max_sequences
            );
            return Err(EngineError::Config {
                field: "step_token_budget",
                problem,
            });
        }
        within(
            "step_token_budget",
            self.step_token_budget,
            1,
            Self::STEP_TOKENS_MAX,
        )
    }

    /// Blocks of the cache for a model of this shape, and of the cache of its draft model, which has
    /// as many: both together keep within the bound.
    pub fn cache_blocks(
        &self,
        spec: &ModelSpec,
        draft: Option<&ModelSpec>,
    ) -> Result<usize, EngineError> {
        let (field, tokens) = match self.kv_cache_tokens {
            Some(tokens) => ("kv_cache_tokens", tokens),
            None => {
                let wanted = self.max_sequences.saturating_mul(spec.context);
                let models = std::iter::once(spec).chain(draft);
                let block_bytes: usize = models
                    .map(|spec| KvCache::block_bytes(spec, self.kv_type))
                    .sum();
                let affordable = self.kv_cache_bytes / block_bytes.max(1);
                (
                    "kv_cache_bytes",
                    wanted.min(affordable.saturating_mul(BLOCK_TOKENS)),
                )
            }
        };
        if tokens < BLOCK_TOKENS {
            let problem = format!("leaves room for {tokens} tokens; a block has {BLOCK_TOKENS}");
            return Err(EngineError::Config { field, problem });
        }
        Ok((tokens / BLOCK_TOKENS).min(u32::MAX as usize))
    }

    /// Bytes of the cache for a model of this shape and of that of its draft model.
    ///
    /// # Errors
    /// When there is no room for one block.
    pub fn cache_bytes(
        &self,
        spec: &ModelSpec,
        draft: Option<&ModelSpec>,
    ) -> Result<u64, EngineError> {
        let blocks = self.cache_blocks(spec, draft)?;
        let models = std::iter::once(spec).chain(draft);
        let block_bytes: usize = models
            .map(|spec| KvCache::block_bytes(spec, self.kv_type))
            .sum();
        Ok(u64::try_from(blocks.saturating_mul(block_bytes)).unwrap_or(u64::MAX))
    }
}
