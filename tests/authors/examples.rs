//! `examples/plugins`: each is built, and passes its cases; and what is not Rust serves.

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::shell::run;
use crate::support::client::Request;
use crate::support::example::{built, source};
use crate::support::{Server, have};

#[test]
fn examples_in_rust_pass_their_cases() {
    for name in [
        "house-rules",
        "vendor-formats",
        "choices",
        "daily-quota",
        "calculator",
        "date-time",
        "http-fetch",
    ] {
        let script = format!("mortise plugin test {:?}", built(name));
        let printed = run(&source(name), &script);
        assert!(printed.contains("cases passed"), "{name}: {printed}");
    }
}

/// Make a project of the kind and language, lay the example's own files over it, and test it. What an
/// example holds must differ from what the project has anyway.
fn build(name: &str, kind: &str, lang: &str, test: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("make a folder");
    let source = source(name);
    let script = format!(
        "mortise plugin new {name} --kind {kind} --lang {lang}\n\
         rm -r {name}/cases\n\
         (cd {source:?} && find . -type f) | while read -r file; do\n\
         ! cmp -s {source:?}/$file {name}/$file || {{ echo \"$file is the template's\" >&2; exit 1; }}\n\
         done\n\
         cp -r {source:?}/. {name}\n\
         cd {name}\n\
         {test}"
    );
    let printed = run(folder.path(), &script);
    assert!(printed.contains("cases passed"), "{name}: {printed}");
    let file = folder.path().join(name).join(format!("{name}.wasm"));
    (folder, file)
}

#[test]
fn the_parser_in_c_passes_its_cases() {
    if have(&["python3", "make"]) {
        build("function-tags-c", "output-parser", "c", "make test");
    }
}

/// A server with this policy, from the code that its test has compiled.
fn serving(file: &Path, settings: &str) -> Server {
    let cache = file.with_file_name("build").join("cache");
    Server::configured(&format!(
        "[plugins]\ncache_dir = {cache:?}\n\
         [[plugins.bindings]]\nkind = \"policy\"\nfile = {file:?}\nsettings = {settings}\n"
    ))
}

/// The status of a chat request with one header.
fn status(server: &Server, header: (&str, &str)) -> u16 {
    let messages = json!([{"role": "user", "content": "Hi"}]);
    let body = json!({"model": "mortise-demo", "messages": messages, "max_tokens": 1});
    let request = Request::post("/v1/chat/completions", &body);
    server.send(&request.header(header.0, header.1)).status()
}

#[test]
fn the_policy_in_python_serves() {
    if !have(&["python3", "make"]) {
        return;
    }
    let (_folder, file) = build("model-menu-python", "policy", "python", "make test");
    let server = serving(
        &file,
        "{ menu = { acme = [\"small-*\"], \"*\" = [\"mortise-*\"] } }",
    );
    assert_eq!(status(&server, ("x-tenant", "acme")), 403);
    assert_eq!(status(&server, ("x-tenant", "umbrella")), 200);
}

#[test]
fn the_policy_in_javascript_serves() {
    if !have(&["node", "npm"]) {
        return;
    }
    let (_folder, file) = build("token-cap-js", "policy", "js", "npm test --silent");
    let server = serving(&file, "{ plans = { free = { max_tokens = 10 } } }");
    assert_eq!(status(&server, ("x-plan", "gold")), 403);
    assert_eq!(status(&server, ("x-plan", "free")), 200);
}
