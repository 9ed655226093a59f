//! Formats in which well-known models write tool calls: each a few lines over [`stream`](crate::stream). A parser for a
//! model of a known family needs no more than
//! `stream::open(&setup, async |text| Format::QwenCoder.read(text).await)`.

use crate::stream::{CallKeys, Text};
use crate::tools::Arguments;

/// A way to write tool calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `<tool_call>{"name": …, "arguments": …}</tool_call>`: Hermes, Qwen 2.5 and 3, QwQ, Granite 3.1
    /// and 4 (also a list), ERNIE 4.5.
    Hermes,
    /// `{"name": …, "parameters": …}` alone or behind `<|python_tag|>`; `;` between calls: Llama 3.
    Llama3Json,
    /// `[f(a=1), g(b='x')]` as the beginning of an answer, or between `<|python_start|>` and
    /// `<|python_end|>`: Llama 3.2 and 4.
    Pythonic,
    /// `[TOOL_CALLS][{"name": …, "arguments": …}]`, and since v11 `[TOOL_CALLS]NAME[ARGS]{…}`, with
    /// `[CALL_ID]` between them or not: Mistral.
    Mistral,
    /// `<tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>`: Qwen3-Coder,
    /// Qwen 3.5 and later, Nemotron 3, MiMo; within `<seed:tool_call>` Seed-OSS.
    QwenCoder,
    /// `<tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value></tool_call>`: GLM 4.5 and later.
    Glm,
    /// `<｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{…}<｜tool▁call▁end｜>`, before V3.1 with `function` for the name,
    /// which follows, and a fenced block: DeepSeek.
    DeepSeek,
    /// `<｜DSML｜invoke name="NAME"><｜DSML｜parameter name="KEY" string="true">VALUE</｜DSML｜parameter>`:
    /// DeepSeek V3.2 and V4.
    DeepSeekDsml,
    /// `<|tool_call_begin|>functions.NAME:INDEX<|tool_call_argument_begin|>{…}<|tool_call_end|>`: Kimi K2.
    KimiK2,
    /// `<minimax:tool_call><invoke name="NAME"><parameter name="KEY">VALUE</parameter></invoke>`: MiniMax M2.
    MiniMax,
    /// `<|tool_call_start|>[f(a="x")]<|tool_call_end|>`: LFM2.
    Lfm2,
    /// `<function_calls>` with a Python call on each line: OLMo 3.
    Olmo3,
    /// `<function=NAME>{…}</function>`: Functionary 3.1, Llama 3 with custom tools.
    Functionary,
    /// `<TOOLCALL>[{"name": …, "arguments": …}]</TOOLCALL>`: Nemotron Nano.
    Nemotron,
    /// `<tool_calls>[{"name": …, "arguments": …}]</tool_calls>`: Hunyuan A13B, Jamba 1.5.
    ToolCalls,
    /// `<|action_start|><|plugin|>{"name": …, "parameters": …}<|action_end|>`: InternLM 2.5.
    InternLm,
}

/// Formats by name, with what their chat templates show them by. The first that fits is taken, so the
/// particular come before the general.
const TABLE: &[(Format, &str, &[&str])] = &[
    (Format::DeepSeekDsml, "deepseek-dsml", &["｜DSML｜"]),
    (Format::DeepSeek, "deepseek", &["<｜tool▁call▁begin｜>"]),
    (Format::KimiK2, "kimi-k2", &["<|tool_call_argument_begin|>"]),
    (Format::MiniMax, "minimax", &["<minimax:tool_call>"]),
    (Format::Glm, "glm", &["<arg_key>"]),
    (
        Format::QwenCoder,
        "qwen-coder",
        &["<function=", "<parameter="],
    ),
    (Format::Mistral, "mistral", &["[TOOL_CALLS]"]),
    (Format::Lfm2, "lfm2", &["<|tool_call_start|>"]),
    (Format::Olmo3, "olmo3", &["<function_calls>"]),
    (Format::Nemotron, "nemotron", &["<TOOLCALL>"]),
    (Format::InternLm, "internlm", &["<|action_start|>"]),
    (Format::Hermes, "hermes", &["<tool_call>"]),
    (Format::ToolCalls, "tool-calls", &["<tool_calls>"]),
    (Format::Pythonic, "pythonic", &["<|python_start|>"]),
    (Format::Functionary, "functionary", &["<function="]),
    (Format::Llama3Json, "llama3-json", &["<|python_tag|>"]),
    (
        Format::Llama3Json,
        "llama3-json",
        &["ipython", "\"parameters\""],
    ),
];

impl Format {
    /// All formats.
    pub fn all() -> impl Iterator<Item = Self> {
        // One that is told in two ways stands side by side with itself.
        let mut last = None;
        TABLE.iter().filter_map(move |(format, ..)| {
            let new = last.replace(*format) != Some(*format);
            new.then_some(*format)
        })
    }

    /// The name by which settings choose it, such as `qwen-coder`.
    pub fn name(self) -> &'static str {
        let mut rows = TABLE.iter();
        rows.find(|(format, ..)| *format == self)
            .map_or("", |(_, name, _)| *name)
    }

    /// The format of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::all().find(|format| format.name() == name)
    }

    /// The format that a model's chat template tells of, if it tells of one.
    pub fn of_template(template: &str) -> Option<Self> {
        let mut rows = TABLE.iter();
        let row = rows.find(|(_, _, signs)| signs.iter().all(|sign| template.contains(sign)));
        row.map(|(format, ..)| *format)
    }

    /// Read an answer, reasoning included, to its end.
    pub async fn read(self, text: &mut Text) {
        match self {
            Self::Mistral => text.reasoning("[THINK]", "[/THINK]").await,
            Self::QwenCoder => {
                // Two families write the same with marks of their own.
                if !text.is_at("<seed:think>").await {
                    text.reasoning("<think>", "</think>").await;
                } else {
                    text.reasoning("<seed:think>", "</seed:think>").await;
                }
            }
            _ => text.reasoning("<think>", "</think>").await,
        }
        self.read_calls(text).await;
    }

    /// Read an answer, or what is left of it, in which no reasoning is looked for, to its end.
    pub async fn read_calls(self, text: &mut Text) {
        match self {
            Self::Hermes => json_between(text, "<tool_call>", "</tool_call>").await,
            Self::Nemotron => json_between(text, "<TOOLCALL>", "</TOOLCALL>").await,
            Self::ToolCalls => json_between(text, "<tool_calls>", "</tool_calls>").await,
            Self::InternLm => {
                json_between(text, "<|action_start|><|plugin|>", "<|action_end|>").await;
            }
            Self::Llama3Json => llama3_json(text).await,
            Self::Pythonic => pythonic(text).await,
            Self::Mistral => mistral(text).await,
            Self::QwenCoder => qwen_coder(text).await,
            Self::Glm => glm(text).await,
            Self::DeepSeek => deepseek(text).await,
            Self::DeepSeekDsml => deepseek_dsml(text).await,
            Self::KimiK2 => kimi_k2(text).await,
            Self::MiniMax => minimax(text).await,
            Self::Lfm2 => lfm2(text).await,
            Self::Olmo3 => olmo3(text).await,
            Self::Functionary => functionary(text).await,
        }
    }
}

async fn json_between(text: &mut Text, open: &str, close: &str) {
    while text.content_until(open).await {
        if text.json_calls(CallKeys::default()).await.is_some() {
            text.close(close).await;
        }
    }
}

async fn llama3_json(text: &mut Text) {
    const TAG: &str = "<|python_tag|>";
    async fn call(text: &mut Text) -> bool {
        if text.follows(TAG).await {
            return text.json_calls(CallKeys::default()).await.is_some();
        }
        let bare = CallKeys {
            only: true,
            ..CallKeys::default()
        };
        text.json_call(bare).await.is_some()
    }
    let mut read = call(text).await;
    loop {
        while read {
            let here = text.position();
            let separated = text.follows(";").await;
            read = call(text).await;
            if separated && !read {
                text.back_to(here);
                // A separator with nothing behind it says nothing.
                if text.position() == here && text.follows(";").await {
                    text.space().await;
                    match text.peek().await {
                        None => text.drop_held(),
                        Some(_) => text.back_to(here),
                    }
                }
            }
        }
        if !text.content_until(TAG).await {
            return;
        }
        read = text.json_calls(CallKeys::default()).await.is_some();
    }
}

async fn pythonic(text: &mut Text) {
    if !text.is_at("<|python_start|>").await {
        text.python_calls().await;
    }
    while text.content_until("<|python_start|>").await {
        if text.python_calls().await.is_some() {
            text.close("<|python_end|>").await;
        }
    }
}

async fn lfm2(text: &mut Text) {
    while text.content_until("<|tool_call_start|>").await {
        if text.python_calls().await.is_some() {
            text.close("<|tool_call_end|>").await;
        }
    }
}

async fn olmo3(text: &mut Text) {
    while text.content_until("<function_calls>").await {
        while text.python_call().await.is_some() {
            if text.close("</function_calls>").await {
                break;
            }
        }
    }
}

async fn mistral(text: &mut Text) {
    async fn named(text: &mut Text) -> Option<()> {
        let (name, mark) = text.name_until(&["[CALL_ID]", "[ARGS]"]).await?;
        let id = match mark {
            0 => Some(text.name_until(&["[ARGS]"]).await?.0),
            _ => None,
        };
        text.json_arguments(name.trim(), id).await
    }
    while text.content_until("[TOOL_CALLS]").await {
        text.space().await;
        if text.is_at("[").await {
            text.json_calls(CallKeys::default()).await;
        } else {
            named(text).await;
        }
    }
}

async fn qwen_coder(text: &mut Text) {
    async fn call(text: &mut Text) -> Option<()> {
        let (name, _) = text.name_until(&[">"]).await?;
        let tool = text.tool(name.trim())?;
        let arguments = text
            .tagged_arguments(&tool, ("<parameter=", ">"), ("", "</parameter>"))
            .await?;
        text.follows("</function>").await.then_some(())?;
        text.call(&tool.name, None, &arguments.to_json())
    }
    let marks = ["<tool_call>", "<seed:tool_call>", "<function="];
    while let Some(mark) = text.content_until_any(&marks).await {
        if mark < 2 && !text.follows("<function=").await {
            continue;
        }
        let mut read = call(text).await;
        while read.is_some() && text.follows("<function=").await {
            read = call(text).await;
        }
        if read.is_some() {
            text.close(if mark == 1 {
                "</seed:tool_call>"
            } else {
                "</tool_call>"
            })
            .await;
        }
    }
}

async fn glm(text: &mut Text) {
    async fn call(text: &mut Text) -> Option<()> {
        let mut name = String::new();
        while !(text.is_at("<").await || text.is_at("\n").await) {
            name.push(text.next().await?);
            if name.len() > crate::stream::MAX_NAME_BYTES {
                return None;
            }
        }
        let tool = text.tool(name.trim())?;
        let arguments = text
            .tagged_arguments(
                &tool,
                ("<arg_key>", "</arg_key>"),
                ("<arg_value>", "</arg_value>"),
            )
            .await?;
        text.follows("</tool_call>").await.then_some(())?;
        text.call(&tool.name, None, &arguments.to_json())
    }
    while text.content_until("<tool_call>").await {
        text.space().await;
        call(text).await;
    }
}

async fn deepseek(text: &mut Text) {
    async fn call(text: &mut Text) -> Option<()> {
        let (name, _) = text.name_until(&["<｜tool▁sep｜>"]).await?;
        if text.is_at("{").await {
            return text.json_arguments(name.trim(), None).await;
        }
        let (name, _) = text.name_until(&["\n"]).await?;
        text.mark("```json\n").await?;
        text.json_arguments(name.trim(), None).await?;
        text.close("```").await;
        Some(())
    }
    let marks = ["<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"];
    while let Some(mark) = text.content_until_any(&marks).await {
        if mark == 0 && !text.follows(marks[1]).await {
            continue;
        }
        if call(text).await.is_some() {
            text.close("<｜tool▁call▁end｜>").await;
            text.close("<｜tool▁calls▁end｜>").await;
        }
    }
}

async fn deepseek_dsml(text: &mut Text) {
    async fn invoke(text: &mut Text) -> Option<()> {
        let (name, _) = text.name_until(&["\">"]).await?;
        let tool = text.tool(&name)?;
        let mut arguments = Arguments::default();
        while text.follows("<｜DSML｜parameter name=\"").await {
            let (key, _) = text.name_until(&["\""]).await?;
            let (attributes, _) = text.name_until(&[">"]).await?;
            let value = text.text_until("</｜DSML｜parameter>").await?;
            // Here the model says itself what is text and what is JSON.
            let value = match attributes.contains("string=\"false\"") {
                true => serde_json::from_str(&value).ok()?,
                false => value.into(),
            };
            arguments.add(key, value)?;
        }
        text.follows("</｜DSML｜invoke>").await.then_some(())?;
        text.call(&tool.name, None, &arguments.to_json())
    }
    let marks = ["<｜DSML｜function_calls>", "<｜DSML｜tool_calls>"];
    while let Some(mark) = text.content_until_any(&marks).await {
        let mut read = Some(());
        while read.is_some() && text.follows("<｜DSML｜invoke name=\"").await {
            read = invoke(text).await;
        }
        if read.is_some() {
            text.close(["</｜DSML｜function_calls>", "</｜DSML｜tool_calls>"][mark])
                .await;
        }
    }
}

async fn minimax(text: &mut Text) {
    async fn invoke(text: &mut Text) -> Option<()> {
        let (name, _) = text.name_until(&["\">"]).await?;
        let tool = text.tool(&name)?;
        let arguments = text
            .tagged_arguments(&tool, ("<parameter name=\"", "\">"), ("", "</parameter>"))
            .await?;
        text.follows("</invoke>").await.then_some(())?;
        text.call(&tool.name, None, &arguments.to_json())
    }
    while text.content_until("<minimax:tool_call>").await {
        let mut read = Some(());
        while read.is_some() && text.follows("<invoke name=\"").await {
            read = invoke(text).await;
        }
        if read.is_some() {
            text.close("</minimax:tool_call>").await;
        }
    }
}

async fn kimi_k2(text: &mut Text) {
    async fn call(text: &mut Text) -> Option<()> {
        let (id, _) = text.name_until(&["<|tool_call_argument_begin|>"]).await?;
        let id = id.trim();
        let name = id.strip_prefix("functions.").unwrap_or(id);
        let name = name.rsplit_once(':').map_or(name, |(name, _)| name);
        text.json_arguments(name, Some(id.to_owned())).await
    }
    let marks = ["<|tool_calls_section_begin|>", "<|tool_call_begin|>"];
    while let Some(mark) = text.content_until_any(&marks).await {
        if mark == 0 && !text.follows(marks[1]).await {
            continue;
        }
        if call(text).await.is_some() {
            text.close("<|tool_call_end|>").await;
            text.close("<|tool_calls_section_end|>").await;
        }
    }
}

async fn functionary(text: &mut Text) {
    async fn call(text: &mut Text) -> Option<()> {
        let (name, _) = text.name_until(&[">"]).await?;
        text.json_arguments(&name, None).await
    }
    while text.content_until("<function=").await {
        if call(text).await.is_some() {
            text.close("</function>").await;
        }
    }
}
