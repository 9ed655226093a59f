//! Operations of models that come and go while the server runs.

use mortise_http::contract::Operation;
use serde_json::{Value, json};

/// Statuses of refusals of the library.
const TRANSFER: &[u16] = &[401, 403, 404, 409, 429, 507];

fn get(path: &'static str, id: &'static str, summary: &'static str) -> Operation {
    Operation::get(path, id, summary).refuses(&[401, 403])
}

fn object(properties: Value, required: &[&str]) -> Value {
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

pub(crate) fn list_library() -> Operation {
    let summary = "Lists the models that were pulled or uploaded.";
    get("/v1/admin/library", "listLibrary", summary).answers(200, "LibraryRows")
}

pub(crate) fn remove_model() -> Operation {
    let summary = "Removes a model that was pulled or uploaded and is not loaded, with its files.";
    Operation::delete("/v1/admin/models/{name}", "removeModel", summary)
        .refuses(TRANSFER)
        .refuses(&[502])
        .answers(200, "RemovedModel")
}

const PULLS: &str = "/v1/admin/pulls";
const PULL: &str = "/v1/admin/pulls/{id}";

pub(crate) fn pull_model() -> Operation {
    let body = object(json!({"model": {"type": "string"}}), &["model"]);
    let summary = "Begins to pull a model from the hub, or joins the pull that is under way.";
    Operation::post(PULLS, "pullModel", summary)
        .refuses(TRANSFER)
        .refuses(&[422])
        .takes("PullRequest", body)
        .answers(202, "PullRow")
}

pub(crate) fn list_pulls() -> Operation {
    let summary = "Lists the pulls that are under way, and the last that have ended.";
    get(PULLS, "listPulls", summary).answers(200, "PullRows")
}

pub(crate) fn get_pull() -> Operation {
    get(PULL, "getPull", "A pull.")
        .refuses(&[404])
        .answers(200, "PullRow")
}

pub(crate) fn cancel_pull() -> Operation {
    let summary = "Cancels a pull; what has come stays for the next one.";
    Operation::delete(PULL, "cancelPull", summary)
        .refuses(&[401, 403, 404])
        .answers(200, "PullRow")
}

pub(crate) fn ingest() -> Operation {
    let text = || json!({"type": "string"});
    let file = json!({"type": "string", "format": "binary"});
    let fields = json!({
        "model_id": text(),
        "file": file,
        "sha256": text(),
        "version": text(),
        "description": text(),
        "metadata": text(),
    });
    let summary = "Takes a model that comes as a form: a GGUF file, or the files of a folder.";
    Operation::post("/v1/admin/models/ingest", "ingestModel", summary)
        .refuses(TRANSFER)
        .takes_form("IngestRequest", object(fields, &["model_id", "file"]))
        .answers(201, "UploadedModel")
}

const UPLOADS: &str = "/v1/admin/uploads";
const UPLOAD: &str = "/v1/admin/uploads/{id}";

pub(crate) fn order() -> Value {
    let text = || json!({"type": "string"});
    let may = || json!({"type": ["string", "null"]});
    let file = json!({"name": text(), "size_bytes": {"type": "integer", "minimum": 1}});
    let fields = json!({
        "model_id": text(),
        "file_name": may(),
        "files": {"type": "array", "items": object(file, &["name", "size_bytes"])},
        "size_bytes": {"type": "integer", "minimum": 1},
        "sha256": may(),
        "version": may(),
        "description": may(),
    });
    object(fields, &["model_id", "size_bytes"])
}

pub(crate) fn begin_upload() -> Operation {
    let summary = "Begins an upload of a GGUF file, or of the files of a folder, in chunks.";
    Operation::post(UPLOADS, "beginUpload", summary)
        .refuses(TRANSFER)
        .refuses(&[422])
        .takes("UploadRequest", order())
        .answers(201, "UploadRow")
}

pub(crate) fn list_uploads() -> Operation {
    let summary = "Lists the uploads in chunks that are not complete.";
    get(UPLOADS, "listUploads", summary).answers(200, "UploadRows")
}

pub(crate) fn get_upload() -> Operation {
    get(
        UPLOAD,
        "getUpload",
        "An upload, with the byte where it stands.",
    )
    .refuses(&[404])
    .answers(200, "UploadRow")
}

pub(crate) fn append_chunk() -> Operation {
    let about = "Place of the chunk: bytes FIRST-LAST/SIZE.";
    let summary = "Writes a chunk where the last one ended; the last of all makes the model.";
    Operation::put(UPLOAD, "appendChunk", summary)
        .header("Content-Range", json!({"type": "string"}), about)
        .refuses(TRANSFER)
        .refuses(&[416])
        .takes_bytes("UploadChunk")
        .answers(201, "UploadedModel")
        .answers(202, "UploadRow")
}

pub(crate) fn cancel_upload() -> Operation {
    let summary = "Cancels an upload, and removes what has come.";
    Operation::delete(UPLOAD, "cancelUpload", summary)
        .refuses(&[401, 403, 404, 409])
        .answers(200, "CancelledUpload")
}
