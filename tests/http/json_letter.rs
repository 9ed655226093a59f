//! JSON by the letter: the texts of JSONTestSuite as bodies. Whatever is no JSON is 400 with the code `invalid_json`.

use serde_json::Value;

use crate::answers::CHAT;
use crate::json_texts::{EITHER, MALFORMED, VALID};
use crate::responses::RESPONSES;
use crate::support::Server;
use crate::support::client::{Request, Response};

/// Texts of the suite that are no JSON, with the two that are made here.
const MALFORMED_TEXTS: usize = 188;

/// Names of objects that have a key twice, which the suite allows, and which is refused here.
const TWICE: [&str; 2] = ["object_duplicated_key", "object_duplicated_key_and_value"];

fn code(response: &Response) -> (u16, Value) {
    (response.status(), response.json()["error"]["code"].clone())
}

/// An object whose only member has this value.
fn member(text: &[u8]) -> Vec<u8> {
    [b"{\"nonsense\": ", text, b"}"].concat()
}

#[test]
fn feature_x1_malformed_json_is_told_as_such() {
    let mut server = Server::scripted("default = \"x\"", "");
    let refused = (400, Value::from("invalid_json"));
    let deep = ["[".repeat(100_000), "[{\"\":".repeat(50_000)];
    let deep = deep.iter().map(|text| ("deep", text.as_bytes()));
    let texts: Vec<(&str, &[u8])> = MALFORMED.iter().copied().chain(deep).collect();
    assert_eq!(texts.len(), MALFORMED_TEXTS);
    for route in [CHAT, RESPONSES, "/v1/messages"] {
        for (name, text) in &texts {
            let response = server.send(&Request::raw(route, text));
            match route {
                // In Anthropic's shape, which has no codes.
                "/v1/messages" => assert_eq!(response.status(), 400, "{name}"),
                _ => assert_eq!(code(&response), refused, "{name}"),
            }
        }
    }
    // Within an object, where that changes nothing: these are read as far as the mistake.
    for (name, text) in &texts {
        let closes = text.ends_with(b"}") || text.contains(&b'"');
        if !closes {
            let response = server.send(&Request::raw(CHAT, &member(text)));
            assert_eq!(code(&response), refused, "{name} as a member");
        }
    }
    server.assert_sound();
}

#[test]
fn feature_x1_json_of_any_kind_is_read() {
    let mut server = Server::scripted("default = \"x\"", "");
    let read = (400, Value::from("missing_required_parameter"));
    let refused = (400, Value::from("invalid_json"));
    for (name, text) in VALID {
        let response = server.send(&Request::raw(CHAT, &member(text)));
        let expected = if TWICE.contains(name) {
            &refused
        } else {
            &read
        };
        assert_eq!(code(&response), *expected, "{name}");
    }
    for (name, text) in EITHER {
        let response = server.send(&Request::raw(CHAT, &member(text)));
        let code = code(&response);
        assert!(code == read || code == refused, "{name}: {code:?}");
    }
    server.assert_sound();
}
