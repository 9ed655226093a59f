//! Scripts: text that takes the place of a model's, for tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use mortise_engine::{EngineLoad, SubmitError};

/// Text that a scripted runtime generates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// Kind of runtime.
    pub kind: ScriptKind,
    /// Lines; the first whose `when` occurs in the prompt is generated.
    pub lines: Vec<ScriptLine>,
    /// Text when no line matches.
    pub default: String,
    /// Pause before each token.
    pub token_delay: Duration,
    /// Times that the text is repeated; at least once.
    pub repeat: u32,
    /// Tokens that prompt and output may have together.
    pub context_length: usize,
    /// Sequences that may run concurrently; further ones are refused.
    pub max_sequences: usize,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            kind: ScriptKind::default(),
            lines: Vec::new(),
            default: "This answer was scripted.".to_owned(),
            token_delay: Duration::ZERO,
            repeat: 1,
            context_length: 32_768,
            max_sequences: 256,
        }
    }
}

/// Kind of runtime that generates a script.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ScriptKind {
    /// Tokens in, tokens out.
    #[default]
    Tokens,
    /// Conversation in, events out.
    Conversation,
}

/// One line of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptLine {
    /// Part of the prompt.
    pub when: String,
    /// Text to generate.
    pub say: String,
}

impl Script {
    /// Text for a prompt.
    pub(crate) fn text_for(&self, prompt: &str) -> String {
        let mut lines = self.lines.iter();
        let line = lines.find(|line| prompt.contains(&line.when));
        let text = line.map_or(self.default.as_str(), |line| line.say.as_str());
        text.repeat(self.repeat.max(1) as usize)
    }
}

/// Counters of a scripted runtime. They are independent of one another: no order is needed.
#[derive(Debug, Default)]
pub(crate) struct ScriptCounters {
    running: AtomicUsize,
    steps: AtomicU64,
    prefill_tokens: AtomicU64,
}

impl ScriptCounters {
    /// Count the tokens of a prompt.
    pub(crate) fn add_prompt(&self, tokens: usize) {
        self.prefill_tokens.fetch_add(tokens as u64, Relaxed);
    }

    /// The counters as those of an engine.
    pub(crate) fn load(&self) -> EngineLoad {
        let steps = self.steps.load(Relaxed);
        EngineLoad {
            running: self.running.load(Relaxed),
            steps,
            prefill_tokens: self.prefill_tokens.load(Relaxed),
            decode_tokens: steps,
            ..EngineLoad::default()
        }
    }
}

/// One of the sequences that may run concurrently; freed when dropped.
pub(crate) struct ScriptSlot {
    counters: Arc<ScriptCounters>,
}

impl ScriptSlot {
    /// Take a slot, if one of `limit` is free.
    pub(crate) fn take(counters: &Arc<ScriptCounters>, limit: usize) -> Result<Self, SubmitError> {
        let slot = Self {
            counters: Arc::clone(counters),
        };
        // Dropping the slot undoes this if there was none.
        if slot.counters.running.fetch_add(1, Relaxed) >= limit {
            return Err(SubmitError::QueueFull { limit });
        }
        Ok(slot)
    }

    /// Count one generated token.
    pub(crate) fn step(&self) {
        self.counters.steps.fetch_add(1, Relaxed);
    }
}

impl Drop for ScriptSlot {
    fn drop(&mut self) {
        self.counters.running.fetch_sub(1, Relaxed);
    }
}
