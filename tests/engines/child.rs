//! A llama-server that mortise starts when it is needed, and ends.

use std::path::{Path, PathBuf};

use crate::support::client::Request;
use crate::support::{Server, until};
use crate::{CHAT, EXACT, asked, content, demo_gguf, program};

const KEY: &str = "an admin key of the tests";

/// A server with the model `child`, whose file no other test has.
struct Parent {
    server: Server,
    admin: String,
    model: PathBuf,
    _folder: tempfile::TempDir,
}

impl Parent {
    fn start(render: &str) -> Option<Self> {
        let program = program()?;
        let folder = tempfile::tempdir().expect("make a folder");
        let model = folder.path().join("demo.gguf");
        std::fs::copy(demo_gguf::path(), &model).expect("copy the model");
        let mut command = vec![program.display().to_string()];
        command.extend(["--threads", "2", "--no-webui"].map(str::to_owned));
        command.extend(EXACT.map(str::to_owned));
        let server = Server::configured(&format!(
            "[admin]\nport = 0\nkey = \"{KEY}\"\n[[models]]\nname = \"child\"\npath = {model:?}\n\
             [models.child]\ncommand = {command:?}\napi = \"llama-server\"\n{render}\n"
        ));
        let line = server.wait_for_log(|line| line.contains("admin side on http://"));
        let (_, address) = line
            .split_once("admin side on http://")
            .expect("an address");
        let end = address.find(['"', ' ']).unwrap_or(address.len());
        let admin = address[..end].to_owned();
        Some(Self {
            server,
            admin,
            model,
            _folder: folder,
        })
    }

    fn admin(&self, request: Request) -> serde_json::Value {
        let key = format!("Bearer {KEY}");
        request.header("authorization", &key).send(&self.admin).ok()
    }

    /// Processes but the server itself that have the model's file among their arguments: llama-server, and its guard.
    fn processes(&self) -> usize {
        let all = std::fs::read_dir("/proc").expect("processes").flatten();
        let ids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let ids = ids.filter(|id| *id != self.server.pid());
        ids.filter(|id| has_argument(*id, &self.model)).count()
    }

    fn answers(&self) -> String {
        let answer = self
            .server
            .post(CHAT, &asked("child", "What is mortise?"))
            .ok();
        content(&answer).to_owned()
    }
}

fn has_argument(process: u32, wanted: &Path) -> bool {
    let arguments = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    let wanted = wanted.to_str().expect("UTF-8").as_bytes();
    arguments
        .split(|byte| *byte == 0)
        .any(|argument| argument == wanted)
}

#[test]
fn feature_b1_a_llama_server_is_started_by_a_request_and_ended_by_an_unload() {
    for render in ["", "render = \"here\""] {
        let Some(parent) = Parent::start(render) else {
            return;
        };
        assert_eq!(parent.processes(), 0, "nothing runs before it is needed");
        let first = parent.answers();
        assert!(!first.is_empty());
        assert!(parent.processes() > 0);
        assert_eq!(parent.answers(), first);
        // What it writes is kept.
        let log = parent.admin(Request::get("/v1/admin/models/child/log"));
        assert!(
            log["written"].as_u64().is_some_and(|lines| lines > 10),
            "{log}"
        );
        let row = parent.admin(Request::get("/v1/admin/models/child"));
        assert!(
            row["vram_estimate_mib"].as_u64().is_some_and(|mib| mib > 5),
            "{row}"
        );
        parent.admin(Request::raw("/v1/admin/models/child/unload", b""));
        assert_eq!(parent.processes(), 0);
        assert_eq!(parent.answers(), first, "it comes back");
    }
}

#[test]
fn feature_b3_no_llama_server_survives_a_server_that_is_killed() {
    for signal in ["KILL", "TERM"] {
        let Some(mut parent) = Parent::start("") else {
            return;
        };
        parent.answers();
        assert!(parent.processes() > 0);
        parent.server.signal(signal);
        parent.server.wait();
        until("no process is left", || parent.processes() == 0);
    }
}
