//! Settings that one model has of its own: how its engine computes, and what holds for requests that say nothing.

use mortise_engine::{EngineConfig, KvType};
use mortise_model::GenerationConfig;

use crate::conversation::TemplateArguments;
use crate::device_choice::DeviceChoice;

/// Settings of a model's engine; what is `None` is as for all engines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelEngine {
    /// Device of the weights.
    pub device: Option<DeviceChoice>,
    /// Tokens of prompt and answer together.
    pub max_context: Option<usize>,
    /// Element type of the KV cache.
    pub kv_type: Option<KvType>,
    /// Bytes of the KV cache.
    pub kv_cache_bytes: Option<usize>,
    /// Most sequences in a step, of each replica.
    pub max_sequences: Option<usize>,
    /// Keep the blocks of sequences that have ended.
    pub prefix_cache: Option<bool>,
}

impl ModelEngine {
    /// Settings of all engines with those of this model over them. The budget of a step holds one token of each sequence.
    pub(crate) fn over(&self, all: &EngineConfig) -> EngineConfig {
        let max_sequences = self.max_sequences.unwrap_or(all.max_sequences);
        EngineConfig {
            max_sequences,
            step_token_budget: all.step_token_budget.max(max_sequences),
            kv_type: self.kv_type.unwrap_or(all.kv_type),
            kv_cache_bytes: self.kv_cache_bytes.unwrap_or(all.kv_cache_bytes),
            prefix_cache: self.prefix_cache.unwrap_or(all.prefix_cache),
            ..all.clone()
        }
    }
}

/// Values for requests that say nothing, before those of the model's files.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RequestDefaults {
    /// Temperature.
    pub temperature: Option<f64>,
    /// Cumulative probability of the candidates.
    pub top_p: Option<f64>,
    /// Number of candidates; 0 is off.
    pub top_k: Option<u32>,
    /// Least probability of a candidate, relative to the most likely one.
    pub min_p: Option<f64>,
    /// Repetition penalty.
    pub repetition_penalty: Option<f64>,
    /// Most tokens to generate.
    pub max_tokens: Option<u32>,
    /// Arguments of the chat template, such as `enable_thinking`.
    pub template_arguments: TemplateArguments,
}

impl RequestDefaults {
    /// Values merged: these before others.
    pub fn or(&self, others: &Self) -> Self {
        Self {
            temperature: self.temperature.or(others.temperature),
            top_p: self.top_p.or(others.top_p),
            top_k: self.top_k.or(others.top_k),
            min_p: self.min_p.or(others.min_p),
            repetition_penalty: self.repetition_penalty.or(others.repetition_penalty),
            max_tokens: self.max_tokens.or(others.max_tokens),
            template_arguments: self.template_arguments.over(&others.template_arguments),
        }
    }

    /// Defaults of a model's files, with these values before them.
    pub(crate) fn over(&self, files: GenerationConfig) -> GenerationConfig {
        let mut settled = files;
        settled.temperature = self.temperature.or(settled.temperature);
        settled.top_p = self.top_p.or(settled.top_p);
        settled.top_k = self.top_k.or(settled.top_k);
        settled.min_p = self.min_p.or(settled.min_p);
        settled.repetition_penalty = self.repetition_penalty.or(settled.repetition_penalty);
        settled.max_tokens = self.max_tokens.or(settled.max_tokens);
        settled
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn arguments(value: serde_json::Value) -> TemplateArguments {
        let members = value.as_object().expect("an object").clone();
        TemplateArguments::new(members).expect("arguments")
    }

    #[test]
    fn feature_k2_q1_a_models_engine_has_what_is_said_of_it_and_else_what_all_have() {
        let all = EngineConfig {
            max_sequences: 8,
            step_token_budget: 16,
            kv_cache_bytes: 1 << 20,
            ..EngineConfig::default()
        };
        assert_eq!(ModelEngine::default().over(&all), all);
        let own = ModelEngine {
            kv_type: Some(KvType::Q8_0),
            kv_cache_bytes: Some(1 << 10),
            max_sequences: Some(64),
            prefix_cache: Some(false),
            ..ModelEngine::default()
        };
        let expected = EngineConfig {
            kv_type: KvType::Q8_0,
            kv_cache_bytes: 1 << 10,
            max_sequences: 64,
            // A step has a token of each sequence.
            step_token_budget: 64,
            prefix_cache: false,
            ..all.clone()
        };
        assert_eq!(own.over(&all), expected);
    }

    #[test]
    fn feature_c5_a_models_word_counts_before_that_for_all_and_that_before_its_files() {
        let all = RequestDefaults {
            temperature: Some(0.1),
            top_k: Some(1),
            template_arguments: arguments(json!({"enable_thinking": true, "x": 1})),
            ..RequestDefaults::default()
        };
        let own = RequestDefaults {
            temperature: Some(0.5),
            template_arguments: arguments(json!({"enable_thinking": false})),
            ..RequestDefaults::default()
        };
        let both = own.or(&all);
        assert_eq!((both.temperature, both.top_k), (Some(0.5), Some(1)));
        let expected = arguments(json!({"enable_thinking": false, "x": 1}));
        assert_eq!(both.template_arguments, expected);
        let mut files = GenerationConfig::default().with_eos_tokens([7]);
        (files.temperature, files.top_p) = (Some(0.0), Some(0.9));
        let settled = both.over(files);
        assert_eq!((settled.temperature, settled.top_p), (Some(0.5), Some(0.9)));
        assert_eq!((settled.top_k, settled.eos_tokens), (Some(1), vec![7]));
    }
}
