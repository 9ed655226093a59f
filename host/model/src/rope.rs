//! The frequencies of the rotary position embedding.

use std::f64::consts::PI;

use crate::error::ModelError;
use crate::fields::{Fields, brief};

/// How a model stretches its positions beyond those it was first trained on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
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
}

/// Base frequency and scaling, from either generation of configuration files: `rope_parameters`,
/// or `rope_theta` beside `rope_scaling`.
pub(crate) fn read_rope(config: &Fields) -> Result<(f64, RopeScaling), ModelError> {
    const THETA_DEFAULT: f64 = 10_000.0;
    const THETA_BOUNDS: std::ops::RangeInclusive<f64> = 1.0..=1e12;
    let parameters = config.object("rope_parameters")?;
    let scaling = match config.object("rope_scaling")? {
        Some(scaling) => Some(scaling),
        None => config.object("rope_parameters")?,
    };
    let theta = match parameters {
        Some(parameters) => parameters.number("rope_theta", THETA_BOUNDS)?,
        None => None,
    };
    let theta = match theta {
        Some(theta) => theta,
        None => config
            .number("rope_theta", THETA_BOUNDS)?
            .unwrap_or(THETA_DEFAULT),
    };
    let scaling = scaling.map_or(Ok(RopeScaling::None), |scaling| read_scaling(&scaling))?;
    Ok((theta, scaling))
}

fn read_scaling(scaling: &Fields) -> Result<RopeScaling, ModelError> {
    const FACTOR_BOUNDS: std::ops::RangeInclusive<f64> = 1e-3..=1e6;
    const CONTEXT_BOUNDS: std::ops::RangeInclusive<usize> = 1..=1 << 24;
    let factor = |field: &str| {
        let factor = scaling.number(field, FACTOR_BOUNDS)?;
        factor.ok_or_else(|| scaling.wrong(field, "is missing"))
    };
    if let Some(value) = scaling.number("partial_rotary_factor", 0.0..=1.0)?
        && value < 1.0
    {
        let problem = format!("is {value}; partial rotation is not supported");
        return Err(scaling.wrong("partial_rotary_factor", problem));
    }
    let field = if scaling.get("rope_type").is_some() {
        "rope_type"
    } else {
        "type"
    };
    match scaling.text(field)? {
        None | Some("default") => Ok(RopeScaling::None),
        Some("linear") => Ok(RopeScaling::Linear {
            factor: factor("factor")?,
        }),
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
        Some(other) => {
            let shown = brief(&other.into());
            let problem =
                format!("is {shown}; supported are \"default\", \"linear\" and \"llama3\"");
            Err(scaling.wrong(field, problem))
        }
    }
}

/// Radians by which each pair of dimensions turns from one position to the next.
pub(crate) fn frequencies(head_dim: usize, theta: f64, scaling: RopeScaling) -> Vec<f32> {
    (0..head_dim / 2)
        .map(|pair| {
            let frequency = theta.powf(-2.0 * pair as f64 / head_dim as f64);
            scale(frequency, scaling) as f32
        })
        .collect()
}

fn scale(frequency: f64, scaling: RopeScaling) -> f64 {
    match scaling {
        RopeScaling::None => frequency,
        RopeScaling::Linear { factor } => frequency / factor,
        RopeScaling::Llama3 {
            factor,
            low_freq_factor,
            high_freq_factor,
            original_context,
        } => {
            let turns = original_context as f64 * frequency / (2.0 * PI);
            let kept = (turns - low_freq_factor) / (high_freq_factor - low_freq_factor);
            let kept = kept.clamp(0.0, 1.0);
            frequency * (kept + (1.0 - kept) / factor)
        }
    }
}
