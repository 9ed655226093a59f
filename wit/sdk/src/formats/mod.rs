//! Formats in which well-known models write tool calls. A parser for a model of a known family needs no more than
//! `stream::open(&setup, async |text| Format::QwenCoder.read(text).await)`.

mod channels;
mod described;
mod json;
mod literals;
mod spec;
mod table;
mod tags;

pub use spec::{
    Described, JsonCalls, Literals, Nested, Python, Spec, Tags, Typing, Writing, Written,
};
pub use table::Format;

use crate::Model;
use crate::stream::{CallKeys, Text};
use table::TABLE;

/// Source in a model's files that told its format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sign {
    /// Marks in its chat template.
    Template(&'static [&'static str]),
    /// Control tokens.
    Tokens(&'static [&'static str]),
    /// The architecture.
    Architecture,
}

impl Format {
    /// All formats that are listed, the particular before the general.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|(format, _)| *format)
    }

    /// Its specification.
    pub fn spec(self) -> &'static Spec {
        if let Self::Described(described) = self {
            return &described.spec;
        }
        let mut rows = TABLE.iter();
        rows.find(|(format, _)| *format == self)
            .map_or(&spec::USUAL, |(_, spec)| spec)
    }

    /// The name by which settings choose it, such as `qwen-coder`.
    pub fn name(self) -> &'static str {
        self.spec().name
    }

    /// The format of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::all().find(|format| format.name() == name)
    }

    /// The format that a model's chat template tells of, if it tells of one.
    pub fn of_template(template: &str) -> Option<Self> {
        let there = signs_in(template);
        told(|mark| there.contains(&mark)).map(|(format, _)| format)
    }

    /// The format of a model by its chat template; where that tells of none, by its control tokens, and
    /// then by its architecture. With what told it.
    pub fn of_model(model: &Model) -> Option<(Self, Sign)> {
        let template = model.chat_template.as_deref().unwrap_or_default();
        let there = signs_in(template);
        if let Some((format, marks)) = told(|mark| there.contains(&mark)) {
            return Some((format, Sign::Template(marks)));
        }
        let tokens = &model.control_tokens;
        if let Some((format, marks)) = told(|mark| tokens.iter().any(|token| token.text == mark)) {
            return Some((format, Sign::Tokens(marks)));
        }
        let architecture = model.architecture.as_str();
        let mut rows = TABLE.iter();
        rows.find(|(_, spec)| spec.architectures.contains(&architecture))
            .map(|(format, _)| (*format, Sign::Architecture))
    }

    /// Read an answer, reasoning included, to its end.
    pub async fn read(self, text: &mut Text) {
        self.read_reasoning(text, self.spec().reasoning).await;
        self.read_calls(text).await;
    }

    /// Read the reasoning that an answer begins with, between these marks. Calls in a block that nothing
    /// closes end it.
    pub async fn read_reasoning(self, text: &mut Text, (open, close): (&str, &str)) {
        let calls = match text.tools().is_empty() {
            true => &[],
            false => self.spec().opens,
        };
        match self {
            // Messages to itself are read with the others.
            Self::Harmony | Self::Atem | Self::Inkling => {}
            _ => text.reasoning_before(open, close, calls).await,
        }
    }

    /// Read an answer, or what is left of it, in which no reasoning is looked for, to its end.
    pub async fn read_calls(self, text: &mut Text) {
        let keys = CallKeys::default();
        match self {
            Self::Described(described) => described::read(text, described).await,
            Self::Harmony => channels::harmony(text).await,
            Self::Inkling => channels::inkling(text).await,
            Self::DeepSeek | Self::DeepSeekV3 => json::deepseek(text).await,
            Self::KimiK2 => json::kimi_k2(text).await,
            Self::Mistral | Self::MistralArgs => json::mistral(text).await,
            Self::Apertus => json::apertus(text).await,
            Self::XLam => json::xlam(text).await,
            Self::Ernie => json::ernie(text).await,
            Self::Functionary => json::functionary(text).await,
            Self::FunctionaryV3 => json::functionary_v3(text).await,
            Self::Llama3Json => json::llama3(text).await,
            Self::Lfm2 => literals::lfm2(text).await,
            Self::Olmo3 => literals::olmo3(text).await,
            Self::Pythonic => literals::pythonic(text).await,
            Self::ToolCode => literals::tool_code(text).await,
            Self::Sarashina => literals::sarashina(text).await,
            Self::Gemma4 => {
                literals::gemma(text, "<|tool_call>", "<tool_call|>", "<|\"|>").await;
            }
            Self::FunctionGemma => {
                let (open, close) = ("<start_function_call>", "<end_function_call>");
                literals::gemma(text, open, close, "<escape>").await;
            }
            Self::SolarOpen => json::solar_open(text).await,
            Self::MiniCpm5 => tags::minicpm5(text).await,
            Self::MiniMaxM3 => tags::minimax_m3(text).await,
            Self::CommandA => {
                let silent = [
                    "<|START_RESPONSE|>",
                    "<|END_RESPONSE|>",
                    "<|START_TEXT|>",
                    "<|END_TEXT|>",
                ];
                let (open, close) = (["<|START_ACTION|>"], ["<|END_ACTION|>"]);
                json::between(text, &open, &close, json::COHERE, &silent).await;
            }
            Self::CommandR => {
                let close = ["```", "```"];
                json::between(text, self.spec().opens, &close, json::COHERE, &[]).await;
            }
            Self::Nemotron => {
                let close = ["</TOOLCALL>", "</toolcall>"];
                json::between(text, self.spec().opens, &close, keys, &[]).await;
            }
            _ => self.read_by_spec(text, keys).await,
        }
    }

    /// Formats of which the description says all.
    async fn read_by_spec(self, text: &mut Text, keys: CallKeys) {
        let spec = self.spec();
        let close: &[&str] = match self {
            Self::InternLm => &["<|action_end|>"],
            Self::Phi4Mini => &["<|/tool_call|>"],
            Self::LongCat => &["</longcat_tool_call>"],
            Self::Hermes => &["</tool_call>"],
            Self::ToolCalls | Self::MiniMaxM1 => &["</tool_calls>"],
            _ => &[],
        };
        match &spec.writing {
            Writing::Tags(tags) if self == Self::KimiK3 => tags::kimi_k3(text, tags).await,
            Writing::Tags(tags) if self == Self::Atem => channels::muse(text, tags).await,
            Writing::Tags(tags) => tags::read(text, tags, &[]).await,
            _ => json::between(text, spec.opens, close, keys, &[]).await,
        }
    }
}

/// Marks of all formats that a text has. One pass, since every instance of a parser asks.
fn signs_in(text: &str) -> Vec<&'static str> {
    let mut by_first: [Vec<&str>; 256] = std::array::from_fn(|_| Vec::new());
    let signs = TABLE.iter().flat_map(|(_, spec)| spec.signs);
    for mark in signs.flat_map(|set| set.iter().copied()) {
        let first = mark.bytes().next().unwrap_or_default();
        by_first[usize::from(first)].push(mark);
    }
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    for (at, &byte) in bytes.iter().enumerate() {
        by_first[usize::from(byte)].retain(|mark| {
            let there = bytes[at..].starts_with(mark.as_bytes());
            found.extend(there.then_some(*mark));
            !there
        });
    }
    found
}

/// The first format of which one set of marks is there altogether.
fn told(is_there: impl Fn(&str) -> bool) -> Option<(Format, &'static [&'static str])> {
    TABLE.iter().find_map(|(format, spec)| {
        let mut sets = spec.signs.iter();
        sets.find(|set| set.iter().all(|mark| is_there(mark)))
            .map(|set| (*format, *set))
    })
}
