//! A chat template: turns stand between `<|im_start|>` and `<|im_end|>`, as ChatML has it; tools, their calls
//! and results as the models of Hermes and Qwen read them. Rules from the settings, `{"rules": "…"}`, stand
//! before every conversation.

use mortise_plugin_sdk::chat_template::{ChatTemplate, Input, Output, Prompt};
use mortise_plugin_sdk::serde_json::{self, Value};
use mortise_plugin_sdk::{Fault, Model};
use serde::Deserialize;

mortise_plugin_sdk::export!(chat_template: ChatMl, settings: "settings.schema.json");

/// The settings, which are also the whole plugin.
#[derive(Deserialize)]
struct ChatMl {
    /// Text that the operator wants first, if any.
    rules: Option<String>,
}

impl ChatTemplate for ChatMl {
    type Settings = Self;

    fn prepare(settings: Self, _: Model) -> Result<Self, Fault> {
        Ok(settings)
    }

    fn render(&self, input: Input) -> Result<Output, Fault> {
        let mut prompt = Prompt::new();
        let messages = input.conversation()?;
        let tools: Vec<Value> = match &input.tools {
            Some(text) => serde_json::from_str(text)
                .map_err(|error| Fault::Invalid(format!("tools: {error}")))?,
            None => Vec::new(),
        };
        let led = messages
            .first()
            .is_some_and(|first| first["role"] == "system");
        let said = if led {
            text_of(&messages, 0)?
        } else {
            String::new()
        };
        let rules = self.rules.as_deref().unwrap_or_default();
        system(&mut prompt, &[rules, &said], &tools);
        // What the model thought before the last question is not shown to it again.
        let question = messages
            .iter()
            .rposition(|message| message["role"] == "user");
        for index in usize::from(led)..messages.len() {
            let open = input.continue_final_message && index + 1 == messages.len();
            let thoughts = question.is_none_or(|question| index > question);
            message(&mut prompt, &messages, index, thoughts, open)?;
        }
        if input.add_generation_prompt {
            prompt.special("<|im_start|>").plain("assistant\n");
        }
        Ok(prompt.into_output())
    }
}

/// The first turn: what the operator and the caller want said first, and the tools. Only the markers are
/// special: whatever a user writes stays plain text, and never becomes a control token.
fn system(prompt: &mut Prompt, texts: &[&str], tools: &[Value]) {
    let texts: Vec<&str> = texts
        .iter()
        .copied()
        .filter(|text| !text.is_empty())
        .collect();
    if texts.is_empty() && tools.is_empty() {
        return;
    }
    prompt
        .special("<|im_start|>")
        .plain("system\n")
        .plain(texts.join("\n\n"));
    if !tools.is_empty() {
        let before = if texts.is_empty() { "" } else { "\n\n" };
        prompt.plain(format!(
            "{before}# Tools\n\nYou may call one or more functions to assist with the user query.\n\n\
             You are provided with function signatures within <tools></tools> XML tags:\n<tools>"
        ));
        for tool in tools {
            prompt.plain("\n").plain(spaced(&tool.to_string()));
        }
        prompt
            .plain(
                "\n</tools>\n\nFor each function call, return a json object with function name and \
                 arguments within ",
            )
            .special("<tool_call></tool_call>")
            .plain(" XML tags:\n")
            .special("<tool_call>")
            .plain("\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n")
            .special("</tool_call>");
    }
    prompt.special("<|im_end|>").plain("\n");
}

/// One message. Results of tools that follow one another make one turn.
fn message(
    prompt: &mut Prompt,
    messages: &[Value],
    index: usize,
    thoughts: bool,
    open: bool,
) -> Result<(), Fault> {
    let message = &messages[index];
    let role = message["role"].as_str().unwrap_or("user");
    let content = text_of(messages, index)?;
    let is_result = |index: usize| {
        messages
            .get(index)
            .is_some_and(|other| other["role"] == "tool")
    };
    if role == "tool" {
        if index == 0 || !is_result(index - 1) {
            prompt.special("<|im_start|>").plain("user");
        }
        prompt.plain("\n").special("<tool_response>");
        prompt
            .plain(format!("\n{content}\n"))
            .special("</tool_response>");
        if !is_result(index + 1) {
            prompt.special("<|im_end|>").plain("\n");
        }
        return Ok(());
    }
    prompt.special("<|im_start|>").plain(format!("{role}\n"));
    if let (true, Some(reasoning)) = (thoughts, message["reasoning_content"].as_str()) {
        prompt
            .special("<think>")
            .plain(format!("\n{}\n", reasoning.trim_matches('\n')));
        prompt.special("</think>").plain("\n\n");
    }
    prompt.plain(content.as_str());
    for (number, call) in calls(message).iter().enumerate() {
        let function = &call["function"];
        let arguments = match &function["arguments"] {
            Value::String(text) => text.clone(),
            value => spaced(&value.to_string()),
        };
        let before = if number == 0 && content.is_empty() {
            ""
        } else {
            "\n"
        };
        prompt.plain(before).special("<tool_call>");
        prompt.plain(format!(
            "\n{{\"name\": {}, \"arguments\": {arguments}}}\n",
            function["name"]
        ));
        prompt.special("</tool_call>");
    }
    if !open {
        prompt.special("<|im_end|>").plain("\n");
    }
    Ok(())
}

/// The tool calls of a message.
fn calls(message: &Value) -> &[Value] {
    message["tool_calls"].as_array().map_or(&[], Vec::as_slice)
}

/// The text of a message. One with nothing but calls has none.
fn text_of(messages: &[Value], index: usize) -> Result<String, Fault> {
    let message = &messages[index];
    let parts = |parts: &Vec<Value>| parts.iter().map(|part| part["text"].as_str()).collect();
    let text = match &message["content"] {
        Value::String(text) => Some(text.clone()),
        Value::Array(array) => parts(array),
        Value::Null if !calls(message).is_empty() => Some(String::new()),
        _ => None,
    };
    text.ok_or_else(|| {
        Fault::Invalid(format!(
            "messages[{index}].content must be text for this template"
        ))
    })
}

/// JSON with a blank behind each `,` and `:`, as models saw it when they were trained.
fn spaced(json: &str) -> String {
    let (mut text, mut quoted, mut escaped) = (String::new(), false, false);
    for c in json.chars() {
        text.push(c);
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => quoted = !quoted,
            ',' | ':' if !quoted => text.push(' '),
            _ => {}
        }
    }
    text
}
