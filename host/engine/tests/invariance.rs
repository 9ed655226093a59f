//! Invariance of generated tokens: the same request gives the same tokens, bit for bit, alone or among others,
//! prefilled in one piece or in chunks, from the prefix cache or anew, preempted or not, with speculative decoding or
//! without. The models are the tiny ones of `tests/parity`; log-probabilities are compared too, so that one bit would
//! show.

mod adapted;
mod support;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, Waker};

use mortise_engine::{
    Constraint, ConstraintError, Engine, EngineConfig, EngineHandle, ForwardPass, KvType,
    LogprobParams, MaskStep, SamplingParams, SequenceRequest, SequenceUsage, Speculation,
    TokenEvent, TokenStream,
};
use mortise_kernels::linear::{Scores, WantedLogits};
use mortise_model::{
    Decoder, InputError, KvCache, Logits, ModelFolder, ModelInput, WeightPrecision,
};
use support::{collect, greedy, next};

/// Names of plain models, and of models with windows, soft caps, sinks, experts and latent attention.
const MODELS: [&str; 9] = [
    "llama-rope-scaled",
    "qwen2-bias",
    "qwen3-qk-norm",
    "mistral-window",
    "gemma2-soft-caps",
    "gemma3-two-ropes",
    "gpt-oss-sinks",
    "mixtral-experts",
    "deepseek-v3",
];

fn model(name: &str) -> Arc<Decoder> {
    load(name, WeightPrecision::AsStored)
}

fn load(name: &str, precision: WeightPrecision) -> Arc<Decoder> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/parity/data");
    let folder = ModelFolder::open(path.join(name)).unwrap();
    Arc::new(Decoder::load(&folder, precision).unwrap())
}

/// Requests of all sorts, some of which begin alike.
fn requests() -> Vec<SequenceRequest> {
    let shared: Vec<u32> = (0..70).map(|n| (n * n + 3) % 61).collect();
    let sampled = |seed| SamplingParams {
        seed: Some(seed),
        top_p: 0.95,
        ..SamplingParams::default()
    };
    let penalised = SamplingParams {
        frequency_penalty: 0.7,
        repetition_penalty: 1.1,
        ..sampled(5)
    };
    let cold = SamplingParams {
        temperature: 0.0,
        ..SamplingParams::default()
    };
    let request = |prompt: &[u32], sampling: SamplingParams| SequenceRequest {
        sampling,
        logprobs: Some(LogprobParams { top: 4 }),
        ..greedy(prompt, 60)
    };
    vec![
        request(&shared, cold.clone()),
        request(&shared, sampled(1)),
        request(&shared, sampled(2)),
        request(&shared[..64], sampled(3)),
        request(&shared[..33], penalised),
        request(&[7, 8, 9, 7, 8, 9, 7, 8], cold),
    ]
}

/// All tokens with their log-probabilities, to the bit, and what the sequence took.
fn read(mut stream: TokenStream) -> (Vec<String>, SequenceUsage) {
    let mut tokens = Vec::new();
    loop {
        match next(&mut stream) {
            TokenEvent::Token(token) => {
                let bits = token.logprobs.iter().flat_map(|logprobs| {
                    let top = logprobs
                        .top
                        .iter()
                        .map(|(id, value)| (*id, value.to_bits()));
                    std::iter::once((token.id, logprobs.chosen.to_bits())).chain(top)
                });
                tokens.push(format!("{:?}", bits.collect::<Vec<_>>()));
            }
            TokenEvent::Finished { usage, .. } => return (tokens, usage),
            TokenEvent::Prompt(told) => panic!("nobody asked for {told:?}"),
            TokenEvent::Failed(error) => panic!("{error}"),
        }
    }
}

fn engine(model: &Arc<Decoder>, config: EngineConfig) -> EngineHandle {
    Engine::start(Arc::clone(model), config).unwrap()
}

/// Generate with no prefix cache and no speculative decoding, one sequence after the other.
fn plainly(model: &Arc<Decoder>) -> Vec<Vec<String>> {
    plainly_with(model, KvType::F32)
}

fn plainly_with(model: &Arc<Decoder>, kv_type: KvType) -> Vec<Vec<String>> {
    let config = EngineConfig {
        prefix_cache: false,
        kv_type,
        threads: 1,
        ..EngineConfig::default()
    };
    let engine = engine(model, config);
    let read_alone = |request| read(engine.submit(request).unwrap()).0;
    requests().into_iter().map(read_alone).collect()
}

/// Generate all sequences at once, with readers that are slower than the engine.
fn together(engine: &EngineHandle) -> Vec<Vec<String>> {
    let streams = requests()
        .into_iter()
        .map(|request| engine.submit(request).unwrap());
    let streams: Vec<TokenStream> = streams.collect();
    streams.into_iter().map(|stream| read(stream).0).collect()
}

/// All models of the parity set.
fn every_model() -> Vec<String> {
    let data = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/parity/data");
    let folders = std::fs::read_dir(data).unwrap().map(|entry| entry.unwrap());
    let models = folders.filter(|entry| entry.path().join("config.json").exists());
    let mut names: Vec<String> = models
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn hits_are_bit_identical_to_misses() {
    let names = every_model();
    assert!(names.len() >= 29, "{names:?}");
    for name in &names {
        let model = model(name);
        let expected = plainly(&model);
        let engine = engine(&model, EngineConfig::default());
        let mut cached = Vec::new();
        for round in 0..2 {
            for (request, expected) in requests().into_iter().zip(&expected) {
                let (tokens, usage) = read(engine.submit(request).unwrap());
                assert_eq!(&tokens, expected, "{name}, round {round}");
                cached.push(usage.cached_tokens);
            }
        }
        assert_eq!(
            cached,
            [0, 64, 64, 48, 32, 0, 64, 64, 64, 48, 32, 0],
            "{name}"
        );
        let load = engine.load();
        assert_eq!(
            load.prefix_hit_tokens,
            u64::from(cached.iter().sum::<u32>())
        );
        assert_eq!(load.prefix_queried_tokens, 2 * (3 * 70 + 64 + 33 + 8));
    }
}

#[test]
fn a_crowd_changes_nothing() {
    for name in MODELS {
        let model = model(name);
        let expected = plainly(&model);
        for (threads, step_token_budget) in [(1, 32), (2, 37), (2, 512)] {
            let config = EngineConfig {
                max_sequences: 32,
                step_token_budget,
                threads,
                ..EngineConfig::default()
            };
            let engine = engine(&model, config);
            let others: Vec<_> = (0..26)
                .map(|n| engine.submit(greedy(&[n, 5, n + 1], 200)).unwrap())
                .collect();
            assert_eq!(
                together(&engine),
                expected,
                "{name}, {threads}, {step_token_budget}"
            );
            drop(others);
        }
    }
}

#[test]
fn preemption_changes_no_token() {
    for name in MODELS {
        let model = model(name);
        let expected = plainly(&model);
        for prefix_cache in [false, true] {
            let config = EngineConfig {
                kv_cache_tokens: Some(13 * 16),
                step_token_budget: 64,
                prefix_cache,
                threads: 1,
                ..EngineConfig::default()
            };
            let engine = engine(&model, config);
            assert_eq!(together(&engine), expected, "{name}");
            let load = engine.load();
            assert!(
                load.preemptions > 0 && load.recomputed_tokens > 0,
                "{load:?}"
            );
        }
    }
}

#[test]
fn prompt_lookup_changes_no_token() {
    let mut accepted = 0;
    for name in MODELS {
        let model = model(name);
        let expected = plainly(&model);
        for tokens in [13 * 16, 4096] {
            let config = EngineConfig {
                kv_cache_tokens: Some(tokens),
                speculation: Speculation::PromptLookup { draft_tokens: 7 },
                threads: 1,
                ..EngineConfig::default()
            };
            let engine = engine(&model, config);
            assert_eq!(together(&engine), expected, "{name}");
            support::until_empty(&engine);
            let load = engine.load();
            assert!(load.drafted_tokens > load.accepted_tokens);
            accepted += load.accepted_tokens;
        }
    }
    assert!(accepted > 0);
}

/// Draft models: the same model with coarser weights, and a different model.
#[test]
fn a_draft_model_changes_no_token() {
    let mut accepted = [0, 0];
    for name in MODELS {
        let large = model(name);
        let expected = plainly(&large);
        let drafts = [
            load(name, WeightPrecision::Q8_0),
            model("llama-rope-linear"),
        ];
        for (draft, accepted) in drafts.iter().zip(&mut accepted) {
            let config = EngineConfig {
                kv_cache_tokens: Some(14 * 16),
                speculation: Speculation::DraftModel { draft_tokens: 5 },
                threads: 1,
                ..EngineConfig::default()
            };
            let engine = Engine::start_drafted(Arc::clone(&large), Arc::clone(draft), config);
            let engine = engine.unwrap();
            assert_eq!(together(&engine), expected, "{name}");
            support::until_empty(&engine);
            *accepted += engine.load().accepted_tokens;
        }
    }
    assert!(
        accepted[0] > 5 * accepted[1] && accepted[1] > 0,
        "{accepted:?}"
    );
}

#[test]
fn caches_of_all_types_are_as_exact() {
    let model = model("qwen3-qk-norm");
    let exact = plainly(&model);
    for kv_type in [KvType::F16, KvType::Bf16, KvType::Q8_0] {
        let expected = plainly_with(&model, kv_type);
        assert_ne!(expected, exact, "{kv_type:?} is not what the cache keeps");
        let config = EngineConfig {
            kv_cache_tokens: Some(13 * 16),
            kv_type,
            speculation: Speculation::PromptLookup { draft_tokens: 7 },
            step_token_budget: 64,
            threads: 2,
            ..EngineConfig::default()
        };
        let engine = engine(&model, config);
        assert_eq!(together(&engine), expected, "{kv_type:?}");
        assert_eq!(together(&engine), expected, "{kv_type:?}, once more");
    }
}

/// A model that counts what is wanted of its rows, and may compute all of them whole.
struct Watched {
    model: Arc<Decoder>,
    cache: KvCache,
    whole_always: bool,
    /// Numbers of rows of which all logits are wanted, the highest alone, and the highest of a mask.
    wanted: Arc<[AtomicUsize; 3]>,
}

impl Watched {
    fn new(model: &Arc<Decoder>, whole_always: bool) -> Self {
        Self {
            cache: KvCache::new(model.spec(), 200, KvType::F32).unwrap(),
            model: Arc::clone(model),
            whole_always,
            wanted: Arc::default(),
        }
    }
}

impl ForwardPass for Watched {
    fn vocabulary(&self) -> usize {
        self.model.spec().vocabulary
    }

    fn context_length(&self) -> usize {
        self.model.spec().context
    }

    fn cache_blocks(&self) -> usize {
        self.cache.blocks()
    }

    fn forward(&mut self, input: &ModelInput) -> Result<Logits, InputError> {
        self.model.forward(input, &mut self.cache)
    }

    fn score(
        &mut self,
        input: &ModelInput,
        wanted: &mut dyn FnMut() -> Vec<WantedLogits>,
    ) -> Result<Scores, InputError> {
        if self.whole_always {
            return self.forward(input).map(Scores::from);
        }
        let counts = &self.wanted;
        self.model.score(input, &mut self.cache, || {
            let wanted = wanted();
            for wanted in &wanted {
                let kind = match wanted {
                    WantedLogits::All => 0,
                    WantedLogits::Highest(None) => 1,
                    WantedLogits::Highest(Some(_)) => 2,
                };
                counts[kind].fetch_add(1, Ordering::Relaxed);
            }
            wanted
        })
    }
}

/// Constraint whose mask always allows the same tokens, more than one.
struct Some32(Arc<Vec<u32>>);

impl Constraint for Some32 {
    fn advance(&mut self, _: &[u32]) {}

    fn poll(&mut self, _: &Waker) -> Poll<Result<MaskStep<'_>, ConstraintError>> {
        Poll::Ready(Ok(MaskStep::Allow(&self.0)))
    }
}

/// Logits are written for the rows of sequences that need them, and for no others of the batch; no token depends on
/// that.
#[test]
fn greedy_sequences_need_no_logits_beside_others_that_do() {
    const TOKENS: u32 = 40;
    let masked = |sampling: SamplingParams, bits| SequenceRequest {
        sampling,
        constraint: Some(Box::new(Some32(Arc::new(vec![bits])))),
        ..greedy(&[9, 8, 7], TOKENS)
    };
    let batch = || {
        let plain = |first| greedy(&[first, 5, 6], TOKENS);
        let warm = |seed| SamplingParams {
            seed: Some(seed),
            top_k: 9,
            ..SamplingParams::default()
        };
        let cold = || greedy(&[], TOKENS).sampling;
        let biased = SamplingParams {
            logit_bias: vec![(3, 2.0)],
            ..cold()
        };
        let reported = Some(LogprobParams { top: 2 });
        vec![
            // All is wanted of these.
            SequenceRequest {
                sampling: warm(1),
                ..plain(1)
            },
            SequenceRequest {
                logprobs: reported,
                ..plain(2)
            },
            SequenceRequest {
                sampling: biased,
                ..plain(3)
            },
            masked(warm(2), 0xdead_beef),
            // The highest of these.
            plain(4),
            plain(5),
            // The highest of a mask.
            masked(cold(), 0x0f0f_f0f0),
            masked(cold(), 0xb6db_6db6),
        ]
    };
    for name in MODELS {
        let model = model(name);
        let run = |whole_always| {
            let watched = Watched::new(&model, whole_always);
            let wanted = Arc::clone(&watched.wanted);
            let config = EngineConfig {
                threads: 2,
                ..EngineConfig::default()
            };
            let engine = Engine::start_with(Box::new(watched), config).unwrap();
            let streams: Vec<_> = batch()
                .into_iter()
                .map(|one| engine.submit(one).unwrap())
                .collect();
            let tokens: Vec<_> = streams
                .into_iter()
                .map(|mut stream| collect(&mut stream))
                .collect();
            let wanted = [0, 1, 2].map(|kind| wanted[kind].load(Ordering::Relaxed));
            (tokens, wanted)
        };
        let (expected, none) = run(true);
        let (found, wanted) = run(false);
        assert_eq!(found, expected, "{name}");
        assert_eq!(none, [0, 0, 0]);
        let tokens = TOKENS as usize;
        assert_eq!(wanted, [4 * tokens, 2 * tokens, 2 * tokens], "{name}");
    }
}
