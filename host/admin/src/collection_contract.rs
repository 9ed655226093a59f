//! Operations on collections of documents.

use mortise_http::contract::Operation;
use serde_json::{Value, json};

const COLLECTIONS: &str = "/v1/admin/collections";
const COLLECTION: &str = "/v1/admin/collections/{owner}/{id}";
const SEARCH: &str = "/v1/admin/collections/{owner}/{id}/search";
const FILES: &str = "/v1/admin/collections/{owner}/{id}/files";
const FILE: &str = "/v1/admin/collections/{owner}/{id}/files/{file}";
const REEMBED: &str = "/v1/admin/collections/{owner}/{id}/reembed";

/// Statuses of refusals of the routes of callers.
const ASKED: &[u16] = &[401, 403, 404, 409];
/// Statuses of refusals of routes that ask a model, or store something.
const WORK: &[u16] = &[413, 422, 429, 502];

fn object(properties: Value, required: &[&str]) -> Value {
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

fn creation() -> Value {
    let text = || json!({"type": ["string", "null"]});
    let fields = json!({
        "tenant": text(),
        "caller": text(),
        "name": text(),
        "description": text(),
        "embedding_model": text(),
        "retriever": text(),
        "metadata": {"type": ["object", "null"]},
    });
    object(fields, &[])
}

fn query() -> Value {
    let fields = json!({
        "query": {"type": "string"},
        "max_num_results": {"type": ["integer", "null"], "minimum": 1},
    });
    object(fields, &["query"])
}

fn vectors() -> Value {
    object(
        json!({"embedding_model": {"type": ["string", "null"]}}),
        &[],
    )
}

pub(crate) fn list() -> Operation {
    let summary = "Lists the collections of documents of all callers.";
    Operation::get(COLLECTIONS, "listCollections", summary)
        .refuses(&[401])
        .answers(200, "CollectionRows")
}

pub(crate) fn create() -> Operation {
    let summary = "Makes a collection for a tenant, or for a caller without one.";
    Operation::post(COLLECTIONS, "createCollection", summary)
        .refuses(ASKED)
        .refuses(WORK)
        .takes("CollectionRequest", creation())
        .answers(201, "CollectionRow")
}

pub(crate) fn get() -> Operation {
    Operation::get(COLLECTION, "getCollection", "A collection.")
        .refuses(ASKED)
        .answers(200, "CollectionRow")
}

pub(crate) fn delete() -> Operation {
    let summary = "Removes a collection; its files stay with their owner.";
    Operation::delete(COLLECTION, "deleteCollection", summary)
        .refuses(ASKED)
        .answers(200, "DeletedCollection")
}

pub(crate) fn search() -> Operation {
    let summary = "Searches a collection, as its owner would.";
    Operation::post(SEARCH, "searchCollection", summary)
        .refuses(ASKED)
        .refuses(WORK)
        .takes("CollectionSearch", query())
        .answers(200, "CollectionResults")
}

pub(crate) fn list_files() -> Operation {
    let text = || json!({"type": "string"});
    let limit = json!({"type": "integer", "minimum": 1, "maximum": 100});
    let summary = "Lists the files of a collection, and how far each is ingested.";
    Operation::get(FILES, "listCollectionFiles", summary)
        .query(
            "after",
            text(),
            "Id of the file behind which the page begins.",
        )
        .query("limit", limit, "Files at most.")
        .query(
            "order",
            text(),
            "`asc` or `desc`, by the time at which they were attached.",
        )
        .refuses(ASKED)
        .answers(200, "CollectionFiles")
}

pub(crate) fn add_file() -> Operation {
    let summary = "Stores a document as a file of the owner, attaches it, and begins to ingest it.";
    Operation::post(FILES, "addCollectionFile", summary)
        .query(
            "name",
            json!({"type": "string"}),
            "Name of the document; required.",
        )
        .refuses(ASKED)
        .refuses(WORK)
        .takes_bytes("CollectionDocument")
        .answers(202, "CollectionFile")
}

pub(crate) fn detach() -> Operation {
    let summary = "Takes a file out of a collection; the file itself stays with its owner.";
    Operation::delete(FILE, "removeCollectionFile", summary)
        .refuses(ASKED)
        .answers(200, "RemovedCollectionFile")
}

pub(crate) fn reembed() -> Operation {
    let summary = "Begins to make new vectors for all files of a collection.";
    Operation::post(REEMBED, "reembedCollection", summary)
        .refuses(ASKED)
        .refuses(WORK)
        .may_take("NewVectors", vectors())
        .answers(200, "CollectionVectors")
}

pub(crate) fn keep_vectors() -> Operation {
    let summary = "Ends the making of new vectors; those in use stay.";
    Operation::delete(REEMBED, "keepCollectionVectors", summary)
        .refuses(ASKED)
        .answers(200, "CollectionVectors")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::collections::{CollectionRequest, CollectionSearch, NewVectors};
    use crate::contract::tests::known;

    #[test]
    fn bodies_have_the_fields_that_are_read() {
        for (schema, known) in [
            (creation(), known::<CollectionRequest>()),
            (query(), known::<CollectionSearch>()),
            (vectors(), known::<NewVectors>()),
        ] {
            let declared = schema["properties"].as_object().expect("fields").keys();
            assert_eq!(declared.cloned().collect::<BTreeSet<_>>(), known);
        }
    }
}
