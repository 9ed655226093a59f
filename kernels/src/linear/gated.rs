//! Product with gate and up projections. The activation function is applied to each group while it is in the cache.

use super::job::{Job, Part, ROW_BLOCK};
use super::sink::{Cells, Keep};
use super::{Activations, Forms};
use crate::gate_mul::{Activation, gate_some_rows};
use crate::quant::{GROUP, QuantisedRows};

/// The rows behind the gate, or `None` where groups do not fill the matrices.
pub(super) fn run(
    job: &Job<'_>,
    activation: Activation,
    forms: Forms,
) -> Option<Activations<'static>> {
    let width = job.outputs() / 2;
    let fits = |part: &Part<'_>| part.matrix.outputs().is_multiple_of(GROUP);
    if !width.is_multiple_of(GROUP) || !job.parts().iter().all(fits) {
        return None;
    }
    let rows = job.rows();
    let mut plain = forms.plain.then(|| vec![0.0; rows * width]);
    let mut rounded = forms.rounded.then(|| QuantisedRows::blank(rows, width));
    let cells = plain.as_mut().map(|out| Cells::new(out, rows, width));
    let groups = rounded.as_mut().map(QuantisedRows::cells);
    // Few rows take many groups at a time, since long sequential reads of weights are faster.
    let strip = (ROW_BLOCK / rows.max(1)).max(1);
    job.share(width / GROUP, |first, last| {
        // For each row gates, then ups.
        let mut both = vec![0.0; strip * 2 * GROUP * ROW_BLOCK.min(rows)];
        let mut out = vec![0.0; both.len() / 2];
        for (first_row, last_row) in job.row_blocks() {
            for group in (first..last).step_by(strip) {
                let (begin, end) = (group * GROUP, last.min(group + strip) * GROUP);
                let columns = end - begin;
                for (half, first_output) in [begin, width + begin].into_iter().enumerate() {
                    let mut keep = Keep {
                        first_row,
                        first_output,
                        stride: 2 * columns,
                        out: &mut both[half * columns..],
                    };
                    let outputs = (first_output, first_output + columns);
                    columns_of(job, (first_row, last_row), outputs, &mut keep);
                }
                let count = (last_row - first_row) * columns;
                gate_some_rows(activation, &both[..2 * count], columns, &mut out[..count]);
                for (row, values) in (first_row..).zip(out[..count].chunks_exact(columns)) {
                    // SAFETY: both outlive the job, and this task alone has these groups of each row.
                    #[allow(unsafe_code, reason = "tasks write to disjoint groups")]
                    unsafe {
                        if let Some(groups) = &groups {
                            for (group, values) in (group..).zip(values.chunks_exact(GROUP)) {
                                groups.round(row, group, values);
                            }
                        }
                        if let Some(cells) = &cells {
                            cells.get(row, begin, columns).copy_from_slice(values);
                        }
                    }
                }
            }
        }
    });
    Some(Activations::from_forms(plain, rounded, (rows, width)))
}

/// Compute outputs `first..last` of some rows: whole groups.
fn columns_of(
    job: &Job<'_>,
    rows: (usize, usize),
    (mut first, last): (usize, usize),
    sink: &mut Keep<'_>,
) {
    while first < last {
        let after = job
            .parts()
            .partition_point(|part| part.first_output <= first);
        let part = &job.parts()[after - 1];
        let begin = first - part.first_output;
        let end = part.matrix.outputs().min(last - part.first_output);
        job.columns(part, rows, (begin, end), sink);
        first = part.first_output + end;
    }
}
