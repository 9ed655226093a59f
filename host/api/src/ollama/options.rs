//! `options`, and the other fields that requests to generate share.

use mortise_http::{Problem, kind_of};
use mortise_service::{ContentConstraint, GrammarSource, RequestFields};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::fields::{FieldPath, FieldReader, TextOrTexts, words, wrong_type, wrong_value};

/// Fields that all requests to generate have.
#[derive(Debug, Default, Deserialize)]
#[serde(expecting = "an object")]
pub(super) struct GenerateFields {
    model: String,
    stream: Option<bool>,
    options: Option<Options>,
    format: Option<Value>,
    think: Option<Value>,
    keep_alive: Option<Value>,
    logprobs: Option<bool>,
    top_logprobs: Option<u32>,
    truncate: Option<bool>,
    shift: Option<bool>,
    /// Consent to send the conversation to another server; an extension.
    allow_remote: Option<bool>,
}

/// All of Ollama's options. Those that are `Value`s are honoured in some values only, or in none.
#[derive(Debug, Default, Deserialize)]
#[serde(expecting = "an object")]
pub(super) struct Options {
    num_predict: Option<i64>,
    temperature: Option<f64>,
    top_k: Option<u32>,
    top_p: Option<f64>,
    min_p: Option<f64>,
    seed: Option<i64>,
    stop: Option<TextOrTexts>,
    repeat_penalty: Option<f64>,
    presence_penalty: Option<f64>,
    frequency_penalty: Option<f64>,
    num_ctx: Option<u32>,
    repeat_last_n: Option<i64>,
    typical_p: Option<f64>,
    tfs_z: Option<f64>,
    mirostat: Option<i64>,
    /// Parameters of mirostat, which is off.
    #[allow(dead_code, reason = "they mean something with mirostat only")]
    mirostat_tau: Option<f64>,
    #[allow(dead_code, reason = "they mean something with mirostat only")]
    mirostat_eta: Option<f64>,
    penalize_newline: Option<bool>,
    num_keep: Option<Value>,
    numa: Option<Value>,
    num_batch: Option<Value>,
    num_gpu: Option<Value>,
    main_gpu: Option<Value>,
    low_vram: Option<Value>,
    f16_kv: Option<Value>,
    logits_all: Option<Value>,
    vocab_only: Option<Value>,
    use_mmap: Option<Value>,
    use_mlock: Option<Value>,
    embedding_only: Option<Value>,
    num_thread: Option<Value>,
    draft_num_predict: Option<Value>,
}

words! {
    /// Extent of thinking, which templates know by the same words.
    Level {
        Low = "low",
        Medium = "medium",
        High = "high",
        Max = "max",
    }
}

/// Time for which Ollama keeps a model, where nobody says.
const DEFAULT_KEEP_ALIVE: [&str; 3] = ["5m", "5m0s", "300s"];

impl GenerateFields {
    /// Write all of it to a request. Returns arguments for the chat template.
    pub(super) fn write(
        self,
        reader: &mut FieldReader,
        request: &mut RequestFields,
        context: impl Fn(&str) -> Option<usize>,
    ) -> Result<Map<String, Value>, Problem> {
        if let Some(options) = self.options {
            options.write(reader, request, context(&self.model))?;
        }
        request.model = self.model;
        request.allow_remote = self.allow_remote.unwrap_or(false);
        request.stream = self.stream.unwrap_or(true);
        request.constraint = self.format.map(constraint).transpose()?.flatten();
        request.logprobs = match (self.logprobs.unwrap_or(false), self.top_logprobs) {
            (true, top) => Some(top.unwrap_or(0)),
            (false, None | Some(0)) => None,
            (false, Some(_)) => {
                let text = "`top_logprobs` needs `logprobs` to be true";
                return Err(Problem::invalid("top_logprobs", text));
            }
        };
        for (field, given) in [("truncate", self.truncate), ("shift", self.shift)] {
            if given == Some(true) {
                let why = "a conversation that does not fit is refused, not shortened";
                reader.unsupported(&FieldPath::from(field), why)?;
            }
        }
        if let Some(keep_alive) = self.keep_alive {
            check_keep_alive(&keep_alive, reader)?;
        }
        self.think.map_or(Ok(Map::new()), think)
    }
}

/// Refuse to keep a model for another time than the default: the operator decides on that.
pub(super) fn check_keep_alive(value: &Value, reader: &mut FieldReader) -> Result<(), Problem> {
    let path = FieldPath::from("keep_alive");
    let default = match value {
        Value::String(text) => DEFAULT_KEEP_ALIVE.contains(&text.as_str()),
        Value::Number(seconds) => seconds.as_f64() == Some(300.0),
        other => {
            return Err(wrong_type(
                &path,
                "a duration or a number of seconds",
                other,
            ));
        }
    };
    if default {
        return Ok(());
    }
    let why = "the operator sets how long models stay loaded, as `idle_timeout_seconds`, and whether callers \
               may say it, as `lifecycle.keep_alive`; leave it out";
    reader.unsupported(&path, why)
}

/// `"json"`, a JSON Schema, or nothing.
fn constraint(format: Value) -> Result<Option<ContentConstraint>, Problem> {
    let field = "format".to_owned();
    let source = match format {
        Value::String(word) if word.is_empty() => return Ok(None),
        Value::String(word) if word == "json" => GrammarSource::JsonObject,
        Value::Object(_) => GrammarSource::JsonSchema(format.to_string()),
        other => {
            let text = format!(
                "`format` must be `json` or a JSON Schema; it is {}",
                kind_of(&other)
            );
            return Err(Problem::invalid("format", text));
        }
    };
    Ok(Some(ContentConstraint::new(field, source)))
}

/// Template arguments that switch thinking on or off, or say how much of it.
fn think(value: Value) -> Result<Map<String, Value>, Problem> {
    let path = FieldPath::from("think");
    let mut arguments = Map::new();
    let enabled = match &value {
        Value::Bool(enabled) => *enabled,
        Value::String(_) => {
            let level = Level::deserialize(&value).map_err(|_| {
                let words = "a boolean or one of `low`, `medium`, `high`, `max`";
                wrong_value(&path, words, &value)
            })?;
            arguments.insert("reasoning_effort".to_owned(), json!(level.word()));
            true
        }
        other => return Err(wrong_type(&path, "a boolean or a string", other)),
    };
    arguments.insert("enable_thinking".to_owned(), json!(enabled));
    Ok(arguments)
}

impl Options {
    /// Write the options that are honoured, for a model with a context of so many tokens.
    fn write(
        self,
        reader: &mut FieldReader,
        request: &mut RequestFields,
        context: Option<usize>,
    ) -> Result<(), Problem> {
        let path = FieldPath::from("options");
        for (name, why) in self.refused(context) {
            reader.unsupported(&path.key(name), why)?;
        }
        request.max_tokens = match self.num_predict {
            // As many as the model and the operator allow.
            None | Some(-1) => None,
            Some(count) => Some(counted(&path.key("num_predict"), count)?),
        };
        request.temperature = self.temperature;
        request.top_k = self.top_k;
        request.top_p = self.top_p;
        request.min_p = self.min_p;
        request.seed = self.seed;
        request.stop = self.stop.unwrap_or_default().0;
        request.presence_penalty = self.presence_penalty;
        request.frequency_penalty = self.frequency_penalty;
        request.repetition_penalty = match self.repeat_last_n {
            Some(0) => Some(1.0),
            _ => self.repeat_penalty,
        };
        Ok(())
    }

    /// Options of an embedding request: those that change nothing there are refused, too.
    pub(super) fn check_embedding(
        self,
        reader: &mut FieldReader,
        context: Option<usize>,
    ) -> Result<(), Problem> {
        let mut nothing = RequestFields::default();
        self.write(reader, &mut nothing, context)
    }

    /// Names of options with values that cannot be honoured, with the reason.
    fn refused(&self, context: Option<usize>) -> Vec<(&'static str, &'static str)> {
        let operator = "the operator decides how models are loaded";
        let no_sampler = "this server has no such sampler; use `top_p` or `min_p`";
        let larger = |wanted: u32| context.is_none_or(|context| wanted as usize > context);
        [
            (
                "num_ctx",
                self.num_ctx.is_some_and(larger),
                "it is more than the model's context here, which the operator sets as \
                 `limits.max_context`",
            ),
            (
                "repeat_last_n",
                self.repeat_last_n
                    .is_some_and(|count| !matches!(count, 0 | -1)),
                "the penalty counts all tokens (-1), or none (0)",
            ),
            (
                "typical_p",
                self.typical_p.is_some_and(|p| p != 1.0),
                no_sampler,
            ),
            ("tfs_z", self.tfs_z.is_some_and(|z| z != 1.0), no_sampler),
            (
                "mirostat",
                self.mirostat.is_some_and(|kind| kind != 0),
                no_sampler,
            ),
            (
                "penalize_newline",
                self.penalize_newline == Some(false),
                "the penalty counts all tokens; use `logit_bias` at /v1/chat/completions",
            ),
            (
                "num_keep",
                self.num_keep.is_some(),
                "a prompt that does not fit is refused, not shortened",
            ),
            ("numa", self.numa.is_some(), operator),
            ("num_batch", self.num_batch.is_some(), operator),
            ("num_gpu", self.num_gpu.is_some(), operator),
            ("main_gpu", self.main_gpu.is_some(), operator),
            ("low_vram", self.low_vram.is_some(), operator),
            ("f16_kv", self.f16_kv.is_some(), operator),
            ("logits_all", self.logits_all.is_some(), operator),
            ("vocab_only", self.vocab_only.is_some(), operator),
            ("use_mmap", self.use_mmap.is_some(), operator),
            ("use_mlock", self.use_mlock.is_some(), operator),
            ("embedding_only", self.embedding_only.is_some(), operator),
            ("num_thread", self.num_thread.is_some(), operator),
            (
                "draft_num_predict",
                self.draft_num_predict.is_some(),
                operator,
            ),
        ]
        .into_iter()
        .filter(|(_, refused, _)| *refused)
        .map(|(name, _, why)| (name, why))
        .collect()
    }
}

/// A count from 1 on.
fn counted(path: &FieldPath, count: i64) -> Result<u32, Problem> {
    let found = u32::try_from(count).ok().filter(|count| *count >= 1);
    found.ok_or_else(|| {
        let most = u32::MAX;
        let expected = format!("an integer from 1 to {most}, or -1");
        wrong_value(path, &expected, &json!(count))
    })
}
