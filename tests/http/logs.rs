//! Logs that nobody reads, or that cannot be written, hold up nothing.
#![cfg(target_os = "linux")]

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::time::Instant;

use crate::answers::{CHAT, chat};
use crate::support::client::Request;
use crate::support::{PATIENCE, binary, model, wait_for};

/// Requests that write more than a pipe holds (64 KiB).
const MANY: usize = 2_000;

struct Logging {
    child: Child,
    address: String,
    _config: tempfile::TempDir,
}

impl Logging {
    /// A server that logs to `stderr`.
    fn start(format: &str, stderr: Stdio) -> Self {
        // The log does not tell the port, so it is chosen before.
        let free = TcpListener::bind("127.0.0.1:0").expect("bind");
        let address = free.local_addr().expect("an address");
        drop(free);
        let folder = tempfile::tempdir().expect("make a folder");
        let path = folder.path().join("mortise.toml");
        let text = format!(
            "[log]\nformat = \"{format}\"\n[[models]]\nname = \"scripted\"\npath = {:?}\n\
             backend = \"scripted\"\n[models.script]\ndefault = \"x\"\n",
            model::byte_level()
        );
        std::fs::write(&path, text).expect("write the configuration");
        let child = Command::new(binary())
            .args(["serve", "--port", &address.port().to_string(), "--config"])
            .arg(&path)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()
            .expect("start mortise");
        let address = address.to_string();
        wait_for(|| match std::net::TcpStream::connect(&address) {
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        });
        let logging = Self {
            child,
            address,
            _config: folder,
        };
        wait_for(|| match logging.get("/ready") {
            200 => Ok(()),
            status => Err(format!("{status}")),
        });
        logging
    }

    fn get(&self, path: &str) -> u16 {
        Request::get(path).send(&self.address).status()
    }

    fn metric(&self, name: &str) -> f64 {
        let page = Request::get("/metrics").send(&self.address).text();
        let line = page.lines().find(|line| line.starts_with(name));
        let value = line.and_then(|line| line.rsplit(' ').next()?.parse().ok());
        value.unwrap_or_else(|| panic!("{name} is not in\n{page}"))
    }

    /// All requests are answered.
    fn serves(&mut self, requests: usize) {
        let answer = Request::post(CHAT, &chat("Hi")).send(&self.address).ok();
        assert_eq!(answer["choices"][0]["message"]["content"], "x");
        for _ in 0..requests {
            assert_eq!(self.get("/health"), 200);
        }
        Request::post(CHAT, &chat("Hi")).send(&self.address).ok();
    }

    fn stop(&mut self) -> ExitStatus {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", "TERM", &pid]).status();
        assert!(sent.expect("run kill").success());
        let begun = Instant::now();
        wait_for(|| {
            let status = self.child.try_wait().expect("ask");
            status.ok_or_else(|| format!("runs since {:?}", begun.elapsed()))
        })
    }

    fn stderr(&mut self) -> ChildStderr {
        self.child.stderr.take().expect("standard error is piped")
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_reader_that_goes_away_ends_nothing() {
    for (format, lines) in [("text", 0), ("json", 0), ("text", 3), ("json", 1)] {
        let mut server = Logging::start(format, Stdio::piped());
        let mut reader = BufReader::new(server.stderr());
        for _ in 0..lines {
            let mut line = String::new();
            reader.read_line(&mut line).expect("a line");
        }
        drop(reader);
        server.serves(50);
        assert!(server.metric("mortise_log_write_errors_total") >= 1.0);
        assert!(server.metric("mortise_log_lines_dropped_total") >= 1.0);
        assert_eq!(
            server.stop().code(),
            Some(0),
            "{format}, {lines} lines read"
        );
    }
}

#[test]
fn a_reader_that_stalls_holds_up_nothing() {
    for format in ["text", "json"] {
        let mut server = Logging::start(format, Stdio::piped());
        let stalled = server.stderr();
        server.serves(MANY);
        assert_eq!(server.stop().code(), Some(0), "{format}");
        drop(stalled);
    }
}

#[test]
fn a_reader_that_comes_back_gets_what_was_kept_and_the_number_of_what_was_not() {
    let mut server = Logging::start("json", Stdio::piped());
    let reader = BufReader::new(server.stderr());
    // Both the pipe and the queue overflow.
    for _ in 0..100 {
        for _ in 0..200 {
            server.get("/health");
        }
        if server.metric("mortise_log_lines_dropped_total") > 0.0 {
            break;
        }
    }
    let dropped = server.metric("mortise_log_lines_dropped_total");
    assert!(dropped > 0.0, "nothing was dropped");
    let begun = Instant::now();
    for line in reader.lines() {
        let line = line.expect("a line");
        let value: serde_json::Value = serde_json::from_str(&line)
            .unwrap_or_else(|error| panic!("{error}: no whole line: {line}"));
        if value["message"]
            .as_str()
            .is_some_and(|text| text.contains("dropped"))
        {
            let lines: f64 = value["lines"]
                .as_str()
                .expect("a number")
                .parse()
                .expect("one");
            assert!(lines >= dropped);
            return;
        }
        // A line that is written after those that were kept.
        server.get("/health");
        assert!(begun.elapsed() < PATIENCE, "no line tells what was dropped");
    }
    panic!("the log ended");
}

#[test]
fn a_full_disk_ends_nothing() {
    for format in ["text", "json"] {
        let full = OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .expect("/dev/full");
        let mut server = Logging::start(format, Stdio::from(full));
        server.serves(50);
        assert!(server.metric("mortise_log_write_errors_total") >= 1.0);
        assert_eq!(server.stop().code(), Some(0), "{format}");
    }
}

#[test]
fn a_closed_standard_error_ends_nothing() {
    // A handle that cannot be written to.
    let read_only = File::open("/dev/null").expect("/dev/null");
    let mut server = Logging::start("text", Stdio::from(read_only));
    server.serves(20);
    assert_eq!(server.stop().code(), Some(0));
}

/// A line that is cut off by the end of the process is still whole.
#[test]
fn the_last_lines_are_written_before_the_end() {
    for format in ["text", "json"] {
        let mut server = Logging::start(format, Stdio::piped());
        let reader = BufReader::new(server.stderr());
        for _ in 0..20 {
            server.get("/health");
        }
        assert_eq!(server.stop().code(), Some(0));
        let lines: Vec<String> = reader.lines().map_while(Result::ok).collect();
        let last = lines.last().expect("a line");
        assert!(last.contains("stopped"), "{last}");
    }
}

#[test]
fn a_failed_start_is_told_or_ends_all_the_same() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("bind");
    let port = taken.local_addr().expect("an address").port().to_string();
    let full = OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .expect("/dev/full");
    for stderr in [Stdio::piped(), Stdio::from(full)] {
        let child = Command::new(binary())
            .args(["serve", "--port", &port])
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn();
        let mut child = child.expect("start mortise");
        // Closed before anything is written.
        drop(child.stderr.take());
        let status = child.wait().expect("wait");
        assert_eq!(status.code(), Some(1));
    }
}
