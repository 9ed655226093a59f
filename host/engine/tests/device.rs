//! The engine with its model on a device: the tokens are those of the processor. The device is the
//! emulator, which runs the GPU's kernels on the processor, and a GPU where there is one.

mod support;

use std::path::PathBuf;
use std::sync::Arc;

use mortise_engine::{
    Engine, EngineConfig, EngineHandle, SamplingParams, SequenceRequest, Speculation, TokenEvent,
    TokenStream,
};
use mortise_model::{Decoder, DeviceModel, DeviceSettings, KvType, ModelFolder, WeightPrecision};
use support::{greedy, next};

/// Below the sources, wherever those lie when this runs: it may have been built elsewhere.
fn folder() -> ModelFolder {
    let package = std::env::var_os("CARGO_MANIFEST_DIR");
    let package = package.unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let path = PathBuf::from(package).join("../../tests/parity/data");
    ModelFolder::open(path.join("qwen3-qk-norm")).unwrap()
}

fn read(mut stream: TokenStream) -> Vec<u32> {
    let mut tokens = Vec::new();
    loop {
        match next(&mut stream) {
            TokenEvent::Token(token) => tokens.push(token.id),
            TokenEvent::Prompt(told) => panic!("nobody asked for {told:?}"),
            TokenEvent::Finished { .. } => return tokens,
            TokenEvent::Failed(error) => panic!("{error}"),
        }
    }
}

/// Prompts that begin alike, of which some are longer than a step's budget; the likeliest tokens of
/// each, and drawn ones.
fn answers(engine: &EngineHandle) -> Vec<Vec<u32>> {
    let shared: Vec<u32> = (0..70).map(|n| (n * n + 3) % 61).collect();
    let prompts = [&shared[..], &shared[..33], &[7, 8, 9, 7, 8, 9, 7, 8]];
    let greedy = prompts.map(|prompt| greedy(prompt, 12));
    let drawn = prompts.map(|prompt| SequenceRequest {
        sampling: SamplingParams {
            seed: Some(prompt.len() as u64),
            top_p: 0.95,
            ..SamplingParams::default()
        },
        ..support::greedy(prompt, 12)
    });
    let requests = greedy.into_iter().chain(drawn);
    let streams: Vec<_> = requests
        .map(|request| engine.submit(request).unwrap())
        .collect();
    streams.into_iter().map(read).collect()
}

#[test]
fn answers_are_those_of_the_processor() {
    for speculation in [
        Speculation::Off,
        Speculation::PromptLookup { draft_tokens: 3 },
    ] {
        check_answers(speculation);
    }
}

fn check_answers(speculation: Speculation) {
    let config = EngineConfig {
        max_sequences: 4,
        step_token_budget: 24,
        kv_cache_tokens: Some(512),
        speculation,
        threads: 1,
        ..EngineConfig::default()
    };
    let model = Decoder::load(&folder(), WeightPrecision::F32).unwrap();
    let expected = answers(&Engine::start(Arc::new(model), config.clone()).unwrap());
    let mut devices: Vec<Arc<dyn mortise_cuda::Device>> =
        vec![Arc::new(mortise_cuda_emulator::Emulator::new())];
    devices.extend(mortise_cuda_emulator::gpu());
    for device in devices {
        let settings = DeviceSettings {
            precision: WeightPrecision::F32,
            context: 256,
            blocks: 32,
            kv_type: KvType::F32,
        };
        let model = DeviceModel::load(&folder(), device, settings).unwrap();
        let engine = Engine::start_with(Box::new(model), config.clone()).unwrap();
        assert_eq!(answers(&engine), expected);
    }
}
