//! Time to the first token of a tenant while another floods the server with requests: a measurement, not a verdict.
//!
//! `cargo test --release -p mortise --test siege -- --ignored --nocapture flood`

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::Service;
use crate::support::Server;
use crate::support::client::Request;

/// Requests of the flood that are under way at a time.
const FLOOD: usize = 32;
/// Requests of the tenant that are measured.
const ROUNDS: usize = 1000;

const CONFIG: &str = "
[[auth.api_keys]]
id = \"tenant\"
key = \"tenant-key\"
tenant = \"tenant\"
[[auth.api_keys]]
id = \"attacker\"
key = \"attacker-key\"
tenant = \"attacker\"
";

fn request(key: &str, prompt: &str, max_tokens: u32) -> Request {
    let body = json!({
        "model": "mortise-demo", "prompt": prompt, "max_tokens": max_tokens, "stream": true,
    });
    Request::post("/v1/completions", &body).header("authorization", &format!("Bearer {key}"))
}

fn first_tokens(server: &Server) -> Service {
    let mut service = Service::default();
    for round in 0..ROUNDS {
        let prompt = format!("Round {round} of those that are measured");
        let begun = Instant::now();
        let mut stream = request("tenant-key", &prompt, 8).begin(server.address());
        assert_eq!(stream.head().status, 200);
        stream.chunk();
        service.times.push(begun.elapsed());
        while stream.chunk().is_some() {}
        std::thread::sleep(Duration::from_millis(2));
    }
    service
}

#[test]
#[ignore = "a measurement, for a quiet machine"]
fn flood_and_the_first_token_of_another_tenant() {
    let server = Server::configured(CONFIG);
    let quiet = first_tokens(&server);
    let over = AtomicBool::new(false);
    let flooded = std::thread::scope(|scope| {
        for client in 0..FLOOD {
            let (over, server) = (&over, &server);
            scope.spawn(move || {
                for n in 0.. {
                    if over.load(Ordering::Acquire) {
                        break;
                    }
                    let prompt =
                        format!("Request {n} of client {client}: {}", "and on ".repeat(40));
                    drop(request("attacker-key", &prompt, 100).send(server.address()));
                }
            });
        }
        std::thread::sleep(Duration::from_millis(500));
        let flooded = first_tokens(&server);
        over.store(true, Ordering::Release);
        flooded
    });
    println!("first token in quiet: {}", quiet.line());
    println!("first token under the flood: {}", flooded.line());
}
