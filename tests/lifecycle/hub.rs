//! A hub on this machine with one repository, which stops in the middle of a file when it is told to.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A hub that has `files` in every repository.
pub(crate) struct FakeHub {
    pub(crate) address: String,
    state: Arc<State>,
}

struct State {
    files: Vec<(String, Vec<u8>)>,
    /// Bytes of an answer after which nothing more is sent; `usize::MAX` sends all.
    pause_at: AtomicUsize,
    /// Request lines with the range that was asked for.
    seen: Mutex<Vec<String>>,
}

impl FakeHub {
    pub(crate) fn start(files: &[(&str, Vec<u8>)]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("an address"));
        let files = files
            .iter()
            .map(|(name, bytes)| ((*name).to_owned(), bytes.clone()));
        let state = Arc::new(State {
            files: files.collect(),
            pause_at: AtomicUsize::new(usize::MAX),
            seen: Mutex::default(),
        });
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&shared);
                thread::spawn(move || state.answer(stream));
            }
        });
        Self { address, state }
    }

    /// The variables by which a server finds this hub.
    pub(crate) fn variables(&self) -> [(&str, &Path); 1] {
        [("HF_ENDPOINT", Path::new(&self.address))]
    }

    /// Answers stop after so many bytes, until they go on.
    pub(crate) fn pause_at(&self, bytes: usize) {
        self.state.pause_at.store(bytes, SeqCst);
    }

    pub(crate) fn go_on(&self) {
        self.pause_at(usize::MAX);
    }

    pub(crate) fn seen(&self) -> Vec<String> {
        self.state.seen.lock().expect("the list").clone()
    }
}

impl State {
    fn answer(&self, mut stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().expect("a copy"));
        let (mut line, mut from) = (String::new(), 0);
        if reader.read_line(&mut line).is_err() {
            return;
        }
        loop {
            let mut header = String::new();
            if reader.read_line(&mut header).is_err() || header.trim().is_empty() {
                break;
            }
            let range = header.trim().to_ascii_lowercase();
            if let Some(range) = range.strip_prefix("range: bytes=") {
                from = range.trim_end_matches('-').parse().expect("a range");
            }
        }
        self.seen
            .lock()
            .expect("the list")
            .push(format!("{} from {from}", line.trim()));
        let words: Vec<&str> = line.split(' ').collect();
        let (method, path) = (words[0], words[1]);
        if path.starts_with("/api/models/") {
            let files = self
                .files
                .iter()
                .map(|(name, _)| format!(r#"{{"rfilename":"{name}"}}"#));
            let files = files.collect::<Vec<_>>().join(",");
            let body = format!(r#"{{"sha":"{COMMIT}","siblings":[{files}]}}"#);
            self.send(&mut stream, "200 OK", "", method, body.as_bytes());
            return;
        }
        match self
            .files
            .iter()
            .find(|(name, _)| path.ends_with(&format!("/{name}")))
        {
            Some((name, bytes)) => {
                let status = if from > 0 { "206 Partial" } else { "200 OK" };
                let tag = format!("etag: \"tag-{}-{}\"\r\n", name.len(), bytes.len());
                self.send(&mut stream, status, &tag, method, &bytes[from..]);
            }
            None => self.send(&mut stream, "404 Not Found", "", method, b""),
        }
    }

    fn send(&self, stream: &mut TcpStream, status: &str, headers: &str, method: &str, body: &[u8]) {
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n{headers}\r\n"
        );
        // Whoever asked may be gone.
        let _ = stream.write_all(head.as_bytes());
        if method == "HEAD" {
            return;
        }
        for (at, piece) in body.chunks(4096).enumerate() {
            while at * 4096 >= self.pause_at.load(SeqCst) {
                thread::sleep(Duration::from_millis(5));
            }
            if stream.write_all(piece).is_err() {
                return;
            }
        }
    }
}
