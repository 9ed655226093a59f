//! Operations on issued keys.

use mortise_http::contract::Operation;
use serde_json::{Value, json};

const KEY: &str = "/v1/admin/keys/{id}";

/// Statuses of a refused change.
const CHANGE: &[u16] = &[401, 404, 409, 413, 422, 503];

/// Scopes and limits.
fn terms() -> Value {
    let patterns = || json!({"type": ["array", "null"], "items": {"type": "string"}});
    let count = || json!({"type": ["integer", "null"], "minimum": 1});
    json!({
        "type": "object",
        "properties": {
            "models": patterns(),
            "routes": patterns(),
            "environments": patterns(),
            "tools": patterns(),
            "server_tools": patterns(),
            "requests_per_second": count(),
            "requests_per_minute": count(),
            "requests_per_day": count(),
            "tokens_per_minute": count(),
            "tokens_per_day": count(),
            "max_concurrent": count(),
            "max_tokens": count(),
            "priority": {"type": ["integer", "null"]},
        },
        "additionalProperties": false,
    })
}

/// The body that gives a key its terms.
fn key_terms() -> Value {
    json!({
        "type": "object",
        "properties": {
            "tenant": {"type": ["string", "null"]},
            "expires_at": {"type": ["integer", "null"]},
            "disabled": {"type": "boolean"},
            "terms": terms(),
        },
        "additionalProperties": false,
    })
}

/// The body that asks for a key.
fn key_request() -> Value {
    let mut schema = key_terms();
    schema["properties"]["id"] = json!({"type": "string"});
    schema["required"] = json!(["id"]);
    schema
}

fn rotation() -> Value {
    json!({
        "type": "object",
        "properties": {"overlap_seconds": {"type": "integer", "minimum": 0}},
        "additionalProperties": false,
    })
}

pub(crate) fn list_keys() -> Operation {
    Operation::get("/v1/admin/keys", "listKeys", "Lists the issued keys.")
        .refuses(&[401])
        .answers(200, "KeyRows")
}

pub(crate) fn create_key() -> Operation {
    let summary = "Issues a key; its secret is told here only.";
    Operation::post("/v1/admin/keys", "createKey", summary)
        .refuses(CHANGE)
        .takes("KeyRequest", key_request())
        .answers(201, "KeyWithSecret")
}

pub(crate) fn get_key() -> Operation {
    Operation::get(KEY, "getKey", "An issued key.")
        .refuses(&[401, 404])
        .answers(200, "KeyRow")
}

pub(crate) fn update_key() -> Operation {
    Operation::put(KEY, "updateKey", "Gives a key other terms.")
        .refuses(CHANGE)
        .takes("KeyTerms", key_terms())
        .answers(200, "KeyRow")
}

pub(crate) fn delete_key() -> Operation {
    Operation::delete(KEY, "deleteKey", "Forgets a key, and refuses it.")
        .refuses(&[401, 404])
        .answers(200, "DeletedKey")
}

pub(crate) fn rotate_key() -> Operation {
    let summary = "Gives a key another secret; the old one may hold for a while.";
    Operation::post("/v1/admin/keys/{id}/rotate", "rotateKey", summary)
        .refuses(CHANGE)
        .may_take("KeyRotation", rotation())
        .answers(200, "KeyWithSecret")
}

pub(crate) fn revoke_key() -> Operation {
    let summary = "Refuses a key for good; it stays in lists.";
    Operation::post("/v1/admin/keys/{id}/revoke", "revokeKey", summary)
        .refuses(CHANGE)
        .answers(200, "KeyRow")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use mortise_identity::Terms;

    use super::*;
    use crate::contract::tests::known;
    use crate::keys::{KeyRequest, KeyTerms, Rotation};

    #[test]
    fn bodies_have_the_fields_that_are_read() {
        for (schema, known) in [
            (terms(), known::<Terms>()),
            (key_terms(), known::<KeyTerms>()),
            (key_request(), known::<KeyRequest>()),
            (rotation(), known::<Rotation>()),
        ] {
            let declared = schema["properties"].as_object().expect("fields").keys();
            assert_eq!(declared.cloned().collect::<BTreeSet<_>>(), known);
        }
    }
}
