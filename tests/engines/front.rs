//! A llama-server that runs already, and mortise in front of it by one command.

use serde_json::{Value, json};

use crate::{CHAT, DEMO, LlamaServer, asked, content, streamed, support::Server};

#[test]
fn feature_b13_one_command_stands_in_front_of_a_llama_server() {
    let Some(there) = LlamaServer::start() else {
        return;
    };
    let server = Server::start(&["--upstream", &there.url()]);
    let list = server.get("/v1/models").ok();
    let listed: Vec<&Value> = list["data"].as_array().expect("a list").iter().collect();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0]["id"], DEMO);
    assert_eq!(listed[0]["max_model_len"], 2048, "of each slot");
    for text in ["What is mortise?", "What is 2 plus 3?"] {
        let body = asked(DEMO, text);
        let (direct, ours) = (there.post(CHAT, &body).ok(), server.post(CHAT, &body).ok());
        assert!(!content(&ours).is_empty());
        assert_eq!(content(&ours), content(&direct));
        let finish = |answer: &Value| answer["choices"][0]["finish_reason"].clone();
        assert_eq!(finish(&ours), finish(&direct));
        for count in ["prompt_tokens", "completion_tokens", "total_tokens"] {
            assert_eq!(ours["usage"][count], direct["usage"][count], "{count}");
        }
        let (text, usage, error) = streamed(&server, body);
        assert_eq!((text.as_str(), error), (content(&direct), Value::Null));
        assert_eq!(
            usage["completion_tokens"],
            direct["usage"]["completion_tokens"]
        );
    }
    // It is known for a llama-server, whose fields are its own.
    let mut body = asked(DEMO, "What is mortise?");
    body["top_k"] = json!(1);
    body["temperature"] = json!(2);
    body["min_p"] = json!(0.5);
    body["repetition_penalty"] = json!(1.0);
    body["seed"] = json!(-1);
    let greedy = server.post(CHAT, &asked(DEMO, "What is mortise?")).ok();
    assert_eq!(content(&server.post(CHAT, &body).ok()), content(&greedy));
    let mut tools = asked(DEMO, "What is the weather in Paris?");
    let parameters = json!({"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]});
    let function = json!({"name": "get_weather", "description": "Weather of a place", "parameters": parameters});
    tools["tools"] = json!([{"type": "function", "function": function}]);
    let answer = server.post(CHAT, &tools).ok();
    let call = &answer["choices"][0]["message"]["tool_calls"][0]["function"];
    assert_eq!(call["name"], "get_weather", "{answer}");
    assert_eq!(answer["choices"][0]["finish_reason"], "tool_calls");
    let mut logprobs = asked(DEMO, "What is mortise?");
    logprobs["logprobs"] = json!(true);
    logprobs["top_logprobs"] = json!(2);
    let answer = server.post(CHAT, &logprobs).ok();
    let tokens = answer["choices"][0]["logprobs"]["content"].as_array();
    let tokens = tokens.expect("log-probabilities");
    assert!(tokens.len() > 1);
    for token in tokens {
        assert!(
            token["logprob"].as_f64().is_some_and(|value| value <= 0.0),
            "{token}"
        );
        assert_eq!(token["top_logprobs"].as_array().map(Vec::len), Some(2));
    }
}

#[test]
fn what_llama_server_refuses_reaches_the_caller() {
    let Some(there) = LlamaServer::start() else {
        return;
    };
    let server = Server::configured(&crate::remote(&there, "", ""));
    let answer = server.post(CHAT, &asked("remote", &"word ".repeat(4000)));
    assert_eq!(answer.status(), 400, "{}", answer.text());
    assert_eq!(answer.json()["error"]["code"], "context_length_exceeded");
    let mut regex = asked("remote", "Hi");
    regex["structured_outputs"] = json!({"regex": "[a-z]+"});
    let answer = server.post(CHAT, &regex);
    assert_eq!(answer.status(), 400, "{}", answer.text());
    assert!(
        answer.text().contains("structured_outputs.regex"),
        "{}",
        answer.text()
    );
}

/// A schema, and whether a text is an object of it.
pub(crate) fn person() -> (Value, impl Fn(&str) -> bool) {
    let schema = json!({
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
        "required": ["name", "age"],
        "additionalProperties": false,
    });
    let is_one = |text: &str| {
        let Ok(Value::Object(object)) = serde_json::from_str(text) else {
            return false;
        };
        object.len() == 2
            && object["name"]
                .as_str()
                .is_some_and(|name| name.chars().count() <= 12)
            && object["age"].as_u64().is_some_and(|age| age <= 99)
    };
    (schema, is_one)
}

/// Ask a model for such objects, by chance and greedily, and for words of a grammar.
pub(crate) fn obeys_constraints(server: &Server) {
    let (schema, is_one) = person();
    for temperature in [0.0, 1.5] {
        let mut body = asked("remote", "Who are you?");
        body["temperature"] = json!(temperature);
        body["seed"] = json!(7);
        body["max_tokens"] = json!(200);
        let format =
            json!({"type": "json_schema", "json_schema": {"name": "person", "schema": schema}});
        body["response_format"] = format;
        let answer = server.post(CHAT, &body).ok();
        assert!(is_one(content(&answer)), "{answer}");
        body["response_format"] = json!({"type": "json_object"});
        let answer = server.post(CHAT, &body).ok();
        let object = serde_json::from_str::<Value>(content(&answer));
        // What is cut by the limit of tokens is no object yet.
        let cut = answer["choices"][0]["finish_reason"] == "length";
        assert!(
            cut || object.is_ok_and(|object| object.is_object()),
            "{answer}"
        );
        body["response_format"] = json!({"type": "text"});
        body["structured_outputs"] = json!({"grammar": "root ::= \"left\" | \"right\""});
        let answer = server.post(CHAT, &body).ok();
        assert!(["left", "right"].contains(&content(&answer)), "{answer}");
    }
}

#[test]
fn feature_b13_constraints_of_requests_are_obeyed_by_a_llama_server() {
    if let Some(there) = LlamaServer::start() {
        obeys_constraints(&Server::configured(&crate::remote(&there, "", "")));
    }
}
