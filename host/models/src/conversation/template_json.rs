//! JSON of conversations and tools, as chat templates and output parsers take it: the shape that
//! templates of Hugging Face models are written for. Nothing else in the service writes it.

use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use serde_json::{Map, Value};

use super::content::ContentPart;
use super::message::{Conversation, Message, Role};
use super::tool::{ToolCall, ToolDeclaration};

/// Separator of text parts.
const BETWEEN_PARTS: &str = "\n";

/// JSON array of the messages.
///
/// # Errors
/// Never for conversations: the maps have text keys.
pub fn messages(conversation: &Conversation) -> serde_json::Result<String> {
    let messages = conversation.messages().iter().map(MessageJson);
    serde_json::to_string(&List(messages.collect()))
}

/// JSON array of the declarations.
///
/// # Errors
/// Never for declarations: the maps have text keys.
pub fn tools<'a>(
    declarations: impl Iterator<Item = &'a ToolDeclaration>,
) -> serde_json::Result<String> {
    serde_json::to_string(&List(declarations.map(DeclarationJson).collect()))
}

/// JSON object of further template arguments.
///
/// # Errors
/// Never for JSON: the maps have text keys.
pub fn arguments(arguments: &Map<String, Value>) -> serde_json::Result<String> {
    serde_json::to_string(arguments)
}

struct List<T>(Vec<T>);

impl<T: Serialize> Serialize for List<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(&self.0)
    }
}

struct MessageJson<'a>(&'a Message);

impl Serialize for MessageJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Message {
            role,
            content,
            name,
        } = self.0;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("role", role_name(role))?;
        map.serialize_entry("content", &ContentJson(content))?;
        if let Role::Assistant { calls, .. } = role
            && !calls.is_empty()
        {
            map.serialize_entry("tool_calls", &List(calls.iter().map(CallJson).collect()))?;
        }
        if let Some(name) = name {
            map.serialize_entry("name", name)?;
        }
        match role {
            Role::Tool { call_id } => map.serialize_entry("tool_call_id", call_id)?,
            Role::Assistant {
                reasoning: Some(reasoning),
                ..
            } => map.serialize_entry("reasoning_content", reasoning)?,
            _ => {}
        }
        map.end()
    }
}

/// Name of a role. Templates know `system` for both kinds of instructions.
fn role_name(role: &Role) -> &'static str {
    match role {
        Role::System | Role::Developer => "system",
        Role::User => "user",
        Role::Assistant { .. } => "assistant",
        Role::Tool { .. } => "tool",
    }
}

/// Null without parts, one text where all parts are text, else a list of parts with placeholders for
/// images and recordings.
struct ContentJson<'a>(&'a [ContentPart]);

impl Serialize for ContentJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let texts = self.0.iter().map(|part| match part {
            ContentPart::Text(text) => Some(text.as_str()),
            ContentPart::Image(_) | ContentPart::Audio(_) => None,
        });
        match (self.0, texts.collect::<Option<Vec<&str>>>()) {
            ([], _) => serializer.serialize_unit(),
            (_, Some(texts)) => serializer.serialize_str(&texts.join(BETWEEN_PARTS)),
            (parts, None) => {
                let mut list = serializer.serialize_seq(Some(parts.len()))?;
                for part in parts {
                    list.serialize_element(&PartJson(part))?;
                }
                list.end()
            }
        }
    }
}

struct PartJson<'a>(&'a ContentPart);

impl Serialize for PartJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (kind, text) = match self.0 {
            ContentPart::Text(text) => ("text", Some(text)),
            ContentPart::Image(_) => ("image", None),
            ContentPart::Audio(_) => ("audio", None),
        };
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", kind)?;
        if let Some(text) = text {
            map.serialize_entry("text", text)?;
        }
        map.end()
    }
}

struct CallJson<'a>(&'a ToolCall);

impl Serialize for CallJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let call = self.0;
        let function = Ordered {
            order: call.order.function(),
            members: &[
                ("name", Member::Text(&call.name)),
                ("arguments", Member::Text(&call.arguments)),
            ],
        };
        let outer = Ordered {
            order: call.order.outer(),
            members: &[
                ("id", Member::Text(&call.id)),
                ("type", Member::Text("function")),
                ("function", Member::Nested(&function)),
            ],
        };
        outer.serialize(serializer)
    }
}

struct DeclarationJson<'a>(&'a ToolDeclaration);

impl Serialize for DeclarationJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let tool = self.0;
        let description = tool.description.as_deref();
        let parameters = tool.parameters.as_ref();
        let function = Ordered {
            order: tool.order.function(),
            members: &[
                ("name", Member::Text(tool.name.as_str())),
                (
                    "description",
                    description.map_or(Member::None, Member::Text),
                ),
                (
                    "parameters",
                    parameters.map_or(Member::None, |schema| Member::Object(schema.members())),
                ),
                ("strict", tool.strict.map_or(Member::None, Member::Bool)),
            ],
        };
        let outer = Ordered {
            order: tool.order.outer(),
            members: &[
                ("type", Member::Text("function")),
                ("function", Member::Nested(&function)),
            ],
        };
        outer.serialize(serializer)
    }
}

/// An object whose keys stand in a given order; see [`super::KeyOrder`].
struct Ordered<'a> {
    order: &'a [String],
    members: &'a [(&'static str, Member<'a>)],
}

#[derive(Clone, Copy)]
enum Member<'a> {
    None,
    Bool(bool),
    Text(&'a str),
    Object(&'a Map<String, Value>),
    Nested(&'a Ordered<'a>),
}

impl Serialize for Ordered<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let listed = |key: &str| self.order.iter().any(|listed| listed == key);
        let mut map = serializer.serialize_map(None)?;
        for listed in self.order {
            let member = self.members.iter().find(|(key, _)| key == listed);
            if let Some((key, member)) = member {
                map.serialize_entry(key, member)?;
            }
        }
        for (key, member) in self.members {
            if !listed(key) && !matches!(member, Member::None) {
                map.serialize_entry(key, member)?;
            }
        }
        map.end()
    }
}

impl Serialize for Member<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::None => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Text(text) => serializer.serialize_str(text),
            Self::Object(members) => members.serialize(serializer),
            Self::Nested(object) => object.serialize(serializer),
        }
    }
}
