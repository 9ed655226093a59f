//! Activations rounded to eight bits.

use super::GROUP;
#[cfg(target_arch = "x86_64")]
use super::avx2 as vector;
#[cfg(target_arch = "aarch64")]
use super::neon as vector;

/// Rows that are multiplied together with the same weights.
pub(crate) const TILE_ROWS: usize = 4;

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

/// One group of a row, with what products need to know of it.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub struct QuantisedGroup {
    /// The integers.
    pub quants: [i8; GROUP],
    /// What one step is worth.
    pub scale: f32,
    /// The sum of the rounded values: the scale times the sum of the integers.
    pub scaled_sum: f32,
    /// That of the first half of them.
    pub scaled_first_half: f32,
    /// The sum of the integers.
    pub sum: i32,
}

impl QuantisedGroup {
    pub(super) const ZERO: Self = Self {
        quants: [0; GROUP],
        scale: 0.0,
        scaled_sum: 0.0,
        scaled_first_half: 0.0,
        sum: 0,
    };

    /// The sum of the rounded values of part number `part` of a row: a half of this group, if parts are
    /// halves, or the group.
    #[inline(always)]
    pub(super) fn scaled_part(&self, halves: bool, part: usize) -> f32 {
        match (halves, part % 2) {
            (false, _) => self.scaled_sum,
            (true, 0) => self.scaled_first_half,
            (true, _) => self.scaled_sum - self.scaled_first_half,
        }
    }

    /// Note the sums of the halves of the integers.
    #[inline(always)]
    pub(super) fn set_sums(&mut self, first_half: i32, second_half: i32) {
        self.sum = first_half + second_half;
        self.scaled_sum = self.scale * self.sum as f32;
        self.scaled_first_half = self.scale * first_half as f32;
    }
}

/// Rows of the next tile, of so many that are left.
pub(crate) fn tile_rows(left: usize) -> usize {
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
        assert!(inputs > 0 && inputs.is_multiple_of(GROUP) && x.len().is_multiple_of(inputs));
        let groups_per_row = inputs / GROUP;
        let mut groups = vec![QuantisedGroup::ZERO; x.len() / GROUP];
        let some_rows = |number: usize, mut groups: &mut [QuantisedGroup]| {
            let mut x = &x[number * TILE_ROWS * inputs..];
            while !groups.is_empty() {
                let rows = tile_rows(groups.len() / groups_per_row);
                let (tile, rest) = groups.split_at_mut(rows * groups_per_row);
                for (index, group) in tile.iter_mut().enumerate() {
                    let at = index % rows * inputs + index / rows * GROUP;
                    round_group(&x[at..at + GROUP], group);
                }
                x = &x[rows * inputs..];
                groups = rest;
            }
        };
        let piece = TILE_ROWS * groups_per_row;
        // Rounding a value costs about as much as sixteen multiply-adds.
        if crate::worth_sharing(x.len() * 16) {
            crate::pool::for_each_piece(&mut groups, piece, some_rows);
        } else {
            for (number, groups) in groups.chunks_mut(piece).enumerate() {
                some_rows(number, groups);
            }
        }
        Self {
            groups,
            rows: x.len() / inputs,
            groups_per_row,
        }
    }

    /// Rows in all.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// A group of a row.
    pub fn group(&self, row: usize, group: usize) -> &QuantisedGroup {
        let mut first = row / TILE_ROWS * TILE_ROWS;
        let mut rows = tile_rows(self.rows - first);
        while row >= first + rows {
            first += rows;
            rows = tile_rows(self.rows - first);
        }
        &self.groups[first * self.groups_per_row + group * rows + row - first]
    }

    /// The groups of the tile that begins with a row, and its number of rows.
    pub(crate) fn tile(&self, first: usize) -> (&[QuantisedGroup], usize) {
        debug_assert!(first.is_multiple_of(TILE_ROWS) || self.rows - first < TILE_ROWS);
        let rows = tile_rows(self.rows - first);
        let length = rows * self.groups_per_row;
        (&self.groups[first * self.groups_per_row..][..length], rows)
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
