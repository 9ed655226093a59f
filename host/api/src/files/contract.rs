//! The dialect's operations: what its routes take and answer.

use mortise_http::contract::{CALLER, DialectContract, Operation, STORE};
use serde_json::json;

use super::{CONTENT, FILE, FILES, PURPOSES};
use crate::contract::{members, paged_within};
use crate::limits::MAX_FILES_LISTED;
use crate::openai_error::{ERROR, SHAPE};

const SHAPES: &str = include_str!("shapes.ts");

/// The contract of these operations.
pub(super) fn contract(operations: Vec<Operation>) -> DialectContract {
    DialectContract {
        tag: "Files",
        about: "Files that callers upload, and those that batches write.",
        shapes: &[SHAPE, SHAPES],
        problem: ERROR,
        asks: true,
        operations,
    }
}

fn stored(operation: Operation) -> Operation {
    operation.refuses(CALLER).refuses(STORE)
}

pub(super) fn create() -> Operation {
    let text = || json!({"type": "string"});
    let fields = json!({
        "file": {"type": "string", "format": "binary"},
        "purpose": {"enum": PURPOSES},
        "expires_after[anchor]": {"const": "created_at"},
        "expires_after[seconds]": text(),
    });
    let operation = Operation::post(FILES, "createFile", "Uploads a file.");
    stored(operation)
        .takes_form("CreateFileRequest", members(fields, &["file", "purpose"]))
        .answers(200, "File")
}

pub(super) fn list() -> Operation {
    let operation = paged_within(
        Operation::get(FILES, "listFiles", "Lists the files."),
        MAX_FILES_LISTED,
    );
    stored(operation)
        .query(
            "purpose",
            json!({"type": "string"}),
            "Only files of this purpose.",
        )
        .answers(200, "Files")
}

pub(super) fn get() -> Operation {
    stored(Operation::get(FILE, "getFile", "A file.")).answers(200, "File")
}

pub(super) fn delete() -> Operation {
    let operation = Operation::delete(FILE, "deleteFile", "Removes a file.");
    stored(operation)
        .refuses(&[409])
        .answers(200, "DeletedFile")
}

pub(super) fn content() -> Operation {
    let operation = Operation::get(CONTENT, "getFileContent", "The bytes of a file.");
    stored(operation).writes("application/octet-stream")
}
