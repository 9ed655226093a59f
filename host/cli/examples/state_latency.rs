//! Times that durable state takes, measured over HTTP with the embedded demo model:
//!
//! ```sh
//! cargo build --release && cargo run --release -p mortise --example state_latency
//! ```
//!
//! First the time to read a response of 1 MB beside 100,000 others, then the time of a streamed answer that is stored and
//! of one that is not, in turn. `STATE_LATENCY_URL` names a PostgreSQL database in place of a SQLite file.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mortise_store::{
    Change, Key, PostgresConfig, PostgresStore, Record, RecordKind, SqliteStore, Store, StoreConfig,
};
use mortise_test_support::Server;
use serde_json::{Value, json};

const RESPONSES: &str = "/v1/responses";
/// Owner of what a caller without a credential stores.
const OWNER: &str = "caller anonymous";
const STORED: usize = 100_000;
const LARGE: usize = 1_000_000;
const READS: usize = 2_000;
const ANSWERS: usize = 300;

fn main() {
    let folder = tempfile::tempdir().expect("make a folder");
    let path = folder.path().join("state.db");
    let url = std::env::var("STATE_LATENCY_URL").ok();
    let home = match &url {
        Some(url) => format!("url = {url:?}"),
        None => format!("path = {path:?}"),
    };
    let config = format!("[store]\n{home}\ntenant_max_records = 1000000\nmax_mib = 65536\n");
    let server = Server::configured(&config);
    let made = server.post(RESPONSES, &asked(true, false)).ok();
    drop(server);
    let large = fill(&path, url.as_deref(), &made);
    let begun = Instant::now();
    let server = Server::configured(&config);
    println!("start beside {STORED} responses: {:?}", begun.elapsed());
    let mut connection = Connection::open(&server);
    let request = format!(
        "GET {RESPONSES}/{large} HTTP/1.1\r\nhost: {}\r\n\r\n",
        server.address()
    );
    let mut bytes = 0;
    let reads = (0..READS).map(|_| connection.timed(&request, &mut bytes));
    let reads: Vec<Duration> = reads.collect();
    println!(
        "GET of a response of {bytes} bytes beside {STORED} others, {READS} times: {}",
        summary(reads)
    );

    let (mut with, mut without) = (Vec::new(), Vec::new());
    for round in 0..2 * ANSWERS {
        let store = round % 2 == 0;
        let body = asked(store, true).to_string();
        let request = format!(
            "POST {RESPONSES} HTTP/1.1\r\nhost: {}\r\ncontent-length: {}\r\n\r\n{body}",
            server.address(),
            body.len()
        );
        let time = connection.timed(&request, &mut bytes);
        if store { &mut with } else { &mut without }.push(time);
    }
    let ratio = median(&with).as_secs_f64() / median(&without).as_secs_f64();
    println!(
        "streamed answer, not stored, {ANSWERS} times: {}",
        summary(without)
    );
    println!(
        "streamed answer, stored, {ANSWERS} times: {}",
        summary(with)
    );
    println!("stored / not stored, medians: {ratio:.4}");
}

fn asked(store: bool, stream: bool) -> Value {
    json!({
        "model": "mortise-demo", "input": "Tell me of the wind.", "store": store, "stream": stream,
        "max_output_tokens": 64, "temperature": 0,
    })
}

/// Store many responses, one of them large, as the server stored this one. Returns the id of the large one.
fn fill(path: &std::path::Path, url: Option<&str>, made: &Value) -> String {
    let sizes = [64 << 30, 64 << 30, 1_000_000];
    let runtime = tokio::runtime::Runtime::new().expect("start threads");
    runtime.block_on(async {
        let store: Arc<dyn Store> = match url {
            Some(url) => {
                let config = PostgresConfig::new(url, None, sizes).expect("an address");
                Arc::new(PostgresStore::open(&config).await.expect("opens"))
            }
            None => Arc::new(
                SqliteStore::open(&StoreConfig {
                    path: Some(path.to_owned()),
                    max_bytes: sizes[0],
                    owner_max_bytes: sizes[1],
                    owner_max_records: sizes[2],
                    sync_answers: false,
                })
                .expect("opens"),
            ),
        };
        let owner = Arc::from(OWNER);
        let key = |id: String| Key::new(&owner, RecordKind::Response, id);
        let id = made["id"].as_str().expect("an id").to_owned();
        let found = store.get(key(id.clone())).await.expect("read");
        let found = found.expect("the response of a caller without a tenant");
        let text = String::from_utf8(found.body.clone()).expect("UTF-8");
        let another = |number: usize, body: &str| {
            let name = format!("{id}{number}");
            Change::Put(Record {
                body: body.replace(&id, &name).into_bytes(),
                key: key(name),
                ..found.clone()
            })
        };
        for first in (1..=STORED).step_by(1000) {
            let changes = (first..first + 1000).map(|number| another(number, &text));
            store.commit(changes.collect()).await.expect("written");
        }
        let mut large = made.clone();
        large["output"][0]["content"][0]["text"] = json!("word ".repeat(LARGE / 5));
        let change = another(0, &large.to_string());
        store.commit(vec![change]).await.expect("written");
        format!("{id}0")
    })
}

/// A connection that is kept.
struct Connection(BufReader<TcpStream>);

impl Connection {
    fn open(server: &Server) -> Self {
        let stream = TcpStream::connect(server.address()).expect("connect");
        stream.set_nodelay(true).expect("set an option");
        Self(BufReader::new(stream))
    }

    /// Time from the request to the last byte of its answer.
    fn timed(&mut self, request: &str, bytes: &mut usize) -> Duration {
        let begun = Instant::now();
        self.0
            .get_mut()
            .write_all(request.as_bytes())
            .expect("write");
        let mut length = None;
        let status = self.line();
        assert!(status.contains(" 200 "), "{status}");
        loop {
            let line = self.line().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = Some(value.trim().parse::<usize>().expect("a number"));
            }
        }
        *bytes = match length {
            Some(length) => self.body(length),
            None => self.chunks(),
        };
        begun.elapsed()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("read");
        line.trim_end().to_owned()
    }

    fn body(&mut self, length: usize) -> usize {
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).expect("read");
        length
    }

    fn chunks(&mut self) -> usize {
        let mut total = 0;
        loop {
            let line = self.line();
            let length = usize::from_str_radix(&line, 16).expect("the length of a chunk");
            total += self.body(length);
            self.line();
            if length == 0 {
                return total;
            }
        }
    }
}

fn median(times: &[Duration]) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort();
    sorted[sorted.len() / 2]
}

fn summary(times: Vec<Duration>) -> String {
    let mut sorted = times;
    sorted.sort();
    let at = |part: usize| sorted[(sorted.len() - 1) * part / 100];
    format!("median {:?}, 95 % {:?}, 99 % {:?}", at(50), at(95), at(99))
}
