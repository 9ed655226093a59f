//! The offline commands: JSON in, JSON out, through the same components as the server's.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use mortise_plugin::{
    GrammarSource, MatchStatus, ParserEvent, ParserSetup, PluginError, Segment, TemplateInput,
    ToolChoice,
};
use mortise_service::{
    Chunking, OfflineError, RequestId, check_grammar, parse_text, render_template,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::assembly::{Handles, Plugins};
use crate::cli::ModelInput;
use crate::config::{DEMO_MODEL, ModelConfig, PluginConfig};
use crate::model_text::ModelText;

/// Largest input that is read.
const MAX_INPUT_BYTES: u64 = 64 << 20;

/// Write to standard output.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .context("cannot write the output")
}

fn print_json(value: &Value) -> anyhow::Result<()> {
    print(&format!("{value:#}\n"))
}

/// The JSON of an offline command, as `T`.
fn read<T: for<'de> Deserialize<'de>>(input: &ModelInput) -> anyhow::Result<T> {
    let mut text = String::new();
    let read = match &input.input {
        Some(path) => std::fs::File::open(path)
            .with_context(|| format!("cannot open `{}`", path.display()))?
            .take(MAX_INPUT_BYTES)
            .read_to_string(&mut text),
        None => std::io::stdin()
            .lock()
            .take(MAX_INPUT_BYTES)
            .read_to_string(&mut text),
    };
    read.context("cannot read the input as UTF-8")?;
    serde_json::from_str(&text).context("the input is not what the command reads; see --help")
}

/// Everything that an offline command may need of a model.
struct Bench {
    runtime: tokio::runtime::Runtime,
    text: ModelText,
    handles: Handles,
    request: RequestId,
}

impl Bench {
    fn open(input: &ModelInput) -> anyhow::Result<Self> {
        let text = model_text(input)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .context("cannot start a runtime")?;
        let plugins = Plugins::load(PluginConfig {
            dir: input.plugins.clone(),
            ..PluginConfig::default()
        })?;
        let handles = runtime.block_on(plugins.bind(&text))?;
        Ok(Self {
            runtime,
            text,
            handles,
            request: Arc::from("offline"),
        })
    }
}

fn model_text(input: &ModelInput) -> anyhow::Result<ModelText> {
    ModelText::open(&ModelConfig {
        name: DEMO_MODEL.to_owned(),
        aliases: Vec::new(),
        path: input.model.clone(),
        hf: None,
        script: None,
        quantize: None,
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TemplateRequest {
    messages: Value,
    #[serde(default)]
    tools: Option<Value>,
    #[serde(default)]
    arguments: Option<Map<String, Value>>,
    #[serde(default = "yes")]
    add_generation_prompt: bool,
    #[serde(default)]
    continue_final_message: bool,
    #[serde(default = "fixed_day")]
    today: String,
}

fn yes() -> bool {
    true
}

/// The same every day, so that outputs can be compared.
fn fixed_day() -> String {
    "2024-01-01".to_owned()
}

/// `mortise template render`
pub(crate) fn template(input: &ModelInput) -> anyhow::Result<()> {
    let request: TemplateRequest = read(input)?;
    let bench = Bench::open(input)?;
    let Some(template) = &bench.handles.template else {
        bail!("the model has no chat template, and no plugin brings one");
    };
    let rendered = bench.runtime.block_on(render_template(
        template,
        &bench.text.tokenizer,
        &bench.request,
        TemplateInput {
            messages: request.messages.to_string(),
            tools: request.tools.map(|tools| tools.to_string()),
            arguments: request
                .arguments
                .map(|arguments| Value::Object(arguments).to_string()),
            add_generation_prompt: request.add_generation_prompt,
            continue_final_message: request.continue_final_message,
            today: request.today,
        },
    ))?;
    let segments = rendered.segments.iter().map(|segment| match segment {
        Segment::Special(text) => json!({"special": text}),
        Segment::Plain(text) => json!({"plain": text}),
    });
    print_json(&json!({
        "prompt": rendered.text,
        "segments": segments.collect::<Vec<_>>(),
        "tokens": rendered.ids,
        "stop": rendered.stop,
        "opens_reasoning": rendered.opens_reasoning,
    }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ParseRequest {
    text: String,
    /// Characters in a piece; 0 feeds the model's tokens one by one.
    #[serde(default)]
    chunk: Option<usize>,
    #[serde(default)]
    tools: Option<Value>,
    #[serde(default)]
    tool_choice: ChoiceRequest,
    #[serde(default = "yes")]
    parallel: bool,
    #[serde(default)]
    opens_reasoning: bool,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ChoiceRequest {
    None,
    #[default]
    Auto,
    Required,
    Named(String),
}

/// `mortise parse`
pub(crate) fn parse(input: &ModelInput) -> anyhow::Result<()> {
    let request: ParseRequest = read(input)?;
    let bench = Bench::open(input)?;
    let setup = ParserSetup {
        tools: request
            .tools
            .map_or_else(|| "[]".to_owned(), |tools| tools.to_string()),
        tool_choice: match request.tool_choice {
            ChoiceRequest::None => ToolChoice::None,
            ChoiceRequest::Auto => ToolChoice::Auto,
            ChoiceRequest::Required => ToolChoice::Required,
            ChoiceRequest::Named(name) => ToolChoice::Named(name),
        },
        parallel: request.parallel,
        opens_reasoning: request.opens_reasoning,
    };
    let chunking = match request.chunk {
        None => Chunking::Whole,
        Some(0) => Chunking::Tokens,
        Some(characters) => Chunking::Every(characters),
    };
    let events = bench.runtime.block_on(parse_text(
        &bench.handles.parser,
        &bench.text.tokenizer,
        &bench.request,
        &setup,
        &request.text,
        chunking,
    ))?;
    print_json(&parsed(&events))
}

/// Events, and what they add up to.
fn parsed(events: &[ParserEvent]) -> Value {
    let (mut content, mut reasoning) = (String::new(), String::new());
    let mut calls: Vec<(Option<String>, String, String)> = Vec::new();
    let mut listed = Vec::with_capacity(events.len());
    for event in events {
        listed.push(match event {
            ParserEvent::Content(text) => {
                content.push_str(text);
                json!({"content": text})
            }
            ParserEvent::Reasoning(text) => {
                reasoning.push_str(text);
                json!({"reasoning": text})
            }
            ParserEvent::CallBegin { index, id, name } => {
                calls.push((id.clone(), name.clone(), String::new()));
                json!({"call_begin": {"index": index, "id": id, "name": name}})
            }
            ParserEvent::CallArguments { index, delta } => {
                if let Some((_, _, arguments)) = calls.get_mut(*index as usize) {
                    arguments.push_str(delta);
                }
                json!({"call_arguments": {"index": index, "delta": delta}})
            }
            ParserEvent::CallEnd { index } => json!({"call_end": index}),
        });
    }
    let calls = calls
        .into_iter()
        .map(|(id, name, arguments)| json!({"id": id, "name": name, "arguments": arguments}));
    json!({
        "content": content,
        "reasoning": reasoning,
        "tool_calls": calls.collect::<Vec<_>>(),
        "events": listed,
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GrammarRequest {
    #[serde(default)]
    json_object: bool,
    #[serde(default)]
    json_schema: Option<Value>,
    #[serde(default)]
    regex: Option<String>,
    #[serde(default)]
    lark: Option<String>,
    #[serde(default)]
    texts: Vec<String>,
}

impl GrammarRequest {
    fn source(&mut self) -> anyhow::Result<GrammarSource> {
        let mut given: Vec<GrammarSource> = Vec::new();
        if self.json_object {
            given.push(GrammarSource::JsonObject);
        }
        let schema = self.json_schema.take().map(|schema| schema.to_string());
        given.extend(schema.map(GrammarSource::JsonSchema));
        given.extend(self.regex.take().map(GrammarSource::Regex));
        given.extend(self.lark.take().map(GrammarSource::Lark));
        match (given.pop(), given.len()) {
            (Some(source), 0) => Ok(source),
            _ => bail!("give exactly one of json_object, json_schema, regex and lark"),
        }
    }
}

/// `mortise grammar check`
pub(crate) fn grammar(input: &ModelInput) -> anyhow::Result<()> {
    let mut request: GrammarRequest = read(input)?;
    let source = request.source()?;
    let bench = Bench::open(input)?;
    let mut texts = std::mem::take(&mut request.texts);
    // The empty text only shows whether the grammar compiles.
    let compile_only = texts.is_empty();
    if compile_only {
        texts.push(String::new());
    }
    let mut verdicts = Vec::with_capacity(texts.len());
    for text in texts {
        let verdict = bench.runtime.block_on(check_grammar(
            &bench.handles.grammar,
            &bench.text.tokenizer,
            bench.text.vocabulary.len(),
            &bench.request,
            &source,
            &text,
        ));
        match verdict {
            Ok(verdict) => verdicts.push(json!({
                "text": text,
                "matches": verdict.accepted,
                "tokens": verdict.tokens,
                "accepted_tokens": verdict.allowed_tokens,
                "may_end": verdict.status != MatchStatus::Active,
            })),
            // A grammar that is refused is a result; a plugin that fails is not.
            Err(OfflineError::Plugin(error)) if is_refusal(&error) => {
                return print_json(&json!({"valid": false, "error": error.to_string()}));
            }
            Err(error) => return Err(error.into()),
        }
    }
    if compile_only {
        verdicts.clear();
    }
    print_json(&json!({"valid": true, "texts": verdicts}))
}

fn is_refusal(error: &PluginError) -> bool {
    use mortise_plugin::Fault;
    matches!(error.fault, Fault::Invalid(_) | Fault::Unsupported(_))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenizeRequest {
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    tokens: Option<Vec<u32>>,
    #[serde(default)]
    special: Option<bool>,
}

/// `mortise tokenize`
pub(crate) fn tokenize(input: &ModelInput) -> anyhow::Result<()> {
    let request: TokenizeRequest = read(input)?;
    let tokenizer = model_text(input)?.tokenizer;
    let tokens = match (request.text, request.tokens) {
        (Some(text), None) if request.special.unwrap_or(false) => {
            tokenizer.encode_special(&text)?
        }
        (Some(text), None) => tokenizer.encode_plain(&text)?,
        (None, Some(tokens)) => tokens,
        _ => bail!("give either `text` or `tokens`"),
    };
    let keep = request.special.unwrap_or(true);
    let pieces: Vec<_> = tokens
        .iter()
        .map(|&id| String::from_utf8_lossy(tokenizer.table().bytes(id)).into_owned())
        .collect();
    print_json(&json!({
        "tokens": tokens,
        "pieces": pieces,
        "text": tokenizer.decode(&tokens, keep),
        "count": tokens.len(),
    }))
}

/// `mortise inspect`
pub(crate) fn inspect(path: &Path) -> anyhow::Result<()> {
    print_json(&crate::inspect::inspect(path)?)
}
