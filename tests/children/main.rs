//! Models that child processes answer for: real processes, a second mortise and scripts that misbehave.

mod crash;
mod groups;
mod orphans;
mod start;

use std::path::Path;
use std::process::Command;

use mortise_test_support as support;
use serde_json::{Value, json};
use support::client::{Request, Response};
use support::{Server, wait_for};

const KEY: &str = "an admin key of the tests";

/// Configuration of the admin side, on a free port, and of a folder's program `child.py`.
const ADMIN: &str = "[admin]\nport = 0\nkey = \"an admin key of the tests\"\n";

/// A server of the chat API in a few lines. It answers with what its arguments say.
const CHILD: &str = r#"
import http.server, json, os, signal, subprocess, sys, time

options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
say = options.get("--say", "child")
if "--note" in options:
    open(options["--note"], "a").write(" ".join(sys.argv[1:]) + "\n")
if "--pid" in options:
    open(options["--pid"], "w").write(str(os.getpid()))
if options.get("--deaf"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "--fork" in options:
    for number, session in ((0, False), (1, True)):
        worker = subprocess.Popen(["sleep", "600"], start_new_session=session)
        open(options["--fork"] + str(number), "w").write(str(worker.pid))
if "--flood" in options:
    for number in range(int(options["--flood"])):
        print("line", number, "x" * 200)
    print("y" * 100000)
    sys.stdout.flush()
print("about to listen", file=sys.stderr, flush=True)
if options.get("--exit"):
    print("no such model", flush=True)
    sys.exit(int(options["--exit"]))

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"

    def log_message(self, *arguments):
        pass

    def do_GET(self):
        self.send_response(503 if options.get("--never") else 200)
        self.end_headers()
        self.wfile.write(b"{}")

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        words = json.dumps(body["messages"])
        self.chunk({"content": say})
        if "die" in words:
            print("something went wrong inside", flush=True)
            os._exit(3)
        self.wfile.write(b"data: {\"choices\": [{\"index\": 0, \"delta\": {}, \"finish_reason\": \"stop\"}]}\n\n")
        self.wfile.write(b"data: [DONE]\n\n")

    def chunk(self, delta):
        data = json.dumps({"choices": [{"index": 0, "delta": delta}]})
        self.wfile.write(f"data: {data}\n\n".encode())

host = options.get("--host", "127.0.0.1")
http.server.ThreadingHTTPServer((host, int(options["--port"])), Handler).serve_forever()
"#;

/// A server with an admin side and models of child processes.
struct Parent {
    server: Server,
    admin: String,
    folder: tempfile::TempDir,
}

/// One model of the program above.
struct Script<'a> {
    name: &'a str,
    /// Arguments of the program.
    arguments: &'a [&'a str],
    /// Further keys of the model, and of its process.
    model: &'a str,
    child: &'a str,
}

impl<'a> Script<'a> {
    fn new(name: &'a str, arguments: &'a [&'a str]) -> Self {
        Self {
            name,
            arguments,
            model: "",
            child: "",
        }
    }

    fn table(&self, folder: &Path) -> String {
        let program = folder.join("child.py");
        let mut words = vec!["python3".to_owned(), program.display().to_string()];
        let at = folder.display().to_string();
        let filled = |word: &&str| word.replace("FOLDER", &at);
        words.extend(self.arguments.iter().map(filled));
        format!(
            "[[models]]\nname = {:?}\n{}\n[models.child]\ncommand = {words:?}\n{}\n",
            self.name, self.model, self.child
        )
    }
}

impl Parent {
    /// A server with these models; `None` if there is no Python.
    fn start(models: &[Script<'_>], more: &str) -> Option<Self> {
        if !support::have(&["python3"]) {
            return None;
        }
        let folder = tempfile::tempdir().expect("make a folder");
        std::fs::write(folder.path().join("child.py"), CHILD).expect("write the program");
        let tables = models.iter().map(|model| model.table(folder.path()));
        let tables: String = tables.collect();
        let (server, admin) = started(&format!("{ADMIN}{more}\n{tables}"));
        Some(Self {
            server,
            admin,
            folder,
        })
    }

    fn ask(&self, request: Request) -> Response {
        ask(&self.admin, request)
    }

    fn row(&self, name: &str) -> Value {
        let path = format!("/v1/admin/models/{name}");
        self.ask(Request::get(&path)).ok()
    }

    fn state(&self, name: &str) -> String {
        let row = self.row(name);
        row["runtime_state"].as_str().expect("a state").to_owned()
    }

    fn act(&self, name: &str, action: &str) -> Response {
        let path = format!("/v1/admin/models/{name}/{action}");
        self.ask(Request::raw(&path, b""))
    }

    fn chat(&self, model: &str, text: &str) -> Response {
        self.server
            .post("/v1/chat/completions", &asked(model, text))
    }

    /// Lines of the output of a model's process.
    fn output(&self, name: &str) -> Vec<String> {
        let path = format!("/v1/admin/models/{name}/log");
        let log = self.ask(Request::get(&path)).ok();
        let lines = log["lines"].as_array().expect("lines").iter();
        lines
            .map(|line| line["text"].as_str().expect("a text").to_owned())
            .collect()
    }

    /// The number in a file that a process wrote.
    fn number(&self, file: &str) -> u32 {
        let path = self.folder.path().join(file);
        wait_for(|| {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let number = text.parse();
            number.map_err(|_| format!("no number in {}", path.display()))
        })
    }
}

fn started(config: &str) -> (Server, String) {
    let server = Server::configured(config);
    let line = server.wait_for_log(|line| line.contains("admin side on http://"));
    let (_, address) = line
        .split_once("admin side on http://")
        .expect("an address");
    let end = address.find(['"', ' ']).unwrap_or(address.len());
    let admin = address[..end].to_owned();
    (server, admin)
}

fn ask(admin: &str, request: Request) -> Response {
    let key = format!("Bearer {KEY}");
    request.header("authorization", &key).send(admin)
}

fn asked(model: &str, text: &str) -> Value {
    json!({"model": model, "messages": [{"role": "user", "content": text}]})
}

fn code(response: &Response) -> (u16, String) {
    let code = response.json()["error"]["code"].as_str().map(str::to_owned);
    (response.status(), code.unwrap_or_default())
}

fn said(response: &Response) -> String {
    let answer = response.ok();
    let content = answer["choices"][0]["message"]["content"].as_str();
    content.expect("a text").to_owned()
}

/// Whether a process runs; one that waits to be reaped does not.
fn lives(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").map(|(_, rest)| rest.chars().next());
    !matches!(state, None | Some(None | Some('Z' | 'X')))
}

fn kill(pid: u32) {
    let killed = Command::new("kill").args(["-9", &pid.to_string()]).status();
    assert!(killed.expect("run kill").success());
}
