//! One product, divided by blocks of outputs among the threads.

use super::sink::Sink;
use super::{Activations, Matrix, RowOrder, Stack, Weight, Weights, dot_tile};
use crate::isa::{Isa, isa};
use crate::quant::{PANEL_ROWS, PASS_ROWS, PackedMatrix};

/// Outputs that are computed together for all rows: a multiple of every tile's width.
const COLUMN_BLOCK: usize = 24;
/// Rows of activations that pass the weights of a task together: as many as caches hold, whole tiles.
pub(super) const ROW_BLOCK: usize = 64;
/// Tasks for each thread: more than one, so that a thread that was held up costs little.
const TASKS_PER_THREAD: usize = 8;

/// A product that is to be computed.
pub(super) struct Job<'a> {
    x: &'a Activations<'a>,
    /// For products of packed weights.
    isa: Isa,
    parts: Vec<Part<'a>>,
    bias: Option<&'a [f32]>,
    outputs: usize,
    blocks: usize,
}

/// A matrix of a stack and where it stands.
#[derive(Clone, Copy)]
pub(super) struct Part<'a> {
    pub(super) matrix: Matrix<'a>,
    pub(super) first_output: usize,
    /// Number of its first block of outputs.
    first_block: usize,
}

/// Rows and columns of one tile, within the bounds of the job.
#[derive(Clone, Copy)]
struct TileOrigin {
    row: usize,
    column: usize,
}

impl<'a> Job<'a> {
    /// # Panics
    /// If shapes do not fit, or activations lack a form.
    pub(super) fn new(x: &'a Activations<'_>, stack: &Stack<'a>) -> Self {
        let inputs = x.inputs();
        let mut parts = Vec::with_capacity(stack.matrices.len());
        let (mut outputs, mut blocks) = (0, 0);
        for matrix in stack.matrices {
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
        assert!(!parts.is_empty() && stack.bias.is_none_or(|bias| bias.len() == outputs));
        Self {
            x,
            isa: isa(),
            parts,
            bias: stack.bias,
            outputs,
            blocks,
        }
    }

    pub(super) fn rows(&self) -> usize {
        self.x.rows()
    }

    pub(super) fn outputs(&self) -> usize {
        self.outputs
    }

    pub(super) fn parts(&self) -> &[Part<'a>] {
        &self.parts
    }

    /// Compute all outputs, each task's to a sink of its own.
    pub(super) fn run<S: Sink>(&self, sink: impl Fn() -> S + Sync) {
        self.share(self.blocks, |first, last| {
            let mut sink = sink();
            self.some_blocks(first, last, &mut sink);
            sink.end();
        });
    }

    /// Do `first..last` of so many equal pieces of the job at a time, on all threads if it is worth it.
    pub(super) fn share(&self, pieces: usize, run: impl Fn(usize, usize) + Sync) {
        if self.rows() == 0 {
            return;
        }
        if crate::worth_sharing(self.rows() * self.outputs * self.x.inputs()) {
            let tasks = (crate::pool::threads() * TASKS_PER_THREAD).min(pieces);
            crate::pool::for_each(tasks, |task| {
                run(task * pieces / tasks, (task + 1) * pieces / tasks);
            });
        } else {
            run(0, pieces);
        }
    }

    /// Rows that pass the same weights together, from `first` on.
    pub(super) fn row_blocks(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let rows = self.rows();
        (0..rows)
            .step_by(ROW_BLOCK)
            .map(move |first| (first, rows.min(first + ROW_BLOCK)))
    }

    /// Compute the outputs of blocks `first..last` for all rows.
    fn some_blocks(&self, first: usize, last: usize, sink: &mut impl Sink) {
        for rows in self.row_blocks() {
            for block in first..last {
                let after = self.parts.partition_point(|part| part.first_block <= block);
                let part = &self.parts[after - 1];
                let begin = (block - part.first_block) * COLUMN_BLOCK;
                let columns = (begin, (begin + COLUMN_BLOCK).min(part.matrix.outputs));
                self.block(part, rows, columns, sink);
            }
        }
    }

    /// Some rows of a block of columns.
    fn block(
        &self,
        part: &Part<'_>,
        (first, last): (usize, usize),
        columns: (usize, usize),
        sink: &mut impl Sink,
    ) {
        if let Weights::Packed(matrix) = part.matrix.weights {
            return self.panels((part, matrix), (first, last), columns, sink);
        }
        let mut row = first;
        while row < last {
            row += match last - row {
                4.. => self.row_tile::<4, 3>(part, row, columns, sink),
                2 | 3 => self.row_tile::<2, 4>(part, row, columns, sink),
                _ => self.row_tile::<1, 8>(part, row, columns, sink),
            };
        }
    }

    /// The same for packed weights: panel by panel, each while it is in the cache.
    pub(super) fn panels(
        &self,
        (part, matrix): (&Part<'_>, &PackedMatrix),
        (first_row, last_row): (usize, usize),
        (first, last): (usize, usize),
        sink: &mut impl Sink,
    ) {
        const { assert!(COLUMN_BLOCK.is_multiple_of(PANEL_ROWS)) };
        let rounded = self.x.rounded();
        let mut sums = [[0.0; PANEL_ROWS]; PASS_ROWS];
        for column in (first..last).step_by(PANEL_ROWS) {
            let output = part.first_output + column;
            let mut row = first_row;
            while row < last_row {
                let pass = rounded.pass(row);
                matrix.products(self.isa, column / PANEL_ROWS, pass, &mut sums);
                for sums in &mut sums[..pass.1] {
                    if let Some(bias) = self.bias {
                        for (sum, bias) in sums.iter_mut().zip(&bias[output..]) {
                            *sum += bias;
                        }
                    }
                    // A length that the compiler knows is no loop.
                    match last - column {
                        PANEL_ROWS.. => sink.put(row, output, sums),
                        count => sink.put(row, output, &sums[..count]),
                    }
                    row += 1;
                }
            }
        }
    }

    /// `R` rows of a block of columns, in tiles of `C`; returns `R`.
    fn row_tile<const R: usize, const C: usize>(
        &self,
        part: &Part<'_>,
        row: usize,
        (first, last): (usize, usize),
        sink: &mut impl Sink,
    ) -> usize {
        let mut column = first;
        while column + C <= last {
            self.tile::<R, C>(part, TileOrigin { row, column }, sink);
            column += C;
        }
        while column < last {
            self.tile::<R, 1>(part, TileOrigin { row, column }, sink);
            column += 1;
        }
        R
    }

    fn tile<const R: usize, const C: usize>(
        &self,
        part: &Part<'_>,
        origin: TileOrigin,
        sink: &mut impl Sink,
    ) {
        let inputs = self.x.inputs();
        let x = self.x.plain();
        let x: [&[f32]; R] = std::array::from_fn(|r| &x[(origin.row + r) * inputs..][..inputs]);
        let sums = match part.matrix.weights {
            Weights::F32(weights) => dot_tile(x, weight_rows::<_, C>(weights, origin, inputs)),
            Weights::F16(weights) => dot_tile(x, weight_rows::<_, C>(weights, origin, inputs)),
            Weights::Bf16(weights) => dot_tile(x, weight_rows::<_, C>(weights, origin, inputs)),
            Weights::Packed(_) => unreachable!("packed weights have tiles of their own"),
        };
        for (r, sums) in sums.iter().enumerate() {
            for (c, sum) in sums.iter().enumerate() {
                let output = part.first_output + part.matrix.order.output(origin.column + c);
                let sum = sum + self.bias.map_or(0.0, |bias| bias[output]);
                sink.put(origin.row + r, output, &[sum]);
            }
        }
    }
}

fn weight_rows<W: Weight, const C: usize>(
    weights: &[W],
    origin: TileOrigin,
    inputs: usize,
) -> [&[W]; C] {
    std::array::from_fn(|c| &weights[(origin.column + c) * inputs..][..inputs])
}
