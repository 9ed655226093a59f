//! Every function of every kind, told to do its worst in every way, beside honest callers. What came
//! of it stands in a table of `docs/plugins/abuse.md`, which this test holds to the truth.

use std::fmt::Write as _;

use mortise_plugin::{Binding, Finish, Kind, LoadError, ParserSetup};

use crate::exercise::{ALONE, Bystander, Failure, exercise, given_back, resident_bytes};
use crate::guests::{Fixture, HASTY_MS, binding, context, fresh, hasty, hold_page};

/// Functions that a guest exports, by the names under which the test guest knows them, and the kind
/// as which it is called.
const FUNCTIONS: [(&str, Kind); 26] = [
    ("prepare", Kind::ChatTemplate),
    ("render", Kind::ChatTemplate),
    ("describe", Kind::OutputParser),
    ("constraint", Kind::OutputParser),
    ("open", Kind::OutputParser),
    ("feed", Kind::OutputParser),
    ("close", Kind::OutputParser),
    ("compile", Kind::Grammar),
    ("mask", Kind::Grammar),
    ("advance", Kind::Grammar),
    ("probe", Kind::Grammar),
    ("rollback", Kind::Grammar),
    ("fork", Kind::Grammar),
    ("authorize", Kind::Policy),
    ("account", Kind::Policy),
    ("describe-tools", Kind::Tool),
    ("call", Kind::Tool),
    ("describe-traits", Kind::Guardrail),
    ("check-input", Kind::Guardrail),
    ("open-watch", Kind::Guardrail),
    ("watch", Kind::Guardrail),
    ("close-watch", Kind::Guardrail),
    ("describe-work", Kind::Retriever),
    ("chunk", Kind::Retriever),
    ("rewrite", Kind::Retriever),
    ("assemble", Kind::Retriever),
];

/// Behaviour of the guest in the function, and the end of the host's call.
const BEHAVIOURS: [(&str, &str, &str); 12] = [
    ("loop", "loops without end", "deadline"),
    ("calls", "calls the host without end", "deadline"),
    ("bomb", "takes memory without end", "memory"),
    (
        "overflow",
        "recurses without end, with data on its own stack",
        "stack",
    ),
    (
        "overflow-plain",
        "recurses without end on the call stack",
        "stack",
    ),
    ("panic", "panics", "trap"),
    ("exit", "ends its process", "trap"),
    ("wild", "reads outside of its memory", "trap"),
    (
        "grants",
        "asks for the clock or a secret, whatever it is granted",
        "trap or answered",
    ),
    ("chatter", "writes 2000 long lines to the log", "answered"),
    ("count", "counts under 40 names", "answered"),
    ("sleep", "sleeps for an hour", "answered"),
];

fn abusive(function: &str, behaviour: &str) -> Binding {
    // What ends otherwise has the time for it on a busy machine too.
    let endless = ["loop", "calls"].contains(&behaviour);
    let mut binding = match endless {
        true => hasty(),
        false => binding(),
    };
    binding.settings = format!("{{\"{function}\":\"{behaviour}\"}}");
    if function == "prepare" && endless {
        binding.limits.deadlines.prepare_ms = HASTY_MS;
    }
    binding
}

/// Have the functions of a kind called, one of which is hostile; how that ends.
async fn outcome(fixture: &Fixture, kind: Kind, binding: Binding) -> &'static str {
    let Fixture { host, component } = fixture;
    match exercise(host, component, kind, binding).await {
        Ok(()) => "answered",
        Err(Failure::Call(error)) => error.fault.label(),
        Err(Failure::Load(LoadError::Prepare { source, .. })) => source.fault.label(),
        Err(other) => panic!("failed otherwise: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn j_hostile_guests_cost_their_own_calls_only() {
    let _alone = ALONE.lock().await;
    let fixture = fresh();
    let bystander = Bystander::start(&fixture).await;
    // Once for what the process takes by being used at all.
    outcome(&fixture, Kind::ChatTemplate, abusive("render", "bomb")).await;
    let before = resident_bytes();
    for (behaviour, _, expected) in BEHAVIOURS {
        for (function, kind) in FUNCTIONS {
            let outcome = outcome(&fixture, kind, abusive(function, behaviour)).await;
            assert!(
                expected.contains(outcome),
                "{behaviour} in {function}: {outcome}, not {expected}"
            );
            bystander.check(&format!("{behaviour} in {function}"));
        }
    }
    bystander.finish().await;
    let live: u64 = fixture.host.stats().iter().map(|s| s.live_instances).sum();
    assert!(live <= 10, "{live} instances outlive their bindings");
    given_back(before).await;
}

#[tokio::test]
async fn a_trap_while_a_resource_is_dropped_costs_the_instance_only() {
    let fixture = fresh();
    let parser = fixture.parser(abusive("drop", "panic")).await;
    let setup = ParserSetup::default();
    for _ in 0..3 {
        let session = parser.open(&context(), &setup).await.unwrap().unwrap();
        assert!(session.close(Finish::Stop).await.is_ok());
    }
}

#[test]
fn the_page_tells_what_was_observed() {
    let functions = FUNCTIONS
        .map(|(function, _)| format!("`{function}`"))
        .join(", ");
    let cases = BEHAVIOURS.len() * FUNCTIONS.len();
    let mut table = format!(
        "In each of {functions} ({cases} cases):\n\n| the guest | what comes of it |\n|---|---|\n"
    );
    for (_, does, outcome) in BEHAVIOURS {
        let outcome = match outcome {
            "answered" => "an answer; what it asked for is cut or denied".to_owned(),
            other => format!("`{}`", other.replace(" or ", "` or `")),
        };
        let _ = writeln!(table, "| {does} | {outcome} |");
    }
    hold_page("abuse.md", "matrix", &table);
}
