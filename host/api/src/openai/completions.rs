//! `POST /v1/completions`: from wire JSON to the service's fields, and back to the older shapes.

use mortise_http::Problem as ApiError;
use mortise_service::{
    Delta, FinishReason, Prompt, RequestFields, ServerToolCall, TokenLogprob, Usage,
};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::answer::Writer;
use super::beams::{BEAM_FIELDS, take_beams};
use super::chunk::Chunks;
use super::constraint::take_constraint;
use super::fields::{Fields, take_positive, take_sampling, take_stream_options, wrong_type};
use super::reply::{FINGERPRINT, Identity, Shape, UsageBody, finish_name, finite};
use crate::unsupported::Unsupported;

/// Most prompts in one request.
const MAX_PROMPTS: usize = 32;

/// A completion request, translated: one set of fields for each prompt.
pub(crate) struct CompletionCall {
    pub(crate) requests: Vec<RequestFields>,
    pub(crate) shape: Shape,
    /// What each prompt's choices begin with, if they repeat the prompt.
    pub(crate) echo: Option<Vec<String>>,
    pub(crate) ignored: Vec<String>,
}

/// Every field this route knows, for the nearest-name hint.
const KNOWN: [&str; 34] = [
    "model",
    "prompt",
    "best_of",
    "echo",
    "frequency_penalty",
    "logit_bias",
    "logprobs",
    "max_tokens",
    "n",
    "presence_penalty",
    "seed",
    "stop",
    "stream",
    "stream_options",
    "suffix",
    "temperature",
    "top_p",
    "user",
    "top_k",
    "min_p",
    "repetition_penalty",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "structured_outputs",
    "response_format",
    "min_tokens",
    "ignore_eos",
    "fairness_key",
    BEAM_FIELDS[0],
    BEAM_FIELDS[1],
    BEAM_FIELDS[2],
    BEAM_FIELDS[3],
];

/// Fields that mortise knows and cannot honour.
const REFUSED: [(&str, &str); 4] = [
    (
        "suffix",
        "this server's models continue text and do not fill gaps",
    ),
    ("ignore_eos", "the model's end token always ends an answer"),
    ("min_tokens", "answers have no least length"),
    ("stop_token_ids", "use `stop` with strings"),
];

/// OpenAI's default on this route.
const DEFAULT_MAX_TOKENS: u32 = 16;

/// Translate a request.
pub(crate) fn parse(
    body: Map<String, Value>,
    mode: Unsupported,
) -> Result<CompletionCall, ApiError> {
    let mut fields = Fields::new(body, mode);
    let mut request = RequestFields {
        model: fields.required_string("model")?,
        max_tokens: Some(take_positive(&mut fields, "max_tokens")?.unwrap_or(DEFAULT_MAX_TOKENS)),
        stream: fields.boolean("stream")?.unwrap_or(false),
        ..RequestFields::default()
    };
    let prompts = take_prompts(&mut fields)?;
    take_sampling(&mut fields, &mut request)?;
    request.logprobs = fields.count("logprobs")?;
    take_constraint(&mut fields, &mut request)?;
    let echo = take_echo(&mut fields, &prompts, request.logprobs.is_some())?;
    // OpenAI's schema allows 0, which asks for nothing.
    request.best_of = fields.count("best_of")?.filter(|best_of| *best_of > 0);
    take_beams(&mut fields, &mut request)?;
    let (include_usage, obfuscate) = take_stream_options(&mut fields)?;
    // An opaque label, as in chat.
    fields.take("user");
    for (name, why) in REFUSED {
        if fields.take(name).is_some() {
            fields.unsupported(name, why)?;
        }
    }
    let shape = Shape {
        include_usage,
        obfuscate,
        logprobs: request.logprobs.is_some(),
        legacy_functions: false,
    };
    let requests = prompts
        .into_iter()
        .map(|prompt| RequestFields {
            prompt,
            ..request.clone()
        })
        .collect();
    Ok(CompletionCall {
        requests,
        shape,
        echo,
        ignored: fields.finish(&KNOWN)?,
    })
}

/// A string, an array of strings, an array of token ids, or an array of those.
fn take_prompts(fields: &mut Fields) -> Result<Vec<Prompt>, ApiError> {
    let items = match fields.take("prompt") {
        None => return Err(fields.missing("prompt")),
        Some(Value::String(text)) => return Ok(vec![Prompt::Text(text)]),
        Some(Value::Array(items)) if !items.is_empty() => items,
        Some(Value::Array(_)) => {
            return Err(ApiError::invalid("prompt", "`prompt` must not be empty"));
        }
        Some(other) => return Err(wrong_type("prompt", "a string or an array", &other)),
    };
    if items[0].is_number() {
        return Ok(vec![Prompt::Tokens(tokens("prompt", items)?)]);
    }
    if items.len() > MAX_PROMPTS {
        return Err(ApiError::invalid(
            "prompt",
            format!(
                "`prompt` holds {} prompts; the limit is {MAX_PROMPTS}",
                items.len()
            ),
        ));
    }
    items
        .into_iter()
        .enumerate()
        .map(|(index, item)| {
            let path = format!("prompt[{index}]");
            match item {
                Value::String(text) => Ok(Prompt::Text(text)),
                Value::Array(ids) => tokens(&path, ids).map(Prompt::Tokens),
                other => Err(wrong_type(
                    &path,
                    "a string or an array of token ids",
                    &other,
                )),
            }
        })
        .collect()
}

fn tokens(path: &str, ids: Vec<Value>) -> Result<Vec<u32>, ApiError> {
    ids.iter()
        .enumerate()
        .map(|(index, id)| {
            let token = id.as_u64().and_then(|id| u32::try_from(id).ok());
            token.ok_or_else(|| wrong_type(&format!("{path}[{index}]"), "a token id", id))
        })
        .collect()
}

fn take_echo(
    fields: &mut Fields,
    prompts: &[Prompt],
    logprobs: bool,
) -> Result<Option<Vec<String>>, ApiError> {
    if !fields.boolean("echo")?.unwrap_or(false) {
        return Ok(None);
    }
    if logprobs {
        fields.unsupported("echo", "log-probabilities of the prompt are not computed")?;
    }
    let mut texts = Vec::with_capacity(prompts.len());
    for prompt in prompts {
        match prompt {
            Prompt::Text(text) => texts.push(text.clone()),
            _ => {
                fields.unsupported("echo", "a prompt of token ids is not turned back into text")?;
                return Ok(None);
            }
        }
    }
    Ok(Some(texts))
}

/// The legacy columns of log-probabilities.
#[derive(Default, Serialize)]
struct Columns {
    tokens: Vec<String>,
    token_logprobs: Vec<f32>,
    top_logprobs: Option<Vec<Map<String, Value>>>,
    text_offset: Vec<usize>,
}

impl Columns {
    /// Append tokens whose text begins `offset` characters into the choice's text.
    fn extend(&mut self, logprobs: &[TokenLogprob], offset: &mut usize) {
        for entry in logprobs {
            self.tokens.push(entry.token.clone());
            self.token_logprobs.push(finite(entry.logprob));
            self.text_offset.push(*offset);
            *offset += entry.token.chars().count();
            if !entry.top.is_empty() {
                let top = entry.top.iter();
                let top = top.map(|(token, _, logprob)| (token.clone(), json!(finite(*logprob))));
                self.top_logprobs
                    .get_or_insert_default()
                    .push(top.collect());
            }
        }
    }
}

/// Gathers the events of a completion into one body.
pub(crate) struct CompletionWhole {
    identity: Identity,
    shape: Shape,
    choices: Vec<WholeChoice>,
}

#[derive(Default)]
struct WholeChoice {
    text: String,
    offset: usize,
    columns: Columns,
    finish: Option<FinishReason>,
}

impl CompletionWhole {
    /// `openings` are the texts that each choice begins with.
    pub(crate) fn new(identity: Identity, shape: Shape, openings: Vec<String>) -> Self {
        let choices = openings.into_iter().map(|text| WholeChoice {
            offset: text.chars().count(),
            text,
            ..WholeChoice::default()
        });
        Self {
            identity,
            shape,
            choices: choices.collect(),
        }
    }

    pub(crate) fn delta(&mut self, choice: u32, delta: &Delta, logprobs: &[TokenLogprob]) {
        if let Some(choice) = self.choices.get_mut(choice as usize) {
            choice.text.push_str(plain(delta));
            choice.columns.extend(logprobs, &mut choice.offset);
        }
    }

    pub(crate) fn finished(&mut self, choice: u32, reason: FinishReason) {
        if let Some(choice) = self.choices.get_mut(choice as usize) {
            choice.finish = Some(reason);
        }
    }

    pub(crate) fn body(self, usage: Usage) -> Value {
        let shape = self.shape;
        let choices: Vec<Value> = self
            .choices
            .into_iter()
            .enumerate()
            .map(|(index, choice)| {
                json!({
                    "index": index,
                    "text": choice.text,
                    "logprobs": shape.logprobs.then_some(choice.columns),
                    "finish_reason": completion_finish(choice.finish.unwrap_or(FinishReason::Stop)),
                })
            })
            .collect();
        json!({
            "id": self.identity.id,
            "object": "text_completion",
            "created": self.identity.created,
            "model": self.identity.model,
            "system_fingerprint": FINGERPRINT,
            "choices": choices,
            "usage": UsageBody::from(usage),
        })
    }
}

/// Text completions know no calls and no reasoning; whatever was generated is text.
fn plain(delta: &Delta) -> &str {
    match delta {
        Delta::Content(text) | Delta::Reasoning(text) => text,
        Delta::CallArguments { delta, .. } => delta,
        Delta::CallBegin { .. } => "",
    }
}

fn completion_finish(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::ToolCalls => "stop",
        other => finish_name(other, false),
    }
}

/// Writes the events of a completion as chunks.
pub(crate) struct CompletionChunks {
    chunks: Chunks,
    openings: Vec<String>,
    offsets: Vec<usize>,
}

#[derive(Serialize)]
struct ChunkChoice<'a> {
    index: u32,
    text: &'a str,
    logprobs: Option<Columns>,
    finish_reason: Option<&'static str>,
}

impl CompletionChunks {
    pub(crate) fn new(identity: Identity, shape: Shape, openings: Vec<String>) -> Self {
        let object = "text_completion";
        let chunks = Chunks {
            object,
            identity,
            shape,
        };
        Self {
            chunks,
            offsets: openings.iter().map(|text| text.chars().count()).collect(),
            openings,
        }
    }

    fn write(&self, choice: &ChunkChoice<'_>, out: &mut Vec<u8>) {
        self.chunks.choice(choice, choice.text.len(), out);
    }
}

impl Writer for CompletionChunks {
    fn opening(&mut self, out: &mut Vec<u8>) {
        for (index, text) in (0_u32..).zip(&self.openings) {
            if text.is_empty() {
                continue;
            }
            let choice = ChunkChoice {
                index,
                text,
                logprobs: None,
                finish_reason: None,
            };
            self.write(&choice, out);
        }
    }

    fn delta(&mut self, index: u32, delta: Delta, logprobs: Vec<TokenLogprob>, out: &mut Vec<u8>) {
        let mut columns = None;
        if let (true, Some(offset)) = (
            self.chunks.shape.logprobs,
            self.offsets.get_mut(index as usize),
        ) {
            columns
                .get_or_insert_with(Columns::default)
                .extend(&logprobs, offset);
        }
        let choice = ChunkChoice {
            index,
            text: plain(&delta),
            logprobs: columns,
            finish_reason: None,
        };
        self.write(&choice, out);
    }

    /// The route enables no tools of the server.
    fn server_tool_call(&mut self, _: u32, _: &ServerToolCall, _: &mut Vec<u8>) {}

    fn finished(&mut self, index: u32, reason: FinishReason, out: &mut Vec<u8>) {
        let choice = ChunkChoice {
            index,
            text: "",
            logprobs: None,
            finish_reason: Some(completion_finish(reason)),
        };
        self.write(&choice, out);
    }

    fn completed(&mut self, usage: Usage, out: &mut Vec<u8>) {
        self.chunks.usage(usage, out);
    }
}
