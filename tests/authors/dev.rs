//! `mortise plugin dev`: a source is changed, and the running server answers anew; what is broken is not loaded.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::json;

use crate::shell::run;
use crate::support::client::Request;
use crate::support::{Server, binary, wait_for};

/// A process that is watched. Dropping it kills it.
struct Dev {
    child: Child,
    told: Arc<Mutex<String>>,
}

impl Dev {
    fn start(project: &Path, plugins: &Path, url: &str) -> Self {
        let mut child = Command::new(binary())
            .args(["plugin", "dev", "--server", url, "--plugins"])
            .arg(plugins)
            .current_dir(project)
            .env_remove("RUSTFLAGS")
            .env_remove("CARGO_TARGET_DIR")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("run mortise");
        let output = BufReader::new(child.stdout.take().expect("its output"));
        let told = Arc::new(Mutex::new(String::new()));
        let kept = Arc::clone(&told);
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let mut kept = kept.lock().expect("what was told");
                kept.push_str(&line);
                kept.push('\n');
            }
        });
        Self { child, told }
    }

    fn tells(&self, wanted: &str) {
        wait_for(|| {
            let told = self.told.lock().expect("what was told");
            match told.contains(wanted) {
                true => Ok(()),
                false => Err(format!("`{wanted}` in:\n{told}")),
            }
        });
    }

    /// Forget what was told so far.
    fn clear(&self) {
        self.told.lock().expect("what was told").clear();
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Message that a caller of a blocked tenant gets.
fn refusal(server: &Server) -> String {
    let body = json!({"model": "scripted", "messages": [{"role": "user", "content": "Hi"}]});
    let request = Request::post("/v1/chat/completions", &body).header("x-tenant", "banned");
    let response = server.send(&request);
    let message = &response.json()["error"]["message"];
    message.as_str().unwrap_or_default().to_owned()
}

fn edit(file: &Path, from: &str, to: &str) {
    let text = std::fs::read_to_string(file).expect("read the source");
    assert!(text.contains(from), "{from}");
    std::fs::write(file, text.replace(from, to)).expect("write the source");
}

#[test]
fn feature_w3_a_changed_source_serves_and_a_failing_case_does_not() {
    let folder = tempfile::tempdir().expect("make a folder");
    run(
        folder.path(),
        "mortise plugin new dev-policy --kind policy\ncargo build --release --target wasm32-wasip2 --manifest-path dev-policy/Cargo.toml",
    );
    let (project, plugins) = (
        folder.path().join("dev-policy"),
        folder.path().join("plugins"),
    );
    std::fs::create_dir(&plugins).expect("make a folder");
    let server = Server::scripted(
        "default = \"The answer.\"",
        &format!(
            "[plugins]\ndir = {plugins:?}\n[[plugins.bindings]]\nkind = \"policy\"\nsettings = {{}}\n"
        ),
    );
    let dev = Dev::start(&project, &plugins, &server.url(""));
    dev.tells("4 cases passed; loaded as");
    let answers = |wanted: &str| {
        wait_for(|| match refusal(&server) {
            told if told.contains(wanted) => Ok(()),
            told => Err(format!("{wanted}: {told}")),
        });
    };
    let source = project.join("src/lib.rs");
    edit(
        &source,
        "let Some(tenant) = facts.header(\"x-tenant\") else {",
        "let Some(tenant) = facts.header(\"x-tenant\") else {\n            // Changed.",
    );
    dev.clear();
    edit(
        &source,
        "if self.blocked.iter()",
        "if tenant == \"banned\" {\n            return Ok(Deny::new(403, \"permission_error\", \"banned\", \"you are banned\").into());\n        }\n        if self.blocked.iter()",
    );
    dev.tells("4 cases passed; loaded as");
    answers("you are banned");
    dev.tells("calls   policy.authorize: ");
    // A case that fails keeps what serves.
    dev.clear();
    edit(&source, "you are banned", "you stay banned");
    edit(
        &project.join("cases/blocked.json"),
        "tenant_blocked",
        "tenant_refused",
    );
    dev.tells("FAILED  blocked: ");
    dev.tells("not loaded: 1 of 4 cases failed");
    answers("you are banned");
    // So does a build that fails.
    dev.clear();
    edit(&source, "you stay banned", "you stay\" banned");
    dev.tells("not loaded: the build failed");
    answers("you are banned");
    dev.clear();
    edit(&source, "you stay\" banned", "you stay banned");
    edit(
        &project.join("cases/blocked.json"),
        "tenant_refused",
        "tenant_blocked",
    );
    dev.tells("4 cases passed; loaded as");
    answers("you stay banned");
}
