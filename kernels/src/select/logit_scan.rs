//! Filtering and sampling of a row of logits without sorting or listing the vocabulary.
//!
//! One pass finds the highest logit of each chunk. Filters and logprobs then read only chunks whose
//! maximum passes their bound, and a draw from the whole row sums weights by chunk.

use super::{
    CLASSES, Candidate, WEIGHT_UNIT, best_first, class, keep_reaching, keep_top_k, lowest_of_class,
    target, units,
};
use crate::exp::exp;
use crate::mask::apply_mask;

/// Tokens of a chunk: whole words of a mask.
const CHUNK: usize = 64;

/// Relative error of the exponential function: bounds on chunks are lower by this much.
const WEIGHT_ERROR: f32 = 1e-6;

/// Buffers of a [`LogitScan`], reused from row to row.
#[derive(Debug, Clone, Default)]
pub struct ScanScratch {
    maxima: Vec<f32>,
    sums: Vec<u64>,
    ranked: Vec<f32>,
}

/// A row of logits with the maximum of each chunk.
///
/// The weight of a token is `exp((logit - highest) / temperature)`: its unnormalised probability, 1 for
/// the most likely token. Weights below [`WEIGHT_UNIT`] count as 0.
#[derive(Debug)]
pub struct LogitScan<'a> {
    logits: &'a [f32],
    /// Highest logit of each chunk; NaN is lower than every number.
    maxima: &'a [f32],
    /// Weight of each chunk in units, at the temperature in `summed`.
    sums: &'a mut Vec<u64>,
    summed: Option<f32>,
    /// Scratch for selection.
    ranked: &'a mut Vec<f32>,
    highest: f32,
    all_numbers: bool,
}

impl<'a> LogitScan<'a> {
    /// Scan a row.
    pub fn new(logits: &'a [f32], scratch: &'a mut ScanScratch) -> Self {
        scratch.maxima.clear();
        let all_numbers = find_maxima(logits, &mut scratch.maxima);
        Self::found(logits, all_numbers, scratch)
    }

    /// Apply a mask ([`apply_mask`]) and scan the row. Also returns the number of allowed tokens.
    /// [`Self::all_numbers`] is about the row before masking.
    pub fn masked(
        logits: &'a mut [f32],
        mask: &[u32],
        scratch: &'a mut ScanScratch,
    ) -> (Self, usize) {
        scratch.maxima.clear();
        let (all_numbers, allowed) = mask_and_find_maxima(logits, mask, &mut scratch.maxima);
        (Self::found(logits, all_numbers, scratch), allowed)
    }

    fn found(logits: &'a [f32], all_numbers: bool, scratch: &'a mut ScanScratch) -> Self {
        let ScanScratch {
            maxima,
            sums,
            ranked,
        } = scratch;
        Self {
            logits,
            highest: highest_number(maxima).0,
            maxima,
            sums,
            summed: None,
            ranked,
            all_numbers,
        }
    }

    /// Whether no logit is NaN or infinity.
    pub fn all_numbers(&self) -> bool {
        self.all_numbers
    }

    /// Highest logit; minus infinity if there is none.
    pub fn highest(&self) -> f32 {
        self.highest
    }

    /// Token with the highest logit, of equals the lowest; `None` if all are minus infinity or NaN.
    pub fn likeliest(&self) -> Option<u32> {
        if self.highest == f32::NEG_INFINITY {
            return None;
        }
        let chunk = self.maxima.iter().position(|max| *max == self.highest)?;
        let place = self.chunk(chunk).iter();
        let place = place.copied().position(|logit| logit == self.highest)?;
        Some((chunk * CHUNK + place) as u32)
    }

    /// The `count` tokens with the highest logits, highest first, equals by token. None is NaN.
    pub fn top(&mut self, count: usize) -> Vec<Candidate> {
        let mut found = Vec::new();
        if count == 0 {
            return found;
        }
        self.ranked.clear();
        self.ranked.extend(self.maxima);
        // At least `count` chunks have a logit that is not lower.
        let bound = nth_highest(self.ranked, count).unwrap_or(f32::NEG_INFINITY);
        for (number, max) in self.maxima.iter().enumerate() {
            if *max >= bound {
                let tokens = (number * CHUNK) as u32..;
                let tokens = tokens.zip(self.chunk(number));
                let high = tokens.filter(|(_, logit)| **logit >= bound);
                found.extend(high.map(|(id, &value)| Candidate { id, value }));
            }
        }
        keep_top_k(&mut found, count);
        found.sort_unstable_by(best_first);
        found
    }

    /// Sum of all weights, in units.
    pub fn total(&mut self, temperature: f32) -> u64 {
        if self.summed != Some(temperature) {
            self.sums.clear();
            add_up(self.logits, self.highest, temperature, self.sums);
            self.summed = Some(temperature);
        }
        self.sums.iter().sum()
    }

    /// Sample from all tokens, as [`draw`](super::draw) does.
    pub fn draw(&mut self, temperature: f32, random: u64) -> Option<u32> {
        let total = self.total(temperature);
        let mut left = ((u128::from(random) * u128::from(total)) >> 64) as u64;
        for (number, &sum) in self.sums.iter().enumerate() {
            if left >= sum {
                left -= sum;
                continue;
            }
            let weights = weights_of(self.chunk(number), self.highest, temperature);
            for (id, weight) in ((number * CHUNK) as u32..).zip(weights) {
                let weight = units(weight);
                if left < weight {
                    return Some(id);
                }
                left -= weight;
            }
        }
        None
    }

    /// List the tokens whose weight is at least `weight`, in the order of their ids.
    pub fn at_least(&self, temperature: f32, weight: f32, found: &mut Vec<Candidate>) {
        found.clear();
        let least = weight.max(WEIGHT_UNIT);
        let scale = (self.highest, temperature);
        list_heavy(self.logits, self.maxima, scale, least, found);
    }

    /// Top-k: list the `count` heaviest tokens with a weight, as [`keep_top_k`] of all.
    pub fn heaviest(&mut self, temperature: f32, count: usize, found: &mut Vec<Candidate>) {
        self.ranked.clear();
        for maxima in self.maxima.chunks(CHUNK) {
            let highest = weights_of(maxima, self.highest, temperature);
            self.ranked.extend(&highest[..maxima.len()]);
        }
        // At least `count` chunks have a token that is not lighter.
        let bound = nth_highest(self.ranked, count).unwrap_or(0.0);
        self.at_least(temperature, bound, found);
        keep_top_k(found, count);
    }

    /// Top-p: list the fewest of the heaviest tokens that reach the part `top_p` of all weight, as
    /// [`keep_top_p`](super::keep_top_p) of all.
    pub fn heaviest_part(&mut self, temperature: f32, top_p: f32, found: &mut Vec<Candidate>) {
        let total = self.total(temperature);
        let target = target(total, top_p);
        let least = self.least_needed(temperature, total - target);
        self.at_least(temperature, least, found);
        keep_reaching(found, target);
    }

    /// A weight such that all lighter tokens together have at most `spare` units. [`Self::total`] must
    /// have been called with this temperature.
    fn least_needed(&self, temperature: f32, spare: u64) -> f32 {
        // By the class of a chunk's heaviest token: number of chunks, units of those tokens, units of the
        // whole chunks.
        let mut classes = [(0u64, 0u64, 0u64); CLASSES];
        // Units of all tokens but the heaviest of each chunk.
        let mut others = 0;
        let blocks = self.maxima.chunks(CHUNK).zip(self.sums.chunks(CHUNK));
        for (maxima, sums) in blocks {
            let heaviest = weights_of(maxima, self.highest, temperature);
            for (weight, sum) in heaviest.into_iter().zip(sums) {
                let of_class = &mut classes[class(weight)];
                of_class.0 += 1;
                of_class.1 += units(weight);
                of_class.2 += sum;
                others += sum.saturating_sub(units(weight));
            }
        }
        // Lighter than a weight are at most all tokens of chunks of lower classes and, of other chunks, all
        // but the heaviest token, each with less than that weight.
        let (mut below, mut chunks, mut least) = (0u64, self.maxima.len() as u64, 0.0);
        for (class, (count, heaviest, sum)) in classes.into_iter().enumerate() {
            let weight = lowest_of_class(class);
            let many = chunks.saturating_mul(CHUNK as u64 * units(weight));
            if others.min(below.saturating_add(many)) > spare {
                break;
            }
            least = weight;
            chunks -= count;
            others += heaviest;
            below += sum;
        }
        least
    }

    /// Logits of a chunk, from token `number * CHUNK` on.
    fn chunk(&self, number: usize) -> &'a [f32] {
        let rest = self.logits.get(number * CHUNK..).unwrap_or(&[]);
        &rest[..rest.len().min(CHUNK)]
    }
}

/// The `count`th highest number, `None` if there are fewer. Reorders the numbers.
fn nth_highest(numbers: &mut [f32], count: usize) -> Option<f32> {
    let place = numbers.len().checked_sub(count)?;
    (count > 0).then(|| *numbers.select_nth_unstable_by(place, f32::total_cmp).1)
}

/// Weights of the logits of a chunk, padded with zeros. Weights below about a unit are 0.
#[inline(always)]
fn weights_of(chunk: &[f32], highest: f32, temperature: f32) -> [f32; CHUNK] {
    // Less than a unit.
    const LOWEST: f32 = -28.0;
    let mut weights = [0.0; CHUNK];
    for (weight, logit) in weights.iter_mut().zip(chunk) {
        let scaled = (logit - highest) / temperature;
        // Weights are at most 1 even where the row has NaN or infinity.
        let scaled = if scaled > 0.0 { 0.0 } else { scaled };
        *weight = if scaled > LOWEST { exp(scaled) } else { 0.0 };
    }
    weights
}

/// Compiles a function twice, once for AVX2, and picks by the features of the processor.
macro_rules! vectorised {
    ($(#[$doc:meta])* fn $name:ident($($argument:ident: $kind:ty),* $(,)?) $(-> $result:ty)? $body:block) => {
        $(#[$doc])*
        fn $name($($argument: $kind),*) $(-> $result)? {
            #[inline(always)]
            fn plain($($argument: $kind),*) $(-> $result)? $body
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2")]
            fn wide($($argument: $kind),*) $(-> $result)? {
                plain($($argument),*)
            }
            #[cfg(target_arch = "x86_64")]
            if crate::has_avx2_fma() {
                // SAFETY: the processor has the features that the function is compiled for.
                #[allow(unsafe_code, reason = "calls a function compiled for checked features")]
                return unsafe { wide($($argument),*) };
            }
            plain($($argument),*)
        }
    };
}

vectorised! {
    /// Push the highest logit of each chunk. Returns whether no logit is NaN or infinity.
    fn find_maxima(logits: &[f32], maxima: &mut Vec<f32>) -> bool {
        let mut all_numbers = true;
        for chunk in logits.chunks(CHUNK) {
            let (highest, numbers) = highest_number(chunk);
            all_numbers &= numbers;
            maxima.push(highest);
        }
        all_numbers
    }
}

vectorised! {
    /// As [`find_maxima`], of the masked row; NaN and infinity are looked for before masking. Also returns
    /// the number of allowed tokens.
    fn mask_and_find_maxima(logits: &mut [f32], mask: &[u32], maxima: &mut Vec<f32>) -> (bool, usize) {
        const WORDS: usize = CHUNK / 32;
        let (mut all_numbers, mut allowed) = (true, 0);
        for (number, chunk) in logits.chunks_mut(CHUNK).enumerate() {
            all_numbers &= highest_number(chunk).1;
            let words = mask.get(number * WORDS..).unwrap_or(&[]);
            allowed += apply_mask(chunk, &words[..words.len().min(WORDS)]);
            maxima.push(highest_number(chunk).0);
        }
        (all_numbers, allowed)
    }
}

vectorised! {
    /// Push the weight of each chunk, in units.
    fn add_up(logits: &[f32], highest: f32, temperature: f32, sums: &mut Vec<u64>) {
        // Units are counted in two parts of 20 bits: 64 of either fit 32 bits, and conversions are of 32.
        const PART_BITS: u32 = 20;
        const PART: f32 = (1 << PART_BITS) as f32;
        for chunk in logits.chunks(CHUNK) {
            let (mut high, mut low) = (0u32, 0u32);
            for weight in weights_of(chunk, highest, temperature) {
                let scaled = weight * PART;
                // SAFETY: weights are 0 to about 1, so that this is a number near 2^20 at most.
                #[allow(unsafe_code, reason = "a conversion without checks, which vectorises")]
                let whole = unsafe { scaled.to_int_unchecked::<i32>() };
                let rest = (scaled - whole as f32) * PART;
                // SAFETY: what an integer leaves of a number is 0 to 1, so that this is at most 2^20.
                #[allow(unsafe_code, reason = "a conversion without checks, which vectorises")]
                let rest = unsafe { rest.to_int_unchecked::<i32>() };
                high = high.wrapping_add(whole as u32);
                low = low.wrapping_add(rest as u32);
            }
            sums.push((u64::from(high) << PART_BITS) + u64::from(low));
        }
    }
}

vectorised! {
    /// List the tokens whose weight is at least `least`, in the order of their ids.
    fn list_heavy(
        logits: &[f32],
        maxima: &[f32],
        scale: (f32, f32),
        least: f32,
        found: &mut Vec<Candidate>,
    ) {
        let bound = least * (1.0 - WEIGHT_ERROR);
        let blocks = maxima.chunks(CHUNK).zip(logits.chunks(CHUNK * CHUNK));
        for (block, (maxima, logits)) in blocks.enumerate() {
            let heaviest = weights_of(maxima, scale.0, scale.1);
            for (place, chunk) in logits.chunks(CHUNK).enumerate() {
                if heaviest[place] < bound {
                    continue;
                }
                let first = (block * CHUNK + place) * CHUNK;
                let weights = weights_of(chunk, scale.0, scale.1);
                // Branch-free: with about half of the tokens heavy, branches would be mispredicted.
                let (mut heavy, mut count) = ([Candidate { id: 0, value: 0.0 }; CHUNK], 0);
                for (id, value) in (first as u32..).zip(weights) {
                    heavy[count % CHUNK] = Candidate { id, value };
                    count += usize::from(value >= least);
                }
                found.extend_from_slice(&heavy[..count]);
            }
        }
    }
}

/// Highest logit, minus infinity if there is none, and whether no logit is NaN or infinity. NaN is lower
/// than every number.
#[inline(always)]
fn highest_number(logits: &[f32]) -> (f32, bool) {
    const LANES: usize = 16;
    let larger = |highest: f32, logit: f32| if logit > highest { logit } else { highest };
    let none = |logit: f32| u32::from(logit >= f32::INFINITY || logit.is_nan());
    let (mut highest, mut others) = ([f32::NEG_INFINITY; LANES], [0; LANES]);
    let (chunks, rest) = logits.as_chunks::<LANES>();
    for chunk in chunks {
        for ((highest, others), logit) in highest.iter_mut().zip(&mut others).zip(chunk) {
            *highest = larger(*highest, *logit);
            *others |= none(*logit);
        }
    }
    for ((highest, others), logit) in highest.iter_mut().zip(&mut others).zip(rest) {
        *highest = larger(*highest, *logit);
        *others |= none(*logit);
    }
    let all_numbers = others.into_iter().fold(0, |any, others| any | others) == 0;
    (
        highest.into_iter().fold(f32::NEG_INFINITY, larger),
        all_numbers,
    )
}
