//! The body of `POST /api/chat` as fields of a request.

use mortise_http::Problem;
use mortise_service::{
    ChatPrompt, ContentPart, Conversation, ConversationError, JsonObject, KeyOrder, Message,
    Prompt, PromptEnd, RequestFields, Role, TemplateArguments, ToolCall, ToolDeclaration,
    ToolDeclarations, ToolName, ToolsError, limits,
};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::options::GenerateFields;
use crate::fields::{FieldPath, FieldReader, RouteFields, missing, words};
use crate::unsupported::Unsupported;

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct ChatFields {
    messages: Option<Vec<WireMessage>>,
    tools: Option<Vec<Tool>>,
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct WireMessage {
    role: WireRole,
    content: Option<String>,
    thinking: Option<String>,
    images: Option<Vec<Value>>,
    tool_calls: Option<Vec<WireCall>>,
    tool_name: Option<String>,
    /// The older name of `tool_name`.
    name: Option<String>,
    tool_call_id: Option<String>,
}

words! {
    /// Author of a message.
    WireRole {
        System = "system",
        User = "user",
        Assistant = "assistant",
        Tool = "tool",
    }
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
#[allow(dead_code, reason = "calls stand in the order of their indices")]
struct WireCall {
    id: Option<String>,
    #[serde(rename = "type")]
    kind: Option<FunctionKind>,
    function: CalledFunction,
}

words! {
    /// Type of a tool.
    FunctionKind {
        Function = "function",
    }
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
#[allow(dead_code, reason = "calls stand in the order of their indices")]
struct CalledFunction {
    index: Option<u32>,
    name: String,
    arguments: Option<Map<String, Value>>,
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
#[allow(dead_code, reason = "functions are the only type of tools")]
struct Tool {
    #[serde(rename = "type")]
    kind: Option<FunctionKind>,
    function: Function,
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct Function {
    name: String,
    description: Option<String>,
    parameters: Option<Map<String, Value>>,
}

/// The fields of a body, for the contract.
pub(super) fn fields() -> RouteFields {
    RouteFields::new(Unsupported::Refuse)
        .with::<GenerateFields>()
        .with::<ChatFields>()
}

/// Translate a body. A request without messages only loads the model. `context` tells the tokens of a
/// model's context.
pub(super) fn parse(
    body: Map<String, Value>,
    context: impl Fn(&str) -> Option<usize>,
) -> Result<(RequestFields, bool), Problem> {
    let mut reader = FieldReader::new(body, Unsupported::Refuse);
    let shared: GenerateFields = reader.read()?;
    let mut request = RequestFields::default();
    let arguments = shared.write(&mut reader, &mut request, context)?;
    let fields: ChatFields = reader.read()?;
    request.tools = tools(fields.tools.unwrap_or_default())?;
    let messages = fields.messages.unwrap_or_default();
    let only_loads = messages.is_empty();
    if !only_loads {
        let asked = arguments.get("enable_thinking").and_then(Value::as_bool);
        request.prompt = Prompt::Chat(ChatPrompt {
            conversation: conversation(messages)?,
            arguments: TemplateArguments::new(arguments)
                .map_err(|error| Problem::invalid("think", error.to_string()))?
                .thinking(asked),
            template: None,
            end: PromptEnd::AssistantTurn,
        });
    }
    reader.finish(|_| false)?;
    Ok((request, only_loads))
}

fn tools(tools: Vec<Tool>) -> Result<ToolDeclarations, Problem> {
    let list = FieldPath::from("tools");
    let mut declarations = Vec::with_capacity(tools.len());
    for (at, tool) in tools.into_iter().enumerate() {
        let path = list.index(at).key("function");
        let Function {
            name,
            description,
            parameters,
        } = tool.function;
        let inner = path.key("name");
        let name = ToolName::new(name)
            .map_err(|error| Problem::invalid(inner.to_string(), format!("`{inner}` {error}")))?;
        let parameters = parameters.map(JsonObject::new).transpose();
        let parameters = parameters.map_err(|error| {
            let path = path.key("parameters");
            Problem::invalid(path.to_string(), format!("`{path}`: {error}"))
        })?;
        declarations.push(ToolDeclaration {
            name,
            description,
            parameters,
            strict: None,
            order: KeyOrder::default(),
        });
    }
    ToolDeclarations::new(declarations).map_err(|error| match error {
        ToolsError::Duplicate { index, name } => {
            let path = list.index(index);
            Problem::invalid(
                path.to_string(),
                format!("`{path}` declares `{name}`, which an earlier entry declares too"),
            )
        }
        error @ ToolsError::TooMany { .. } => Problem::invalid("tools", error.to_string()),
    })
}

fn conversation(messages: Vec<WireMessage>) -> Result<Conversation, Problem> {
    let list = FieldPath::from("messages");
    let mut open = OpenCalls::default();
    let mut translated = Vec::with_capacity(messages.len());
    for (at, message) in messages.into_iter().enumerate() {
        translated.push(translate(&list.index(at), message, &mut open)?);
    }
    Conversation::new(translated).map_err(|error| match error {
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
            let path = list.index(message);
            let text = format!("`{path}` is the result of `{call_id}`, which no message calls");
            Problem::invalid(path.to_string(), text)
        }
    })
}

/// Calls whose results have not come yet.
#[derive(Default)]
struct OpenCalls {
    calls: Vec<OpenCall>,
    count: usize,
}

struct OpenCall {
    id: String,
    /// Name of the tool.
    name: String,
    /// The caller gave no id.
    made: bool,
}

impl OpenCalls {
    /// The id of a new call, of its own or made.
    fn begin(&mut self, id: Option<String>, name: &str) -> String {
        let made = id.is_none();
        let id = id.unwrap_or_else(|| format!("call_{}", self.count));
        self.count += 1;
        self.calls.push(OpenCall {
            id: id.clone(),
            name: name.to_owned(),
            made,
        });
        id
    }

    /// The call that a result belongs to: by its id, else the first open one of the tool, else the first. Some
    /// clients give ids with results and leave them out of calls.
    fn end(&mut self, id: Option<String>, name: Option<&str>) -> Option<String> {
        let of_tool = |call: &OpenCall| name.is_none_or(|name| name == call.name);
        let mut calls = self.calls.iter();
        let at = match &id {
            Some(id) => {
                let named = calls.position(|call| call.id == *id);
                let without = |call: &OpenCall| call.made && of_tool(call);
                named.or_else(|| self.calls.iter().position(without))
            }
            None => calls.position(of_tool),
        };
        match at {
            Some(at) => Some(self.calls.remove(at).id),
            None => id,
        }
    }
}

fn translate(
    path: &FieldPath,
    message: WireMessage,
    open: &mut OpenCalls,
) -> Result<Message, Problem> {
    if message.images.is_some_and(|images| !images.is_empty()) {
        let path = path.key("images");
        let text = format!("`{path}` is not supported: models here read text only");
        return Err(Problem::unsupported(path.to_string(), text));
    }
    let role = message.role;
    let given = [
        ("thinking", message.thinking.is_some(), WireRole::Assistant),
        (
            "tool_calls",
            message.tool_calls.is_some(),
            WireRole::Assistant,
        ),
        ("tool_name", message.tool_name.is_some(), WireRole::Tool),
        (
            "tool_call_id",
            message.tool_call_id.is_some(),
            WireRole::Tool,
        ),
    ];
    let foreign = given.iter().find(|(_, given, of)| *given && *of != role);
    if let Some((field, _, of)) = foreign {
        let (path, of, role) = (path.key(field), of.word(), role.word());
        return Err(Problem::invalid(
            path.to_string(),
            format!(
                "`{path}` may stand only in a message of role `{of}`; this one is of role `{role}`"
            ),
        ));
    }
    let content = match (message.content, &message.tool_calls) {
        (Some(text), _) => text,
        (None, Some(_)) => String::new(),
        (None, None) => return Err(missing(&path.key("content"))),
    };
    let role = match role {
        WireRole::System => Role::System,
        WireRole::User => Role::User,
        WireRole::Assistant => Role::Assistant {
            reasoning: message.thinking.filter(|text| !text.is_empty()),
            calls: calls(message.tool_calls.unwrap_or_default(), open),
        },
        WireRole::Tool => {
            let name = message.tool_name.or(message.name);
            let call_id = open.end(message.tool_call_id, name.as_deref());
            let call_id = call_id.ok_or_else(|| {
                let text =
                    format!("`{path}` is the result of a tool, and no earlier message calls it");
                Problem::invalid(path.to_string(), text)
            })?;
            Role::Tool { call_id }
        }
    };
    Ok(Message {
        role,
        content: vec![ContentPart::Text(content)],
        name: None,
    })
}

fn calls(calls: Vec<WireCall>, open: &mut OpenCalls) -> Vec<ToolCall> {
    let calls = calls.into_iter().map(|call| {
        let CalledFunction {
            name, arguments, ..
        } = call.function;
        ToolCall {
            id: open.begin(call.id, &name),
            name,
            arguments: Value::Object(arguments.unwrap_or_default()).to_string(),
            order: KeyOrder::default(),
        }
    });
    calls.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(messages: Value) -> Result<Vec<Message>, String> {
        let body = json!({"model": "m", "messages": messages});
        let Value::Object(body) = body else {
            panic!("a body is an object");
        };
        match parse(body, |_| None) {
            Ok((fields, _)) => match fields.prompt {
                Prompt::Chat(chat) => Ok(chat.conversation.messages().to_vec()),
                other => panic!("not a conversation: {other:?}"),
            },
            Err(problem) => Err(problem.text().to_owned()),
        }
    }

    #[test]
    fn results_belong_to_the_calls_of_their_tools() {
        let call = |name: &str| json!({"function": {"name": name, "arguments": {"a": 1}}});
        let result = |name: &str| json!({"role": "tool", "content": "7", "tool_name": name});
        let messages = read(json!([
            {"role": "user", "content": "?"},
            {"role": "assistant", "content": "", "tool_calls": [call("f"), call("g"), call("f")]},
            result("g"), result("f"), result("f"),
        ]));
        let messages = messages.expect("valid");
        assert_eq!(answered(&messages), ["call_1", "call_0", "call_2"]);
        let stray = read(json!([{"role": "user", "content": "?"}, result("f")]));
        assert!(stray.expect_err("refused").contains("`messages[1]`"));
    }

    /// Ids of the calls that messages are the results of.
    fn answered(messages: &[Message]) -> Vec<&str> {
        let roles = messages.iter().map(|message| &message.role);
        roles
            .filter_map(|role| match role {
                Role::Tool { call_id } => Some(call_id.as_str()),
                _ => None,
            })
            .collect()
    }

    #[test]
    fn results_with_ids_belong_to_calls_that_lack_them() {
        let call = |id: Value| json!({"id": id, "function": {"name": "f", "arguments": {}}});
        let result = |id: &str| json!({"role": "tool", "content": "7", "tool_call_id": id});
        let calls = json!([call(json!("one")), call(Value::Null)]);
        let asked = json!({"role": "assistant", "content": "", "tool_calls": calls});
        let messages = read(json!([asked, result("other"), result("one")]));
        assert_eq!(answered(&messages.expect("valid")), ["call_1", "one"]);
        let stray = read(json!([asked, result("other"), result("third")]));
        assert!(stray.expect_err("refused").contains("`messages[2]`"));
    }

    #[test]
    fn fields_stand_in_messages_of_their_roles() {
        for (message, part) in [
            (
                json!({"role": "user", "content": "?", "images": ["aGk="]}),
                "`messages[0].images` is not",
            ),
            (
                json!({"role": "user", "content": "?", "thinking": "hm"}),
                "`messages[0].thinking` may",
            ),
            (json!({"role": "user"}), "`messages[0].content` is required"),
            (
                json!({"role": "robot", "content": "?"}),
                "`messages[0].role` must be one of",
            ),
        ] {
            let error = read(json!([message])).expect_err(part);
            assert!(error.contains(part), "{error}");
        }
    }
}
