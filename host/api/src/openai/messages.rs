//! Messages of a chat request.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mortise_http::Problem;
use mortise_service::{
    Audio, ContentPart, Conversation, ConversationError, Detail, Image, ImageSource, KeyOrder,
    Message, PartOrigin, Role, ToolCall, limits,
};
use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor, value};
use serde_json::Value;

use crate::fields::{FieldPath, FieldReader, PathSegment, missing, words, wrong_value};

/// Id of a call in the older `function_call`, which has none, and of its result.
const LEGACY_CALL_ID: &str = "call_0";

/// The messages of a request.
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
pub(crate) struct ChatMessages {
    messages: Vec<WireMessage>,
}

/// One message. `reasoning` is the name that some servers give to `reasoning_content`.
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
#[allow(
    dead_code,
    reason = "annotations of an earlier answer are accepted and mean nothing"
)]
struct WireMessage {
    role: WireRole,
    content: Option<Content>,
    name: Option<String>,
    tool_calls: Option<Vec<WireCall>>,
    tool_call_id: Option<String>,
    function_call: Option<CalledFunction>,
    refusal: Option<String>,
    reasoning_content: Option<String>,
    reasoning: Option<String>,
    audio: Option<Value>,
    annotations: Option<Value>,
    prefix: Option<Value>,
}

words! {
    /// Author of a message.
    WireRole {
        System = "system",
        Developer = "developer",
        User = "user",
        Assistant = "assistant",
        Tool = "tool",
        Function = "function",
    }
}

#[derive(Debug)]
enum Content {
    Text(String),
    Parts(Vec<WirePart>),
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ContentVisitor;

        impl<'de> Visitor<'de> for ContentVisitor {
            type Value = Content;

            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("a string or an array of parts")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Content, E> {
                Ok(Content::Text(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, parts: A) -> Result<Content, A::Error> {
                let parts = value::SeqAccessDeserializer::new(parts);
                Vec::deserialize(parts).map(Content::Parts)
            }
        }

        deserializer.deserialize_any(ContentVisitor)
    }
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct WirePart {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
    refusal: Option<String>,
    image_url: Option<ImageUrl>,
    input_audio: Option<InputAudio>,
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct ImageUrl {
    url: String,
    detail: Option<WireDetail>,
}

words! {
    /// Resolution to read an image in.
    WireDetail {
        Auto = "auto",
        Low = "low",
        High = "high",
    }
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct InputAudio {
    data: String,
    format: String,
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct WireCall {
    id: String,
    #[serde(rename = "type")]
    kind: String,
    function: CalledFunction,
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct CalledFunction {
    name: String,
    arguments: String,
}

/// Positions of the messages that were answers.
#[derive(Debug)]
pub(crate) struct Answers(Vec<usize>);

impl Answers {
    /// Whether a field inside of messages need not be understood: a member of an answer, or of content parts and
    /// tool calls of any message. Clients send back what other servers gave them there.
    pub(crate) fn tolerate(&self, path: &[PathSegment]) -> bool {
        match path {
            [_, PathSegment::Index(at), _] => is_tolerated(path) && self.0.contains(at),
            _ => is_tolerated(path),
        }
    }
}

/// Whether a field inside of messages may be one that need not be understood, if the message was an answer.
pub(crate) fn is_tolerated(path: &[PathSegment]) -> bool {
    use PathSegment::{Index, Key};
    match path {
        [Key(list), Index(_), Key(field), Index(_), ..] => {
            list == "messages" && (field == "content" || field == "tool_calls")
        }
        [Key(list), Index(_), Key(_)] => list == "messages",
        _ => false,
    }
}

impl ChatMessages {
    /// Positions of answers among the messages.
    pub(crate) fn answers(&self) -> Answers {
        let messages = self.messages.iter().enumerate();
        let answers = messages.filter(|(_, message)| matches!(message.role, WireRole::Assistant));
        Answers(answers.map(|(at, _)| at).collect())
    }

    /// The conversation that the messages make.
    pub(crate) fn translate(self, reader: &FieldReader) -> Result<Conversation, Problem> {
        let list = FieldPath::from("messages");
        let messages = self.messages.into_iter().enumerate();
        let messages = messages.map(|(at, message)| translate(&list.index(at), message, reader));
        let messages = messages.collect::<Result<Vec<Message>, Problem>>()?;
        Conversation::new(messages).map_err(|error| refused(&list, &error, reader))
    }
}

fn refused(list: &FieldPath, error: &ConversationError, reader: &FieldReader) -> Problem {
    match error {
        ConversationError::Empty => {
            Problem::invalid("messages", "`messages` must hold at least one message")
        }
        ConversationError::TooMany { count } => Problem::invalid(
            "messages",
            format!(
                "`messages` holds {count} messages; the limit is {}",
                limits::MAX_MESSAGES
            ),
        ),
        ConversationError::UnknownCall { message, call_id } => {
            let message = list.index(*message);
            let named = message.key("tool_call_id");
            // The older messages of role `function` name no call.
            let path = match reader.has(&named) {
                true => named,
                false => message,
            };
            Problem::invalid(
                path.to_string(),
                format!(
                    "`{path}` is the result of the tool call `{call_id}`, and no earlier message \
                     makes such a call"
                ),
            )
        }
    }
}

fn translate(
    path: &FieldPath,
    message: WireMessage,
    reader: &FieldReader,
) -> Result<Message, Problem> {
    for (field, value) in [("audio", &message.audio), ("prefix", &message.prefix)] {
        if value.is_some() {
            let field = path.key(field);
            let problem = format!("`{field}` is not supported");
            return Err(Problem::unsupported(field.to_string(), problem));
        }
    }
    let calling = message.tool_calls.is_some() || message.function_call.is_some();
    let calls = calls(path, &message, reader)?;
    let content = match (message.content, message.refusal) {
        (Some(Content::Text(text)), _) => Some(vec![ContentPart::Text(text)]),
        (Some(Content::Parts(parts)), _) => Some(translate_parts(path, parts)?),
        (None, refusal) => refusal.map(|text| vec![ContentPart::Text(text)]),
    };
    let reasoning = message.reasoning_content.or(message.reasoning);
    let role = message.role;
    if role != WireRole::Assistant {
        only_assistants(path, "tool_calls", role, calling)?;
        only_assistants(path, "reasoning_content", role, reasoning.is_some())?;
    }
    let content = match content {
        Some(content) => content,
        // Templates that look at the content of such a message expect a text.
        None if !calls.is_empty() => vec![ContentPart::Text(String::new())],
        None => {
            if let Some(misspelt) = reader.unknown_in(path) {
                return Err(misspelt);
            }
            let path = path.key("content");
            let problem = format!(
                "`{path}` is required in a message of role `{}`",
                role.word()
            );
            return Err(Problem::invalid(path.to_string(), problem));
        }
    };
    let role = match role {
        WireRole::System => Role::System,
        WireRole::Developer => Role::Developer,
        WireRole::User => Role::User,
        WireRole::Assistant => Role::Assistant { reasoning, calls },
        WireRole::Function => Role::Tool {
            call_id: LEGACY_CALL_ID.to_owned(),
        },
        WireRole::Tool => Role::Tool {
            call_id: message.tool_call_id.ok_or_else(|| {
                let path = path.key("tool_call_id");
                let problem = format!("`{path}` is required in a message of role `tool`");
                Problem::invalid(path.to_string(), problem)
            })?,
        },
    };
    Ok(Message {
        role,
        content,
        name: message.name,
    })
}

fn only_assistants(
    path: &FieldPath,
    field: &str,
    role: WireRole,
    given: bool,
) -> Result<(), Problem> {
    if !given {
        return Ok(());
    }
    let path = path.key(field);
    let problem = format!(
        "`{path}` may stand only in a message of role `assistant`; this one is of role `{}`",
        role.word()
    );
    Err(Problem::invalid(path.to_string(), problem))
}

/// The calls of a message, that of the older `function_call` among them.
fn calls(
    path: &FieldPath,
    message: &WireMessage,
    reader: &FieldReader,
) -> Result<Vec<ToolCall>, Problem> {
    if let Some(CalledFunction { name, arguments }) = &message.function_call {
        let inner = path.key("function_call");
        return Ok(vec![ToolCall {
            id: LEGACY_CALL_ID.to_owned(),
            name: name.clone(),
            arguments: arguments.clone(),
            order: KeyOrder::new(Vec::new(), reader.keys_at(&inner)),
        }]);
    }
    let list = path.key("tool_calls");
    let calls = message.tool_calls.iter().flatten().enumerate();
    let calls = calls.map(|(at, call)| {
        let path = list.index(at);
        if call.kind != "function" {
            let (path, kind) = (path.key("type"), &call.kind);
            let problem = format!("the tool type `{kind}` is not supported; use `function`");
            let mut error = Problem::invalid(path.to_string(), problem);
            error.code = "unsupported_tool_type".to_owned();
            return Err(error);
        }
        let inner = path.key("function");
        Ok(ToolCall {
            id: call.id.clone(),
            name: call.function.name.clone(),
            arguments: call.function.arguments.clone(),
            order: KeyOrder::new(reader.keys_at(&path), reader.keys_at(&inner)),
        })
    });
    calls.collect()
}

fn translate_parts(path: &FieldPath, parts: Vec<WirePart>) -> Result<Vec<ContentPart>, Problem> {
    let list = path.key("content");
    let parts = parts.into_iter().enumerate();
    let mut parts = parts
        .map(|(at, part)| translate_part(&list.index(at), part))
        .collect::<Result<Vec<ContentPart>, Problem>>()?;
    if parts.is_empty() {
        parts.push(ContentPart::Text(String::new()));
    }
    Ok(parts)
}

fn translate_part(path: &FieldPath, part: WirePart) -> Result<ContentPart, Problem> {
    let origin = |kind: &str| PartOrigin {
        path: path.to_string(),
        kind: kind.to_owned(),
    };
    match part.kind.as_str() {
        "text" => part
            .text
            .map(ContentPart::Text)
            .ok_or_else(|| absent(path, "text")),
        "refusal" => {
            let text = part.refusal.map(ContentPart::Text);
            text.ok_or_else(|| absent(path, "refusal"))
        }
        "image_url" => {
            let image = part.image_url.ok_or_else(|| absent(path, "image_url"))?;
            Ok(ContentPart::Image(Image {
                source: image_source(&path.key("image_url").key("url"), image.url)?,
                detail: image.detail.map(|detail| match detail {
                    WireDetail::Auto => Detail::Auto,
                    WireDetail::Low => Detail::Low,
                    WireDetail::High => Detail::High,
                }),
                origin: origin("image_url"),
            }))
        }
        "input_audio" => {
            let audio = part
                .input_audio
                .ok_or_else(|| absent(path, "input_audio"))?;
            Ok(ContentPart::Audio(Audio {
                bytes: decoded(&path.key("input_audio").key("data"), &audio.data)?,
                format: audio.format,
                origin: origin("input_audio"),
            }))
        }
        kind => Err(Problem::unsupported(
            path.key("type").to_string(),
            format!("`{path}` has the type `{kind}`; this server's models read only text"),
        )),
    }
}

fn absent(path: &FieldPath, field: &str) -> Problem {
    missing(&path.key(field))
}

/// An address, or the bytes of a `data:` URL.
fn image_source(path: &FieldPath, url: String) -> Result<ImageSource, Problem> {
    let Some(data) = url.strip_prefix("data:") else {
        return Ok(ImageSource::Url(url));
    };
    let Some((media_type, text)) = data.split_once(";base64,") else {
        let expected = "an address or `data:TYPE;base64,…`";
        return Err(wrong_value(path, expected, &Value::from("data:…")));
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
