//! Prefill and decode throughput of a model, measured as told line by line. For scripts: see
//! `kernels/bench/compare_llama_cpp.py`.
//!
//!     step_speed MODEL.gguf THREADS ISA [f32|f16|bf16|q8_0]
//!
//! Each line of the input is `prefill TOKENS` or `decode STREAMS DEPTH TOKENS`: how many tokens in one
//! batch, or how many steps with one token of each of so many streams that have so many tokens before;
//! `greedy` is `decode` with the highest logit of each row alone. The answer is a line with tokens,
//! seconds by the clock and seconds of processor time.

mod processor_time;

use std::io::{BufRead, Write};
use std::time::Instant;

use mortise_kernels::isa::{Isa, limit};
use mortise_kernels::linear::WantedLogits;
use mortise_kernels::pool::ThreadPool;
use mortise_model::{
    BLOCK_TOKENS, Decoder, KvCache, KvType, LogitRows, ModelFolder, ModelInput, SequenceInput,
    WeightPrecision,
};

use processor_time::processor_seconds;

/// Tokens computed at once, as in the program compared with.
const BATCH: usize = 512;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, threads, isa, rest @ ..] = &arguments[..] else {
        panic!("step_speed MODEL.gguf THREADS ISA [KV]");
    };
    let named = Isa::ALL.into_iter().find(|known| known.name() == isa);
    limit(named.expect("a name of `Isa`: portable, avx2, neon-dotprod ..."));
    let kv_type = match rest.first().map(String::as_str) {
        None | Some("f16") => KvType::F16,
        Some("f32") => KvType::F32,
        Some("bf16") => KvType::Bf16,
        Some("q8_0") => KvType::Q8_0,
        Some(other) => panic!("no type of keys and values is called {other}"),
    };
    let pool = ThreadPool::new(threads.parse().expect("a number of threads")).expect("threads");
    pool.install(|| {
        let begun = Instant::now();
        let folder = ModelFolder::open(path).expect("a GGUF file");
        let model = Decoder::load(&folder, WeightPrecision::AsStored).expect("a model");
        println!("ready {:.6}", begun.elapsed().as_secs_f64());
        let mut kept = None;
        for line in std::io::stdin().lock().lines() {
            measure(&model, kv_type, &line.expect("a line"), &mut kept);
            std::io::stdout().flush().expect("somebody who reads");
        }
    });
}

/// Measure what a line says. Streams are kept with the tokens that they had before.
fn measure<'a>(model: &'a Decoder, kv_type: KvType, line: &str, kept: &mut Option<Streams<'a>>) {
    let mut words = line.split_whitespace();
    let what = words.next().expect("what to measure");
    let numbers: Vec<usize> = words.map(|word| word.parse().expect("a number")).collect();
    match (what, &numbers[..]) {
        ("prefill", &[tokens]) => {
            let streams = Streams::kept(kept, model, kv_type, [1, 0, tokens]);
            let timer = Timer::start();
            streams.prefill(tokens);
            timer.report(tokens);
        }
        ("decode" | "greedy", &[count, depth, tokens]) => {
            let wanted = match what {
                "greedy" => WantedLogits::Highest(None),
                _ => WantedLogits::All,
            };
            let streams = Streams::kept(kept, model, kv_type, [count, depth, tokens + 1]);
            // The first step touches memory for the first time.
            streams.step(&WantedLogits::All);
            let timer = Timer::start();
            for _ in 0..tokens {
                streams.step(&wanted);
            }
            timer.report(count * tokens);
        }
        _ => panic!("what is {line:?}?"),
    }
}

struct Streams<'a> {
    model: &'a Decoder,
    cache: KvCache,
    tables: Vec<Vec<u32>>,
    /// Tokens that a stream can have.
    room: usize,
    /// Tokens that a stream has.
    position: usize,
}

impl<'a> Streams<'a> {
    /// Get `count` streams with `depth` computed tokens each and room for `room` more: the kept streams if they fit,
    /// else new ones. Prefill of new streams is not measured and has all processors.
    fn kept<'b>(
        kept: &'b mut Option<Self>,
        model: &'a Decoder,
        kv_type: KvType,
        [count, depth, room]: [usize; 3],
    ) -> &'b mut Self {
        let fits = |there: &Self| {
            there.tables.len() == count && there.position >= depth && there.room >= depth + room
        };
        if !kept.as_ref().is_some_and(fits) {
            let mut streams = Self::new(model, kv_type, count, depth + room);
            let pool = ThreadPool::new(0).expect("threads");
            pool.install(|| streams.prefill(depth));
            *kept = Some(streams);
        }
        let streams = kept.as_mut().expect("made above");
        streams.position = depth;
        streams
    }

    fn new(model: &'a Decoder, kv_type: KvType, count: usize, room: usize) -> Self {
        let blocks = room.div_ceil(BLOCK_TOKENS);
        let tables = (0..count)
            .map(|stream| {
                (0..blocks)
                    .map(|block| (stream * blocks + block) as u32)
                    .collect()
            })
            .collect();
        Self {
            model,
            cache: KvCache::new(model.spec(), blocks * count, kv_type).expect("a cache"),
            tables,
            room,
            position: 0,
        }
    }

    /// Prefill all streams with the same tokens, until each has `tokens` of them.
    fn prefill(&mut self, tokens: usize) {
        while self.position < tokens {
            let count = BATCH.min(tokens - self.position);
            for stream in 0..self.tables.len() {
                self.forward(stream..stream + 1, count, &WantedLogits::All);
            }
            self.position += count;
        }
    }

    fn step(&mut self, wanted: &WantedLogits) {
        self.forward(0..self.tables.len(), 1, wanted);
        self.position += 1;
    }

    fn forward(&mut self, streams: std::ops::Range<usize>, count: usize, wanted: &WantedLogits) {
        let rows = streams.len();
        let tokens: Vec<u32> = (0..count)
            .map(|k| ((self.position + k) * 7919 % 2000) as u32)
            .collect();
        let mut input = ModelInput::new();
        for table in &self.tables[streams] {
            input.push(SequenceInput {
                tokens: &tokens,
                first_position: self.position,
                block_table: table,
                logits: LogitRows::Last,
            });
        }
        let wanted = || vec![wanted.clone(); rows];
        let scores = self.model.score(&input, &mut self.cache, wanted);
        std::hint::black_box(scores.expect("a batch that fits"));
    }
}

struct Timer {
    clock: Instant,
    processor: f64,
}

impl Timer {
    fn start() -> Self {
        Self {
            clock: Instant::now(),
            processor: processor_seconds(),
        }
    }

    fn report(&self, tokens: usize) {
        let (clock, processor) = (self.clock.elapsed(), processor_seconds());
        println!(
            "{tokens} {:.6} {:.6}",
            clock.as_secs_f64(),
            processor - self.processor
        );
    }
}
