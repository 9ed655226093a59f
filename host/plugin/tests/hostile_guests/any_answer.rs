//! Answers of arbitrary bytes in a guest's memory: the host reads a sound value or ends the call with a fault.
//! `fuzz/fuzz_targets/plugin_answer.rs` drives the same code.

use std::sync::{Arc, OnceLock};

use mortise_plugin::{Component, HostConfig, Kind, PluginHost};
use proptest::prelude::*;

use crate::exercise::exercise;
use crate::forged::Forged;
use crate::guests::{binding, source};

type Guests = (PluginHost, Vec<(Kind, Arc<Component>)>);

/// A guest of each kind that answers what its settings say, compiled once.
fn guests() -> &'static Guests {
    static GUESTS: OnceLock<Guests> = OnceLock::new();
    GUESTS.get_or_init(|| {
        let host = PluginHost::new(HostConfig::default()).unwrap();
        let load = |kind| {
            let wasm = Forged::new(kind).dictated().build();
            (kind, host.load(source("dictated", &wasm)).unwrap())
        };
        let loaded = Kind::ALL.map(load).into();
        (host, loaded)
    })
}

/// Have a guest of every kind answer with these bytes; how many got through. What the host does with an
/// answer is checked by running it: it must not panic.
async fn answer(bytes: &[u8]) -> usize {
    let (host, guests) = guests();
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut answered = 0;
    for (kind, component) in guests {
        let mut binding = binding();
        binding.settings = format!("{{\"\":\"{digits}\"}}");
        let outcome = exercise(host, component, *kind, binding).await;
        answered += usize::from(outcome.is_ok());
    }
    answered
}

/// Small numbers, as cases, lengths and addresses are; and anything.
fn words() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        4 => 0u32..4,
        2 => 0u32..2048,
        1 => (0u32..64).prop_map(|offset| 0x0010_0000 + offset),
        1 => any::<u32>(),
    ];
    let words = prop::collection::vec(word, 0..40);
    words.prop_map(|words| words.into_iter().flat_map(u32::to_le_bytes).collect())
}

fn run(bytes: &[u8]) -> usize {
    static RUNTIME: OnceLock<tokio::runtime::Runtime> = OnceLock::new();
    let runtime = RUNTIME.get_or_init(|| tokio::runtime::Runtime::new().unwrap());
    runtime.block_on(answer(bytes))
}

#[test]
fn what_is_dictated_arrives() {
    // Success with nothing in it: a prompt, no events, masks. A policy would allow nobody, and a
    // component without a tool is none.
    assert_eq!(run(&[0; 64]), 3);
    // Neither success nor a fault.
    assert_eq!(run(&[7; 64]), 0);
}

proptest! {
    #[test]
    fn any_answer_is_a_value_or_a_fault(bytes in words()) {
        run(&bytes);
    }

    #[test]
    fn any_bytes_are_a_value_or_a_fault(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        run(&bytes);
    }
}
