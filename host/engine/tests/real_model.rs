//! The engine on the tiny models whose greedy continuations `transformers` computed.

mod support;

use std::path::PathBuf;
use std::sync::Arc;

use mortise_engine::{Engine, EngineConfig, KvType};
use mortise_model::{Decoder, ModelFolder, WeightPrecision};
use safetensors::SafeTensors;
use support::{collect, greedy};

fn tokens(tensors: &SafeTensors<'_>, name: &str) -> Vec<u32> {
    let ids = tensors.tensor(name).unwrap().data().chunks_exact(8);
    ids.map(|id| i64::from_le_bytes(id.try_into().unwrap()) as u32)
        .collect()
}

#[test]
fn sequences_in_one_batch_continue_as_transformers_does() {
    for name in [
        "llama-rope-scaled",
        "qwen2-bias",
        "qwen3-qk-norm",
        "mistral-plain",
    ] {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("../../tests/parity/data")
            .join(name);
        let folder = ModelFolder::open(&path).unwrap();
        let model = Arc::new(Decoder::load(&folder, WeightPrecision::AsStored).unwrap());
        let bytes = std::fs::read(path.join("reference.safetensors")).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        for threads in [1, 2] {
            let config = EngineConfig {
                max_sequences: 4,
                step_token_budget: 7,
                threads,
                ..EngineConfig::default()
            };
            let engine = Engine::start(Arc::clone(&model), config).unwrap();
            assert_eq!(engine.context_length(), 256);
            let streams: Vec<_> = (0..6)
                .map(|number| {
                    let prompt = tokens(&tensors, &format!("prompt.{}", number % 3));
                    engine.submit(greedy(&prompt, 64)).unwrap()
                })
                .collect();
            for (number, mut stream) in streams.into_iter().enumerate() {
                let expected = tokens(&tensors, &format!("greedy.{}", number % 3));
                assert_eq!(
                    collect(&mut stream).0,
                    expected,
                    "{name}, {threads} threads"
                );
            }
        }
    }
}

#[test]
fn the_cache_is_as_large_as_configured() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/parity/data/qwen2-bias");
    let folder = ModelFolder::open(path).unwrap();
    let model = Arc::new(Decoder::load(&folder, WeightPrecision::AsStored).unwrap());
    let blocks = |config: EngineConfig| {
        let engine = Engine::start(Arc::clone(&model), config).map_err(|error| error.to_string());
        engine.map(|engine| {
            support::until("the engine has begun", || engine.load().kv_blocks_total > 0);
            engine.load().kv_blocks_total
        })
    };
    let config = || EngineConfig {
        threads: 1,
        ..EngineConfig::default()
    };
    assert_eq!(blocks(config()), Ok(64 * 256 / 16));
    assert_eq!(
        blocks(EngineConfig {
            kv_cache_tokens: Some(100),
            ..config()
        }),
        Ok(6)
    );
    // Two layers of keys and values, 16 tokens, 16 numbers a token.
    let bytes = |kv_type, bytes: usize| EngineConfig {
        kv_cache_bytes: bytes,
        kv_type,
        ..config()
    };
    assert_eq!(blocks(bytes(KvType::F32, 10 * 2 * 2 * 16 * 16 * 4)), Ok(10));
    assert_eq!(
        blocks(bytes(KvType::Bf16, 10 * 2 * 2 * 16 * 16 * 4)),
        Ok(20)
    );
    assert_eq!(blocks(bytes(KvType::F16, 10 * 2 * 2 * 16 * 16 * 4)), Ok(20));
    // Two heads of 8 numbers: 8 bytes each, and a scale of two.
    assert_eq!(blocks(bytes(KvType::Q8_0, 10 * 2 * 2 * 16 * 20)), Ok(10));
    let refused = blocks(bytes(KvType::F32, 100)).unwrap_err();
    assert!(
        refused.contains("`kv_cache_bytes` leaves room for 0 tokens"),
        "{refused}"
    );
}
