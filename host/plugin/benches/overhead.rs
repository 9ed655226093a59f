//! Overhead of a call through a plugin beside the work of the guest; the page `docs/plugins/cost.md` has
//! figures.
//!
//! ```sh
//! cargo bench -p mortise-plugin --bench overhead
//! ```
//!
//! Criterion tells the mean, and how it has changed since the run before. The median and the 99th percentile
//! of single calls, which matter to a request that waits for one, are printed below it.

#![allow(missing_docs, reason = "criterion's macros make functions without")]

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, SamplingMode, criterion_group, criterion_main};
use mortise_plugin::{
    Binding, CallContext, ChatTemplate, Component, Facts, Grammar, GrammarSource, HostConfig,
    OutputParser, ParserSetup, PluginHost, Policy, TemplateInput, Vocabulary,
};
use tokio::runtime::Runtime;

#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../tests/hostile_guests/guests.rs"]
mod guests;

/// The deadline that a runaway guest meets.
const DEADLINE_MS: u64 = 20;

criterion_group!(overhead, loading, calls, instances);
criterion_main!(overhead);

/// A group of short calls: a second each is enough for many thousands.
fn group<'a>(criterion: &'a mut Criterion, name: &str) -> BenchmarkGroup<'a, WallTime> {
    let mut group = criterion.benchmark_group(name);
    group.warm_up_time(Duration::from_millis(300));
    group.measurement_time(Duration::from_secs(1));
    group
}

/// Time each call for itself, and tell the median and the 99th percentile after criterion's own figures.
fn measure<T, E: Debug>(
    group: &mut BenchmarkGroup<'_, WallTime>,
    runtime: &Runtime,
    name: &str,
    mut call: impl AsyncFnMut() -> Result<T, E>,
) {
    let mut times = Vec::new();
    group.bench_function(name, |bencher| {
        bencher.iter_custom(|rounds| {
            runtime.block_on(async {
                let mut sum = Duration::ZERO;
                for _ in 0..rounds {
                    let begun = Instant::now();
                    call().await.expect("a call that can be measured");
                    let taken = begun.elapsed();
                    times.push(taken);
                    sum += taken;
                }
                sum
            })
        });
    });
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() * percent).div_ceil(100).max(1) - 1];
    // Another benchmark may have been asked for.
    if !times.is_empty() {
        println!("{name}: p50 {:.2?}, p99 {:.2?}", at(50), at(99));
    }
}

/// The guest of all kinds, which does nothing unless it is told to.
fn guest(host: &PluginHost) -> Arc<Component> {
    let source = guests::source("every-kind", guests::every_kind());
    host.load(source).expect("the guest of the tests")
}

/// A vocabulary as large as a model's: masks of 16 KB.
fn binding() -> Binding {
    let count = 128_256;
    Binding {
        vocabulary: Some(Arc::new(Vocabulary {
            bytes: vec![b'a'; count as usize],
            offsets: (0..=count).collect(),
            eos: vec![0],
            control: Vec::new(),
            digest: String::new(),
        })),
        ..Binding::default()
    }
}

fn loading(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime");
    let mut group = group(criterion, "load");
    group.sample_size(10);
    let source = || guests::source("every-kind", guests::every_kind());
    let host = PluginHost::new(HostConfig::default()).expect("a host");
    measure(&mut group, &runtime, "load, compiled", async || {
        host.load(source())
    });
    let folder = tempfile::tempdir().expect("a folder");
    let cached = PluginHost::new(HostConfig {
        cache_dir: Some(folder.path().to_owned()),
        ..HostConfig::default()
    });
    let cached = cached.expect("a host");
    measure(&mut group, &runtime, "load, from the cache", async || {
        cached.load(source())
    });
}

fn calls(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime");
    let host = PluginHost::new(HostConfig::default()).expect("a host");
    let component = guest(&host);
    let context = CallContext::new("bench");
    let mut group = group(criterion, "call");

    let policy = runtime.block_on(Policy::bind(&host, &component, binding()));
    let policy = policy.expect("a policy");
    measure(
        &mut group,
        &runtime,
        "authorize, with checkout",
        async || policy.authorize(&context, facts("abstain")).await,
    );

    let template = runtime.block_on(ChatTemplate::bind(&host, &component, binding()));
    let template = template.expect("a template");
    let input = TemplateInput {
        messages: format!("echo:{}", "x".repeat(1000)),
        ..TemplateInput::default()
    };
    measure(
        &mut group,
        &runtime,
        "render 1 KB, with checkout",
        async || template.render(&context, input.clone()).await,
    );

    // One answer of as many tokens as are measured.
    let mut endless = binding();
    endless.limits.output_bytes = 1 << 30;
    endless.limits.budget_ms = 3_600_000;
    let parser = runtime.block_on(OutputParser::bind(&host, &component, endless));
    let parser = parser.expect("a parser");
    let setup = ParserSetup::default();
    let opened = runtime.block_on(parser.open(&context, &setup));
    let mut session = opened.expect("an answer").expect("a session");
    measure(&mut group, &runtime, "feed one token", async || {
        session.feed("token", &[1]).await
    });

    let grammar = runtime.block_on(Grammar::bind(&host, &component, binding()));
    let grammar = grammar.expect("a grammar");
    let mut row = vec![0; 4008];
    for command in ["only", "dense"] {
        let source = GrammarSource::Regex(command.to_owned());
        let matcher = runtime.block_on(grammar.compile(&context, &source));
        let mut matcher = matcher.expect("a matcher");
        let name = format!("mask of 16 KB, {command}");
        measure(&mut group, &runtime, &name, async || {
            matcher.mask(&mut row).await
        });
    }
}

fn facts(model: &str) -> Facts {
    Facts {
        model: Some(model.to_owned()),
        ..Facts::default()
    }
}

fn instances(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime");
    let host = PluginHost::new(HostConfig::default()).expect("a host");
    let component = guest(&host);
    let context = CallContext::new("bench");
    let mut group = group(criterion, "instance");

    let mut fresh = binding();
    fresh.limits.recycle_after_uses = 1;
    let policy = runtime.block_on(Policy::bind(&host, &component, fresh));
    let policy = policy.expect("a policy");
    measure(
        &mut group,
        &runtime,
        "authorize on a fresh instance each time",
        async || policy.authorize(&context, facts("abstain")).await,
    );

    // Each of these is to fail, again and again.
    let mut failing = binding();
    failing.limits.breaker.failures = 0;
    failing.limits.deadlines.authorize_ms = DEADLINE_MS;
    let policy = runtime.block_on(Policy::bind(&host, &component, failing));
    let policy = policy.expect("a policy");
    group.sample_size(10);
    group.sampling_mode(SamplingMode::Flat);
    for (command, name) in [
        (
            "panic",
            "a call that panics, with its replacement".to_owned(),
        ),
        (
            "loop",
            format!("a call that loops, under a deadline of {DEADLINE_MS} ms"),
        ),
    ] {
        measure(&mut group, &runtime, &name, async || {
            match policy.authorize(&context, facts(command)).await {
                Err(error) if error.fault.is_breakdown() => Ok(()),
                other => Err(other),
            }
        });
    }
}
