//! Plugin files that operators send to the admin side, check, roll back and take away.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::Path;

use ed25519_compact::{KeyPair, Seed};
use serde_json::{Value, json};

use crate::support::client::{Request, Response, connect_from};
use crate::support::contract::Contract;
use crate::swap::{KEY, Live, broken_promise, carrying, configure, version};

const FILE: &str = "/v1/admin/plugins/files/rules.wasm";

/// A server that takes files, and the contract that its answers are held to.
struct Taking {
    live: Live,
    contract: Contract,
}

impl Taking {
    fn start(more: &str) -> Self {
        let live = Live::start(0, &format!("upload = true\n{more}"));
        let document = live.ask_admin(Request::get("/v1/admin/openapi.json")).ok();
        let contract = Contract::new(document);
        Self { live, contract }
    }

    /// The answer of an operation, which is one that it declares.
    fn ask(&self, id: &str, file: &str, body: &[u8], signature: Option<&[u8]>) -> Response {
        let (path, method, operation) = self.contract.operation(id);
        let mut request = Request::raw(&path.replace("{file}", file), body);
        if let Some(signature) = signature {
            request = request.header("x-plugin-signature", &hex(signature));
        }
        let response = self.live.ask_admin(request.method(&method.to_uppercase()));
        self.contract.holds(operation, &response);
        response
    }

    fn put(&self, wasm: &[u8]) -> Response {
        self.ask("putPluginFile", "rules.wasm", wasm, None)
    }

    fn roll_back(&self, body: &str) -> Response {
        self.ask("rollBackPluginFile", "rules.wasm", body.as_bytes(), None)
    }

    /// Digests of the versions, the last one first.
    fn versions(&self) -> Vec<String> {
        let listed = self.ask("listPluginVersions", "rules.wasm", b"", None).ok();
        let rows = listed["data"].as_array().expect("rows").clone();
        let digest = |row: &Value| row["digest"].as_str().expect("a digest").to_owned();
        rows.iter().map(digest).collect()
    }

    fn serves(&self) -> String {
        let version = self.live.template()["version"].clone();
        version.as_str().expect("a version").to_owned()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn refused(response: &Response, status: u16, code: &str) -> String {
    let error = response.json()["error"].clone();
    assert_eq!(
        (response.status(), &error["code"]),
        (status, &json!(code)),
        "{error}"
    );
    error["message"].as_str().expect("a message").to_owned()
}

/// All files below a folder, with what is in them.
fn files(folder: &Path) -> BTreeSet<(String, Vec<u8>)> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => {
                let content = fs::read(&path).expect("a file");
                found.insert((path.display().to_string(), content));
            }
        }
    }
    found
}

#[test]
fn feature_e35_a_file_is_sent_swapped_rolled_back_and_removed() {
    let taking = Taking::start("");
    let plain = taking.live.prompt_tokens();
    let [first, second] = [version("1.0.0"), version("2.0.0")];
    let put = taking.put(&first);
    assert_eq!(put.status(), 201, "{}", put.text());
    let (told, serving) = (put.json(), taking.live.template());
    assert_eq!(
        (&told["changed"], &told["version"]),
        (&json!(true), &json!("1.0.0"))
    );
    assert_eq!(serving["digest"], told["digest"]);
    assert!(taking.live.prompt_tokens() > plain, "it serves at once");

    // What is examined is not written.
    let before = files(taking.live.folder.path());
    let checked = taking
        .ask("checkPluginFile", "rules.wasm", &second, None)
        .ok();
    assert_eq!(
        (&checked["version"], &checked["signed"]),
        (&json!("2.0.0"), &json!(false))
    );
    assert_eq!(files(taking.live.folder.path()), before);
    assert_eq!(taking.serves(), "1.0.0");

    let again = taking.put(&first);
    assert_eq!(
        (again.status(), &again.ok()["changed"]),
        (200, &json!(false))
    );
    assert_eq!(taking.versions(), Vec::<String>::new());
    assert_eq!(taking.put(&second).ok()["changed"], true);
    assert_eq!(taking.serves(), "2.0.0");
    let digest = told["digest"].as_str().expect("a digest");
    assert_eq!(taking.versions(), [digest]);

    assert_eq!(taking.roll_back("").ok()["version"], "1.0.0");
    assert_eq!(taking.serves(), "1.0.0");
    assert_eq!(
        taking.versions(),
        [checked["digest"].as_str().expect("a digest")]
    );
    let named = json!({"digest": checked["digest"]}).to_string();
    assert_eq!(taking.roll_back(&named).ok()["version"], "2.0.0");
    refused(&taking.roll_back(&named), 404, "unknown_plugin_version");
    refused(
        &taking.roll_back("{\"version\": 1}"),
        422,
        "invalid_rollback",
    );

    let removed = taking.ask("deletePluginFile", "rules.wasm", b"", None).ok();
    assert_eq!(removed, json!({"file": "rules.wasm", "deleted": true}));
    assert_eq!(taking.live.template()["origin"], "embedded");
    assert_eq!(taking.live.prompt_tokens(), plain);
    let listed = taking.ask("listPluginFiles", "", b"", None).ok();
    let row = &listed["data"][0];
    assert_eq!(
        (&row["file"], &row["present"]),
        (&json!("rules.wasm"), &json!(false))
    );
    let gone = taking.ask("deletePluginFile", "rules.wasm", b"", None);
    refused(&gone, 404, "unknown_plugin_file");
    assert_eq!(taking.roll_back("").status(), 201);
    assert_eq!(taking.serves(), "2.0.0");
    let none = taking.ask("rollBackPluginFile", "other.wasm", b"", None);
    refused(&none, 409, "no_previous_version");
}

#[test]
fn feature_e35_what_cannot_serve_leaves_folder_and_plugins_as_they_were() {
    let taking = Taking::start("");
    assert_eq!(taking.put(&version("1.0.0")).status(), 201);
    let binding = "upload = true\n[[plugins.bindings]]\nkind = \"chat-template\"\nfile = \"plugins/rules.wasm\"\n\
                   settings = { rules = \"Be brief.\" }\n";
    configure(taking.live.folder.path(), 0, binding);
    let reload = Request::post("/v1/admin/plugins/reload", &json!({}));
    assert_eq!(taking.live.ask_admin(reload).ok()["changed"], true);
    let (before, tokens) = (
        files(taking.live.folder.path()),
        taking.live.prompt_tokens(),
    );
    let whole = version("2.0.0");
    let broken = carrying(&json!({"shouts": broken_promise()}));
    for (wasm, part) in [
        (&b""[..], "rules.wasm"),
        (b"not wasm at all", "rules.wasm"),
        (&whole[..whole.len() / 2], "rules.wasm"),
        (&broken, "`shouts`"),
    ] {
        for id in ["putPluginFile", "checkPluginFile"] {
            let told = refused(
                &taking.ask(id, "rules.wasm", wasm, None),
                422,
                "plugin_refused",
            );
            assert!(told.contains(part), "{told}");
        }
    }
    let needed = taking.ask("deletePluginFile", "rules.wasm", b"", None);
    assert!(refused(&needed, 409, "plugin_in_use").contains("plugins.bindings[0]"));
    let large = vec![0; (64 << 20) + 1];
    refused(&taking.put(&large), 413, "plugin_too_large");
    let signed = taking.ask("putPluginFile", "rules.wasm", &whole, Some(&[7; 64]));
    assert!(refused(&signed, 400, "invalid_signature").contains("plugins.trusted_keys"));
    assert_eq!(files(taking.live.folder.path()), before);
    assert_eq!(taking.live.prompt_tokens(), tokens);
    assert_eq!(taking.serves(), "1.0.0");
}

#[test]
fn feature_e35_nothing_is_written_outside_the_folder_without_the_key_or_unasked() {
    let taking = Taking::start("");
    let (before, wasm) = (files(taking.live.folder.path()), version("1.0.0"));
    for name in [
        "..%2Frules.wasm",
        "%2Ftmp%2Frules.wasm",
        "..%5Crules.wasm",
        ".rules.wasm",
        "rules.wasm.sig",
        "rules.txt",
        "rules%00.wasm",
        "%3Cimg%3E.wasm",
        ".versions",
    ] {
        let operations = [
            "putPluginFile",
            "checkPluginFile",
            "deletePluginFile",
            "listPluginVersions",
        ];
        for id in operations {
            refused(
                &taking.ask(id, name, &wasm, None),
                400,
                "invalid_plugin_name",
            );
        }
        refused(
            &taking.ask("rollBackPluginFile", name, b"", None),
            400,
            "invalid_plugin_name",
        );
    }
    let put = Request::raw(FILE, &wasm).method("PUT");
    assert_eq!(put.send(&taking.live.admin).status(), 401);
    // A browser sends neither header of its own accord, whatever page it shows.
    let cookie = Request::raw(FILE, &wasm)
        .method("PUT")
        .header("cookie", &format!("key={KEY}"))
        .header("origin", "https://elsewhere.example");
    assert_eq!(cookie.send(&taking.live.admin).status(), 401);
    let wrong = Request::raw(FILE, &wasm)
        .method("PUT")
        .header("x-admin-token", "another key of some length");
    assert_eq!(wrong.send(&taking.live.admin).status(), 403);
    assert_eq!(files(taking.live.folder.path()), before);

    configure(taking.live.folder.path(), 0, "");
    let reload = Request::post("/v1/admin/plugins/reload", &json!({}));
    assert_eq!(taking.live.ask_admin(reload).status(), 200);
    let off = refused(&taking.put(&wasm), 403, "plugin_upload_off");
    assert!(off.contains("plugins.upload"), "{off}");
    assert!(!taking.live.plugin("rules.wasm").exists());
}

#[test]
fn feature_e35_only_what_a_trusted_key_signed_is_taken_where_signatures_are_required() {
    let signer = KeyPair::from_seed(Seed::new([7; 32]));
    let key = hex(signer.pk.as_ref());
    let taking = Taking::start(&format!(
        "require_signed = true\ntrusted_keys = [{key:?}]\n"
    ));
    let put = |wasm: &[u8], signature: Option<&[u8]>| {
        taking.ask("putPluginFile", "rules.wasm", wasm, signature)
    };
    let [first, second] = [version("1.0.0"), version("2.0.0")];
    let sign = |wasm: &[u8]| signer.sk.sign(wasm, None).to_vec();
    let unsigned = refused(&put(&first, None), 422, "plugin_refused");
    assert!(unsigned.contains("plugins.require_signed"), "{unsigned}");
    let other = refused(&put(&first, Some(&sign(&second))), 422, "plugin_refused");
    assert!(other.contains("trusted"), "{other}");
    refused(&put(&first, Some(&[7; 3])), 400, "invalid_signature");
    assert!(!taking.live.plugin("rules.wasm").exists());
    assert_eq!(put(&first, Some(&sign(&first))).json()["signed"], true);
    assert_eq!(put(&second, Some(&sign(&second))).ok()["signed"], true);
    // The signature comes back with its version.
    assert_eq!(taking.roll_back("").ok()["signed"], true);
    let kept = fs::read(taking.live.plugin("rules.wasm.sig")).expect("a signature");
    assert_eq!(kept, sign(&first));
}

#[test]
fn feature_e35_who_sends_slowly_takes_one_of_few_places_and_no_more() {
    let taking = Taking::start("");
    let begin = || {
        let mut stream = connect_from(None, &taking.live.admin).expect("connect");
        let head = format!(
            "PUT {FILE} HTTP/1.1\r\nhost: {}\r\nx-admin-token: {KEY}\r\ncontent-length: 9\r\n\r\nslow",
            taking.live.admin
        );
        stream.write_all(head.as_bytes()).expect("written");
        stream
    };
    let (mut slow, wasm) = (Vec::new(), version("1.0.0"));
    let busy = loop {
        // One that comes while the request below has a place is refused, and another takes its turn.
        slow.push(begin());
        let checked = taking.ask("checkPluginFile", "rules.wasm", &wasm, None);
        if checked.status() == 503 {
            break checked;
        }
        assert!(slow.len() < 100, "none is refused");
    };
    refused(&busy, 503, "plugin_upload_busy");
    drop(slow);
    crate::support::wait_for(|| match taking.put(&wasm).status() {
        201 => Ok(()),
        status => Err(format!("{status}")),
    });
}
