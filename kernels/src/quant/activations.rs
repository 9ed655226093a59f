//! Activations rounded to eight bits.

use rayon::prelude::*;

use super::GROUP;

/// Rows of activations, each group of 32 rounded to integers from -127 to 127.
#[derive(Debug)]
pub struct QuantisedRows {
    quants: Vec<i8>,
    scales: Vec<f32>,
    sums: Vec<f32>,
    inputs: usize,
}

/// One row of them.
#[derive(Debug, Clone, Copy)]
pub struct QuantisedRow<'a> {
    /// The integers.
    pub quants: &'a [i8],
    /// What one step is worth, for each group.
    pub scales: &'a [f32],
    /// The sum of the rounded values of each half of a group.
    pub sums: &'a [f32],
}

impl QuantisedRow<'_> {
    pub(super) fn groups(&self) -> usize {
        assert_eq!(self.quants.len(), self.scales.len() * GROUP);
        assert_eq!(self.sums.len(), self.scales.len() * 2);
        self.scales.len()
    }
}

impl QuantisedRows {
    /// Round rows of `inputs` values each.
    ///
    /// # Panics
    /// If groups do not fill a row, or rows do not fill `x`.
    pub fn new(x: &[f32], inputs: usize) -> Self {
        assert!(inputs > 0 && inputs.is_multiple_of(GROUP) && x.len().is_multiple_of(inputs));
        let groups = x.len() / GROUP;
        let mut rows = Self {
            quants: vec![0; x.len()],
            scales: vec![0.0; groups],
            sums: vec![0.0; groups * 2],
            inputs,
        };
        let one = |x: &[f32], quants: &mut [i8], scales: &mut [f32], sums: &mut [f32]| {
            let groups = x.chunks_exact(GROUP).zip(quants.chunks_exact_mut(GROUP));
            for (((x, quants), scale), sums) in
                groups.zip(scales.iter_mut()).zip(sums.chunks_exact_mut(2))
            {
                *scale = round_group(x, quants);
                for (sum, half) in sums.iter_mut().zip(quants.chunks_exact(16)) {
                    let total: i32 = half.iter().map(|quant| i32::from(*quant)).sum();
                    *sum = *scale * total as f32;
                }
            }
        };
        // Rounding a value costs about as much as sixteen multiply-adds.
        if crate::worth_sharing(x.len() * 16) {
            x.par_chunks(inputs)
                .zip(rows.quants.par_chunks_mut(inputs))
                .zip(rows.scales.par_chunks_mut(inputs / GROUP))
                .zip(rows.sums.par_chunks_mut(inputs / 16))
                .for_each(|(((x, quants), scales), sums)| one(x, quants, scales, sums));
        } else {
            one(x, &mut rows.quants, &mut rows.scales, &mut rows.sums);
        }
        rows
    }

    /// Row `index`.
    pub fn row(&self, index: usize) -> QuantisedRow<'_> {
        let groups = self.inputs / GROUP;
        QuantisedRow {
            quants: &self.quants[index * self.inputs..][..self.inputs],
            scales: &self.scales[index * groups..][..groups],
            sums: &self.sums[index * groups * 2..][..groups * 2],
        }
    }
}

/// Round a group to nearest, ties to even; returns what one step is worth.
fn round_group(x: &[f32], quants: &mut [i8]) -> f32 {
    #[cfg(target_arch = "x86_64")]
    if crate::has_avx2_fma() {
        assert!(x.len() == GROUP && quants.len() == GROUP);
        // SAFETY: the processor has the features, and both slices hold a group.
        #[allow(unsafe_code, reason = "calls a function compiled for checked features")]
        return unsafe { super::avx2::round_group(x, quants) };
    }
    round_group_portable(x, quants)
}

pub(super) fn round_group_portable(x: &[f32], quants: &mut [i8]) -> f32 {
    let largest = x
        .iter()
        .fold(0.0_f32, |largest, value| largest.max(value.abs()));
    let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
    for (quant, value) in quants.iter_mut().zip(x) {
        *quant = (value * inverse).round_ties_even() as i8;
    }
    largest / 127.0
}
