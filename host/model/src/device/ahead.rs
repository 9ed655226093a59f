//! Greedy decoding without the host in between: each step takes the tokens that the last one chose
//! on the device, while the host prepares the next.

use mortise_cuda::sample::{History, choose_best};
use mortise_cuda::{Buffer, DeviceError};

use super::DeviceModel;
use super::step::{Column, Counts, Shape, bucket};
use crate::error::InputError;
use crate::input::{ModelInput, SequenceView};
use crate::kv_cache::BLOCK_TOKENS;

impl DeviceModel {
    /// Continue each sequence of a batch by the `steps` likeliest tokens, which are returned. Parts of
    /// `input` are one token each, which the sequence ends with, and have blocks for as many more.
    pub fn decode_ahead(
        &mut self,
        input: &ModelInput,
        steps: usize,
    ) -> Result<Vec<Vec<u32>>, InputError> {
        input.check(&self.spec, self.blocks)?;
        let sequences: Vec<_> = input.sequences().collect();
        for sequence in &sequences {
            let (tokens, blocks) = (sequence.first_position + steps, sequence.block_table.len());
            if sequence.tokens.len() != 1 || tokens > blocks * BLOCK_TOKENS {
                return Err(InputError::BlockTable { tokens, blocks });
            }
            if tokens > self.spec.context {
                let context = self.spec.context;
                return Err(InputError::Context { tokens, context });
            }
        }
        if sequences.is_empty() || steps == 0 {
            return Ok(vec![Vec::new(); sequences.len()]);
        }
        let rows = bucket(sequences.len());
        let history = Buffer::zeros(&self.device, rows * steps)?;
        let queued = self.queue(input, &sequences, rows, (&history, steps));
        let chosen = queued.and_then(|()| history.to_vec());
        // These recordings hold the address of a history that ends here.
        self.step.forget_choosing();
        let chosen = chosen?;
        let rows = chosen.chunks_exact(steps).take(sequences.len());
        Ok(rows
            .map(|row| row.iter().map(|token| (*token).max(0) as u32).collect())
            .collect())
    }

    /// Queue all steps.
    fn queue(
        &mut self,
        input: &ModelInput,
        sequences: &[SequenceView<'_>],
        rows: usize,
        (history, steps): (&Buffer<i32>, usize),
    ) -> Result<(), DeviceError> {
        // The first step brings tokens and tables to the device.
        let tables = sequences
            .iter()
            .map(|sequence| sequence.block_table.len())
            .sum();
        self.step.make_room(
            &self.device,
            &self.spec,
            &self.weights,
            [rows, rows, tables],
        )?;
        self.step.room.write_decode(input, rows)?;
        let (device, spec, weights) = (&self.device, &self.spec, &self.weights);
        for step in 0..steps {
            let positions = |sequence: &SequenceView<'_>| sequence.first_position + step;
            let longest = sequences.iter().map(positions).max().unwrap_or(0) + 1;
            let room = &self.step.room;
            let places = [Column::Positions, Column::SinglePositions, Column::Slots];
            for column in places {
                let numbers = sequences.iter().map(|sequence| {
                    let position = positions(sequence);
                    let block = sequence.block_table[position / BLOCK_TOKENS] as usize;
                    match column {
                        Column::Slots => block * BLOCK_TOKENS + position % BLOCK_TOKENS,
                        _ => position,
                    }
                });
                let numbers: Vec<i32> = numbers.map(|number| number as i32).collect();
                room.places.upload(room.begin(column), &numbers)?;
            }
            room.places
                .upload(room.begin(Column::StepNumber), &[step as i32])?;
            let shape = Shape {
                rows,
                splits: room.splits.needed(longest),
                chooses: true,
            };
            let counts = Counts {
                rows,
                single_rows: rows,
                splits: shape.splits,
                tiles: 0,
                logit_rows: rows,
            };
            self.step.repeat(device, shape, |room| {
                room.compute(&**device, spec, weights, counts)?;
                let kept = History {
                    tokens: history.all(),
                    step: room.column(Column::StepNumber),
                    stride: steps,
                };
                let (logits, tokens) = (room.logits.all(), room.column(Column::Tokens));
                let sizes = [rows, spec.vocabulary];
                choose_best(&**device, logits, sizes, None, tokens, Some(kept))
            })?;
        }
        Ok(())
    }
}
