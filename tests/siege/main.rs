//! All attacks at once on a small server: one core, 512 MiB, 256 open files. A well-behaved tenant is served
//! throughout, no request of its fails or gets another answer, and a minute later the server is as large as before.
//!
//! `MORTISE_SIEGE_SECONDS` sets how long the attackers go on.
#![cfg(target_os = "linux")]

mod attacks;
mod confinement;
mod elsewhere;
mod flood;
mod folder;
mod frames;
mod ground;
mod stored;
mod texts;
mod wire;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mortise_test_support as support;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;
use serde_json::json;
use support::PATIENCE;

use crate::attacks::{ATTACKS, Attack};
use crate::confinement::{Confinement, MEMORY_MIB};
use crate::ground::{Ground, TENANT_PROMPTS};

/// Length of a siege when nothing else is said.
const SECONDS: u64 = 10;
/// Attackers at a time.
const ATTACKERS: usize = 16;
/// Growth that may stay, in percent of the memory before.
const GROWTH_PERCENT: u64 = 10;

/// Times and faults of the requests of a well-behaved tenant.
#[derive(Default)]
struct Service {
    times: Vec<Duration>,
    wrong: Vec<String>,
}

impl Service {
    fn at_percent(&self, percent: usize) -> Duration {
        let mut sorted = self.times.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() * percent).div_ceil(100).max(1);
        sorted.get(rank - 1).copied().unwrap_or_default()
    }

    fn line(&self) -> String {
        format!(
            "{} requests, p50 {:?}, p99 {:?}, longest {:?}",
            self.times.len(),
            self.at_percent(50),
            self.at_percent(99),
            self.at_percent(100)
        )
    }
}

fn seconds() -> u64 {
    let set = std::env::var("MORTISE_SIEGE_SECONDS").ok();
    set.map_or(SECONDS, |value| value.parse().expect("a number of seconds"))
}

/// Ask over and over until `over`; each answer must be that of a quiet server.
fn tenant(ground: &Ground, expected: &[String], over: &AtomicBool) -> Service {
    let mut service = Service::default();
    for at in (0..expected.len()).cycle() {
        if over.load(Ordering::Acquire) {
            break;
        }
        let begun = Instant::now();
        match ground.tenant_answer(at) {
            Ok(answer) if answer == expected[at] => service.times.push(begun.elapsed()),
            Ok(answer) => service.wrong.push(format!("another answer: {answer}")),
            Err(error) => service.wrong.push(error),
        }
    }
    service
}

/// Ordinary use of everything that the attackers use as well, by a few callers at once, until caches hold what they
/// ever hold: chats, streams, constrained answers, tools, mistakes, and a plugin that comes and goes.
fn ordinary_use(ground: &Ground) {
    std::thread::scope(|scope| {
        for caller in 0..6 {
            scope.spawn(move || (0..12).for_each(|n| ordinary_request(ground, 100 * caller + n)));
        }
        scope.spawn(|| folder::swap(ground));
        scope.spawn(|| stored::ordinary_use(ground));
        scope.spawn(|| {
            for model in ["hostile", "elsewhere", "embeds"] {
                elsewhere::ordinary_request(ground, model);
            }
        });
    });
    ground.hang_up();
}

fn ordinary_request(ground: &Ground, n: usize) {
    let words = "So it is. ".repeat(40);
    let mut body = json!({
        "model": "mortise-demo", "max_tokens": 48,
        "messages": [{"role": "user", "content": format!("{n} is a number. {words}")}],
    });
    let object =
        json!({"type": "object", "properties": {format!("field_{n}"): {"type": "integer"}}});
    let mut status = 200;
    match n % 6 {
        0 => body["stream"] = json!(true),
        1 => {
            let schema = json!({"name": "s", "schema": object});
            body["response_format"] = json!({"type": "json_schema", "json_schema": schema});
        }
        2 => {
            let function = json!({"name": "f", "parameters": object});
            body["tools"] = json!([{"type": "function", "function": function}]);
            body["tool_choice"] = json!("required");
        }
        3 => body["n"] = json!(4),
        4 => {
            body["temperature"] = json!("warm");
            status = 400;
        }
        _ => body["guided_regex"] = json!(format!("[a-z]{{1,{}}}", 1 + n % 40)),
    }
    let answer = ground.ask("tenant-key", "/v1/chat/completions", &body);
    assert_eq!(answer.status(), status, "{}", answer.text());
}

/// Run attacks drawn at random until `over`. The number of runs of each is counted.
fn attack(ground: &Ground, seed: u64, over: &AtomicBool, runs: &Mutex<BTreeMap<&str, u64>>) {
    let mut random = Pcg64::seed_from_u64(seed);
    while !over.load(Ordering::Acquire) {
        let attack: &Attack = ATTACKS.choose(&mut random).expect("attacks");
        (attack.run)(ground, random.random());
        *runs.lock().expect("runs").entry(attack.name).or_default() += 1;
    }
}

/// Wait for the memory of a quiet server; what it is at last.
fn settled_mib(ground: &Ground, wanted: u64) -> u64 {
    let begun = Instant::now();
    loop {
        let now = ground.resident_mib();
        if now <= wanted || begun.elapsed() > PATIENCE {
            return now;
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn a_small_server_outlasts_all_attacks_at_once() {
    let confinement = Confinement::new();
    let mut ground = Ground::new(&confinement);
    let expected: Vec<String> = (0..TENANT_PROMPTS.len())
        .map(|at| ground.tenant_answer(at).expect("an answer in quiet"))
        .collect();
    ordinary_use(&ground);
    // What the allocator keeps of that is given back by now.
    std::thread::sleep(Duration::from_secs(12));
    let before = ground.resident_mib();
    let quiet = {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let tenant = scope.spawn(|| tenant(&ground, &expected, &over));
            std::thread::sleep(Duration::from_secs(2));
            over.store(true, Ordering::Release);
            tenant.join().expect("the tenant")
        })
    };
    let (over, attacked) = (AtomicBool::new(false), AtomicBool::new(false));
    let runs = Mutex::default();
    let during = std::thread::scope(|scope| {
        let tenant = scope.spawn(|| tenant(&ground, &expected, &over));
        let attackers: Vec<_> = (0..ATTACKERS)
            .map(|seed| {
                scope.spawn({
                    let (ground, attacked, runs) = (&ground, &attacked, &runs);
                    move || attack(ground, seed as u64, attacked, runs)
                })
            })
            .collect();
        std::thread::sleep(Duration::from_secs(seconds()));
        attacked.store(true, Ordering::Release);
        for attacker in attackers {
            attacker.join().expect("an attacker");
        }
        over.store(true, Ordering::Release);
        tenant.join().expect("the tenant")
    });
    ground.calm();
    let wanted = before + before * GROWTH_PERCENT / 100;
    let after = settled_mib(&ground, wanted);
    println!("{}", confinement.line());
    println!("attacks: {:?}", runs.lock().expect("runs"));
    println!("tenant in quiet: {}", quiet.line());
    println!("tenant under siege: {}", during.line());
    println!(
        "memory: {before} MiB before, {} MiB at most, {after} MiB after",
        ground.peak_mib()
    );
    assert_eq!(during.wrong, Vec::<String>::new());
    assert!(
        during.times.len() >= expected.len(),
        "the tenant was served"
    );
    assert!(ground.peak_mib() <= MEMORY_MIB, "{} MiB", ground.peak_mib());
    assert!(after <= wanted, "{after} MiB, {before} MiB before");
    ground.assert_sound();
}
