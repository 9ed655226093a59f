//! Rotary position embeddings in configuration files.

use std::ops::RangeInclusive;

use super::{RopeScaling, RopeSpec};
use crate::error::ModelError;
use crate::fields::{ObjectFields, brief};
use crate::limits::CONTEXT_MAX;
use crate::spec::Family;

const THETA_BOUNDS: RangeInclusive<f64> = 1.0..=1e12;
const FACTOR_BOUNDS: RangeInclusive<f64> = 1e-3..=1e6;
const CONTEXT_BOUNDS: RangeInclusive<usize> = 2..=CONTEXT_MAX;

/// The rotary embeddings of a model.
pub(crate) struct Ropes {
    /// Embedding of layers with full attention.
    pub(crate) full: RopeSpec,
    /// Embedding of layers with a window, where it differs.
    pub(crate) local: Option<RopeSpec>,
}

/// Model for which rotary embeddings are read.
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
pub(crate) fn read_ropes(config: &ObjectFields, target: RopeTarget) -> Result<Ropes, ModelError> {
    let parameters = config.object("rope_parameters")?;
    let family = target.family;
    if let Some(parameters) = &parameters
        && let Some(full) = parameters.object("full_attention")?
    {
        let read = |fields: &ObjectFields, theta: f64| {
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
    config: &ObjectFields,
    fields: Option<&ObjectFields>,
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

/// Rotary dimensions of a head.
fn read_turned(
    config: &ObjectFields,
    fields: Option<&ObjectFields>,
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
    config: &ObjectFields,
    scaling: &ObjectFields,
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

/// `mscale` of YaRN.
fn attention_growth(factor: f64, weight: f64) -> f64 {
    if factor <= 1.0 {
        1.0
    } else {
        0.1 * weight * factor.ln() + 1.0
    }
}

fn read_yarn(scaling: &ObjectFields, context: usize) -> Result<RopeScaling, ModelError> {
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
    config: &ObjectFields,
    scaling: &ObjectFields,
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
