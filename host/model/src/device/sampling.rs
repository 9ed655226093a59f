//! Sampling on the device: logits stay in its memory, and only sampled tokens and logprobs are copied to
//! the host. A batch can be queued before the host knows the tokens of the one before.

use std::collections::VecDeque;
use std::sync::Arc;

use mortise_cuda::sample::{SAMPLED_WORDS, SampleBatch, SampleParams, SampledToken, sample};
use mortise_cuda::{Buffer, Device, DeviceError, Pending};

use super::DeviceModel;
use super::token_source::{Taken, TokenSource};
use crate::error::InputError;
use crate::input::ModelInput;

/// Buffers of the sampler on the device, and results in flight.
#[derive(Debug)]
pub(super) struct DeviceSampler {
    params: Buffer<u32>,
    /// Results of the samples made last.
    sampled: Buffer<u32>,
    samples: usize,
    /// Rows of logits of the batch that was queued last.
    rows: usize,
    /// Results on their way to the host, oldest first.
    pending: VecDeque<(Vec<SampleParams>, Pending<u32>)>,
}

impl DeviceSampler {
    pub(super) fn new(device: &Arc<dyn Device>) -> Result<Self, DeviceError> {
        Ok(Self {
            params: Buffer::zeros(device, 0)?,
            sampled: Buffer::zeros(device, 0)?,
            samples: 0,
            rows: 0,
            pending: VecDeque::new(),
        })
    }

    /// Rows of logits of the batch that was queued last.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }
}

/// Make a buffer hold at least `words` words. It grows to twice that size, so that growth is rare.
fn grow(
    buffer: &mut Buffer<u32>,
    device: &Arc<dyn Device>,
    words: usize,
) -> Result<(), DeviceError> {
    if buffer.len() < words {
        *buffer = Buffer::zeros(device, 2 * words)?;
    }
    Ok(())
}

impl DeviceModel {
    /// Queue a batch: keys and values of its tokens are written to the cache, and its logits stay on the
    /// device until the next batch. Rows named by `sources` take their token from the samples made last.
    pub fn queue(&mut self, input: &ModelInput, sources: &[TokenSource]) -> Result<(), InputError> {
        input.check(&self.spec, self.blocks)?;
        if !input.adapted().is_empty() {
            return Err(InputError::Adapter);
        }
        let (rows, samples) = (input.rows(), self.sampling.samples);
        for TokenSource { row, sample } in sources {
            if *row >= rows || *sample >= samples {
                return Err(InputError::Source {
                    row: *row,
                    sample: *sample,
                });
            }
        }
        self.sampling.rows = 0;
        if input.is_empty() {
            return Ok(());
        }
        let taken = (!sources.is_empty()).then(|| Taken {
            sampled: self.sampling.sampled.all(),
            sources,
        });
        self.sampling.rows =
            self.step
                .queue(&self.device, &self.spec, &self.weights, input, taken)?;
        Ok(())
    }

    /// Wait until all queued work is done.
    pub fn wait(&self) -> Result<(), InputError> {
        Ok(self.device.synchronize()?)
    }

    /// Copy a row of logits of the batch that was queued last.
    pub fn logit_row(&self, row: usize) -> Result<Vec<f32>, InputError> {
        self.check_row(row)?;
        let vocabulary = self.spec.vocabulary;
        let mut logits = vec![0.0; vocabulary];
        let all = &self.step.scratch.logits;
        all.download(row * vocabulary, &mut logits)?;
        Ok(logits)
    }

    /// Queue sampling of rows of the batch that was queued last, at most once a row. [`Self::sampled`]
    /// gives the results.
    pub fn sample(&mut self, params: Vec<SampleParams>) -> Result<(), InputError> {
        for one in &params {
            self.check_row(one.row)?;
        }
        let DeviceSampler {
            params: copied,
            sampled,
            ..
        } = &mut self.sampling;
        let vocabulary = self.spec.vocabulary;
        let batch = SampleBatch::new(&params, vocabulary);
        let words = params.len() * SAMPLED_WORDS;
        grow(copied, &self.device, batch.words().len())?;
        grow(sampled, &self.device, words)?;
        copied.upload(0, batch.words())?;
        let logits = self.step.scratch.logits.all();
        let (from, to) = (copied.all(), sampled.all());
        sample(&*self.device, logits, vocabulary, &batch, from, to)?;
        let pending = sampled.begin_download(0, words)?;
        self.sampling.samples = params.len();
        self.sampling.pending.push_back((params, pending));
        Ok(())
    }

    /// Wait for the oldest samples in flight, and for nothing that was queued after them. Empty if none
    /// are in flight.
    pub fn sampled(&mut self) -> Result<Vec<SampledToken>, InputError> {
        let Some((params, pending)) = self.sampling.pending.pop_front() else {
            return Ok(Vec::new());
        };
        let words = pending.wait()?;
        let (rows, _) = words.as_chunks();
        let read = rows.iter().zip(&params);
        Ok(read
            .map(|(row, params)| SampledToken::read(row, params))
            .collect())
    }

    fn check_row(&self, row: usize) -> Result<(), InputError> {
        let rows = self.sampling.rows;
        if row < rows {
            return Ok(());
        }
        Err(InputError::LogitRow { row, rows })
    }
}
