//! Matrix product of activations with weights: `out = x · Wᵀ + bias`.
//!
//! Each output is one dot product. With weights in floating point it is summed in eight lanes over
//! ascending inputs, then the lanes by halves, then the inputs that fill no lane; with packed weights,
//! group by group ([`quant`](crate::quant)). Tiles share loads between products but never change that
//! order, so that a row's result does not depend on the batch.

use half::{bf16, f16};

use crate::isa::{Isa, isa};
use crate::quant::{PANEL_ROWS, PackedMatrix, QuantisedRows, TILE_ROWS};

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;

#[cfg(target_arch = "x86_64")]
use avx2 as vector;
#[cfg(target_arch = "aarch64")]
use neon as vector;

/// Inputs summed side by side.
const LANES: usize = 8;
/// Outputs that are computed together for all rows: a multiple of every tile's width.
const COLUMN_BLOCK: usize = 24;
/// Rows of activations that pass the weights of a task together: as many as caches hold, whole tiles.
const ROW_BLOCK: usize = 64;
/// Tasks for each thread: more than one, so that a thread that was held up costs little.
const TASKS_PER_THREAD: usize = 8;

/// Weights as they are stored.
#[derive(Debug, Clone, Copy)]
pub enum Weights<'a> {
    /// Single precision.
    F32(&'a [f32]),
    /// Half precision, widened as it is read.
    F16(&'a [f16]),
    /// Brain float, widened as it is read.
    Bf16(&'a [bf16]),
    /// Quantised; products are with activations rounded to eight bits. In the order of the outputs.
    Packed(&'a PackedMatrix),
}

impl Weights<'_> {
    /// Whether these are the weights of so many rows of `inputs` each.
    fn fill(&self, outputs: usize, inputs: usize) -> bool {
        let length = match self {
            Self::F32(values) => values.len(),
            Self::F16(values) => values.len(),
            Self::Bf16(values) => values.len(),
            Self::Packed(matrix) => {
                return (matrix.outputs(), matrix.inputs()) == (outputs, inputs);
            }
        };
        inputs.checked_mul(outputs) == Some(length)
    }

    fn is_packed(&self) -> bool {
        matches!(self, Self::Packed(_))
    }

    /// One row of a matrix of `inputs` columns, in f32.
    pub fn row(&self, row: usize, inputs: usize, out: &mut [f32]) {
        let range = row * inputs..(row + 1) * inputs;
        match self {
            Self::F32(values) => out.copy_from_slice(&values[range]),
            Self::F16(values) => widen_into(&values[range], out, |value| value.to_f32()),
            Self::Bf16(values) => widen_into(&values[range], out, |value| value.to_f32()),
            Self::Packed(matrix) => matrix.row(row, out),
        }
    }
}

fn widen_into<W: Copy>(from: &[W], to: &mut [f32], widen: impl Fn(W) -> f32) {
    assert_eq!(from.len(), to.len());
    for (to, from) in to.iter_mut().zip(from) {
        *to = widen(*from);
    }
}

/// In which order the rows of a matrix are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RowOrder {
    /// Row `i` gives output `i`.
    #[default]
    Plain,
    /// Within each head of so many rows, row `2 i + h` gives output `i` of half `h`: the order of
    /// rotary pairs side by side, as GGUF stores the queries and keys of Llama models.
    Paired {
        /// Rows of a head; even.
        head: usize,
    },
}

impl RowOrder {
    /// The output that stored row `row` gives.
    pub fn output(self, row: usize) -> usize {
        match self {
            Self::Plain => row,
            Self::Paired { head } => {
                let place = row % head;
                row - place + place % 2 * (head / 2) + place / 2
            }
        }
    }

    /// The stored row that gives output `output`.
    pub fn row(self, output: usize) -> usize {
        match self {
            Self::Plain => output,
            Self::Paired { head } => {
                let place = output % head;
                output - place + place % (head / 2) * 2 + place / (head / 2)
            }
        }
    }

    /// Whether so many rows are whole heads.
    pub(crate) fn fills(self, rows: usize) -> bool {
        match self {
            Self::Plain => true,
            Self::Paired { head } => {
                head > 0 && head.is_multiple_of(2) && rows.is_multiple_of(head)
            }
        }
    }
}

/// A weight matrix, one row an output.
#[derive(Debug, Clone, Copy)]
pub struct Matrix<'a> {
    /// `outputs * inputs` numbers.
    pub weights: Weights<'a>,
    /// Rows of the matrix.
    pub outputs: usize,
    /// Columns of the matrix.
    pub inputs: usize,
    /// Which row gives which output.
    pub order: RowOrder,
}

/// Multiply the rows of `x` (`matrix.inputs` values each) into rows of `out` (`matrix.outputs`).
pub fn linear(x: &[f32], matrix: Matrix<'_>, bias: Option<&[f32]>, out: &mut [f32]) {
    linear_stack(x, &[matrix], bias, out);
}

/// Multiply by matrices of the same inputs as if they were one: the outputs of the first come
/// first in each row of `out`. `bias` is that of the whole.
pub fn linear_stack(x: &[f32], stack: &[Matrix<'_>], bias: Option<&[f32]>, out: &mut [f32]) {
    let inputs = stack[0].inputs;
    assert!(inputs > 0 && x.len().is_multiple_of(inputs));
    let mut parts = Vec::with_capacity(stack.len());
    let (mut outputs, mut blocks) = (0, 0);
    for matrix in stack {
        assert!(matrix.outputs > 0 && matrix.inputs == inputs);
        assert!(matrix.weights.fill(matrix.outputs, inputs));
        assert!(matrix.order.fills(matrix.outputs));
        assert!(!matrix.weights.is_packed() || matrix.order == RowOrder::Plain);
        parts.push(Part {
            matrix: *matrix,
            first_output: outputs,
            first_block: blocks,
        });
        outputs += matrix.outputs;
        blocks += matrix.outputs.div_ceil(COLUMN_BLOCK);
    }
    let rows = x.len() / inputs;
    assert!(out.len() == rows * outputs);
    assert!(bias.is_none_or(|bias| bias.len() == outputs));
    if rows == 0 {
        return;
    }
    let quantised = stack
        .iter()
        .any(|matrix| matrix.weights.is_packed())
        .then(|| QuantisedRows::new(x, inputs));
    let job = Job {
        x,
        quantised,
        isa: isa(),
        rows,
        inputs,
        outputs,
        parts: &parts,
        bias,
        out: OutputPointer(out.as_mut_ptr()),
    };
    if crate::worth_sharing(rows * outputs * inputs) {
        let tasks = (crate::pool::threads() * TASKS_PER_THREAD).min(blocks);
        crate::pool::for_each(tasks, |task| {
            job.run(task * blocks / tasks, (task + 1) * blocks / tasks);
        });
    } else {
        job.run(0, blocks);
    }
}

/// A matrix of a stack and where it stands.
struct Part<'a> {
    matrix: Matrix<'a>,
    first_output: usize,
    /// Number of its first block of outputs.
    first_block: usize,
}

/// One product, divided by blocks of outputs.
struct Job<'a> {
    x: &'a [f32],
    /// The same rounded, if any weights are packed.
    quantised: Option<QuantisedRows>,
    /// For products of these.
    isa: Isa,
    rows: usize,
    inputs: usize,
    /// Outputs of the whole stack.
    outputs: usize,
    parts: &'a [Part<'a>],
    bias: Option<&'a [f32]>,
    out: OutputPointer,
}

/// Where the outputs go. Tasks write to disjoint columns of every row, which slices cannot express.
#[derive(Clone, Copy)]
struct OutputPointer(*mut f32);

#[allow(unsafe_code, reason = "tasks write to disjoint columns")]
// SAFETY: the pointer comes from a `&mut [f32]` that outlives the job; `Job::run` is called with
// disjoint ranges of blocks and writes only to the columns of its range.
unsafe impl Send for OutputPointer {}
#[allow(unsafe_code, reason = "tasks write to disjoint columns")]
// SAFETY: as above.
unsafe impl Sync for OutputPointer {}

/// Rows and columns of one tile, within the bounds of the job.
#[derive(Clone, Copy)]
struct TileOrigin {
    row: usize,
    column: usize,
}

impl Job<'_> {
    /// Compute the outputs of blocks `first..last` for all rows.
    fn run(&self, first: usize, last: usize) {
        let mut row = 0;
        while row < self.rows {
            let rows = (row, self.rows.min(row + ROW_BLOCK));
            for block in first..last {
                let after = self.parts.partition_point(|part| part.first_block <= block);
                let part = &self.parts[after - 1];
                let begin = (block - part.first_block) * COLUMN_BLOCK;
                let columns = (begin, (begin + COLUMN_BLOCK).min(part.matrix.outputs));
                self.block(part, rows, columns);
            }
            row = rows.1;
        }
    }

    /// Some rows of a block of columns.
    fn block(&self, part: &Part<'_>, (first, last): (usize, usize), columns: (usize, usize)) {
        if let Weights::Packed(matrix) = part.matrix.weights {
            return self.panels(part, matrix, (first, last), columns);
        }
        let mut row = first;
        while row < last {
            row += match last - row {
                4.. => self.row_tile::<4, 3>(part, row, columns),
                2 | 3 => self.row_tile::<2, 4>(part, row, columns),
                _ => self.row_tile::<1, 8>(part, row, columns),
            };
        }
    }

    /// The same for packed weights: panel by panel, each while it is in the cache.
    fn panels(
        &self,
        part: &Part<'_>,
        matrix: &PackedMatrix,
        (first_row, last_row): (usize, usize),
        (first, last): (usize, usize),
    ) {
        let Some(rounded) = &self.quantised else {
            unreachable!("rows were rounded for packed weights");
        };
        const { assert!(COLUMN_BLOCK.is_multiple_of(PANEL_ROWS)) };
        let mut sums = [[0.0; PANEL_ROWS]; TILE_ROWS];
        for column in (first..last).step_by(PANEL_ROWS) {
            let mut row = first_row;
            while row < last_row {
                let tile = rounded.tile(row);
                matrix.tile(self.isa, column / PANEL_ROWS, tile, &mut sums);
                for sums in &sums[..tile.1] {
                    self.store_panel(part, row, (column, last), sums);
                    row += 1;
                }
            }
        }
    }

    /// Write the sums of a row of activations and the rows of a panel that are below `last`.
    fn store_panel(
        &self,
        part: &Part<'_>,
        row: usize,
        (first, last): (usize, usize),
        sums: &[f32; PANEL_ROWS],
    ) {
        let count = PANEL_ROWS.min(last - first);
        let output = part.first_output + first;
        assert!(row < self.rows && output + count <= self.outputs);
        // SAFETY: the range is within the output, checked above; this job alone writes the output,
        // and no other task writes these columns.
        #[allow(unsafe_code, reason = "tasks write to disjoint columns")]
        let out = unsafe {
            std::slice::from_raw_parts_mut(self.out.0.add(row * self.outputs + output), count)
        };
        // A length that the compiler knows is no call.
        match <&mut [f32; PANEL_ROWS]>::try_from(&mut *out) {
            Ok(out) => *out = *sums,
            Err(_) => out.copy_from_slice(&sums[..count]),
        }
        if let Some(bias) = self.bias {
            for (out, bias) in out.iter_mut().zip(&bias[output..]) {
                *out += bias;
            }
        }
    }

    /// `R` rows of a block of columns, in tiles of `C`; returns `R`.
    fn row_tile<const R: usize, const C: usize>(
        &self,
        part: &Part<'_>,
        row: usize,
        (first, last): (usize, usize),
    ) -> usize {
        let mut column = first;
        while column + C <= last {
            self.tile::<R, C>(part, TileOrigin { row, column });
            column += C;
        }
        while column < last {
            self.tile::<R, 1>(part, TileOrigin { row, column });
            column += 1;
        }
        R
    }

    fn tile<const R: usize, const C: usize>(&self, part: &Part<'_>, origin: TileOrigin) {
        let inputs = self.inputs;
        let x: [&[f32]; R] =
            std::array::from_fn(|r| &self.x[(origin.row + r) * inputs..][..inputs]);
        let sums = match part.matrix.weights {
            Weights::F32(weights) => dot_tile(x, weight_rows::<_, C>(weights, origin, inputs)),
            Weights::F16(weights) => dot_tile(x, weight_rows::<_, C>(weights, origin, inputs)),
            Weights::Bf16(weights) => dot_tile(x, weight_rows::<_, C>(weights, origin, inputs)),
            Weights::Packed(_) => unreachable!("packed weights have tiles of their own"),
        };
        for (r, sums) in sums.iter().enumerate() {
            for (c, sum) in sums.iter().enumerate() {
                self.store(part, origin.row + r, origin.column + c, *sum);
            }
        }
    }

    /// Write the sum of a row of activations and stored row `column` of a part.
    fn store(&self, part: &Part<'_>, row: usize, column: usize, sum: f32) {
        let output = part.first_output + part.matrix.order.output(column);
        let value = sum + self.bias.map_or(0.0, |bias| bias[output]);
        assert!(row < self.rows && output < self.outputs);
        // SAFETY: the index is within the output, checked above; this job alone writes the output,
        // and no other task writes this column, since the order of rows is a permutation.
        #[allow(unsafe_code, reason = "tasks write to disjoint columns")]
        unsafe {
            self.out.0.add(row * self.outputs + output).write(value);
        }
    }
}

fn weight_rows<W, const C: usize>(weights: &[W], origin: TileOrigin, inputs: usize) -> [&[W]; C] {
    std::array::from_fn(|c| &weights[(origin.column + c) * inputs..][..inputs])
}

/// A number that weights are stored as.
trait Weight: Copy + Into<f32> {
    /// Widen as many numbers as a register holds.
    ///
    /// # Safety
    /// `from` points at so many readable numbers and the processor has what the register is of.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    #[allow(unsafe_code, reason = "vector loads")]
    unsafe fn load(from: *const Self) -> vector::Register;
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
impl<W: Copy + Into<f32>> Weight for W {}

/// The dot products of `R` rows of activations with `C` rows of weights, all of one length.
fn dot_tile<W: Weight, const R: usize, const C: usize>(
    x: [&[f32]; R],
    weights: [&[W]; C],
) -> [[f32; C]; R] {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    if crate::has_vectors() {
        let length = x[0].len();
        assert!(x.iter().all(|x| x.len() == length) && weights.iter().all(|w| w.len() == length));
        // SAFETY: the processor has the features and all slices have the same length.
        #[allow(unsafe_code, reason = "calls a function compiled for checked features")]
        return unsafe { vector::dot_tile(x, weights) };
    }
    portable::dot_tile(x, weights)
}

/// The same by definition, in double precision, for tests: weights are widened exactly and
/// activations are not rounded.
pub fn reference(x: &[f32], matrix: Matrix<'_>, bias: Option<&[f32]>, out: &mut [f32]) {
    let inputs = matrix.inputs;
    let mut weights = vec![0.0; inputs];
    for row in 0..matrix.outputs {
        matrix.weights.row(row, inputs, &mut weights);
        let output = matrix.order.output(row);
        for (x, out) in x
            .chunks_exact(inputs)
            .zip(out.chunks_exact_mut(matrix.outputs))
        {
            let products = x.iter().zip(&weights);
            let sum: f64 = products.map(|(x, w)| f64::from(*x) * f64::from(*w)).sum();
            out[output] = (sum + bias.map_or(0.0, |bias| f64::from(bias[output]))) as f32;
        }
    }
}

#[cfg(test)]
mod tests;
