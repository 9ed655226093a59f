//! Servers that are killed again and again in the middle of requests: what was spent stays spent, but for the second
//! before each kill that the page on identity names.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::Server;
use crate::support::client::Request;

/// Counts that a killed process may forget are of this time, by `docs/identity.md`; the rest is for the write itself and for
/// a machine that is slow.
const WINDOW: Duration = Duration::from_secs(1);
const SLACK: Duration = Duration::from_secs(2);

/// Requests of a day: enough for [`ROUNDS`], and few enough that little flows back while they run.
const A_DAY: u64 = 100_000;

/// Rounds with one state file.
const ROUNDS: u64 = 400;

/// Pause of a client between two requests.
const PAUSE: Duration = Duration::from_millis(25);

/// Clients at once, each of which has one request under way when the server is killed.
const CLIENTS: u64 = 2;

fn server(path: &Path) -> Server {
    let more = format!(
        "[store]\npath = {path:?}\n[[auth.api_keys]]\nid = \"a\"\nkey = \"sk-a\"\nrequests_per_day = {A_DAY}\n"
    );
    Server::scripted("default = \"x\"", &more)
}

fn request() -> Request {
    let messages = json!([{"role": "user", "content": "Hi"}]);
    let body = json!({"model": "scripted", "max_tokens": 1, "messages": messages});
    Request::post("/v1/chat/completions", &body).header("authorization", "Bearer sk-a")
}

/// Requests that are left today, once the one that asks is counted.
fn left(server: &Server) -> u64 {
    let answer = server.send(&request());
    assert_eq!(answer.status(), 200);
    let left = answer.header("x-ratelimit-remaining-requests-day");
    left.and_then(|left| left.parse().ok()).expect("a number")
}

/// Outcome of a request that may meet the end of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Met {
    Answer,
    /// A machine that is busy with other things let the policy's call run out of time: the request may be counted.
    Deadline,
    End,
}

/// Sends a request that may meet the end of the server.
fn answered(address: &str) -> Met {
    let request = request();
    let mut text = format!(
        "POST {} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-length: {}\r\n",
        request.path,
        request.body.len()
    );
    for (name, value) in &request.headers {
        text += &format!("{name}: {value}\r\n");
    }
    let ask = || {
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(&[text.as_bytes(), b"\r\n", &request.body].concat())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok::<_, std::io::Error>(answer)
    };
    match ask() {
        Ok(answer) if answer.starts_with("HTTP/1.1 ") => {
            if answer.contains("\"code\":\"plugin_deadline\"") {
                return Met::Deadline;
            }
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            Met::Answer
        }
        _ => Met::End,
    }
}

/// Requests that were answered, with their times, until the server is killed.
#[derive(Default)]
struct Load {
    answered: AtomicU64,
    /// Answered requests that came within the window before the kill, and may be forgotten.
    late: AtomicU64,
    /// Requests that may be counted or not, beside the answered ones.
    unsure: AtomicU64,
    killing: AtomicBool,
}

fn run(server: &mut Server, time: Duration) -> Load {
    let load = Load::default();
    let begun = Instant::now();
    let address = server.address().to_owned();
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                while !load.killing.load(SeqCst) {
                    let counter = match answered(&address) {
                        Met::Answer => &load.answered,
                        Met::Deadline => &load.unsure,
                        Met::End => return,
                    };
                    counter.fetch_add(1, SeqCst);
                    if begun.elapsed() + WINDOW + SLACK >= time {
                        load.late.fetch_add(1, SeqCst);
                    }
                    std::thread::sleep(PAUSE);
                }
            });
        }
        std::thread::sleep(time);
        load.killing.store(true, SeqCst);
        server.signal("KILL");
    });
    server.wait();
    load
}

/// Totals of all rounds.
#[derive(Default)]
struct Totals {
    requests: u64,
    in_windows: u64,
    lost: u64,
}

/// Have servers with this state file killed, one after the other.
fn kill_often(path: &Path, rounds: Range<u64>, totals: &mut Totals) {
    let used = |server: &Server| A_DAY - left(server);
    let mut before = (0, Instant::now());
    let mut last = Load::default();
    for round in rounds.start..=rounds.end {
        let mut server = server(path);
        let (now, asked) = (used(&server), Instant::now());
        let (answered, late) = (last.answered.load(SeqCst), last.late.load(SeqCst));
        let expected = before.0 + answered + 1;
        // What has flowed back into the bucket of the day.
        let flown = A_DAY * asked.duration_since(before.1).as_secs().saturating_add(1) / 86_400 + 1;
        let lost = expected.saturating_sub(now + flown);
        assert!(
            lost <= late + 1,
            "round {round}: {expected} were answered, {now} are counted, {late} came in the window"
        );
        assert!(
            now <= expected + CLIENTS + 1 + last.unsure.load(SeqCst),
            "round {round}: {now} are counted of {expected}"
        );
        totals.requests += answered;
        totals.lost += lost;
        totals.in_windows += late;
        if round == rounds.end {
            return;
        }
        before = (now, asked);
        // Kills come before anything is written, while it is, and afterwards.
        last = run(
            &mut server,
            Duration::from_millis(50 + 379 * (round + 7) % 4950),
        );
    }
}

#[test]
fn feature_z3_kills_never_give_back_more_than_the_window() {
    let rounds = std::env::var("MORTISE_COUNTER_KILLS");
    let rounds: u64 = rounds.map_or(1, |rounds| rounds.parse().expect("a number"));
    let mut totals = Totals::default();
    let mut done = 0;
    while done < rounds {
        let folder = tempfile::tempdir().expect("a folder");
        let next = rounds.min(done + ROUNDS);
        kill_often(&folder.path().join("state.db"), done..next, &mut totals);
        done = next;
        println!(
            "{done} kills: {} requests answered, {} in windows before kills, {} not counted",
            totals.requests, totals.in_windows, totals.lost
        );
    }
}
