//! Batches that are queued, and tokens chosen from their logits where those lie: whole rows stay on the
//! device unless somebody asks for them. A batch can be queued while the last one's tokens are not
//! known to the host.

use std::collections::VecDeque;
use std::sync::Arc;

use mortise_cuda::choose::{CHOSEN_WORDS, Choice, Chosen, Requests, choose};
use mortise_cuda::{Buffer, Device, DeviceError, Pending};

use super::DeviceModel;
use super::token_source::{Taken, TokenSource};
use crate::error::InputError;
use crate::input::ModelInput;

/// Choices as the device sees them, and those on their way to the host.
#[derive(Debug)]
pub(super) struct Choosing {
    requests: Buffer<u32>,
    /// Of the choices made last.
    chosen: Buffer<u32>,
    choices: usize,
    /// Rows of logits of the batch that was queued last.
    rows: usize,
    /// The oldest first.
    pending: VecDeque<(Vec<Choice>, Pending<u32>)>,
}

impl Choosing {
    pub(super) fn new(device: &Arc<dyn Device>) -> Result<Self, DeviceError> {
        Ok(Self {
            requests: Buffer::zeros(device, 0)?,
            chosen: Buffer::zeros(device, 0)?,
            choices: 0,
            rows: 0,
            pending: VecDeque::new(),
        })
    }

    /// Rows of logits of the batch that was queued last.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }
}

/// Room for so many words, twice as many as are needed, so that growing is rare.
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
    /// Queue a batch: keys and values of its tokens go to the cache, and the logits that it asks for
    /// stay on the device until the next batch. Tokens named by `sources` are those that were chosen
    /// last.
    pub fn queue(&mut self, input: &ModelInput, sources: &[TokenSource]) -> Result<(), InputError> {
        input.check(&self.spec, self.blocks)?;
        let (rows, choices) = (input.rows(), self.choosing.choices);
        for TokenSource { row, choice } in sources {
            if *row >= rows || *choice >= choices {
                return Err(InputError::Source {
                    row: *row,
                    choice: *choice,
                });
            }
        }
        self.choosing.rows = 0;
        if input.is_empty() {
            return Ok(());
        }
        let taken = (!sources.is_empty()).then(|| Taken {
            chosen: self.choosing.chosen.all(),
            sources,
        });
        self.choosing.rows =
            self.step
                .queue(&self.device, &self.spec, &self.weights, input, taken)?;
        Ok(())
    }

    /// Wait until everything that was queued is done.
    pub fn wait(&self) -> Result<(), InputError> {
        Ok(self.device.synchronize()?)
    }

    /// Copy a row of logits of the batch that was queued last.
    pub fn logit_row(&self, row: usize) -> Result<Vec<f32>, InputError> {
        self.check_row(row)?;
        let vocabulary = self.spec.vocabulary;
        let mut logits = vec![0.0; vocabulary];
        let all = &self.step.room.logits;
        all.download(row * vocabulary, &mut logits)?;
        Ok(logits)
    }

    /// Queue choices from the batch that was queued last, at most one of a row. Which tokens those are
    /// is said by [`Self::chosen`].
    pub fn choose(&mut self, choices: Vec<Choice>) -> Result<(), InputError> {
        for choice in &choices {
            self.check_row(choice.row)?;
        }
        let Choosing {
            requests: copied,
            chosen,
            ..
        } = &mut self.choosing;
        let vocabulary = self.spec.vocabulary;
        let requests = Requests::new(&choices, vocabulary);
        let words = choices.len() * CHOSEN_WORDS;
        grow(copied, &self.device, requests.words().len())?;
        grow(chosen, &self.device, words)?;
        copied.upload(0, requests.words())?;
        let logits = self.step.room.logits.all();
        let (from, to) = (copied.all(), chosen.all());
        choose(&*self.device, logits, vocabulary, &requests, from, to)?;
        let pending = chosen.begin_download(0, words)?;
        self.choosing.choices = choices.len();
        self.choosing.pending.push_back((choices, pending));
        Ok(())
    }

    /// Wait for the oldest choices that nobody has waited for; what was queued after them is not waited
    /// for. None at all where there are no such.
    pub fn chosen(&mut self) -> Result<Vec<Chosen>, InputError> {
        let Some((choices, pending)) = self.choosing.pending.pop_front() else {
            return Ok(Vec::new());
        };
        let words = pending.wait()?;
        let (rows, _) = words.as_chunks();
        let read = rows.iter().zip(&choices);
        Ok(read
            .map(|(row, choice)| Chosen::read(row, choice))
            .collect())
    }

    fn check_row(&self, row: usize) -> Result<(), InputError> {
        let rows = self.choosing.rows;
        if row < rows {
            return Ok(());
        }
        Err(InputError::LogitRow { row, rows })
    }
}
