//! The fake model with logits that stay on a device: the emulator samples from them with the GPU's kernels.

#![allow(unreachable_pub, reason = "as in the file beside it")]

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mortise_cuda::sample::{SAMPLED_WORDS, SampleBatch, sample};
use mortise_cuda::{Buffer, Device};
use mortise_cuda_emulator::Emulator;
use mortise_engine::{DeviceLogits, ForwardPass};
use mortise_model::{
    InputError, LogitRows, Logits, ModelInput, SampleParams, SampledToken, SequenceInput,
    TokenSource,
};

use crate::support::{FakeModel, VOCABULARY};

/// Calls of a device model.
#[derive(Debug, Default)]
pub struct DeviceCalls {
    /// Batches that were enqueued before the tokens of the previous one were read.
    pub ahead: AtomicUsize,
    /// Batches in all.
    pub batches: AtomicUsize,
    /// Rows of logits that were copied.
    pub rows: AtomicUsize,
    /// Outcomes that were waited for.
    pub outcomes: AtomicUsize,
}

impl DeviceCalls {
    pub fn get(counter: &AtomicUsize) -> usize {
        counter.load(Ordering::Relaxed)
    }
}

pub struct FakeDeviceModel {
    model: FakeModel,
    device: Arc<dyn Device>,
    logits: Logits,
    /// By the choices made last.
    last: Vec<u32>,
    pending: VecDeque<Vec<SampledToken>>,
    asked: Arc<DeviceCalls>,
    /// Of the outcomes, the one that is lost.
    lost: usize,
}

impl FakeDeviceModel {
    pub fn new(model: FakeModel) -> Self {
        Self {
            model,
            device: Arc::new(Emulator::new()),
            logits: Logits::new(Vec::new(), VOCABULARY),
            last: Vec::new(),
            pending: VecDeque::new(),
            asked: Arc::default(),
            lost: usize::MAX,
        }
    }

    /// The `number`th outcome, counted from 0, cannot be read.
    pub fn that_loses(self, number: usize) -> Self {
        Self {
            lost: number,
            ..self
        }
    }

    pub fn asked(&self) -> Arc<DeviceCalls> {
        Arc::clone(&self.asked)
    }
}

impl ForwardPass for FakeDeviceModel {
    fn vocabulary(&self) -> usize {
        self.model.vocabulary()
    }

    fn context_length(&self) -> usize {
        self.model.context_length()
    }

    fn cache_blocks(&self) -> usize {
        self.model.cache_blocks()
    }

    fn forward(&mut self, _: &ModelInput) -> Result<Logits, InputError> {
        panic!("whole rows of logits for everything");
    }

    fn device(&mut self) -> Option<&mut dyn DeviceLogits> {
        Some(self)
    }
}

impl DeviceLogits for FakeDeviceModel {
    fn queue(&mut self, input: &ModelInput, sources: &[TokenSource]) -> Result<(), InputError> {
        self.asked.batches.fetch_add(1, Ordering::Relaxed);
        if !self.pending.is_empty() {
            self.asked.ahead.fetch_add(1, Ordering::Relaxed);
        }
        let mut taken = ModelInput::new();
        let mut row = 0;
        for sequence in input.sequences() {
            let mut tokens = sequence.tokens.to_vec();
            for token in &mut tokens {
                if let Some(source) = sources.iter().find(|source| source.row == row) {
                    *token = self.last[source.sample];
                }
                row += 1;
            }
            taken.push(SequenceInput {
                tokens: &tokens,
                ..sequence
            });
        }
        let wanted = |part: SequenceInput<'_>| part.logits != LogitRows::None;
        self.logits = self.model.forward(&taken)?;
        assert_eq!(self.logits.rows().len() > 0, taken.sequences().any(wanted));
        Ok(())
    }

    fn wait(&mut self) -> Result<(), InputError> {
        Ok(())
    }

    fn logit_row(&mut self, row: usize) -> Result<Vec<f32>, InputError> {
        self.asked.rows.fetch_add(1, Ordering::Relaxed);
        Ok(self.logits.rows().nth(row).unwrap().to_vec())
    }

    fn sample(&mut self, choices: Vec<SampleParams>) -> Result<(), InputError> {
        let rows: Vec<f32> = self.logits.rows().flatten().copied().collect();
        let logits = Buffer::of(&self.device, &rows)?;
        let requests = SampleBatch::new(&choices, VOCABULARY);
        let copied = Buffer::of(&self.device, requests.words())?;
        let words = Buffer::zeros(&self.device, choices.len() * SAMPLED_WORDS)?;
        let (from, to) = (copied.all(), words.all());
        sample(&*self.device, logits.all(), VOCABULARY, &requests, from, to)?;
        let words = words.to_vec()?;
        let (words, _) = words.as_chunks();
        let read = words.iter().zip(&choices);
        let chosen: Vec<SampledToken> = read
            .map(|(words, one)| SampledToken::read(words, one))
            .collect();
        let token = |one: &SampledToken| one.token.map_or(0, |(token, _)| token);
        self.last = chosen.iter().map(token).collect();
        self.pending.push_back(chosen);
        Ok(())
    }

    fn sampled(&mut self) -> Result<Vec<SampledToken>, InputError> {
        assert!(self.pending.len() <= 2, "more than one step ahead");
        let chosen = self.pending.pop_front().unwrap();
        if self.asked.outcomes.fetch_add(1, Ordering::Relaxed) == self.lost {
            return Err(InputError::Cache);
        }
        Ok(chosen)
    }
}
