//! Destinations of the sums of a product.

/// Sums that a sink takes at once, at most.
pub(super) const MOST_TOGETHER: usize = 16;

/// Receiver of the sums of a task.
pub(super) trait Sink {
    /// Take some sums of a row, those of the outputs from `first` on, with their bias. Each output of each
    /// row comes once, and no other task's sink gets it.
    fn put(&mut self, row: usize, first: usize, sums: &[f32]);

    /// End of the task: no more sums come.
    fn end(self)
    where
        Self: Sized,
    {
    }
}

/// Rows of outputs. Tasks write to disjoint columns of every row, which slices cannot express.
#[derive(Clone, Copy)]
pub(super) struct Cells {
    start: *mut f32,
    rows: usize,
    width: usize,
}

#[allow(unsafe_code, reason = "tasks write to disjoint columns")]
// SAFETY: the pointer comes from a `&mut [f32]` that outlives the job; each cell is one task's.
unsafe impl Send for Cells {}
#[allow(unsafe_code, reason = "tasks write to disjoint columns")]
// SAFETY: as above.
unsafe impl Sync for Cells {}

impl Cells {
    /// # Panics
    /// If `out` does not hold exactly so many rows.
    pub(super) fn new(out: &mut [f32], rows: usize, width: usize) -> Self {
        assert!(out.len() == rows * width);
        Self {
            start: out.as_mut_ptr(),
            rows,
            width,
        }
    }

    /// Some columns of a row.
    ///
    /// # Safety
    /// The slice that the cells were made of outlives the result, and nobody else uses these cells for as long as the
    /// result lives.
    #[allow(unsafe_code, reason = "tasks write to disjoint columns")]
    #[allow(clippy::mut_from_ref, reason = "the cells are the caller's alone")]
    pub(super) unsafe fn get(&self, row: usize, first: usize, count: usize) -> &mut [f32] {
        assert!(row < self.rows && first + count <= self.width);
        // SAFETY: the cells lie within the slice, as was just seen.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(row * self.width + first), count) }
    }
}

/// Sink that writes sums to the output.
pub(super) struct Write(pub(super) Cells);

impl Sink for Write {
    #[inline(always)]
    fn put(&mut self, row: usize, first: usize, sums: &[f32]) {
        // SAFETY: a job lives no longer than its output, and gives each output to one task once.
        #[allow(unsafe_code, reason = "tasks write to disjoint columns")]
        let out = unsafe { self.0.get(row, first, sums.len()) };
        for (out, sum) in out.iter_mut().zip(sums) {
            *out = *sum;
        }
    }
}

/// Sink that adds sums to the output.
pub(super) struct Add {
    pub(super) cells: Cells,
    /// Factor of the sums.
    pub(super) scale: f32,
}

impl Sink for Add {
    #[inline(always)]
    fn put(&mut self, row: usize, first: usize, sums: &[f32]) {
        // SAFETY: a job lives no longer than its output, and gives each output to one task once.
        #[allow(unsafe_code, reason = "tasks write to disjoint columns")]
        let out = unsafe { self.cells.get(row, first, sums.len()) };
        for (out, sum) in out.iter_mut().zip(sums) {
            *out += self.scale * sum;
        }
    }
}

/// Sink that writes to scratch memory of the task. Rows are `stride` values apart.
pub(super) struct Keep<'a> {
    pub(super) first_row: usize,
    pub(super) first_output: usize,
    pub(super) stride: usize,
    pub(super) out: &'a mut [f32],
}

impl Sink for Keep<'_> {
    #[inline(always)]
    fn put(&mut self, row: usize, first: usize, sums: &[f32]) {
        let at = (row - self.first_row) * self.stride + first - self.first_output;
        for (out, sum) in self.out[at..].iter_mut().zip(sums) {
            *out = *sum;
        }
    }
}
