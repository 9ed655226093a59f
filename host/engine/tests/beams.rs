//! Beam search: the results of `transformers` on the tiny models of `tests/parity`, alone and in a batch.

mod support;

use std::path::PathBuf;
use std::sync::Arc;

use mortise_engine::{
    BeamParams, BeamRequest, EarlyStopping, Engine, EngineConfig, EngineHandle, SequenceEnd, Share,
    SubmitError,
};
use mortise_model::{Decoder, ModelFolder, WeightPrecision};
use safetensors::SafeTensors;
use serde_json::Value;
use support::{FakeModel, NAN, collect, config, engine, expected, greedy, next, until_empty};

fn request(prompt: &[u32], size: u32, max_tokens: u32) -> BeamRequest {
    BeamRequest {
        prompt: prompt.to_vec(),
        max_tokens,
        stop_tokens: Vec::new(),
        beams: BeamParams {
            size,
            results: size,
            length_penalty: 1.0,
            early_stopping: EarlyStopping::Unlikely,
        },
        priority: 0,
        share: Share::default(),
        salt: None,
        adapter: None,
    }
}

/// The tokens of all results, with a stop token at the end of those that it ended.
fn search(engine: &EngineHandle, request: BeamRequest) -> Vec<(Vec<u32>, SequenceEnd)> {
    let streams = engine.submit_beams(request).unwrap();
    let read = |mut stream| {
        let (tokens, end) = collect(&mut stream);
        (tokens, end.unwrap().0)
    };
    streams.into_iter().map(read).collect()
}

fn data() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/parity/data")
}

fn ids(value: &Value) -> Vec<u32> {
    let ids = value.as_array().unwrap().iter();
    ids.map(|id| id.as_u64().unwrap() as u32).collect()
}

fn prompt(model: &str, number: u64) -> Vec<u32> {
    let bytes = std::fs::read(data().join(model).join("reference.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let tensor = tensors.tensor(&format!("prompt.{number}")).unwrap();
    let ids = tensor.data().chunks_exact(8);
    ids.map(|id| i64::from_le_bytes(id.try_into().unwrap()) as u32)
        .collect()
}

#[test]
fn searches_find_what_transformers_finds() {
    let reference = std::fs::read(data().join("../beams.json")).unwrap();
    let reference: Value = serde_json::from_slice(&reference).unwrap();
    let stop_tokens = ids(&reference["stop_tokens"]);
    let searches = reference["searches"].as_array().unwrap();
    assert!(searches.len() > 50);
    let mut loaded: Vec<(String, Arc<Decoder>)> = Vec::new();
    for one in searches {
        let name = one["model"].as_str().unwrap();
        if !loaded.iter().any(|(known, _)| known == name) {
            let folder = ModelFolder::open(data().join(name)).unwrap();
            let model = Decoder::load(&folder, WeightPrecision::AsStored).unwrap();
            loaded.push((name.to_owned(), Arc::new(model)));
        }
        let model = &loaded.iter().find(|(known, _)| known == name).unwrap().1;
        let results = one["results"].as_array().unwrap();
        let request = BeamRequest {
            prompt: prompt(name, one["prompt"].as_u64().unwrap()),
            max_tokens: one["max_tokens"].as_u64().unwrap() as u32,
            stop_tokens: stop_tokens.clone(),
            beams: BeamParams {
                size: one["beams"].as_u64().unwrap() as u32,
                results: results.len() as u32,
                length_penalty: one["length_penalty"].as_f64().unwrap() as f32,
                early_stopping: match &one["early_stopping"] {
                    Value::Bool(true) => EarlyStopping::Full,
                    Value::Bool(false) => EarlyStopping::Unlikely,
                    _ => EarlyStopping::Never,
                },
            },
            ..request(&[0], 1, 1)
        };
        for (prefix_cache, tokens) in [(true, 4096), (false, 4096), (true, 8 * 16)] {
            let config = EngineConfig {
                kv_cache_tokens: Some(tokens),
                prefix_cache,
                threads: 1,
                ..EngineConfig::default()
            };
            let engine = Engine::start(Arc::clone(model), config).unwrap();
            let found = search(&engine, request.clone());
            for ((tokens, reason), result) in found.iter().zip(results) {
                let mut result = ids(result);
                let stopped = result.last().is_some_and(|last| stop_tokens.contains(last));
                assert_eq!(*reason == SequenceEnd::Stop, stopped, "{one}");
                if stopped {
                    result.pop();
                }
                assert_eq!(*tokens, result, "{one}");
            }
            assert_eq!(found.len(), results.len());
            until_empty(&engine);
        }
    }
}

#[test]
fn one_beam_is_the_greedy_continuation() {
    let engine = engine(40, 400, config());
    let found = search(&engine, request(&[1, 2, 3], 1, 50));
    assert_eq!(found, [(expected(&[1, 2, 3], 50), SequenceEnd::Length)]);
}

#[test]
fn a_search_is_the_same_alone_in_a_crowd_and_in_little_room() {
    let prompt: Vec<u32> = (0..37).map(|n| n * n % 31).collect();
    let alone = search(&engine(100, 400, config()), request(&prompt, 4, 60));
    assert_eq!(alone.len(), 4);
    assert!(alone.windows(2).all(|pair| pair[0] != pair[1]));
    for (blocks, prefix_cache) in [(100, true), (100, false), (14, true), (14, false)] {
        let config = EngineConfig {
            prefix_cache,
            ..config()
        };
        let engine = engine(blocks, 400, config);
        let others: Vec<_> = (0..4)
            .map(|n| engine.submit(greedy(&[n, 3], 60)).unwrap())
            .collect();
        let streams: Vec<_> = (0..3)
            .map(|_| engine.submit_beams(request(&prompt, 4, 60)).unwrap())
            .collect();
        for (n, mut stream) in (0..4).zip(others) {
            assert_eq!(collect(&mut stream).0, expected(&[n, 3], 60));
        }
        for streams in streams {
            let tokens: Vec<_> = streams
                .into_iter()
                .map(|mut one| collect(&mut one).0)
                .collect();
            let expected: Vec<_> = alone.iter().map(|(tokens, _)| tokens.clone()).collect();
            assert_eq!(tokens, expected, "{blocks} blocks");
        }
        until_empty(&engine);
    }
}

#[test]
fn beams_share_their_blocks() {
    let engine = engine(100, 400, config());
    let prompt: Vec<u32> = (0..160).map(|n| n * n % 31).collect();
    let before = engine.load().prefill_tokens;
    let streams = engine.submit_beams(request(&prompt, 8, 30)).unwrap();
    assert_eq!(streams.len(), 8);
    for mut stream in streams {
        assert!(collect(&mut stream).1.is_ok());
    }
    until_empty(&engine);
    let computed = engine.load().prefill_tokens - before;
    assert!(
        (160..160 + 16 * 8).contains(&computed),
        "a prompt of 160 tokens took {computed}"
    );
}

#[test]
fn cancelled_searches_end() {
    let engine = engine(100, 400, config());
    let mut streams = engine.submit_beams(request(&[1, 2], 4, 300)).unwrap();
    // One reader is enough to go on.
    streams.truncate(1);
    assert_eq!(collect(&mut streams[0]).0.len(), 300);
    drop(engine.submit_beams(request(&[1, 2], 4, 300)).unwrap());
    until_empty(&engine);
    assert_eq!(engine.load().waiting, 0);
}

#[test]
fn a_search_that_fails_fails_alone() {
    let engine = engine(100, 400, config());
    let mut other = engine.submit(greedy(&[1], 60)).unwrap();
    for mut stream in engine.submit_beams(request(&[1, NAN], 3, 10)).unwrap() {
        assert!(collect(&mut stream).1.is_err());
    }
    assert_eq!(collect(&mut other).0, expected(&[1], 60));
    until_empty(&engine);
}

#[test]
fn what_cannot_be_searched_is_refused() {
    let engine = engine(20, 100, config());
    let refused = |change: fn(&mut BeamRequest)| {
        let mut request = request(&[1, 2], 3, 10);
        change(&mut request);
        match engine.submit_beams(request) {
            Err(SubmitError::Invalid(message)) => message,
            other => panic!("{other:?}"),
        }
    };
    // Eight sequences fit in a step.
    assert!(refused(|request| request.beams.size = 9).contains("9 beams"));
    assert!(refused(|request| request.beams.size = 0).contains("0 beams"));
    assert!(refused(|request| request.beams.results = 4).contains("4 results"));
    assert!(refused(|request| request.beams.length_penalty = f32::NAN).contains("length_penalty"));
    assert!(refused(|request| request.stop_tokens = (0..40).collect()).contains("the model knows"));
    assert!(refused(|request| request.prompt = vec![99]).contains("99"));
    let too_long = engine.submit_beams(request(&[1; 100], 2, 1)).unwrap_err();
    assert!(matches!(too_long, SubmitError::ContextLength { .. }));
}

#[test]
fn a_reader_who_stops_reading_results_gets_them_later() {
    let model = FakeModel::new(60, 400);
    let engine = Engine::start_with(Box::new(model), config()).unwrap();
    let mut streams = engine.submit_beams(request(&[5], 2, 200)).unwrap();
    next(&mut streams[0]);
    // More than a stream holds waits in the engine, and others go on meanwhile.
    let mut other = engine.submit(greedy(&[7], 50)).unwrap();
    assert_eq!(collect(&mut other).0, expected(&[7], 50));
    assert_eq!(collect(&mut streams[0]).0.len(), 199);
    assert_eq!(collect(&mut streams[1]).0.len(), 200);
    until_empty(&engine);
}
