//! The engine alone: no HTTP, no plugins, tokens in and tokens out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use mortise_engine::{
    Engine, EngineConfig, EngineHandle, SamplingParams, SequenceRequest, Share, TokenEvent,
    TokenStream,
};
use mortise_model::{Decoder, ModelFolder, WeightPrecision};
use serde_json::json;

use super::report::{BenchReport, Row, median};
use crate::cli::BenchArgs;
use crate::progress::Progress;
use mortise_models::{PlacedEngine, Placement, start_engine};

/// Streams that run while a long prompt comes in.
const RUNNING: usize = 8;
/// The long prompt, where the context holds it.
const LONG_PROMPT: usize = 4096;
/// The shared prefix, where the context holds it.
const PREFIX: usize = 2000;
/// Prompts of streams before they decode.
const SHORT_PROMPT: usize = 16;

/// Measure prefill, decode alone and batched, a repeated prefix, and a long prompt among streams.
pub(super) fn measure(args: &BenchArgs) -> anyhow::Result<BenchReport> {
    let folder = match &args.model {
        Some(path) => ModelFolder::open(path)?,
        None => ModelFolder::embedded(mortise_bundle::demo_model()),
    };
    let begun = Instant::now();
    let widest = args
        .streams
        .iter()
        .copied()
        .max()
        .unwrap_or(1)
        .max(RUNNING + 1);
    let defaults = EngineConfig::default();
    let placement = Placement {
        device: args.device,
        precision: WeightPrecision::default(),
        max_context: usize::MAX,
        engine: EngineConfig {
            max_sequences: widest,
            step_token_budget: defaults.step_token_budget.max(widest),
            threads: args.threads,
            kv_type: args.kv_type.into(),
            ..defaults
        },
    };
    let on_processor = |engine| {
        let model = Decoder::load(&folder, WeightPrecision::default())?;
        Ok(Engine::start(Arc::new(model), engine)?)
    };
    let loading = Progress::spinner(&format!("{}  reading", folder.name()));
    let PlacedEngine { engine, device } = start_engine(&folder, placement, on_processor)?;
    let loaded = begun.elapsed();
    drop(loading);
    let mut bench = Bench {
        engine,
        // One run of prefill more, those of each number of streams, and three measurements below.
        shown: Progress::steps((args.streams.len() + 4) * args.repeat + 1),
        seed: 1,
        repeat: args.repeat,
        generate: args.generate,
    };
    let context = bench.engine.context_length();
    let needed = SHORT_PROMPT.max(args.prompt) + args.generate;
    if needed >= context {
        bail!("--prompt and --generate together are {needed} tokens; the context holds {context}");
    }
    let mut rows = vec![bench.prefill(args.prompt)?];
    rows.extend(bench.batches(&args.streams)?);
    let deep = bench.decode(1, args.prompt)?;
    rows.push(
        Row::new(format!("decode after {} tokens", args.prompt)).with(
            "tokens_per_second",
            deep,
            "t/s",
        ),
    );
    rows.push(bench.prefix(PREFIX.min(context - 2))?);
    rows.push(bench.stall(LONG_PROMPT.min(context - 2))?);
    Ok(BenchReport {
        about: vec![
            ("model", json!(folder.name())),
            ("device", json!(device)),
            ("threads", json!(threads(args.threads))),
            ("load_seconds", json!(loaded.as_secs_f64())),
            ("runs", json!(args.repeat)),
        ],
        rows,
    })
}

fn threads(asked: usize) -> usize {
    let all = thread::available_parallelism().map_or(1, usize::from);
    if asked == 0 { all } else { asked }
}

struct Bench {
    engine: EngineHandle,
    shown: Progress,
    seed: u64,
    repeat: usize,
    generate: usize,
}

/// Arrival times of the tokens of one stream.
struct Times {
    submitted: Instant,
    tokens: Vec<Instant>,
}

impl Times {
    fn first(&self) -> f64 {
        self.tokens
            .first()
            .map_or(0.0, |first| (*first - self.submitted).as_secs_f64())
    }
}

impl Bench {
    /// Decode with so many streams at once, each compared with the first.
    fn batches(&mut self, counts: &[usize]) -> anyhow::Result<Vec<Row>> {
        let mut alone = None;
        let mut rows = Vec::with_capacity(counts.len());
        for &streams in counts {
            let rate = self.decode(streams, SHORT_PROMPT)?;
            let alone = *alone.get_or_insert(rate / streams as f64);
            rows.push(
                Row::new(format!("decode, {streams} at once"))
                    .with("tokens_per_second", rate, "t/s")
                    .with("times_one_stream", rate / alone, "x"),
            );
        }
        Ok(rows)
    }

    /// Tokens that no earlier prompt began with.
    fn prompt(&mut self, length: usize) -> Vec<u32> {
        let vocabulary = self.engine.vocabulary() as u64;
        let mut next = || {
            // Knuth's linear congruential generator, MMIX.
            self.seed = self
                .seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            ((self.seed >> 33) % vocabulary) as u32
        };
        (0..length).map(|_| next()).collect()
    }

    /// Submit a prompt with greedy sampling and no end tokens: a random prompt may end a text early.
    fn submit(&self, prompt: Vec<u32>, tokens: usize) -> anyhow::Result<(Instant, TokenStream)> {
        let submitted = Instant::now();
        let stream = self.engine.submit(SequenceRequest {
            prompt,
            max_tokens: u32::try_from(tokens).unwrap_or(u32::MAX),
            stop_tokens: Vec::new(),
            sampling: SamplingParams {
                temperature: 0.0,
                ..SamplingParams::default()
            },
            logprobs: None,
            prompt_logprobs: None,
            priority: 0,
            share: Share::default(),
            salt: None,
            adapter: None,
            constraint: None,
        })?;
        Ok((submitted, stream))
    }

    fn once(&self, prompt: Vec<u32>, tokens: usize) -> anyhow::Result<Times> {
        let (submitted, stream) = self.submit(prompt, tokens)?;
        read(submitted, stream)
    }

    fn prefill(&mut self, length: usize) -> anyhow::Result<Row> {
        self.shown.begin(&format!("prefill, {length} tokens"));
        let mut rates = Vec::new();
        for _ in 0..=self.repeat {
            let prompt = self.prompt(length);
            rates.push(length as f64 / self.once(prompt, 1)?.first());
            self.shown.advance();
        }
        // The first run touches memory for the first time.
        Ok(Row::new(format!("prefill, {length} tokens")).with(
            "tokens_per_second",
            median(&rates[1..]),
            "t/s",
        ))
    }

    /// Decode throughput: tokens a second of all streams together, while all of them decode after prompts of `depth`
    /// tokens.
    fn decode(&mut self, streams: usize, depth: usize) -> anyhow::Result<f64> {
        self.shown
            .begin(&format!("decode, {streams} at once after {depth} tokens"));
        let mut rates = Vec::new();
        for _ in 0..self.repeat {
            let prompts: Vec<_> = (0..streams).map(|_| self.prompt(depth)).collect();
            let all = self.together(prompts, self.generate)?;
            let begin = all.iter().filter_map(|times| times.tokens.first()).max();
            let end = all.iter().filter_map(|times| times.tokens.last()).min();
            let (Some(begin), Some(end)) = (begin, end) else {
                bail!("a stream ended without a token");
            };
            let within = |at: &&Instant| *begin < **at && **at <= *end;
            let count: usize = all
                .iter()
                .map(|times| times.tokens.iter().filter(within).count())
                .sum();
            rates.push(count as f64 / (*end - *begin).as_secs_f64().max(1e-9));
            self.shown.advance();
        }
        Ok(median(&rates))
    }

    fn together(&self, prompts: Vec<Vec<u32>>, tokens: usize) -> anyhow::Result<Vec<Times>> {
        let streams = prompts
            .into_iter()
            .map(|prompt| self.submit(prompt, tokens));
        let streams = streams.collect::<Result<Vec<_>, _>>()?;
        let readers: Vec<_> = streams
            .into_iter()
            .map(|(submitted, stream)| thread::spawn(move || read(submitted, stream)))
            .collect();
        readers.into_iter().map(joined).collect()
    }

    /// Measure the prefix cache: time to first token of a new prompt, and of the same prompt again.
    fn prefix(&mut self, length: usize) -> anyhow::Result<Row> {
        self.shown
            .begin(&format!("a prefix of {length} tokens, again"));
        let (mut cold, mut warm) = (Vec::new(), Vec::new());
        for _ in 0..self.repeat {
            let prompt = self.prompt(length);
            cold.push(self.once(prompt.clone(), 1)?.first());
            warm.push(self.once(prompt, 1)?.first());
            self.shown.advance();
        }
        let (cold, warm) = (median(&cold), median(&warm));
        Ok(Row::new(format!("a prefix of {length} tokens, again"))
            .with("first_token_cold", 1e3 * cold, "ms")
            .with("first_token_again", 1e3 * warm, "ms")
            .with("times_faster", cold / warm, "x"))
    }

    /// Measure the delay of running streams by the prefill of a long prompt.
    fn stall(&mut self, length: usize) -> anyhow::Result<Row> {
        self.shown
            .begin(&format!("a prompt of {length} among {RUNNING} streams"));
        let (mut usual, mut longest) = (Vec::new(), Vec::new());
        let tokens = self.engine.context_length() - SHORT_PROMPT;
        for _ in 0..self.repeat {
            let mut readers = Vec::new();
            let stop = Arc::new(AtomicBool::new(false));
            for _ in 0..RUNNING {
                let prompt = self.prompt(SHORT_PROMPT);
                let (submitted, stream) = self.submit(prompt, tokens)?;
                let stop = Arc::clone(&stop);
                readers.push(thread::spawn(move || read_until(submitted, stream, &stop)));
            }
            // Long enough to know the usual pace.
            thread::sleep(Duration::from_millis(300));
            let prompt = self.prompt(length);
            let times = self.once(prompt, 1)?;
            let arrived = times.submitted;
            let served = *times
                .tokens
                .last()
                .context("the long prompt gave no token")?;
            stop.store(true, Ordering::Relaxed);
            for reader in readers {
                let times = joined(reader)?;
                for pair in times.tokens.windows(2) {
                    let gap = (pair[1] - pair[0]).as_secs_f64();
                    if pair[1] <= arrived {
                        usual.push(gap);
                    } else if pair[0] <= served {
                        longest.push(gap);
                    }
                }
            }
            self.shown.advance();
        }
        let worst = longest.iter().copied().fold(0.0, f64::max);
        Ok(
            Row::new(format!("a prompt of {length} among {RUNNING} streams"))
                .with("usual_gap", 1e3 * median(&usual), "ms")
                .with("gap_meanwhile", 1e3 * median(&longest), "ms")
                .with("longest_gap", 1e3 * worst, "ms"),
        )
    }
}

fn joined<T>(reader: thread::JoinHandle<anyhow::Result<T>>) -> anyhow::Result<T> {
    reader.join().unwrap_or_else(|_| bail!("a reader failed"))
}

fn read(submitted: Instant, stream: TokenStream) -> anyhow::Result<Times> {
    read_until(submitted, stream, &AtomicBool::new(false))
}

/// Read to the end, or until told to stop, which cancels the stream.
fn read_until(
    submitted: Instant,
    mut stream: TokenStream,
    stop: &AtomicBool,
) -> anyhow::Result<Times> {
    let mut tokens = Vec::new();
    while let Some(event) = stream.blocking_next() {
        match event {
            TokenEvent::Token(_) => tokens.push(Instant::now()),
            TokenEvent::Prompt(_) => {}
            TokenEvent::Finished { .. } => return Ok(Times { submitted, tokens }),
            TokenEvent::Failed(error) => return Err(error.into()),
        }
        if stop.load(Ordering::Relaxed) {
            return Ok(Times { submitted, tokens });
        }
    }
    bail!("a stream closed before its end")
}
