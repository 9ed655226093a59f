//! Guests that do their worst. Each costs its own call a clear error, and nobody else anything.

use std::time::Duration;

use mortise_plugin::{
    ChatTemplate, Facts, Fault, Finish, GrammarSource, ParserSetup, PluginError, UsageReport,
};

use crate::guests::{HASTY_MS, binding, context, fault_of, hasty, limits, render, setup, shared};

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

#[tokio::test]
async fn an_endless_loop_meets_its_deadline() {
    // One thread serves both: the loop has to yield.
    assert_eq!(
        attack("loop").await,
        Fault::Deadline {
            deadline_ms: HASTY_MS
        }
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_memory_bomb_meets_its_limit() {
    let limit_bytes = limits().memory_bytes;
    assert_eq!(attack("bomb").await, Fault::Memory { limit_bytes });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runaway_recursion_overflows_either_stack() {
    assert_eq!(attack("overflow").await, Fault::Stack);
    assert_eq!(attack("overflow-plain").await, Fault::Stack);
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
    let limit_bytes = limits().output_bytes;
    assert_eq!(attack("huge").await, Fault::Output { limit_bytes });
    assert_eq!(attack("list").await, Fault::Output { limit_bytes });
}

#[tokio::test]
async fn a_flood_of_log_lines_is_cut_and_harmless() {
    let template = shared().template(hasty()).await;
    for command in ["log", "print"] {
        let outcome = render(&template, command).await;
        // Whether the guest gets to the end within its deadline depends on the machine.
        match outcome {
            Ok(text) => assert_eq!(text, "survived"),
            Err(error) => assert!(matches!(error.fault, Fault::Deadline { .. }), "{error}"),
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
        assert_eq!(
            fault_of(error, "chat-template.render"),
            Fault::Deadline {
                deadline_ms: HASTY_MS
            }
        );
    }
}

#[tokio::test]
async fn every_function_has_a_deadline() {
    let fixture = shared();
    let looping = ParserSetup {
        tools: "loop".to_owned(),
        ..ParserSetup::default()
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
    is_deadline(error, "output-parser.constraint");
    let error = parser.open(&context(), &looping).await.err().unwrap();
    is_deadline(error, "output-parser.open");
    let setup = ParserSetup::default();
    let mut session = parser.open(&context(), &setup).await.unwrap().unwrap();
    is_deadline(
        session.feed("loop", &[]).await.unwrap_err(),
        "output-parser.feed",
    );

    let grammar = fixture.grammar(hasty()).await;
    let compile = GrammarSource::Regex("loop".to_owned());
    let error = grammar.compile(&context(), &compile).await.err().unwrap();
    is_deadline(error, "grammar.compile");
    let masks = GrammarSource::Regex("then-loop".to_owned());
    let mut matcher = grammar.compile(&context(), &masks).await.unwrap();
    is_deadline(matcher.mask(&mut [0; 3]).await.unwrap_err(), "grammar.mask");

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
    matcher.mask(&mut [0; 3]).await.unwrap_err();
    let error = fork.mask(&mut [0; 3]).await.unwrap_err();
    assert!(matches!(error.fault, Fault::Trap(text) if text.contains("lost")));
}

/// The reason of an invalid result, and that the next call is served.
async fn nonsense(command: &str) -> String {
    let fixture = shared();
    let grammar = fixture.grammar(binding()).await;
    let source = GrammarSource::Regex(command.to_owned());
    let mut matcher = grammar.compile(&context(), &source).await.unwrap();
    let mut row = [9u32; 3];
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
    let error = matcher.mask(&mut [0; 3]).await.unwrap_err();
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
    let error = matcher.mask(&mut [0; 2]).await.unwrap_err();
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
