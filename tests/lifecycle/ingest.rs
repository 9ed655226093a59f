//! Models that are uploaded on the native dialect's own route.

use serde_json::json;

use crate::library::{answers, library, tiny};
use crate::support::client::{Request, Response};
use crate::support::contract::Contract;
use crate::{KEY, Managed, code};

const INGEST: &str = "/api/v1/llm/models/ingest";

/// The form of the API's description, with this metadata.
fn form(model: &str, metadata: &str) -> Request {
    let mut body = format!(
        "--b\r\nContent-Disposition: form-data; name=\"model_id\"\r\n\r\n{model}\r\n\
         --b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{model}.gguf\"\r\n\
         Content-Type: application/octet-stream\r\n\r\n"
    )
    .into_bytes();
    body.extend(tiny());
    body.extend_from_slice(
        format!(
            "\r\n--b\r\nContent-Disposition: form-data; name=\"metadata\"\r\n\
             Content-Type: application/json\r\n\r\n{metadata}\r\n--b--\r\n"
        )
        .as_bytes(),
    );
    Request::raw(INGEST, &body).header("content-type", "multipart/form-data; boundary=b")
}

fn sent(managed: &Managed, request: Request) -> Response {
    let key = format!("Bearer {KEY}");
    managed.server.send(&request.header("authorization", &key))
}

#[test]
fn feature_e21_a_model_that_operators_upload_on_the_native_route_serves() {
    let folder = tempfile::tempdir().expect("a folder");
    let kept = library(folder.path(), "");
    let managed = Managed::start_with("llm_routes = true\n", &kept);
    let metadata = json!({"version": "v1.0", "description": "small", "replicate": false});
    let response = sent(&managed, form("llama-3-8b", &metadata.to_string()));
    assert_eq!(response.status(), 201, "{}", response.text());
    let contract = Contract::new(managed.server.get("/openapi.json").ok());
    contract.holds(contract.operation("llmIngestModel").2, &response);
    let row = response.json();
    for (name, expected) in [
        ("model_id", json!("llama-3-8b")),
        ("version", json!("v1.0")),
        ("urn", json!("urn:mortise:model:llama-3-8b:v1.0")),
        ("size_bytes", json!(tiny().len())),
        ("replication_status", json!("local")),
        ("total_shards", json!(1)),
    ] {
        assert_eq!(row[name], expected, "{name}");
    }
    let checksum = row["checksum"].as_str().expect("a digest");
    assert_eq!(checksum.len(), "sha256:".len() + 64);
    assert_eq!(answers(&managed, "llama-3-8b"), 200);
    // The admin side knows it, too.
    let known = managed.ask(Request::get("/v1/admin/library")).ok();
    assert_eq!(known["data"][0]["description"], "small");
    for (response, expected) in [
        (
            sent(&managed, form("llama-3-8b", "{}")),
            (409, "NAME_IN_USE"),
        ),
        (sent(&managed, form("b", "{")), (400, "INVALID_PARAMETERS")),
        (
            sent(&managed, form("b", "{\"replicate\": true}")),
            (400, "INVALID_PARAMETERS"),
        ),
        (managed.server.send(&form("b", "{}")), (401, "UNAUTHORIZED")),
        (
            sent(&managed, Request::post(INGEST, &json!({"model_id": "b"}))),
            (415, "INVALID_REQUEST"),
        ),
    ] {
        let (status, found) = code(&response);
        assert_eq!((status, &*found), expected, "{}", response.text());
    }
    assert_eq!(
        managed.ask(Request::get("/v1/admin/models/b")).status(),
        404
    );
}

#[test]
fn feature_e21_uploads_on_the_native_route_need_a_library_and_leave_to_have_it_there() {
    let told = |admin: &str| {
        let managed = Managed::start_with(admin, "");
        code(&sent(&managed, form("a", "{}")))
    };
    assert_eq!(told(""), (403, "ADMIN_ONLY".to_owned()));
    assert_eq!(told("llm_routes = true\n"), (403, "LIBRARY_OFF".to_owned()));
}
