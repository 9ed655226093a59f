//! What masks cost in the sandbox: the grammar component against the engine in it, run natively.
//!
//! ```sh
//! cargo run --release --workspace --example mask_ratio
//! ```
//!
//! Both walk through the same texts, in turns, over a vocabulary of 128 256 tokens; each position's time
//! is the best of several walks, border crossing and copy of the mask included.

#[allow(dead_code, reason = "the test uses more of it")]
#[path = "../../../tests/masks/corpus.rs"]
mod corpus;

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use corpus::{Named, Walk, demo, large, walks};
use mortise_grammar::engine::Engine;
use mortise_plugin::{Binding, CallContext, Grammar, HostConfig, Kind, Limits, PluginHost};

const WALKS: usize = 8;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    println!(
        "| vocabulary | grammar | positions | native mean | component mean | ratio | component p99 |"
    );
    println!("|---|---|---|---|---|---|---|");
    for named in [demo(), large(128_256)] {
        measure(&named).await?;
    }
    Ok(())
}

async fn measure(named: &Named) -> Result<(), Box<dyn Error>> {
    let host = PluginHost::new(HostConfig::default())?;
    let mut grammar = None;
    for source in mortise_bundle::plugins() {
        let component = host.load(source)?;
        if component.kinds() == [Kind::Grammar] {
            let binding = Binding {
                vocabulary: Some(Arc::new(named.vocabulary.clone())),
                limits: Limits::for_kind(Kind::Grammar),
                ..Binding::default()
            };
            grammar = Some(Grammar::bind(&host, &component, binding).await?);
        }
    }
    let grammar = grammar.ok_or("no grammar plugin is embedded")?;
    let mut engine = Engine::new(&named.to_native())?;
    let (mut all_native, mut all_component) = (Vec::new(), Vec::new());
    for walk in walks() {
        let tokens = named.tokens_of(walk.text);
        let mut native = vec![Duration::MAX; tokens.len()];
        let mut component = native.clone();
        for _ in 0..WALKS {
            walk_native(&mut engine, &walk, &tokens, &mut native)?;
            walk_component(&grammar, named, &walk, &tokens, &mut component).await?;
        }
        report(named.name, walk.name, &native, &component);
        all_native.extend(native);
        all_component.extend(component);
    }
    report(named.name, "**all**", &all_native, &all_component);
    Ok(())
}

fn walk_native(
    engine: &mut Engine,
    walk: &Walk,
    tokens: &[u32],
    best: &mut [Duration],
) -> Result<(), Box<dyn Error>> {
    let mut matcher = engine.compile(&walk.source)?;
    for (token, best) in tokens.iter().zip(best) {
        let begun = Instant::now();
        matcher.accept(&[*token])?;
        std::hint::black_box(matcher.mask()?);
        *best = (*best).min(begun.elapsed());
    }
    Ok(())
}

async fn walk_component(
    grammar: &Grammar,
    named: &Named,
    walk: &Walk,
    tokens: &[u32],
    best: &mut [Duration],
) -> Result<(), Box<dyn Error>> {
    let context = CallContext::new("bench");
    let mut matcher = grammar.compile(&context, &walk.to_host()).await?;
    let mut row = vec![0; named.vocabulary.mask_words()];
    for (token, best) in tokens.iter().zip(best) {
        let begun = Instant::now();
        matcher.advance(&[*token], &mut row).await?;
        *best = (*best).min(begun.elapsed());
    }
    Ok(())
}

fn report(vocabulary: &str, grammar: &str, native: &[Duration], component: &[Duration]) {
    let mean = |times: &[Duration]| {
        times.iter().map(Duration::as_secs_f64).sum::<f64>() / times.len() as f64 * 1e6
    };
    let mut sorted = component.to_vec();
    sorted.sort_unstable();
    let p99 = sorted[(sorted.len() * 99).div_ceil(100) - 1].as_secs_f64() * 1e6;
    println!(
        "| {vocabulary} | {grammar} | {} | {:.1} µs | {:.1} µs | {:.2} | {p99:.0} µs |",
        native.len(),
        mean(native),
        mean(component),
        mean(component) / mean(native),
    );
}
