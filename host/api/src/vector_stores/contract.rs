//! The dialect's operations: what its routes take and answer.

use mortise_http::contract::{CALLER, DialectContract, MODEL, Operation, STORE as OF_STORE};
use serde_json::json;

use super::{
    CONTENT, FILE, FILES, REEMBED, SEARCH, STORE, STORES, files, reembed as renewal, search, stores,
};
use crate::contract::paged;
use crate::openai_error::{ERROR, SHAPE};

const SHAPES: &str = include_str!("shapes.ts");

/// The contract of these operations.
pub(super) fn contract(operations: Vec<Operation>) -> DialectContract {
    DialectContract {
        tag: "Vector stores",
        about: "Collections of files in which callers search by meaning and by words.",
        shapes: &[SHAPE, SHAPES],
        problem: ERROR,
        asks: true,
        operations,
    }
}

fn stored(operation: Operation) -> Operation {
    operation.refuses(CALLER).refuses(OF_STORE)
}

pub(super) fn create() -> Operation {
    stored(Operation::post(
        STORES,
        "createVectorStore",
        "Makes a vector store.",
    ))
    .refuses(MODEL)
    .takes("CreateVectorStoreRequest", stores::create_fields().schema())
    .answers(200, "VectorStore")
}

pub(super) fn list() -> Operation {
    let operation = Operation::get(STORES, "listVectorStores", "Lists the vector stores.");
    stored(paged(operation)).answers(200, "VectorStores")
}

pub(super) fn get() -> Operation {
    stored(Operation::get(STORE, "getVectorStore", "A vector store.")).answers(200, "VectorStore")
}

pub(super) fn update() -> Operation {
    stored(Operation::post(
        STORE,
        "updateVectorStore",
        "Changes a vector store.",
    ))
    .takes("UpdateVectorStoreRequest", stores::update_fields().schema())
    .answers(200, "VectorStore")
}

pub(super) fn delete() -> Operation {
    let about = "Removes a vector store; its files stay.";
    stored(Operation::delete(STORE, "deleteVectorStore", about)).answers(200, "DeletedVectorStore")
}

pub(super) fn search() -> Operation {
    stored(Operation::post(
        SEARCH,
        "searchVectorStore",
        "Searches a vector store.",
    ))
    .refuses(MODEL)
    .takes("SearchVectorStoreRequest", search::fields().schema())
    .answers(200, "VectorStoreResults")
}

pub(super) fn reembed() -> Operation {
    let about = "Begins to make new vectors for all files of a vector store.";
    stored(Operation::post(REEMBED, "reembedVectorStore", about))
        .refuses(MODEL)
        .refuses(&[409])
        .takes("ReembedVectorStoreRequest", renewal::fields().schema())
        .answers(200, "Reembedding")
}

pub(super) fn get_reembedding() -> Operation {
    let about = "How far new vectors of a vector store are made.";
    let streamed = "Events until they are made, instead of one answer.";
    stored(Operation::get(REEMBED, "getReembedding", about))
        .query("stream", json!({"type": "boolean"}), streamed)
        .answers(200, "Reembedding")
        .streams("Reembedding")
}

pub(super) fn cancel_reembedding() -> Operation {
    let about = "Ends the making of new vectors; those that are there stay.";
    stored(Operation::delete(REEMBED, "cancelReembedding", about))
        .refuses(&[409])
        .answers(200, "Reembedding")
}

pub(super) fn attach() -> Operation {
    let about = "Attaches a file, and begins to ingest it.";
    stored(Operation::post(FILES, "createVectorStoreFile", about))
        .refuses(MODEL)
        .refuses(&[409])
        .takes("AttachFileRequest", files::attach_fields().schema())
        .answers(200, "VectorStoreFile")
}

pub(super) fn list_files() -> Operation {
    let operation = Operation::get(
        FILES,
        "listVectorStoreFiles",
        "Lists the files of a vector store.",
    );
    stored(paged(operation)).answers(200, "VectorStoreFiles")
}

pub(super) fn get_file() -> Operation {
    let about = "A file of a vector store, and how far it is ingested.";
    stored(Operation::get(FILE, "getVectorStoreFile", about)).answers(200, "VectorStoreFile")
}

pub(super) fn update_file() -> Operation {
    let about = "Changes the attributes of a file.";
    stored(Operation::post(FILE, "updateVectorStoreFile", about))
        .refuses(&[409])
        .takes(
            "UpdateVectorStoreFileRequest",
            files::attribute_fields().schema(),
        )
        .answers(200, "VectorStoreFile")
}

pub(super) fn detach() -> Operation {
    let about = "Takes a file out of a vector store; the file itself stays.";
    stored(Operation::delete(FILE, "deleteVectorStoreFile", about))
        .refuses(&[409])
        .answers(200, "DeletedVectorStoreFile")
}

pub(super) fn content() -> Operation {
    let about = "The chunks of a file.";
    stored(Operation::get(CONTENT, "getVectorStoreFileContent", about))
        .answers(200, "VectorStoreFileContent")
}
