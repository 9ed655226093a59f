//! One forward pass on a device: places of the rows, scratch memory, recorded decode steps.

use std::collections::BTreeMap;
use std::sync::Arc;

use mortise_cuda::attention::{BatchPlaces, Splits, TILE_ROWS};
use mortise_cuda::linear::{FEW_ROWS, Rows, Workspace};
use mortise_cuda::rows::{RmsNorm, embed, rms_norm, soft_cap};
use mortise_cuda::sample::take_tokens;
use mortise_cuda::{Buffer, Device, DeviceError, Recording, Scalars, Slice};

use super::batch::{Activations, DeviceBatch, gate_width};
use super::layer::DeviceLayer;
use super::token_source::Taken;
use super::{Weights, heads};
use crate::input::{LogitRows, ModelInput};
use crate::kv_cache::BLOCK_TOKENS;
use crate::spec::ModelSpec;

/// Rows of the first scratch memory; it grows when a batch has more.
const ROWS: usize = 64;
/// Recorded batches have 1, 2, 4 rows or a multiple of this.
const BUCKET: usize = 8;
/// Recorded batches have no more rows than this: larger ones take longer than their launches.
const RECORDED_ROWS_MAX: usize = 256;
/// Most weights of a quantised matrix that is widened to bf16 for many rows: 256 MiB of scratch memory.
const WIDENED_MAX: usize = 128 << 20;

/// Forward pass: scratch memory and recorded steps.
#[derive(Debug)]
pub(super) struct ForwardStep {
    pub(super) scratch: StepScratch,
    /// Decode steps by what they were recorded for.
    recordings: BTreeMap<Shape, Seen>,
}

/// Shape of a decode step: it determines the launches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Shape {
    rows: usize,
    splits: usize,
}

/// A shape that was computed before.
#[derive(Debug)]
enum Seen {
    /// Once: all kernels are loaded.
    Once,
    Recorded(Box<dyn Recording>),
    /// The device does not record.
    Never,
}

/// Buffers of a forward pass. Recordings hold their addresses and are dropped when they are replaced.
#[derive(Debug)]
pub(super) struct StepScratch {
    rows: usize,
    logit_rows: usize,
    blocks: usize,
    places: Buffer<i32>,
    activations: Activations,
    pub(super) logits: Buffer<f32>,
    splits: Splits,
    workspace: Workspace,
}

/// The parts of [`StepScratch::places`] that have a number for each row, and where the others begin.
#[derive(Debug, Clone, Copy)]
enum Column {
    Tokens,
    Positions,
    SinglePositions,
    Slots,
    Tables,
    LogitRows,
    Tiles,
    /// Number of the sample that gives a row's token.
    Sources,
    Blocks,
}

/// Sizes of a forward pass.
#[derive(Debug, Clone, Copy)]
struct Counts {
    rows: usize,
    /// Rows up to the last that attends by itself.
    single_rows: usize,
    /// Splits that the longest sequence of such rows needs.
    splits: usize,
    tiles: usize,
    logit_rows: usize,
}

/// Places of the rows of a batch, on the host.
#[derive(Debug, Default)]
struct Places {
    tokens: Vec<i32>,
    positions: Vec<i32>,
    single_positions: Vec<i32>,
    slots: Vec<i32>,
    tables: Vec<i32>,
    logit_rows: Vec<i32>,
    tiles: Vec<i32>,
    blocks: Vec<i32>,
    /// Rows up to the last that attends by itself, and tokens of the longest sequence of such rows.
    single_rows: usize,
    single_tokens: usize,
}

impl Places {
    fn of(input: &ModelInput) -> Self {
        let mut places = Self::default();
        for sequence in input.sequences() {
            let first_row = places.tokens.len();
            // Partial results of attention have memory for these rows only.
            let single = sequence.tokens.len() == 1 && first_row < RECORDED_ROWS_MAX;
            for (index, token) in sequence.tokens.iter().enumerate() {
                let position = sequence.first_position + index;
                let block = sequence.block_table[position / BLOCK_TOKENS] as usize;
                let slot = block * BLOCK_TOKENS + position % BLOCK_TOKENS;
                places.tokens.push(*token as i32);
                places.positions.push(position as i32);
                places
                    .single_positions
                    .push(if single { position as i32 } else { -1 });
                places.slots.push(slot as i32);
                places.tables.push(places.blocks.len() as i32);
            }
            if single {
                places.single_rows = first_row + 1;
                places.single_tokens = places.single_tokens.max(sequence.first_position + 1);
            } else {
                for row in (0..sequence.tokens.len()).step_by(TILE_ROWS) {
                    let rows = TILE_ROWS.min(sequence.tokens.len() - row);
                    places.tiles.extend([(first_row + row) as i32, rows as i32]);
                }
            }
            places
                .blocks
                .extend(sequence.block_table.iter().map(|block| *block as i32));
        }
        places.logit_rows = input.logit_rows().iter().map(|row| *row as i32).collect();
        places
    }

    /// Add padding rows.
    fn pad(&mut self, rows: usize) {
        self.tokens.resize(rows, 0);
        self.positions.resize(rows, -1);
        self.single_positions.resize(rows, -1);
        self.slots.resize(rows, -1);
        self.tables.resize(rows, 0);
        self.logit_rows.resize(rows, 0);
    }
}

/// Rows to which a batch of decoding rows is padded.
fn bucket(rows: usize) -> usize {
    match rows {
        0..=4 => rows.next_power_of_two(),
        _ => rows.next_multiple_of(BUCKET),
    }
}

impl ForwardStep {
    pub(super) fn new(device: &Arc<dyn Device>, spec: &ModelSpec) -> Result<Self, DeviceError> {
        Ok(Self {
            scratch: StepScratch::new(device, spec, [ROWS, FEW_ROWS, ROWS], 0)?,
            recordings: BTreeMap::new(),
        })
    }

    /// Queue a batch that was checked; how many rows of logits it asks for. Tokens of `taken` are those
    /// that were sampled last.
    pub(super) fn queue(
        &mut self,
        device: &Arc<dyn Device>,
        spec: &ModelSpec,
        weights: &Weights,
        input: &ModelInput,
        taken: Option<Taken<'_>>,
    ) -> Result<usize, DeviceError> {
        let mut places = Places::of(input);
        let wanted = places.logit_rows.len();
        let decodes = input
            .sequences()
            .all(|part| part.tokens.len() == 1 && part.logits == LogitRows::Last);
        let rows = places.tokens.len();
        let recorded = decodes && rows <= RECORDED_ROWS_MAX;
        if recorded {
            places.pad(bucket(rows));
        }
        let rows = places.tokens.len();
        let logit_rows = places.logit_rows.len();
        self.make_room(
            device,
            spec,
            weights,
            [rows, logit_rows, places.blocks.len()],
        )?;
        self.scratch.write(&places)?;
        if let Some(taken) = taken {
            self.scratch.take(&**device, &taken, rows)?;
        }
        let mut counts = Counts {
            rows,
            single_rows: places.single_rows,
            splits: self.scratch.splits.needed(places.single_tokens),
            tiles: places.tiles.len() / 2,
            logit_rows,
        };
        if recorded {
            // Padding rows write nothing.
            counts.single_rows = rows;
            let shape = Shape {
                rows,
                splits: counts.splits,
            };
            self.repeat(device, shape, |scratch| {
                scratch.compute(&**device, spec, weights, counts)
            })?;
        } else {
            self.scratch.compute(&**device, spec, weights, counts)?;
        }
        Ok(wanted)
    }

    /// Do work that is the same whenever the shape is: the first time as it is, then recorded.
    fn repeat(
        &mut self,
        device: &Arc<dyn Device>,
        shape: Shape,
        work: impl Fn(&StepScratch) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let scratch = &self.scratch;
        match self.recordings.get(&shape) {
            Some(Seen::Recorded(recording)) => return recording.replay(),
            Some(Seen::Never) => return work(scratch),
            None => {
                work(scratch)?;
                self.recordings.insert(shape, Seen::Once);
                return Ok(());
            }
            Some(Seen::Once) => {}
        }
        match device.record(&mut || work(scratch))? {
            Some(recording) => {
                recording.replay()?;
                self.recordings.insert(shape, Seen::Recorded(recording));
                Ok(())
            }
            None => {
                self.recordings.insert(shape, Seen::Never);
                work(scratch)
            }
        }
    }

    /// Grow the scratch memory to so many rows, rows of logits and blocks of tables.
    fn make_room(
        &mut self,
        device: &Arc<dyn Device>,
        spec: &ModelSpec,
        weights: &Weights,
        needed: [usize; 3],
    ) -> Result<(), DeviceError> {
        let held = [
            self.scratch.rows,
            self.scratch.logit_rows,
            self.scratch.blocks,
        ];
        if needed
            .iter()
            .zip(held)
            .all(|(needed, held)| *needed <= held)
        {
            return Ok(());
        }
        // Twice what is needed, so that growing is rare; rows of logits are large, and come in few
        // numbers.
        let grown = |needed: usize, held: usize| if needed <= held { held } else { 2 * needed };
        let logit_rows = needed[1].max(held[1]).next_multiple_of(FEW_ROWS);
        let sizes = [
            grown(needed[0], held[0]),
            logit_rows,
            grown(needed[2], held[2]),
        ];
        let stacks = weights.layers.iter().flat_map(DeviceLayer::stacks);
        let widened = match sizes[0] > ROWS {
            true => stacks
                .map(super::weights::Stack::largest_quantised)
                .max()
                .unwrap_or(0),
            false => 0,
        };
        // Recordings that run must not go before they are done.
        device.synchronize()?;
        self.recordings.clear();
        self.scratch = StepScratch::new(device, spec, sizes, widened.min(WIDENED_MAX))?;
        Ok(())
    }
}

impl StepScratch {
    fn new(
        device: &Arc<dyn Device>,
        spec: &ModelSpec,
        [rows, logit_rows, blocks]: [usize; 3],
        widened: usize,
    ) -> Result<Self, DeviceError> {
        let widest = spec.hidden.max(spec.heads * spec.head_dim);
        let widest = widest.max(gate_width(spec) / 2);
        // Longer slices attend in tiles, which need no partial results.
        let singles = rows.min(RECORDED_ROWS_MAX);
        Ok(Self {
            rows,
            logit_rows,
            blocks,
            places: Buffer::zeros(device, Column::Blocks.begin(rows) + blocks)?,
            activations: Activations::new(device, spec, rows)?,
            logits: Buffer::zeros(device, logit_rows * spec.vocabulary)?,
            splits: Splits::new(device, heads(spec), singles, spec.context)?,
            workspace: Workspace::new(device, rows * widest, widened)?,
        })
    }

    /// Copy where rows belong, in one piece.
    fn write(&self, places: &Places) -> Result<(), DeviceError> {
        let mut numbers = vec![0; Column::Blocks.begin(self.rows) + places.blocks.len()];
        for (column, values) in [
            (Column::Tokens, &places.tokens),
            (Column::Positions, &places.positions),
            (Column::SinglePositions, &places.single_positions),
            (Column::Slots, &places.slots),
            (Column::Tables, &places.tables),
            (Column::LogitRows, &places.logit_rows),
            (Column::Tiles, &places.tiles),
            (Column::Blocks, &places.blocks),
        ] {
            numbers[column.begin(self.rows)..][..values.len()].copy_from_slice(values);
        }
        self.places.upload(0, &numbers)
    }

    /// Copy sampled tokens into the batch.
    fn take(&self, device: &dyn Device, taken: &Taken<'_>, rows: usize) -> Result<(), DeviceError> {
        let mut sources = vec![-1; rows];
        for source in taken.sources {
            sources[source.row] = source.sample as i32;
        }
        self.places
            .upload(Column::Sources.begin(self.rows), &sources)?;
        let (from, to) = (self.column(Column::Sources), self.column(Column::Tokens));
        take_tokens(device, taken.sampled, from, to, rows)
    }

    fn column(&self, column: Column) -> Slice<'_, i32> {
        self.places.from(column.begin(self.rows))
    }

    /// Queue a forward pass.
    fn compute(
        &self,
        device: &dyn Device,
        spec: &ModelSpec,
        weights: &Weights,
        counts: Counts,
    ) -> Result<(), DeviceError> {
        let Counts {
            rows, logit_rows, ..
        } = counts;
        let Activations { hidden, .. } = &self.activations;
        let embedding = weights.embedding.first();
        let tokens = self.column(Column::Tokens);
        embed(
            device,
            embedding,
            tokens,
            spec.embedding_scale,
            Rows {
                slice: hidden.all(),
                stride: spec.hidden,
                count: rows,
            },
        )?;
        let batch = DeviceBatch {
            device,
            spec,
            ropes: &weights.ropes,
            activations: &self.activations,
            workspace: &self.workspace,
            rows,
            places: BatchPlaces {
                positions: self.column(Column::Positions),
                slots: self.column(Column::Slots),
                tables: self.column(Column::Tables),
                blocks: self.column(Column::Blocks),
            },
            single_positions: self.column(Column::SinglePositions),
            single_rows: counts.single_rows,
            splits: (&self.splits, counts.splits),
            tiles: (self.column(Column::Tiles), counts.tiles),
        };
        for layer in &weights.layers {
            layer.forward(&batch)?;
        }
        if logit_rows == 0 {
            return Ok(());
        }
        self.logits_of(device, spec, weights, counts)
    }

    /// Final norm and head: logits of the rows whose logits are wanted.
    fn logits_of(
        &self,
        device: &dyn Device,
        spec: &ModelSpec,
        weights: &Weights,
        counts: Counts,
    ) -> Result<(), DeviceError> {
        let Counts {
            rows, logit_rows, ..
        } = counts;
        let Activations { hidden, normed, .. } = &self.activations;
        let of = |slice, count| Rows {
            slice,
            stride: spec.hidden,
            count,
        };
        let norm = RmsNorm {
            weight: weights.final_norm.all(),
            epsilon: spec.norm_epsilon,
            sources: Some(self.column(Column::LogitRows)),
            added: None,
        };
        rms_norm(
            device,
            &norm,
            of(hidden.all(), rows),
            of(normed.all(), logit_rows),
        )?;
        let scalars = Scalars {
            scale: spec.logit_scale,
            accumulate: false,
        };
        let head = weights.head.as_ref().unwrap_or(&weights.embedding);
        head.apply(
            device,
            normed,
            &self.logits,
            logit_rows,
            scalars,
            &self.workspace,
        )?;
        match spec.logit_soft_cap {
            Some(cap) => soft_cap(device, self.logits.all(), logit_rows * spec.vocabulary, cap),
            None => Ok(()),
        }
    }
}

impl Column {
    /// First number of the column in memory for so many rows.
    fn begin(self, rows: usize) -> usize {
        match self {
            Self::Tokens => 0,
            Self::Positions => rows,
            Self::SinglePositions => 2 * rows,
            Self::Slots => 3 * rows,
            Self::Tables => 4 * rows,
            Self::LogitRows => 5 * rows,
            Self::Tiles => 6 * rows,
            // A tile is two numbers, and has a row at least.
            Self::Sources => 8 * rows,
            Self::Blocks => 9 * rows,
        }
    }
}
