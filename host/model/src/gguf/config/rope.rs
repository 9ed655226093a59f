//! Rotary position embeddings.

use serde_json::{Map, Value as Json, json};

use super::super::{Gguf, GgufError};
use super::{DEEPSEEK, take};
use crate::weights::widen;

/// Field of `rope_parameters`, key in GGUF behind the architecture and a dot.
pub(super) const FIELDS: &[(&str, &str)] = &[
    ("rope_type", "rope.scaling.type"),
    ("factor", "rope.scaling.factor"),
    (
        "original_max_position_embeddings",
        "rope.scaling.original_context_length",
    ),
    ("attention_factor", "rope.scaling.yarn_attn_factor"),
    ("beta_fast", "rope.scaling.yarn_beta_fast"),
    ("beta_slow", "rope.scaling.yarn_beta_slow"),
    ("mscale_all_dim", "rope.scaling.yarn_log_multiplier"),
    ("llama_4_scaling_beta", "attention.temperature_scale"),
    ("rope_local_base_freq", "rope.freq_base_swa"),
    ("partial_rotary_factor", "rope.dimension_count"),
];

const LOCAL_BASE: &str = "rope_local_base_freq";
const PART: &str = "partial_rotary_factor";

/// Add the parameters of the rotary embeddings.
pub(super) fn add(
    gguf: &Gguf,
    architecture: &str,
    fields: &mut Map<String, Json>,
) -> Result<(), GgufError> {
    let mut scaling = Map::new();
    take(gguf, architecture, FIELDS, &mut scaling)?;
    let turned = scaling.remove(PART).and_then(|turned| turned.as_u64());
    if let Some(part) = turned_part(architecture, turned, fields) {
        fields.insert(PART.to_owned(), json!(part));
    }
    // Layers with a window that have an embedding of their own have the base of the others, if the
    // file does not say; Gemma has one that no file says.
    let local = scaling.remove(LOCAL_BASE).or_else(|| {
        let base = fields.get("rope_theta").filter(|_| architecture == "olmo2");
        base.cloned()
    });
    if let Some(base) = local {
        fields.insert(LOCAL_BASE.to_owned(), base);
    }
    if scaling.get("rope_type").is_some_and(|kind| kind == "yarn") {
        complete_yarn(architecture, fields, &mut scaling);
    }
    if let Some(factors) = long_rope(gguf, architecture)? {
        scaling = factors;
    }
    if scaling.get("rope_type").is_some_and(|kind| kind != "none") {
        fields.insert("rope_parameters".to_owned(), Json::Object(scaling));
    }
    Ok(())
}

/// Rotary part of a head, where it is not the whole.
fn turned_part(architecture: &str, turned: Option<u64>, fields: &Map<String, Json>) -> Option<f64> {
    let count = |field: &str| fields.get(field).and_then(Json::as_u64);
    let head = match count("head_dim") {
        Some(head) => head,
        None => count("hidden_size")?.checked_div(count("num_attention_heads")?)?,
    };
    let turned = turned.filter(|turned| *turned < head && architecture != DEEPSEEK)?;
    // The reader multiplies and rounds down: the quotient must not be less than the part.
    Some((turned as f64 + 0.25) / head as f64)
}

/// Add YaRN parameters that follow from the architecture.
fn complete_yarn(architecture: &str, fields: &Map<String, Json>, scaling: &mut Map<String, Json>) {
    const ORIGINAL: &str = "original_max_position_embeddings";
    if let (None, Some(context)) = (scaling.get(ORIGINAL), fields.get("max_position_embeddings")) {
        scaling.insert(ORIGINAL.to_owned(), context.clone());
    }
    const ALL: &str = "mscale_all_dim";
    let all = scaling.get(ALL).and_then(Json::as_f64);
    if let Some(all) = all {
        // DeepSeek's files have a tenth of it, and its models the same twice.
        let (one, all) = match architecture {
            DEEPSEEK => (10.0 * all, 10.0 * all),
            _ => (1.0, all),
        };
        scaling.insert("mscale".to_owned(), json!(one));
        scaling.insert(ALL.to_owned(), json!(all));
    }
    if architecture == "gpt-oss" {
        scaling.insert("truncate".to_owned(), json!(false));
    }
}

/// LongRoPE's factors, which are tensors there.
fn long_rope(gguf: &Gguf, architecture: &str) -> Result<Option<Map<String, Json>>, GgufError> {
    let factors = |name: &str| {
        let tensor = gguf.tensor(name)?;
        let stored = tensor.kind.numbers()?;
        Some(widen(&gguf.file_of(tensor)[tensor.place.clone()], stored))
    };
    let (Some(short), Some(long)) = (
        factors("rope_factors_short.weight"),
        factors("rope_factors_long.weight"),
    ) else {
        return Ok(None);
    };
    let key = |name: &str| format!("{architecture}.rope.scaling.{name}");
    let mut scaling = Map::new();
    scaling.insert("rope_type".to_owned(), json!("longrope"));
    scaling.insert("short_factor".to_owned(), json!(short));
    scaling.insert("long_factor".to_owned(), json!(long));
    let original = gguf.metadata().count(&key("original_context_length"))?;
    scaling.insert(
        "original_max_position_embeddings".to_owned(),
        json!(original),
    );
    let magnitude = gguf.metadata().get(&key("attn_factor"))?;
    if let Some(magnitude) = magnitude {
        let magnitude = super::to_json(&key("attn_factor"), magnitude)?;
        scaling.insert("attention_factor".to_owned(), magnitude);
    }
    Ok(Some(scaling))
}
