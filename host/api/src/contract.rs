//! Parts of operations that dialects share.

use mortise_http::contract::{BODY, ONCE, Operation, STORE};
use serde_json::{Value, json};

use crate::limits::MAX_IDEMPOTENCY_KEY;
use crate::paging::MAX_ENTRIES;

/// Add the header `Idempotency-Key` and its refusals: a call may be sent again under a key and is done once.
pub(crate) fn once(operation: Operation) -> Operation {
    let schema = json!({"type": "string", "minLength": 1, "maxLength": MAX_IDEMPOTENCY_KEY});
    let about = "A key that stands for one request, which is done once.";
    let statuses = [ONCE, STORE, BODY].concat();
    operation
        .header("Idempotency-Key", schema, about)
        .refuses(&statuses)
}

/// Add the query parameters of a page of a list: `after`, `limit` and `order`.
pub(crate) fn paged(operation: Operation) -> Operation {
    ordered(newest_first(operation, MAX_ENTRIES))
}

/// Add the query parameters of a page of a list, with a `limit` of at most `most`.
pub(crate) fn paged_within(operation: Operation, most: usize) -> Operation {
    ordered(newest_first(operation, most))
}

fn ordered(operation: Operation) -> Operation {
    let order = json!({"enum": ["asc", "desc"]});
    operation.query("order", order, "By the time of their making.")
}

/// Add the query parameters of a page of a list in one order: `after`, and `limit` of at most `most`.
pub(crate) fn newest_first(operation: Operation, most: usize) -> Operation {
    let limit = json!({"type": "integer", "minimum": 0, "maximum": most});
    let after = "Id of the entry before the page.";
    operation
        .query("after", json!({"type": "string"}), after)
        .query("limit", limit, "Most entries of the page.")
}

/// The schema of `metadata`.
pub(crate) fn metadata() -> Value {
    json!({"type": ["object", "null"], "additionalProperties": {"type": "string"}})
}

/// An object with these members and no others.
pub(crate) fn members(properties: Value, required: &[&str]) -> Value {
    let mut schema =
        json!({"type": "object", "properties": properties, "additionalProperties": false});
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}
