//! Processor time per sampled token, by sampling parameters.
//!
//! ```text
//! cargo run --release -p mortise-engine --example sampling_speed -- [STREAMS] [THREADS] [ROUNDS]
//! ```
//!
//! The model is a fake that copies rows of 151,936 logits: what the copies cost is measured apart and
//! subtracted. What remains is the engine: scheduling, sampling, and handing tokens to their readers. One
//! kind of rows is spread as those of trained models are, the other is flat as those of random weights.
//! Rounds alternate between the cases; the least of each is printed.

mod processor_time;

use std::sync::Arc;
use std::task::{Poll, Waker};

use mortise_engine::{
    Constraint, ConstraintError, Engine, EngineConfig, ForwardPass, LogprobParams, MaskStep,
    SamplingParams, SequenceRequest, Share, TokenEvent, TokenStream,
};
use mortise_model::{BLOCK_TOKENS, InputError, LogitRows, Logits, ModelInput, SequenceInput};

use processor_time::processor_seconds;

const VOCABULARY: usize = 151_936;
const TOKENS: u32 = 64;
/// Different rows, which take turns.
const ROWS: usize = 5;
/// Tokens of a prompt, which penalties apply to.
const PROMPT: u32 = 1000;

/// Fake model that returns prepared rows of logits.
#[derive(Clone)]
struct Prepared {
    rows: Vec<Vec<f32>>,
    streams: usize,
}

impl Prepared {
    /// Rows of logits with the standard deviation `deviation`, each with a few logits raised by up to `outstanding`.
    fn new(deviation: f32, outstanding: f32, streams: usize) -> Self {
        let mut state = 1u32;
        let mut uniform = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 24) as f32
        };
        let mut row = || {
            let normal =
                |uniform: &mut dyn FnMut() -> f32| (0..12).map(|_| uniform()).sum::<f32>() - 6.0;
            let mut row: Vec<f32> = (0..VOCABULARY)
                .map(|_| deviation * normal(&mut uniform))
                .collect();
            for _ in 0..40 {
                let place = (uniform() * VOCABULARY as f32) as usize;
                row[place] += outstanding * uniform();
            }
            row
        };
        let rows = (0..ROWS).map(|_| row()).collect();
        Self { rows, streams }
    }
}

impl ForwardPass for Prepared {
    fn vocabulary(&self) -> usize {
        VOCABULARY
    }

    fn context_length(&self) -> usize {
        2048
    }

    fn cache_blocks(&self) -> usize {
        self.streams * 2048 / BLOCK_TOKENS
    }

    fn forward(&mut self, input: &ModelInput) -> Result<Logits, InputError> {
        let asked = input
            .sequences()
            .filter(|one| one.logits != LogitRows::None);
        let ends: Vec<usize> = asked
            .map(|one| one.first_position + one.tokens.len())
            .collect();
        let mut values = vec![0.0; ends.len() * VOCABULARY];
        for (row, end) in values.chunks_exact_mut(VOCABULARY).zip(ends) {
            row.copy_from_slice(&self.rows[end % ROWS]);
        }
        Ok(Logits::new(values, VOCABULARY))
    }
}

/// Constraint whose mask allows three of four tokens.
struct MostTokens(Arc<Vec<u32>>);

impl Constraint for MostTokens {
    fn advance(&mut self, _: &[u32]) {}

    fn poll(&mut self, _: &Waker) -> Poll<Result<MaskStep<'_>, ConstraintError>> {
        Poll::Ready(Ok(MaskStep::Allow(&self.0)))
    }
}

/// A case of sampling parameters.
struct Case {
    name: &'static str,
    sampling: SamplingParams,
    logprobs: Option<LogprobParams>,
    masked: bool,
}

fn cases() -> Vec<Case> {
    let warm = || SamplingParams {
        temperature: 0.8,
        seed: Some(7),
        ..SamplingParams::default()
    };
    let greedy = || SamplingParams {
        temperature: 0.0,
        ..warm()
    };
    let case = |name, sampling| Case {
        name,
        sampling,
        logprobs: None,
        masked: false,
    };
    let filtered = |top_k, min_p, top_p| SamplingParams {
        top_k,
        min_p,
        top_p,
        ..warm()
    };
    let penalised = |sampling| SamplingParams {
        repetition_penalty: 1.1,
        presence_penalty: 0.2,
        ..sampling
    };
    vec![
        case("greedy", greedy()),
        Case {
            masked: true,
            ..case("greedy, mask", greedy())
        },
        case("greedy, penalties", penalised(greedy())),
        case("temperature", warm()),
        case("top_p 0.9", filtered(0, 0.0, 0.9)),
        case("top_k 40", filtered(40, 0.0, 1.0)),
        case("top_k 40, top_p 0.9", filtered(40, 0.0, 0.9)),
        case("min_p 0.05", filtered(0, 0.05, 1.0)),
        Case {
            masked: true,
            ..case("temperature, mask", warm())
        },
        Case {
            logprobs: Some(LogprobParams { top: 20 }),
            ..case("temperature, logprobs 20", warm())
        },
        case("temperature, penalties", penalised(warm())),
    ]
}

fn request(case: &Case, stream: usize) -> SequenceRequest {
    let mask = vec![0xb7b7_7bdd; VOCABULARY.div_ceil(32)];
    SequenceRequest {
        prompt: (0..PROMPT).map(|n| n * 31 + stream as u32).collect(),
        max_tokens: TOKENS,
        stop_tokens: Vec::new(),
        sampling: case.sampling.clone(),
        logprobs: case.logprobs,
        prompt_logprobs: None,
        priority: 0,
        share: Share::default(),
        salt: None,
        adapter: None,
        constraint: case
            .masked
            .then(|| Box::new(MostTokens(Arc::new(mask))) as Box<dyn Constraint>),
    }
}

/// Processor time of all threads per generated token.
fn measure(model: &Prepared, case: &Case, threads: usize) -> f64 {
    let config = EngineConfig {
        max_sequences: model.streams,
        step_token_budget: 2048 * model.streams,
        threads,
        ..EngineConfig::default()
    };
    let engine = Engine::start_with(Box::new(model.clone()), config).expect("an engine");
    let before = processor_seconds();
    let streams: Vec<TokenStream> = (0..model.streams)
        .map(|stream| engine.submit(request(case, stream)).expect("room"))
        .collect();
    for mut stream in streams {
        for _ in 0..TOKENS {
            match stream.blocking_next() {
                Some(TokenEvent::Token(_)) => {}
                other => panic!("{other:?}"),
            }
        }
    }
    (processor_seconds() - before) / f64::from(TOKENS) / model.streams as f64
}

/// Processor time per token that the fake model spends on copying rows of logits.
fn measure_copies(model: &mut Prepared) -> f64 {
    let mut input = ModelInput::new();
    for _ in 0..model.streams {
        input.push(SequenceInput {
            tokens: &[1],
            first_position: 0,
            block_table: &[0],
            logits: LogitRows::Last,
        });
    }
    // Longer than the scheduler waits with its statistics.
    const STEPS: usize = 500;
    let before = processor_seconds();
    for _ in 0..STEPS {
        std::hint::black_box(model.forward(&input).expect("rows"));
    }
    (processor_seconds() - before) / STEPS as f64 / model.streams as f64
}

fn main() {
    let mut numbers = std::env::args()
        .skip(1)
        .map(|one| one.parse().expect("a number"));
    let streams = numbers.next().unwrap_or(1);
    let threads = numbers.next().unwrap_or(1);
    let rounds = numbers.next().unwrap_or(5);
    let mut models = [
        Prepared::new(2.5, 14.0, streams),
        Prepared::new(1.0, 0.0, streams),
    ];
    let cases = cases();
    let mut copies = [f64::INFINITY; 2];
    let mut least = vec![[f64::INFINITY; 2]; cases.len()];
    for _ in 0..rounds {
        for (kind, model) in models.iter_mut().enumerate() {
            copies[kind] = copies[kind].min(measure_copies(model));
            for (case, least) in cases.iter().zip(&mut least) {
                least[kind] = least[kind].min(measure(model, case, threads));
            }
        }
    }
    println!(
        "| µs a token, {streams} streams, {threads} threads | trained | flat |\n|---|---:|---:|"
    );
    for (case, least) in cases.iter().zip(&least) {
        let [trained, flat] = [0, 1].map(|kind| 1e6 * (least[kind] - copies[kind]));
        println!("| {} | {trained:.0} | {flat:.0} |", case.name);
    }
    println!("\nCopies: {:.0} µs a row.", 1e6 * copies[0]);
}
