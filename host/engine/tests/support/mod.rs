//! A fake model whose next token depends on every token that its cache holds for the sequence, so that a
//! block overwritten by another sequence shows in the output; and readers with a timeout.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test program uses a part of this"
)]

use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use mortise_engine::{
    Engine, EngineConfig, EngineHandle, ForwardPass, SamplingParams, SequenceEnd, SequenceError,
    SequenceRequest, SequenceUsage, Share, TokenEvent, TokenStream,
};
use mortise_kernels::linear::{Highest, RowLogits, Scores, WantedLogits};
use mortise_kernels::mask::apply_mask;
use mortise_kernels::select::top;
use mortise_model::{BLOCK_TOKENS, InputError, LogitRows, Logits, ModelInput};

pub const VOCABULARY: usize = 50;
/// Token for which the forward pass of its batch panics.
pub const PANIC: u32 = 47;
/// Token for which the forward pass of its batch is an error.
pub const ERROR: u32 = 48;
/// Token after which the logits are no numbers.
pub const NAN: u32 = 49;
/// Tokens from here on are never likely.
const ORDINARY: usize = 40;

pub struct FakeModel {
    cells: Vec<u32>,
    context: usize,
    delay: Duration,
    permits: Option<Receiver<()>>,
}

impl FakeModel {
    pub fn new(blocks: usize, context: usize) -> Self {
        Self {
            cells: vec![u32::MAX; blocks * BLOCK_TOKENS],
            context,
            delay: Duration::ZERO,
            permits: None,
        }
    }

    pub fn with_delay(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    /// Make each step wait for a message, until the sender is gone.
    pub fn with_permits(self, permits: Receiver<()>) -> Self {
        Self {
            permits: Some(permits),
            ..self
        }
    }
}

impl ForwardPass for FakeModel {
    fn vocabulary(&self) -> usize {
        VOCABULARY
    }

    fn context_length(&self) -> usize {
        self.context
    }

    fn cache_blocks(&self) -> usize {
        self.cells.len() / BLOCK_TOKENS
    }

    fn forward(&mut self, input: &ModelInput) -> Result<Logits, InputError> {
        std::thread::sleep(self.delay);
        if let Some(permits) = &self.permits {
            let _ = permits.recv();
        }
        let mut rows = Vec::new();
        for sequence in input.sequences() {
            assert!(!sequence.tokens.contains(&PANIC), "told to panic");
            if sequence.tokens.contains(&ERROR) {
                return Err(InputError::Cache);
            }
            let cell = |position: usize| {
                let block = sequence.block_table[position / BLOCK_TOKENS] as usize;
                block * BLOCK_TOKENS + position % BLOCK_TOKENS
            };
            let end = sequence.first_position + sequence.tokens.len();
            for (position, token) in (sequence.first_position..).zip(sequence.tokens) {
                self.cells[cell(position)] = *token;
            }
            let history: Vec<u32> = (0..end).map(|at| self.cells[cell(at)]).collect();
            let first = match sequence.logits {
                LogitRows::None => end,
                LogitRows::Last => end - 1,
                LogitRows::All => sequence.first_position,
            };
            for position in first..end {
                rows.extend(logits(&history[..=position]));
            }
        }
        Ok(Logits::new(rows, VOCABULARY))
    }

    fn score(
        &mut self,
        input: &ModelInput,
        wanted: &mut dyn FnMut() -> Vec<WantedLogits>,
    ) -> Result<Scores, InputError> {
        let logits = self.forward(input)?;
        let wanted = wanted();
        assert_eq!(logits.rows().len(), wanted.len());
        let mut scores = Scores::whole(Vec::new(), VOCABULARY);
        for (logits, wanted) in logits.rows().zip(&wanted) {
            let mut logits = logits.to_vec();
            scores.push(match wanted {
                WantedLogits::All => RowLogits::All(&mut logits),
                WantedLogits::Highest(mask) => {
                    RowLogits::Highest(highest(&mut logits, mask.as_ref().map(|mask| &mask[..])))
                }
            });
        }
        Ok(scores)
    }
}

/// Highest logit of a row, within a mask if there is one.
fn highest(logits: &mut [f32], mask: Option<&[u32]>) -> Highest {
    let all_numbers = logits.iter().all(|logit| *logit < f32::INFINITY);
    if let Some(mask) = mask {
        apply_mask(logits, mask);
    }
    let highest = top(logits, 1).into_iter();
    Highest {
        candidate: highest
            .into_iter()
            .find(|one| one.value > f32::NEG_INFINITY),
        all_numbers,
    }
}

/// Logits of the fake model after the tokens of `history`.
pub fn logits(history: &[u32]) -> Vec<f32> {
    if history.last() == Some(&NAN) {
        return vec![f32::NAN; VOCABULARY];
    }
    let mut state = history.iter().fold(17u64, |hash, token| {
        (hash ^ u64::from(*token))
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .rotate_left(29)
    });
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 24) as f32 * 6.0 - 3.0
    };
    (0..VOCABULARY)
        .map(|token| if token < ORDINARY { next() } else { -20.0 })
        .collect()
}

/// The greedy continuation.
pub fn expected(prompt: &[u32], count: usize) -> Vec<u32> {
    let mut tokens = prompt.to_vec();
    for _ in 0..count {
        let logits = logits(&tokens);
        let best = (0..VOCABULARY)
            .max_by(|a, b| logits[*a].total_cmp(&logits[*b]))
            .unwrap();
        tokens.push(best as u32);
    }
    tokens.split_off(prompt.len())
}

pub fn engine(blocks: usize, context: usize, config: EngineConfig) -> EngineHandle {
    Engine::start_with(Box::new(FakeModel::new(blocks, context)), config).unwrap()
}

pub fn config() -> EngineConfig {
    EngineConfig {
        max_sequences: 8,
        max_queue: 64,
        step_token_budget: 20,
        // Steps are counted, and must not depend on how busy the machine is.
        prefill_chunk: None,
        threads: 1,
        ..EngineConfig::default()
    }
}

/// A greedy request.
pub fn greedy(prompt: &[u32], max_tokens: u32) -> SequenceRequest {
    SequenceRequest {
        prompt: prompt.to_vec(),
        max_tokens,
        stop_tokens: Vec::new(),
        sampling: SamplingParams {
            temperature: 0.0,
            ..SamplingParams::default()
        },
        logprobs: None,
        prompt_logprobs: None,
        priority: 0,
        share: Share::default(),
        salt: None,
        adapter: None,
        constraint: None,
    }
}

/// End of a stream: finish reason and usage, or the error.
pub type End = Result<(SequenceEnd, SequenceUsage), SequenceError>;

const PATIENCE: Duration = Duration::from_secs(60);

/// The next event, within reason.
pub fn next(stream: &mut TokenStream) -> TokenEvent {
    let begun = Instant::now();
    loop {
        if let Some(event) = stream.try_next() {
            return event;
        }
        assert!(begun.elapsed() < PATIENCE, "no event comes");
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// All tokens of a stream and its end.
pub fn collect(stream: &mut TokenStream) -> (Vec<u32>, End) {
    let mut tokens = Vec::new();
    loop {
        match next(stream) {
            TokenEvent::Prompt(told) => panic!("nobody asked for {told:?}"),
            TokenEvent::Token(token) => tokens.push(token.id),
            TokenEvent::Finished { reason, usage } => return (tokens, Ok((reason, usage))),
            TokenEvent::Failed(error) => return (tokens, Err(error)),
        }
    }
}

/// Wait until the engine holds nothing.
pub fn until_empty(engine: &EngineHandle) {
    until("the engine is empty", || {
        let load = engine.load();
        load.running == 0 && load.waiting == 0 && load.kv_blocks_used == 0
    });
}

pub fn until(what: &str, mut happens: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !happens() {
        assert!(begun.elapsed() < PATIENCE, "it does not happen that {what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}
