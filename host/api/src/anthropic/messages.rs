//! Messages and system prompt of a request as a conversation.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mortise_http::Problem;
use mortise_service::{
    ContentPart, Conversation, ConversationError, Image, ImageSource, KeyOrder, Message,
    PartOrigin, Role, ToolCall, limits,
};
use serde::Deserialize;
use serde_json::Value;

use super::blocks::{Block, BlockContent, BlockSource, unsupported};
use crate::fields::{FieldPath, FieldReader, TextOr, missing, words, wrong_value};

/// Words before the result of a call that failed, as models see those of the server's own tools.
const FAILED: &str = "error: ";

/// Messages and system prompt.
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
pub(super) struct AnthropicMessages {
    messages: Vec<WireMessage>,
    system: Option<BlockContent>,
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct WireMessage {
    role: WireRole,
    content: BlockContent,
}

words! {
    /// Author of a message.
    WireRole {
        User = "user",
        Assistant = "assistant",
        System = "system",
    }
}

impl AnthropicMessages {
    /// The conversation, and whether its last turn is the assistant's, to be continued. The reader is told what is
    /// left out of account.
    pub(super) fn translate(
        self,
        reader: &mut FieldReader,
    ) -> Result<(Conversation, bool), Problem> {
        let mut turns = Turns::default();
        if let Some(system) = self.system {
            let path = FieldPath::from("system");
            let parts = only_texts(&path, system, "`system`", reader)?;
            if !parts.is_empty() {
                turns.push(Role::System, parts, path);
            }
        }
        let list = FieldPath::from("messages");
        if self.messages.is_empty() {
            let text = "`messages` must hold at least one message";
            return Err(Problem::invalid("messages", text));
        }
        for (at, message) in self.messages.into_iter().enumerate() {
            let path = list.index(at);
            match message.role {
                WireRole::User => user(&mut turns, &path, message.content, reader)?,
                WireRole::Assistant => assistant(&mut turns, &path, message.content, reader)?,
                WireRole::System => {
                    let content = path.key("content");
                    let parts = only_texts(&content, message.content, "a system message", reader)?;
                    turns.push(Role::System, parts, path);
                }
            }
        }
        turns.conversation(&list)
    }
}

/// The turns so far, neighbours of one author joined, as Anthropic joins them.
#[derive(Default)]
struct Turns {
    messages: Vec<Message>,
    /// Path of each message in the request.
    paths: Vec<FieldPath>,
}

impl Turns {
    fn push(&mut self, role: Role, content: Vec<ContentPart>, path: FieldPath) {
        if let Some(last) = self.messages.last_mut() {
            match (&mut last.role, &role) {
                (Role::User, Role::User) => return last.content.extend(content),
                (
                    Role::Assistant { reasoning, calls },
                    Role::Assistant {
                        reasoning: more,
                        calls: further,
                    },
                ) => {
                    if let Some(more) = more {
                        reasoning.get_or_insert_default().push_str(more);
                    }
                    calls.extend(further.iter().cloned());
                    last.content.retain(|part| part != &ContentPart::from(""));
                    return last.content.extend(content);
                }
                _ => {}
            }
        }
        let name = None;
        self.messages.push(Message {
            role,
            content,
            name,
        });
        self.paths.push(path);
    }

    fn conversation(self, list: &FieldPath) -> Result<(Conversation, bool), Problem> {
        let Self { messages, paths } = self;
        let continued = match messages.last().map(|message| &message.role) {
            Some(Role::Assistant { calls, .. }) if !calls.is_empty() => {
                let path = paths.last().unwrap_or(list);
                let text = format!("`{path}` calls tools; a `tool_result` of each must follow");
                return Err(Problem::invalid(path.to_string(), text));
            }
            last => matches!(last, Some(Role::Assistant { .. })),
        };
        let conversation = Conversation::new(messages).map_err(|error| match error {
            ConversationError::Empty => {
                let text = "`messages` must hold at least one message";
                Problem::invalid("messages", text)
            }
            ConversationError::TooMany { count } => Problem::invalid(
                "messages",
                format!(
                    "`messages` makes {count} turns; the limit is {}",
                    limits::MAX_MESSAGES
                ),
            ),
            ConversationError::UnknownCall { message, call_id } => {
                let path = paths.get(message).unwrap_or(list).key("tool_use_id");
                Problem::invalid(
                    path.to_string(),
                    format!(
                        "`{path}` is `{call_id}`, and no earlier message has a `tool_use` block \
                         of this id"
                    ),
                )
            }
        })?;
        Ok((conversation, continued))
    }
}

/// Texts of a content that may hold nothing else.
fn only_texts(
    path: &FieldPath,
    content: BlockContent,
    place: &str,
    reader: &mut FieldReader,
) -> Result<Vec<ContentPart>, Problem> {
    let blocks = match content {
        TextOr::Text(text) if text.is_empty() => return Ok(Vec::new()),
        TextOr::Text(text) => return Ok(vec![ContentPart::Text(text)]),
        TextOr::Items(blocks) => blocks,
    };
    let parts = blocks.into_iter().enumerate().map(|(at, block)| {
        let path = path.index(at);
        block.check_members(&path, reader)?;
        match block.kind.as_str() {
            "text" => block.into_text(&path).map(ContentPart::Text),
            kind => {
                let path = path.key("type");
                Err(Problem::invalid(
                    path.to_string(),
                    format!("`{path}` is `{kind}`; {place} has blocks of the type `text` only"),
                ))
            }
        }
    });
    parts.collect()
}

/// A message of the user: results of tools first, each a message of its own, then the rest.
fn user(
    turns: &mut Turns,
    path: &FieldPath,
    content: BlockContent,
    reader: &mut FieldReader,
) -> Result<(), Problem> {
    let list = path.key("content");
    let blocks = match content {
        TextOr::Text(text) => {
            turns.push(Role::User, vec![ContentPart::Text(text)], path.clone());
            return Ok(());
        }
        TextOr::Items(blocks) => blocks,
    };
    if blocks.is_empty() {
        let text = format!("`{list}` must hold at least one block");
        return Err(Problem::invalid(list.to_string(), text));
    }
    let mut parts = Vec::new();
    for (at, block) in blocks.into_iter().enumerate() {
        let path = list.index(at);
        block.check_members(&path, reader)?;
        match block.kind.as_str() {
            "tool_result" => {
                if !parts.is_empty() {
                    let text = format!(
                        "`{path}` is a `tool_result` behind other content; results come first"
                    );
                    return Err(Problem::invalid(path.to_string(), text));
                }
                let (role, content) = tool_result(&path, block, reader)?;
                turns.push(role, content, path);
            }
            "text" => parts.push(ContentPart::Text(block.into_text(&path)?)),
            "image" => parts.push(ContentPart::Image(image(&path, block)?)),
            kind => return Err(unknown_kind(&path, kind, "user")),
        }
    }
    if !parts.is_empty() {
        turns.push(Role::User, parts, path.clone());
    }
    Ok(())
}

fn tool_result(
    path: &FieldPath,
    block: Block,
    reader: &mut FieldReader,
) -> Result<(Role, Vec<ContentPart>), Problem> {
    let call_id = block.tool_use_id;
    let call_id = call_id.ok_or_else(|| missing(&path.key("tool_use_id")))?;
    let mut parts = Vec::new();
    match block.content.map(|content| *content) {
        None => {}
        Some(TextOr::Text(text)) => parts.push(ContentPart::Text(text)),
        Some(TextOr::Items(blocks)) => {
            let list = path.key("content");
            for (at, inner) in blocks.into_iter().enumerate() {
                let path = list.index(at);
                inner.check_members(&path, reader)?;
                parts.push(match inner.kind.as_str() {
                    "text" => ContentPart::Text(inner.into_text(&path)?),
                    "image" => ContentPart::Image(image(&path, inner)?),
                    kind => return Err(unknown_kind(&path, kind, "tool_result")),
                });
            }
        }
    }
    if block.is_error.unwrap_or(false) {
        match parts.first_mut() {
            Some(ContentPart::Text(text)) => text.insert_str(0, FAILED),
            _ => parts.insert(0, ContentPart::from(FAILED.trim_end())),
        }
    }
    if parts.is_empty() {
        parts.push(ContentPart::from(""));
    }
    Ok((Role::Tool { call_id }, parts))
}

fn assistant(
    turns: &mut Turns,
    path: &FieldPath,
    content: BlockContent,
    reader: &mut FieldReader,
) -> Result<(), Problem> {
    let list = path.key("content");
    let blocks = match content {
        TextOr::Text(text) => {
            turns.push(Role::ASSISTANT, vec![ContentPart::Text(text)], path.clone());
            return Ok(());
        }
        TextOr::Items(blocks) => blocks,
    };
    let (mut parts, mut calls) = (Vec::new(), Vec::new());
    let mut reasoning: Option<String> = None;
    for (at, block) in blocks.into_iter().enumerate() {
        let path = list.index(at);
        block.check_members(&path, reader)?;
        match block.kind.as_str() {
            "text" => parts.push(ContentPart::Text(block.into_text(&path)?)),
            "thinking" => {
                let text = block.thinking;
                let text = text.ok_or_else(|| missing(&path.key("thinking")))?;
                reasoning.get_or_insert_default().push_str(&text);
            }
            "tool_use" => calls.push(tool_use(&path, block)?),
            "redacted_thinking" => {
                let why = "only the server that wrote it can read it; leave the block out";
                return Err(unsupported(&path, why));
            }
            kind => return Err(unknown_kind(&path, kind, "assistant")),
        }
    }
    if parts.is_empty() {
        // Templates that look at the content of such a message expect a text.
        parts.push(ContentPart::from(""));
    }
    turns.push(Role::Assistant { reasoning, calls }, parts, path.clone());
    Ok(())
}

fn tool_use(path: &FieldPath, block: Block) -> Result<ToolCall, Problem> {
    let input = block.input.unwrap_or_default();
    Ok(ToolCall {
        id: block.id.ok_or_else(|| missing(&path.key("id")))?,
        name: block.name.ok_or_else(|| missing(&path.key("name")))?,
        arguments: Value::Object(input).to_string(),
        order: KeyOrder::default(),
    })
}

fn image(path: &FieldPath, block: Block) -> Result<Image, Problem> {
    let inner = path.key("source");
    let source = block.source.ok_or_else(|| missing(&inner))?;
    Ok(Image {
        source: image_source(&inner, source)?,
        detail: None,
        origin: PartOrigin {
            path: path.to_string(),
            kind: "image".to_owned(),
        },
    })
}

fn image_source(path: &FieldPath, source: BlockSource) -> Result<ImageSource, Problem> {
    let extra = [("content", &source.content), ("file_id", &source.file_id)];
    if let Some((name, _)) = extra.iter().find(|(_, value)| value.is_some()) {
        return Err(unsupported(&path.key(name), "send the bytes or an address"));
    }
    match source.kind.as_str() {
        "base64" => {
            let media_type = source.media_type;
            let data = source.data.ok_or_else(|| missing(&path.key("data")))?;
            let bytes = STANDARD.decode(data).map_err(|error| {
                let path = path.key("data");
                Problem::invalid(
                    path.to_string(),
                    format!("`{path}` is not valid base64: {error}"),
                )
            })?;
            Ok(ImageSource::Bytes {
                media_type: media_type.ok_or_else(|| missing(&path.key("media_type")))?,
                bytes,
            })
        }
        "url" => {
            let url = source.url.ok_or_else(|| missing(&path.key("url")))?;
            Ok(ImageSource::Url(url))
        }
        kind => {
            let kind = Value::from(kind);
            Err(wrong_value(
                &path.key("type"),
                "one of `base64`, `url`",
                &kind,
            ))
        }
    }
}

fn unknown_kind(path: &FieldPath, kind: &str, place: &str) -> Problem {
    let path = path.key("type");
    let why = match kind {
        "document" | "search_result" => "this server's models read text only; send the text itself",
        "server_tool_use"
        | "web_search_tool_result"
        | "code_execution_tool_result"
        | "mcp_tool_use"
        | "mcp_tool_result"
        | "web_fetch_tool_result" => "it belongs to tools that Anthropic's servers run",
        "container_upload" => "this server has no containers",
        _ => {
            return Problem::invalid(
                path.to_string(),
                format!("`{path}` is `{kind}`, which no block of a {place} message is"),
            );
        }
    };
    Problem::unsupported(
        path.to_string(),
        format!("`{path}` is `{kind}`, which is not supported: {why}"),
    )
}
