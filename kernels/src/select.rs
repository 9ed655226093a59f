//! Which tokens stay candidates for sampling. Nothing here sorts the whole vocabulary, nor lists it: what a
//! row keeps is found in it ([`Survey`]), selection partitions that, and only what was asked for in order is
//! put in order.
//!
//! Weights are summed as whole numbers of [`WEIGHT_UNIT`]: such sums do not depend on their order, so
//! that a GPU, which adds in another, keeps and draws the same tokens (`choose.cu` of
//! `kernels/cuda`).

use std::cmp::Ordering;

mod survey;

pub use survey::{Room, Survey};

/// What weights are counted in, of the likeliest token's: 2^-40. A token that weighs less has no
/// weight; all of them together, in a vocabulary of 2^18, have less than a four millionth.
pub const WEIGHT_UNIT: f32 = 1.0 / (1u64 << 40) as f32;

/// `top_p` is counted in this part of the whole.
const SHARE_BITS: u32 = 32;

/// A token that may be chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// Token id.
    pub id: u32,
    /// Its logit, or its unnormalised probability, as the op says.
    pub value: f32,
}

/// The highest value first; among equals the lowest id.
fn best_first(a: &Candidate, b: &Candidate) -> Ordering {
    b.value.total_cmp(&a.value).then(a.id.cmp(&b.id))
}

/// The `count` highest of `values`, highest first, equals by index. None is NaN.
pub fn top(values: &[f32], count: usize) -> Vec<Candidate> {
    Survey::new(values, &mut Room::default()).top(count)
}

/// Keep the `count` highest, in no particular but in a reproducible order.
pub fn keep_top_k(candidates: &mut Vec<Candidate>, count: usize) {
    if count < candidates.len() {
        if count > 0 {
            candidates.select_nth_unstable_by(count - 1, best_first);
        }
        candidates.truncate(count);
    }
}

/// Keep those at least `min_p` times as likely as the likeliest. Values are probabilities, not
/// necessarily normalised.
pub fn keep_min_p(candidates: &mut Vec<Candidate>, min_p: f32) {
    let highest = candidates
        .iter()
        .map(|candidate| candidate.value)
        .fold(0.0, f32::max);
    candidates.retain(|candidate| candidate.value >= min_p * highest);
}

/// Keep the fewest of the likeliest whose probabilities reach `top_p` of all. Values are weights of at
/// most 1. Keeps at least one.
pub fn keep_top_p(candidates: &mut Vec<Candidate>, top_p: f32) {
    let total = sum_units(candidates);
    keep_reaching(candidates, target(total, top_p));
}

/// The part `top_p` of a sum of units.
fn target(total: u64, top_p: f32) -> u64 {
    ((u128::from(total) * u128::from(share(top_p))) >> SHARE_BITS) as u64
}

/// Keep the fewest of the heaviest that have so many units, in their order. Keeps at least one.
fn keep_reaching(candidates: &mut Vec<Candidate>, target: u64) {
    let mut sums = [0u64; CLASSES];
    for candidate in &*candidates {
        sums[class(candidate.value)] += units(candidate.value);
    }
    let (mut reached, mut last) = (0, CLASSES - 1);
    // Some weight, so that the last class is not empty if there is any.
    while last > 0 && reached + sums[last] < target.max(1) {
        reached += sums[last];
        last -= 1;
    }
    let of_class = candidates.iter().filter(|one| class(one.value) == last);
    let mut inside: Vec<Candidate> = of_class.copied().collect();
    // Everything before `low` belongs to the result, everything from `high` on does not.
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

/// Keep those that are no worse than `worst`, in their order. Without branches, which nobody can predict
/// where about half are kept.
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

/// Weights are told apart by eighths of their powers of two at first: all from a unit to 1.
const CLASSES: usize = (40 << 3) + 1;
/// What is left of the bits of a weight in its class.
const CLASS_BITS: u32 = 20;

/// The class of a weight; those below a unit are in the first.
#[inline(always)]
fn class(weight: f32) -> usize {
    let above_unit = weight.to_bits().saturating_sub(WEIGHT_UNIT.to_bits());
    ((above_unit >> CLASS_BITS) as usize).min(CLASSES - 1)
}

/// The lowest weight of a class, from a unit on.
fn lowest_of_class(class: usize) -> f32 {
    f32::from_bits(WEIGHT_UNIT.to_bits() + ((class as u32) << CLASS_BITS))
}

/// `top_p` as a whole number of 2^-32, at most all.
pub fn share(top_p: f32) -> u64 {
    (f64::from(top_p.clamp(0.0, 1.0)) * (1u64 << SHARE_BITS) as f64) as u64
}

/// A weight of at most 1, in whole units: by shifts, since no processor converts many at once.
#[inline(always)]
fn units(weight: f32) -> u64 {
    let bits = weight.to_bits();
    let mantissa = u64::from((bits & 0x007f_ffff) | 0x0080_0000);
    // 1 has the exponent 127 and 2^40 units.
    let below_one = 127u32.saturating_sub(bits >> 23);
    mantissa << 17 >> below_one.min(63)
}

/// All weights, counted.
fn sum_units(candidates: &[Candidate]) -> u64 {
    candidates.iter().map(|one| units(one.value)).sum()
}

/// Draw one of the candidates, whose values are weights of at most 1: in the order of their ids, the
/// first one up to which the weights exceed the part `random / 2^64` of all. `None` if nothing has
/// weight. Leaves them in that order.
pub fn draw(candidates: &mut [Candidate], random: u64) -> Option<u32> {
    /// Candidates that are passed over at once.
    const STRETCH: usize = 256;
    if !candidates.is_sorted_by_key(|candidate| candidate.id) {
        candidates.sort_unstable_by_key(|candidate| candidate.id);
    }
    let stretches: Vec<u64> = candidates.chunks(STRETCH).map(sum_units).collect();
    let total: u64 = stretches.iter().sum();
    let mut left = ((u128::from(random) * u128::from(total)) >> 64) as u64;
    for (stretch, weight) in candidates.chunks(STRETCH).zip(stretches) {
        if left >= weight {
            left -= weight;
            continue;
        }
        for candidate in stretch {
            let weight = units(candidate.value);
            if left < weight {
                return Some(candidate.id);
            }
            left -= weight;
        }
    }
    None
}

/// The logarithm of the sum of `exp(logits)` from the highest and from the sum of all weights at
/// temperature 1, in units: minus infinity where nothing has weight.
pub fn log_total(highest: f32, weights: u64) -> f32 {
    highest + (weights as f64 * f64::from(WEIGHT_UNIT)).ln() as f32
}

#[cfg(test)]
mod tests;
