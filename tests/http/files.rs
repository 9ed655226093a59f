//! Files: uploaded, listed, read, deleted, by their owners only; and uploads that are no good.

use std::io::Write as _;
use std::net::TcpStream;
use std::path::Path;

use serde_json::{Value, json};

use crate::killed::mortise;
use crate::support::client::{Request, Response};
use crate::support::{Server, wait_for};

pub(crate) const FILES: &str = "/v1/files";
const BOUNDARY: &str = "a-boundary";

/// A form of fields and a file.
pub(crate) fn form(fields: &[(&str, &str)], file: Option<(&str, &[u8])>) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, value) in fields {
        let part = format!(
            "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n"
        );
        body.extend(part.as_bytes());
    }
    if let Some((name, content)) = file {
        let head = format!(
            "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\
             Content-Type: application/octet-stream\r\n\r\n"
        );
        body.extend([head.as_bytes(), content, b"\r\n"].concat());
    }
    body.extend(format!("--{BOUNDARY}--\r\n").as_bytes());
    body
}

/// A request that uploads a form.
pub(crate) fn upload(body: &[u8]) -> Request {
    let kind = format!("multipart/form-data; boundary={BOUNDARY}");
    Request::raw(FILES, body).header("content-type", &kind)
}

/// Id of a file that is uploaded for a batch.
pub(crate) fn uploaded(server: &Server, content: &str) -> String {
    let body = form(
        &[("purpose", "batch")],
        Some(("in.jsonl", content.as_bytes())),
    );
    let file = server.send(&upload(&body)).ok();
    file["id"].as_str().expect("an id").to_owned()
}

pub(crate) fn content(server: &Server, file: &Value) -> String {
    let id = file.as_str().expect("an id");
    let answer = server.get(&format!("{FILES}/{id}/content"));
    assert_eq!(answer.status(), 200, "{}", answer.text());
    answer.text()
}

fn error(answer: &Response) -> (u16, String, Value) {
    let error = &answer.json()["error"];
    let code = error["code"].as_str().expect("a code").to_owned();
    (answer.status(), code, error["param"].clone())
}

/// Files that the store has, whole or not.
fn stored(path: &Path) -> Value {
    let report = mortise(&["store", "check", "--store", path.to_str().expect("UTF-8")]);
    let report: Value = serde_json::from_str(&report).expect("JSON");
    report["records"]["file"].clone()
}

fn with_store(path: &Path, more: &str) -> Server {
    Server::scripted(
        "default = \"Hi\"",
        &format!("[store]\npath = {path:?}\n{more}"),
    )
}

#[test]
fn feature_e28_files_are_uploaded_listed_read_and_deleted() {
    let folder = tempfile::tempdir().expect("make a folder");
    let path = folder.path().join("state.db");
    let server = with_store(&path, "");
    // Pieces of every kind: whole ones, and a last one that is not.
    let large: Vec<u8> = (0..700_001_u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let fields = [
        ("purpose", "assistants"),
        ("expires_after[anchor]", "created_at"),
        ("expires_after[seconds]", "3600"),
    ];
    let one = server
        .send(&upload(&form(&fields, Some(("ä b.bin", &large)))))
        .ok();
    assert_eq!(
        (
            &one["object"],
            &one["bytes"],
            &one["filename"],
            &one["purpose"],
            &one["status"]
        ),
        (
            &json!("file"),
            &json!(700_001),
            &json!("ä b.bin"),
            &json!("assistants"),
            &json!("processed")
        )
    );
    let (created, expires) = (one["created_at"].as_i64(), one["expires_at"].as_i64());
    assert_eq!(created.map(|created| created + 3600), expires);
    let empty = server
        .send(&upload(&form(&[("purpose", "batch")], Some(("e", b"")))))
        .ok();
    assert_eq!(empty["bytes"], 0);
    let of = |file: &Value| format!("{FILES}/{}", file["id"].as_str().expect("an id"));
    let ids = |query: &str| {
        let listed = server.get(&format!("{FILES}{query}")).ok();
        let ids = listed["data"].as_array().expect("a list").iter();
        (
            ids.map(|file| file["id"].clone()).collect::<Vec<_>>(),
            listed["has_more"] == true,
        )
    };
    assert_eq!(
        ids(""),
        (vec![empty["id"].clone(), one["id"].clone()], false)
    );
    assert_eq!(ids("?order=asc&limit=1"), (vec![one["id"].clone()], true));
    let after = format!("?after={}", empty["id"].as_str().expect("an id"));
    assert_eq!(ids(&after), (vec![one["id"].clone()], false));
    assert_eq!(ids("?purpose=batch"), (vec![empty["id"].clone()], false));
    let (read, meta) = (format!("{}/content", of(&one)), server.get(&of(&one)).ok());
    assert_eq!(meta, one);
    drop(server);

    // All of it outlives the process.
    let server = with_store(&path, "");
    let answer = server.get(&read);
    assert_eq!((answer.status(), answer.body == large), (200, true));
    assert_eq!(
        answer.header("content-type"),
        Some("application/octet-stream")
    );
    let disposition = answer.header("content-disposition").expect("a header");
    assert_eq!(disposition, "attachment; filename*=UTF-8''%C3%A4%20b%2Ebin");
    assert_eq!(server.get(&format!("{}/content", of(&empty))).text(), "");
    let deleted = server.send(&Request::get(&of(&one)).method("DELETE")).ok();
    assert_eq!(
        deleted,
        json!({"id": one["id"], "object": "file", "deleted": true})
    );
    for path in [of(&one), read] {
        let expected = (404, "not_found".to_owned(), json!("file_id"));
        assert_eq!(error(&server.get(&path)), expected);
    }
    // Who has read all of it is not logged as gone.
    server.wait_for_log(|line| line.contains("DELETE"));
    let log = server.log();
    assert!(
        !log.iter().any(|line| line.contains("cancelled")),
        "{log:#?}"
    );
    assert_eq!(stored(&path), 1);
}

#[test]
fn feature_e28_uploads_that_are_no_good_leave_nothing() {
    let folder = tempfile::tempdir().expect("make a folder");
    let path = folder.path().join("state.db");
    let server = with_store(&path, "max_file_mib = 1\n");
    let file: Option<(&str, &[u8])> = Some(("a", b"x"));
    let batch = [("purpose", "batch")];
    let refused = |request: &Request, status: u16, code: &str, param: Value| {
        let answer = server.send(request);
        assert_eq!(
            error(&answer),
            (status, code.to_owned(), param),
            "{}",
            answer.text()
        );
    };
    let whole = form(&batch, file);
    refused(
        &upload(&whole[..whole.len() - 6]),
        400,
        "malformed_multipart",
        Value::Null,
    );
    refused(
        &upload(b"no form at all"),
        400,
        "malformed_multipart",
        Value::Null,
    );
    let json = Request::post(FILES, &json!({"purpose": "batch"}));
    refused(&json, 415, "unsupported_content_type", Value::Null);
    let missing = "missing_required_parameter";
    refused(&upload(&form(&batch, None)), 400, missing, json!("file"));
    refused(&upload(&form(&[], file)), 400, missing, json!("purpose"));
    for (fields, param) in [
        (vec![("purpose", "fun")], "purpose"),
        (vec![("purpose", "batch"), ("purpose", "batch")], "purpose"),
        (vec![("purpose", "batch"), ("colour", "red")], "colour"),
        (vec![("purpose", "batch"), ("file", "x")], "file"),
        (
            vec![("purpose", "batch"), ("expires_after[seconds]", "3600")],
            "expires_after",
        ),
    ] {
        refused(
            &upload(&form(&fields, file)),
            400,
            "invalid_value",
            json!(param),
        );
    }
    let long = "n".repeat(256);
    let named = form(&batch, Some((&long, b"x")));
    refused(&upload(&named), 400, "invalid_value", json!("file"));
    let keyed = upload(&whole).header("idempotency-key", "k");
    refused(
        &keyed,
        400,
        "unsupported_parameter",
        json!("Idempotency-Key"),
    );
    let large = vec![b'x'; (1 << 20) + 1];
    let large = upload(&form(&batch, Some(("a", &large))));
    refused(&large, 413, "file_too_large", json!("file"));
    let larger = upload(b"").header("content-length", "2000000");
    assert_eq!(server.send(&larger).status(), 413);
    assert_eq!(stored(&path), Value::Null);

    // A client that goes away, and a server that is killed, in the middle of an upload.
    let begin = || {
        let mut stream = TcpStream::connect(server.address()).expect("connect");
        let head = format!(
            "POST {FILES} HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\
             content-type: multipart/form-data; boundary={BOUNDARY}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).expect("write");
        let part = &form(&batch, Some(("a", &vec![b'x'; 600_000])))[..500_000];
        let chunk = [format!("{:x}\r\n", part.len()).as_bytes(), part, b"\r\n"].concat();
        stream.write_all(&chunk).expect("write");
        wait_for(|| match stored(&path) == 1 {
            true => Ok(()),
            false => Err("nothing of the upload is stored".to_owned()),
        });
        // What is not whole is not found.
        assert_eq!(server.get(FILES).ok()["data"], json!([]));
        stream
    };
    let gone = || {
        wait_for(|| match stored(&path) {
            Value::Null => Ok(()),
            files => Err(format!("{files} files are stored")),
        });
    };
    drop(begin());
    gone();
    let _open = begin();
    server.signal("KILL");
    drop(server);
    let _server = with_store(&path, "max_file_mib = 1\n");
    gone();
}

#[test]
fn feature_e28_files_belong_to_their_owner_and_its_quota() {
    let folder = tempfile::tempdir().expect("make a folder");
    let path = folder.path().join("state.db");
    let keys = "tenant_max_mib = 1\n[[auth.api_keys]]\nid = \"alice\"\nkey = \"alices-key\"\n\
                tenant = \"a\"\n[[auth.api_keys]]\nid = \"bob\"\nkey = \"bobs-key\"\n";
    let server = with_store(&path, keys);
    let by = |key: &str, request: Request| {
        server.send(&request.header("authorization", &format!("Bearer {key}")))
    };
    let half = vec![b'x'; 600_000];
    let half = upload(&form(&[("purpose", "batch")], Some(("a", &half))));
    assert_eq!(server.send(&half).status(), 401);
    let file = by("alices-key", half.clone()).ok();
    let refused = by("alices-key", half.clone());
    assert_eq!(
        error(&refused),
        (403, "store_quota_exceeded".to_owned(), Value::Null)
    );
    by("bobs-key", half).ok();
    let id = file["id"].as_str().expect("an id");
    for (method, path) in [
        ("GET", format!("{FILES}/{id}")),
        ("GET", format!("{FILES}/{id}/content")),
        ("DELETE", format!("{FILES}/{id}")),
    ] {
        let answer = by("bobs-key", Request::get(&path).method(method));
        assert_eq!(answer.status(), 404, "{method} {path}");
    }
    let input =
        json!({"input_file_id": id, "endpoint": "/v1/embeddings", "completion_window": "24h"});
    let foreign = by("bobs-key", Request::post("/v1/batches", &input));
    assert_eq!(
        error(&foreign),
        (404, "not_found".to_owned(), json!("input_file_id"))
    );
    let listed = by("bobs-key", Request::get(FILES)).ok();
    assert_eq!(listed["data"].as_array().map(Vec::len), Some(1));
    by(
        "alices-key",
        Request::get(&format!("{FILES}/{id}")).method("DELETE"),
    )
    .ok();
    // What was refused is gone, and so has left room.
    let half = vec![b'x'; 600_000];
    let again = upload(&form(&[("purpose", "batch")], Some(("a", &half))));
    by("alices-key", again).ok();
}

/// A body whose length is known is complete with its last byte, not with a poll past it.
#[test]
fn a_file_that_was_read_to_its_end_is_not_logged_as_cancelled() {
    let server = Server::start(&[]);
    let id = uploaded(&server, "{}\n");
    let trace = format!("{FILES}/{id}/content");
    let request = Request::get(&trace).header("x-request-id", "read-to-its-end");
    assert_eq!(server.send(&request).text(), "{}\n");
    let line = server.wait_for_log(|line| line.contains("read-to-its-end"));
    assert!(
        line.contains("status=200") && !line.contains("cancelled"),
        "{line}"
    );
}
