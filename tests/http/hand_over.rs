//! Hand-over to a new process at SIGUSR2, listeners that a service manager opens, and what it is told.

use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use serde_json::json;

use crate::answers::{CHAT, chat};
use crate::support::client::Request;
use crate::support::{PATIENCE, Server, example, have, wait_for};

const SLOW: &str = "default = \"a few words that take their time, one byte after the other\"\n\
                    token_delay_ms = 40\n";

/// The process that took over, which ends with the test.
struct Successor(String);

impl Successor {
    /// Wait for it.
    fn of(server: &Server) -> Self {
        let line = server.wait_for_log(|line| line.contains("handed over"));
        let number = |text: &str| {
            text.chars()
                .filter(char::is_ascii_digit)
                .collect::<String>()
        };
        let (_, process) = line.split_once("process").expect("its number");
        Self(number(process))
    }

    fn signal(&self, name: &str) -> bool {
        let kill = Command::new("kill").args(["-s", name, &self.0]).status();
        kill.is_ok_and(|status| status.success())
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        self.signal("KILL");
    }
}

#[test]
fn feature_c14_no_request_fails_while_a_new_process_takes_over_and_streams_finish() {
    let mut server = Server::scripted(
        SLOW,
        "[admin]\nport = 0\nkey = \"a key of the admin side\"\n",
    );
    let mut asked = chat("Hi");
    asked["stream"] = json!(true);
    let mut stream = Request::post(CHAT, &asked).begin(server.address());
    assert_eq!(stream.head().status, 200);
    let done = AtomicBool::new(false);
    let address = server.address().to_owned();
    let quick = json!({"model": "scripted", "prompt": "Hi", "max_tokens": 1});
    let (successor, count) = std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let mut count = 0;
            while !done.load(SeqCst) {
                let answer = Request::post("/v1/completions", &quick).send(&address);
                assert_eq!(answer.status(), 200, "{}", answer.text());
                count += 1;
            }
            count
        });
        server.signal("USR2");
        let successor = Successor::of(&server);
        // The stream is whole, whatever became of the process that began it.
        let mut text = Vec::new();
        while let Some(chunk) = stream.chunk() {
            text.extend(chunk);
        }
        assert!(String::from_utf8_lossy(&text).ends_with("data: [DONE]\n\n"));
        assert_eq!(server.wait().code(), Some(0));
        let before = asking_count(&address, &quick);
        assert!(before > 0);
        done.store(true, SeqCst);
        (successor, asking.join().expect("no request fails"))
    });
    assert!(count > 0);
    // The new process hands over as well.
    assert!(successor.signal("TERM"));
}

/// Requests that the new process has answered alone.
fn asking_count(address: &str, body: &serde_json::Value) -> usize {
    let answers = (0..3).map(|_| Request::post("/v1/completions", body).send(address));
    answers.filter(|answer| answer.status() == 200).count()
}

#[test]
fn feature_c14_a_process_that_does_not_come_up_changes_nothing() {
    let mut server = Server::scripted("default = \"x\"", "");
    server.configure("nonsense = 1\n");
    server.signal("USR2");
    server.wait_for_log(|line| line.contains("no other process took over"));
    server.post(CHAT, &chat("Hi")).ok();
    assert!(!server.has_ended());
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn feature_c14_the_store_goes_along_when_the_old_process_has_ended() {
    let folder = tempfile::tempdir().expect("make a folder");
    let more = format!(
        "[store]\npath = {:?}\n[audit]\nfile = {:?}\n[server]\nsocket = {:?}\n",
        folder.path().join("state.db"),
        folder.path().join("audit.jsonl"),
        folder.path().join("socket"),
    );
    let mut server = Server::scripted("default = \"x\"", &more);
    let body = json!({"model": "scripted", "input": "Hi"});
    let kept = server.post("/v1/responses", &body).ok();
    let path = format!("/v1/responses/{}", kept["id"].as_str().expect("an id"));
    server.signal("USR2");
    let _successor = Successor::of(&server);
    // It waits in the listener's queue until the new process has the store.
    let found = server.get(&path).ok();
    assert_eq!(found["id"], kept["id"]);
    assert_eq!(server.wait().code(), Some(0));
    assert!(
        folder.path().join("socket").exists(),
        "the new process has it"
    );
}

#[test]
fn feature_c14_the_library_goes_along_when_the_old_process_has_ended() {
    const KEY: &str = "a key of the admin side";
    let folder = tempfile::tempdir().expect("make a folder");
    let below = |path: &str| {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        path
    };
    let model = example::root().join("tests/gguf/data/tiny-chat.gguf");
    std::fs::copy(model, below("files/one/tiny.gguf")).expect("copy the model");
    let entry = json!({
        "name": "mine", "source": "upload", "path": "files/one/tiny.gguf", "size_bytes": 1,
        "sha256": null, "version": null, "description": null, "added_at": 1,
    });
    std::fs::write(below("entries/mine.json"), entry.to_string()).expect("an entry");
    let mut server = Server::configured(&format!(
        "[admin]\nport = 0\nkey = {KEY:?}\n[library]\nfolder = {:?}\nmin_free_mib = 0\n",
        folder.path()
    ));
    let line = server.wait_for_log(|line| line.contains("admin side on http://"));
    let (_, admin) = line
        .split_once("admin side on http://")
        .expect("an address");
    let admin = admin.trim_end_matches(|end: char| !end.is_ascii_digit());
    let asked =
        json!({"model": "mine", "max_tokens": 2, "messages": [{"role": "user", "content": "Hi"}]});
    server.post(CHAT, &asked).ok();
    server.signal("USR2");
    let successor = Successor::of(&server);
    server.post(CHAT, &asked).ok();
    assert_eq!(server.wait().code(), Some(0));
    // The folder is the new process's own: models come and go.
    let order = json!({"model_id": "more", "size_bytes": 10});
    let upload = Request::post("/v1/admin/uploads", &order).header("x-admin-token", KEY);
    let begun = upload.send(admin);
    assert_eq!(begun.status(), 201, "{}", begun.text());
    assert!(successor.signal("TERM"));
}

#[test]
fn feature_c14_listeners_of_a_service_manager_are_taken() {
    if !have(&["python3"]) {
        return;
    }
    // As the service manager does: descriptor 3 listens, and the process replaces itself.
    let script = "import os, socket, sys\n\
        s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()\n\
        os.dup2(s.fileno(), 3); os.set_inheritable(3, True)\n\
        print('opened', s.getsockname()[1], file=sys.stderr, flush=True)\n\
        os.environ.update(LISTEN_FDS='1', LISTEN_PID=str(os.getpid()), LISTEN_FDNAMES='mortise.socket')\n\
        os.execv(sys.argv[1], sys.argv[1:])\n";
    let wrapper = ["python3", "-c", script].map(str::to_owned);
    let server = Server::wrapped(
        "[[models]]\nname = \"m\"\nbackend = \"scripted\"\n[models.script]\nkind = \"conversation\"\n",
        &wrapper,
    );
    let opened = server.wait_for_log(|line| line.starts_with("opened "));
    let port = opened.trim_start_matches("opened ");
    assert_eq!(server.address(), format!("127.0.0.1:{port}"));
    assert_eq!(server.get("/health").status(), 200);
}

#[test]
fn feature_c14_a_service_manager_hears_of_readiness_and_of_the_end() {
    let folder = tempfile::tempdir().expect("make a folder");
    let path = folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).expect("listen");
    manager.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let hear = || {
        let mut bytes = [0; 256];
        let count = manager.recv(&mut bytes).expect("a message");
        String::from_utf8_lossy(&bytes[..count]).into_owned()
    };
    let mut server = Server::configured_with("", &[("NOTIFY_SOCKET", &path)]);
    assert_eq!(hear(), "READY=1");
    assert_eq!(server.get("/ready").status(), 200);
    server.signal("USR2");
    let told = hear();
    // The new one says that it is ready, and the old one which it is.
    let told = [told, hear()];
    let successor = Successor::of(&server);
    assert!(
        told.contains(&format!("MAINPID={}\nREADY=1", successor.0)),
        "{told:?}"
    );
    server.wait();
    assert!(successor.signal("TERM"));
    wait_for(|| match hear() {
        said if said == "STOPPING=1" => Ok(()),
        said => Err(said),
    });
}
