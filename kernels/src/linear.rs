//! Matrix product of activations with weights: `out = x · Wᵀ + bias`.
//!
//! Each output is one dot product, summed in eight lanes over ascending inputs, then the lanes in
//! order, then the inputs that fill no lane. Tiles share loads between products but never change
//! that order, so that a row's result does not depend on the batch.

use half::bf16;
use rayon::prelude::*;

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
    /// Brain float, widened as it is read.
    Bf16(&'a [bf16]),
}

impl Weights<'_> {
    /// Numbers.
    pub fn len(&self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::Bf16(values) => values.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
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
}

/// Multiply the rows of `x` (`matrix.inputs` values each) into rows of `out` (`matrix.outputs`).
pub fn linear(x: &[f32], matrix: Matrix<'_>, bias: Option<&[f32]>, out: &mut [f32]) {
    let Matrix {
        weights,
        outputs,
        inputs,
    } = matrix;
    assert!(inputs > 0 && outputs > 0 && x.len().is_multiple_of(inputs));
    let rows = x.len() / inputs;
    assert!(weights.len() == outputs * inputs && out.len() == rows * outputs);
    assert!(bias.is_none_or(|bias| bias.len() == outputs));
    if rows == 0 {
        return;
    }
    let job = Job {
        x,
        rows,
        matrix,
        bias,
        out: OutputPointer(out.as_mut_ptr()),
    };
    let blocks = outputs.div_ceil(COLUMN_BLOCK);
    if crate::worth_sharing(rows * outputs * inputs) {
        let tasks = (rayon::current_num_threads() * TASKS_PER_THREAD).min(blocks);
        (0..tasks).into_par_iter().for_each(|task| {
            job.run(task * blocks / tasks, (task + 1) * blocks / tasks);
        });
    } else {
        job.run(0, blocks);
    }
}

/// One product, divided by blocks of outputs.
struct Job<'a> {
    x: &'a [f32],
    rows: usize,
    matrix: Matrix<'a>,
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
        let outputs = self.matrix.outputs;
        for block in first..last {
            let columns = (
                block * COLUMN_BLOCK,
                ((block + 1) * COLUMN_BLOCK).min(outputs),
            );
            let mut row = 0;
            while row < self.rows {
                row += match self.rows - row {
                    4.. => self.row_tile::<4, 3>(row, columns),
                    2 | 3 => self.row_tile::<2, 4>(row, columns),
                    _ => self.row_tile::<1, 8>(row, columns),
                };
            }
        }
    }

    /// `R` rows of a block of columns, in tiles of `C`; returns `R`.
    fn row_tile<const R: usize, const C: usize>(
        &self,
        row: usize,
        (first, last): (usize, usize),
    ) -> usize {
        let mut column = first;
        while column + C <= last {
            self.tile::<R, C>(TileOrigin { row, column });
            column += C;
        }
        while column < last {
            self.tile::<R, 1>(TileOrigin { row, column });
            column += 1;
        }
        R
    }

    fn tile<const R: usize, const C: usize>(&self, origin: TileOrigin) {
        let inputs = self.matrix.inputs;
        let x: [&[f32]; R] =
            std::array::from_fn(|r| &self.x[(origin.row + r) * inputs..][..inputs]);
        let sums = match self.matrix.weights {
            Weights::F32(weights) => dot_tile(x, weight_rows::<_, C>(weights, origin, inputs)),
            Weights::Bf16(weights) => dot_tile(x, weight_rows::<_, C>(weights, origin, inputs)),
        };
        for (r, sums) in sums.iter().enumerate() {
            for (c, sum) in sums.iter().enumerate() {
                let column = origin.column + c;
                let value = sum + self.bias.map_or(0.0, |bias| bias[column]);
                self.store((origin.row + r) * self.matrix.outputs + column, value);
            }
        }
    }

    fn store(&self, index: usize, value: f32) {
        assert!(index < self.rows * self.matrix.outputs);
        // SAFETY: the index is within the output, checked above; this job alone writes the output,
        // and no other task writes this column.
        #[allow(unsafe_code, reason = "tasks write to disjoint columns")]
        unsafe {
            self.out.0.add(index).write(value);
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

/// The same by definition, in double precision, for tests.
pub fn reference(x: &[f32], matrix: Matrix<'_>, bias: Option<&[f32]>, out: &mut [f32]) {
    let weight = |index: usize| match matrix.weights {
        Weights::F32(weights) => f64::from(weights[index]),
        Weights::Bf16(weights) => weights[index].to_f64(),
    };
    for (index, out) in out.iter_mut().enumerate() {
        let (row, column) = (index / matrix.outputs, index % matrix.outputs);
        let sum: f64 = (0..matrix.inputs)
            .map(|k| f64::from(x[row * matrix.inputs + k]) * weight(column * matrix.inputs + k))
            .sum();
        *out = (sum + bias.map_or(0.0, |bias| f64::from(bias[column]))) as f32;
    }
}

#[cfg(test)]
mod tests;
