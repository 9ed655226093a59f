//! One version of a plugin takes the place of another while calls are under way (case J8).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};

use mortise_plugin::{ChatTemplate, HostConfig, PluginHost};
use tokio::sync::Semaphore;

use crate::guests::{binding, every_kind, render, source};

/// The guest with a custom section that makes it another file.
fn variant(letter: u8) -> Vec<u8> {
    let mut wasm = every_kind().to_vec();
    wasm.extend_from_slice(&[0, 3, 1, b'v', letter]);
    wasm
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn j8_a_thousand_swaps_drop_no_call_and_leave_no_instance() {
    let cache = tempfile::tempdir().unwrap();
    let host = PluginHost::new(HostConfig {
        cache_dir: Some(cache.path().join("compiled")),
        ..HostConfig::default()
    })
    .unwrap();
    let bind = async |letter| {
        let component = host.load(source("guest", &variant(letter))).unwrap();
        ChatTemplate::bind(&host, &component, binding())
            .await
            .unwrap()
    };
    let serving = Arc::new(RwLock::new(bind(b'a').await));
    let over = Arc::new(AtomicBool::new(false));
    // Each answer lets one swap happen, so that swaps meet calls however fast either is.
    let answered = Arc::new(Semaphore::new(0));
    let callers: Vec<_> = (0..4)
        .map(|caller| {
            let (serving, over) = (Arc::clone(&serving), Arc::clone(&over));
            let answered = Arc::clone(&answered);
            tokio::spawn(async move {
                let mut round = 0u64;
                while !over.load(Ordering::Relaxed) {
                    let template = serving.read().unwrap().clone();
                    let text = format!("{caller}-{round}");
                    let answer = render(&template, &format!("echo:{text}")).await;
                    assert_eq!(answer.unwrap(), text);
                    round += 1;
                    answered.add_permits(1);
                }
            })
        })
        .collect();
    for swap in 0..1000 {
        let next = bind(if swap % 2 == 0 { b'b' } else { b'a' }).await;
        *serving.write().unwrap() = next;
        answered.acquire().await.unwrap().forget();
        let failed = callers.iter().any(|caller| caller.is_finished());
        assert!(!failed, "a caller has given up");
    }
    over.store(true, Ordering::Relaxed);
    for caller in callers {
        caller.await.unwrap();
    }
    let stats = host.stats();
    assert_eq!(stats.len(), 1, "versions make no series of their own");
    let functions = &stats[0].functions;
    assert!(functions.iter().all(|function| function.faults.is_empty()));
    let idle = stats[0].live_instances;
    assert!(idle <= 4, "{idle} instances outlive their versions");
    drop(serving);
    assert_eq!(host.stats()[0].live_instances, 0);
}
