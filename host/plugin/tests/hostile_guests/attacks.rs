//! Guests that do their worst. Each costs its own call a clear error, and nobody else anything.

use std::time::Duration;

use mortise_plugin::{
    Cause, ChatTemplate, Facts, Fault, Finish, Grammar, GrammarSource, OutputParser, ParserSetup,
    PluginError, UsageReport,
};

use crate::guests::{HASTY_MS, binding, context, fault_of, hasty, render, setup, shared};

/// Run one attack while an honest caller keeps calling the same binding; both must get what they
/// deserve, and so must a call after them. How long the honest one waits is measured by the soak of
/// `tests/plugins`.
async fn attack(command: &'static str) -> Fault {
    let template = shared()
        .template(if command == "loop" {
            hasty()
        } else {
            binding()
        })
        .await;
    let attacker = template.clone();
    let attacker = tokio::spawn(async move { render(&attacker, command).await });
    let mut honest_calls = 0;
    while !attacker.is_finished() || honest_calls < 5 {
        assert_eq!(render(&template, "echo:honest").await.unwrap(), "honest");
        honest_calls += 1;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(render(&template, "echo:after").await.unwrap(), "after");
    fault_of(attacker.await.unwrap().unwrap_err(), "chat-template.render")
}

/// A request took more than it may, and the plugin does well with a small one: the caller's fault.
#[track_caller]
fn assert_excess(fault: Fault, what: &str) {
    assert_eq!(fault.cause(), Cause::Caller, "{fault}");
    assert!(
        matches!(&fault, Fault::TooComplex(text) if text.contains(what)),
        "{fault}"
    );
}

#[tokio::test]
async fn an_endless_loop_meets_its_deadline() {
    // One thread serves both: the loop has to yield.
    assert_excess(attack("loop").await, "within its deadline of 150 ms");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_memory_bomb_meets_its_limit() {
    assert_excess(attack("bomb").await, "67108864 bytes of memory");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runaway_recursion_overflows_either_stack() {
    assert_excess(attack("overflow").await, "overflowed its stack");
    assert_excess(attack("overflow-plain").await, "overflowed its stack");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_tells_its_message() {
    let Fault::Trap(text) = attack("panic").await else {
        panic!("a panic is a trap")
    };
    assert!(text.contains("the guest gives up"), "{text}");
    assert!(!text.contains('\n'), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaving_the_process_is_a_trap() {
    let fault = attack("exit").await;
    assert!(
        matches!(&fault, Fault::Trap(text) if text.contains("exit")),
        "{fault}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_output_meets_its_limit() {
    assert_excess(attack("huge").await, "more than 8388608 bytes");
    assert_excess(attack("list").await, "more than 8388608 bytes");
}

#[tokio::test]
async fn a_flood_of_log_lines_is_cut_and_harmless() {
    let template = shared().template(hasty()).await;
    for command in ["log", "print"] {
        let outcome = render(&template, command).await;
        // Whether the guest gets to the end within its deadline depends on the machine.
        match outcome {
            Ok(text) => assert_eq!(text, "survived"),
            Err(error) => assert_excess(error.fault, "deadline"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attackers_cannot_starve_the_runtime() {
    let template = shared().template(hasty()).await;
    let attackers: Vec<_> = (0..8)
        .map(|_| {
            let template: ChatTemplate = template.clone();
            tokio::spawn(async move { render(&template, "loop").await })
        })
        .collect();
    for _ in 0..10 {
        assert_eq!(render(&template, "echo:honest").await.unwrap(), "honest");
    }
    for attacker in attackers {
        let error = attacker.await.unwrap().unwrap_err();
        let fault = fault_of(error, "chat-template.render");
        assert_excess(fault, "within its deadline of 150 ms");
    }
}

/// A grammar plugin that two breakdowns suspend, told what to do whenever it compiles.
async fn brittle(compile: &str) -> Grammar {
    let mut binding = hasty();
    binding.settings = format!(r#"{{"compile": "{compile}"}}"#);
    binding.limits.breaker.failures = 2;
    shared().grammar(binding).await
}

async fn compile_fault(grammar: &Grammar, source: &str) -> Fault {
    let source = GrammarSource::Regex(source.to_owned());
    let compiled = grammar.compile(&context(), &source).await;
    fault_of(compiled.err().unwrap(), "grammar.compile")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grammars_that_are_too_much_are_their_callers_fault_and_suspend_nobody() {
    let grammar = brittle("").await;
    for source in ["loop", "bomb", "overflow", "overflow-plain"] {
        let fault = compile_fault(&grammar, source).await;
        assert!(matches!(fault, Fault::TooComplex(_)), "{source}: {fault}");
    }
    // A defect is the plugin's, though only this grammar meets it.
    for _ in 0..2 {
        let fault = compile_fault(&grammar, "panic").await;
        assert!(matches!(fault, Fault::Trap(_)), "{fault}");
    }
    let any = GrammarSource::Regex("dense".to_owned());
    grammar.compile(&context(), &any).await.unwrap();
}

/// Requests that take more than they may suspend a template for nobody; one that always does is suspended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_faults_of_the_plugin_suspend_it() {
    let brittle = async |settings: &str| {
        let mut binding = hasty();
        binding.settings = settings.to_owned();
        binding.limits.breaker.failures = 2;
        shared().template(binding).await
    };
    let template = brittle("{}").await;
    for command in [
        "loop", "bomb", "overflow", "huge", "bomb", "overflow", "huge",
    ] {
        let error = render(&template, command).await.unwrap_err();
        assert_eq!(error.fault.cause(), Cause::Caller, "{command}: {error}");
    }
    assert_eq!(render(&template, "echo:a").await.unwrap(), "a");
    let template = brittle(r#"{"render": "overflow"}"#).await;
    for _ in 0..2 {
        let error = render(&template, "echo:a").await.unwrap_err();
        assert_eq!(error.fault, Fault::Stack);
        assert_eq!(error.fault.cause(), Cause::Plugin);
    }
    let error = render(&template, "echo:a").await.unwrap_err();
    assert!(matches!(error.fault, Fault::Suspended { .. }), "{error}");
    assert_eq!(error.fault.cause(), Cause::Host);
}

/// More tool calls than an answer may have are the model's, if it wrote them, and leave the parser usable.
#[tokio::test]
async fn what_a_model_wrote_suspends_no_parser() {
    let mut binding = binding();
    binding.limits.breaker.failures = 2;
    binding.limits.max_instances = 1;
    let parser = shared().parser(binding).await;
    for _ in 0..4 {
        let setup = setup();
        let mut session = parser.open(&context(), &setup).await.unwrap().unwrap();
        // It says nothing of long texts, and begins 2000 calls where it is told to.
        session.feed(&"x".repeat(10_000), &[]).await.unwrap();
        let fault = fault_of(
            session.feed("many", &[]).await.unwrap_err(),
            "output-parser.feed",
        );
        assert_eq!(fault.cause(), Cause::Model, "{fault}");
        assert!(fault.to_string().contains("1024 tool calls"), "{fault}");
    }
    let mut session = parser.open(&context(), &setup()).await.unwrap().unwrap();
    session.feed("text", &[]).await.unwrap();
}

/// A parser that takes more than it may on a long text or under large tools is not suspended for it; one that does so on
/// an ordinary text, or always, is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_too_much_for_a_parser_suspends_it_only_if_it_is_ordinary() {
    let brittle = async |settings: &str| {
        let mut binding = hasty();
        binding.settings = settings.to_owned();
        binding.limits.breaker.failures = 2;
        binding.limits.max_instances = 1;
        shared().parser(binding).await
    };
    let (short, long) = ("x".repeat(1000), "x".repeat(100_000));
    let large = ParserSetup {
        tools: format!(r#"[{{"type":"function","function":{{"name":"{long}"}}}}]"#),
        ..ParserSetup::default()
    };
    // The fault of an answer that begins with one text and goes on with another.
    let ends = async |parser: &OutputParser, setup: &ParserSetup, texts: [&str; 2]| {
        let mut session = parser.open(&context(), setup).await?.unwrap();
        for text in texts {
            session.feed(text, &[]).await?;
        }
        session.close(Finish::Stop).await
    };
    let parser = brittle("{}").await;
    for attack in ["loop", "bomb", "overflow"] {
        for (setup, first, cause) in [
            (&setup(), &long, Cause::Model),
            (&large, &short, Cause::Caller),
        ] {
            let error = ends(&parser, setup, [first, attack]).await.unwrap_err();
            assert_eq!(error.function, "output-parser.feed");
            assert_eq!(error.fault.cause(), cause, "{attack}: {error}");
        }
    }
    ends(&parser, &setup(), ["text", "text"]).await.unwrap();
    // The same on ordinary texts.
    for _ in 0..2 {
        let error = ends(&parser, &setup(), [&short, "loop"]).await.unwrap_err();
        assert_eq!(error.fault.cause(), Cause::Plugin, "{error}");
    }
    let error = ends(&parser, &setup(), ["text", "text"]).await.unwrap_err();
    assert!(matches!(error.fault, Fault::Suspended { .. }), "{error}");
    // Always, so that the length of the text is no excuse.
    for function in ["feed", "close"] {
        let parser = brittle(&format!("{{\"{function}\":\"loop\"}}")).await;
        for _ in 0..2 {
            let error = ends(&parser, &setup(), [&long, "text"]).await.unwrap_err();
            assert_eq!(error.function, format!("output-parser.{function}"));
            assert!(matches!(error.fault, Fault::Deadline { .. }), "{error}");
        }
        let error = ends(&parser, &setup(), ["text", "text"]).await.unwrap_err();
        assert!(matches!(error.fault, Fault::Suspended { .. }), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grammar_plugins_that_break_down_at_everything_are_suspended() {
    let grammar = brittle("panic").await;
    for _ in 0..2 {
        let fault = compile_fault(&grammar, "dense").await;
        assert!(matches!(fault, Fault::Trap(_)), "{fault}");
    }
    let fault = compile_fault(&grammar, "dense").await;
    assert!(matches!(fault, Fault::Suspended { .. }), "{fault}");
}

#[tokio::test]
async fn every_function_has_a_deadline() {
    let fixture = shared();
    let looping = ParserSetup {
        tools: "loop".to_owned(),
        ..ParserSetup::default()
    };
    let is_callers = |error: PluginError, function: &str| {
        assert_excess(fault_of(error, function), "within its deadline of 150 ms");
    };
    let is_deadline = |error: PluginError, function: &str| {
        let fault = fault_of(error, function);
        assert_eq!(
            fault,
            Fault::Deadline {
                deadline_ms: HASTY_MS
            },
            "{function}"
        );
    };
    let parser = fixture.parser(hasty()).await;
    let error = parser
        .constraint(&context(), &looping, None)
        .await
        .unwrap_err();
    is_callers(error, "output-parser.constraint");
    let error = parser.open(&context(), &looping).await.err().unwrap();
    is_callers(error, "output-parser.open");
    let setup = ParserSetup::default();
    let mut session = parser.open(&context(), &setup).await.unwrap().unwrap();
    is_deadline(
        session.feed("loop", &[]).await.unwrap_err(),
        "output-parser.feed",
    );

    let grammar = fixture.grammar(hasty()).await;
    let mut broken = hasty();
    broken.settings = r#"{"compile": "loop"}"#.to_owned();
    let broken = fixture.grammar(broken).await;
    let any = GrammarSource::Regex("dense".to_owned());
    let error = broken.compile(&context(), &any).await.err().unwrap();
    is_deadline(error, "grammar.compile");
    let masks = GrammarSource::Regex("then-loop".to_owned());
    let mut matcher = grammar.compile(&context(), &masks).await.unwrap();
    is_deadline(
        matcher.mask(&mut vec![0; 3]).await.unwrap_err(),
        "grammar.mask",
    );

    let policy = fixture.policy(hasty()).await;
    let facts = Facts {
        model: Some("loop".to_owned()),
        ..Facts::default()
    };
    let error = policy.authorize(&context(), facts).await.unwrap_err();
    is_deadline(error, "policy.authorize");
    let usage = UsageReport {
        request_id: String::new(),
        lease: None,
        subject: String::new(),
        tenant: None,
        model: "loop".to_owned(),
        prompt_tokens: 0,
        cached_tokens: 0,
        completion_tokens: 0,
        finish: Finish::Error,
        wall_ms: 0,
    };
    let error = policy.account(&context(), usage).await.unwrap_err();
    is_deadline(error, "policy.account");
}

#[tokio::test]
async fn a_broken_session_or_matcher_stays_broken() {
    let fixture = shared();
    let parser = fixture.parser(binding()).await;
    let setup = ParserSetup::default();
    let mut session = parser.open(&context(), &setup).await.unwrap().unwrap();
    session.feed("panic", &[]).await.unwrap_err();
    let error = session.feed("text", &[]).await.unwrap_err();
    let fault = fault_of(error, "output-parser.feed");
    assert!(matches!(fault, Fault::Trap(text) if text.contains("lost")));
    assert!(session.close(Finish::Stop).await.is_err());

    let grammar = fixture.grammar(binding()).await;
    let source = GrammarSource::Regex("then-panic".to_owned());
    let mut matcher = grammar.compile(&context(), &source).await.unwrap();
    let mut fork = matcher.fork().await.unwrap();
    matcher.mask(&mut vec![0; 3]).await.unwrap_err();
    let error = fork.mask(&mut vec![0; 3]).await.unwrap_err();
    assert!(matches!(error.fault, Fault::Trap(text) if text.contains("lost")));
}

/// The reason of an invalid result, and that the next call is served.
async fn nonsense(command: &str) -> String {
    let fixture = shared();
    let grammar = fixture.grammar(binding()).await;
    let source = GrammarSource::Regex(command.to_owned());
    let mut matcher = grammar.compile(&context(), &source).await.unwrap();
    let mut row = vec![9u32; 3];
    let error = matcher.mask(&mut row).await.unwrap_err();
    assert_eq!(row, [9; 3], "a wrong mask must not reach the sampler");
    let good = GrammarSource::Regex("only".to_owned());
    let mut matcher = grammar.compile(&context(), &good).await.unwrap();
    matcher.mask(&mut row).await.unwrap();
    match fault_of(error, "grammar.mask") {
        Fault::InvalidResult(reason) => reason,
        other => panic!("{command}: {other}"),
    }
}

#[tokio::test]
async fn wrong_masks_are_refused() {
    let cases = [
        ("wide", "4 words, and the vocabulary needs 3"),
        ("narrow", "2 words, and the vocabulary needs 3"),
        ("slot", "slot 1 in a call for slot 0"),
        ("beyond", "token 70 in a mask, and the vocabulary has 70"),
        ("empty", "allows no token"),
        ("none", "pushed no mask"),
    ];
    for (command, reason) in cases {
        let found = nonsense(command).await;
        assert!(found.contains(reason), "{command}: {found}");
    }
    let grammar = shared().grammar(binding()).await;
    let huge = GrammarSource::Regex("huge".to_owned());
    let mut matcher = grammar.compile(&context(), &huge).await.unwrap();
    let error = matcher.mask(&mut vec![0; 3]).await.unwrap_err();
    assert!(matches!(error.fault, Fault::Output { .. }), "{error}");
    let boast = GrammarSource::Regex("boast".to_owned());
    let mut matcher = grammar.compile(&context(), &boast).await.unwrap();
    let error = matcher.probe(&[1, 2]).await.unwrap_err();
    assert!(
        matches!(&error.fault, Fault::InvalidResult(text) if text.contains("3 of 2")),
        "{error}"
    );
}

#[tokio::test]
async fn a_row_that_is_too_short_is_told() {
    let grammar = shared().grammar(binding()).await;
    let source = GrammarSource::Regex("only".to_owned());
    let mut matcher = grammar.compile(&context(), &source).await.unwrap();
    let error = matcher.mask(&mut vec![0; 2]).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("3 words, the host's row 2"), "{text}");
}

#[tokio::test]
async fn wrong_events_and_decisions_are_refused() {
    let parser = shared().parser(binding()).await;
    let cases = [
        ("gap", "began tool call 1 where 0 comes next"),
        ("nameless", "without a name"),
        ("ghost", "tool call 7, which never began"),
        ("many", "more than 1024 tool calls"),
        ("again", "after its end"),
        ("undeclared", "`rm`, a tool that may not be called"),
    ];
    for (text, reason) in cases {
        let setup = setup();
        let mut session = parser.open(&context(), &setup).await.unwrap().unwrap();
        let error = session.feed(text, &[]).await.unwrap_err();
        let fault = fault_of(error, "output-parser.feed");
        assert!(
            matches!(&fault, Fault::InvalidResult(found) if found.contains(reason)),
            "{fault}"
        );
    }
    let policy = shared().policy(binding()).await;
    for (command, reason) in [
        ("deny:200", "status 200"),
        ("split:", "control character"),
        ("essay", "a message of 1048576 bytes"),
    ] {
        let facts = Facts {
            model: Some(command.to_owned()),
            ..Facts::default()
        };
        let error = policy.authorize(&context(), facts).await.unwrap_err();
        let fault = fault_of(error, "policy.authorize");
        assert!(
            matches!(&fault, Fault::InvalidResult(found) if found.contains(reason)),
            "{fault}"
        );
    }
}
