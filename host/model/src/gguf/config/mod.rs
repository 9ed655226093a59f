//! Metadata of a GGUF file as fields of `config.json`: one reader checks the shape of a model from
//! either.

mod layers;
mod rope;

use serde_json::{Map, Value as Json, json};

use super::metadata::Value;
use super::{Gguf, GgufError};

/// Architecture in GGUF, class in `config.json`. Some architectures stand for several classes, see
/// [`class`].
const ARCHITECTURES: &[(&str, &str)] = &[
    ("llama", "LlamaForCausalLM"),
    ("qwen2", "Qwen2ForCausalLM"),
    ("qwen3", "Qwen3ForCausalLM"),
    ("gemma", "GemmaForCausalLM"),
    ("gemma2", "Gemma2ForCausalLM"),
    ("gemma3", "Gemma3ForCausalLM"),
    ("phi3", "Phi3ForCausalLM"),
    ("granite", "GraniteForCausalLM"),
    ("olmo2", "Olmo2ForCausalLM"),
    ("smollm3", "SmolLM3ForCausalLM"),
    ("mistral3", "Ministral3ForCausalLM"),
    ("qwen2moe", "Qwen2MoeForCausalLM"),
    ("qwen3moe", "Qwen3MoeForCausalLM"),
    ("gpt-oss", "GptOssForCausalLM"),
    ("deepseek2", "DeepseekV2ForCausalLM"),
    ("bert", "BertModel"),
];

/// Field of `config.json`, key in GGUF behind the architecture and a dot.
const FIELDS: &[(&str, &str)] = &[
    ("vocab_size", "vocab_size"),
    ("hidden_size", "embedding_length"),
    ("intermediate_size", "feed_forward_length"),
    ("num_hidden_layers", "block_count"),
    ("num_attention_heads", "attention.head_count"),
    ("num_key_value_heads", "attention.head_count_kv"),
    ("head_dim", "attention.key_length"),
    ("max_position_embeddings", "context_length"),
    ("rms_norm_eps", "attention.layer_norm_rms_epsilon"),
    ("rope_theta", "rope.freq_base"),
    ("sliding_window", "attention.sliding_window"),
    ("attn_logit_softcapping", "attn_logit_softcapping"),
    ("final_logit_softcapping", "final_logit_softcapping"),
    ("logits_scaling", "logit_scale"),
    ("embedding_multiplier", "embedding_scale"),
    ("residual_multiplier", "residual_scale"),
    ("attention_multiplier", "attention.scale"),
    ("layer_norm_eps", "attention.layer_norm_epsilon"),
    ("pooling_type", "pooling_type"),
];

/// Field of `generation_config.json`, whole key in GGUF.
const GENERATION_FIELDS: &[(&str, &str)] = &[
    ("eos_token_id", "tokenizer.ggml.eos_token_id"),
    ("eot_token_id", "tokenizer.ggml.eot_token_id"),
    ("eom_token_id", "tokenizer.ggml.eom_token_id"),
    ("temperature", "general.sampling.temp"),
    ("top_k", "general.sampling.top_k"),
    ("top_p", "general.sampling.top_p"),
    ("min_p", "general.sampling.min_p"),
];

/// Keys that change what a model computes, and the architectures where that is computed.
const REFUSED: &[(&str, &[&str])] = &[
    (
        "expert_count",
        &["llama", "qwen2moe", "qwen3moe", "gpt-oss", "deepseek2"],
    ),
    ("attention.q_lora_rank", &[DEEPSEEK]),
    ("attention.kv_lora_rank", &[DEEPSEEK]),
    ("attention.max_alibi_bias", &[]),
    ("attention.clamp_kqv", &[]),
    ("ssm.state_size", &[]),
];

const DEEPSEEK: &str = "deepseek2";

/// The key that a field of `config.json` comes from, for messages.
pub(crate) fn metadata_key(architecture: &str, field: &str) -> String {
    let known = FIELDS
        .iter()
        .chain(layers::FIELDS)
        .chain(rope::FIELDS)
        .find(|(known, _)| *known == field.rsplit('.').next().unwrap_or(field));
    match known {
        Some((_, key)) => format!("{architecture}.{key}"),
        None if field == "architectures" => "general.architecture".to_owned(),
        None => {
            let known = GENERATION_FIELDS.iter().find(|(known, _)| *known == field);
            known.map_or(field, |(_, key)| key).to_owned()
        }
    }
}

/// The members that `config.json` would have.
pub(crate) fn config_fields(gguf: &Gguf) -> Result<Map<String, Json>, GgufError> {
    let architecture = gguf.architecture()?;
    refuse_unsupported(gguf, architecture)?;
    let mut fields = Map::new();
    fields.insert(
        "architectures".to_owned(),
        json!([class(gguf, architecture)?]),
    );
    fields.insert("model_type".to_owned(), json!(architecture));
    take(gguf, architecture, FIELDS, &mut fields)?;
    layers::add(gguf, architecture, &mut fields)?;
    rope::add(gguf, architecture, &mut fields)?;
    if matches!(architecture, "gemma2" | "gemma3") {
        fields.insert("query_pre_attn_scalar".to_owned(), query_scalar(&fields));
    }
    // What files tell by the tensors that they have.
    let has = |tensor: &str| gguf.tensor(tensor).is_some();
    fields.insert(
        "tie_word_embeddings".to_owned(),
        json!(!has("output.weight")),
    );
    fields.insert("attention_bias".to_owned(), json!(has("blk.0.attn_q.bias")));
    fields.insert("mlp_bias".to_owned(), json!(has("blk.0.ffn_gate.bias")));
    if let Some(embedding) = gguf.tensor("token_embd.weight") {
        // Files may leave the number of tokens out, and some state that before padding.
        fields.insert("vocab_size".to_owned(), json!(embedding.shape.first()));
    }
    if let Some(segments) = gguf.tensor("token_types.weight") {
        fields.insert("type_vocab_size".to_owned(), json!(segments.shape.first()));
    }
    Ok(fields)
}

/// Take the fields of a table that the file has.
fn take(
    gguf: &Gguf,
    architecture: &str,
    table: &[(&str, &str)],
    fields: &mut Map<String, Json>,
) -> Result<(), GgufError> {
    for (field, key) in table {
        let key = format!("{architecture}.{key}");
        if let Some(value) = gguf.metadata().get(&key)? {
            fields.insert((*field).to_owned(), to_json(&key, value)?);
        }
    }
    Ok(())
}

/// The architecture in GGUF of a class; `None` if GGUF files have no such models.
pub(crate) fn architecture_of(class: &str) -> Option<&'static str> {
    let class = match class {
        "MistralForCausalLM" | "MixtralForCausalLM" => "LlamaForCausalLM",
        "Olmo3ForCausalLM" => "Olmo2ForCausalLM",
        "DeepseekV3ForCausalLM" => "DeepseekV2ForCausalLM",
        other => other,
    };
    let mut known = ARCHITECTURES.iter();
    known
        .find(|(_, named)| *named == class)
        .map(|(architecture, _)| *architecture)
}

/// The class in `config.json`.
fn class<'a>(gguf: &Gguf, architecture: &'a str) -> Result<&'a str, GgufError> {
    let positive = |key: &str| {
        let count = gguf.metadata().count(&format!("{architecture}.{key}"))?;
        Ok::<_, GgufError>(count.is_some_and(|count| count > 0))
    };
    const WINDOW: &str = "attention.sliding_window";
    Ok(match architecture {
        "llama" if positive("expert_count")? => "MixtralForCausalLM",
        "llama" if positive(WINDOW)? => "MistralForCausalLM",
        "olmo2" if positive(WINDOW)? => "Olmo3ForCausalLM",
        // Experts are chosen by sigmoid, not by softmax.
        DEEPSEEK if layers::chooses_by_sigmoid(gguf)? => "DeepseekV3ForCausalLM",
        _ => ARCHITECTURES
            .iter()
            .find(|(known, _)| *known == architecture)
            .map_or(architecture, |(_, class)| class),
    })
}

/// `query_pre_attn_scalar` of Gemma, which GGUF files lack: the head size, but hidden size by heads
/// in the 27B models, which are known by their number of layers.
fn query_scalar(fields: &Map<String, Json>) -> Json {
    let count = |field: &str| fields.get(field).and_then(Json::as_u64);
    match (count("num_hidden_layers"), count("num_attention_heads")) {
        (Some(46 | 62), Some(heads)) => {
            json!(count("hidden_size").and_then(|hidden| hidden.checked_div(heads)))
        }
        _ => json!(count("head_dim")),
    }
}

/// The members that `generation_config.json` would have.
pub(crate) fn generation_fields(gguf: &Gguf) -> Result<Map<String, Json>, GgufError> {
    let metadata = gguf.metadata();
    let mut fields = Map::new();
    for (field, key) in GENERATION_FIELDS {
        if let Some(value) = metadata.get(key)? {
            fields.insert((*field).to_owned(), to_json(key, value)?);
        }
    }
    Ok(fields)
}

fn refuse_unsupported(gguf: &Gguf, architecture: &str) -> Result<(), GgufError> {
    for (key, supported) in REFUSED {
        if supported.contains(&architecture) {
            continue;
        }
        let key = format!("{architecture}.{key}");
        let off = match gguf.metadata().get(&key)? {
            None => true,
            Some(Value::Integer(number)) => number == 0,
            Some(Value::Float(number)) => number == 0.0,
            Some(_) => false,
        };
        if !off {
            return Err(GgufError::Entry {
                key,
                problem: "is set; such models are not read from GGUF".to_owned(),
            });
        }
    }
    const CAUSAL: &str = "attention.causal";
    let key = format!("{architecture}.{CAUSAL}");
    if architecture != "bert" && gguf.metadata().flag(&key)? == Some(false) {
        return Err(GgufError::Entry {
            key,
            problem: "is false; decoders whose tokens see those after them are not supported"
                .to_owned(),
        });
    }
    Ok(())
}

/// A value as JSON has it. An array stands for the one value that all layers share; files whose
/// layers differ are refused.
fn to_json(key: &str, value: Value<'_>) -> Result<Json, GgufError> {
    Ok(match value {
        Value::Integer(number) => match (i64::try_from(number), u64::try_from(number)) {
            (Ok(number), _) => json!(number),
            (_, Ok(number)) => json!(number),
            _ => Json::Null,
        },
        Value::Float(number) => json!(shortest(number)),
        Value::Flag(flag) => json!(flag),
        Value::Text(text) => json!(text),
        Value::Array(array) => {
            let mut values = array.values();
            let first = values.next().transpose()?;
            for other in values {
                if Some(other?) != first {
                    return Err(GgufError::Entry {
                        key: key.to_owned(),
                        problem: "differs between layers, which is not supported".to_owned(),
                    });
                }
            }
            match first {
                Some(Value::Array(_)) | None => Json::Null,
                Some(value) => to_json(key, value)?,
            }
        }
    })
}

/// The decimal number that was meant by one of single precision: 0.000001, not 0.0000009999999974.
fn shortest(number: f64) -> f64 {
    let single = number as f32;
    if f64::from(single) == number {
        single.to_string().parse().unwrap_or(number)
    } else {
        number
    }
}
