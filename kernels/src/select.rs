//! Sampling filters: top-k, min-p, top-p and the draw. The vocabulary is neither sorted nor listed:
//! [`LogitScan`] finds the candidates of a row, selection partitions them, and only top logprobs are
//! sorted.
//!
//! Weights are summed as integers in [`WEIGHT_UNIT`]s. Such sums do not depend on the order of
//! additions, so that a GPU keeps and draws the same tokens (`sample.cu` of `kernels/cuda`).

use std::cmp::Ordering;

mod logit_scan;

pub use logit_scan::{LogitScan, ScanScratch};

/// Unit of weights: 2^-40 of the weight of the most likely token. Lighter tokens count as 0; together,
/// in a vocabulary of 2^18, they have less than a four millionth of the weight.
pub const WEIGHT_UNIT: f32 = 1.0 / (1u64 << 40) as f32;

/// `top_p` is rounded to a multiple of 2^-32.
const SHARE_BITS: u32 = 32;

/// A token that may be sampled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// Token id.
    pub id: u32,
    /// Logit or unnormalised probability, as the op says.
    pub value: f32,
}

/// Order of candidates: highest value first, equals by id.
fn best_first(a: &Candidate, b: &Candidate) -> Ordering {
    b.value.total_cmp(&a.value).then(a.id.cmp(&b.id))
}

/// The `count` highest of `values`, highest first, equals by index. None is NaN.
pub fn top(values: &[f32], count: usize) -> Vec<Candidate> {
    LogitScan::new(values, &mut ScanScratch::default()).top(count)
}

/// Top-k: keep the `count` highest. Their order is unspecified but reproducible.
pub fn keep_top_k(candidates: &mut Vec<Candidate>, count: usize) {
    if count < candidates.len() {
        if count > 0 {
            candidates.select_nth_unstable_by(count - 1, best_first);
        }
        candidates.truncate(count);
    }
}

/// Min-p: keep candidates at least `min_p` times as likely as the most likely one. Values are
/// probabilities, normalised or not.
pub fn keep_min_p(candidates: &mut Vec<Candidate>, min_p: f32) {
    let highest = candidates
        .iter()
        .map(|candidate| candidate.value)
        .fold(0.0, f32::max);
    candidates.retain(|candidate| candidate.value >= min_p * highest);
}

/// Top-p: keep the fewest of the most likely candidates that reach the part `top_p` of all weight. Values
/// are weights of at most 1. Keeps at least one.
pub fn keep_top_p(candidates: &mut Vec<Candidate>, top_p: f32) {
    let total = sum_units(candidates);
    keep_reaching(candidates, target(total, top_p));
}

/// The part `top_p` of a sum of units.
fn target(total: u64, top_p: f32) -> u64 {
    ((u128::from(total) * u128::from(share(top_p))) >> SHARE_BITS) as u64
}

/// Keep the fewest of the heaviest candidates that have `target` units, in their order, and at least one.
fn keep_reaching(candidates: &mut Vec<Candidate>, target: u64) {
    let mut sums = [0u64; CLASSES];
    for candidate in &*candidates {
        sums[class(candidate.value)] += units(candidate.value);
    }
    let (mut reached, mut last) = (0, CLASSES - 1);
    // At least one unit, so that the last class is not empty if any candidate has weight.
    while last > 0 && reached + sums[last] < target.max(1) {
        reached += sums[last];
        last -= 1;
    }
    let of_class = candidates.iter().filter(|one| class(one.value) == last);
    let mut inside: Vec<Candidate> = of_class.copied().collect();
    // Binary search: candidates before `low` are kept, those from `high` on are not.
    let (mut low, mut high) = (0, inside.len());
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        inside[low..high].select_nth_unstable_by(middle - low, best_first);
        let upper = sum_units(&inside[low..middle]);
        if reached + upper >= target {
            high = middle;
        } else {
            reached += upper;
            low = middle;
        }
    }
    if let Some(worst) = inside[..high].iter().copied().max_by(best_first) {
        keep_down_to(candidates, worst);
    }
}

/// Keep candidates that are no worse than `worst`, in their order. Branch-free: with about half of them
/// kept, branches would be mispredicted.
fn keep_down_to(candidates: &mut Vec<Candidate>, worst: Candidate) {
    let mut kept = 0;
    for place in 0..candidates.len() {
        let one = candidates[place];
        candidates[kept] = one;
        let better = one.value > worst.value;
        kept += usize::from(better | ((one.value == worst.value) & (one.id <= worst.id)));
    }
    candidates.truncate(kept);
}

/// Classes of weights from a unit to 1: eight for each power of two.
const CLASSES: usize = (40 << 3) + 1;
/// Bits of a weight below its class.
const CLASS_BITS: u32 = 20;

/// Class of a weight; weights below a unit are in the first.
#[inline(always)]
fn class(weight: f32) -> usize {
    let above_unit = weight.to_bits().saturating_sub(WEIGHT_UNIT.to_bits());
    ((above_unit >> CLASS_BITS) as usize).min(CLASSES - 1)
}

/// Lowest weight of a class.
fn lowest_of_class(class: usize) -> f32 {
    f32::from_bits(WEIGHT_UNIT.to_bits() + ((class as u32) << CLASS_BITS))
}

/// `top_p` in units of 2^-32.
pub fn share(top_p: f32) -> u64 {
    (f64::from(top_p.clamp(0.0, 1.0)) * (1u64 << SHARE_BITS) as f64) as u64
}

/// Units of a weight of at most 1, by shifts: there is no vector conversion to 64 bits.
#[inline(always)]
fn units(weight: f32) -> u64 {
    let bits = weight.to_bits();
    let mantissa = u64::from((bits & 0x007f_ffff) | 0x0080_0000);
    // 1 has the exponent 127 and 2^40 units.
    let below_one = 127u32.saturating_sub(bits >> 23);
    mantissa << 17 >> below_one.min(63)
}

/// Sum of all weights, in units.
fn sum_units(candidates: &[Candidate]) -> u64 {
    candidates.iter().map(|one| units(one.value)).sum()
}

/// Sample one of the candidates, whose values are weights of at most 1: in the order of their ids, the
/// first one at which the cumulative weight exceeds `random / 2^64` of all. `None` if none has weight.
/// Sorts the candidates by id.
pub fn draw(candidates: &mut [Candidate], random: u64) -> Option<u32> {
    /// Candidates whose weights are summed before they are searched.
    const CHUNK: usize = 256;
    if !candidates.is_sorted_by_key(|candidate| candidate.id) {
        candidates.sort_unstable_by_key(|candidate| candidate.id);
    }
    let chunks: Vec<u64> = candidates.chunks(CHUNK).map(sum_units).collect();
    let total: u64 = chunks.iter().sum();
    let mut left = ((u128::from(random) * u128::from(total)) >> 64) as u64;
    for (chunk, weight) in candidates.chunks(CHUNK).zip(chunks) {
        if left >= weight {
            left -= weight;
            continue;
        }
        for candidate in chunk {
            let weight = units(candidate.value);
            if left < weight {
                return Some(candidate.id);
            }
            left -= weight;
        }
    }
    None
}

/// Log-sum-exp of a row from its highest logit and the units of all weights at temperature 1; minus
/// infinity if none has weight.
pub fn log_total(highest: f32, weights: u64) -> f32 {
    highest + (weights as f64 * f64::from(WEIGHT_UNIT)).ln() as f32
}

#[cfg(test)]
mod tests;
