//! What a call through a plugin costs beside the work of the guest; the page `docs/plugins/cost.md` has
//! figures.
//!
//! ```sh
//! (cd tests/guests && cargo build --release --target wasm32-wasip2 --features every-kind)
//! cargo run --release --workspace --example overhead -- tests/guests/target/wasm32-wasip2/release/guests.wasm
//! ```
//!
//! Give further files to see how long each takes to load, compiled and from the cache.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mortise_plugin::{
    Binding, CallContext, ChatTemplate, ComponentSource, Facts, Grammar, GrammarSource, HostConfig,
    OutputParser, ParserSetup, PluginHost, Policy, TemplateInput, Vocabulary,
};

const ROUNDS: u32 = 20_000;

/// The deadline that a runaway guest meets.
const DEADLINE_MS: u64 = 20;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let files: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let guest = files
        .first()
        .ok_or("give the path of tests/guests, built")?;
    let host = PluginHost::new(HostConfig::default())?;
    for file in &files {
        let started = Instant::now();
        host.load(ComponentSource::File(file.clone()))?;
        println!("{:>10.2?}  compile {}", started.elapsed(), file.display());
    }
    load_from_cache(&files)?;
    calls(&host, guest).await?;
    instances(&host, guest).await
}

fn load_from_cache(files: &[PathBuf]) -> Result<(), Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("mortise-overhead-{}", std::process::id()));
    let host = PluginHost::new(HostConfig {
        cache_dir: Some(folder.clone()),
        ..HostConfig::default()
    })?;
    for file in files {
        host.load(ComponentSource::File(file.clone()))?;
        let started = Instant::now();
        host.load(ComponentSource::File(file.clone()))?;
        println!(
            "{:>10.2?}  load from cache {}",
            started.elapsed(),
            file.display()
        );
    }
    std::fs::remove_dir_all(folder)?;
    Ok(())
}

/// What a call takes, over many: the median tells of the border, the rest of the machine.
#[derive(Default)]
struct Times(Vec<Duration>);

impl Times {
    async fn of<T, E>(rounds: u32, mut call: impl AsyncFnMut() -> Result<T, E>) -> Result<Self, E> {
        let mut times = Self::default();
        for _ in 0..rounds {
            let begun = Instant::now();
            call().await?;
            times.0.push(begun.elapsed());
        }
        Ok(times)
    }

    fn report(mut self, what: &str) {
        self.0.sort_unstable();
        let at = |percent: usize| self.0[(self.0.len() * percent).div_ceil(100).max(1) - 1];
        println!("{:>10.2?} {:>10.2?}  {what}", at(50), at(99));
    }
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

async fn calls(host: &PluginHost, guest: &Path) -> Result<(), Box<dyn Error>> {
    let component = host.load(ComponentSource::File(guest.to_path_buf()))?;
    let context = CallContext::new("bench");
    println!("{:>10} {:>10}", "p50", "p99");

    let policy = Policy::bind(host, &component, binding()).await?;
    let facts = facts("abstain");
    let ask = async || policy.authorize(&context, facts.clone()).await;
    Times::of(ROUNDS, ask)
        .await?
        .report("authorize, with checkout");

    let template = ChatTemplate::bind(host, &component, binding()).await?;
    let input = TemplateInput {
        messages: format!("echo:{}", "x".repeat(1000)),
        ..TemplateInput::default()
    };
    let render = async || template.render(&context, input.clone()).await;
    Times::of(ROUNDS, render)
        .await?
        .report("render 1 KB, with checkout");

    let parser = OutputParser::bind(host, &component, binding()).await?;
    let opened = parser.open(&context, &ParserSetup::default()).await?;
    let mut session = opened.ok_or("the guest opens sessions")?;
    let feed = async || session.feed("token", &[1]).await;
    Times::of(ROUNDS, feed).await?.report("feed one token");

    let grammar = Grammar::bind(host, &component, binding()).await?;
    let mut row = vec![0; 4008];
    for command in ["only", "dense"] {
        let source = GrammarSource::Regex(command.to_owned());
        let mut matcher = grammar.compile(&context, &source).await?;
        let mask = async || matcher.mask(&mut row).await;
        let times = Times::of(ROUNDS, mask).await?;
        times.report(&format!("mask of 16 KB, {command}"));
    }
    Ok(())
}

fn facts(model: &str) -> Facts {
    Facts {
        model: Some(model.to_owned()),
        ..Facts::default()
    }
}

async fn instances(host: &PluginHost, guest: &Path) -> Result<(), Box<dyn Error>> {
    let component = host.load(ComponentSource::File(guest.to_path_buf()))?;
    let context = CallContext::new("bench");
    let mut fresh = binding();
    fresh.limits.recycle_after_uses = 1;
    let policy = Policy::bind(host, &component, fresh).await?;
    let ask = async || policy.authorize(&context, facts("abstain")).await;
    let times = Times::of(ROUNDS / 10, ask).await?;
    times.report("authorize on a fresh instance each time");

    // Each of these is to fail, again and again.
    let mut failing = binding();
    failing.limits.breaker.failures = 0;
    failing.limits.deadlines.authorize_ms = DEADLINE_MS;
    let policy = Policy::bind(host, &component, failing).await?;
    for (command, what) in [
        (
            "panic",
            "a call that panics, with its replacement".to_owned(),
        ),
        (
            "loop",
            format!("a call that loops, under a deadline of {DEADLINE_MS} ms"),
        ),
    ] {
        let fail = async || match policy.authorize(&context, facts(command)).await {
            Err(error) if error.fault.is_breakdown() => Ok(()),
            other => Err(format!("{command}: {other:?}")),
        };
        Times::of(200, fail).await?.report(&what);
    }
    Ok(())
}
