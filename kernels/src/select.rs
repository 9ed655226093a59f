//! Which tokens stay candidates for sampling. Nothing here sorts the whole vocabulary: selection
//! partitions, and only what was asked for in order is put in order.
//!
//! Weights are summed as whole numbers of [`WEIGHT_UNIT`]: such sums do not depend on their order, so
//! that a GPU, which adds in another, keeps and draws the same tokens (`choose.cu` of
//! `kernels/cuda`).

use std::cmp::Ordering;

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

/// The index of the highest value, the lowest such index; `None` if all are minus infinity or NaN.
pub fn argmax(values: &[f32]) -> Option<usize> {
    // The highest of each stretch without a branch, which vectorises; only a stretch that has a new
    // highest is looked through.
    const STRETCH: usize = 256;
    let mut best = None;
    let mut highest = f32::NEG_INFINITY;
    for (number, stretch) in values.chunks(STRETCH).enumerate() {
        if highest_of(stretch) <= highest {
            continue;
        }
        for (place, &value) in stretch.iter().enumerate() {
            if value > highest {
                highest = value;
                best = Some(number * STRETCH + place);
            }
        }
    }
    best
}

/// The highest of some numbers, minus infinity if there is none. NaN is lower than all.
fn highest_of(values: &[f32]) -> f32 {
    const LANES: usize = 16;
    let larger = |highest: f32, value: f32| if value > highest { value } else { highest };
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (chunks, rest) = values.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane = larger(*lane, *value);
        }
    }
    let highest = lanes.into_iter().fold(f32::NEG_INFINITY, larger);
    rest.iter().copied().fold(highest, larger)
}

/// The `count` highest of `values`, highest first, equals by index.
pub fn top(values: &[f32], count: usize) -> Vec<Candidate> {
    if count == 0 {
        return Vec::new();
    }
    let mut candidates: Vec<Candidate> = (0u32..)
        .zip(values)
        .map(|(id, &value)| Candidate { id, value })
        .collect();
    keep_top_k(&mut candidates, count);
    candidates.sort_unstable_by(best_first);
    candidates
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
    let target = ((u128::from(total) * u128::from(share(top_p))) >> SHARE_BITS) as u64;
    // All below this, were they as many as all, would not reach what may be left out: what is kept is
    // among the others, which are few as a rule.
    let least = (total - target) / candidates.len().max(1) as u64;
    // No number of units that a candidate may have is too large for this.
    let least = least as f64 * f64::from(WEIGHT_UNIT);
    candidates.retain(|candidate| f64::from(candidate.value) >= least);
    // Everything before `low` belongs to the result, everything from `high` on does not.
    let (mut low, mut high, mut reached) = (0, candidates.len(), 0);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        candidates[low..high].select_nth_unstable_by(middle - low, best_first);
        let upper = sum_units(&candidates[low..middle]);
        if reached + upper >= target {
            high = middle;
        } else {
            reached += upper;
            low = middle;
        }
    }
    candidates.truncate(high);
}

/// `top_p` as a whole number of 2^-32, at most all.
pub fn share(top_p: f32) -> u64 {
    (f64::from(top_p.clamp(0.0, 1.0)) * (1u64 << SHARE_BITS) as f64) as u64
}

/// A weight of at most 1, in whole units: by shifts, since no processor converts many at once.
#[inline(always)]
fn units(candidate: &Candidate) -> u64 {
    let bits = candidate.value.to_bits();
    let mantissa = u64::from((bits & 0x007f_ffff) | 0x0080_0000);
    // 1 has the exponent 127 and 2^40 units.
    let below_one = 127u32.saturating_sub(bits >> 23);
    mantissa << 17 >> below_one.min(63)
}

/// All weights, counted.
fn sum_units(candidates: &[Candidate]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if crate::has_avx2_fma() {
        // SAFETY: the processor has the features that the function is compiled for.
        #[allow(unsafe_code, reason = "calls a function compiled for checked features")]
        return unsafe { sum_units_avx2(candidates) };
    }
    candidates.iter().map(units).sum()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn sum_units_avx2(candidates: &[Candidate]) -> u64 {
    candidates.iter().map(units).sum()
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
            let weight = units(candidate);
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

/// The highest logit and the sum of all weights in units, as [`log_total`] takes them.
pub fn total_weight(logits: &[f32], candidates: &mut Vec<Candidate>) -> (f32, u64) {
    weigh(logits, 1.0, candidates);
    (highest_of(logits), sum_units(candidates))
}

/// Weigh tokens by `exp((logit - highest) / temperature)`: probabilities but for a common factor.
/// Tokens that weigh less than a [`WEIGHT_UNIT`] are left out.
pub fn weigh(logits: &[f32], temperature: f32, candidates: &mut Vec<Candidate>) {
    candidates.clear();
    let highest = highest_of(logits);
    #[cfg(target_arch = "x86_64")]
    if crate::has_avx2_fma() {
        // SAFETY: the processor has the features that the function is compiled for.
        #[allow(unsafe_code, reason = "calls a function compiled for checked features")]
        unsafe {
            push_weights_avx2(logits, highest, temperature, candidates);
        }
        return;
    }
    push_weights(logits, highest, temperature, candidates);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn push_weights_avx2(
    logits: &[f32],
    highest: f32,
    temperature: f32,
    candidates: &mut Vec<Candidate>,
) {
    push_weights(logits, highest, temperature, candidates);
}

#[inline(always)]
fn push_weights(logits: &[f32], highest: f32, temperature: f32, candidates: &mut Vec<Candidate>) {
    // Less than a unit.
    const LOWEST: f32 = -28.0;
    /// Weights that are computed side by side.
    const STRETCH: usize = 64;
    candidates.reserve(logits.len());
    for (first, stretch) in (0u32..).step_by(STRETCH).zip(logits.chunks(STRETCH)) {
        let mut weights = [0.0; STRETCH];
        for (weight, logit) in weights.iter_mut().zip(stretch) {
            let scaled = (logit - highest) / temperature;
            *weight = if scaled > LOWEST {
                crate::exp::exp(scaled)
            } else {
                0.0
            };
        }
        for (id, value) in (first..).zip(&weights[..stretch.len()]) {
            if *value >= WEIGHT_UNIT {
                candidates.push(Candidate { id, value: *value });
            }
        }
    }
}
