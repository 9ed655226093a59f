//! The catalogue of hostile guests: what each does, and what came of it. Every guest runs beside
//! callers whose answers must stay right; `docs/plugins/abuse.md` shows the catalogue, and is held to
//! what was observed.

mod answers;
mod bounds;
mod files;
mod lies;
mod page;

use std::sync::Arc;

use mortise_plugin::{
    Binding, Component, Facts, Grammar, GrammarSource, Kind, LoadError, OutputParser, Policy,
};

use crate::exercise::{ALONE, Bystander, Failure, exercise, given_back, resident_bytes};
use crate::forged::Forged;
use crate::guests::{Fixture, HASTY_MS, context, fresh, hasty, render, setup, source};

/// The guest got through, and what it did had no effect on others.
const ANSWERED: &str = "an answer";

/// One hostile guest.
struct Case {
    kind: Kind,
    /// Description of the attack, which continues a sentence after "the guest".
    does: &'static str,
    /// Expected outcome: [`ANSWERED`], or a text of [`Failure::shown`].
    outcome: &'static str,
    attack: Attack,
}

/// Attack of a guest.
enum Attack {
    /// Misuse of the canonical ABI, or a core module of the attacker's own.
    Forged(Forged),
    /// Content of the file.
    File(fn() -> Vec<u8>),
    /// Core module, in text, within the file.
    Text(&'static str),
    /// Text that the test guest renders.
    Render(&'static str),
    /// Text that the test guest is fed again and again.
    Feed(&'static str, usize),
    /// Grammar that the test guest compiles, and whose masks are asked for.
    Mask(&'static str),
    /// Settings of the test guest.
    Settings(&'static str),
    /// Model of a request that the test guest decides on.
    Decide(&'static str),
}

/// A forged guest in the catalogue.
fn forged(does: &'static str, outcome: &'static str, guest: Forged) -> Case {
    Case {
        kind: guest.kind(),
        does,
        outcome,
        attack: Attack::Forged(guest),
    }
}

/// Bounds that end an endless call soon.
fn bounds() -> Binding {
    let mut binding = hasty();
    binding.limits.deadlines.prepare_ms = HASTY_MS;
    binding.limits.budget_ms = 400;
    binding
}

impl Case {
    async fn run(&self, fixture: &Fixture) -> Result<(), Failure> {
        let Fixture { host, component } = fixture;
        let context = context();
        match &self.attack {
            Attack::Forged(guest) => self.load(fixture, &guest.build()).await,
            Attack::File(wasm) => self.load(fixture, &wasm()).await,
            Attack::Text(module) => self.load(fixture, &files::plus_module(module)).await,
            Attack::Render(command) => {
                let template = fixture.template(bounds()).await;
                render(&template, command).await?;
                Ok(())
            }
            Attack::Feed(text, times) => {
                let parser = OutputParser::bind(host, component, bounds()).await?;
                let mut session = parser.open(&context, &setup()).await?.expect("a session");
                for _ in 0..*times {
                    session.feed(text, &[]).await?;
                }
                Ok(())
            }
            Attack::Mask(command) => {
                let grammar = Grammar::bind(host, component, bounds()).await?;
                let source = GrammarSource::Regex((*command).to_owned());
                let mut matcher = grammar.compile(&context, &source).await?;
                matcher.mask(&mut vec![0; 3]).await?;
                matcher.advance(&[0], &mut vec![0; 3]).await?;
                matcher.probe(&[1, 2]).await?;
                Ok(())
            }
            Attack::Settings(settings) => {
                let mut binding = bounds();
                binding.settings = (*settings).to_owned();
                exercise(host, component, self.kind, binding).await
            }
            Attack::Decide(model) => {
                let policy = Policy::bind(host, component, bounds()).await?;
                let facts = Facts {
                    model: Some((*model).to_owned()),
                    ..Facts::default()
                };
                policy.authorize(&context, facts).await?;
                Ok(())
            }
        }
    }

    /// Take a file as an operator's, on a thread that may block, and have it serve.
    async fn load(&self, fixture: &Fixture, wasm: &[u8]) -> Result<(), Failure> {
        let (host, source) = (fixture.host.clone(), source("hostile", wasm));
        let loading = tokio::task::spawn_blocking(move || host.load(source));
        let loaded: Result<Arc<Component>, LoadError> = loading.await.expect("no panic");
        exercise(&fixture.host, &loaded?, self.kind, bounds()).await
    }
}

/// Run a part of the catalogue beside honest callers, and compare what comes of each with what is
/// written.
async fn observe(cases: Vec<Case>) {
    let _alone = ALONE.lock().await;
    let fixture = fresh();
    let bystander = Bystander::start(&fixture).await;
    // Once for what the process takes by being used at all.
    let _ = cases[0].run(&fixture).await;
    let before = resident_bytes();
    let mut wrong = Vec::new();
    for case in &cases {
        let observed = case.run(&fixture).await;
        let shown = match &observed {
            Ok(()) => ANSWERED.to_owned(),
            Err(failure) => failure.shown(),
        };
        if shown != case.outcome {
            wrong.push(format!(
                "{} guest that {}: {shown} ({observed:?})",
                case.kind, case.does
            ));
        }
        bystander.check(case.does);
    }
    bystander.finish().await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    given_back(before).await;
}
