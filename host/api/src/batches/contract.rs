//! The dialect's operations: what its routes take and answer.

use mortise_http::contract::{CALLER, DialectContract, Operation, STORE};
use serde_json::{Value, json};

use super::{BATCH, BATCHES, CANCEL, create};
use crate::contract::{metadata, newest_first, once};
use crate::openai_error::{ERROR, SHAPE};
use crate::paging::MAX_ENTRIES;
use crate::unsupported::Unsupported;

const SHAPES: &str = include_str!("shapes.ts");

/// The contract of these operations.
pub(super) fn contract(operations: Vec<Operation>) -> DialectContract {
    DialectContract {
        tag: "Batches",
        about: "Files of requests, which are answered behind all others.",
        shapes: &[SHAPE, SHAPES],
        problem: ERROR,
        asks: true,
        operations,
    }
}

fn stored(operation: Operation) -> Operation {
    operation.refuses(CALLER).refuses(STORE)
}

/// The body of a new batch.
fn asked(mode: Unsupported) -> Value {
    let mut schema = create::fields(mode).schema();
    schema["properties"]["metadata"] = metadata();
    schema["properties"]["output_expires_after"] = json!({
        "type": ["object", "null"],
        "properties": {"anchor": {"const": "created_at"}, "seconds": {"type": "integer"}},
        "required": ["anchor", "seconds"],
        "additionalProperties": false,
    });
    schema
}

pub(super) fn create(mode: Unsupported) -> Operation {
    let operation = Operation::post(BATCHES, "createBatch", "Begins a batch.");
    stored(once(operation))
        .takes("CreateBatchRequest", asked(mode))
        .answers(200, "Batch")
}

pub(super) fn list() -> Operation {
    let operation = Operation::get(BATCHES, "listBatches", "Lists the batches.");
    stored(newest_first(operation, MAX_ENTRIES)).answers(200, "Batches")
}

pub(super) fn get() -> Operation {
    stored(Operation::get(BATCH, "getBatch", "A batch.")).answers(200, "Batch")
}

pub(super) fn cancel() -> Operation {
    let operation = Operation::post(CANCEL, "cancelBatch", "Cancels a batch.");
    stored(once(operation)).answers(200, "Batch")
}
