//! `POST /v1/completions`: from wire JSON to the service's fields, and back to the older shapes.

use mortise_http::Problem;
use mortise_service::{
    Delta, FinishReason, Prompt, PromptScoring, PromptToken, RequestFields, ServerToolCall,
    TokenLogprob, Usage, limits,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::answer::AnswerWriter;
use super::chunk::Chunks;
use super::columns::Columns;
use super::constraint::Constraints;
use super::envelope::{AnswerIdentity, AnswerShape, FINGERPRINT, UsageBody};
use super::inputs::{Input, Inputs};
use super::prompt_scores::scores;
use super::reply::finish_name;
use super::sampling::{Beams, SamplingFields, Streaming, positive};
use super::thoughts::Thoughts;
use crate::fields::{FieldPath, FieldReader, RouteFields, refused_fields};
use crate::limits::MAX_PROMPTS;
use crate::unsupported::Unsupported;

/// OpenAI's default on this route.
const DEFAULT_MAX_TOKENS: u32 = 16;

/// A completion request, translated: one set of fields for each prompt.
#[derive(Debug)]
pub(crate) struct CompletionCall {
    pub(crate) requests: Vec<RequestFields>,
    pub(crate) shape: AnswerShape,
    /// Text that each prompt's choices begin with, if they repeat the prompt.
    pub(crate) echo: Option<Vec<String>>,
    /// A model is asked; if not, the answer is the prompts.
    pub(crate) generates: bool,
    pub(crate) ignored: Vec<String>,
}

/// Fields of this route alone, and the ignored label of the caller.
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
#[allow(dead_code, reason = "`user` is an opaque label, as in chat")]
struct Basics {
    model: String,
    prompt: Inputs,
    max_tokens: Option<u32>,
    logprobs: Option<u32>,
    echo: Option<bool>,
    best_of: Option<u32>,
    user: Option<Value>,
}

refused_fields! {
    /// Fields that cannot be honoured.
    Refused {
        suffix: "this server's models continue text and do not fill gaps",
    }
}

/// The fields of a request, for the contract.
pub(super) fn fields(mode: Unsupported) -> RouteFields {
    RouteFields::new(mode)
        .with::<Basics>()
        .with::<Streaming>()
        .with::<SamplingFields>()
        .with::<Constraints>()
        .with::<Beams>()
        .refusing(Refused::REASONS)
}

/// Translate a request.
pub(crate) fn parse(
    object: Map<String, Value>,
    mode: Unsupported,
) -> Result<CompletionCall, Problem> {
    let mut reader = FieldReader::new(object, mode);
    let basics: Basics = reader.read()?;
    let streaming: Streaming = reader.read_if_any()?;
    let mut request = RequestFields {
        model: basics.model,
        stream: streaming.is_streamed(),
        logprobs: logprobs(basics.logprobs)?,
        ..RequestFields::default()
    };
    let prompts = prompts(basics.prompt)?;
    let sampling: SamplingFields = reader.read_if_any()?;
    sampling.write(&mut reader, &mut request)?;
    let constraints: Constraints = reader.read_if_any()?;
    request.constraint = constraints.translate()?;
    let repeats = basics.echo.unwrap_or(false);
    let echo_logprobs = request.logprobs.filter(|_| repeats);
    let prompt_logprobs = request.prompt_logprobs.map(|scoring| scoring.top);
    score_echo(&mut request, echo_logprobs)?;
    // With log-probabilities, the text of the prompt is that of its tokens.
    let echo = match repeats && echo_logprobs.is_none() {
        true => echo(&mut reader, &prompts)?,
        false => None,
    };
    let scored = request.prompt_logprobs.is_some();
    let generates = scored || echo.is_none() || basics.max_tokens != Some(0);
    let least = basics.max_tokens.filter(|_| generates && !scored);
    let max_tokens = match positive(least, "max_tokens", &mut reader)? {
        None if scored => basics.max_tokens,
        max_tokens => max_tokens,
    };
    request.max_tokens = Some(max_tokens.unwrap_or(DEFAULT_MAX_TOKENS));
    // OpenAI's schema allows 0, which asks for nothing.
    request.best_of = basics.best_of.filter(|best_of| *best_of > 0);
    let beams: Beams = reader.read_if_any()?;
    beams.write(&mut request)?;
    reader.read_if_any::<Refused>()?.refuse(&mut reader)?;
    let shape = AnswerShape {
        thoughts: Thoughts::Apart,
        include_usage: streaming.includes_usage(),
        usage_throughout: streaming.reports_usage_throughout(),
        obfuscate: streaming.obfuscates(),
        logprobs: request.logprobs.is_some(),
        prompt_logprobs,
        echo_logprobs,
        token_ids: request.return_tokens,
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
        generates,
        ignored: reader.finish(|_| false)?,
    })
}

/// Alternatives of each token. Chat completions have another field for them.
fn logprobs(top: Option<u32>) -> Result<Option<u32>, Problem> {
    match top {
        Some(top) if top > limits::MAX_TOP_LOGPROBS => Err(Problem::invalid(
            "logprobs",
            format!(
                "`logprobs` is {top}; it must be at most {}",
                limits::MAX_TOP_LOGPROBS
            ),
        )),
        top => Ok(top),
    }
}

/// Ask for the log-probabilities of a prompt that is repeated with those of its tokens, with `top` others beside each.
/// Chunks of a choice come in order, and the prompt is first: only the first of several choices waits for it.
fn score_echo(request: &mut RequestFields, top: Option<u32>) -> Result<(), Problem> {
    let Some(top) = top else {
        return Ok(());
    };
    if let (true, Some(n @ 2..)) = (request.stream, request.n) {
        let message =
            format!("`n` is {n}; with `echo` and `logprobs`, one choice is streamed at most");
        return Err(Problem::invalid("n", message));
    }
    let own = request.prompt_logprobs.map_or(0, |scoring| scoring.top);
    request.prompt_logprobs = Some(PromptScoring {
        field: "echo",
        top: top.max(own),
    });
    Ok(())
}

fn prompts(Inputs(inputs): Inputs) -> Result<Vec<Prompt>, Problem> {
    match inputs.len() {
        0 => Err(Problem::invalid("prompt", "`prompt` must not be empty")),
        1..=MAX_PROMPTS => Ok(inputs.into_iter().map(Prompt::from).collect()),
        count => Err(Problem::invalid(
            "prompt",
            format!("`prompt` holds {count} prompts; the limit is {MAX_PROMPTS}"),
        )),
    }
}

impl From<Input> for Prompt {
    fn from(input: Input) -> Self {
        match input {
            Input::Text(text) => Self::Text(text),
            Input::Tokens(ids) => Self::Tokens(ids),
        }
    }
}

/// The text that choices begin with, for each prompt.
fn echo(reader: &mut FieldReader, prompts: &[Prompt]) -> Result<Option<Vec<String>>, Problem> {
    let path = FieldPath::from("echo");
    let mut texts = Vec::with_capacity(prompts.len());
    for prompt in prompts {
        match prompt {
            Prompt::Text(text) => texts.push(text.clone()),
            _ => {
                let why = "a prompt of token ids is turned back into text only with `logprobs`";
                reader.unsupported(&path, why)?;
                return Ok(None);
            }
        }
    }
    Ok(Some(texts))
}

/// Start of a choice.
#[derive(Debug, Clone)]
pub(crate) struct Opening {
    /// Text of the prompt, where it is repeated.
    text: String,
    /// Ids of the prompt, where the caller wants them.
    ids: Option<Vec<u32>>,
}

impl Opening {
    pub(crate) fn new(text: String, ids: Option<Vec<u32>>) -> Self {
        Self { text, ids }
    }
}

/// Gathers the events of a completion into one body.
pub(crate) struct CompletionWhole {
    identity: AnswerIdentity,
    shape: AnswerShape,
    /// Choices of each prompt.
    n: u32,
    choices: Vec<WholeChoice>,
}

#[derive(Default)]
struct WholeChoice {
    text: String,
    offset: usize,
    columns: Columns,
    /// Text and columns of the prompt that the choice repeats with log-probabilities.
    echo: (String, Columns),
    /// Characters of that text.
    echoed: usize,
    /// Log-probabilities of the prompt, where the caller wants them.
    scores: Vec<Value>,
    prompt: Option<Vec<u32>>,
    tokens: Vec<u32>,
    finish: Option<FinishReason>,
}

impl CompletionWhole {
    /// `openings` are what each choice begins with, `n` for every prompt.
    pub(crate) fn new(
        identity: AnswerIdentity,
        shape: AnswerShape,
        n: u32,
        openings: Vec<Opening>,
    ) -> Self {
        let choices = openings.into_iter().map(|opening| WholeChoice {
            offset: opening.text.chars().count(),
            text: opening.text,
            prompt: opening.ids,
            ..WholeChoice::default()
        });
        Self {
            identity,
            shape,
            n,
            choices: choices.collect(),
        }
    }

    /// Tokens of the prompt that the choices from `first` on answer.
    pub(crate) fn prompt(&mut self, first: u32, tokens: &[PromptToken]) {
        let shape = self.shape;
        let of_prompt = self.choices.iter_mut().skip(first as usize);
        for choice in of_prompt.take(self.n as usize) {
            if let Some(top) = shape.prompt_logprobs {
                let told = tokens.iter().map(|token| scores(token, top));
                choice.scores.extend(told);
            }
            if let Some(top) = shape.echo_logprobs {
                let (text, columns) = &mut choice.echo;
                columns.prompt(tokens, top, &mut choice.echoed);
                text.extend(tokens.iter().map(|token| token.text.as_str()));
            }
        }
    }

    pub(crate) fn delta(
        &mut self,
        choice: u32,
        delta: &Delta,
        logprobs: &[TokenLogprob],
        tokens: &[u32],
    ) {
        if let Some(choice) = self.choices.get_mut(choice as usize) {
            choice.tokens.extend(tokens);
            choice.text.push_str(plain(delta));
            choice.columns.extend(logprobs, &mut choice.offset);
        }
    }

    pub(crate) fn finished(&mut self, choice: u32, reason: FinishReason, tokens: &[u32]) {
        if let Some(choice) = self.choices.get_mut(choice as usize) {
            choice.tokens.extend(tokens);
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
                let (echo, mut columns) = choice.echo;
                columns.append(choice.columns, choice.echoed);
                let mut body = json!({
                    "index": index,
                    "text": echo + &choice.text,
                    "logprobs": shape.logprobs.then_some(columns),
                    "finish_reason": completion_finish(choice.finish.unwrap_or(FinishReason::Stop)),
                });
                if shape.token_ids {
                    body["prompt_token_ids"] = json!(choice.prompt);
                    body["token_ids"] = json!(choice.tokens);
                }
                if shape.prompt_logprobs.is_some() {
                    body["prompt_logprobs"] = Value::Array(choice.scores);
                }
                body
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
    openings: Vec<Opening>,
    offsets: Vec<usize>,
}

#[derive(Serialize)]
struct ChunkChoice<'a> {
    index: u32,
    text: &'a str,
    logprobs: Option<Columns>,
    finish_reason: Option<&'static str>,
    /// vLLM's fields. In chat, that of the prompt stands beside the choices.
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_token_ids: Option<&'a [u32]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_ids: Option<Vec<u32>>,
}

impl CompletionChunks {
    pub(crate) fn new(
        identity: AnswerIdentity,
        shape: AnswerShape,
        openings: Vec<Opening>,
    ) -> Self {
        let object = "text_completion";
        let chunks = Chunks {
            object,
            identity,
            shape,
            so_far: None,
            prompt: None,
        };
        Self {
            chunks,
            offsets: openings
                .iter()
                .map(|opening| opening.text.chars().count())
                .collect(),
            openings,
        }
    }

    fn write(&self, choice: &ChunkChoice<'_>, out: &mut Vec<u8>) {
        self.chunks.choice(choice, choice.text.len(), out);
    }

    /// Ids, where the caller wants them.
    fn token_ids(&self, tokens: Vec<u32>) -> Option<Vec<u32>> {
        self.chunks.shape.token_ids.then_some(tokens)
    }
}

impl AnswerWriter for CompletionChunks {
    fn progress(&mut self, usage: &dyn Fn() -> Usage) {
        self.chunks.progress(usage);
    }

    fn opening(&mut self, out: &mut Vec<u8>) {
        for (index, Opening { text, ids }) in (0_u32..).zip(&self.openings) {
            if text.is_empty() && ids.is_none() {
                continue;
            }
            let choice = ChunkChoice {
                index,
                text,
                logprobs: None,
                finish_reason: None,
                prompt_token_ids: ids.as_deref(),
                token_ids: self.token_ids(Vec::new()),
            };
            self.write(&choice, out);
        }
    }

    fn prompt(&mut self, index: u32, tokens: &[PromptToken], out: &mut Vec<u8>) {
        let (Some(top), Some(offset)) = (
            self.chunks.shape.echo_logprobs,
            self.offsets.get_mut(index as usize),
        ) else {
            return;
        };
        let mut columns = Columns::default();
        columns.prompt(tokens, top, offset);
        let text: String = tokens.iter().map(|token| token.text.as_str()).collect();
        let choice = ChunkChoice {
            index,
            text: &text,
            logprobs: Some(columns),
            finish_reason: None,
            prompt_token_ids: None,
            token_ids: self.token_ids(Vec::new()),
        };
        self.write(&choice, out);
    }

    fn delta(
        &mut self,
        index: u32,
        delta: Delta,
        logprobs: Vec<TokenLogprob>,
        tokens: Vec<u32>,
        out: &mut Vec<u8>,
    ) {
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
            prompt_token_ids: None,
            token_ids: self.token_ids(tokens),
        };
        self.write(&choice, out);
    }

    /// The route enables no tools of the server.
    fn server_tool_call(&mut self, _: u32, _: &ServerToolCall, _: &mut Vec<u8>) {}

    fn finished(&mut self, index: u32, reason: FinishReason, tokens: Vec<u32>, out: &mut Vec<u8>) {
        let choice = ChunkChoice {
            index,
            text: "",
            logprobs: None,
            finish_reason: Some(completion_finish(reason)),
            prompt_token_ids: None,
            token_ids: self.token_ids(tokens),
        };
        self.write(&choice, out);
    }

    fn completed(&mut self, usage: Usage, out: &mut Vec<u8>) {
        self.chunks.usage(usage, out);
    }
}
