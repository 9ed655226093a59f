//! Activations rounded to eight bits.

use std::marker::PhantomData;

#[cfg(target_arch = "x86_64")]
use super::avx2 as vector;
#[cfg(target_arch = "aarch64")]
use super::neon as vector;
use super::{GROUP, QuantisedGroup};
use crate::rms_norm::RmsNorm;

/// Rows that stand side by side.
pub(crate) const TILE_ROWS: usize = 4;
/// Rows that pass the same weights together, at most: those of two tiles.
pub(crate) const PASS_ROWS: usize = 2 * TILE_ROWS;

/// Rows of activations, each group of 32 rounded to integers from -127 to 127.
///
/// Rows stand in tiles of four, then perhaps two and one. Within a tile the groups follow one another,
/// each with the rows side by side, so that a product reads one stream.
#[derive(Debug)]
pub struct QuantisedRows {
    groups: Vec<QuantisedGroup>,
    rows: usize,
    groups_per_row: usize,
}

/// Rows of the next tile, of so many that are left.
fn tile_rows(left: usize) -> usize {
    match left {
        TILE_ROWS.. => TILE_ROWS,
        2 | 3 => 2,
        _ => 1,
    }
}

impl QuantisedRows {
    /// Round rows of `inputs` values each.
    ///
    /// # Panics
    /// If groups do not fill a row, or rows do not fill `x`.
    pub fn new(x: &[f32], inputs: usize) -> Self {
        assert!(inputs > 0 && x.len().is_multiple_of(inputs));
        Self::fill(x.len() / inputs, inputs, |first, rows, groups| {
            for (index, group) in groups.iter_mut().enumerate() {
                let at = (first + index % rows) * inputs + index / rows * GROUP;
                round_group(&x[at..at + GROUP], group);
            }
        })
    }

    /// Normalise rows and round them: the same as [`rms_norm`](crate::rms_norm::rms_norm) and
    /// [`QuantisedRows::new`], without rows in between.
    ///
    /// # Panics
    /// If groups do not fill a row, or rows do not fill `x`.
    pub fn normed(x: &[f32], norm: RmsNorm<'_>) -> Self {
        let inputs = norm.weight.len();
        assert!(inputs > 0 && x.len().is_multiple_of(inputs));
        Self::fill(x.len() / inputs, inputs, |first, rows, groups| {
            let mut scales = [0.0; TILE_ROWS];
            for (row, scale) in (first..first + rows).zip(&mut scales) {
                *scale = norm.scale(&x[row * inputs..][..inputs]);
            }
            for (index, group) in groups.iter_mut().enumerate() {
                let (row, at) = (index % rows, index / rows * GROUP);
                let mut normed = [0.0; GROUP];
                let values = &x[(first + row) * inputs + at..][..GROUP];
                let weights = &norm.weight[at..][..GROUP];
                for ((normed, value), weight) in normed.iter_mut().zip(values).zip(weights) {
                    *normed = value * scales[row] * weight;
                }
                round_group(&normed, group);
            }
        })
    }

    /// Rows whose groups are filled by and by.
    ///
    /// # Panics
    /// If groups do not fill a row.
    pub(crate) fn blank(rows: usize, inputs: usize) -> Self {
        assert!(inputs > 0 && inputs.is_multiple_of(GROUP));
        Self {
            groups: vec![QuantisedGroup::ZERO; rows * (inputs / GROUP)],
            rows,
            groups_per_row: inputs / GROUP,
        }
    }

    /// Fill tile after tile: `tile` gets the first row of one, the number of its rows and its groups.
    fn fill(
        rows: usize,
        inputs: usize,
        tile: impl Fn(usize, usize, &mut [QuantisedGroup]) + Sync,
    ) -> Self {
        let mut all = Self::blank(rows, inputs);
        let groups_per_row = all.groups_per_row;
        let some_rows = |number: usize, mut groups: &mut [QuantisedGroup]| {
            let mut first = number * TILE_ROWS;
            while !groups.is_empty() {
                let rows = tile_rows(groups.len() / groups_per_row);
                let (own, rest) = groups.split_at_mut(rows * groups_per_row);
                tile(first, rows, own);
                first += rows;
                groups = rest;
            }
        };
        let piece = TILE_ROWS * groups_per_row;
        // Rounding a value costs about as much as sixteen multiply-adds.
        if crate::worth_sharing(rows * inputs * 16) {
            crate::pool::for_each_piece(&mut all.groups, piece, some_rows);
        } else {
            for (number, groups) in all.groups.chunks_mut(piece).enumerate() {
                some_rows(number, groups);
            }
        }
        all
    }

    /// The groups, for tasks that fill them.
    pub(crate) fn cells(&mut self) -> GroupCells<'_> {
        GroupCells {
            start: self.groups.as_mut_ptr(),
            rows: self.rows,
            groups_per_row: self.groups_per_row,
            rounded: PhantomData,
        }
    }

    /// Rows in all.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// A group of a row.
    pub fn group(&self, row: usize, group: usize) -> &QuantisedGroup {
        &self.groups[place(self.rows, self.groups_per_row, row, group)]
    }

    /// The groups of the rows that pass weights together, beginning with the first row of a tile, and
    /// how many they are: 8 in two tiles of four, one after the other, or the 4, 2 or 1 of a tile.
    pub(crate) fn pass(&self, first: usize) -> (&[QuantisedGroup], usize) {
        debug_assert!(first.is_multiple_of(TILE_ROWS) || self.rows - first < TILE_ROWS);
        let rows = match self.rows - first {
            PASS_ROWS.. => PASS_ROWS,
            left => tile_rows(left),
        };
        let length = rows * self.groups_per_row;
        (&self.groups[first * self.groups_per_row..][..length], rows)
    }
}

/// Index of a group of a row.
fn place(rows: usize, groups_per_row: usize, row: usize, group: usize) -> usize {
    assert!(row < rows && group < groups_per_row);
    let mut first = row / TILE_ROWS * TILE_ROWS;
    let mut together = tile_rows(rows - first);
    while row >= first + together {
        first += together;
        together = tile_rows(rows - first);
    }
    first * groups_per_row + group * together + row - first
}

/// The groups of rounded rows, which tasks fill side by side: slices cannot express whose is whose.
pub(crate) struct GroupCells<'a> {
    start: *mut QuantisedGroup,
    rows: usize,
    groups_per_row: usize,
    rounded: PhantomData<&'a mut [QuantisedGroup]>,
}

#[allow(unsafe_code, reason = "tasks fill disjoint groups")]
// SAFETY: the groups are borrowed for as long as this lives, and each is one task's: see `round`.
unsafe impl Sync for GroupCells<'_> {}

impl GroupCells<'_> {
    /// Round the values of a group of a row.
    ///
    /// # Safety
    /// No other thread uses this group meanwhile.
    #[allow(unsafe_code, reason = "tasks fill disjoint groups")]
    pub(crate) unsafe fn round(&self, row: usize, group: usize, values: &[f32]) {
        let place = place(self.rows, self.groups_per_row, row, group);
        // SAFETY: the place is one of a group, and the caller promises that it has it alone.
        round_group(values, unsafe { &mut *self.start.add(place) });
    }
}

/// Round a group to nearest, ties to even.
fn round_group(x: &[f32], out: &mut QuantisedGroup) {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    if crate::has_vectors() {
        assert!(x.len() == GROUP);
        // SAFETY: the processor has the features, and both slices hold a group.
        #[allow(unsafe_code, reason = "calls a function compiled for checked features")]
        unsafe {
            vector::round_group(x, out);
        }
        return;
    }
    round_group_portable(x, out);
}

pub(super) fn round_group_portable(x: &[f32], out: &mut QuantisedGroup) {
    let largest = x
        .iter()
        .fold(0.0_f32, |largest, value| largest.max(value.abs()));
    let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
    for (quant, value) in out.quants.iter_mut().zip(x) {
        *quant = (value * inverse).round_ties_even() as i8;
    }
    let sum = |quants: &[i8]| quants.iter().map(|quant| i32::from(*quant)).sum::<i32>();
    let (first, second) = out.quants.split_at(GROUP / 2);
    let sums = (sum(first), sum(second));
    out.scale = largest / 127.0;
    out.set_sums(sums.0, sums.1);
}
