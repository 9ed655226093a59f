//! How an engine is set up, and what can be wrong with that.

use std::time::Duration;

use mortise_model::{BLOCK_TOKENS, KvCache, KvType, ModelError, ModelSpec};

/// Limits of an engine. [`EngineConfig::default`] suits small models.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineConfig {
    /// Sequences that share a step.
    pub max_sequences: usize,
    /// Sequences that may wait for their turn; more are refused.
    pub max_queue: usize,
    /// Tokens that the prompts of waiting sequences may have together; more are refused. A prompt
    /// that is longer than this may wait alone.
    pub max_queued_tokens: usize,
    /// Keep room in the queue: a tenant may wait with fewer sequences than there are places free, so
    /// that one who floods the queue leaves half of it to the others.
    pub reserve_queue: bool,
    /// Tokens computed in one step, decoding and prompts together. At least `max_sequences`. A
    /// smaller budget keeps streams smooth while long prompts come in, a larger one computes
    /// prompts sooner.
    pub step_token_budget: usize,
    /// About how long the prompts of a step may take while somebody decodes and waits for it; 32
    /// tokens are computed however long they take, and more than 256 only in the time of eight steps
    /// without prompts. `None`: as many as the budget leaves.
    pub prefill_chunk: Option<Duration>,
    /// Tokens that the KV cache holds, of all sequences together. `None`: as many as
    /// `max_sequences` full contexts need, within `kv_cache_bytes`.
    pub kv_cache_tokens: Option<usize>,
    /// Bound of the KV cache where `kv_cache_tokens` is not given. Memory is used as it fills.
    pub kv_cache_bytes: usize,
    /// As what the KV cache keeps its numbers.
    pub kv_type: KvType,
    /// Keep the blocks of sequences that have ended, for others that begin with the same tokens.
    pub prefix_cache: bool,
    /// Whether to compute tokens on the chance that they follow.
    pub speculation: Speculation,
    /// Threads that compute, the engine's own included; 0 takes one for each processor.
    pub threads: usize,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            max_sequences: 64,
            max_queue: 256,
            max_queued_tokens: 1 << 18,
            reserve_queue: false,
            step_token_budget: 512,
            prefill_chunk: Some(Duration::from_millis(150)),
            kv_cache_tokens: None,
            kv_cache_bytes: 1 << 30,
            kv_type: KvType::F32,
            prefix_cache: true,
            speculation: Speculation::Off,
            threads: 0,
        }
    }
}

/// Tokens computed on the chance that they follow. Whether they do is decided as without, so that
/// speculation changes how fast tokens come and never which.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Speculation {
    /// None.
    #[default]
    Off,
    /// What followed the last time that the same tokens stood at the end. Pays where answers quote
    /// their prompts; costs computation where they do not.
    PromptLookup {
        /// Most tokens to guess in a step, 1 to 32.
        draft_tokens: usize,
    },
    /// What a smaller model says ([`Engine::start_drafted`](crate::Engine::start_drafted)). Pays
    /// where that model is several times as fast and often agrees.
    DraftModel {
        /// Most tokens to guess in a step, 1 to 32.
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

    /// Most tokens to guess in a step.
    pub(crate) fn draft_max(self) -> usize {
        match self {
            Self::Off => 0,
            Self::PromptLookup { draft_tokens } | Self::DraftModel { draft_tokens } => draft_tokens,
        }
    }
}

/// Why an engine did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// A limit makes no sense.
    #[error("engine setting `{field}` {problem}")]
    Config {
        /// The setting.
        field: &'static str,
        /// What is wrong, as the rest of a sentence.
        problem: String,
    },
    /// The KV cache cannot be had.
    #[error("cannot allocate the KV cache")]
    Cache(#[source] ModelError),
    /// The system gave no threads.
    #[error("cannot start the engine's threads: {0}")]
    Threads(String),
}

impl EngineConfig {
    /// The same for a model that has no draft model.
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
}
