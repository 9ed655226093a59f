//! Rotary position embeddings: what configuration files say of them, and the frequencies that
//! follow.

use std::f64::consts::PI;
use std::ops::RangeInclusive;

use mortise_kernels::rope::RopeTable;

use crate::error::ModelError;
use crate::fields::{Fields, brief};
use crate::spec::Family;

const THETA_BOUNDS: RangeInclusive<f64> = 1.0..=1e12;
const FACTOR_BOUNDS: RangeInclusive<f64> = 1e-3..=1e6;
const CONTEXT_BOUNDS: RangeInclusive<usize> = 2..=1 << 24;

/// A rotary position embedding (RoFormer, arXiv 2104.09864).
#[derive(Debug, Clone, PartialEq)]
pub struct RopeSpec {
    /// Numbers of a head that turn; even.
    pub turned: usize,
    /// Base of the frequencies.
    pub theta: f64,
    /// Stretching of positions.
    pub scaling: RopeScaling,
    /// What each frequency is divided by beside that, where the weights say so.
    pub divisors: Option<Vec<f32>>,
}

/// How a model stretches its positions beyond those it was first trained on.
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

/// The rotary embeddings of a model.
pub(crate) struct Ropes {
    /// Of layers that see everything.
    pub(crate) full: RopeSpec,
    /// Of layers with a window, where those have their own.
    pub(crate) local: Option<RopeSpec>,
}

/// What a rotary embedding is read for.
#[derive(Clone, Copy)]
pub(crate) struct RopeTarget {
    pub(crate) family: &'static Family,
    /// Numbers of a head that could turn.
    pub(crate) head_dim: usize,
    /// The field that says so.
    pub(crate) head_dim_field: &'static str,
    /// Positions that the model was made for.
    pub(crate) context: usize,
}

/// Read the rotary embeddings from either generation of configuration files: `rope_parameters`,
/// for all layers or by kind of layer, or `rope_theta` beside `rope_scaling`.
pub(crate) fn read_ropes(config: &Fields, target: RopeTarget) -> Result<Ropes, ModelError> {
    let parameters = config.object("rope_parameters")?;
    let family = target.family;
    if let Some(parameters) = &parameters
        && let Some(full) = parameters.object("full_attention")?
    {
        let read = |fields: &Fields, theta: f64| {
            let theta = fields.number("rope_theta", THETA_BOUNDS)?.unwrap_or(theta);
            read_rope(config, Some(fields), theta, target)
        };
        let local = parameters.object("sliding_attention")?;
        let local_theta = family.local_rope_theta.unwrap_or(family.rope_theta);
        return Ok(Ropes {
            full: read(&full, family.rope_theta)?,
            local: local.map(|local| read(&local, local_theta)).transpose()?,
        });
    }
    let theta = match &parameters {
        Some(parameters) => parameters.number("rope_theta", THETA_BOUNDS)?,
        None => None,
    };
    let theta = match theta {
        Some(theta) => Some(theta),
        None => config.number("rope_theta", THETA_BOUNDS)?,
    };
    let scaling = match config.object("rope_scaling")? {
        Some(scaling) => Some(scaling),
        None => parameters,
    };
    let theta = theta.unwrap_or(family.rope_theta);
    let full = read_rope(config, scaling.as_ref(), theta, target)?;
    let local = match family.local_rope_theta {
        None => None,
        Some(default) => Some(RopeSpec {
            turned: full.turned,
            theta: config
                .number("rope_local_base_freq", THETA_BOUNDS)?
                .unwrap_or(default),
            scaling: RopeScaling::None,
            divisors: None,
        }),
    };
    Ok(Ropes { full, local })
}

fn read_rope(
    config: &Fields,
    fields: Option<&Fields>,
    theta: f64,
    target: RopeTarget,
) -> Result<RopeSpec, ModelError> {
    let turned = read_turned(config, fields, target)?;
    let scaling = match fields {
        None => RopeScaling::None,
        Some(fields) => read_scaling(config, fields, turned, target.context)?,
    };
    Ok(RopeSpec {
        turned,
        theta,
        scaling,
        divisors: None,
    })
}

/// How much of a head turns.
fn read_turned(
    config: &Fields,
    fields: Option<&Fields>,
    target: RopeTarget,
) -> Result<usize, ModelError> {
    const FIELD: &str = "partial_rotary_factor";
    let head_dim = target.head_dim;
    for fields in fields.into_iter().chain([config]) {
        let Some(part) = fields.number(FIELD, 0.0..=1.0)? else {
            continue;
        };
        if part < 1.0 && !target.family.partial_rotary {
            let class = target.family.class;
            let problem = format!("is {part}; partial rotation is not supported for {class}");
            return Err(fields.wrong(FIELD, problem));
        }
        let turned = (head_dim as f64 * part) as usize;
        if turned == 0 || !turned.is_multiple_of(2) {
            let problem = format!("is {part}; of {head_dim} dimensions an even number must turn");
            return Err(fields.wrong(FIELD, problem));
        }
        return Ok(turned);
    }
    if !head_dim.is_multiple_of(2) {
        let problem = format!("is {head_dim}; it must be even");
        return Err(config.wrong(target.head_dim_field, problem));
    }
    Ok(head_dim)
}

fn read_scaling(
    config: &Fields,
    scaling: &Fields,
    turned: usize,
    context: usize,
) -> Result<RopeScaling, ModelError> {
    let field = if scaling.get("rope_type").is_some() {
        "rope_type"
    } else {
        "type"
    };
    let factor = |field: &str| {
        let factor = scaling.number(field, FACTOR_BOUNDS)?;
        factor.ok_or_else(|| scaling.wrong(field, "is missing"))
    };
    match scaling.text(field)? {
        None | Some("default") => Ok(RopeScaling::None),
        Some("dynamic") => factor("factor").map(|_| RopeScaling::None),
        Some("linear") => factor("factor").map(|factor| RopeScaling::Linear { factor }),
        Some("llama3") => {
            let (low, high) = (factor("low_freq_factor")?, factor("high_freq_factor")?);
            if low >= high {
                let problem =
                    format!("is {high}; it must exceed `low_freq_factor`, which is {low}");
                return Err(scaling.wrong("high_freq_factor", problem));
            }
            Ok(RopeScaling::Llama3 {
                factor: factor("factor")?,
                low_freq_factor: low,
                high_freq_factor: high,
                original_context: scaling
                    .required_count("original_max_position_embeddings", CONTEXT_BOUNDS)?,
            })
        }
        // Phi-3 was published under several names.
        Some("longrope" | "su") => read_long_rope(config, scaling, turned, context),
        Some("yarn") if scaling.get("long_factor").is_some() => {
            read_long_rope(config, scaling, turned, context)
        }
        Some("yarn") => read_yarn(scaling, context),
        Some(other) => {
            let shown = brief(&other.into());
            let problem = format!(
                "is {shown}; supported are \"default\", \"linear\", \"dynamic\", \"llama3\", \
                 \"yarn\" and \"longrope\""
            );
            Err(scaling.wrong(field, problem))
        }
    }
}

/// What YaRN calls mscale.
fn attention_growth(factor: f64, weight: f64) -> f64 {
    if factor <= 1.0 {
        1.0
    } else {
        0.1 * weight * factor.ln() + 1.0
    }
}

fn read_yarn(scaling: &Fields, context: usize) -> Result<RopeScaling, ModelError> {
    let original_context =
        scaling.required_count("original_max_position_embeddings", CONTEXT_BOUNDS)?;
    let factor = scaling
        .number("factor", FACTOR_BOUNDS)?
        .unwrap_or(context as f64 / original_context as f64);
    let positive = |field| {
        let number = scaling.number(field, 0.0..=1e6)?;
        Ok::<_, ModelError>(number.filter(|number| *number > 0.0))
    };
    let (weight, weight_all) = (positive("mscale")?, positive("mscale_all_dim")?);
    let magnitude = match (
        scaling.number("attention_factor", 1e-6..=1e6)?,
        weight,
        weight_all,
    ) {
        (Some(magnitude), _, _) => magnitude,
        (None, Some(weight), Some(all)) => {
            attention_growth(factor, weight) / attention_growth(factor, all)
        }
        (None, _, _) => attention_growth(factor, 1.0),
    };
    Ok(RopeScaling::Yarn {
        factor,
        beta_fast: positive("beta_fast")?.unwrap_or(32.0),
        beta_slow: positive("beta_slow")?.unwrap_or(1.0),
        truncated: scaling.flag("truncate")?.unwrap_or(true),
        original_context,
        magnitude,
        score_factor: weight_all.map_or(1.0, |all| attention_growth(factor, all).powi(2)),
    })
}

fn read_long_rope(
    config: &Fields,
    scaling: &Fields,
    turned: usize,
    context: usize,
) -> Result<RopeScaling, ModelError> {
    const ORIGINAL: &str = "original_max_position_embeddings";
    for field in ["short_mscale", "long_mscale"] {
        if scaling.get(field).is_some() {
            return Err(scaling.wrong(field, "is set; only `attention_factor` is supported"));
        }
    }
    let original_context = match scaling.count(ORIGINAL, CONTEXT_BOUNDS)? {
        Some(original) => original,
        None => config.count(ORIGINAL, CONTEXT_BOUNDS)?.unwrap_or(context),
    };
    let factors = |field: &str| {
        let list = scaling
            .list(field)?
            .ok_or_else(|| scaling.wrong(field, "is missing"))?;
        let number = |value: &serde_json::Value| {
            value.as_f64().filter(|value| FACTOR_BOUNDS.contains(value))
        };
        let numbers: Option<Vec<f64>> = list.iter().map(number).collect();
        match numbers.filter(|numbers| numbers.len() == turned / 2) {
            Some(numbers) => Ok(numbers),
            None => Err(scaling.wrong(
                field,
                format!(
                    "must be a list of {} numbers from {} to {}",
                    turned / 2,
                    FACTOR_BOUNDS.start(),
                    FACTOR_BOUNDS.end()
                ),
            )),
        }
    };
    let stretch = scaling
        .number("factor", FACTOR_BOUNDS)?
        .unwrap_or(context as f64 / original_context as f64);
    let magnitude = match scaling.number("attention_factor", 1e-6..=1e6)? {
        Some(magnitude) => magnitude,
        None if stretch <= 1.0 => 1.0,
        None => (1.0 + stretch.ln() / (original_context as f64).ln()).sqrt(),
    };
    Ok(RopeScaling::LongRope {
        short_factors: factors("short_factor")?,
        long_factors: factors("long_factor")?,
        original_context,
        magnitude,
    })
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

    /// What a frequency is multiplied by.
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

    /// The pair of dimensions, a fraction, that turns so many times within `context` positions.
    fn pair_of_turns(&self, turns: f64, context: usize) -> f64 {
        let wave = context as f64 / (turns * 2.0 * PI);
        self.turned as f64 * wave.ln() / (2.0 * self.theta.ln())
    }
}
