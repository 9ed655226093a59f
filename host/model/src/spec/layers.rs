//! Properties that differ by layer: windows, positions, experts.

use serde_json::Value;

use super::LayerSpec;
use super::families::{Family, RouterRule, WindowRule};
use crate::error::ModelError;
use crate::fields::{ObjectFields, brief};
use crate::limits::{LAYER_RULE_MAX, WINDOW_MAX};

const EVERY: &str = "full_attention";
const WINDOW: &str = "sliding_attention";

/// Read what differs from layer to layer. `local_rope` tells whether layers with a window have a
/// rotary embedding of their own, the second of the model.
pub(super) fn read_layers(
    config: &ObjectFields,
    family: &Family,
    layers: usize,
    local_rope: bool,
) -> Result<Vec<LayerSpec>, ModelError> {
    let turned = read_turned(config, family, layers)?;
    let windowed = read_windowed(config, family, &turned)?;
    let experts = read_expert_layers(config, family, layers)?;
    let window = if windowed.contains(&true) {
        Some(config.required_count("sliding_window", 1..=WINDOW_MAX)?)
    } else {
        None
    };
    let layer = |number: usize| LayerSpec {
        window: window.filter(|_| windowed[number]),
        rope: turned[number].then_some(usize::from(local_rope && windowed[number])),
        experts: experts[number],
    };
    Ok((0..layers).map(layer).collect())
}

/// Layers with rotary positions.
fn read_turned(
    config: &ObjectFields,
    family: &Family,
    layers: usize,
) -> Result<Vec<bool>, ModelError> {
    const FIELD: &str = "no_rope_layers";
    if !family.layers_without_rope {
        return Ok(vec![true; layers]);
    }
    let Some(list) = config.list(FIELD)? else {
        let interval = config.count("no_rope_layer_interval", 1..=LAYER_RULE_MAX)?;
        let interval = interval.unwrap_or(4);
        return Ok((1..=layers).map(|number| number % interval != 0).collect());
    };
    let turned: Option<Vec<bool>> = list
        .iter()
        .map(|value| match value.as_u64() {
            Some(0) => Some(false),
            Some(1) => Some(true),
            _ => None,
        })
        .collect();
    turned
        .filter(|turned| turned.len() == layers)
        .ok_or_else(|| {
            let problem = format!("must hold 0 or 1 for each of the {layers} layers");
            config.wrong(FIELD, problem)
        })
}

/// Layers with a sliding window.
fn read_windowed(
    config: &ObjectFields,
    family: &Family,
    turned: &[bool],
) -> Result<Vec<bool>, ModelError> {
    let layers = turned.len();
    let by_rule = window_rule(config, family, turned)?;
    let Some(list) = config.list("layer_types")? else {
        return Ok(by_rule);
    };
    let mut listed = Vec::new();
    for kind in list {
        listed.push(match kind.as_str() {
            Some(EVERY) => false,
            Some(WINDOW) => true,
            _ => {
                let shown = brief(kind);
                let problem = format!("has {shown}; supported are \"{EVERY}\" and \"{WINDOW}\"");
                return Err(config.wrong("layer_types", problem));
            }
        });
    }
    if listed.len() != layers {
        let problem = format!("has {} entries for {layers} layers", listed.len());
        return Err(config.wrong("layer_types", problem));
    }
    if listed != by_rule && !family.reads_layer_types {
        let problem = format!(
            "contradicts `sliding_window`, which {} applies to all layers or to none",
            family.class
        );
        return Err(config.wrong("layer_types", problem));
    }
    Ok(listed)
}

fn window_rule(
    config: &ObjectFields,
    family: &Family,
    turned: &[bool],
) -> Result<Vec<bool>, ModelError> {
    let layers = turned.len();
    let set = config.get("sliding_window").is_some();
    let switched = config.flag("use_sliding_window")?.unwrap_or(false) && set;
    Ok(match family.windows {
        WindowRule::Never if switched && config.get("layer_types").is_none() => {
            let problem = format!("is true, which is not supported for {}", family.class);
            return Err(config.wrong("use_sliding_window", problem));
        }
        WindowRule::Never => vec![false; layers],
        WindowRule::Set => vec![set; layers],
        WindowRule::Switched => vec![switched; layers],
        WindowRule::SwitchedFrom => {
            let first = config.count("max_window_layers", 0..=LAYER_RULE_MAX)?;
            let first = first.unwrap_or(28);
            (0..layers)
                .map(|number| switched && number >= first)
                .collect()
        }
        WindowRule::SwitchedWithoutRope => {
            turned.iter().map(|turned| switched && !turned).collect()
        }
        WindowRule::AllBut(each) => {
            let each = config
                .count("sliding_window_pattern", 1..=LAYER_RULE_MAX)?
                .unwrap_or(each);
            (1..=layers).map(|number| number % each != 0).collect()
        }
    })
}

/// Layers with experts.
fn read_expert_layers(
    config: &ObjectFields,
    family: &Family,
    layers: usize,
) -> Result<Vec<bool>, ModelError> {
    match family.router {
        None => Ok(vec![false; layers]),
        Some(RouterRule::Mixtral | RouterRule::GptOss) => Ok(vec![true; layers]),
        Some(RouterRule::DeepseekV2 | RouterRule::DeepseekV3) => {
            let dense = config.count("first_k_dense_replace", 0..=LAYER_RULE_MAX)?;
            let dense = dense.unwrap_or(0);
            if config
                .count("moe_layer_freq", 0..=LAYER_RULE_MAX)?
                .unwrap_or(1)
                != 1
            {
                return Err(config.wrong("moe_layer_freq", "must be 1"));
            }
            Ok((0..layers).map(|number| number >= dense).collect())
        }
        Some(RouterRule::Qwen) => {
            let step = config.count("decoder_sparse_step", 1..=LAYER_RULE_MAX)?;
            let step = step.unwrap_or(1);
            let plain = config.list("mlp_only_layers")?.unwrap_or_default();
            let plain = |number: usize| plain.contains(&Value::from(number));
            Ok((0..layers)
                .map(|number| (number + 1).is_multiple_of(step) && !plain(number))
                .collect())
        }
    }
}
