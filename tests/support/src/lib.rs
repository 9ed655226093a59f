//! Starts the built server for black-box tests, and speaks just enough HTTP to be precise about
//! what goes over the wire.

#![allow(missing_docs, reason = "names say it, and only tests read them")]

pub mod bystander;
pub mod client;
pub mod contract;
pub mod example;
pub mod frames;
pub mod gguf_file;
pub mod model;
pub mod postgres;
pub mod schema;
pub mod upstream;
pub mod valkey;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use client::{Request, Response, Stream};

/// Longest start that a test waits for; a busy machine compiles no plugin, but reads a model.
const START_LIMIT: Duration = Duration::from_secs(120);

/// Longest time that a test waits for what must come; only a test that fails waits so long.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Wait until something has come about.
pub fn until(what: &str, come: impl Fn() -> bool) {
    wait_for(|| come().then_some(()).ok_or_else(|| what.to_owned()));
}

/// Wait for a value; meanwhile there is a text that says what is missing.
pub fn wait_for<T>(mut come: impl FnMut() -> Result<T, String>) -> T {
    let begun = Instant::now();
    loop {
        match come() {
            Ok(value) => return value,
            Err(missing) => assert!(begun.elapsed() < PATIENCE, "waited in vain: {missing}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A running server. Dropping it kills it.
pub struct Server {
    child: Child,
    address: String,
    log: Arc<Mutex<Vec<String>>>,
    stalled: Arc<AtomicBool>,
    config: Option<tempfile::TempDir>,
}

impl Server {
    /// `mortise serve --port 0` with these arguments, once it listens.
    pub fn start(arguments: &[&str]) -> Self {
        Self::launch(serve(arguments), None)
    }

    /// Start another program than the one that cargo built, with these arguments, and wait until it listens.
    pub fn of(program: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(["serve", "--port", "0"]).args(arguments);
        Self::launch(command, None)
    }

    /// A server with this configuration file.
    pub fn configured(config: &str) -> Self {
        Self::configured_with(config, &[])
    }

    /// A server with this configuration file and these environment variables.
    pub fn configured_with(config: &str, variables: &[(&str, &Path)]) -> Self {
        Self::with_file(config, |command| {
            command.envs(variables.iter().copied());
        })
    }

    /// A server with this configuration file that another program starts: `wrapper` and its arguments, behind
    /// which the server's command line follows.
    pub fn wrapped(config: &str, wrapper: &[String]) -> Self {
        Self::with_file(config, |command| {
            let Some((program, arguments)) = wrapper.split_first() else {
                return;
            };
            let mut outer = Command::new(program);
            outer
                .args(arguments)
                .arg(command.get_program())
                .args(command.get_args());
            *command = outer;
        })
    }

    /// Write another configuration to the file that the server was started with.
    pub fn configure(&self, config: &str) {
        let folder = self.config.as_ref().expect("a configuration file");
        std::fs::write(folder.path().join("mortise.toml"), config).expect("write the file");
    }

    /// Text of the configuration file that the server was started with.
    pub fn configuration(&self) -> String {
        let folder = self.config.as_ref().expect("a configuration file");
        std::fs::read_to_string(folder.path().join("mortise.toml")).expect("read the file")
    }

    fn with_file(config: &str, change: impl FnOnce(&mut Command)) -> Self {
        let folder = tempfile::tempdir().expect("make a folder");
        let path = folder.path().join("mortise.toml");
        std::fs::write(&path, config).expect("write the configuration");
        let path = path.to_str().expect("a path in UTF-8").to_owned();
        let mut command = serve(&["--config", &path]);
        change(&mut command);
        Self::launch(command, Some(folder))
    }

    /// A server whose model says what `script` tells it to; `more` is further configuration.
    pub fn scripted(script: &str, more: &str) -> Self {
        let model = model::byte_level();
        Self::configured(&format!(
            "{more}\n[[models]]\nname = \"scripted\"\npath = {model:?}\nbackend = \"scripted\"\n\
             [models.script]\n{script}\n"
        ))
    }

    fn launch(mut command: Command, config: Option<tempfile::TempDir>) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("start mortise");
        let stderr = child.stderr.take().expect("standard error is piped");
        let log: Arc<Mutex<Vec<String>>> = Arc::default();
        let (lines, listening) = channel();
        let kept = Arc::clone(&log);
        let stalled = Arc::<AtomicBool>::default();
        let stalls = Arc::clone(&stalled);
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                while stalls.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(10));
                }
                kept.lock().expect("the log").push(line.clone());
                let _ = lines.send(line);
            }
        });
        let address = wait_for_address(&listening, &log);
        Self {
            child,
            address,
            log,
            stalled,
            config,
        }
    }

    /// `127.0.0.1:PORT`
    pub fn address(&self) -> &str {
        &self.address
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn send(&self, request: &Request) -> Response {
        request.send(&self.address)
    }

    /// Send all at once, and read all answers.
    pub fn send_together(&self, requests: &[Request]) -> Vec<Response> {
        let begun = requests.iter().map(|request| request.begin(&self.address));
        let begun: Vec<_> = begun.collect();
        begun.into_iter().map(Stream::response).collect()
    }

    pub fn get(&self, path: &str) -> Response {
        self.send(&Request::get(path))
    }

    pub fn post(&self, path: &str, body: &serde_json::Value) -> Response {
        self.send(&Request::post(path, body))
    }

    /// The first value on the page of metrics whose line begins like this.
    pub fn metric(&self, beginning: &str) -> f64 {
        let page = self.get("/metrics").text();
        let line = page.lines().find(|line| line.starts_with(beginning));
        let value = line.and_then(|line| line.rsplit(' ').next()?.parse().ok());
        value.unwrap_or_else(|| panic!("{beginning} is not in\n{page}"))
    }

    /// All lines that were logged so far.
    pub fn log(&self) -> Vec<String> {
        self.log.lock().expect("the log").clone()
    }

    /// Stop reading the log, or go on.
    pub fn stall_log(&self, stalled: bool) {
        self.stalled.store(stalled, Ordering::Relaxed);
    }

    /// Wait until a line of the log satisfies `wanted`.
    pub fn wait_for_log(&self, wanted: impl Fn(&str) -> bool) -> String {
        wait_for(|| {
            let log = self.log();
            let found = log.iter().find(|line| wanted(line)).cloned();
            found.ok_or_else(|| format!("no such line in the log:\n{}", log.join("\n")))
        })
    }

    pub fn signal(&self, name: &str) {
        let status = Command::new("kill")
            .args(["-s", name, &self.child.id().to_string()])
            .status()
            .expect("run kill");
        assert!(status.success());
    }

    /// Wait for the end of the process.
    pub fn wait(&mut self) -> ExitStatus {
        wait_for(|| {
            let status = self.child.try_wait().expect("ask for the child's end");
            status.ok_or_else(|| format!("still running; log:\n{}", self.log().join("\n")))
        })
    }

    /// The process's number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("ask").is_some()
    }

    /// Whether the process runs and has not panicked.
    pub fn assert_sound(&mut self) {
        assert!(!self.has_ended(), "the server has ended");
        let log = self.log();
        let panic = log.iter().find(|line| line.contains("panic"));
        assert!(panic.is_none(), "{panic:?}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A folder that outlives the run.
pub fn kept(name: &str) -> PathBuf {
    let folder = target().join("tmp").join(name);
    std::fs::create_dir_all(&folder).expect("make a folder below target/");
    folder
}

/// Whether the programs are there; without them a test has nothing to run.
pub fn have(programs: &[&str]) -> bool {
    let lacks = |program: &&&str| {
        let asked = Command::new(program).arg("--version").output();
        !asked.is_ok_and(|output| output.status.success())
    };
    let Some(missing) = programs.iter().find(lacks) else {
        return true;
    };
    assert!(
        std::env::var_os("MORTISE_REQUIRE_SDKS").is_none(),
        "`{missing}` is not installed and MORTISE_REQUIRE_SDKS is set"
    );
    skipped(missing);
    false
}

/// Say that the running test lacks a program.
pub(crate) fn skipped(missing: &str) {
    skipped_because(&format!("`{missing}` is not installed"));
}

/// Say why the running test asserts nothing.
pub fn skipped_because(reason: &str) {
    // Past the capture of the test runner, which shows nothing of tests that pass.
    let test = std::thread::current();
    let name = test.name().unwrap_or("a test");
    let line = format!("skipped: {name}: {reason}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// The server that cargo built beside the running test.
pub fn binary() -> PathBuf {
    let path = profile().join(format!("mortise{}", std::env::consts::EXE_SUFFIX));
    assert!(path.is_file(), "{} is not built", path.display());
    path
}

/// Cargo's target folder.
pub fn target() -> PathBuf {
    let profile = profile();
    profile.parent().expect("a folder").to_owned()
}

/// The folder of what cargo builds with the profile of the running test, which lies in `deps` below it.
fn profile() -> PathBuf {
    let test = std::env::current_exe().expect("the path of the running test");
    let folder = test.parent().and_then(Path::parent);
    folder.expect("a test below target/").to_owned()
}

/// The command line of a server on a free port.
fn serve(arguments: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.args(["serve", "--port", "0"]).args(arguments);
    command
}

fn wait_for_address(lines: &Receiver<String>, log: &Mutex<Vec<String>>) -> String {
    let begun = Instant::now();
    loop {
        let left = START_LIMIT.saturating_sub(begun.elapsed());
        match lines.recv_timeout(left) {
            Ok(line) => {
                let listening = line.split_once("listening on http");
                let address = listening.and_then(|(_, address)| address.split_once("://"));
                if let Some((_, address)) = address {
                    let end = address.find(['"', ' ']).unwrap_or(address.len());
                    return address[..end].to_owned();
                }
            }
            Err(RecvTimeoutError::Disconnected | RecvTimeoutError::Timeout) => {
                let log = log.lock().expect("the log").join("\n");
                panic!("the server did not start:\n{log}");
            }
        }
    }
}
