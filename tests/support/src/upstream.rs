//! A server that stands for a model's upstream and does exactly what a test says, bytes on the wire
//! included. Every connection has a thread of its own.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::PATIENCE;

/// A request as it came.
#[derive(Debug, Clone)]
pub struct Received {
    /// `POST /v1/chat/completions HTTP/1.1`
    pub line: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Received {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("a body in JSON")
    }
}

/// One request that waits for its answer.
pub struct Asked {
    pub request: Received,
    pub stream: TcpStream,
}

impl Asked {
    /// Write bytes as they are. Whoever asked may be gone.
    pub fn write(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).is_ok()
    }

    /// A whole answer, after which the connection is closed.
    pub fn answer(&mut self, status: u16, headers: &str, body: &str) {
        let length = body.len();
        self.write(format!(
            "HTTP/1.1 {status} x\r\ncontent-length: {length}\r\nconnection: close\r\n{headers}\r\n{body}"
        ));
    }

    /// The head of a stream of events. Each connection serves one request.
    pub fn begin(&mut self) {
        self.write(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\
             connection: close\r\n\r\n",
        );
    }

    /// A chunk of a stream.
    pub fn chunk(&mut self, bytes: &str) -> bool {
        self.write(format!("{:x}\r\n{bytes}\r\n", bytes.len()))
    }

    /// An event whose choice has this delta.
    pub fn delta(&mut self, delta: &Value) -> bool {
        let chunk = json!({"choices": [{"index": 0, "delta": delta}]});
        self.chunk(&format!("data: {chunk}\n\n"))
    }

    /// The last events of a stream, and its end.
    pub fn finish(&mut self, reason: &str) {
        let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]});
        let usage = json!({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}});
        self.chunk(&format!("data: {end}\n\ndata: {usage}\n\ndata: [DONE]\n\n"));
        self.write("0\r\n\r\n");
    }

    /// A stream that says one text.
    pub fn say(&mut self, text: &str) {
        self.begin();
        self.delta(&json!({"content": text}));
        self.finish("stop");
    }

    /// Wait until the other side has closed the connection.
    pub fn wait_for_close(&mut self) {
        let _ = self.stream.set_read_timeout(Some(PATIENCE));
        let mut rest = [0; 64];
        loop {
            match self.stream.read(&mut rest) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return,
                Err(error) => panic!("the connection was not closed: {error}"),
            }
        }
    }
}

type Answer = dyn Fn(Asked) + Send + Sync;

/// The server. It goes on until the test process ends.
pub struct FakeUpstream {
    address: String,
    received: Arc<Mutex<Vec<Received>>>,
    health: Arc<AtomicU16>,
}

impl FakeUpstream {
    /// A server that answers chat requests like this, and lists one model, `m`.
    pub fn start(answer: impl Fn(Asked) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
        let address = listener.local_addr().expect("an address").to_string();
        let received: Arc<Mutex<Vec<Received>>> = Arc::default();
        let (kept, answer): (_, Arc<Answer>) = (Arc::clone(&received), Arc::new(answer));
        let health = Arc::new(AtomicU16::new(200));
        let status = Arc::clone(&health);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (kept, answer) = (Arc::clone(&kept), Arc::clone(&answer));
                let status = Arc::clone(&status);
                std::thread::spawn(move || serve(stream, &kept, &status, &*answer));
            }
        });
        Self {
            address,
            received,
            health,
        }
    }

    /// `127.0.0.1:PORT`
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The base URL.
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// The status of what is no chat request, from now on.
    pub fn set_health(&self, status: u16) {
        self.health.store(status, SeqCst);
    }

    /// Chat requests so far.
    pub fn received(&self) -> Vec<Received> {
        self.received.lock().expect("the requests").clone()
    }
}

/// Serve one connection: lists of models as often as they are asked for, and one chat request.
fn serve(stream: TcpStream, received: &Mutex<Vec<Received>>, health: &AtomicU16, answer: &Answer) {
    let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
    while let Some(request) = read(&mut reader) {
        let mut asked = Asked {
            stream: stream.try_clone().expect("a second handle"),
            request,
        };
        if asked.request.line.starts_with("GET ") {
            let list =
                json!({"object": "list", "data": [{"id": "m", "owned_by": "vllm"}]}).to_string();
            let status = health.load(SeqCst);
            let head = format!("HTTP/1.1 {status} x\r\ncontent-type: application/json\r\n");
            if !asked.write(format!(
                "{head}content-length: {}\r\n\r\n{list}",
                list.len()
            )) {
                return;
            }
            continue;
        }
        let mut all = received.lock().expect("the requests");
        all.push(asked.request.clone());
        drop(all);
        answer(asked);
        return;
    }
}

fn read(reader: &mut BufReader<TcpStream>) -> Option<Received> {
    let mut line = String::new();
    let mut next = |reader: &mut BufReader<TcpStream>| {
        line.clear();
        let count = reader.read_line(&mut line).ok()?;
        (count > 0).then(|| line.trim_end().to_owned())
    };
    let first = next(reader)?;
    let mut headers = Vec::new();
    loop {
        let line = next(reader)?;
        let Some((name, value)) = line.split_once(':') else {
            break;
        };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let mut received = Received {
        line: first,
        headers,
        body: Vec::new(),
    };
    let length = received
        .header("content-length")
        .unwrap_or("0")
        .parse()
        .ok()?;
    received.body = vec![0; length];
    reader.read_exact(&mut received.body).ok()?;
    Some(received)
}
