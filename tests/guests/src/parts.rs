//! Commands that either part of a composed plugin can be given.

use std::hint::black_box;

/// Value of a key of settings, read without a parser.
pub fn value(settings: &str, key: &str) -> String {
    let mut words = settings.split('"').skip(1).step_by(2);
    let found = words.find(|word| *word == key);
    found.and(words.next()).unwrap_or_default().to_owned()
}

/// Carry out a command.
pub fn act(command: &str) {
    match command {
        "loop" => endless(),
        "panic" => panic!("the guest gives up"),
        // More than half of what an instance may have.
        "hold" => drop(black_box(Box::leak(Box::new(vec![1u8; 40 << 20])))),
        _ => {}
    }
}

fn endless() {
    let mut round = 0u64;
    loop {
        round = black_box(round.wrapping_add(1));
    }
}
