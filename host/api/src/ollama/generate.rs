//! The body of `POST /api/generate` as fields of a request.

use mortise_http::Problem;
use mortise_service::{
    ChatPrompt, ChosenTemplate, Conversation, Message, Prompt, PromptEnd, RequestFields, Role,
    TemplateArguments,
};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::options::GenerateFields;
use crate::fields::{FieldPath, FieldReader, RouteFields, refused_fields};
use crate::unsupported::Unsupported;

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct PromptFields {
    prompt: Option<String>,
    system: Option<String>,
    raw: Option<bool>,
    images: Option<Vec<Value>>,
    suffix: Option<String>,
    context: Option<Vec<Value>>,
    template: Option<String>,
}

refused_fields! {
    /// Fields that cannot be honoured.
    Refused {
        width: "models here write text only",
        height: "models here write text only",
        steps: "models here write text only",
    }
}

/// The fields of a body, for the contract.
pub(super) fn fields() -> RouteFields {
    RouteFields::new(Unsupported::Refuse)
        .with::<GenerateFields>()
        .with::<PromptFields>()
        .refusing(Refused::REASONS)
}

/// Translate a body. A request without a prompt only loads the model. `context` tells the tokens of a
/// model's context.
pub(super) fn parse(
    body: Map<String, Value>,
    context: impl Fn(&str) -> Option<usize>,
) -> Result<(RequestFields, bool), Problem> {
    let mut reader = FieldReader::new(body, Unsupported::Refuse);
    let shared: GenerateFields = reader.read()?;
    let mut request = RequestFields::default();
    let arguments = shared.write(&mut reader, &mut request, context)?;
    let fields: PromptFields = reader.read()?;
    let empty = [
        (
            "images",
            fields.images.is_none_or(|list| list.is_empty()),
            "models here read text only",
        ),
        (
            "suffix",
            fields.suffix.is_none_or(|text| text.is_empty()),
            "no model here fills in the middle of a text",
        ),
        (
            "context",
            fields.context.is_none_or(|list| list.is_empty()),
            "send the whole conversation to /api/chat instead",
        ),
    ];
    for (name, _, why) in empty.iter().filter(|(_, empty, _)| !empty) {
        reader.unsupported(&FieldPath::from(*name), why)?;
    }
    reader.read::<Refused>()?.refuse(&mut reader)?;
    let text = fields.prompt.unwrap_or_default();
    let only_loads = text.is_empty();
    let system = fields.system.filter(|system| !system.is_empty());
    let template = fields.template.filter(|name| !name.is_empty());
    let template = ChosenTemplate::of("template", template);
    if let (true, Some(template)) = (fields.raw.unwrap_or(false), &template) {
        let message = "`template` chooses a chat template, which `raw` leaves out";
        return Err(Problem::invalid(template.field, message));
    }
    request.prompt = match (fields.raw.unwrap_or(false), system) {
        (true, Some(_)) => {
            let message = "`system` needs the chat template, which `raw` leaves out";
            return Err(Problem::invalid("system", message));
        }
        (true, None) => Prompt::Text(text),
        (false, system) => {
            let mut chat = conversation(system, text, arguments)?;
            chat.template = template;
            Prompt::Chat(chat)
        }
    };
    reader.finish(|_| false)?;
    Ok((request, only_loads))
}

/// The prompt as the user's turn, after the system's if there is one.
fn conversation(
    system: Option<String>,
    prompt: String,
    arguments: Map<String, Value>,
) -> Result<ChatPrompt, Problem> {
    let system = system.map(|text| Message::text(Role::System, text));
    let user = Message::text(Role::User, prompt);
    let conversation = Conversation::new(system.into_iter().chain([user]).collect())
        .map_err(|error| Problem::invalid("prompt", error.to_string()))?;
    let asked = arguments.get("enable_thinking").and_then(Value::as_bool);
    Ok(ChatPrompt {
        conversation,
        arguments: TemplateArguments::new(arguments)
            .map_err(|error| Problem::invalid("think", error.to_string()))?
            .thinking(asked),
        template: None,
        end: PromptEnd::AssistantTurn,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(body: Value) -> Result<RequestFields, String> {
        let Value::Object(body) = body else {
            panic!("a body is an object");
        };
        let read = parse(body, |_| Some(4096));
        read.map(|(fields, _)| fields)
            .map_err(|problem| problem.text().to_owned())
    }

    fn with(field: &str, value: Value) -> Value {
        let mut body = json!({"model": "m", "prompt": "p"});
        body[field] = value;
        body
    }

    #[test]
    fn options_become_fields() {
        let options = json!({
            "num_predict": 7, "temperature": 0.5, "top_k": 40, "top_p": 0.9, "min_p": 0.1,
            "seed": -3, "stop": "END", "repeat_penalty": 1.1, "num_ctx": 2048, "mirostat": 0,
            "presence_penalty": 0.25, "frequency_penalty": 0.5, "typical_p": 1.0,
        });
        let fields = read(with("options", options)).expect("valid");
        assert_eq!((fields.model.as_str(), fields.stream), ("m", true));
        assert_eq!((fields.max_tokens, fields.top_k), (Some(7), Some(40)));
        assert_eq!((fields.temperature, fields.top_p), (Some(0.5), Some(0.9)));
        assert_eq!((fields.min_p, fields.seed), (Some(0.1), Some(-3)));
        assert_eq!(fields.stop, ["END"]);
        assert_eq!(fields.repetition_penalty, Some(1.1));
        assert_eq!(
            (fields.presence_penalty, fields.frequency_penalty),
            (Some(0.25), Some(0.5))
        );
        let fields = read(with(
            "options",
            json!({"stop": ["a", "b"], "num_predict": -1}),
        ));
        let fields = fields.expect("valid");
        assert_eq!(
            (fields.stop, fields.max_tokens),
            (vec!["a".to_owned(), "b".to_owned()], None)
        );
        let unpenalised = json!({"repeat_last_n": 0, "repeat_penalty": 1.5});
        let fields = read(with("options", unpenalised)).expect("valid");
        assert_eq!(fields.repetition_penalty, Some(1.0));
        assert!(!read(with("stream", json!(false))).expect("valid").stream);
    }

    #[test]
    fn a_raw_prompt_is_text_and_any_other_a_conversation() {
        let raw = read(with("raw", json!(true))).expect("valid");
        assert_eq!(raw.prompt, Prompt::Text("p".to_owned()));
        let chat = read(with("system", json!("Be brief."))).expect("valid");
        let messages = |fields: RequestFields| match fields.prompt {
            Prompt::Chat(chat) => chat.conversation.messages().to_vec(),
            other => panic!("not a conversation: {other:?}"),
        };
        let user = Message::text(Role::User, "p");
        let system = Message::text(Role::System, "Be brief.");
        assert_eq!(messages(chat), [system, user.clone()]);
        let null = read(with("raw", Value::Null)).expect("valid");
        assert_eq!(messages(null), [user]);
        let mut both = with("raw", json!(true));
        both["system"] = json!("s");
        assert!(read(both).expect_err("refused").contains("`system`"));
        let mut both = with("raw", json!(true));
        both["template"] = json!("short");
        assert!(read(both).expect_err("refused").contains("`template`"));
    }

    #[test]
    fn what_cannot_be_honoured_is_refused_by_name() {
        for (name, value) in [
            ("suffix", json!("s")),
            ("images", json!(["aGk="])),
            ("context", json!([1])),
            ("keep_alive", json!("10m")),
            ("keep_alive", json!(-1)),
            ("truncate", json!(true)),
            ("width", json!(7)),
        ] {
            let error = read(with(name, value)).expect_err(name);
            assert!(
                error.contains(&format!("`{name}` is not supported")),
                "{error}"
            );
        }
        for (name, value) in [
            ("num_ctx", json!(8192)),
            ("num_keep", json!(4)),
            ("repeat_last_n", json!(64)),
            ("typical_p", json!(0.5)),
            ("mirostat", json!(2)),
            ("penalize_newline", json!(false)),
            ("num_gpu", json!(1)),
            ("use_mlock", json!(true)),
        ] {
            let mut options = Map::new();
            options.insert(name.to_owned(), value);
            let error = read(with("options", Value::Object(options))).expect_err(name);
            assert!(
                error.contains(&format!("`options.{name}` is not")),
                "{error}"
            );
        }
        for (name, value) in [
            ("keep_alive", json!("5m")),
            ("keep_alive", json!(300)),
            ("suffix", json!("")),
            ("images", json!([])),
            ("truncate", json!(false)),
        ] {
            read(with(name, value)).expect(name);
        }
    }

    #[test]
    fn thinking_and_formats_become_arguments_and_constraints() {
        let arguments = |value: Value| match read(with("think", value)).expect("valid").prompt {
            Prompt::Chat(chat) => Value::Object(chat.arguments.members().clone()),
            other => panic!("not a conversation: {other:?}"),
        };
        assert_eq!(arguments(json!(false)), json!({"enable_thinking": false}));
        let high = json!({"reasoning_effort": "high", "enable_thinking": true});
        assert_eq!(arguments(json!("high")), high);
        assert!(
            read(with("think", json!("much")))
                .expect_err("refused")
                .contains("`think`")
        );
        let constraint = |value| read(with("format", value)).expect("valid").constraint;
        assert!(constraint(json!("")).is_none());
        assert!(constraint(json!("json")).is_some());
        assert!(constraint(json!({"type": "object"})).is_some());
        assert!(
            read(with("format", json!("xml")))
                .expect_err("refused")
                .contains("`format`")
        );
    }

    #[test]
    fn mistakes_are_told_by_their_path() {
        for (body, part) in [
            (json!({"prompt": "p"}), "`model` is required"),
            (
                json!({"model": 1, "prompt": "p"}),
                "`model` must be a string; it is a number",
            ),
            (
                with("steam", json!(true)),
                "unknown field `steam`; did you mean `stream`?",
            ),
            (
                with("options", json!([])),
                "`options` must be an object; it is an array",
            ),
            (
                with("options", json!({"top_q": 1})),
                "did you mean `options.top_p`?",
            ),
            (
                with("options", json!({"num_predict": -3})),
                "`options.num_predict` must be an integer from 1",
            ),
            (
                with("options", json!({"seed": 1.5})),
                "`options.seed` must be a 64-bit integer",
            ),
            (
                with("options", json!({"stop": ["a", 1]})),
                "`options.stop[1]` must be a string",
            ),
        ] {
            let error = read(body).expect_err(part);
            assert!(error.contains(part), "{error}");
        }
    }
}
