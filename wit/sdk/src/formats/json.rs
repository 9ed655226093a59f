//! Readers of calls whose arguments are JSON.

use crate::stream::{CallKeys, Text};

/// Objects or lists of them between marks: `open` and `close` by the same number, none where nothing
/// follows. Marks in `silent` say nothing wherever they stand.
pub(super) async fn between(
    text: &mut Text,
    open: &[&str],
    close: &[&str],
    keys: CallKeys,
    silent: &[&str],
) {
    while let Some(mark) = content_before(text, open, silent).await {
        let close = close.get(mark).copied().unwrap_or_default();
        let mut read = text.json_calls(keys).await;
        // Some write one object a line.
        while read.is_some() && !text.close(close).await {
            read = text.json_calls(keys).await;
        }
    }
}

/// Content up to one of the marks, less the silent ones.
pub(super) async fn content_before(
    text: &mut Text,
    marks: &[&str],
    silent: &[&str],
) -> Option<usize> {
    let all: Vec<&str> = marks.iter().chain(silent).copied().collect();
    loop {
        let found = text.content_until_any(&all).await?;
        if found < marks.len() {
            return Some(found);
        }
        text.drop_held();
    }
}

/// Calls of Cohere.
pub(super) const COHERE: CallKeys = CallKeys {
    name: &["tool_name", "name"],
    arguments: &["parameters", "arguments"],
    id: &["tool_call_id"],
    only: false,
};

/// An object that is alone in an answer, and a call only if it has nothing that calls have not.
const BARE: CallKeys = CallKeys {
    name: &["name"],
    arguments: &["arguments", "parameters"],
    id: &["id"],
    only: true,
};

pub(super) async fn llama3(text: &mut Text) {
    const TAG: &str = "<|python_tag|>";
    async fn call(text: &mut Text) -> bool {
        if text.follows(TAG).await {
            return behind_tag(text).await.is_some();
        }
        text.json_call(BARE).await.is_some()
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
        match text.content_until_any(&[TAG, "<function="]).await {
            None => return,
            Some(0) => read = behind_tag(text).await.is_some(),
            Some(_) => {
                function(text).await;
            }
        }
    }
}

/// Objects, or a built-in tool: `brave_search.call(query="x")`.
async fn behind_tag(text: &mut Text) -> Option<()> {
    text.space().await;
    if text.is_at("{").await || text.is_at("[").await {
        return text.json_calls(CallKeys::default()).await;
    }
    text.python_call_as(|name| name.strip_suffix(".call").unwrap_or(name))
        .await
}

/// `NAME>{…}</function>`
async fn function(text: &mut Text) -> Option<()> {
    let (name, _) = text.name_until(&[">"]).await?;
    text.json_arguments(&name, None).await?;
    text.close("</function>").await;
    Some(())
}

pub(super) async fn functionary(text: &mut Text) {
    while text.content_until("<function=").await {
        function(text).await;
    }
}

/// The prompt ends in the first `>>>`; `all` is the user.
pub(super) async fn functionary_v3(text: &mut Text) {
    async fn part(text: &mut Text) -> Option<()> {
        let name = text.identifier().await?;
        text.mark("\n").await?;
        if name == "all" {
            text.drop_held();
            return Some(());
        }
        text.json_arguments(&name, None).await
    }
    part(text).await;
    while text.content_until(">>>").await {
        part(text).await;
    }
}

pub(super) async fn mistral(text: &mut Text) {
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

/// Both ways: V3 has `function` where V3.1 has the name, which follows, and a fenced block.
pub(super) async fn deepseek(text: &mut Text) {
    async fn call(text: &mut Text) -> Option<()> {
        let (name, _) = text.name_until(&["<｜tool▁sep｜>"]).await?;
        if text.is_at("{").await {
            return text.json_arguments(name.trim(), None).await;
        }
        (name.trim() == "function").then_some(())?;
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

pub(super) async fn kimi_k2(text: &mut Text) {
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

/// Messages of one turn have headers; calls have the ids that the model thinks of.
pub(super) async fn solar_open(text: &mut Text) {
    async fn call(text: &mut Text) -> Option<()> {
        let (id, _) = text.name_until(&["<|tool_call:name|>"]).await?;
        let (name, _) = text.name_until(&["<|tool_call:args|>"]).await?;
        text.json_arguments(name.trim(), Some(id)).await
    }
    let marks = ["<|tool_calls|>", "<|tool_call:begin|>"];
    let silent = ["<|begin|>assistant", "<|content|>", "<|calls|>", "<|end|>"];
    while let Some(mark) = content_before(text, &marks, &silent).await {
        if mark == 0 && !text.follows(marks[1]).await {
            continue;
        }
        if call(text).await.is_some() {
            text.close("<|tool_call:end|>").await;
        }
    }
}

/// The name of the tool is the only key of an object.
pub(super) async fn apertus(text: &mut Text) {
    async fn calls(text: &mut Text) -> Option<()> {
        text.symbol('[').await?;
        loop {
            text.symbol('{').await?;
            let name = text.json_name().await?;
            text.symbol(':').await?;
            text.json_arguments(&name, None).await?;
            text.symbol('}').await?;
            text.drop_held();
            if text.symbol(',').await.is_none() {
                break;
            }
        }
        text.symbol(']').await?;
        text.drop_held();
        Some(())
    }
    while text.content_until("<|tools_prefix|>").await {
        if calls(text).await.is_some() {
            text.close("<|tools_suffix|>").await;
        }
    }
}

/// A list at the beginning, or behind marks that others have.
pub(super) async fn xlam(text: &mut Text) {
    text.space().await;
    if text.is_at("[").await {
        text.json_calls(BARE).await;
    }
    let marks = ["```json", "[TOOL_CALLS]", "<tool_call>"];
    let close = ["```", "", "</tool_call>"];
    between(text, &marks, &close, BARE, &[]).await;
}

/// The answer stands in `<response>`, which begins it or does not come.
pub(super) async fn ernie(text: &mut Text) {
    let mut marks = vec!["<tool_call>"];
    if text.follows("<response>").await {
        text.space().await;
        text.drop_held();
        marks.push("</response>");
    }
    while let Some(mark) = text.content_until_any(&marks).await {
        if mark == 1 {
            text.space().await;
            text.drop_held();
        } else if text.json_calls(CallKeys::default()).await.is_some() {
            text.close("</tool_call>").await;
        }
    }
}
