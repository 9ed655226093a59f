//! Rotary position embeddings and their frequencies.

use std::f64::consts::PI;

use mortise_kernels::rope::RopeTable;

mod read;

pub(crate) use read::{RopeTarget, read_ropes};

/// A rotary position embedding (RoFormer, arXiv 2104.09864).
#[derive(Debug, Clone, PartialEq)]
pub struct RopeSpec {
    /// Numbers of a head that turn; even.
    pub turned: usize,
    /// Base of the frequencies.
    pub theta: f64,
    /// Stretching of positions.
    pub scaling: RopeScaling,
    /// Divisors of the frequencies, one a pair, where the weights have them.
    pub divisors: Option<Vec<f32>>,
}

/// Scaling of rotary frequencies for contexts beyond the original one.
#[derive(Debug, Clone, PartialEq)]
pub enum RopeScaling {
    /// Not at all. Dynamic scaling, which begins where the model's positions end, is the same.
    None,
    /// All frequencies alike.
    Linear {
        /// Divides the frequencies.
        factor: f64,
    },
    /// Low frequencies only, as Llama 3.1 does.
    Llama3 {
        /// Divides the low frequencies.
        factor: f64,
        /// Waves longer than the original context divided by this are stretched.
        low_freq_factor: f64,
        /// Waves shorter than the original context divided by this are kept.
        high_freq_factor: f64,
        /// Context of the first training.
        original_context: usize,
    },
    /// Low frequencies, with a ramp by dimension (YaRN, arXiv 2309.00071).
    Yarn {
        /// Divides the low frequencies.
        factor: f64,
        /// Turns within the original context from which on a frequency is kept.
        beta_fast: f64,
        /// Turns within the original context up to which a frequency is divided.
        beta_slow: f64,
        /// Whether the ramp's ends are whole dimensions.
        truncated: bool,
        /// Context of the first training.
        original_context: usize,
        /// Factor of cosines and sines.
        magnitude: f64,
        /// Factor of the scores, in families that scale those too.
        score_factor: f64,
    },
    /// Each frequency by its own factor (LongRoPE, arXiv 2402.13753). Which list holds is decided
    /// once, by the longest text that is served: keys that are cached must not change.
    LongRope {
        /// Divide the frequencies where no text is longer than the original context.
        short_factors: Vec<f64>,
        /// Divide the frequencies elsewhere.
        long_factors: Vec<f64>,
        /// Context of the first training.
        original_context: usize,
        /// Factor of cosines and sines.
        magnitude: f64,
    },
}

impl RopeSpec {
    /// Cosines and sines of `positions`, where no text has more than `context` tokens.
    pub(crate) fn table(&self, positions: &[u32], context: usize) -> RopeTable {
        let magnitude = match self.scaling {
            RopeScaling::Yarn { magnitude, .. } | RopeScaling::LongRope { magnitude, .. } => {
                magnitude
            }
            _ => 1.0,
        };
        RopeTable::new(positions, &self.frequencies(context), magnitude as f32)
    }

    /// Radians by which each pair of dimensions turns from one position to the next.
    fn frequencies(&self, context: usize) -> Vec<f32> {
        let pairs = self.turned / 2;
        let frequency = |pair: usize| {
            let frequency = self.theta.powf(-2.0 * pair as f64 / self.turned as f64);
            let stretched = (frequency * self.stretch(pair, frequency, context)) as f32;
            let divisor = self
                .divisors
                .as_ref()
                .and_then(|divisors| divisors.get(pair));
            divisor.map_or(stretched, |divisor| stretched / divisor)
        };
        (0..pairs).map(frequency).collect()
    }

    /// Factor of a frequency.
    fn stretch(&self, pair: usize, frequency: f64, context: usize) -> f64 {
        // A mean of keeping a frequency and of dividing it.
        let blend = |kept: f64, factor: f64| kept + (1.0 - kept) / factor;
        match &self.scaling {
            RopeScaling::None => 1.0,
            RopeScaling::Linear { factor } => 1.0 / factor,
            RopeScaling::Llama3 {
                factor,
                low_freq_factor,
                high_freq_factor,
                original_context,
            } => {
                let turns = *original_context as f64 * frequency / (2.0 * PI);
                let kept = (turns - low_freq_factor) / (high_freq_factor - low_freq_factor);
                blend(kept.clamp(0.0, 1.0), *factor)
            }
            RopeScaling::Yarn {
                factor,
                beta_fast,
                beta_slow,
                truncated,
                original_context,
                ..
            } => {
                let place = |turns: f64| self.pair_of_turns(turns, *original_context);
                let (low, high) = (place(*beta_fast), place(*beta_slow));
                let (low, high) = if *truncated {
                    (low.floor(), high.ceil())
                } else {
                    (low, high)
                };
                let (low, high) = (low.max(0.0), high.min(self.turned as f64 - 1.0));
                let width = if low == high { 0.001 } else { high - low };
                blend(1.0 - ((pair as f64 - low) / width).clamp(0.0, 1.0), *factor)
            }
            RopeScaling::LongRope {
                short_factors,
                long_factors,
                original_context,
                ..
            } => {
                let long = context > *original_context;
                let factors = if long { long_factors } else { short_factors };
                factors.get(pair).map_or(1.0, |factor| 1.0 / factor)
            }
        }
    }

    /// Index of the pair of dimensions, as a fraction, that makes `turns` rotations within `context` positions.
    fn pair_of_turns(&self, turns: f64, context: usize) -> f64 {
        let wave = context as f64 / (turns * 2.0 * PI);
        self.turned as f64 * wave.ln() / (2.0 * self.theta.ln())
    }
}
