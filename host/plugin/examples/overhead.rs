//! What a call through a plugin costs beside the work of the guest.
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

fn report(what: &str, took: Duration, rounds: u32) {
    println!("{:>10.2?}  {what}", took / rounds);
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

    let policy = Policy::bind(host, &component, binding()).await?;
    let facts = Facts {
        model: Some("abstain".to_owned()),
        ..Facts::default()
    };
    let started = Instant::now();
    for _ in 0..ROUNDS {
        policy.authorize(&context, facts.clone()).await?;
    }
    report("authorize, with checkout", started.elapsed(), ROUNDS);

    let template = ChatTemplate::bind(host, &component, binding()).await?;
    let input = TemplateInput {
        messages: format!("echo:{}", "x".repeat(1000)),
        ..TemplateInput::default()
    };
    let started = Instant::now();
    for _ in 0..ROUNDS {
        template.render(&context, input.clone()).await?;
    }
    report("render 1 KB, with checkout", started.elapsed(), ROUNDS);

    let parser = OutputParser::bind(host, &component, binding()).await?;
    let opened = parser.open(&context, &ParserSetup::default()).await?;
    let mut session = opened.ok_or("the guest opens sessions")?;
    let started = Instant::now();
    for _ in 0..ROUNDS {
        session.feed("token", &[1]).await?;
    }
    report("feed one token", started.elapsed(), ROUNDS);

    let grammar = Grammar::bind(host, &component, binding()).await?;
    let mut row = vec![0; 4008];
    for command in ["only", "dense"] {
        let source = GrammarSource::Regex(command.to_owned());
        let mut matcher = grammar.compile(&context, &source).await?;
        let started = Instant::now();
        for _ in 0..ROUNDS {
            matcher.mask(&mut row).await?;
        }
        report(
            &format!("mask of 16 KB, {command}"),
            started.elapsed(),
            ROUNDS,
        );
    }
    Ok(())
}

async fn instances(host: &PluginHost, guest: &Path) -> Result<(), Box<dyn Error>> {
    let component = host.load(ComponentSource::File(guest.to_path_buf()))?;
    let mut binding = binding();
    binding.limits.recycle_after_uses = 1;
    let policy = Policy::bind(host, &component, binding).await?;
    let context = CallContext::new("bench");
    let facts = Facts {
        model: Some("abstain".to_owned()),
        ..Facts::default()
    };
    let rounds = ROUNDS / 10;
    let started = Instant::now();
    for _ in 0..rounds {
        policy.authorize(&context, facts.clone()).await?;
    }
    report(
        "authorize on a fresh instance each time",
        started.elapsed(),
        rounds,
    );

    let facts = Facts {
        model: Some("panic".to_owned()),
        ..Facts::default()
    };
    let rounds = 200;
    let started = Instant::now();
    for _ in 0..rounds {
        let _ = policy.authorize(&context, facts.clone()).await;
    }
    report(
        "a call that panics, with its replacement",
        started.elapsed(),
        rounds,
    );
    Ok(())
}
