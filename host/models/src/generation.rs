//! What holds for a model where the caller does not say.

use serde_json::Value;

/// What holds for a model where the caller does not say, from its `generation_config.json`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GenerationDefaults {
    /// Tokens that end a sequence.
    pub eos: Vec<u32>,
    /// 1 if absent, as OpenAI has it.
    pub temperature: Option<f64>,
    /// 1 if absent.
    pub top_p: Option<f64>,
    /// Off if absent.
    pub top_k: Option<u32>,
    /// Off if absent.
    pub min_p: Option<f64>,
    /// Off if absent.
    pub repetition_penalty: Option<f64>,
    /// Most tokens to generate; the server's own default if absent.
    pub max_tokens: Option<u32>,
}

impl GenerationDefaults {
    /// Read `generation_config.json`. A field of another type than expected counts as absent: the
    /// file is advice, and its authors differ on it.
    pub fn read(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        let value: Value = serde_json::from_slice(bytes)?;
        let number = |key: &str| value.get(key).and_then(Value::as_f64);
        let count = |key: &str| {
            let count = value.get(key).and_then(Value::as_u64);
            count.and_then(|count| u32::try_from(count).ok())
        };
        let greedy = value.get("do_sample").and_then(Value::as_bool) == Some(false);
        Ok(Self {
            eos: token_ids(value.get("eos_token_id")),
            temperature: if greedy {
                Some(0.0)
            } else {
                within(number("temperature"), 0.0, 2.0)
            },
            top_p: within(number("top_p"), f64::MIN_POSITIVE, 1.0),
            top_k: count("top_k"),
            min_p: within(number("min_p"), 0.0, 1.0),
            repetition_penalty: within(number("repetition_penalty"), f64::MIN_POSITIVE, 4.0),
            max_tokens: count("max_new_tokens").filter(|&count| count > 0),
        })
    }

    /// Add tokens that end a sequence, such as the tokenizer's own.
    pub fn with_eos(mut self, ids: impl IntoIterator<Item = u32>) -> Self {
        self.eos.extend(ids);
        self.eos.sort_unstable();
        self.eos.dedup();
        self
    }
}

fn within(value: Option<f64>, low: f64, high: f64) -> Option<f64> {
    value.filter(|value| (low..=high).contains(value))
}

/// Token ids given as one number or a list of numbers.
fn token_ids(value: Option<&Value>) -> Vec<u32> {
    let one = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    match value {
        Some(Value::Array(list)) => list.iter().filter_map(one).collect(),
        Some(value) => one(value).into_iter().collect(),
        None => Vec::new(),
    }
}
