//! Experts, windows and compressed keys and values.

use serde_json::{Map, Value as Json, json};

use super::super::metadata::Value;
use super::super::{Gguf, GgufError};
use super::{DEEPSEEK, take};
use crate::limits::LIST_MAX;

/// Field of `config.json`, key in GGUF behind the architecture and a dot.
pub(super) const FIELDS: &[(&str, &str)] = &[
    ("num_experts", "expert_count"),
    ("num_experts_per_tok", "expert_used_count"),
    ("moe_intermediate_size", "expert_feed_forward_length"),
    (
        "shared_expert_intermediate_size",
        "expert_shared_feed_forward_length",
    ),
    ("n_shared_experts", "expert_shared_count"),
    ("routed_scaling_factor", "expert_weights_scale"),
    ("norm_topk_prob", "expert_weights_norm"),
    ("n_group", "expert_group_count"),
    ("topk_group", "expert_group_used_count"),
    ("first_k_dense_replace", "leading_dense_block_count"),
    ("swiglu_limit", "swiglu_clamp_exp"),
    ("q_lora_rank", "attention.q_lora_rank"),
    ("kv_lora_rank", "attention.kv_lora_rank"),
];

const GATING: &str = "expert_gating_func";
const SOFTMAX: u64 = 1;
const SIGMOID: u64 = 2;
const PATTERN: &str = "attention.sliding_window_pattern";

/// Add what such models have.
pub(super) fn add(
    gguf: &Gguf,
    architecture: &str,
    fields: &mut Map<String, Json>,
) -> Result<(), GgufError> {
    take(gguf, architecture, FIELDS, fields)?;
    let layers = layer_count(gguf, architecture, fields)?;
    add_windows(gguf, architecture, fields)?;
    if let "qwen2moe" | "qwen3moe" = architecture {
        let plain: Vec<Json> = (0..layers)
            .filter(|layer| {
                let router = format!("blk.{layer}.ffn_gate_inp.weight");
                gguf.tensor(&router).is_none()
            })
            .map(Json::from)
            .collect();
        fields.insert("mlp_only_layers".to_owned(), Json::Array(plain));
    }
    if architecture == "qwen3moe" {
        // Files made before there was a key are all of models that normalise.
        fields.entry("norm_topk_prob").or_insert(json!(true));
    }
    if architecture == "gpt-oss"
        && let Some(width) = fields.get("moe_intermediate_size").cloned()
    {
        fields.insert("intermediate_size".to_owned(), width);
    }
    if architecture == DEEPSEEK {
        add_latent(gguf, fields)?;
        add_groups(gguf, fields)?;
    }
    Ok(())
}

/// Layers, without those behind the last that predict further tokens, as far as a list of them may
/// be long.
fn layer_count(
    gguf: &Gguf,
    architecture: &str,
    fields: &mut Map<String, Json>,
) -> Result<u64, GgufError> {
    let metadata = gguf.metadata();
    let count = |key: &str| metadata.count(&format!("{architecture}.{key}"));
    let Some(blocks) = count("block_count")? else {
        return Ok(0);
    };
    let layers = blocks.saturating_sub(count("nextn_predict_layers")?.unwrap_or(0));
    fields.insert("num_hidden_layers".to_owned(), json!(layers));
    Ok(layers.min(LIST_MAX as u64))
}

/// Add the layers with a sliding window: all but every nth, or a list.
fn add_windows(
    gguf: &Gguf,
    architecture: &str,
    fields: &mut Map<String, Json>,
) -> Result<(), GgufError> {
    // None is how a file says that a family's window is not used.
    if fields
        .get("sliding_window")
        .is_some_and(|window| window == 0)
    {
        fields.remove("sliding_window");
    }
    match gguf.metadata().get(&format!("{architecture}.{PATTERN}"))? {
        Some(Value::Integer(each)) if each > 0 => {
            let each = u64::try_from(each).unwrap_or(u64::MAX);
            fields.insert("sliding_window_pattern".to_owned(), json!(each));
        }
        Some(Value::Array(layers)) => {
            let mut kinds = Vec::new();
            for layer in layers.values().take(LIST_MAX + 1) {
                let window = matches!(layer?, Value::Flag(true) | Value::Integer(1..));
                kinds.push(match window {
                    true => "sliding_attention",
                    false => "full_attention",
                });
            }
            fields.insert("layer_types".to_owned(), json!(kinds));
        }
        _ => {}
    }
    Ok(())
}

/// The sizes of a head: newer files have those of the compressed one under the usual keys.
fn add_latent(gguf: &Gguf, fields: &mut Map<String, Json>) -> Result<(), GgufError> {
    let metadata = gguf.metadata();
    let count = |key: &str| metadata.count(&format!("{DEEPSEEK}.{key}"));
    let either = |key: &str| {
        let head = count(&format!("attention.{key}_mla"))?;
        Ok::<_, GgufError>(head.or(count(&format!("attention.{key}"))?))
    };
    let turned = count("rope.dimension_count")?;
    if let (Some(key), Some(turned)) = (either("key_length")?, turned) {
        let plain = key.saturating_sub(turned);
        fields.insert("qk_nope_head_dim".to_owned(), json!(plain));
    }
    fields.insert("qk_rope_head_dim".to_owned(), json!(turned));
    fields.insert("v_head_dim".to_owned(), json!(either("value_length")?));
    // All heads share one compressed key, and the size of a head is that of none.
    fields.insert("head_dim".to_owned(), json!(turned));
    fields.remove("num_key_value_heads");
    Ok(())
}

/// Add the selection of expert groups. Files that predate the keys have one group. Files made
/// before there were keys have one group.
fn add_groups(gguf: &Gguf, fields: &mut Map<String, Json>) -> Result<(), GgufError> {
    if chooses_by_sigmoid(gguf)? {
        fields.entry("n_group").or_insert(json!(1));
        fields.entry("topk_group").or_insert(json!(1));
        fields.entry("norm_topk_prob").or_insert(json!(false));
        return Ok(());
    }
    let groups = fields.get("n_group").and_then(Json::as_u64);
    let method = match groups {
        Some(2..) => "group_limited_greedy",
        _ => "greedy",
    };
    fields.insert("topk_method".to_owned(), json!(method));
    Ok(())
}

/// Whether the router of a DeepSeek model takes the sigmoid of its scores rather than their softmax.
pub(super) fn chooses_by_sigmoid(gguf: &Gguf) -> Result<bool, GgufError> {
    let key = format!("{DEEPSEEK}.{GATING}");
    match gguf.metadata().count(&key)? {
        // Before there was a key there was no other way.
        None | Some(0 | SOFTMAX) => Ok(false),
        Some(SIGMOID) => Ok(true),
        Some(other) => Err(GgufError::Entry {
            key,
            problem: format!(
                "is {other}; supported are {SOFTMAX} (softmax) and {SIGMOID} (sigmoid)"
            ),
        }),
    }
}
