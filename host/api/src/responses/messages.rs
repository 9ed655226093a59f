//! Items as the messages of a conversation.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mortise_http::Problem;
use mortise_service::{
    Audio, ContentPart, Conversation, ConversationError, Detail, Image, ImageSource, Message,
    PartOrigin, Role, ToolCall, limits,
};
use serde_json::Value;

use super::file_search;
use super::items::opened;
use crate::collections::FILE_SEARCH;
use crate::fields::{FieldPath, missing};

/// Begins the message that a `compaction` item becomes.
const SUMMARY_OPENING: &str = "Summary of the conversation up to here:\n\n";

/// The conversation that items make, after an instruction if there is one. `own` of them, the last, are the
/// request's.
pub(super) fn conversation(
    instructions: Option<&str>,
    items: &[&Value],
    own: usize,
) -> Result<Conversation, Problem> {
    let first_own = items.len().saturating_sub(own);
    let mut turns = Turns::default();
    if let Some(text) = instructions {
        turns.messages.push(Message::text(Role::System, text));
    }
    for (at, item) in items.iter().enumerate() {
        let path = match at.checked_sub(first_own) {
            Some(at) => FieldPath::from("input").index(at),
            None => FieldPath::from("previous_response_id"),
        };
        turns.add(&path, item)?;
    }
    turns.flush();
    Conversation::new(turns.messages).map_err(|error| refused(&error, items, first_own))
}

fn refused(error: &ConversationError, items: &[&Value], first_own: usize) -> Problem {
    match error {
        ConversationError::Empty => {
            Problem::invalid("input", "`input` must hold at least one item")
        }
        ConversationError::TooMany { count } => Problem::invalid(
            "input",
            format!(
                "the conversation has {count} messages; the limit is {}",
                limits::MAX_MESSAGES
            ),
        ),
        ConversationError::UnknownCall { call_id, .. } => {
            let names = |item: &&Value| {
                item["type"] == "function_call_output" && item["call_id"] == call_id.as_str()
            };
            let at = items.iter().rposition(names).unwrap_or(0);
            let at = at.saturating_sub(first_own);
            let path = FieldPath::from("input").index(at).key("call_id");
            Problem::invalid(
                path.to_string(),
                format!(
                    "`{path}` is the output of the call `{call_id}`, and no earlier item makes such \
                     a call"
                ),
            )
        }
    }
}

/// Messages so far, and the turn of the assistant that is being put together.
#[derive(Default)]
struct Turns {
    messages: Vec<Message>,
    reasoning: Option<String>,
    content: Vec<ContentPart>,
    calls: Vec<ToolCall>,
}

impl Turns {
    fn add(&mut self, path: &FieldPath, item: &Value) -> Result<(), Problem> {
        let field = |name: &str| item[name].as_str().unwrap_or_default().to_owned();
        match item["type"].as_str().unwrap_or_default() {
            "message" => self.message(path, item),
            "reasoning" => {
                if !self.content.is_empty() || !self.calls.is_empty() {
                    self.flush();
                }
                self.reasoning
                    .get_or_insert_default()
                    .push_str(&reasoning(item));
                Ok(())
            }
            "function_call" => {
                self.call(field("call_id"), field("name"), field("arguments"));
                Ok(())
            }
            "function_call_output" => {
                self.flush();
                let content = match &item["output"] {
                    Value::Array(list) => parts(&path.key("output"), list)?,
                    other => vec![ContentPart::Text(
                        other.as_str().unwrap_or_default().to_owned(),
                    )],
                };
                self.result(field("call_id"), content);
                Ok(())
            }
            // A call that the server ran itself, with its result.
            "mcp_call" => {
                let id = field("id");
                self.call(id.clone(), field("name"), field("arguments"));
                self.flush();
                let output = item["output"].as_str().or_else(|| item["error"].as_str());
                let output = output.unwrap_or_default().to_owned();
                self.result(id, vec![ContentPart::Text(output)]);
                Ok(())
            }
            // A search of which only the query was kept says nothing.
            "file_search_call" => {
                if let Some((arguments, result)) = file_search::replayed(item) {
                    let id = field("id");
                    self.call(id.clone(), FILE_SEARCH.to_owned(), arguments);
                    self.flush();
                    self.result(id, vec![ContentPart::Text(result)]);
                }
                Ok(())
            }
            // The assistant's own words: an item that comes back from a caller commands nothing.
            "compaction" => {
                self.flush();
                let summary = opened(&field("encrypted_content")).unwrap_or_default();
                self.content
                    .push(ContentPart::Text(format!("{SUMMARY_OPENING}{summary}")));
                self.flush();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn message(&mut self, path: &FieldPath, item: &Value) -> Result<(), Problem> {
        let empty = Vec::new();
        let list = item["content"].as_array().unwrap_or(&empty);
        let mut content = parts(&path.key("content"), list)?;
        let role = match item["role"].as_str().unwrap_or_default() {
            "assistant" => {
                if !self.content.is_empty() || !self.calls.is_empty() {
                    self.flush();
                }
                self.content = content;
                return Ok(());
            }
            "system" => Role::System,
            "developer" => Role::Developer,
            _ => Role::User,
        };
        self.flush();
        if content.is_empty() {
            content.push(ContentPart::Text(String::new()));
        }
        self.messages.push(Message {
            role,
            content,
            name: None,
        });
        Ok(())
    }

    fn call(&mut self, id: String, name: String, arguments: String) {
        self.calls.push(ToolCall {
            id,
            name,
            arguments,
            ..ToolCall::default()
        });
    }

    fn result(&mut self, call_id: String, content: Vec<ContentPart>) {
        self.messages.push(Message {
            role: Role::Tool { call_id },
            content,
            name: None,
        });
    }

    /// End the turn of the assistant, if there is one.
    fn flush(&mut self) {
        let reasoning = self.reasoning.take().filter(|text| !text.is_empty());
        let mut content = std::mem::take(&mut self.content);
        let calls = std::mem::take(&mut self.calls);
        if reasoning.is_none() && content.is_empty() && calls.is_empty() {
            return;
        }
        if content.is_empty() {
            content.push(ContentPart::Text(String::new()));
        }
        self.messages.push(Message {
            role: Role::Assistant { reasoning, calls },
            content,
            name: None,
        });
    }
}

/// The text of a reasoning item: its own, what this server sealed in it, or its summary.
fn reasoning(item: &Value) -> String {
    let joined = |name: &str| {
        let parts = item[name].as_array().into_iter().flatten();
        let texts = parts.filter_map(|part| part["text"].as_str());
        texts.collect::<Vec<_>>().join("\n")
    };
    let own = joined("content");
    if !own.is_empty() {
        return own;
    }
    let sealed = item["encrypted_content"].as_str();
    sealed.and_then(opened).unwrap_or_else(|| joined("summary"))
}

fn parts(path: &FieldPath, list: &[Value]) -> Result<Vec<ContentPart>, Problem> {
    let parts = list.iter().enumerate();
    parts
        .map(|(at, value)| part(&path.index(at), value))
        .collect()
}

fn part(path: &FieldPath, part: &Value) -> Result<ContentPart, Problem> {
    let origin = |kind: &str| PartOrigin {
        path: path.to_string(),
        kind: kind.to_owned(),
    };
    match part["type"].as_str().unwrap_or_default() {
        "input_image" => {
            let inner = path.key("image_url");
            let url = part["image_url"].as_str().ok_or_else(|| missing(&inner))?;
            Ok(ContentPart::Image(Image {
                source: image_source(&inner, url)?,
                detail: match part["detail"].as_str() {
                    None => None,
                    Some("auto") => Some(Detail::Auto),
                    Some("low") => Some(Detail::Low),
                    Some("high") => Some(Detail::High),
                    Some(_) => {
                        let path = path.key("detail");
                        let problem = format!("`{path}` must be `auto`, `low` or `high`");
                        return Err(Problem::invalid(path.to_string(), problem));
                    }
                },
                origin: origin("input_image"),
            }))
        }
        "input_audio" => {
            let audio = path.key("input_audio");
            let field = |name: &str| {
                let text = part["input_audio"][name].as_str();
                text.ok_or_else(|| missing(&audio.key(name)))
            };
            Ok(ContentPart::Audio(Audio {
                bytes: decoded(&audio.key("data"), field("data")?)?,
                format: field("format")?.to_owned(),
                origin: origin("input_audio"),
            }))
        }
        "refusal" => Ok(ContentPart::Text(
            part["refusal"].as_str().unwrap_or_default().to_owned(),
        )),
        _ => Ok(ContentPart::Text(
            part["text"].as_str().unwrap_or_default().to_owned(),
        )),
    }
}

/// An address, or the bytes of a `data:` URL.
fn image_source(path: &FieldPath, url: &str) -> Result<ImageSource, Problem> {
    let Some(data) = url.strip_prefix("data:") else {
        return Ok(ImageSource::Url(url.to_owned()));
    };
    let Some((media_type, text)) = data.split_once(";base64,") else {
        let problem = format!("`{path}` must be an address or `data:TYPE;base64,…`");
        return Err(Problem::invalid(path.to_string(), problem));
    };
    Ok(ImageSource::Bytes {
        media_type: media_type.to_owned(),
        bytes: decoded(path, text)?,
    })
}

fn decoded(path: &FieldPath, text: &str) -> Result<Vec<u8>, Problem> {
    STANDARD.decode(text).map_err(|error| {
        Problem::invalid(
            path.to_string(),
            format!("`{path}` is not valid base64: {error}"),
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::items::sealed;
    use super::*;

    #[test]
    fn feature_e3_or_sealed_reasoning_is_read_where_its_text_is_not_sent() {
        let kept =
            json!({"type": "reasoning", "summary": [], "encrypted_content": sealed("Let me see.")});
        assert_eq!(reasoning(&kept), "Let me see.");
        let foreign = json!({"summary": [{"text": "In short."}], "encrypted_content": "gAAAAB"});
        assert_eq!(reasoning(&foreign), "In short.");
        let whole = json!({"content": [{"type": "reasoning_text", "text": "All of it."}], "encrypted_content": sealed("x")});
        assert_eq!(reasoning(&whole), "All of it.");
    }
}
