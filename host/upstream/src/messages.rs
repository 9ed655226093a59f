//! Messages of a conversation as OpenAI's API has them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mortise_models::conversation::{
    ContentPart, Conversation, Detail, ImageSource, Message, PartOrigin, Role, ToolCall,
};
use mortise_models::{UpstreamApi, UpstreamConfig};
use serde_json::{Map, Value, json};

use crate::unsupported::UnsupportedSetting;

/// The messages as JSON.
pub(crate) fn messages(
    conversation: &Conversation,
    config: &UpstreamConfig,
) -> Result<Vec<Value>, UnsupportedSetting> {
    let messages = conversation.messages().iter();
    messages.map(|message| written(message, config)).collect()
}

fn written(message: &Message, config: &UpstreamConfig) -> Result<Value, UnsupportedSetting> {
    let mut object = Map::new();
    object.insert("role".to_owned(), json!(role(&message.role, config.api)));
    object.insert("content".to_owned(), content(&message.content, config)?);
    if let Some(name) = &message.name {
        object.insert("name".to_owned(), json!(name));
    }
    match &message.role {
        Role::Assistant { reasoning, calls } => {
            // OpenAI's API has no field for the reasoning of earlier turns, and its servers keep none.
            if let Some(reasoning) = reasoning
                && config.api != UpstreamApi::Openai
            {
                object.insert("reasoning_content".to_owned(), json!(reasoning));
            }
            if !calls.is_empty() {
                let calls: Vec<Value> = calls.iter().map(call).collect();
                object.insert("tool_calls".to_owned(), Value::Array(calls));
            }
        }
        Role::Tool { call_id } => {
            object.insert("tool_call_id".to_owned(), json!(call_id));
        }
        Role::System | Role::Developer | Role::User => {}
    }
    Ok(Value::Object(object))
}

/// Name of a role. Templates of open models know no developer.
fn role(role: &Role, api: UpstreamApi) -> &'static str {
    match role {
        Role::Developer if matches!(api, UpstreamApi::Openai | UpstreamApi::Mortise) => "developer",
        Role::System | Role::Developer => "system",
        Role::User => "user",
        Role::Assistant { .. } => "assistant",
        Role::Tool { .. } => "tool",
    }
}

/// Null without parts, a text if there is one text only, else a list of parts.
fn content(parts: &[ContentPart], config: &UpstreamConfig) -> Result<Value, UnsupportedSetting> {
    match parts {
        [] => Ok(Value::Null),
        [ContentPart::Text(text)] => Ok(json!(text)),
        parts => {
            let parts = parts.iter().map(|one| part(one, config));
            Ok(Value::Array(parts.collect::<Result<_, _>>()?))
        }
    }
}

fn part(part: &ContentPart, config: &UpstreamConfig) -> Result<Value, UnsupportedSetting> {
    match part {
        ContentPart::Text(text) => Ok(json!({"type": "text", "text": text})),
        ContentPart::Image(image) => {
            let url = image_url(&image.source, &image.origin, config)?;
            let mut object = json!({"url": url});
            if let Some(detail) = image.detail {
                object["detail"] = json!(match detail {
                    Detail::Auto => "auto",
                    Detail::Low => "low",
                    Detail::High => "high",
                });
            }
            Ok(json!({"type": "image_url", "image_url": object}))
        }
        ContentPart::Audio(audio) => {
            let data = STANDARD.encode(&audio.bytes);
            let audio = json!({"data": data, "format": audio.format});
            Ok(json!({"type": "input_audio", "input_audio": audio}))
        }
    }
}

fn image_url(
    source: &ImageSource,
    origin: &PartOrigin,
    config: &UpstreamConfig,
) -> Result<String, UnsupportedSetting> {
    match source {
        ImageSource::Bytes { media_type, bytes } => Ok(format!(
            "data:{media_type};base64,{}",
            STANDARD.encode(bytes)
        )),
        ImageSource::Url(url) if config.forward_image_urls => Ok(url.clone()),
        // The model's server may reach what the caller may not.
        ImageSource::Url(_) => Err(UnsupportedSetting::new(
            &origin.path,
            "is an address, and this server has images fetched by nobody else; send the image itself as \
             a `data:` URL",
        )),
    }
}

fn call(call: &ToolCall) -> Value {
    let function = json!({"name": call.name, "arguments": call.arguments});
    json!({"id": call.id, "type": "function", "function": function})
}
