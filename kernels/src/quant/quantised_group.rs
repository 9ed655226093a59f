//! A group of activations in eight bits, as products read it.

use super::GROUP;

/// One group of a row: integers with their scale and sums.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub struct QuantisedGroup {
    /// The integers.
    pub quants: [i8; GROUP],
    /// Value of one integer step.
    pub scale: f32,
    /// The sum of the rounded values: the scale times the sum of the integers.
    pub scaled_sum: f32,
    /// `scaled_sum` of the first half of the group.
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

    /// Set the sums from those of the two halves.
    #[inline(always)]
    pub(super) fn set_sums(&mut self, first_half: i32, second_half: i32) {
        self.sum = first_half + second_half;
        self.scaled_sum = self.scale * self.sum as f32;
        self.scaled_first_half = self.scale * first_half as f32;
    }
}
