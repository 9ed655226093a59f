//! Choosing from a row of logits without a list of all its tokens.
//!
//! A row is looked through once for the highest logit of each stretch. Filters and reports then find the
//! few tokens that they keep in the few stretches that have them, and a draw from all tokens adds their
//! weights up by stretch and writes none of them.

use super::{
    CLASSES, Candidate, WEIGHT_UNIT, best_first, class, keep_reaching, keep_top_k, lowest_of_class,
    target, units,
};
use crate::exp::exp;
use crate::mask::apply_mask;

/// Tokens that are looked at together: whole words of a mask.
const STRETCH: usize = 64;

/// So much less may the weight of the higher of two logits be, by the error of the exponential function.
const WEIGHT_ERROR: f32 = 1e-6;

/// What is found in a row, kept for the next one.
#[derive(Debug, Clone, Default)]
pub struct Room {
    maxima: Vec<f32>,
    sums: Vec<u64>,
    ranked: Vec<f32>,
}

/// A row of logits that was looked through.
///
/// Tokens are weighed by `exp((logit - highest) / temperature)`: probabilities but for a common factor,
/// 1 for the likeliest. One that weighs less than a [`WEIGHT_UNIT`] weighs nothing.
#[derive(Debug)]
pub struct Survey<'a> {
    logits: &'a [f32],
    /// The highest logit of each stretch. NaN is lower than all.
    maxima: &'a [f32],
    /// The weight of each stretch in units, at the temperature that is `summed`.
    sums: &'a mut Vec<u64>,
    summed: Option<f32>,
    /// Numbers to be put in order.
    ranked: &'a mut Vec<f32>,
    highest: f32,
    all_numbers: bool,
}

impl<'a> Survey<'a> {
    /// Look through a row.
    pub fn new(logits: &'a [f32], room: &'a mut Room) -> Self {
        room.maxima.clear();
        let all_numbers = find_maxima(logits, &mut room.maxima);
        Self::found(logits, all_numbers, room)
    }

    /// The same after [`apply_mask`]; tells also how many tokens are allowed. Whether all are numbers is
    /// said of the row before.
    pub fn masked(logits: &'a mut [f32], mask: &[u32], room: &'a mut Room) -> (Self, usize) {
        room.maxima.clear();
        let (all_numbers, allowed) = mask_and_find_maxima(logits, mask, &mut room.maxima);
        (Self::found(logits, all_numbers, room), allowed)
    }

    fn found(logits: &'a [f32], all_numbers: bool, room: &'a mut Room) -> Self {
        let Room {
            maxima,
            sums,
            ranked,
        } = room;
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

    /// Whether all logits are numbers below infinity.
    pub fn all_numbers(&self) -> bool {
        self.all_numbers
    }

    /// The highest logit; minus infinity if there is none.
    pub fn highest(&self) -> f32 {
        self.highest
    }

    /// The token with the highest logit, of several the lowest; `None` if all are minus infinity or NaN.
    pub fn likeliest(&self) -> Option<u32> {
        if self.highest == f32::NEG_INFINITY {
            return None;
        }
        let stretch = self.maxima.iter().position(|max| *max == self.highest)?;
        let place = self.stretch(stretch).iter();
        let place = place.copied().position(|logit| logit == self.highest)?;
        Some((stretch * STRETCH + place) as u32)
    }

    /// The `count` tokens with the highest logits, the highest first, equals by token. None is NaN.
    pub fn top(&mut self, count: usize) -> Vec<Candidate> {
        let mut found = Vec::new();
        if count == 0 {
            return found;
        }
        self.ranked.clear();
        self.ranked.extend(self.maxima);
        // So many logits, of as many stretches, are not lower.
        let bound = nth_highest(self.ranked, count).unwrap_or(f32::NEG_INFINITY);
        for (number, max) in self.maxima.iter().enumerate() {
            if *max >= bound {
                let tokens = (number * STRETCH) as u32..;
                let tokens = tokens.zip(self.stretch(number));
                let high = tokens.filter(|(_, logit)| **logit >= bound);
                found.extend(high.map(|(id, &value)| Candidate { id, value }));
            }
        }
        keep_top_k(&mut found, count);
        found.sort_unstable_by(best_first);
        found
    }

    /// All weights together, in units.
    pub fn total(&mut self, temperature: f32) -> u64 {
        if self.summed != Some(temperature) {
            self.sums.clear();
            add_up(self.logits, self.highest, temperature, self.sums);
            self.summed = Some(temperature);
        }
        self.sums.iter().sum()
    }

    /// Draw from all tokens, as [`draw`](super::draw) does.
    pub fn draw(&mut self, temperature: f32, random: u64) -> Option<u32> {
        let total = self.total(temperature);
        let mut left = ((u128::from(random) * u128::from(total)) >> 64) as u64;
        for (number, &sum) in self.sums.iter().enumerate() {
            if left >= sum {
                left -= sum;
                continue;
            }
            let weights = weights_of(self.stretch(number), self.highest, temperature);
            for (id, weight) in ((number * STRETCH) as u32..).zip(weights) {
                let weight = units(weight);
                if left < weight {
                    return Some(id);
                }
                left -= weight;
            }
        }
        None
    }

    /// List the tokens with their weights that weigh at least so much, by token.
    pub fn at_least(&self, temperature: f32, weight: f32, found: &mut Vec<Candidate>) {
        found.clear();
        let least = weight.max(WEIGHT_UNIT);
        let scale = (self.highest, temperature);
        list_heavy(self.logits, self.maxima, scale, least, found);
    }

    /// List the `count` tokens that weigh most, and with each that weighs more than nothing; as
    /// [`keep_top_k`] of all.
    pub fn heaviest(&mut self, temperature: f32, count: usize, found: &mut Vec<Candidate>) {
        self.ranked.clear();
        for maxima in self.maxima.chunks(STRETCH) {
            let highest = weights_of(maxima, self.highest, temperature);
            self.ranked.extend(&highest[..maxima.len()]);
        }
        // So many tokens, of as many stretches, weigh no less.
        let bound = nth_highest(self.ranked, count).unwrap_or(0.0);
        self.at_least(temperature, bound, found);
        keep_top_k(found, count);
    }

    /// List the fewest of the heaviest tokens that have the part `top_p` of all weight; as
    /// [`keep_top_p`](super::keep_top_p) of all.
    pub fn heaviest_part(&mut self, temperature: f32, top_p: f32, found: &mut Vec<Candidate>) {
        let total = self.total(temperature);
        let target = target(total, top_p);
        let least = self.least_needed(temperature, total - target);
        self.at_least(temperature, least, found);
        keep_reaching(found, target);
    }

    /// A weight below which all tokens together have no more than `spare` units, after their sums were
    /// made at this temperature.
    fn least_needed(&self, temperature: f32, spare: u64) -> f32 {
        // Of the stretches whose heaviest token is of a class: their number, the units of those tokens, and
        // of all.
        let mut classes = [(0u64, 0u64, 0u64); CLASSES];
        // Units of all tokens but the heaviest of each stretch.
        let mut others = 0;
        let blocks = self.maxima.chunks(STRETCH).zip(self.sums.chunks(STRETCH));
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
        // Below a weight lie at most all tokens of the stretches of lower classes, and of others all but the
        // heaviest; and of those no more than if each of them weighed just less.
        let (mut below, mut stretches, mut least) = (0u64, self.maxima.len() as u64, 0.0);
        for (class, (count, heaviest, sum)) in classes.into_iter().enumerate() {
            let weight = lowest_of_class(class);
            let many = stretches.saturating_mul(STRETCH as u64 * units(weight));
            if others.min(below.saturating_add(many)) > spare {
                break;
            }
            least = weight;
            stretches -= count;
            others += heaviest;
            below += sum;
        }
        least
    }

    /// Logits of a stretch, from token `number * STRETCH` on.
    fn stretch(&self, number: usize) -> &'a [f32] {
        let rest = self.logits.get(number * STRETCH..).unwrap_or(&[]);
        &rest[..rest.len().min(STRETCH)]
    }
}

/// The `count`th highest of some numbers, which are put in another order; `None` if there are fewer.
fn nth_highest(numbers: &mut [f32], count: usize) -> Option<f32> {
    let place = numbers.len().checked_sub(count)?;
    (count > 0).then(|| *numbers.select_nth_unstable_by(place, f32::total_cmp).1)
}

/// Weights of the logits of a stretch, followed by zeros. Those of less than about a unit are 0.
#[inline(always)]
fn weights_of(stretch: &[f32], highest: f32, temperature: f32) -> [f32; STRETCH] {
    // Less than a unit.
    const LOWEST: f32 = -28.0;
    let mut weights = [0.0; STRETCH];
    for (weight, logit) in weights.iter_mut().zip(stretch) {
        let scaled = (logit - highest) / temperature;
        // None is higher than the highest; said so that weights are at most 1 whatever comes.
        let scaled = if scaled > 0.0 { 0.0 } else { scaled };
        *weight = if scaled > LOWEST { exp(scaled) } else { 0.0 };
    }
    weights
}

/// Defines a function twice: as it is, and compiled for AVX2, which is called where the processor has it.
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
    /// Add the highest logit of each stretch. Returns whether all are numbers below infinity.
    fn find_maxima(logits: &[f32], maxima: &mut Vec<f32>) -> bool {
        let mut all_numbers = true;
        for stretch in logits.chunks(STRETCH) {
            let (highest, numbers) = highest_number(stretch);
            all_numbers &= numbers;
            maxima.push(highest);
        }
        all_numbers
    }
}

vectorised! {
    /// The same after masking, of which the numbers were before. Returns also how many tokens are allowed.
    fn mask_and_find_maxima(logits: &mut [f32], mask: &[u32], maxima: &mut Vec<f32>) -> (bool, usize) {
        const WORDS: usize = STRETCH / 32;
        let (mut all_numbers, mut allowed) = (true, 0);
        for (number, stretch) in logits.chunks_mut(STRETCH).enumerate() {
            all_numbers &= highest_number(stretch).1;
            let words = mask.get(number * WORDS..).unwrap_or(&[]);
            allowed += apply_mask(stretch, &words[..words.len().min(WORDS)]);
            maxima.push(highest_number(stretch).0);
        }
        (all_numbers, allowed)
    }
}

vectorised! {
    /// Add the weight of each stretch, in units.
    fn add_up(logits: &[f32], highest: f32, temperature: f32, sums: &mut Vec<u64>) {
        // Units are counted in two parts of 20 bits: 64 of either fit 32 bits, and conversions are of 32.
        const PART_BITS: u32 = 20;
        const PART: f32 = (1 << PART_BITS) as f32;
        for stretch in logits.chunks(STRETCH) {
            let (mut high, mut low) = (0u32, 0u32);
            for weight in weights_of(stretch, highest, temperature) {
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
    /// List the tokens with their weights that weigh at least so much, by token.
    fn list_heavy(
        logits: &[f32],
        maxima: &[f32],
        scale: (f32, f32),
        least: f32,
        found: &mut Vec<Candidate>,
    ) {
        let bound = least * (1.0 - WEIGHT_ERROR);
        let blocks = maxima.chunks(STRETCH).zip(logits.chunks(STRETCH * STRETCH));
        for (block, (maxima, logits)) in blocks.enumerate() {
            let heaviest = weights_of(maxima, scale.0, scale.1);
            for (place, stretch) in logits.chunks(STRETCH).enumerate() {
                if heaviest[place] < bound {
                    continue;
                }
                let first = (block * STRETCH + place) * STRETCH;
                let weights = weights_of(stretch, scale.0, scale.1);
                // Without branches, which nobody can predict where about half are heavy.
                let (mut heavy, mut count) = ([Candidate { id: 0, value: 0.0 }; STRETCH], 0);
                for (id, value) in (first as u32..).zip(weights) {
                    heavy[count % STRETCH] = Candidate { id, value };
                    count += usize::from(value >= least);
                }
                found.extend_from_slice(&heavy[..count]);
            }
        }
    }
}

/// The highest of some logits, minus infinity if there is none, and whether all are numbers below
/// infinity. NaN is lower than all.
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
