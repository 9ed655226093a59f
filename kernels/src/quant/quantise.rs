//! Quantising weights when they are loaded.

use half::f16;

use super::{BlockType, GROUP};

/// `Q8_0` blocks of weights, as the format's reference rounds them: to nearest, ties away from zero.
///
/// # Panics
/// If blocks do not fill `weights`.
pub fn quantise_q8_0(weights: &[f32]) -> Vec<u8> {
    assert!(weights.len().is_multiple_of(GROUP));
    let mut out = Vec::with_capacity(weights.len() / GROUP * BlockType::Q8_0.bytes());
    for block in weights.chunks_exact(GROUP) {
        let largest = block
            .iter()
            .fold(0.0_f32, |largest, weight| largest.max(weight.abs()));
        let scale = largest / 127.0;
        let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
        out.extend_from_slice(&f16::from_f32(scale).to_le_bytes());
        out.extend(
            block
                .iter()
                .map(|weight| (weight * inverse).round() as i8 as u8),
        );
    }
    out
}

/// `Q4_K` blocks of weights. Scale and minimum of each group are those of least squares for the
/// best of several roundings; then both are rounded to six bits and the weights once more.
///
/// # Panics
/// If blocks do not fill `weights`.
pub fn quantise_q4_k(weights: &[f32]) -> Vec<u8> {
    let kind = BlockType::Q4K;
    assert!(weights.len().is_multiple_of(kind.weights()));
    let mut out = Vec::with_capacity(weights.len() / kind.weights() * kind.bytes());
    for block in weights.chunks_exact(kind.weights()) {
        q4_k_block(block, &mut out);
    }
    out
}

const LEVELS: f32 = 15.0;
/// Largest scale or minimum of a group, in units of the block's.
const SIX_BITS: f32 = 63.0;

fn q4_k_block(block: &[f32], out: &mut Vec<u8>) {
    let mut fits = [Fit::default(); 8];
    for (fit, group) in fits.iter_mut().zip(block.chunks_exact(GROUP)) {
        *fit = Fit::best(group);
    }
    let unit = |largest: f32| f16::from_f32(largest / SIX_BITS);
    let scale_unit = unit(fits.iter().fold(0.0, |most, fit| fit.scale.max(most)));
    let min_unit = unit(fits.iter().fold(0.0, |most, fit| fit.min.max(most)));
    let units = |value: f32, unit: f16| {
        let unit = unit.to_f32();
        if unit > 0.0 {
            (value / unit).round().clamp(0.0, SIX_BITS) as u8
        } else {
            0
        }
    };
    let scales = fits.map(|fit| units(fit.scale, scale_unit));
    let mins = fits.map(|fit| units(fit.min, min_unit));
    out.extend_from_slice(&scale_unit.to_le_bytes());
    out.extend_from_slice(&min_unit.to_le_bytes());
    out.extend_from_slice(&pack_six_bits(&scales, &mins));
    let mut quants = [0; 256];
    for (index, (group, quants)) in block
        .chunks_exact(GROUP)
        .zip(quants.chunks_exact_mut(GROUP))
        .enumerate()
    {
        let scale = scale_unit.to_f32() * f32::from(scales[index]);
        let min = min_unit.to_f32() * f32::from(mins[index]);
        for (quant, weight) in quants.iter_mut().zip(group) {
            *quant = level(*weight, scale, min) as u8;
        }
    }
    for pair in quants.chunks_exact(2 * GROUP) {
        let (low, high) = pair.split_at(GROUP);
        out.extend(low.iter().zip(high).map(|(low, high)| low | high << 4));
    }
}

/// The level nearest to a weight.
fn level(weight: f32, scale: f32, min: f32) -> f32 {
    if scale > 0.0 {
        ((weight + min) / scale).round().clamp(0.0, LEVELS)
    } else {
        0.0
    }
}

/// Eight scales and eight minima of six bits in twelve bytes.
fn pack_six_bits(scales: &[u8; 8], mins: &[u8; 8]) -> [u8; 12] {
    let mut packed = [0; 12];
    for i in 0..4 {
        packed[i] = scales[i] | scales[i + 4] >> 4 << 6;
        packed[i + 4] = mins[i] | mins[i + 4] >> 4 << 6;
        packed[i + 8] = scales[i + 4] & 15 | mins[i + 4] << 4;
    }
    packed
}

/// `weight ≈ scale * level - min`, both at least zero.
#[derive(Debug, Clone, Copy, Default)]
struct Fit {
    scale: f32,
    min: f32,
}

impl Fit {
    fn best(group: &[f32]) -> Self {
        let low = group.iter().fold(0.0_f32, |low, weight| low.min(*weight));
        let high = group.iter().fold(low, |high, weight| high.max(*weight));
        let spread = Self {
            scale: (high - low) / LEVELS,
            min: -low,
        };
        if high <= low {
            return Self {
                scale: 0.0,
                min: -low,
            };
        }
        let mut best = (spread.error(group), spread);
        // Narrower and wider ranges than that of the extremes, each improved by least squares.
        for step in 0..=20 {
            let levels = LEVELS + 0.1 * (step as f32 - 10.0);
            let start = Self {
                scale: (high - low) / levels,
                min: -low,
            };
            let fit = start.refined(group);
            let error = fit.error(group);
            if error < best.0 {
                best = (error, fit);
            }
        }
        best.1
    }

    /// The least-squares line through the weights over the levels they have now.
    fn refined(self, group: &[f32]) -> Self {
        let count = group.len() as f32;
        let (mut levels, mut squares, mut weights, mut products) = (0.0, 0.0, 0.0, 0.0);
        for &weight in group {
            let level = level(weight, self.scale, self.min);
            levels += level;
            squares += level * level;
            weights += weight;
            products += level * weight;
        }
        let determinant = count * squares - levels * levels;
        if determinant <= 0.0 {
            return self;
        }
        let scale = (count * products - levels * weights) / determinant;
        let min = (levels * products - squares * weights) / determinant;
        if min < 0.0 {
            // The line through the origin; a minimum cannot be added.
            let scale = products / squares;
            return Self { scale, min: 0.0 };
        }
        Self { scale, min }
    }

    fn error(self, group: &[f32]) -> f32 {
        if self.scale <= 0.0 {
            return f32::INFINITY;
        }
        group
            .iter()
            .map(|&weight| {
                let value = self.scale * level(weight, self.scale, self.min) - self.min;
                (value - weight) * (value - weight)
            })
            .sum()
    }
}
