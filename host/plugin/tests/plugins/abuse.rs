//! Every function of every kind, told to do its worst in every way, beside an honest caller. What came
//! of it stands in a table of `docs/plugins/sandbox.md`, which this test holds to the truth.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mortise_plugin::{
    Binding, ChatTemplate, Facts, Finish, Grammar, GrammarSource, LoadError, OutputParser,
    ParserSetup, PluginError, Policy, TemplateInput, ToolCaller, Tools, UsageReport,
};

use crate::guests::{Fixture, HASTY_MS, binding, context, fresh, hasty, render};

/// Functions that a guest exports, by the names under which the test guest knows them.
const FUNCTIONS: [&str; 17] = [
    "prepare",
    "render",
    "describe",
    "constraint",
    "open",
    "feed",
    "close",
    "compile",
    "mask",
    "advance",
    "probe",
    "rollback",
    "fork",
    "authorize",
    "account",
    "describe-tools",
    "call",
];

/// What the guest does in the function, and how the host's call ends.
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

/// Memory that may stay with the process after all of it: 64 MiB (V5).
const KEPT_BYTES: u64 = 64 << 20;

fn abusive(function: &str, behaviour: &str) -> Binding {
    let mut binding = hasty();
    binding.settings = format!("{{\"{function}\":\"{behaviour}\"}}");
    if function == "prepare" {
        binding.limits.deadlines.prepare_ms = HASTY_MS;
    }
    binding
}

fn label(error: &PluginError) -> &'static str {
    error.fault.label()
}

/// The fault behind a binding that failed.
fn unprepared<T>(bound: Result<T, LoadError>) -> Result<T, PluginError> {
    bound.map_err(|error| match error {
        LoadError::Prepare { source, .. } => source,
        other => panic!("failed otherwise: {other}"),
    })
}

/// Have a function called by its host.
async fn call(fixture: &Fixture, function: &str, binding: Binding) -> Result<(), PluginError> {
    let Fixture { host, component } = fixture;
    let context = context();
    match function {
        "prepare" | "render" => {
            let bound = ChatTemplate::bind(host, component, binding).await;
            let template = unprepared(bound)?;
            let input = TemplateInput::default();
            template.render(&context, input).await.map(drop)
        }
        "describe" | "constraint" | "open" | "feed" | "close" => {
            let parser = unprepared(OutputParser::bind(host, component, binding).await)?;
            let setup = ParserSetup::default();
            parser.constraint(&context, &setup, None).await?;
            let session = parser.open(&context, &setup).await?;
            let mut session = session.expect("something to parse");
            session.feed("text", &[]).await?;
            session.close(Finish::Stop).await.map(drop)
        }
        "compile" | "mask" | "advance" | "probe" | "rollback" | "fork" => {
            let grammar = unprepared(Grammar::bind(host, component, binding).await)?;
            let source = GrammarSource::Regex("only".to_owned());
            let mut matcher = grammar.compile(&context, &source).await?;
            matcher.mask(&mut [0; 3]).await?;
            matcher.advance(&[0], &mut [0; 3]).await?;
            matcher.probe(&[1]).await?;
            matcher.rollback(1).await?;
            matcher.fork().await.map(drop)
        }
        "describe-tools" | "call" => {
            let tools = unprepared(Tools::bind(host, component, binding).await)?;
            let caller = ToolCaller::default();
            let called = tools.call(&context, &caller, "does", r#"{"text":"nothing"}"#);
            called.await.map(drop)
        }
        _ => {
            let policy = unprepared(Policy::bind(host, component, binding).await)?;
            policy.authorize(&context, Facts::default()).await?;
            let usage = UsageReport {
                request_id: String::new(),
                lease: None,
                subject: String::new(),
                model: String::new(),
                prompt_tokens: 0,
                cached_tokens: 0,
                completion_tokens: 0,
                finish: Finish::Stop,
                wall_ms: 0,
            };
            policy.account(&context, usage).await
        }
    }
}

/// Bytes of memory that the process holds.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn j_hostile_guests_cost_their_own_calls_only() {
    let fixture = fresh();
    let witness = fixture.template(binding()).await;
    let over = Arc::new(AtomicBool::new(false));
    let honest = {
        let (witness, over) = (witness.clone(), Arc::clone(&over));
        tokio::spawn(async move {
            let mut round = 0u64;
            while !over.load(Ordering::Relaxed) {
                let text = format!("round {round}");
                let answer = render(&witness, &format!("echo:{text}")).await;
                assert_eq!(answer.unwrap(), text);
                round += 1;
                tokio::task::yield_now().await;
            }
            round
        })
    };
    // Once for what the process takes by being used at all.
    let _ = call(&fixture, "render", abusive("render", "bomb")).await;
    let before = resident_bytes();
    let mut cases = 0;
    for (behaviour, _, expected) in BEHAVIOURS {
        for function in FUNCTIONS {
            let outcome = call(&fixture, function, abusive(function, behaviour)).await;
            let outcome = outcome.as_ref().err().map_or("answered", label);
            assert!(
                expected.contains(outcome),
                "{behaviour} in {function}: {outcome}, not {expected}"
            );
            assert!(
                !honest.is_finished(),
                "{behaviour} in {function} hurt the honest caller"
            );
            cases += 1;
        }
    }
    assert!(cases >= 40, "{cases}");
    over.store(true, Ordering::Relaxed);
    assert!(honest.await.unwrap() > 0);
    let live: u64 = fixture.host.stats().iter().map(|s| s.live_instances).sum();
    assert!(live <= 2, "{live} instances outlive their bindings");
    given_back(before).await;
}

/// Wait until the process holds about as much memory as before. Other tests of this process compile
/// plugins meanwhile, which takes much for a while.
async fn given_back(before: u64) {
    let patience = tokio::time::timeout(std::time::Duration::from_secs(120), async {
        while resident_bytes() > before + KEPT_BYTES {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    });
    let kept = patience.await.map_err(|_| resident_bytes() - before);
    assert_eq!(kept, Ok(()), "bytes were not given back");
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
fn the_page_on_the_sandbox_tells_what_was_observed() {
    let mut table = String::from("| the guest | its call ends with |\n|---|---|\n");
    for (_, does, outcome) in BEHAVIOURS {
        let outcome = match outcome {
            "answered" => "an answer; what it asked for is cut or denied".to_owned(),
            other => format!("`{}`", other.replace(" or ", "` or `")),
        };
        let _ = writeln!(table, "| {does} | {outcome} |");
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/plugins/sandbox.md");
    let page = std::fs::read_to_string(page).expect("the page");
    assert!(
        page.contains(&table),
        "docs/plugins/sandbox.md should have\n{table}"
    );
    let functions = FUNCTIONS.map(|function| format!("`{function}`")).join(", ");
    let flat = page.replace('\n', " ");
    assert!(
        flat.contains(&functions),
        "docs/plugins/sandbox.md should list {functions}"
    );
}
