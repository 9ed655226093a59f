//! Sixteen numbers on any processor.
#![allow(
    unsafe_code,
    reason = "an interface that is unsafe for other instruction sets"
)]

use half::{bf16, f16};

use super::tile::{self, Operands, Sixteen, Weight, by_size};
use super::{FloatType, PANEL_ROWS};

/// Sixteen numbers.
#[derive(Clone, Copy)]
struct Numbers([f32; PANEL_ROWS]);

impl Sixteen for Numbers {
    #[inline(always)]
    unsafe fn zeros() -> Self {
        Self([0.0; PANEL_ROWS])
    }

    #[inline(always)]
    unsafe fn add_products(self, x: f32, weights: Self) -> Self {
        Self(std::array::from_fn(|row| self.0[row] + x * weights.0[row]))
    }

    #[inline(always)]
    unsafe fn add_to(self, sums: &mut [f32; PANEL_ROWS]) {
        for (sum, number) in sums.iter_mut().zip(self.0) {
            *sum += number;
        }
    }
}

macro_rules! weight {
    ($type:ty, $kind:expr) => {
        impl Weight<Numbers> for $type {
            #[inline(always)]
            unsafe fn load(from: *const Self) -> Numbers {
                // SAFETY: the caller promises sixteen numbers.
                let numbers = unsafe { from.cast::<[Self; PANEL_ROWS]>().read() };
                Numbers(std::array::from_fn(|row| {
                    f32::from(numbers[const { $kind }.place(row)])
                }))
            }
        }
    };
}

weight!(f32, FloatType::F32);
weight!(f16, FloatType::F16);
weight!(bf16, FloatType::Bf16);

/// The products of the rows of a tile with its panels.
///
/// # Safety
/// The operands are those of so many rows and panels, a size that there is.
pub(super) unsafe fn tile(kind: FloatType, size: (usize, usize), operands: Operands) {
    // SAFETY: as the caller promises; every processor has what this needs.
    unsafe { by_size!(kind, size, rows(operands)) }
}

/// # Safety
/// As [`tile::tile`].
unsafe fn rows<W: Weight<Numbers>, const R: usize, const P: usize>(operands: Operands) {
    // SAFETY: as the caller promises.
    unsafe { tile::tile::<Numbers, W, R, P>(operands) }
}
