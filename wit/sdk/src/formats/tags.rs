//! Readers of calls whose arguments stand between tags.

use std::pin::Pin;

use serde_json::{Map, Value};

use super::json::content_before;
use super::spec::{Tags, Typing};
use crate::stream::{MAX_DEPTH, MAX_NAME_BYTES, Text};
use crate::tools::{Arguments, Tool, child, is_structured, typed_as, types_in};

/// Calls of a format; marks in `silent` say nothing wherever they stand.
pub(super) async fn read(text: &mut Text, tags: &Tags, silent: &[&str]) {
    let sections = tags.sections.iter().map(|(open, _)| *open);
    let marks: Vec<&str> = sections.chain([tags.call.0]).collect();
    while let Some(mark) = content_before(text, &marks, silent).await {
        section(text, tags, mark).await;
    }
}

/// Calls behind a mark of [`read`].
pub(super) async fn section(text: &mut Text, tags: &Tags, mark: usize) {
    if mark < tags.sections.len() && !text.follows(tags.call.0).await {
        return;
    }
    let mut read = call(text, tags).await;
    while read.is_some() && text.follows(tags.call.0).await {
        read = call(text, tags).await;
    }
    if let (Some(()), Some((_, close))) = (read, tags.sections.get(mark).or(tags.sections.first()))
    {
        text.close(close).await;
    }
}

async fn call(text: &mut Text, tags: &Tags) -> Option<()> {
    let name = name(text, tags).await?;
    let tool = text.tool(name.trim())?;
    let arguments = match tags.typing {
        Typing::Schema => text.tagged_arguments(&tool, tags.key, tags.value).await?,
        Typing::Attribute(is_text, _) => told(text, tags, is_text).await?,
    };
    text.follows(tags.call.2).await.then_some(())?;
    text.call(&tool.name, None, &arguments.to_json())?;
    if !tags.behind.is_empty() {
        text.close(tags.behind).await;
    }
    Some(())
}

async fn name(text: &mut Text, tags: &Tags) -> Option<String> {
    if let Some((before, after)) = tags.call.1.split_once("{#}") {
        let (name, _) = text.name_until(&[before]).await?;
        text.name_until(&[after]).await?;
        return Some(unescaped(&name));
    }
    if !tags.call.1.is_empty() {
        return Some(text.name_until(&[tags.call.1]).await?.0);
    }
    text.space().await;
    let mut name = String::new();
    while !(text.is_at("\n").await || text.is_at(tags.key.0).await || text.is_at(tags.call.2).await)
    {
        name.push(text.next().await?);
        if name.len() > MAX_NAME_BYTES {
            return None;
        }
    }
    Some(name)
}

/// Arguments of which the model says itself what is a text and what is JSON.
async fn told(text: &mut Text, tags: &Tags, is_text: &str) -> Option<Arguments> {
    let (open, close) = tags.value;
    let mut arguments = Arguments::default();
    while text.follows(tags.key.0).await {
        let (key, _) = text.name_until(&[tags.key.1]).await?;
        let (attributes, _) = text.name_until(&[open]).await?;
        let attributes = attributes.trim();
        let is_text = attributes.is_empty() || attributes.contains(is_text.trim());
        let value = told_value(text, is_text, close).await?;
        arguments.add(unescaped(&key), value)?;
    }
    Some(arguments)
}

async fn told_value(text: &mut Text, is_text: bool, close: &str) -> Option<Value> {
    if is_text {
        return text.text_until(close).await.map(Value::from);
    }
    let here = text.position();
    if let Some(value) = text.json_value_before(close).await {
        return Some(value);
    }
    if !text.read_again_from(here) {
        return None;
    }
    serde_json::from_str(&text.text_until(close).await?).ok()
}

/// An attribute without its escapes.
fn unescaped(text: &str) -> String {
    text.replace("&quot;", "\"").replace("&amp;", "&")
}

/// The answer and the calls of Kimi K3. Where arguments were given as a text, they are one JSON object.
pub(super) async fn kimi_k3(text: &mut Text, tags: &Tags) {
    const JSON: &str = "<|open|>json type=\"object\"<|sep|>";
    async fn whole(text: &mut Text, tags: &Tags) -> Option<()> {
        let name = name(text, tags).await?;
        text.follows(JSON).await.then_some(())?;
        let arguments = text.json_value_before("<|close|>json<|sep|>").await?;
        text.follows(tags.call.2).await.then_some(())?;
        text.call(&name, None, &arguments.to_string())
    }
    let silent = [
        "<|open|>response<|sep|>",
        "<|close|>response<|sep|>",
        "<|close|>message<|sep|>",
        "<|close|>tools<|sep|>",
    ];
    let marks = [tags.sections[0].0, tags.call.0];
    while let Some(mark) = content_before(text, &marks, &silent).await {
        let here = text.position();
        if mark == 0 && !text.follows(tags.call.0).await {
            continue;
        }
        if whole(text, tags).await.is_none() && text.read_again_from(here) {
            section(text, tags, mark).await;
        }
    }
}

/// Calls of MiniCPM 5: a value that has `<`, `&` or a line break stands in a CDATA section.
pub(super) async fn minicpm5(text: &mut Text) {
    const CDATA: (&str, &str) = ("<![CDATA[", "]]>");
    async fn call(text: &mut Text) -> Option<()> {
        let (name, _) = text.name_until(&["\">"]).await?;
        let tool = text.tool(&name)?;
        let mut arguments = Arguments::default();
        while text.follows("<param name=\"").await {
            let (key, _) = text.name_until(&["\">"]).await?;
            let quoted = text.is_at(CDATA.0).await;
            let marks = if quoted { CDATA } else { ("", "</param>") };
            let value = text.tagged_value(&tool, &key, marks).await?;
            if quoted {
                text.follows("</param>").await.then_some(())?;
            }
            arguments.add(key, value)?;
        }
        text.follows("</function>").await.then_some(())?;
        text.call(&tool.name, None, &arguments.to_json())
    }
    while text.content_until("<function name=\"").await {
        call(text).await;
    }
}

/// Beginning of every tag of MiniMax M3.
const MINIMAX: &str = "]<]minimax[>[";

/// Calls of MiniMax M3: lists and objects are tags within tags, `item` those of a list.
pub(super) async fn minimax_m3(text: &mut Text) {
    async fn invoke(text: &mut Text) -> Option<()> {
        let (name, _) = text.name_until(&["\">"]).await?;
        let tool = text.tool(&name)?;
        let mut arguments = Arguments::default();
        while let Some(key) = tag(text).await {
            let schema = child(&tool.parameters, &tool.parameters, &key);
            let value = element(text, &tool, schema, &key, MAX_DEPTH).await?;
            arguments.add(key, value)?;
        }
        follows_minimax(text, "</invoke>").await.then_some(())?;
        text.call(&tool.name, None, &arguments.to_json())
    }
    while text.content_until("]<]minimax[>[<tool_call>").await {
        let mut read = Some(());
        while read.is_some() && follows_minimax(text, "<invoke name=\"").await {
            read = invoke(text).await;
        }
        if read.is_some() {
            text.close("]<]minimax[>[</tool_call>").await;
        }
    }
}

async fn follows_minimax(text: &mut Text, tag: &str) -> bool {
    text.follows(&format!("{MINIMAX}{tag}")).await
}

/// Read `<KEY>`, if it is there.
async fn tag(text: &mut Text) -> Option<String> {
    let here = text.position();
    if follows_minimax(text, "<").await
        && !text.is_at("/").await
        && let Some((key, _)) = text.name_until(&[">"]).await
    {
        return Some(key);
    }
    text.back_to(here);
    None
}

type Element<'a> = Pin<Box<dyn Future<Output = Option<Value>> + 'a>>;

/// Content of a tag, with its end.
fn element<'a>(
    text: &'a mut Text,
    tool: &'a Tool,
    schema: Option<&'a Value>,
    key: &'a str,
    depth: usize,
) -> Element<'a> {
    Box::pin(async move {
        let deeper = depth.checked_sub(1)?;
        let root = &tool.parameters;
        let types = schema.map_or_else(Vec::new, |schema| types_in(root, schema));
        let end = format!("{MINIMAX}</{key}>");
        let Some(mut inner) = tag(text).await else {
            let leaf = text.text_until(&end).await?;
            return Some(match types.as_slice() {
                all if leaf.trim().is_empty() && is_structured(all) => empty(all),
                all => typed_as(all, &leaf),
            });
        };
        let is_list = inner == "item" && !types.contains(&"object");
        let mut items = Vec::new();
        let mut fields = Map::new();
        loop {
            let schema = schema.and_then(|schema| child(root, schema, &inner));
            let value = element(text, tool, schema, &inner, deeper).await?;
            if is_list && inner == "item" {
                items.push(value);
            } else if is_list || fields.insert(inner, value).is_some() {
                return None;
            }
            match tag(text).await {
                Some(next) => inner = next,
                None => break,
            }
        }
        text.follows(&end).await.then_some(())?;
        Some(match is_list {
            true => Value::Array(items),
            false => Value::Object(fields),
        })
    })
}

/// A list or object without anything in it.
fn empty(types: &[&str]) -> Value {
    match types.contains(&"array") {
        true => Value::Array(Vec::new()),
        false => Value::Object(Map::new()),
    }
}
