//! State outlives the process: a server is killed at random moments under load, and everything that it acknowledged
//! is there after the next start, once.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::answers::{CHAT, chat};
use crate::responses::RESPONSES;
use crate::support::client::Request;
use crate::support::{Server, wait_for};

const SCRIPT: &str = "default = \"Hello there, wörld 👋.\"\ntoken_delay_ms = 1\n";

/// Rounds, each ended by SIGKILL.
pub(crate) fn rounds() -> usize {
    let rounds = std::env::var("MORTISE_KILLS").ok();
    rounds.and_then(|rounds| rounds.parse().ok()).unwrap_or(4)
}

fn server(path: &Path) -> Server {
    Server::scripted(SCRIPT, &format!("[store]\npath = {path:?}\n"))
}

/// What the server has acknowledged: bodies by the path under which they must be found.
type Acknowledged = Arc<Mutex<BTreeMap<String, Value>>>;

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

/// One of the requests of the load, by its number.
fn request(number: usize) -> (Request, fn(&str) -> String) {
    let key = format!("key-{number}");
    let response = |more: Value| {
        let mut body = json!({"model": "scripted", "input": format!("Hi {number}")});
        for (name, value) in more.as_object().expect("an object") {
            body[name] = value.clone();
        }
        Request::post(RESPONSES, &body).header("idempotency-key", &key)
    };
    let of_response: fn(&str) -> String = |id| format!("{RESPONSES}/{id}");
    match number % 4 {
        0 => (response(json!({})), of_response),
        1 => (response(json!({"stream": true})), of_response),
        2 => (response(json!({"background": true})), of_response),
        _ => {
            let mut body = chat("Hi");
            body["store"] = json!(true);
            body["metadata"] = json!({"number": number.to_string()});
            let request = Request::post(CHAT, &body).header("idempotency-key", &key);
            (request, |id| format!("{CHAT}/{id}"))
        }
    }
}

/// Send requests until the server is gone.
fn load(address: &str, next: &AtomicUsize, acknowledged: &Acknowledged, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let (request, path) = request(next.fetch_add(1, Ordering::Relaxed));
        if let Some(body) = try_send(address, &request)
            && let Some(id) = body["id"].as_str()
        {
            acknowledged.lock().expect("the map").insert(path(id), body);
        }
    }
}

/// Everything that was acknowledged is there, and nothing is there twice.
fn check(server: &Server, acknowledged: &BTreeMap<String, Value>, sent: usize) {
    for (path, body) in acknowledged {
        if body["background"] == true {
            wait_for(|| {
                let now = server.get(path).ok();
                match now["status"] == "completed" {
                    true => Ok(()),
                    false => Err(format!("{path} is {}", now["status"])),
                }
            });
            continue;
        }
        let now = server.get(path).ok();
        for field in ["output", "choices"] {
            assert_eq!(now[field], body[field], "{path}");
        }
    }
    for number in (3..sent).step_by(4) {
        let listed = server
            .get(&format!("{CHAT}?metadata[number]={number}"))
            .ok();
        let found = listed["data"].as_array().expect("a list").len();
        assert!(found <= 1, "completion {number} is there {found} times");
    }
    // A key that was answered is answered with the same id.
    for (path, body) in acknowledged.iter().take(20) {
        let id = body["id"].as_str().expect("an id");
        assert!(path.ends_with(id));
    }
}

#[test]
fn feature_t11_what_was_acknowledged_outlives_sigkill() {
    let folder = tempfile::tempdir().expect("make a folder");
    let path = folder.path().join("state.db");
    let acknowledged = Acknowledged::default();
    let next = AtomicUsize::new(0);
    for round in 0..rounds() {
        let server = server(&path);
        check(
            &server,
            &acknowledged.lock().expect("the map"),
            next.load(Ordering::Relaxed),
        );
        let address = server.address().to_owned();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| load(&address, &next, &acknowledged, &stop));
            }
            // Some moment, another one in each round.
            let moment = 200 + (round as u64 * 397) % 500;
            std::thread::sleep(Duration::from_millis(moment));
            server.signal("KILL");
            stop.store(true, Ordering::Relaxed);
        });
        // A request that was sent again with its key got, or gets, one answer.
        let server = self::server(&path);
        for number in next.load(Ordering::Relaxed).saturating_sub(8)..next.load(Ordering::Relaxed) {
            let (request, path) = request(number);
            let again = try_send(server.address(), &request).expect("an answer");
            let id = again["id"].as_str().expect("an id");
            let known = acknowledged
                .lock()
                .expect("the map")
                .insert(path(id), again.clone());
            if let Some(known) = known {
                assert_eq!(known["id"], again["id"]);
            }
        }
    }
    let server = server(&path);
    let acknowledged = acknowledged.lock().expect("the map");
    assert!(
        acknowledged.len() > rounds(),
        "the load was no load: {}",
        acknowledged.len()
    );
    check(&server, &acknowledged, next.load(Ordering::Relaxed));
    drop(server);
    let report = mortise(&["store", "check", "--store", path.to_str().expect("UTF-8")]);
    assert!(report.contains("\"whole\": true"), "{report}");
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
