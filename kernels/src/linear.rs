//! Matrix product of activations with weights: `out = x · Wᵀ + bias`.
//!
//! Each output is one dot product. With weights in floating point it is summed in eight lanes over
//! ascending inputs, then the lanes by halves, then the inputs that fill no lane; with weights in
//! blocks, group by group ([`quant`](crate::quant)). Tiles share loads between products but never
//! change that order, so that a row's result does not depend on the batch.

use half::{bf16, f16};
use rayon::prelude::*;

use crate::quant::{BlockType, QuantisedRows, dequantise, dot_rows};

#[cfg(target_arch = "x86_64")]
mod avx2;
mod portable;

/// Inputs summed side by side.
const LANES: usize = 8;
/// Outputs that are computed together for all rows: a multiple of every tile's width.
const COLUMN_BLOCK: usize = 24;
/// Tasks for each thread: more than one, so that a thread that was held up costs little.
const TASKS_PER_THREAD: usize = 4;

/// Weights as they are stored.
#[derive(Debug, Clone, Copy)]
pub enum Weights<'a> {
    /// Single precision.
    F32(&'a [f32]),
    /// Half precision, widened as it is read.
    F16(&'a [f16]),
    /// Brain float, widened as it is read.
    Bf16(&'a [bf16]),
    /// Quantised; products are with activations rounded to eight bits.
    Blocks(BlockType, &'a [u8]),
}

impl<'a> Weights<'a> {
    /// Whether these are the weights of so many rows of `inputs` each.
    fn fill(&self, outputs: usize, inputs: usize) -> bool {
        let (length, row) = match self {
            Self::F32(values) => (values.len(), Some(inputs)),
            Self::F16(values) => (values.len(), Some(inputs)),
            Self::Bf16(values) => (values.len(), Some(inputs)),
            Self::Blocks(kind, bytes) => (bytes.len(), kind.row_bytes(inputs)),
        };
        row.and_then(|row| row.checked_mul(outputs)) == Some(length)
    }

    /// One row of a matrix of `inputs` columns, in f32.
    pub fn row(&self, row: usize, inputs: usize, out: &mut [f32]) {
        let range = row * inputs..(row + 1) * inputs;
        match self {
            Self::F32(values) => out.copy_from_slice(&values[range]),
            Self::F16(values) => widen_into(&values[range], out, |value| value.to_f32()),
            Self::Bf16(values) => widen_into(&values[range], out, |value| value.to_f32()),
            Self::Blocks(kind, bytes) => {
                dequantise(*kind, block_row(*kind, bytes, row, inputs), out)
            }
        }
    }
}

fn widen_into<W: Copy>(from: &[W], to: &mut [f32], widen: impl Fn(W) -> f32) {
    assert_eq!(from.len(), to.len());
    for (to, from) in to.iter_mut().zip(from) {
        *to = widen(*from);
    }
}

fn block_row(kind: BlockType, bytes: &[u8], row: usize, inputs: usize) -> &[u8] {
    let length = inputs / kind.weights() * kind.bytes();
    &bytes[row * length..][..length]
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
        if let RowOrder::Paired { head } = matrix.order {
            assert!(head > 0 && head.is_multiple_of(2) && matrix.outputs.is_multiple_of(head));
        }
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
        .any(|matrix| matches!(matrix.weights, Weights::Blocks(..)))
        .then(|| QuantisedRows::new(x, inputs));
    let job = Job {
        x,
        quantised,
        rows,
        inputs,
        outputs,
        parts: &parts,
        bias,
        out: OutputPointer(out.as_mut_ptr()),
    };
    if crate::worth_sharing(rows * outputs * inputs) {
        let tasks = (rayon::current_num_threads() * TASKS_PER_THREAD).min(blocks);
        (0..tasks).into_par_iter().for_each(|task| {
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
    /// The same rounded, if any weights are blocks.
    quantised: Option<QuantisedRows>,
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
        for block in first..last {
            let after = self.parts.partition_point(|part| part.first_block <= block);
            let part = &self.parts[after - 1];
            let begin = (block - part.first_block) * COLUMN_BLOCK;
            let columns = (begin, (begin + COLUMN_BLOCK).min(part.matrix.outputs));
            let mut row = 0;
            while row < self.rows {
                row += match (&part.matrix.weights, self.rows - row) {
                    (Weights::Blocks(..), 4..) => self.block_rows::<4>(part, row, columns),
                    (Weights::Blocks(..), 2 | 3) => self.block_rows::<2>(part, row, columns),
                    (Weights::Blocks(..), _) => self.block_rows::<1>(part, row, columns),
                    (_, 4..) => self.row_tile::<4, 3>(part, row, columns),
                    (_, 2 | 3) => self.row_tile::<2, 4>(part, row, columns),
                    (_, _) => self.row_tile::<1, 8>(part, row, columns),
                };
            }
        }
    }

    /// `R` rows of a block of columns of quantised weights; returns `R`.
    fn block_rows<const R: usize>(
        &self,
        part: &Part<'_>,
        row: usize,
        (first, last): (usize, usize),
    ) -> usize {
        let (Weights::Blocks(kind, bytes), Some(rows)) = (part.matrix.weights, &self.quantised)
        else {
            unreachable!("called for blocks only, for which rows were rounded");
        };
        let x = std::array::from_fn(|r| rows.row(row + r));
        for column in first..last {
            let sums = dot_rows::<R>(kind, x, block_row(kind, bytes, column, self.inputs));
            for (r, sum) in sums.into_iter().enumerate() {
                self.store(part, row + r, column, sum);
            }
        }
        R
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
            Weights::Blocks(..) => unreachable!("blocks have tiles of their own"),
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
trait Weight: Copy {
    fn widen(self) -> f32;

    /// Widen eight numbers.
    ///
    /// # Safety
    /// `from` points at eight readable numbers and the processor has AVX2.
    #[cfg(target_arch = "x86_64")]
    #[allow(unsafe_code, reason = "vector loads")]
    unsafe fn load(from: *const Self) -> std::arch::x86_64::__m256;
}

/// The dot products of `R` rows of activations with `C` rows of weights, all of one length.
fn dot_tile<W: Weight, const R: usize, const C: usize>(
    x: [&[f32]; R],
    weights: [&[W]; C],
) -> [[f32; C]; R] {
    #[cfg(target_arch = "x86_64")]
    if crate::has_avx2_fma() {
        let length = x[0].len();
        assert!(x.iter().all(|x| x.len() == length) && weights.iter().all(|w| w.len() == length));
        // SAFETY: the processor has the features and all slices have the same length.
        #[allow(unsafe_code, reason = "calls a function compiled for checked features")]
        return unsafe { avx2::dot_tile(x, weights) };
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
