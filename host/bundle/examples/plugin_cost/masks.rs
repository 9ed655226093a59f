//! Masks in the sandbox: the grammar component against the engine in it, run natively.
//!
//! Both walk through the same texts, in turns; each position's time is the best of several walks, border
//! crossing and copy of the mask included. Walks with a new lexer have a grammar that was never used before;
//! those with a known one have one that the text has been walked through before.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mortise_grammar::engine::Engine;
use mortise_grammar::source::Source;
use mortise_plugin::{
    Binding, CallContext, Grammar, GrammarSource, HostConfig, Kind, Limits, PluginHost,
};

use crate::Times;
use crate::corpus::{Named, Walk, demo, large, walks};

const WALKS: usize = 8;

/// Instances that are begun.
const INSTANCES: usize = 200;

/// Number of compilations of one grammar.
const COMPILATIONS: usize = 50;

pub(crate) async fn measure() -> Result<(), Box<dyn Error>> {
    println!(
        "| vocabulary | grammar | lexer | native p50, p99, mean | component p50, p99, mean | ratio |"
    );
    println!("|---|---|---|---|---|---|");
    let mut others = Vec::new();
    for named in [demo(), large(128_256)] {
        let begun = Instant::now();
        let limits = Limits {
            keep_prepared_from_us: 0,
            ..Limits::for_kind(Kind::Grammar)
        };
        let (host, grammar) = bind(&named, limits).await?;
        others.push((
            format!("{}: an instance", named.name),
            Times(vec![begun.elapsed()]),
        ));
        others.push((
            format!("{}: its memory, kept", named.name),
            Times(vec![until_kept(&host, begun).await]),
        ));
        others.push((
            format!("{}: sixteen grammars at once", named.name),
            Times(vec![burst(&grammar).await?]),
        ));
        others.push((
            format!(
                "{}: a compilation on an instance with that memory",
                named.name
            ),
            begin_with_kept(&named).await?,
        ));
        walk_all(&grammar, &named).await?;
        for (what, times) in compile(&grammar).await? {
            others.push((format!("{}: {what}", named.name), times));
        }
    }
    println!("\n| grammar plugin | p50 | p99 |\n|---|---|---|");
    for (what, times) in others {
        times.print(&what);
    }
    Ok(())
}

async fn bind(named: &Named, limits: Limits) -> Result<(PluginHost, Grammar), Box<dyn Error>> {
    let host = PluginHost::new(HostConfig::default())?;
    let component = crate::default_plugin(&host, Kind::Grammar)?;
    let binding = Binding {
        vocabulary: Some(Arc::new(named.vocabulary.clone())),
        limits,
        ..Binding::default()
    };
    let grammar = Grammar::bind(&host, &component, binding).await?;
    Ok((host, grammar))
}

/// Time since `begun` at which further instances begin with the memory of a prepared one.
async fn until_kept(host: &PluginHost, begun: Instant) -> Duration {
    while host.stats().iter().all(|stats| stats.image_bytes == 0) {
        tokio::time::sleep(Duration::from_micros(100)).await;
    }
    begun.elapsed()
}

/// Time in which sixteen requests that come at once have their grammars compiled, each on an instance of its own.
async fn burst(grammar: &Grammar) -> Result<Duration, Box<dyn Error>> {
    let begun = Instant::now();
    let compiling = (0..16).map(|_| {
        let grammar = grammar.clone();
        tokio::spawn(async move {
            let context = CallContext::new("cost");
            grammar.compile(&context, &GrammarSource::JsonObject).await
        })
    });
    let mut matchers = Vec::new();
    for compiled in compiling.collect::<Vec<_>>() {
        matchers.push(compiled.await??);
    }
    Ok(begun.elapsed())
}

/// Times of a compilation, each on an instance of its own that begins with a kept memory.
async fn begin_with_kept(named: &Named) -> Result<Times, Box<dyn Error>> {
    let limits = Limits {
        recycle_after_uses: 1,
        keep_prepared_from_us: 0,
        ..Limits::for_kind(Kind::Grammar)
    };
    let (host, grammar) = bind(named, limits).await?;
    until_kept(&host, Instant::now()).await;
    let context = CallContext::new("cost");
    let source = GrammarSource::Regex("yes|no".to_owned());
    let mut times = Vec::new();
    for _ in 0..=INSTANCES {
        let begun = Instant::now();
        let matcher = grammar.compile(&context, &source).await?;
        times.push(begun.elapsed());
        drop(matcher);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    // The first one was prepared.
    times.remove(0);
    Ok(Times(times))
}

async fn walk_all(grammar: &Grammar, named: &Named) -> Result<(), Box<dyn Error>> {
    let mut engine = Engine::new(&named.to_native())?;
    for lexer in ["new", "known"] {
        let (mut all_native, mut all_component) = (Times::default(), Times::default());
        for walk in walks() {
            let tokens = named.tokens_of(walk.text);
            let mut native = Times(vec![Duration::MAX; tokens.len()]);
            let mut component = Times(native.0.clone());
            for number in 0..WALKS {
                // The last of the new ones is the one that is known.
                let number = if lexer == "new" { number } else { WALKS - 1 };
                let walk = Walk {
                    source: variant(&walk.source, number),
                    ..walk
                };
                walk_native(&mut engine, &walk, &tokens, &mut native.0)?;
                walk_component(grammar, named, &walk, &tokens, &mut component.0).await?;
            }
            let what = format!("{} | {} | {lexer}", named.name, walk.name);
            report(&what, &native, &component);
            all_native.0.extend(native.0);
            all_component.0.extend(component.0);
        }
        let what = format!("{} | **all** | {lexer}", named.name);
        report(&what, &all_native, &all_component);
    }
    Ok(())
}

/// Grammar of the same language, with a source text that differs by `number`, so that no cache has it.
fn variant(source: &Source, number: usize) -> Source {
    match source {
        Source::JsonObject => {
            Source::JsonSchema(r#"{"type": "object"}"#.to_owned() + &" ".repeat(number))
        }
        Source::JsonSchema(text) => Source::JsonSchema(text.clone() + &" ".repeat(number)),
        Source::Regex(text) => Source::Regex(text.clone() + &"(?:)".repeat(number)),
        Source::Lark(text) => Source::Lark(text.clone() + &"\n".repeat(number)),
    }
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
    let context = CallContext::new("cost");
    let mut matcher = grammar.compile(&context, &walk.to_host()).await?;
    let mut row = vec![0; named.vocabulary.mask_words()];
    for (token, best) in tokens.iter().zip(best) {
        let begun = Instant::now();
        matcher.advance(&[*token], &mut row).await?;
        *best = (*best).min(begun.elapsed());
    }
    drop(matcher);
    // Its instance comes back when the guest has dropped it.
    tokio::task::yield_now().await;
    Ok(())
}

fn report(what: &str, native: &Times, component: &Times) {
    let [native_us, component_us] = [native, component].map(|times| {
        let figures = [times.below(50), times.below(99), times.mean()];
        figures.map(|time| time.as_secs_f64() * 1e6)
    });
    let shown = |[p50, p99, mean]: [f64; 3]| format!("{p50:.1}, {p99:.0}, {mean:.1} µs");
    println!(
        "| {what} | {} | {} | {:.2} |",
        shown(native_us),
        shown(component_us),
        component_us[2] / native_us[2],
    );
}

/// Times to get a matcher of the first schema of the corpus.
async fn compile(grammar: &Grammar) -> Result<Vec<(&'static str, Times)>, Box<dyn Error>> {
    let context = CallContext::new("cost");
    let Some(Source::JsonSchema(schema)) = walks().into_iter().next().map(|walk| walk.source)
    else {
        return Err("the corpus begins with a schema".into());
    };
    let mut number = WALKS;
    let new = Times::of(COMPILATIONS, async || {
        number += 1;
        let source = GrammarSource::JsonSchema(schema.clone() + &" ".repeat(number));
        grammar.compile(&context, &source).await
    });
    let new = new.await?;
    // The last one is known.
    let same = GrammarSource::JsonSchema(schema.clone() + &" ".repeat(number));
    let known = Times::of(COMPILATIONS, async || {
        grammar.compile(&context, &same).await
    });
    let known = known.await?;
    Ok(vec![
        ("compile a schema", new),
        ("compile one that was compiled before", known),
    ])
}
