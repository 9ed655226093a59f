//! Models that are uploaded while the server runs: as a form, and in chunks.

use std::fs;
use std::io::Write as _;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::library::{answers, command, library, tiny};
use crate::support::client::{Request, Response};
use crate::support::{example, wait_for};
use crate::{KEY, Managed, code, scripted};

const INGEST: &str = "/v1/admin/models/ingest";
const UPLOADS: &str = "/v1/admin/uploads";

/// Name and value of a field.
type Field<'a> = (&'a str, &'a str);
/// Name and bytes of a file.
type File<'a> = (&'a str, &'a [u8]);

/// The digest as coreutils have it.
fn sha256(bytes: &[u8]) -> String {
    let mut child = Command::new("sha256sum")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("run sha256sum");
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all(bytes).expect("write");
    drop(input);
    let output = child.wait_with_output().expect("an end").stdout;
    String::from_utf8_lossy(&output[..64]).into_owned()
}

/// A form: fields, and files with their names.
fn form(fields: &[(&str, &str)], files: &[(&str, &[u8])]) -> Request {
    let mut body = Vec::new();
    for (name, value) in fields {
        let head = format!("--x\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n");
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(value.as_bytes());
        body.extend_from_slice(b"\r\n");
    }
    for (name, bytes) in files {
        let head = format!(
            "--x\r\ncontent-disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\r\n"
        );
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(bytes);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"--x--\r\n");
    Request::raw(INGEST, &body).header("content-type", "multipart/form-data; boundary=x")
}

fn begin(managed: &Managed, order: &Value) -> Response {
    managed.ask(Request::post(UPLOADS, order))
}

/// The path of an upload that begins.
fn upload(managed: &Managed, name: &str, size: usize) -> String {
    let response = begin(managed, &json!({"model_id": name, "size_bytes": size}));
    assert_eq!(response.status(), 201, "{}", response.text());
    format!(
        "{UPLOADS}/{}",
        response.json()["id"].as_str().expect("an id")
    )
}

fn chunk(managed: &Managed, path: &str, first: usize, bytes: &[u8], total: usize) -> Response {
    let range = format!("bytes {first}-{}/{total}", first + bytes.len() - 1);
    let request = Request::raw(path, bytes).method("PUT");
    managed.ask(request.header("content-range", &range))
}

/// Check that the folder keeps no file of a refused upload.
fn assert_empty(folder: &Path) {
    for part in ["entries", "files", "incoming"] {
        let count = fs::read_dir(folder.join(part)).map_or(0, Iterator::count);
        assert_eq!(count, 0, "{part}");
    }
}

#[test]
fn feature_l10_a_model_that_is_uploaded_as_a_form_serves() {
    let folder = tempfile::tempdir().expect("a folder");
    let managed = Managed::start(&library(folder.path(), ""));
    let (bytes, name) = (tiny(), "lab/tiny");
    let digest = sha256(&bytes);
    let fields = [
        ("model_id", name),
        ("sha256", &digest),
        ("version", "3"),
        ("description", "small"),
    ];
    let response = managed.ask(form(&fields, &[("tiny.gguf", &bytes)]));
    assert_eq!(response.status(), 201, "{}", response.text());
    let row = response.json();
    assert_eq!(row["checksum"], format!("sha256:{digest}"));
    assert_eq!(row["size_bytes"], bytes.len());
    assert_eq!(row["urn"], "urn:mortise:model:lab/tiny");
    assert_eq!(
        (&row["version"], &row["replication_status"]),
        (&json!("3"), &json!("local"))
    );
    assert_eq!(answers(&managed, name), 200);
    let again = managed.ask(form(&fields, &[("tiny.gguf", &bytes)]));
    assert_eq!(code(&again), (409, "name_in_use".to_owned()));
    managed.act("lab%2Ftiny", "unload", "").ok();
    assert!(command(&managed, &["rm", name]).status.success());
    assert_empty(folder.path());

    // The files of a folder, whose digest is that of the list that sha256sum writes.
    let model = example::root().join("examples/demo-model/model");
    let mut names: Vec<String> = fs::read_dir(&model)
        .expect("a model")
        .flatten()
        .map(|entry| entry.file_name().into_string().expect("UTF-8"))
        .filter(|name| name.ends_with(".json") || name.ends_with(".safetensors"))
        .collect();
    names.sort();
    let files: Vec<(String, Vec<u8>)> = names
        .into_iter()
        .map(|name| (name.clone(), fs::read(model.join(name)).expect("a file")))
        .collect();
    let list: String = files
        .iter()
        .map(|(name, bytes)| format!("{}  {name}\n", sha256(bytes)))
        .collect();
    let parts: Vec<(&str, &[u8])> = files
        .iter()
        .map(|(name, bytes)| (name.as_str(), &bytes[..]))
        .collect();
    let fields = [("model_id", "folder"), ("sha256", &sha256(list.as_bytes()))];
    let response = managed.ask(form(&fields, &parts));
    assert_eq!(response.status(), 201, "{}", response.text());
    managed.act("folder", "load", "").ok();
}

#[test]
fn feature_l10_chunks_go_on_after_a_cut_and_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = library(folder.path(), "");
    let managed = Managed::start(&config);
    let bytes = tiny();
    let total = bytes.len();
    let order = json!({"model_id": "t", "size_bytes": total, "sha256": sha256(&bytes)});
    let begun = begin(&managed, &order).json();
    assert_eq!(begun["offset"], 0);
    let path = format!("{UPLOADS}/{}", begun["id"].as_str().expect("an id"));
    let first = chunk(&managed, &path, 0, &bytes[..1000], total);
    assert_eq!(
        (first.status(), &first.json()["offset"]),
        (202, &json!(1000))
    );
    for (at, status) in [(0, 416), (999, 416), (1001, 416)] {
        let wrong = chunk(&managed, &path, at, &bytes[at..at + 10], total);
        assert_eq!(code(&wrong), (status, "wrong_offset".to_owned()));
        assert_eq!(wrong.header("upload-offset"), Some("1000"));
    }
    // A connection that is cut in the middle of a chunk: what came stays.
    let mut cut = TcpStream::connect(&managed.admin).expect("connect");
    let head = format!(
        "PUT {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\ncontent-length: 5000\r\n\
         content-range: bytes 1000-5999/{total}\r\n\r\n"
    );
    cut.write_all(
        head.replace("host: x", &format!("host: {}", managed.admin))
            .as_bytes(),
    )
    .expect("write");
    cut.write_all(&bytes[1000..3000]).expect("write");
    let offset = || managed.ask(Request::get(&path)).ok()["offset"].as_u64();
    wait_for(|| {
        (offset() == Some(3000))
            .then_some(())
            .ok_or_else(|| format!("{:?}", offset()))
    });
    let busy = chunk(&managed, &path, 3000, &bytes[3000..3010], total);
    assert_eq!(code(&busy), (409, "upload_busy".to_owned()));
    drop(cut);
    wait_for(|| {
        let response = chunk(&managed, &path, 3000, &bytes[3000..4000], total);
        (response.status() == 202)
            .then_some(())
            .ok_or_else(|| response.text())
    });
    managed.server.signal("KILL");
    drop(managed);

    let managed = Managed::start(&config);
    assert_eq!(managed.ask(Request::get(&path)).ok()["offset"], 4000);
    let last = chunk(&managed, &path, 4000, &bytes[4000..], total);
    assert_eq!(last.status(), 201, "{}", last.text());
    assert_eq!(answers(&managed, "t"), 200);
    assert_eq!(managed.ask(Request::get(UPLOADS)).ok()["data"], json!([]));
    let source = example::root().join("tests/gguf/data/tiny-chat.gguf");
    let done = command(
        &managed,
        &[
            "upload",
            source.to_str().expect("UTF-8"),
            "--name",
            "by-command",
        ],
    );
    assert!(done.status.success(), "{done:?}");
    assert_eq!(answers(&managed, "by-command"), 200);
}

#[test]
fn feature_l10_forms_that_are_no_model_leave_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let says = scripted("taken", "default = \"x\"", "");
    let managed =
        Managed::start(&(library(folder.path(), "max_mib = 2\nmax_file_mib = 1") + &says));
    let bytes = tiny();
    let ask =
        |fields: &[(&str, &str)], files: &[(&str, &[u8])]| code(&managed.ask(form(fields, files)));
    let tiny: (&str, &[u8]) = ("tiny.gguf", &bytes);
    let id = ("model_id", "a");
    let cases: [(&[Field], &[File], u16, &str); 18] = [
        (&[], &[tiny], 400, "missing_required_parameter"),
        (&[id], &[], 400, "missing_required_parameter"),
        (&[("model_id", "../a")], &[tiny], 400, "invalid_value"),
        (&[("model_id", "taken")], &[tiny], 409, "name_in_use"),
        (&[id], &[("../../etc/x.gguf", &bytes)], 400, "invalid_value"),
        (&[id], &[("a/b.json", &bytes)], 400, "invalid_value"),
        (&[id], &[("run.py", &bytes)], 400, "invalid_value"),
        (&[id], &[tiny, tiny], 400, "invalid_value"),
        (&[id], &[("tiny.gguf", b"GGML....")], 400, "no_model"),
        (&[id], &[("config.json", b"{}")], 400, "no_model"),
        (&[id, ("sha256", "00")], &[tiny], 400, "invalid_value"),
        (
            &[id, ("sha256", &"0".repeat(64))],
            &[tiny],
            400,
            "checksum_mismatch",
        ),
        (
            &[id, ("replicate", "true")],
            &[tiny],
            400,
            "unsupported_parameter",
        ),
        (
            &[id, ("metadata", "{\"replicate\": true}")],
            &[tiny],
            400,
            "unsupported_parameter",
        ),
        (
            &[id, ("metadata", "{\"shard_affinity\": \"a\"}")],
            &[tiny],
            400,
            "unsupported_parameter",
        ),
        (
            &[id, ("version", "1"), ("metadata", "{\"version\": \"1\"}")],
            &[tiny],
            400,
            "invalid_value",
        ),
        (
            &[id, ("metadata", "{\"size\": 1}")],
            &[tiny],
            400,
            "invalid_value",
        ),
        (
            &[id],
            &[("big.gguf", &[b'x'; 1_100_000])],
            413,
            "file_too_large",
        ),
    ];
    for (fields, files, status, expected) in cases {
        let (got, code) = ask(fields, files);
        assert_eq!((got, code.as_str()), (status, expected), "{fields:?}");
    }
    let many: Vec<(String, Vec<u8>)> = (0..3)
        .map(|number| {
            (
                format!("m-0000{}-of-00003.gguf", number + 1),
                vec![b'x'; 1 << 20],
            )
        })
        .collect();
    let many: Vec<(&str, &[u8])> = many
        .iter()
        .map(|(name, bytes)| (name.as_str(), &bytes[..]))
        .collect();
    assert_eq!(ask(&[id], &many), (507, "no_room".to_owned()));
    let mut cut = TcpStream::connect(&managed.admin).expect("connect");
    let head = format!(
        "POST {INGEST} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {KEY}\r\ncontent-length: 100000\r\n\
         content-type: multipart/form-data; boundary=x\r\n\r\n--x\r\ncontent-disposition: form-data; \
         name=\"file\"; filename=\"a.gguf\"\r\n\r\nGGUF",
        managed.admin
    );
    cut.write_all(head.as_bytes()).expect("write");
    let incoming = || fs::read_dir(folder.path().join("incoming")).map_or(0, Iterator::count);
    wait_for(|| {
        (incoming() == 1)
            .then_some(())
            .ok_or_else(|| "no upload".to_owned())
    });
    drop(cut);
    wait_for(|| {
        (incoming() == 0)
            .then_some(())
            .ok_or_else(|| "the upload is left".to_owned())
    });
    assert_empty(folder.path());
}

#[test]
fn feature_l10_chunks_that_lie_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let managed = Managed::start(&library(folder.path(), "max_mib = 2\nmax_file_mib = 1"));
    let order = |order: Value| code(&begin(&managed, &order));
    assert_eq!(
        order(json!({"model_id": "a"})),
        (422, "invalid_upload".to_owned())
    );
    assert_eq!(
        order(json!({"model_id": "a/../b", "size_bytes": 1})),
        (400, "invalid_value".to_owned())
    );
    assert_eq!(
        order(json!({"model_id": "a", "size_bytes": 0})),
        (400, "invalid_value".to_owned())
    );
    let slash = json!({"model_id": "a", "size_bytes": 9, "file_name": "../a.gguf"});
    assert_eq!(order(slash), (400, "invalid_value".to_owned()));
    assert_eq!(
        order(json!({"model_id": "a", "size_bytes": 2 << 20})),
        (413, "file_too_large".to_owned())
    );
    // Room that was promised to one is not there for another.
    let (first, second) = (
        upload(&managed, "a", 1 << 20),
        upload(&managed, "b", 900_000),
    );
    assert_eq!(
        order(json!({"model_id": "c", "size_bytes": 500_000})),
        (507, "no_room".to_owned())
    );
    let gone = managed.ask(Request::get(&second).method("DELETE"));
    assert_eq!(gone.ok()["deleted"], true);
    assert_eq!(managed.ask(Request::get(&second)).status(), 404);
    let third = upload(&managed, "c", 8);
    let lies = [
        ("bytes 0-7/9", 400, "wrong_length"),
        ("bytes 0-8/8", 400, "invalid_range"),
        ("bytes 7-0/8", 400, "invalid_range"),
        ("bytes */8", 400, "invalid_range"),
        ("bytes 4-7/8", 416, "wrong_offset"),
        // Shorter and longer than the body.
        ("bytes 0-2/8", 400, "wrong_length"),
    ];
    for (range, status, expected) in lies {
        let request = Request::raw(&third, b"GGUF")
            .method("PUT")
            .header("content-range", range);
        assert_eq!(
            code(&managed.ask(request)),
            (status, expected.to_owned()),
            "{range}"
        );
    }
    let third = upload(&managed, "c", 8);
    let short = Request::raw(&third, b"GGUF")
        .method("PUT")
        .header("content-range", "bytes 0-7/8");
    let short = managed.ask(short);
    assert_eq!(code(&short), (400, "wrong_length".to_owned()));
    assert_eq!(short.header("upload-offset"), Some("4"));
    let done = chunk(&managed, &third, 4, b"....", 8);
    assert_eq!(done.status(), 201, "{}", done.text());
    let none = chunk(&managed, &third, 0, b"GGUF....", 8);
    assert_eq!(code(&none), (404, "unknown_upload".to_owned()));
    // It is a model by its first bytes only, and its load says what is wrong.
    assert_eq!(managed.act("c", "load", "").status(), 500);
    let bad = upload(&managed, "d", 4);
    let bad = chunk(&managed, &bad, 0, b"GGML", 4);
    assert_eq!(code(&bad), (400, "no_model".to_owned()));
    managed.ask(Request::get(&first).method("DELETE")).ok();
}

#[test]
fn feature_l10_of_two_that_upload_one_name_at_once_one_has_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let managed = Managed::start(&library(folder.path(), ""));
    let bytes = tiny();
    let total = bytes.len();
    let paths: Vec<String> = (0..4).map(|_| upload(&managed, "one", total)).collect();
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let send = |path: &String| {
            let (managed, bytes) = (&managed, &bytes);
            let path = path.clone();
            scope.spawn(move || chunk(managed, &path, 0, bytes, total).status())
        };
        let threads: Vec<_> = paths.iter().map(send).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("an answer"))
            .collect()
    });
    let count = |status| statuses.iter().filter(|found| **found == status).count();
    assert_eq!((count(201), count(409)), (1, 3), "{statuses:?}");
    assert_eq!(answers(&managed, "one"), 200);
    assert_eq!(managed.ask(Request::get(UPLOADS)).ok()["data"], json!([]));
    let files = fs::read_dir(folder.path().join("files"))
        .expect("files")
        .count();
    assert_eq!(files, 1);
}

#[test]
fn feature_l10_a_folder_comes_in_chunks_that_cross_its_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = library(folder.path(), "");
    let managed = Managed::start(&config);
    let model = example::root().join("examples/demo-model/model");
    let names = [
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ];
    let files: Vec<Vec<u8>> = names
        .iter()
        .map(|name| fs::read(model.join(name)).expect("a file"))
        .collect();
    let list: String = names
        .iter()
        .zip(&files)
        .map(|(name, bytes)| format!("{}  {name}\n", sha256(bytes)))
        .collect();
    let (bytes, first) = (files.concat(), files[0].len());
    let total = bytes.len();
    let listed: Vec<Value> = names
        .iter()
        .zip(&files)
        .map(|(name, bytes)| json!({"name": name, "size_bytes": bytes.len()}))
        .collect();
    let order = json!({
        "model_id": "folder", "size_bytes": total, "files": listed, "sha256": sha256(list.as_bytes()),
    });
    let begun = begin(&managed, &order);
    assert_eq!(begun.status(), 201, "{}", begun.text());
    assert_eq!(begun.json()["files"], json!(listed));
    let path = format!("{UPLOADS}/{}", begun.json()["id"].as_str().expect("an id"));
    // One chunk ends with the first file, and one crosses into the fourth.
    let later = files[..3].concat().len() + 7;
    for (from, to) in [(0, first), (first, later)] {
        let made = chunk(&managed, &path, from, &bytes[from..to], total);
        assert_eq!((made.status(), &made.json()["offset"]), (202, &json!(to)));
    }
    managed.server.signal("KILL");
    drop(managed);
    let managed = Managed::start(&config);
    assert_eq!(managed.ask(Request::get(&path)).ok()["offset"], later);
    let last = chunk(&managed, &path, later, &bytes[later..], total);
    assert_eq!(last.status(), 201, "{}", last.text());
    assert_eq!(last.json()["size_bytes"], total);
    managed.act("folder", "load", "").ok();
    assert_eq!(answers(&managed, "folder"), 200);

    // The command takes a folder, and the name of it is that of the model.
    let made = command(&managed, &["upload", model.to_str().expect("UTF-8")]);
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    assert_eq!(answers(&managed, "model"), 200);

    let wrong = |files: Value, size: usize| {
        let order = json!({"model_id": "x", "size_bytes": size, "files": files});
        code(&begin(&managed, &order))
    };
    let of = |name: &str, size: usize| json!({"name": name, "size_bytes": size});
    for (files, size) in [
        (json!([of("a.json", 1), of("a.json", 2)]), 3),
        (json!([of("a.json", 1), of("b.json", 2)]), 4),
        (json!([of("a.json", 1), of("b.json", 0)]), 1),
        (json!([of("../a.json", 1)]), 1),
        (json!(vec![of("a.json", 1); 25]), 25),
    ] {
        let (status, code) = wrong(files.clone(), size);
        assert_eq!((status, code.as_str()), (400, "invalid_value"), "{files}");
    }
    let lone = wrong(json!([of("config.json", 3)]), 3);
    assert_eq!(lone.0, 201, "what it is shows when it has come");
}
