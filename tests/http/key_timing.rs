//! Wrong keys: their answers are the same, and so is the time of their answers, whatever is wrong with them.
//!
//! The statistic is printed by
//! `MORTISE_KEY_TRIES=100000 cargo test --release -p mortise --test http key_timing -- --nocapture`.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Instant;

use rand::SeedableRng as _;
use rand::seq::SliceRandom as _;
use rand_pcg::Pcg64;

use crate::support::{PATIENCE, Server};

const KEY: &str = "correct-horse-battery-staple-0123456789";

/// Tries without the variable: enough to compare answers.
const FEW: usize = 200;

/// Keys of each way to be wrong; the first is what the others are compared with.
fn wrong() -> Vec<(&'static str, String)> {
    let changed = |at: usize| {
        let mut key = KEY.as_bytes().to_vec();
        key[at] = b'#';
        String::from_utf8(key).expect("a key")
    };
    vec![
        ("another from the first byte on", "#".repeat(KEY.len())),
        ("wrong first byte", changed(0)),
        ("wrong last byte", changed(KEY.len() - 1)),
        (
            "right beginning, too short",
            KEY[..KEY.len() / 2].to_owned(),
        ),
        ("right beginning, too long", format!("{KEY}#")),
        ("one byte", "c".to_owned()),
    ]
}

/// A connection that asks again and again.
struct Asking(BufReader<TcpStream>);

impl Asking {
    fn of(server: &Server) -> Self {
        let stream = TcpStream::connect(server.address()).expect("connect");
        stream.set_nodelay(true).expect("no delay");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Self(BufReader::new(stream))
    }

    /// Status line and body for a key, and the seconds that they took.
    fn ask(&mut self, key: &str) -> (String, f64) {
        let request = format!(
            "GET /v1/models HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n\r\n"
        );
        let begun = Instant::now();
        let sent = self.0.get_mut().write_all(request.as_bytes());
        sent.expect("write");
        let mut line = String::new();
        self.0.read_line(&mut line).expect("a status line");
        let took = begun.elapsed().as_secs_f64();
        let mut said = line.trim_end().to_owned();
        let mut length = 0;
        loop {
            line.clear();
            self.0.read_line(&mut line).expect("a header");
            let lower = line.to_ascii_lowercase();
            if let Some(bytes) = lower.strip_prefix("content-length:") {
                length = bytes.trim().parse().expect("a length");
            }
            if line.trim_end().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).expect("a body");
        said.push_str(&String::from_utf8_lossy(&body));
        (said, took)
    }
}

/// Mean and variance of a sample's lower nine tenths: what interrupts a try says nothing of the key.
fn moments(sample: &mut [f64]) -> (f64, f64, f64) {
    sample.sort_by(f64::total_cmp);
    let kept = &sample[..sample.len() * 9 / 10];
    let count = kept.len() as f64;
    let mean = kept.iter().sum::<f64>() / count;
    let squares = kept.iter().map(|x| (x - mean).powi(2)).sum::<f64>();
    (mean, squares / (count - 1.0), count)
}

/// Welch's t of two samples.
fn welch(one: &mut [f64], other: &mut [f64]) -> f64 {
    let ((a, va, na), (b, vb, nb)) = (moments(one), moments(other));
    (a - b) / (va / na + vb / nb).sqrt()
}

#[test]
fn g1_wrong_keys_are_answered_alike() {
    let tries = std::env::var("MORTISE_KEY_TRIES").ok();
    let tries: usize = tries.map_or(FEW, |text| text.parse().expect("a number"));
    let more = format!("[[auth.api_keys]]\nid = \"one\"\nkey = {KEY:?}\n");
    let server = Server::scripted("default = \"x\"", &more);
    let mut asking = Asking::of(&server);
    assert!(asking.ask(KEY).0.starts_with("HTTP/1.1 200"));
    let classes = wrong();
    let (expected, _) = asking.ask(&classes[0].1);
    assert!(expected.starts_with("HTTP/1.1 401"), "{expected}");
    let mut order: Vec<usize> = (0..tries).map(|at| at % classes.len()).collect();
    order.shuffle(&mut Pcg64::seed_from_u64(1));
    let mut samples = vec![Vec::new(); classes.len()];
    for class in order {
        let (said, took) = asking.ask(&classes[class].1);
        assert_eq!(said, expected, "{}", classes[class].0);
        samples[class].push(took);
    }
    let (first, rest) = samples.split_at_mut(1);
    let (mean, ..) = moments(&mut first[0]);
    println!("{tries} tries; {}: {:.2} µs", classes[0].0, mean * 1e6);
    for ((name, _), sample) in classes.iter().skip(1).zip(rest) {
        let t = welch(sample, &mut first[0]);
        let (mean, ..) = moments(sample);
        println!("{name}: {:.2} µs, t = {t:+.2}", mean * 1e6);
    }
}
