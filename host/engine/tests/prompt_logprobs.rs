//! Log-probabilities of prompts: as `transformers` computes them, whatever the chunks, the cache, preemptions and the
//! place of the logits, and without harm to other sequences.

#[path = "support/device_model.rs"]
#[allow(dead_code, reason = "other tests count its calls")]
mod device_model;
#[path = "../../model/tests/references/mod.rs"]
mod references;
mod support;

use std::path::PathBuf;
use std::sync::Arc;

use device_model::FakeDeviceModel;
use mortise_engine::{
    Engine, EngineConfig, EngineHandle, LogprobParams, ScoredToken, SequenceEnd, SequenceError,
    SequenceRequest, SequenceUsage, Speculation, TokenEvent, TokenStream,
};
use mortise_model::{BLOCK_TOKENS, Decoder, ModelFolder, WeightPrecision};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use references::References;
use support::{
    FakeModel, NAN, VOCABULARY, collect, config, engine, expected, greedy, logits, next,
    until_empty,
};

const TOP: u8 = 3;

/// A request that asks for the log-probabilities of its prompt.
fn scored(prompt: &[u32], max_tokens: u32) -> SequenceRequest {
    SequenceRequest {
        prompt_logprobs: Some(LogprobParams { top: TOP }),
        ..greedy(prompt, max_tokens)
    }
}

struct Answer {
    prompt: Vec<ScoredToken>,
    tokens: Vec<u32>,
    end: Result<(SequenceEnd, SequenceUsage), SequenceError>,
}

fn read(mut stream: TokenStream) -> Answer {
    let (mut prompt, mut tokens) = (Vec::new(), Vec::new());
    let end = loop {
        match next(&mut stream) {
            TokenEvent::Prompt(told) => {
                assert!(tokens.is_empty(), "the prompt comes before the answer");
                prompt.extend(told);
            }
            TokenEvent::Token(token) => tokens.push(token.id),
            TokenEvent::Finished { reason, usage } => break Ok((reason, usage)),
            TokenEvent::Failed(error) => break Err(error),
        }
    };
    Answer {
        prompt,
        tokens,
        end,
    }
}

/// Log-probabilities by their definition, in double precision.
fn log_softmax(row: &[f32]) -> Vec<f64> {
    let highest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weight = |logit: &f32| f64::from(logit - highest).exp();
    let total = row.iter().map(weight).sum::<f64>().ln();
    let logprob = |logit: &f32| f64::from(logit - highest) - total;
    row.iter().map(logprob).collect()
}

/// Compare what was told of a prompt with the rows of logits that a reference has for its positions.
fn check(what: &str, told: &[ScoredToken], prompt: &[u32], rows: &[Vec<f32>]) {
    let ids: Vec<u32> = told.iter().map(|token| token.id).collect();
    assert_eq!(ids, prompt, "{what}: each token once, in order");
    assert_eq!(
        told[0].logprobs, None,
        "{what}: nothing is before the first"
    );
    for (at, token) in told.iter().enumerate().skip(1) {
        let expected = log_softmax(&rows[at - 1]);
        let found = token.logprobs.as_ref().unwrap();
        let near = |found: f32, id: u32| {
            let expected = expected[id as usize];
            let error = (f64::from(found) - expected).abs();
            assert!(
                error < 1e-3,
                "{what}, token {at}: {found} is not {expected}"
            );
        };
        near(found.own, token.id);
        assert_eq!(found.top.len(), usize::from(TOP), "{what}");
        found.top.iter().for_each(|(id, own)| near(*own, *id));
        let own = rows[at - 1][token.id as usize];
        let above = rows[at - 1].iter().filter(|logit| **logit > own + 1e-3);
        let beside = rows[at - 1].iter().filter(|logit| **logit > own - 1e-3);
        let ranks = above.count() + 1..=beside.count();
        assert!(ranks.contains(&(found.rank as usize)), "{what}, token {at}");
        assert!(found.top.is_sorted_by(|one, other| one.1 >= other.1));
    }
}

/// Rows of the fake model.
fn fake_rows(prompt: &[u32]) -> Vec<Vec<f32>> {
    let all = 1..prompt.len();
    all.map(|known| logits(&prompt[..known])).collect()
}

#[test]
fn prompts_are_as_likely_as_transformers_says() {
    for name in ["llama-rope-scaled", "qwen3-qk-norm", "gemma2-soft-caps"] {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("../../tests/parity/data")
            .join(name);
        let folder = ModelFolder::open(&path).unwrap();
        let model = Arc::new(Decoder::load(&folder, WeightPrecision::F32).unwrap());
        let file = References::read(&path.join("reference.safetensors"));
        let vocabulary = model.spec().vocabulary;
        let config = EngineConfig {
            max_sequences: 4,
            step_token_budget: 7,
            threads: 2,
            ..EngineConfig::default()
        };
        let engine = Engine::start(model, config).unwrap();
        for index in 0..3 {
            let prompt = file.tokens(&format!("prompt.{index}"));
            let rows = file.floats(&format!("prompt_logits.{index}"));
            let rows: Vec<Vec<f32>> = rows.chunks(vocabulary).map(<[f32]>::to_vec).collect();
            let answer = read(engine.submit(scored(&prompt, 8)).unwrap());
            let what = format!("{name}, prompt {index}");
            check(&what, &answer.prompt, &prompt, &rows);
            let greedy = file.tokens(&format!("greedy.{index}"));
            assert_eq!(answer.tokens, greedy[..8], "{what}");
        }
    }
}

#[test]
fn a_prompt_alone_is_scored_and_nothing_generated() {
    let engine = engine(40, 300, config());
    for length in [1, 2, BLOCK_TOKENS, 200] {
        let prompt: Vec<u32> = (0..length as u32).map(|at| at * 7 % 40).collect();
        let answer = read(engine.submit(scored(&prompt, 0)).unwrap());
        check("alone", &answer.prompt, &prompt, &fake_rows(&prompt));
        let (reason, usage) = answer.end.unwrap();
        assert_eq!(reason, SequenceEnd::Length);
        assert_eq!(
            (usage.prompt_tokens as usize, usage.completion_tokens),
            (length, 0)
        );
        assert!(answer.tokens.is_empty());
    }
    until_empty(&engine);
    let refused = engine.submit(greedy(&[1, 2], 0)).unwrap_err();
    assert!(refused.to_string().contains("max_tokens"), "{refused}");
    let many = SequenceRequest {
        prompt_logprobs: Some(LogprobParams { top: 21 }),
        ..greedy(&[1, 2], 1)
    };
    assert!(engine.submit(many).is_err());
}

#[test]
fn a_cached_prefix_is_computed_again_and_serves_others() {
    let engine = engine(40, 300, config());
    let prompt: Vec<u32> = (0..100).map(|at| at * 3 % 40).collect();
    let before = collect(&mut engine.submit(greedy(&prompt, 5)).unwrap());
    let answer = read(engine.submit(scored(&prompt, 5)).unwrap());
    check("cached", &answer.prompt, &prompt, &fake_rows(&prompt));
    assert_eq!(answer.tokens, before.0);
    assert_eq!(answer.end.unwrap().1.cached_tokens, 0);
    // The prefix of a scored prompt is found by those that ask for no log-probabilities.
    let other: Vec<u32> = (0..100).map(|at| at * 11 % 40).collect();
    read(engine.submit(scored(&other, 1)).unwrap());
    let (tokens, end) = collect(&mut engine.submit(greedy(&other, 5)).unwrap());
    assert_eq!(tokens, expected(&other, 5));
    let cached = end.unwrap().1.cached_tokens as usize;
    assert_eq!(cached, 99 / BLOCK_TOKENS * BLOCK_TOKENS);
}

#[test]
fn logits_that_are_no_numbers_fail_their_own_sequence() {
    let engine = engine(40, 300, config());
    let good = engine.submit(scored(&[1, 2, 3, 4], 4)).unwrap();
    let bad = engine.submit(scored(&[1, NAN, 3, 4], 4)).unwrap();
    assert!(matches!(read(bad).end, Err(SequenceError::Inference(_))));
    let good = read(good);
    check(
        "good",
        &good.prompt,
        &[1, 2, 3, 4],
        &fake_rows(&[1, 2, 3, 4]),
    );
    assert_eq!(good.tokens, expected(&[1, 2, 3, 4], 4));
}

/// Of random prompts some are scored; all get what each gets alone, in caches that are too small for all.
fn crowd(start: impl Fn(usize, EngineConfig) -> EngineHandle) -> u64 {
    let mut preemptions = 0;
    for seed in 0..30 {
        let mut random = Pcg64::seed_from_u64(seed);
        let sequences = random.random_range(1..7);
        let speculation = match random.random_range(0..3) {
            0 => Speculation::PromptLookup { draft_tokens: 3 },
            _ => Speculation::Off,
        };
        let config = EngineConfig {
            max_sequences: sequences,
            step_token_budget: sequences + random.random_range(1..200),
            speculation,
            ..config()
        };
        let engine = start(random.random_range(8..16), config);
        let mut all = Vec::new();
        for _ in 0..random.random_range(1..16) {
            let first = random.random_range(0..3);
            let length = random.random_range(1..100);
            let prompt: Vec<u32> = (0..length).map(|at| (first + at * 7) % 40).collect();
            let wanted = random.random_range(0..100);
            let asks = random.random_range(0..2) == 0;
            let request = match asks {
                true => scored(&prompt, wanted),
                false => greedy(&prompt, wanted.max(1)),
            };
            let request = SequenceRequest {
                priority: random.random_range(0..6) / 5,
                ..request
            };
            let count = if asks { wanted } else { wanted.max(1) } as usize;
            all.push((prompt, count, asks, engine.submit(request).unwrap()));
        }
        for (prompt, count, asks, stream) in all {
            let answer = read(stream);
            let room = (engine.context_length() - prompt.len()).min(count);
            assert_eq!(answer.tokens, expected(&prompt, room), "seed {seed}");
            assert!(answer.end.is_ok());
            match asks {
                true => check("crowd", &answer.prompt, &prompt, &fake_rows(&prompt)),
                false => assert!(answer.prompt.is_empty()),
            }
        }
        until_empty(&engine);
        preemptions += engine.load().preemptions;
    }
    preemptions
}

#[test]
fn random_crowds_are_scored_as_each_alone() {
    let preemptions = crowd(|blocks, config| engine(blocks, 125, config));
    assert!(preemptions > 10, "{preemptions}");
}

#[test]
fn random_crowds_are_scored_from_logits_on_a_device() {
    let preemptions = crowd(|blocks, config| {
        let model = FakeDeviceModel::new(FakeModel::new(blocks, 125));
        Engine::start_with(Box::new(model), config).unwrap()
    });
    assert!(preemptions > 10, "{preemptions}");
}

/// Most rows of logits of a step.
struct Widest(FakeModel, Arc<std::sync::atomic::AtomicUsize>);

impl mortise_engine::ForwardPass for Widest {
    fn vocabulary(&self) -> usize {
        VOCABULARY
    }

    fn context_length(&self) -> usize {
        self.0.context_length()
    }

    fn cache_blocks(&self) -> usize {
        self.0.cache_blocks()
    }

    fn forward(
        &mut self,
        input: &mortise_model::ModelInput,
    ) -> Result<mortise_model::Logits, mortise_model::InputError> {
        let logits = self.0.forward(input)?;
        let rows = logits.rows().len();
        self.1.fetch_max(rows, std::sync::atomic::Ordering::Relaxed);
        Ok(logits)
    }
}

#[test]
fn few_rows_of_logits_are_there_at_once() {
    let widest = Arc::default();
    let model = Widest(FakeModel::new(200, 1000), Arc::clone(&widest));
    let config = EngineConfig {
        step_token_budget: 2000,
        ..config()
    };
    let engine = Engine::start_with(Box::new(model), config).unwrap();
    let prompts: Vec<Vec<u32>> = (0..3)
        .map(|first| (0..400).map(|at| (first + at * 7) % 40).collect())
        .collect();
    let streams: Vec<TokenStream> = prompts
        .iter()
        .map(|prompt| engine.submit(scored(prompt, 1)).unwrap())
        .collect();
    for (prompt, stream) in prompts.iter().zip(streams) {
        check("long", &read(stream).prompt, prompt, &fake_rows(prompt));
    }
    let widest = widest.load(std::sync::atomic::Ordering::Relaxed);
    // 64 of prompts, and one for each other sequence that decodes.
    assert!((64..=66).contains(&widest), "{widest} rows in a step");
}
