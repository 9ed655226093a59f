//! Fields that chat and text completions share: sampling, beam search, and the options of a stream.

use mortise_http::Problem;
use mortise_service::{BeamFields, EarlyStopping, PromptScoring, RequestFields, Truncation};
use serde::Deserialize;
use serde_json::Value;

use crate::fields::{FieldPath, FieldReader, NumberMembers, TextOrTexts, TokenId, wrong_type};

/// Sampling parameters.
#[derive(Debug, Default, Deserialize)]
#[serde(expecting = "an object")]
pub(crate) struct SamplingFields {
    temperature: Option<f64>,
    top_p: Option<f64>,
    top_k: Option<i64>,
    min_p: Option<f64>,
    n: Option<u32>,
    seed: Option<i64>,
    repetition_penalty: Option<f64>,
    frequency_penalty: Option<f64>,
    presence_penalty: Option<f64>,
    stop: Option<TextOrTexts>,
    logit_bias: Option<NumberMembers>,
    fairness_key: Option<String>,
    lora_adapter: Option<String>,
    allow_remote: Option<bool>,
    include_stop_str_in_output: Option<bool>,
    stop_token_ids: Option<Vec<TokenId>>,
    ignore_eos: Option<bool>,
    min_tokens: Option<u32>,
    bad_words: Option<Vec<String>>,
    truncate_prompt_tokens: Option<i64>,
    skip_special_tokens: Option<bool>,
    priority: Option<i64>,
    return_token_ids: Option<bool>,
    prompt_logprobs: Option<i64>,
}

impl SamplingFields {
    pub(crate) fn write(
        self,
        reader: &mut FieldReader,
        request: &mut RequestFields,
    ) -> Result<(), Problem> {
        request.temperature = self.temperature;
        request.top_p = self.top_p;
        request.top_k = self.top_k.map(top_k).transpose()?;
        request.min_p = self.min_p;
        request.n = self.n;
        request.seed = self.seed;
        request.repetition_penalty = self.repetition_penalty;
        request.frequency_penalty = self.frequency_penalty;
        request.presence_penalty = self.presence_penalty;
        request.stop = self.stop.unwrap_or_default().0;
        request.logit_bias = biases(self.logit_bias.unwrap_or_default(), reader)?;
        request.fairness_key = self.fairness_key;
        request.lora_adapter = self.lora_adapter;
        request.allow_remote = self.allow_remote.unwrap_or(false);
        request.include_stop = self.include_stop_str_in_output.unwrap_or(false);
        let stops = self.stop_token_ids.unwrap_or_default();
        request.stop_tokens = stops.into_iter().map(|TokenId(id)| id).collect();
        request.ignore_end = self.ignore_eos.unwrap_or(false);
        request.min_tokens = self.min_tokens.unwrap_or(0);
        request.bad_words = self.bad_words.unwrap_or_default();
        request.truncate_prompt = self.truncate_prompt_tokens.map(truncation).transpose()?;
        request.keep_special = !self.skip_special_tokens.unwrap_or(true);
        request.return_tokens = self.return_token_ids.unwrap_or(false);
        request.prompt_logprobs = match self.prompt_logprobs {
            Some(top) => Some(scoring(top, request.stream)?),
            None => None,
        };
        request.waived_priority = self.priority.map(waived).transpose()?.unwrap_or(0);
        Ok(())
    }
}

/// Off is 0 here and -1 in vLLM; both are accepted.
fn top_k(k: i64) -> Result<u32, Problem> {
    if k == -1 {
        return Ok(0);
    }
    u32::try_from(k).map_err(|_| {
        Problem::invalid(
            "top_k",
            format!("`top_k` must be -1 or 0 (off), or a number of tokens; it is {k}"),
        )
    })
}

/// As in vLLM, -1 keeps as many tokens as fit.
fn truncation(tokens: i64) -> Result<Truncation, Problem> {
    if tokens == -1 {
        return Ok(Truncation::Context);
    }
    let kept = u32::try_from(tokens).ok().filter(|tokens| *tokens > 0);
    kept.map(Truncation::Last).ok_or_else(|| {
        let field = "truncate_prompt_tokens";
        let text =
            format!("`{field}` must be at least 1, or -1 for as many as fit; it is {tokens}");
        Problem::invalid(field, text)
    })
}

/// Field of vLLM.
const PROMPT_LOGPROBS: &str = "prompt_logprobs";

/// As in vLLM, log-probabilities of the prompt are not streamed.
fn scoring(top: i64, streamed: bool) -> Result<PromptScoring, Problem> {
    let field = PROMPT_LOGPROBS;
    let Ok(top) = u32::try_from(top) else {
        let text =
            format!("`{field}` is {top}; it must be at least 0: not all tokens are reported");
        return Err(Problem::invalid(field, text));
    };
    if streamed {
        let text = format!("`{field}` cannot be streamed: leave out `stream`");
        return Err(Problem::invalid(field, text));
    }
    Ok(PromptScoring { field, top })
}

/// As in vLLM, requests with lower numbers go first, and 0 is normal. A caller can let others go first; to
/// go before others is for policies to allow.
fn waived(priority: i64) -> Result<u32, Problem> {
    u32::try_from(priority).map_err(|_| {
        let text = format!(
            "`priority` is {priority}; it must be at least 0: a request can let others go first, and \
             only a policy can let it go before them"
        );
        Problem::invalid("priority", text)
    })
}

fn biases(numbers: NumberMembers, reader: &mut FieldReader) -> Result<Vec<(u32, f64)>, Problem> {
    let mut biases = Vec::with_capacity(numbers.0.len());
    for (key, bias) in numbers.0 {
        match key.parse::<u32>() {
            Ok(id) => biases.push((id, bias)),
            Err(_) => {
                let path = FieldPath::from("logit_bias").key(&key);
                reader.unsupported(&path, "the key must be a token id, an integer")?;
            }
        }
    }
    Ok(biases)
}

/// Beam search, which OpenAI does not have: `beam_size`, and vLLM's `use_beam_search` with the terms
/// that it shares with `transformers`.
#[derive(Debug, Default, Deserialize)]
#[serde(expecting = "an object")]
pub(crate) struct Beams {
    beam_size: Option<u32>,
    use_beam_search: Option<bool>,
    length_penalty: Option<f64>,
    early_stopping: Option<Value>,
}

impl Beams {
    /// Write the search, after `n` and `best_of` have been written. Without `beam_size`, vLLM's callers
    /// mean as many beams as choices.
    pub(crate) fn write(self, request: &mut RequestFields) -> Result<(), Problem> {
        let early_stopping = self.early_stopping.map(early_stopping).transpose()?;
        let size = match (self.use_beam_search, self.beam_size) {
            (Some(false), Some(size @ 2..)) => {
                return Err(Problem::invalid(
                    "beam_size",
                    format!(
                        "`beam_size` is {size} and `use_beam_search` is false; give one of them"
                    ),
                ));
            }
            (Some(true), size) => size
                .or_else(|| request.best_of.take())
                .or(request.n)
                .unwrap_or(1),
            // One beam is no search.
            (_, Some(size)) if size != 1 => size,
            _ => {
                let needless = match (self.length_penalty, early_stopping) {
                    (Some(_), _) => "length_penalty",
                    (None, Some(_)) => "early_stopping",
                    (None, None) => return Ok(()),
                };
                return Err(Problem::invalid(
                    needless,
                    format!("`{needless}` needs a beam search: give `beam_size` as well"),
                ));
            }
        };
        request.beams = Some(BeamFields {
            size,
            length_penalty: self.length_penalty.unwrap_or(1.0),
            early_stopping: early_stopping.unwrap_or_default(),
        });
        Ok(())
    }
}

/// True, false or `"never"`.
fn early_stopping(value: Value) -> Result<EarlyStopping, Problem> {
    match value {
        Value::Bool(true) => Ok(EarlyStopping::Full),
        Value::Bool(false) => Ok(EarlyStopping::Unlikely),
        Value::String(word) if word == "never" => Ok(EarlyStopping::Never),
        other => {
            let path = FieldPath::from("early_stopping");
            Err(wrong_type(&path, "a boolean or `never`", &other))
        }
    }
}

/// Options of a streamed answer.
#[derive(Debug, Default, Deserialize)]
#[serde(expecting = "an object")]
pub(crate) struct Streaming {
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(expecting = "an object")]
struct StreamOptions {
    include_usage: Option<bool>,
    include_obfuscation: Option<bool>,
    continuous_usage_stats: Option<bool>,
}

impl Streaming {
    pub(crate) fn is_streamed(&self) -> bool {
        self.stream.unwrap_or(false)
    }

    /// Whether a last chunk reports usage.
    pub(crate) fn includes_usage(&self) -> bool {
        self.option(|options| options.include_usage)
    }

    /// Whether every chunk reports usage so far, beside the last one.
    pub(crate) fn reports_usage_throughout(&self) -> bool {
        self.includes_usage() && self.option(|options| options.continuous_usage_stats)
    }

    /// Whether chunks are padded.
    pub(crate) fn obfuscates(&self) -> bool {
        self.option(|options| options.include_obfuscation)
    }

    fn option(&self, of: impl Fn(&StreamOptions) -> Option<bool>) -> bool {
        self.stream_options.as_ref().and_then(of).unwrap_or(false)
    }
}

/// A count of at least 1. Zero asks for nothing: it is refused by name, or left out of account where
/// that is configured.
pub(crate) fn positive(
    count: Option<u32>,
    name: &str,
    reader: &mut FieldReader,
) -> Result<Option<u32>, Problem> {
    match count {
        Some(0) => {
            reader.unsupported(&FieldPath::from(name), "it must be at least 1")?;
            Ok(None)
        }
        other => Ok(other),
    }
}
