//! State outlives the process: a server is killed at random moments under load, and everything that it acknowledged
//! is there after the next start, once.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::TcpStream;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::answers::{CHAT, chat};
use crate::batches::{BATCHES, lines, outputs};
use crate::files::{form, upload};
use crate::responses::RESPONSES;
use crate::retrieval;
use crate::support::client::Request;
use crate::support::postgres::Postgres;
use crate::support::{Server, wait_for};

const SCRIPT: &str = "default = \"Hello there, wörld 👋.\"\ntoken_delay_ms = 1\n";
const STORES: &str = "/v1/vector_stores";

/// Lines of each batch.
const LINES: usize = 4;

/// Records of earlier rounds that each round looks at again.
const SAMPLE: usize = 40;

fn number_of(variable: &str, default: usize) -> usize {
    let given = std::env::var(variable).ok();
    given
        .and_then(|given| given.parse().ok())
        .unwrap_or(default)
}

/// Rounds, each ended by SIGKILL.
pub(crate) fn rounds() -> usize {
    number_of("MORTISE_KILLS", 4)
}

/// Rounds between two starts after an end in order, which those after kills are compared with.
const CONTROL: usize = 4;

/// Most that a start may take longer because the server before it was killed.
const LONGER: Duration = Duration::from_secs(2);

/// Rounds from which the times of starts are compared, too: a few starts of a machine that does other things mean nothing.
const MANY: usize = 100;

/// Time that a start took, and the processor's part of it.
#[derive(Debug, Clone, Copy)]
struct Start {
    wall: Duration,
    processor: Duration,
}

fn started(place: &str) -> (Server, Start) {
    let begun = Instant::now();
    let server = loaded(place);
    let wall = begun.elapsed();
    let processor = processor_time(server.pid());
    (server, Start { wall, processor })
}

/// Processor time of a process so far, in all of its threads.
fn processor_time(pid: u32) -> Duration {
    /// Ticks of a second, as Linux shows them on every architecture.
    const TICKS: u64 = 100;
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process");
    // The name, which may hold spaces, ends with the last parenthesis.
    let (_, fields) = text.rsplit_once(')').expect("a name");
    let fields = fields.split_whitespace().skip(11).take(2);
    let ticks: u64 = fields
        .map(|field| field.parse::<u64>().expect("a number"))
        .sum();
    Duration::from_millis(ticks * 1000 / TICKS)
}

/// End a server in order, and start another at its store.
fn start_in_order(mut server: Server, place: &str) -> (Server, Start) {
    server.signal("TERM");
    server.wait();
    drop(server);
    started(place)
}

/// Numbers that look random, the same for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % bound
    }
}

fn server(path: &Path) -> Server {
    Server::scripted(SCRIPT, &format!("[store]\npath = {path:?}\n"))
}

/// A server with a model that makes vectors, too. `place` is the key that says where its store is.
fn loaded(place: &str) -> Server {
    let bounds = "tenant_max_records = 10000000\nmax_mib = 65536\n";
    retrieval::server(&format!("[store]\n{place}\n{bounds}"))
}

/// A request that may meet the end of the server; its body if the answer came whole.
fn try_send(address: &str, request: &Request) -> Option<Value> {
    use std::io::Read as _;
    let mut stream = TcpStream::connect(address).ok()?;
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .ok()?;
    let mut text = format!(
        "{} {} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-length: {}\r\n",
        request.method,
        request.path,
        request.body.len()
    );
    for (name, value) in &request.headers {
        text += &format!("{name}: {value}\r\n");
    }
    text += "\r\n";
    stream.write_all(text.as_bytes()).ok()?;
    stream.write_all(&request.body).ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let text = String::from_utf8(answer).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    if !head.starts_with("HTTP/1.1 200") {
        return None;
    }
    if let Some(event) = body
        .lines()
        .rfind(|line| line.contains("\"type\":\"response.completed\""))
    {
        let event: Value = serde_json::from_str(event.strip_prefix("data: ")?).ok()?;
        return Some(event["response"].clone());
    }
    serde_json::from_str(body).ok()
}

/// Something that the server has acknowledged: the path under which it must be found, and its body.
type Acknowledged = (String, Value);

/// The load of a test: what was sent, and what was acknowledged.
#[derive(Default)]
struct Load {
    next: AtomicUsize,
    acknowledged: Mutex<Vec<Acknowledged>>,
    /// Path of the vector store of the round.
    store: Mutex<Option<String>>,
}

impl Load {
    /// Send requests until the server is gone.
    fn run(&self, address: &str, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let sent = match number % 16 {
                6 => batch(address, number),
                14 => self.document(address, number),
                _ => simple(address, number),
            };
            if let Some(sent) = sent {
                self.acknowledged.lock().expect("the list").push(sent);
            }
        }
    }

    /// A document in the vector store of the round, made by whoever comes first.
    fn document(&self, address: &str, number: usize) -> Option<Acknowledged> {
        let mut store = self.store.lock().expect("the path");
        if store.is_none() {
            let body = json!({"name": format!("of {number}")});
            let made = try_send(address, &keyed(STORES, &body, number))?;
            *store = Some(format!("{STORES}/{}", made["id"].as_str()?));
        }
        let store = store.clone()?;
        let text = format!("The number is word{number}.");
        let body = form(&[("purpose", "user_data")], Some(("a.md", text.as_bytes())));
        let file = try_send(address, &upload(&body))?;
        let attach = json!({"file_id": file["id"]});
        let path = format!("{store}/files");
        let mut attached = try_send(address, &keyed(&path, &attach, number))?;
        attached["number"] = json!(number);
        Some((format!("{path}/{}", file["id"].as_str()?), attached))
    }
}

fn keyed(path: &str, body: &Value, number: usize) -> Request {
    Request::post(path, body).header("idempotency-key", &format!("key-{number} {path}"))
}

/// A request of one step, and the folder of what it makes.
fn request(number: usize) -> (Request, &'static str) {
    let response = |field: &str| {
        let mut body = json!({"model": "scripted", "input": format!("Hi {number}")});
        if !field.is_empty() {
            body[field] = json!(true);
        }
        (keyed(RESPONSES, &body, number), RESPONSES)
    };
    match number % 4 {
        0 => response(""),
        1 => response("stream"),
        2 => response("background"),
        _ => {
            let mut body = chat("Hi");
            body["store"] = json!(true);
            body["metadata"] = json!({"number": number.to_string()});
            (keyed(CHAT, &body, number), CHAT)
        }
    }
}

fn simple(address: &str, number: usize) -> Option<Acknowledged> {
    let (request, folder) = request(number);
    let made = try_send(address, &request)?;
    Some((format!("{folder}/{}", made["id"].as_str()?), made))
}

fn batch(address: &str, number: usize) -> Option<Acknowledged> {
    let input = lines(LINES);
    let body = form(
        &[("purpose", "batch")],
        Some(("in.jsonl", input.as_bytes())),
    );
    let file = try_send(address, &upload(&body))?;
    let body = json!({
        "input_file_id": file["id"], "endpoint": CHAT, "completion_window": "24h",
        "metadata": {"number": number.to_string()},
    });
    let made = try_send(address, &keyed(BATCHES, &body, number))?;
    Some((format!("{BATCHES}/{}", made["id"].as_str()?), made))
}

/// The object at a path when it has come to its end.
fn ended(server: &Server, path: &str) -> Value {
    wait_for(|| {
        let now = server.get(path).ok();
        match now["status"] == "completed" {
            true => Ok(now),
            false => Err(format!("{path} is {now}")),
        }
    })
}

/// Something that was acknowledged is there, and nothing of it twice.
fn check(server: &Server, (path, body): &Acknowledged) {
    if path.starts_with(BATCHES) {
        let batch = ended(server, path);
        let counts = json!({"total": LINES, "completed": LINES, "failed": 0});
        assert_eq!(batch["request_counts"], counts, "{path}");
        assert_eq!(outputs(server, &batch["output_file_id"]).len(), LINES);
    } else if let Some((store, _)) = path.split_once("/files/") {
        ended(server, path);
        let word = format!("word{}", body["number"]);
        let search = json!({"query": word, "max_num_results": 50, "ranking_options":
            {"hybrid_search": {"embedding_weight": 0, "text_weight": 1}}});
        let found = server.post(&format!("{store}/search"), &search).ok();
        let texts = found["data"].as_array().expect("results").iter();
        let hits = texts.filter(|one| {
            one["content"][0]["text"]
                .as_str()
                .is_some_and(|text| text.contains(&word))
        });
        assert_eq!(hits.count(), 1, "{path}: {found}");
    } else if body["background"] == true {
        ended(server, path);
    } else {
        let now = server.get(path).ok();
        for field in ["output", "choices"] {
            assert_eq!(now[field], body[field], "{path}");
        }
    }
}

/// No completion of these numbers is there twice.
fn check_once(server: &Server, numbers: impl Iterator<Item = usize>) {
    for number in numbers.filter(|number| number % 4 == 3) {
        let listed = server
            .get(&format!("{CHAT}?metadata[number]={number}"))
            .ok();
        let found = listed["data"].as_array().expect("a list").len();
        assert!(found <= 1, "completion {number} is there {found} times");
    }
}

/// Requests that were sent again with their keys have one answer.
fn send_again(server: &Server, load: &Load, numbers: impl Iterator<Item = usize>) {
    let acknowledged = load.acknowledged.lock().expect("the list");
    let known: BTreeMap<String, Value> = acknowledged.iter().cloned().collect();
    drop(acknowledged);
    for number in numbers.filter(|number| !matches!(number % 16, 6 | 14)) {
        let again = simple(server.address(), number).expect("an answer");
        match known.get(&again.0) {
            Some(known) => assert_eq!(known["id"], again.1["id"]),
            None => load.acknowledged.lock().expect("the list").push(again),
        }
    }
}

/// Kill servers at a store under load, and look after each for what they had acknowledged.
fn kill_and_look(place: &str) {
    let kills = rounds();
    let seed = number_of("MORTISE_KILLS_SEED", 13);
    let mut random = Random(seed as u64);
    let (load, mut checked) = (Load::default(), 0);
    let (mut starts, mut controls) = (Vec::new(), Vec::new());
    let (mut first, mut sent) = (0, 0_usize);
    for round in 0..=kills {
        let (mut server, start) = started(place);
        starts.push(start);
        send_again(&server, &load, first.max(sent.saturating_sub(8))..sent);
        let acknowledged = load.acknowledged.lock().expect("the list").clone();
        let last = round == kills;
        let from = if last { 0 } else { checked };
        acknowledged[from..]
            .iter()
            .for_each(|one| check(&server, one));
        for _ in 0..SAMPLE.min(from) {
            check(&server, &acknowledged[random.below(from)]);
        }
        check_once(&server, first..sent);
        (checked, first) = (acknowledged.len(), sent);
        if round % CONTROL == CONTROL - 1 {
            let control;
            (server, control) = start_in_order(server, place);
            controls.push(control);
        }
        if last {
            break;
        }
        *load.store.lock().expect("the path") = None;
        let (address, stop) = (server.address().to_owned(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| load.run(&address, &stop));
            }
            std::thread::sleep(Duration::from_millis(50 + random.below(700) as u64));
            server.signal("KILL");
            stop.store(true, Ordering::Relaxed);
        });
        sent = load.next.load(Ordering::Relaxed);
    }
    let acknowledged = load.acknowledged.into_inner().expect("the list");
    assert!(
        acknowledged.len() > 4 * kills,
        "the load was no load: {}",
        acknowledged.len()
    );
    // The first start finds nothing to go on with.
    starts.remove(0);
    tell(seed, &acknowledged, &starts, &controls);
    compare(&starts, &controls);
}

/// No start takes longer because of a kill than it may.
fn compare(starts: &[Start], controls: &[Start]) {
    let longest = |all: &[Start], part: fn(&Start) -> Duration| {
        let longest = all.iter().map(part).max();
        longest.expect("a start")
    };
    let mut parts: Vec<fn(&Start) -> Duration> = vec![|start| start.processor];
    if starts.len() >= MANY {
        parts.push(|start| start.wall);
    }
    for part in parts {
        let (killed, control) = (longest(starts, part), longest(controls, part));
        assert!(killed <= control + LONGER, "{killed:?} beside {control:?}");
    }
}

/// Figures of a run.
fn tell(seed: usize, acknowledged: &[Acknowledged], starts: &[Start], controls: &[Start]) {
    let counts = [BATCHES, "/files/", RESPONSES, CHAT].map(|kind| {
        let of_kind = acknowledged.iter().filter(|(path, _)| path.contains(kind));
        format!("{kind} {}", of_kind.count())
    });
    let figures = |all: &[Start], part: fn(&Start) -> Duration| {
        let mut all: Vec<Duration> = all.iter().map(part).collect();
        all.sort();
        (all[all.len() / 2], all[all.len() - 1])
    };
    eprintln!(
        "seed {seed}, {} kills under load, acknowledged {counts:?}",
        starts.len()
    );
    for (name, all) in [("killed", starts), ("ended in order", controls)] {
        let (wall, processor) = (
            figures(all, |start| start.wall),
            figures(all, |start| start.processor),
        );
        eprintln!(
            "starts after a server that was {name}, median and longest: {wall:?}; processor: {processor:?}"
        );
    }
}

#[test]
fn feature_t11_what_was_acknowledged_outlives_sigkill() {
    let folder = tempfile::tempdir().expect("make a folder");
    let path = folder.path().join("state.db");
    kill_and_look(&format!("path = {path:?}"));
    let report = mortise(&["store", "check", "--store", path.to_str().expect("UTF-8")]);
    assert!(report.contains("\"whole\": true"), "{report}");
}

/// `MORTISE_KILLS=500 cargo test --release -p mortise --test http -- --ignored --nocapture in_postgresql`
#[test]
#[ignore = "waits in each round until the work of the killed server is free"]
fn feature_z8_what_was_acknowledged_in_postgresql_outlives_sigkill() {
    if let Some(postgres) = Postgres::shared() {
        let url = postgres.database("killed");
        kill_and_look(&format!("url = {url:?}"));
    }
}

pub(crate) fn mortise(arguments: &[&str]) -> String {
    let output = std::process::Command::new(crate::support::binary())
        .args(arguments)
        .output()
        .expect("run mortise");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

#[test]
fn a_full_store_fails_what_promises_state_and_nothing_else() {
    let folder = tempfile::tempdir().expect("make a folder");
    let path = folder.path().join("state.db");
    let more = format!("[store]\npath = {path:?}\nmax_mib = 1\n");
    let server = Server::scripted(SCRIPT, &more);
    let items: Vec<Value> = (0..20)
        .map(|_| json!({"role": "user", "content": "x".repeat(10_000)}))
        .collect();
    let fill = json!({"items": items});
    let refused = wait_for(|| {
        let answer = server.post("/v1/conversations", &fill);
        match answer.status() {
            200 => Err("the store is not full".to_owned()),
            _ => Ok(answer),
        }
    });
    assert_eq!(
        (refused.status(), &refused.json()["error"]["code"]),
        (503, &json!("store_full"))
    );
    let ask = |store: bool| {
        let input = "x".repeat(9000);
        server.post(
            RESPONSES,
            &json!({"model": "scripted", "input": input, "store": store}),
        )
    };
    let refused = wait_for(|| {
        let answer = ask(true);
        match answer.status() {
            200 => Err("a response found room".to_owned()),
            _ => Ok(answer),
        }
    });
    assert_eq!(refused.json()["error"]["code"], "store_full");
    ask(false).ok();
    server.post(CHAT, &chat("Hi")).ok();
}

#[test]
fn a_store_is_copied_beside_its_server_and_guarded_against_a_second_one() {
    let folder = tempfile::tempdir().expect("make a folder");
    let path = folder.path().join("state.db");
    let server = server(&path);
    let response = server
        .post(RESPONSES, &json!({"model": "scripted", "input": "Hi"}))
        .ok();
    let copy = folder.path().join("copy.db");
    let (store, copied) = (path.to_str().expect("UTF-8"), copy.to_str().expect("UTF-8"));
    mortise(&["store", "backup", copied, "--store", store]);
    let second = std::process::Command::new(crate::support::binary())
        .args(["serve", "--port", "0", "--store", store])
        .output()
        .expect("run mortise");
    assert!(!second.status.success());
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(said.contains("in use by another process"), "{said}");
    drop(server);
    mortise(&["store", "vacuum", "--store", store]);
    let copy = self::server(&copy);
    let path = format!("{RESPONSES}/{}", response["id"].as_str().expect("an id"));
    assert_eq!(copy.get(&path).ok(), response);
}
