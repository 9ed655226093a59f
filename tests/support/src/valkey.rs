//! A Valkey or Redis server of a test, in a folder and on a socket of its own.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::{until, wait_for};

/// Program of Debian's package of the same name.
const PROGRAM: &str = "redis-server";

/// A running server. Dropping it kills it.
pub struct Valkey {
    child: Child,
    arguments: Vec<String>,
    folder: tempfile::TempDir,
}

impl Valkey {
    /// A server, if Debian's package is installed. Without it a test is skipped and says so, unless
    /// `MORTISE_REQUIRE_SDKS` asks for it.
    pub fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    /// Start a server with further arguments, if Debian's package is installed.
    pub fn start_with(arguments: &[&str]) -> Option<Self> {
        if !crate::have(&[PROGRAM]) {
            return None;
        }
        let folder = tempfile::tempdir().expect("make a folder");
        let arguments: Vec<String> = arguments.iter().map(|text| (*text).to_owned()).collect();
        let child = launch(&arguments, folder.path().to_owned());
        let this = Self {
            child,
            arguments,
            folder,
        };
        this.wait();
        Some(this)
    }

    /// Address of the server.
    pub fn url(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// Folder of the server.
    pub fn folder(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    fn wait(&self) {
        let socket = self.socket();
        until("the Valkey server listens", || {
            std::os::unix::net::UnixStream::connect(&socket).is_ok()
        });
    }

    /// Kill the server; its memory is lost.
    pub fn kill(&mut self) {
        self.child.kill().expect("kill the Valkey server");
        self.child.wait().expect("the Valkey server ends");
    }

    /// Start the server again, empty.
    pub fn restart(&mut self) {
        let folder = self.folder.path().to_owned();
        self.child = launch(&self.arguments, folder);
        self.wait();
    }

    /// Have the server answer nothing, until [`resume`](Self::resume).
    pub fn pause(&self) {
        self.signal("STOP");
        let stat = format!("/proc/{}/stat", self.child.id());
        wait_for(|| {
            let stat = std::fs::read_to_string(&stat).unwrap_or_default();
            let stopped = stat
                .rsplit(')')
                .next()
                .is_some_and(|rest| rest.trim().starts_with('T'));
            stopped
                .then_some(())
                .ok_or_else(|| "the Valkey server stands still".to_owned())
        });
    }

    /// Have the server answer again.
    pub fn resume(&self) {
        self.signal("CONT");
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &id]).status();
        assert!(sent.expect("run kill").success());
    }
}

fn launch(arguments: &[String], folder: PathBuf) -> Child {
    let socket = folder.join("socket");
    // A socket that a killed server left behind accepts nobody.
    let _ = std::fs::remove_file(&socket);
    let mut command = Command::new(PROGRAM);
    command.args(["--save", "", "--appendonly", "no", "--unixsocket"]);
    command.arg(socket);
    if !arguments.iter().any(|argument| argument.ends_with("port")) {
        command.args(["--port", "0"]);
    }
    let output = Stdio::null();
    let command = command.args(arguments).current_dir(folder).stdout(output);
    command.spawn().expect("start the Valkey server")
}

impl Drop for Valkey {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
