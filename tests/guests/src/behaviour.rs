//! Commands that any function of the guest can be given.

use std::hint::black_box;
use std::sync::Mutex;

use crate::every_kind::mortise::plugin::host::{self, Level};
use crate::every_kind::mortise::plugin::{clock, ledger, secrets, settings};

/// Text that an earlier call left behind.
static MEMORY: Mutex<String> = Mutex::new(String::new());

/// Keep a text in the instance.
pub fn remember(text: &str) {
    *MEMORY.lock().unwrap() = text.to_owned();
}

/// Text that the instance kept.
pub fn recall() -> String {
    MEMORY.lock().unwrap().clone()
}

/// Carry out a command; most do not return.
pub fn act(command: &str) {
    match command {
        "loop" => endless(),
        "bomb" => bomb(),
        "overflow" => drop(black_box(overflow(&[1; 64], 0))),
        "overflow-plain" => drop(black_box(overflow_plain(black_box(1)))),
        "panic" => panic!("the guest gives up"),
        "exit" => std::process::exit(3),
        "log" => flood(),
        "say" => println!("a line"),
        "take" => drop(ledger::take("bucket", 1, 1, 1000)),
        "print" => (0..100_000).for_each(|line| println!("line {line}")),
        "calls" => flood_calls(),
        "wild" => wild(),
        "grants" => reach(),
        "chatter" => chatter(),
        "fields" => fields(),
        "buckets" => buckets(),
        "secrets" => drop(black_box(secrets::find(&"x".repeat(4 << 20)))),
        "sleep" => std::thread::sleep(std::time::Duration::from_secs(3600)),
        "count" => (0..40).for_each(|index| host::count(&format!("name-{index}"), 1)),
        _ => match command.strip_prefix("keep:") {
            Some(text) => remember(text),
            None => spin(command),
        },
    }
}

/// `spin:N` goes round N million times.
fn spin(command: &str) {
    let Some(millions) = command.strip_prefix("spin:") else {
        return;
    };
    let rounds = millions.parse::<u64>().unwrap() * 1_000_000;
    for round in 0..rounds {
        black_box(round);
    }
}

fn endless() {
    let mut round = 0u64;
    loop {
        round = black_box(round.wrapping_add(1));
    }
}

fn bomb() {
    let mut hoard = Vec::new();
    loop {
        hoard.push(vec![1u8; 1 << 20]);
        black_box(&hoard);
    }
}

/// Uses up the stack that compiled Rust keeps in linear memory.
#[allow(unconditional_recursion)]
fn overflow(above: &[u8; 64], depth: u64) -> u64 {
    let mut here = [0u8; 64];
    here[(depth % 64) as usize] = above[((depth + 1) % 64) as usize];
    overflow(black_box(&here), depth + 1) + u64::from(black_box(&here)[0])
}

/// Uses up the call stack only.
#[allow(unconditional_recursion)]
fn overflow_plain(depth: u64) -> u64 {
    black_box(overflow_plain(depth + 1)) ^ depth
}

/// Keeps the host busy instead of itself.
fn flood_calls() {
    loop {
        black_box(settings::get());
    }
}

/// Reads far outside of its memory.
fn wild() {
    let nowhere = black_box(0xffff_0000usize as *const u64);
    // Defined behaviour in WebAssembly: it traps.
    black_box(unsafe { nowhere.read_volatile() });
}

/// Asks for what only a policy, or a policy and a tool, are granted.
fn reach() {
    black_box(clock::unix_millis());
    black_box(secrets::find("sesame"));
}

/// Log lines without text and with fields without text.
fn fields() {
    let nothing = vec![(String::new(), String::new()); 20_000];
    for _ in 0..20 {
        host::log(Level::Info, "", &nothing);
    }
}

/// Fills the ledger.
fn buckets() {
    for index in 0..150_000u32 {
        ledger::take(&index.to_string(), 1, 1, 3_600_000);
    }
}

fn chatter() {
    let text = "x".repeat(1000);
    for _ in 0..2000 {
        host::log(Level::Info, &text, &[]);
    }
}

fn flood() {
    let text = "x".repeat(1000);
    for line in 0..100_000 {
        host::log(Level::Info, &text, &[("line".to_owned(), line.to_string())]);
    }
}
