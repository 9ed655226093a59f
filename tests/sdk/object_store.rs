//! A library with an object store: the S3 server is `moto`, and AWS's own client looks what is in it.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use mortise_test_support as support;
use serde_json::Value;
use support::client::{Request, Response};
use support::{Server, example, have, wait_for};

use crate::{environment, run, sources};

const KEY: &str = "an admin key of the tests";

/// The S3 server, which ends with the test.
struct Store {
    child: Child,
    address: String,
    python: std::path::PathBuf,
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Store {
    fn start() -> Self {
        let venv = environment("sdk-object-store", "object_store/requirements.txt");
        let python = venv.join("bin/python");
        let probe = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = probe.local_addr().expect("an address").port();
        drop(probe);
        let child = Command::new(&python)
            .args([
                "-m",
                "moto.server",
                "-H",
                "127.0.0.1",
                "-p",
                &port.to_string(),
            ])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("start moto");
        let store = Self {
            child,
            address: format!("http://127.0.0.1:{port}"),
            python,
        };
        let place = format!("127.0.0.1:{port}");
        wait_for(|| std::net::TcpStream::connect(&place).map_err(|error| error.to_string()));
        store.look("create");
        store
    }

    /// Output of AWS's client for a command.
    fn look(&self, command: &str) -> String {
        run(Command::new(&self.python)
            .arg(sources().join("object_store/look.py"))
            .args([&self.address, command])
            .env("PYTHONDONTWRITEBYTECODE", "1"))
    }
}

/// A server whose library has a folder and a bucket.
struct Managed {
    server: Server,
    admin: String,
}

impl Managed {
    fn start(store: &Store, folder: &Path, more: &str) -> Self {
        for (name, text) in [("id", "id"), ("secret", "secret")] {
            std::fs::write(folder.join(name), text).expect("written");
        }
        let (library, id, secret) = (
            folder.join("library"),
            folder.join("id"),
            folder.join("secret"),
        );
        let server = Server::configured(&format!(
            "[admin]\nport = 0\nkey = \"{KEY}\"\n[library]\nfolder = {library:?}\nmin_free_mib = 0\n{more}\n\
             [library.object_store]\nendpoint = \"{}\"\nbucket = \"models\"\nprefix = \"in/here\"\npart_mib = 5\n\
             access_key_id_file = {id:?}\nsecret_access_key_file = {secret:?}\n",
            store.address
        ));
        let line = server.wait_for_log(|line| line.contains("admin side on http://"));
        let (_, address) = line
            .split_once("admin side on http://")
            .expect("an address");
        let end = address.find(['"', ' ']).unwrap_or(address.len());
        let admin = address[..end].to_owned();
        Self { server, admin }
    }

    fn ask(&self, request: Request) -> Response {
        request.header("x-admin-token", KEY).send(&self.admin)
    }

    fn upload(&self, name: &str, bytes: &[u8]) -> Value {
        let mut body = format!(
            "--x\r\ncontent-disposition: form-data; name=\"model_id\"\r\n\r\n{name}\r\n\
             --x\r\ncontent-disposition: form-data; name=\"file\"; filename=\"{name}.gguf\"\r\n\r\n"
        )
        .into_bytes();
        body.extend_from_slice(bytes);
        body.extend_from_slice(b"\r\n--x--\r\n");
        let request = Request::raw("/v1/admin/models/ingest", &body);
        let kind = "multipart/form-data; boundary=x";
        let response = self.ask(request.header("content-type", kind));
        assert_eq!(response.status(), 201, "{}", response.text());
        response.json()
    }

    /// The row of a model of the library.
    fn row(&self, name: &str) -> Option<Value> {
        let rows = self.ask(Request::get("/v1/admin/library")).ok();
        let rows = rows["data"].as_array().expect("rows");
        rows.iter().find(|row| row["name"] == name).cloned()
    }

    fn wait_until(&self, name: &str, field: &str, value: &Value) {
        wait_for(|| match self.row(name) {
            Some(row) if row[field] == *value => Ok(()),
            row => Err(format!("{name}: {row:?}")),
        });
    }

    fn chat(&self, model: &str) -> u16 {
        let body = serde_json::json!({
            "model": model, "max_tokens": 2, "messages": [{"role": "user", "content": "Hi"}],
        });
        self.server.post("/v1/chat/completions", &body).status()
    }
}

#[test]
fn feature_b16_an_empty_server_has_the_models_of_the_bucket() {
    if !have(&["python3"]) {
        return;
    }
    let store = Store::start();
    let tiny =
        std::fs::read(example::root().join("tests/gguf/data/tiny-chat.gguf")).expect("a model");
    // Larger than a part; what is behind the tensors is not read.
    let mut large = tiny.clone();
    large.resize((6 << 20) - 4096, 0);
    let folders = [(); 3].map(|()| tempfile::tempdir().expect("a folder"));
    let first = Managed::start(&store, folders[0].path(), "");
    let digests: Vec<String> = [("tiny", &tiny), ("large", &large)]
        .map(|(name, bytes)| {
            let row = first.upload(name, bytes);
            let digest = row["checksum"].as_str().expect("a digest").to_owned();
            first.wait_until(name, "replication_status", &"replicated".into());
            digest.replace("sha256:", "")
        })
        .to_vec();
    assert_eq!(first.chat("tiny"), 200);
    // Another client finds the very same bytes.
    let listed = store.look("list");
    for digest in &digests {
        assert!(listed.contains(digest), "{digest} in {listed}");
    }
    assert_eq!(listed.lines().count(), 4, "{listed}");
    assert!(
        listed.lines().all(|line| line.contains(" in/here/")),
        "{listed}"
    );

    // A server that has nothing lists both, and fetches one for a request.
    let second = Managed::start(&store, folders[1].path(), "max_mib = 6");
    let names = second.server.get("/v1/models").text();
    assert!(
        names.contains("\"tiny\"") && names.contains("\"large\""),
        "{names}"
    );
    second.wait_until("tiny", "on_disk", &false.into());
    let mut events = Request::get("/v1/admin/events")
        .header("x-admin-token", KEY)
        .begin(&second.admin);
    assert_eq!(events.head().status, 200);
    assert_eq!(second.chat("tiny"), 200);
    second.wait_until("tiny", "on_disk", &true.into());
    let mut told = String::new();
    while !told.contains("\"loaded\"") {
        let chunk = events.chunk().expect("an event");
        told.push_str(&String::from_utf8(chunk).expect("UTF-8"));
    }
    assert!(told.contains("\"stage\":\"downloading\""), "{told}");
    // The disk is a cache: the one that is not used goes for the one that is.
    let unload = |name: &str| {
        second
            .ask(Request::raw(
                &format!("/v1/admin/models/{name}/unload"),
                b"",
            ))
            .ok()
    };
    unload("tiny");
    assert_eq!(second.chat("large"), 200);
    second.wait_until("tiny", "on_disk", &false.into());
    assert!(second.server.get("/v1/models").text().contains("\"tiny\""));
    unload("large");

    // Removed by one, gone for the next.
    let gone = second.ask(Request::get("/v1/admin/models/large").method("DELETE"));
    assert_eq!(gone.status(), 200, "{}", gone.text());
    assert_eq!(store.look("list").lines().count(), 2);
    // Other content of the same length is no model.
    store.look("spoil");
    let third = Managed::start(&store, folders[2].path(), "");
    assert!(!third.server.get("/v1/models").text().contains("\"large\""));
    assert_ne!(third.chat("tiny"), 200);
    let row = third.ask(Request::get("/v1/admin/models/tiny")).ok();
    let error = row["last_error"].as_str().expect("a reason");
    assert!(error.contains("SHA-256 digest"), "{error}");
    // A store that is gone costs what it has, and nothing else.
    drop(store);
    assert_eq!(first.chat("tiny"), 200);
    let refused = first.ask(Request::get("/v1/admin/models/large").method("DELETE"));
    let code = refused.json()["error"]["code"].clone();
    assert_eq!(
        (refused.status(), code),
        (502, "object_store_failed".into())
    );
    for managed in [first, second, third] {
        let Managed { mut server, .. } = managed;
        server.assert_sound();
    }
}
