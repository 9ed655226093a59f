//! Readers of calls that are written in the literals of a language: Python's, and Gemma's own.

use std::pin::Pin;

use serde_json::{Map, Number, Value};

use super::json;
use crate::stream::{CallKeys, MAX_DEPTH, MAX_NAME_BYTES, Text};

pub(super) async fn pythonic(text: &mut Text) {
    if !text.is_at("<|python_start|>").await {
        text.python_calls().await;
    }
    while text.content_until("<|python_start|>").await {
        if text.python_calls().await.is_some() {
            text.close("<|python_end|>").await;
        }
    }
}

pub(super) async fn lfm2(text: &mut Text) {
    while text.content_until("<|tool_call_start|>").await {
        if text.python_calls().await.is_some() {
            text.close("<|tool_call_end|>").await;
        }
    }
}

pub(super) async fn olmo3(text: &mut Text) {
    while text.content_until("<function_calls>").await {
        while text.python_call().await.is_some() {
            if text.close("</function_calls>").await {
                break;
            }
        }
    }
}

/// Prompted calls: Python in a fence, or JSON, or a list of calls that is the whole answer.
pub(super) async fn tool_code(text: &mut Text) {
    async fn code(text: &mut Text) -> Option<()> {
        text.space().await;
        if text.is_at("[").await {
            return text.python_calls().await;
        }
        let printed = text.follows("print(").await;
        text.python_call().await?;
        if printed && text.follows(")").await {
            text.drop_held();
        }
        Some(())
    }
    let bare = CallKeys {
        only: true,
        ..CallKeys::default()
    };
    let here = text.position();
    text.space().await;
    if text.is_at("{").await {
        text.json_call(bare).await;
    } else if text.is_at("[").await && text.python_calls().await.is_none() {
        text.back_to(here);
        text.json_calls(bare).await;
    }
    while let Some(mark) = text
        .content_until_any(&["```tool_code\n", "```json\n"])
        .await
    {
        let mut read = match mark {
            0 => code(text).await,
            _ => text.json_calls(bare).await,
        };
        while read.is_some() && !text.close("```").await {
            read = match mark {
                0 => code(text).await,
                _ => None,
            };
        }
    }
}

/// A list of dicts, each with a name and arguments.
pub(super) async fn sarashina(text: &mut Text) {
    async fn calls(text: &mut Text) -> Option<()> {
        let list = text.python_value().await?;
        let mut calls = Vec::new();
        for call in serde_json::from_str::<Vec<Value>>(&list).ok()? {
            let name = call.get("name")?.as_str()?.to_owned();
            let arguments = call.get("arguments").cloned().unwrap_or_default();
            let arguments = match arguments {
                Value::Null => "{}".to_owned(),
                Value::Object(_) => arguments.to_string(),
                _ => return None,
            };
            text.tool(&name)?;
            calls.push((name, arguments));
        }
        if calls.is_empty() {
            return None;
        }
        for (name, arguments) in calls {
            text.call(&name, None, &arguments)?;
        }
        text.drop_held();
        Some(())
    }
    while let Some(mark) = json::content_before(text, &["<|tool_calls|>"], &[]).await {
        if mark == 0 {
            calls(text).await;
        }
    }
}

/// `call:NAME{key:value}` between marks, with texts between two `quote`.
pub(super) async fn gemma(text: &mut Text, open: &str, close: &str, quote: &str) {
    async fn call(text: &mut Text, quote: &str) -> Option<()> {
        text.mark("call:").await?;
        let (name, _) = text.name_until(&["{"]).await?;
        let tool = text.tool(name.trim())?;
        let arguments = object(text, quote, MAX_DEPTH).await?;
        text.call(&tool.name, None, &arguments.to_string())
    }
    while text.content_until(open).await {
        if call(text, quote).await.is_some() {
            text.close(close).await;
        }
    }
}

type Literal<'a> = Pin<Box<dyn Future<Output = Option<Value>> + 'a>>;

fn literal<'a>(text: &'a mut Text, quote: &'a str, depth: usize) -> Literal<'a> {
    Box::pin(async move {
        let deeper = depth.checked_sub(1)?;
        if text.follows(quote).await {
            return text.text_until(quote).await.map(Value::from);
        }
        if text.follows("{").await {
            return object(text, quote, deeper).await;
        }
        if text.follows("[").await {
            return list(text, quote, deeper).await;
        }
        let mut word = String::new();
        while !matches!(text.peek().await?, ',' | '}' | ']') {
            word.extend(text.next().await);
            if word.len() > MAX_NAME_BYTES {
                return None;
            }
        }
        match word.trim() {
            "true" | "True" => Some(Value::Bool(true)),
            "false" | "False" => Some(Value::Bool(false)),
            "null" | "None" => Some(Value::Null),
            word => word.parse::<Number>().ok().map(Value::Number),
        }
    })
}

async fn list(text: &mut Text, quote: &str, depth: usize) -> Option<Value> {
    let mut items = Vec::new();
    while !text.follows("]").await {
        if !items.is_empty() {
            text.follows(",").await.then_some(())?;
        }
        items.push(literal(text, quote, depth).await?);
    }
    Some(Value::Array(items))
}

/// The rest of an object, whose brace has been read.
async fn object(text: &mut Text, quote: &str, depth: usize) -> Option<Value> {
    let mut fields = Map::new();
    while !text.follows("}").await {
        if !fields.is_empty() {
            text.follows(",").await.then_some(())?;
        }
        let key = match text.follows(quote).await {
            true => {
                let key = text.text_until(quote).await?;
                text.follows(":").await.then_some(())?;
                key
            }
            false => text.name_until(&[":"]).await?.0.trim().to_owned(),
        };
        let value = literal(text, quote, depth).await?;
        if fields.insert(key, value).is_some() {
            return None;
        }
    }
    Some(Value::Object(fields))
}
