//! An engine with nothing to do uses no processor time. On its own in this program, since it
//! looks at threads by name.
#![cfg(target_os = "linux")]

mod support;

use std::fs;
use std::time::Duration;

use support::{collect, config, engine, expected, greedy, next, until_empty};

/// Processor time of the engine's thread in ticks, commonly of 10 ms.
fn ticks() -> u64 {
    let tasks = fs::read_dir("/proc/self/task")
        .unwrap()
        .map(|task| task.unwrap().path());
    let engine = tasks
        .filter(|task| {
            fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim() == "mortise-engine")
        })
        .map(|task| fs::read_to_string(task.join("stat")).unwrap());
    let stat = engine.last().expect("the engine's thread has its name");
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

fn check_asleep(what: &str) {
    std::thread::sleep(Duration::from_millis(100));
    let before = ticks();
    std::thread::sleep(Duration::from_millis(300));
    assert!(ticks() - before <= 2, "the engine does not sleep {what}");
}

#[test]
fn an_engine_with_nothing_to_do_sleeps() {
    let engine = engine(40, 400, config());
    check_asleep("before the first request");
    let mut stalled = engine.submit(greedy(&[1], 200)).unwrap();
    next(&mut stalled);
    check_asleep("while the only reader does not read");
    assert_eq!(collect(&mut stalled).0, expected(&[1], 200)[1..]);
    until_empty(&engine);
    check_asleep("after the last request");
}
