//! Rendering of one conversation.

use minijinja::{Environment, ErrorKind};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::conversation::{self, Needs};
pub use crate::marks::ControlToken;
use crate::marks::{self, Marks, Scope};
use crate::segments::{Segment, Splitter};
use crate::template::{Arguments, render_raw};
use crate::thinking::{self, Switches};
use crate::{environment, probe};

/// Bytes of an error that reach the caller.
const MAX_ERROR_BYTES: usize = 1_024;
/// Template of models that come without one.
const CHATML: &str = include_str!("chatml.jinja");
/// Arguments that `chat_template_kwargs` may not replace.
const RESERVED: [&str; 6] = [
    "messages",
    "tools",
    "add_generation_prompt",
    "bos_token",
    "eos_token",
    environment::TODAY,
];
/// Tokens that end a turn in common formats. Models name only one of theirs as end-of-sequence.
const TURN_ENDS: [&str; 6] = [
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<end_of_turn>",
    "<|end|>",
    "<|end_of_text|>",
];

/// Error of rendering.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RenderError {
    /// The conversation, its tools or its arguments are wrong, or the template refuses them: the
    /// caller's to mend.
    #[error("{0}")]
    Conversation(String),
    /// The template names something that there is not. Another conversation may miss the place.
    #[error("{0}")]
    Template(String),
    /// With this conversation the template does not come to an end within a bounded number of steps.
    #[error(
        "the chat template takes more than {} steps for this conversation; \
         send fewer or shorter messages, tools and arguments",
        environment::MAX_STEPS
    )]
    TooComplex,
}

/// Facts from the model's files.
#[derive(Debug, Clone, Default)]
pub struct Model {
    /// The Jinja source, if the model has one.
    pub chat_template: Option<String>,
    /// Text of the beginning-of-sequence token, or empty.
    pub bos_token: String,
    /// Text of the end-of-sequence token, or empty.
    pub eos_token: String,
    /// Every control token.
    pub control_tokens: Vec<ControlToken>,
}

/// Conversation to render; the fields are those of `chat-template.input`.
#[derive(Debug, Clone, Default)]
pub struct Input {
    /// JSON array of messages.
    pub messages: String,
    /// JSON array of tool declarations.
    pub tools: Option<String>,
    /// JSON object of further arguments.
    pub arguments: Option<String>,
    /// End with the opening of an assistant turn.
    pub add_generation_prompt: bool,
    /// Leave the last message open.
    pub continue_final_message: bool,
    /// `YYYY-MM-DD`.
    pub today: String,
}

/// A rendered prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Pieces of the prompt.
    pub segments: Vec<Segment>,
    /// Further strings that end the answer.
    pub stop: Vec<String>,
    /// The prompt ends inside a reasoning block.
    pub opens_reasoning: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    chat_template: Option<String>,
}

/// A compiled template and the model it belongs to.
#[derive(Debug)]
pub struct Renderer {
    environment: Environment<'static>,
    needs: Needs,
    switches: Switches,
    marks: Marks,
    splitter: Splitter,
    model: Model,
    stop: Vec<String>,
}

impl Renderer {
    /// Compile the template of `model`, or the one that the operator put in its place.
    pub fn new(settings: &str, model: Model) -> Result<Self, RenderError> {
        Self::bounded(settings, model, environment::MAX_STEPS)
    }

    /// Compile the template as [`Self::new`] does, for renderings of at most `steps` instructions.
    pub fn bounded(settings: &str, model: Model, steps: u64) -> Result<Self, RenderError> {
        let settings: Settings = serde_json::from_str(settings).map_err(|error| {
            RenderError::Conversation(format!("settings of the chat template: {error}"))
        })?;
        let source = settings
            .chat_template
            .as_deref()
            .or(model.chat_template.as_deref())
            .unwrap_or(CHATML)
            .to_owned();
        let mut environment = environment::compile(&source).map_err(|error| describe(&error))?;
        environment.set_fuel(Some(steps));
        let stop = TURN_ENDS
            .iter()
            .filter(|end| {
                source.contains(**end)
                    && **end != model.eos_token
                    && model.control_tokens.iter().any(|token| token.text == **end)
            })
            .map(|end| (*end).to_owned())
            .collect();
        let needs = probe::probe(&environment, &source, &base_arguments(&model, "2000-01-01"));
        Ok(Self {
            switches: Switches::of(&environment, &source),
            environment,
            needs,
            marks: Marks::new(&model.control_tokens),
            splitter: Splitter::new(&model.control_tokens),
            model,
            stop,
        })
    }

    /// Render a conversation.
    pub fn render(&self, input: &Input) -> Result<Output, RenderError> {
        if input.add_generation_prompt && input.continue_final_message {
            return Err(RenderError::Conversation(
                "`add_generation_prompt` and `continue_final_message` exclude each other; set one"
                    .to_owned(),
            ));
        }
        let mut messages = conversation::read_messages(&input.messages, self.needs)
            .map_err(RenderError::Conversation)?;
        messages = messages
            .into_iter()
            .map(|message| self.protect_message(message))
            .collect();
        let arguments = self.arguments(input)?;
        let rendered = if input.continue_final_message {
            self.render_open(&arguments, messages)?
        } else {
            self.render_marked(&arguments, messages)?
        };
        let (segments, turn) = self.splitter.split(&rendered);
        Ok(Output {
            opens_reasoning: (input.add_generation_prompt || input.continue_final_message)
                && (opens_reasoning(turn) || ends_in_reasoning(&rendered)),
            segments,
            stop: self.stop.clone(),
        })
    }

    fn render_marked(
        &self,
        arguments: &Arguments,
        messages: Vec<Value>,
    ) -> Result<String, RenderError> {
        render_raw(&self.environment, arguments, &Value::Array(messages))
            .map_err(|error| describe(&error))
    }

    /// Render with the last message left open, as `continue_final_message` of `transformers` does:
    /// a tag behind the message shows where to cut.
    fn render_open(
        &self,
        arguments: &Arguments,
        mut messages: Vec<Value>,
    ) -> Result<String, RenderError> {
        let tag = format!("{} ", marks::TAG);
        let Some(said) = conversation::tag_last(&mut messages, &tag) else {
            return Err(RenderError::Conversation(
                "`continue_final_message` needs a last message with text to continue".to_owned(),
            ));
        };
        let mut rendered = self.render_marked(arguments, messages)?;
        let cut = rendered.rfind(marks::TAG);
        let Some(cut) = cut.filter(|_| rendered.contains(said.trim())) else {
            return Err(RenderError::Conversation(
                "`continue_final_message` is set, but the chat template leaves out or changes the \
                 last message"
                    .to_owned(),
            ));
        };
        let kept_spacing = rendered[cut..].starts_with(&tag);
        rendered.truncate(cut);
        if !kept_spacing {
            rendered.truncate(rendered.trim_end().len());
        }
        Ok(rendered)
    }

    fn protect_message(&self, message: Value) -> Value {
        let Value::Object(fields) = message else {
            return message;
        };
        let assistant = fields.get("role").and_then(Value::as_str) == Some("assistant");
        Value::Object(
            fields
                .into_iter()
                .map(|(key, value)| {
                    let said = assistant && !matches!(key.as_str(), "tool_calls" | "function_call");
                    let scope = if said { Scope::SpecialOnly } else { Scope::All };
                    let key = self.marks.protect(&key, Scope::All).into_owned();
                    (key, self.marks.protect_json(value, scope))
                })
                .collect(),
        )
    }

    fn arguments(&self, input: &Input) -> Result<Arguments, RenderError> {
        let mut arguments = base_arguments(&self.model, &input.today);
        if let Some(text) = &input.arguments {
            let given: Map<String, Value> = serde_json::from_str(text).map_err(|error| {
                RenderError::Conversation(format!(
                    "`chat_template_kwargs` must be an object: {error}"
                ))
            })?;
            let asked = given.get(thinking::ASKED).and_then(Value::as_bool);
            for (name, value) in given {
                if name != thinking::ASKED && !RESERVED.contains(&name.as_str()) {
                    let value = self.marks.protect_json(value, Scope::All);
                    arguments.set(&name, value);
                }
            }
            if let Some(asked) = asked {
                self.switches.set(&mut arguments, asked);
            }
        }
        if let Some(text) = &input.tools {
            let tools: Vec<Value> = serde_json::from_str(text).map_err(|error| {
                RenderError::Conversation(format!("`tools` must be an array: {error}"))
            })?;
            let tools = self.marks.protect_json(Value::Array(tools), Scope::All);
            arguments.set("tools", tools);
        }
        arguments.set("add_generation_prompt", input.add_generation_prompt.into());
        Ok(arguments)
    }
}

fn base_arguments(model: &Model, today: &str) -> Arguments {
    let fields = [
        ("tools", Value::Null),
        ("documents", Value::Null),
        ("add_generation_prompt", false.into()),
        ("bos_token", model.bos_token.as_str().into()),
        ("eos_token", model.eos_token.as_str().into()),
        (environment::TODAY, today.into()),
    ];
    let mut arguments = Arguments::default();
    for (name, value) in fields {
        arguments.set(name, value);
    }
    arguments
}

/// Whether the last turn holds a reasoning block that is still open. What looks like one in the
/// caller's text is broken.
fn opens_reasoning(turn: &str) -> bool {
    match (turn.rfind("<think>"), turn.rfind("</think>")) {
        (Some(open), Some(close)) => open > close,
        (Some(_), None) => true,
        (None, _) => false,
    }
}

/// Marks that open a block of reasoning in families that do not write `<think>`.
const REASONING_OPENINGS: [&str; 8] = [
    "<|open|>think<|sep|>",
    "<mm:think>",
    "<seed:think>",
    "<think:opensource>",
    "<longcat_think>",
    "<|inner_prefix|>",
    "<|START_THINKING|>",
    "[THINK]",
];

/// Whether the prompt ends in such a mark. Those in the caller's text are broken where they are control tokens.
fn ends_in_reasoning(rendered: &str) -> bool {
    let rendered = rendered.trim_end();
    REASONING_OPENINGS
        .iter()
        .any(|mark| rendered.ends_with(mark))
}

fn describe(error: &minijinja::Error) -> RenderError {
    if error.kind() == ErrorKind::OutOfFuel {
        return RenderError::TooComplex;
    }
    let line = error
        .line()
        .map_or_else(String::new, |line| format!(" in line {line}"));
    let detail = error.detail().unwrap_or_default();
    let text = match detail.strip_prefix(environment::RAISED) {
        Some(message) => format!("the chat template refused the conversation{line}: {message}"),
        None if detail.is_empty() => format!("the chat template failed{line}: {}", error.kind()),
        None => format!("the chat template failed{line}: {}: {detail}", error.kind()),
    };
    let mut text = marks::restore(&text);
    let end = (0..=MAX_ERROR_BYTES.min(text.len()))
        .rev()
        .find(|&end| text.is_char_boundary(end))
        .unwrap_or(0);
    text.truncate(end);
    match error.kind() {
        ErrorKind::SyntaxError
        | ErrorKind::TemplateNotFound
        | ErrorKind::UnknownFilter
        | ErrorKind::UnknownFunction
        | ErrorKind::UnknownTest => RenderError::Template(text),
        _ => RenderError::Conversation(text),
    }
}
