//! The body of `POST /api/generate` as fields of a request.

use mortise_http::Problem;
use mortise_service::{
    ChatPrompt, Conversation, Message, Prompt, PromptEnd, RequestFields, Role, TemplateArguments,
};
use serde_json::{Map, Value};

use super::object::Object;

/// Fields of the body, for the hint on unknown ones.
const FIELDS: [&str; 6] = ["model", "prompt", "system", "raw", "stream", "options"];

/// Fields of `options`, likewise.
const OPTIONS: [&str; 8] = [
    "num_predict",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "seed",
    "stop",
    "repeat_penalty",
];

/// Fields of Ollama's that cannot be honoured, with the reason.
const REFUSED: [(&str, &str); 9] = [
    ("suffix", "no model here fills in the middle of a text"),
    ("images", "models here read text only"),
    (
        "format",
        "ask for JSON at /v1/chat/completions by `response_format`",
    ),
    (
        "think",
        "whether a model reasons is up to its chat template",
    ),
    (
        "template",
        "the chat template is the model's own, or the operator's",
    ),
    (
        "context",
        "send the whole conversation to /v1/chat/completions instead",
    ),
    (
        "keep_alive",
        "models stay loaded for as long as the server runs",
    ),
    ("logprobs", "ask for them at /v1/completions"),
    ("top_logprobs", "ask for them at /v1/completions"),
];

/// Options of Ollama's that the operator decides, or that no sampler here has.
const REFUSED_OPTIONS: [(&str, &str); 4] = [
    (
        "num_ctx",
        "the context is set by the operator, as `limits.max_context`",
    ),
    (
        "num_keep",
        "a prompt that does not fit is refused, not shortened",
    ),
    ("repeat_last_n", "the penalty counts all tokens"),
    ("typical_p", "use `top_p` or `min_p`"),
];

/// Translate a body.
pub(crate) fn parse(body: Map<String, Value>) -> Result<RequestFields, Problem> {
    let mut body = Object::new(body);
    for (name, why) in REFUSED {
        body.refuse(name, why)?;
    }
    let mut fields = RequestFields {
        model: body.required_string("model")?,
        stream: body.boolean("stream")?.unwrap_or(true),
        ..RequestFields::default()
    };
    let text = body.required_string("prompt")?;
    let system = body.string("system")?.filter(|system| !system.is_empty());
    fields.prompt = match (body.boolean("raw")?.unwrap_or(false), system) {
        (true, Some(_)) => {
            let message = "`system` needs the chat template, which `raw` leaves out";
            return Err(Problem::invalid("system", message));
        }
        (true, None) => Prompt::Text(text),
        (false, system) => Prompt::Chat(conversation(system, text)?),
    };
    if let Some(options) = body.object("options")? {
        read_options(options, &mut fields)?;
    }
    body.finish(&FIELDS)?;
    Ok(fields)
}

/// The prompt as the user's turn, after the system's if there is one.
fn conversation(system: Option<String>, prompt: String) -> Result<ChatPrompt, Problem> {
    let system = system.map(|text| Message::text(Role::System, text));
    let user = Message::text(Role::User, prompt);
    let conversation = Conversation::new(system.into_iter().chain([user]).collect())
        .map_err(|error| Problem::invalid("prompt", error.to_string()))?;
    Ok(ChatPrompt {
        conversation,
        arguments: TemplateArguments::default(),
        end: PromptEnd::AssistantTurn,
    })
}

fn read_options(mut options: Object, fields: &mut RequestFields) -> Result<(), Problem> {
    for (name, why) in REFUSED_OPTIONS {
        options.refuse(name, why)?;
    }
    fields.max_tokens = count(&mut options, "num_predict", 1)?;
    fields.top_k = count(&mut options, "top_k", 0)?;
    fields.temperature = options.number("temperature")?;
    fields.top_p = options.number("top_p")?;
    fields.min_p = options.number("min_p")?;
    fields.seed = options.integer("seed")?;
    fields.stop = options.strings("stop")?;
    fields.repetition_penalty = options.number("repeat_penalty")?;
    options.finish(&OPTIONS)
}

/// An integer from `least` on.
fn count(options: &mut Object, name: &str, least: u32) -> Result<Option<u32>, Problem> {
    let Some(number) = options.integer(name)? else {
        return Ok(None);
    };
    let found = u32::try_from(number).ok().filter(|count| *count >= least);
    found.map(Some).ok_or_else(|| {
        let path = options.path(name);
        let most = u32::MAX;
        let message = format!("`{path}` must be an integer from {least} to {most}; it is {number}");
        Problem::invalid(path, message)
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
        parse(body).map_err(|problem| problem.text().to_owned())
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
            "seed": -3, "stop": "END", "repeat_penalty": 1.1,
        });
        let fields = read(with("options", options)).expect("valid");
        assert_eq!((fields.model.as_str(), fields.stream), ("m", true));
        assert_eq!((fields.max_tokens, fields.top_k), (Some(7), Some(40)));
        assert_eq!((fields.temperature, fields.top_p), (Some(0.5), Some(0.9)));
        assert_eq!((fields.min_p, fields.seed), (Some(0.1), Some(-3)));
        assert_eq!(fields.stop, ["END"]);
        assert_eq!(fields.repetition_penalty, Some(1.1));
        let fields = read(with("options", json!({"stop": ["a", "b"]}))).expect("valid");
        assert_eq!(fields.stop, ["a", "b"]);
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
    }

    #[test]
    fn what_cannot_be_honoured_is_refused_by_name() {
        for (name, _) in REFUSED {
            let error = read(with(name, json!(1))).expect_err(name);
            assert!(
                error.contains(&format!("`{name}` is not supported")),
                "{error}"
            );
        }
        for (name, _) in REFUSED_OPTIONS {
            let mut options = Map::new();
            options.insert(name.to_owned(), json!(1));
            let error = read(with("options", Value::Object(options))).expect_err(name);
            assert!(
                error.contains(&format!("`options.{name}` is not")),
                "{error}"
            );
        }
    }

    #[test]
    fn mistakes_are_told_by_their_path() {
        for (body, part) in [
            (json!({"prompt": "p"}), "`model` is required"),
            (json!({"model": "m"}), "`prompt` is required"),
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
                with("options", json!({"num_predict": -1})),
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
