//! Sequences with adapters, side by side with others: the same tokens to the bit, alone or not, cached or not,
//! preempted or not, with speculation or not.

use std::path::PathBuf;
use std::sync::Arc;

use mortise_engine::{
    BeamParams, BeamRequest, EarlyStopping, Engine, EngineConfig, LogprobParams, SequenceRequest,
    Share, Speculation, TokenStream,
};
use mortise_model::{Adapter, Decoder, ModelFolder};

use super::support::{collect, greedy};
use super::{engine, model, read, requests};

const BASE: &str = "llama-rope-scaled";

/// No adapter, and two.
fn adapters(model: &Decoder) -> [Option<Arc<Adapter>>; 3] {
    let load = |name: &str| {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/parity/adapters");
        let folder = ModelFolder::open(path.join(name)).unwrap();
        Some(Arc::new(Adapter::load(&folder, model.spec(), 1.0).unwrap()))
    };
    [None, load("llama-queries"), load("llama-all.gguf")]
}

/// Every request with every adapter, in turn.
fn adapted(model: &Decoder) -> Vec<SequenceRequest> {
    let adapters = adapters(model);
    let with = |place: usize| {
        let adapters = adapters.clone();
        let requests = adapters.into_iter().filter_map(move |adapter| {
            let request = requests().into_iter().nth(place)?;
            Some(SequenceRequest { adapter, ..request })
        });
        requests.collect::<Vec<_>>()
    };
    (0..requests().len()).flat_map(with).collect()
}

fn alone(model: &Arc<Decoder>) -> Vec<Vec<String>> {
    let config = EngineConfig {
        prefix_cache: false,
        threads: 1,
        ..EngineConfig::default()
    };
    let engine = engine(model, config);
    let requests = adapted(model).into_iter();
    requests
        .map(|request| read(engine.submit(request).unwrap()).0)
        .collect()
}

#[test]
fn feature_a4_sequences_with_adapters_are_the_same_however_they_are_computed() {
    let model = model(BASE);
    let expected = alone(&model);
    for (place, three) in expected.chunks(3).enumerate() {
        let differ = three[0] != three[1] && three[1] != three[2] && three[0] != three[2];
        assert!(differ, "the adapters change request {place}");
    }
    let draft = Speculation::DraftModel { draft_tokens: 4 };
    for (speculation, tokens) in [
        (Speculation::Off, 4096),
        (Speculation::Off, 16 * 16),
        (Speculation::PromptLookup { draft_tokens: 6 }, 4096),
        (draft, 4096),
    ] {
        let config = EngineConfig {
            max_sequences: 32,
            step_token_budget: 37,
            kv_cache_tokens: Some(tokens),
            speculation,
            threads: 1,
            ..EngineConfig::default()
        };
        let engine = match speculation == draft {
            true => Engine::start_drafted(Arc::clone(&model), Arc::clone(&model), config).unwrap(),
            false => engine(&model, config),
        };
        let requests = adapted(&model).into_iter();
        let streams: Vec<TokenStream> = requests
            .map(|request| engine.submit(request).unwrap())
            .collect();
        let found: Vec<_> = streams.into_iter().map(|stream| read(stream).0).collect();
        assert_eq!(found, expected, "{speculation:?}, {tokens}");
    }
}

#[test]
fn prefixes_are_cached_for_each_adapter_apart() {
    let model = model(BASE);
    let adapters = adapters(&model);
    let engine = engine(&model, EngineConfig::default());
    let prompt: Vec<u32> = (0..70).map(|n| (n * n + 3) % 61).collect();
    let mut cached = Vec::new();
    let mut answers = Vec::new();
    for _ in 0..2 {
        for adapter in &adapters {
            let adapter = adapter.clone();
            let request = SequenceRequest {
                adapter,
                logprobs: Some(LogprobParams { top: 2 }),
                ..greedy(&prompt, 4)
            };
            let (tokens, usage) = read(engine.submit(request).unwrap());
            cached.push(usage.cached_tokens);
            answers.push(tokens);
        }
    }
    assert_eq!(cached, [0, 0, 0, 64, 64, 64]);
    assert_eq!(answers[..3], answers[3..]);
    // The same files loaded again are another adapter: they may have changed.
    let again = self::adapters(&model)[1].clone();
    let request = SequenceRequest {
        adapter: again,
        ..greedy(&prompt, 4)
    };
    assert_eq!(read(engine.submit(request).unwrap()).1.cached_tokens, 0);
}

#[test]
fn beams_search_with_their_adapter() {
    let model = model(BASE);
    let prompt: Vec<u32> = (0..37).map(|n| (n * n + 5) % 61).collect();
    let search = |adapter: Option<Arc<Adapter>>, size: u32| BeamRequest {
        prompt: prompt.clone(),
        max_tokens: 12,
        stop_tokens: Vec::new(),
        beams: BeamParams {
            size,
            results: size,
            length_penalty: 1.0,
            early_stopping: EarlyStopping::Never,
        },
        priority: 0,
        share: Share::default(),
        salt: None,
        adapter,
    };
    let found = |streams: Vec<TokenStream>| -> Vec<Vec<u32>> {
        let streams = streams.into_iter();
        streams.map(|mut stream| collect(&mut stream).0).collect()
    };
    let engine = engine(&model, EngineConfig::default());
    let adapters = adapters(&model);
    let mut alone = Vec::new();
    for adapter in &adapters {
        let one = search(adapter.clone(), 1);
        let one = found(engine.submit_beams(one).unwrap()).remove(0);
        let request = SequenceRequest {
            adapter: adapter.clone(),
            ..greedy(&prompt, 12)
        };
        let greedy = collect(&mut engine.submit(request).unwrap()).0;
        assert_eq!(one, greedy, "one beam is the greedy continuation");
        let three = search(adapter.clone(), 3);
        alone.push(found(engine.submit_beams(three).unwrap()));
    }
    assert_ne!(alone[0], alone[1]);
    assert_ne!(alone[1], alone[2]);
    let together: Vec<_> = adapters
        .iter()
        .map(|adapter| engine.submit_beams(search(adapter.clone(), 3)).unwrap())
        .collect();
    let together: Vec<_> = together.into_iter().map(found).collect();
    assert_eq!(together, alone);
}
