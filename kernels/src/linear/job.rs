//! One product, divided by blocks of outputs among the threads.

use super::sink::{MOST_TOGETHER, Sink};
use super::{Activations, Matrix, Stack};
use crate::floats::{self, FloatMatrix, TilePlace};
use crate::isa::{Isa, isa};
use crate::quant::{self, PASS_ROWS, PackedMatrix};

/// Rows of activations that pass the weights of a task together: as many as caches hold, whole tiles.
pub(super) const ROW_BLOCK: usize = 64;
/// Tasks for each thread: more than one, so that the others take over the rest of a thread that is preempted.
const TASKS_PER_THREAD: usize = 8;

/// A product that is to be computed.
pub(super) struct Job<'a> {
    x: &'a Activations<'a>,
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

/// Outputs that are computed together for all rows: whole panels, and of floating point as many as tiles
/// of few rows take at once.
fn column_block(matrix: Matrix<'_>) -> usize {
    match matrix {
        Matrix::Floats(_) => 4 * floats::PANEL_ROWS,
        Matrix::Quantised(_) => 3 * quant::PANEL_ROWS,
    }
}

impl<'a> Job<'a> {
    /// # Panics
    /// If shapes do not fit, or activations lack a form.
    pub(super) fn new(x: &'a Activations<'_>, stack: &Stack<'a>) -> Self {
        let inputs = x.inputs();
        let mut parts = Vec::with_capacity(stack.matrices.len());
        let (mut outputs, mut blocks) = (0, 0);
        for matrix in stack.matrices {
            assert!(matrix.inputs() == inputs);
            parts.push(Part {
                matrix: *matrix,
                first_output: outputs,
                first_block: blocks,
            });
            outputs += matrix.outputs();
            blocks += matrix.outputs().div_ceil(column_block(*matrix));
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

    /// Run pieces `first..last` of equal size, on all threads if the work exceeds what waking them costs.
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
                let width = column_block(part.matrix);
                let begin = (block - part.first_block) * width;
                let columns = (begin, (begin + width).min(part.matrix.outputs()));
                self.columns(part, rows, columns, sink);
            }
        }
    }

    /// Some rows of some columns, which are whole panels but for the end of the matrix: panel by panel,
    /// each while it is in the cache.
    pub(super) fn columns(
        &self,
        part: &Part<'_>,
        rows: (usize, usize),
        columns: (usize, usize),
        sink: &mut impl Sink,
    ) {
        match part.matrix {
            Matrix::Floats(matrix) => self.floats((part, matrix), rows, columns, sink),
            Matrix::Quantised(matrix) => self.quantised((part, matrix), rows, columns, sink),
        }
    }

    fn floats(
        &self,
        (part, matrix): (&Part<'_>, &FloatMatrix),
        (first_row, last_row): (usize, usize),
        (first, last): (usize, usize),
        sink: &mut impl Sink,
    ) {
        const PANEL_ROWS: usize = floats::PANEL_ROWS;
        let (x, inputs) = (self.x.plain(), self.x.inputs());
        let mut sums = [[0.0; PANEL_ROWS]; floats::TILE_SUMS];
        let count = last_row - first_row;
        let (together, tiles) = (
            floats::panels_together(self.isa, count),
            floats::tiles(self.isa, count),
        );
        let (mut panel, end) = (first / PANEL_ROWS, last.div_ceil(PANEL_ROWS));
        while panel < end {
            let panels = if panel + together <= end { together } else { 1 };
            for tile in 0..tiles {
                let [row, end] = [tile, tile + 1].map(|tile| first_row + count * tile / tiles);
                let place = TilePlace {
                    first_panel: panel,
                    panels,
                    tile,
                    tiles,
                };
                matrix.tile(self.isa, place, &x[row * inputs..end * inputs], &mut sums);
                for (index, sums) in sums[..(end - row) * panels].iter_mut().enumerate() {
                    let column = (panel + index % panels) * PANEL_ROWS;
                    let place = (row + index / panels, part.first_output + column);
                    self.put(place, sums, last - column, sink);
                }
            }
            panel += panels;
        }
    }

    fn quantised(
        &self,
        (part, matrix): (&Part<'_>, &PackedMatrix),
        (first_row, last_row): (usize, usize),
        (first, last): (usize, usize),
        sink: &mut impl Sink,
    ) {
        const PANEL_ROWS: usize = quant::PANEL_ROWS;
        let rounded = self.x.rounded();
        let mut sums = [[0.0; PANEL_ROWS]; PASS_ROWS];
        for column in (first..last).step_by(PANEL_ROWS) {
            let mut row = first_row;
            while row < last_row {
                let pass = rounded.pass(row);
                matrix.products(self.isa, column / PANEL_ROWS, pass, &mut sums);
                for sums in &mut sums[..pass.1] {
                    let place = (row, part.first_output + column);
                    self.put(place, sums, last - column, sink);
                    row += 1;
                }
            }
        }
    }

    /// Give the first `count` sums of a row, from an output on, to a sink.
    #[inline(always)]
    fn put<const N: usize>(
        &self,
        (row, output): (usize, usize),
        sums: &mut [f32; N],
        count: usize,
        sink: &mut impl Sink,
    ) {
        const { assert!(N <= MOST_TOGETHER) };
        if let Some(bias) = self.bias {
            for (sum, bias) in sums.iter_mut().zip(&bias[output..]) {
                *sum += bias;
            }
        }
        // With a constant length the compiler unrolls the copy.
        match count < N {
            false => sink.put(row, output, sums),
            true => sink.put(row, output, &sums[..count]),
        }
    }
}
