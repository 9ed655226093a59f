//! Calls that a plugin may make work, and those that it may not make have no effect.

use std::sync::Arc;

use mortise_plugin::{
    Decision, Facts, Fault, Finish, GrammarSource, Kind, Ledger, MatchStatus, ParserEvent,
    ParserSetup, RateCounters, Segment, TemplateInput, UsageReport,
};

use crate::guests::{binding, context, fault_of, fresh, render, setup, shared};

#[tokio::test]
async fn a_template_renders_segments() {
    let template = shared().template(binding()).await;
    let input = TemplateInput {
        messages: "echo:<|im_end|> \u{1F600}".to_owned(),
        ..TemplateInput::default()
    };
    let prompt = template.render(&context(), input).await.unwrap();
    let expected = [
        Segment::Special("<|begin|>".to_owned()),
        Segment::Plain("<|im_end|> \u{1F600}".to_owned()),
    ];
    assert_eq!(prompt.segments, expected);
}

#[tokio::test]
async fn orderly_faults_keep_their_text_and_their_instance() {
    let fixture = fresh();
    let template = fixture.template(binding()).await;
    let cases = [
        ("invalid:a", Fault::Invalid("a".to_owned())),
        ("too-complex:d", Fault::TooComplex("d".to_owned())),
        ("unsupported:b", Fault::Unsupported("b".to_owned())),
        ("internal:c", Fault::Internal("c".to_owned())),
    ];
    for (command, expected) in cases {
        let error = render(&template, command).await.unwrap_err();
        assert_eq!(fault_of(error, "chat-template.render"), expected);
    }
    let long = render(&template, &format!("invalid:{}", "ä".repeat(5000)))
        .await
        .unwrap_err();
    assert!(matches!(long.fault, Fault::Invalid(text) if text.len() == 1024));
    let stats = &fixture.host.stats()[0];
    assert_eq!((stats.created_instances, stats.live_instances), (1, 1));
}

#[tokio::test]
async fn the_world_outside_is_empty() {
    let template = shared().template(binding()).await;
    assert_eq!(render(&template, "environment").await.unwrap(), "0 0 false");
    assert_eq!(render(&template, "now").await.unwrap(), "Ok(0ns)");
    assert_eq!(render(&template, "sleep").await.unwrap(), "survived");
    assert_eq!(render(&template, "model").await.unwrap(), "demo");
}

#[tokio::test]
async fn a_kind_has_its_own_grants_only() {
    let template = shared().template(binding()).await;
    let error = render(&template, "clock").await.unwrap_err();
    let Fault::Trap(text) = fault_of(error, "chat-template.render") else {
        panic!("a template read the clock")
    };
    assert!(
        text.contains("clock") && text.contains("which a chat-template is not granted"),
        "{text}"
    );
    assert_eq!(render(&template, "echo:on").await.unwrap(), "on");
}

#[tokio::test]
async fn a_parser_session_keeps_its_state() {
    let parser = shared().parser(binding()).await;
    assert!(parser.traits().keep_special_tokens);
    let setup = setup();
    let mut session = parser.open(&context(), &setup).await.unwrap().unwrap();
    let content = session.feed("text", &[1, 2]).await.unwrap();
    assert_eq!(content, [ParserEvent::Content("text[1, 2]".to_owned())]);
    assert_eq!(session.feed("call", &[]).await.unwrap().len(), 3);
    assert_eq!(session.feed("hold", &[]).await.unwrap(), []);
    let rest = session.close(Finish::Length).await.unwrap();
    assert_eq!(
        rest,
        [ParserEvent::Reasoning(
            "held back Finish::Length".to_owned()
        )]
    );
    let none = ParserSetup {
        tools: "none".to_owned(),
        ..setup
    };
    assert!(parser.open(&context(), &none).await.unwrap().is_none());
}

#[tokio::test]
async fn a_constraint_passes_both_ways() {
    let parser = shared().parser(binding()).await;
    let setup = ParserSetup::default();
    let sources = [
        None,
        Some(GrammarSource::JsonObject),
        Some(GrammarSource::JsonSchema("{}".to_owned())),
        Some(GrammarSource::Regex("a+".to_owned())),
        Some(GrammarSource::Lark("start: \"a\"".to_owned())),
    ];
    for wanted in sources {
        let constraint = parser
            .constraint(&context(), &setup, wanted.as_ref())
            .await
            .unwrap();
        assert_eq!(constraint, wanted);
    }
}

#[tokio::test]
async fn masks_reach_the_row() {
    let grammar = shared().grammar(binding()).await;
    // The vocabulary has 70 tokens: three words, the last one used in part.
    let cases = [
        ("dense", [1, 0, 0]),
        ("only", [1, 0, 0]),
        ("all-but", [u32::MAX - 1, u32::MAX, 0b11_1111]),
        ("stray-bits", [u32::MAX, u32::MAX, 0b11_1111]),
        ("finished", [0, 0, 1 << 5]),
    ];
    for (command, expected) in cases {
        let source = GrammarSource::Regex(command.to_owned());
        let mut matcher = grammar.compile(&context(), &source).await.unwrap();
        let mut row = vec![7u32; 4];
        let status = matcher.mask(&mut row).await.unwrap();
        assert_eq!(row[..3], expected, "{command}");
        assert_eq!(row[3], 0, "words beyond the vocabulary are cleared");
        assert_eq!(status == MatchStatus::Finished, command == "finished");
    }
}

#[tokio::test]
async fn a_matcher_advances_rolls_back_and_forks() {
    let grammar = shared().grammar(binding()).await;
    let source = GrammarSource::Regex("only".to_owned());
    let mut matcher = grammar.compile(&context(), &source).await.unwrap();
    let mut row = vec![0u32; 3];
    let step = matcher.advance(&[4, 5], &mut row).await.unwrap();
    assert_eq!(step.forced, [2]);
    assert_eq!(row, [4, 0, 0]);
    let mut fork = matcher.fork().await.unwrap();
    matcher.rollback(2).await.unwrap();
    matcher.mask(&mut row).await.unwrap();
    assert_eq!(row, [1, 0, 0]);
    drop(matcher);
    fork.mask(&mut row).await.unwrap();
    assert_eq!(
        row,
        [4, 0, 0],
        "a fork is independent, and outlives its origin"
    );
    assert_eq!(fork.probe(&[1, 2, 3]).await.unwrap(), 3);
    let refused = fork.advance(&[u32::MAX], &mut row).await.unwrap_err();
    assert!(matches!(refused.fault, Fault::Invalid(_)));
    assert_eq!(row, [4, 0, 0], "a failed call leaves the row as it was");
    fork.rollback(2).await.unwrap();
    assert!(fork.rollback(1).await.is_err());
}

fn facts(command: &str) -> Facts {
    Facts {
        model: Some(command.to_owned()),
        ..Facts::default()
    }
}

fn subject(decision: Decision) -> String {
    match decision {
        Decision::Allow(allow) => allow.principal.subject,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_policy_decides_with_its_grants() {
    let policy = shared().policy(binding()).await;
    let ask = async |command: &str| policy.authorize(&context(), facts(command)).await;
    assert_eq!(ask("abstain").await.unwrap(), Decision::Abstain);
    assert!(matches!(ask("deny:429").await.unwrap(), Decision::Deny(deny) if deny.status == 429));
    assert_eq!(subject(ask("secret:mellon").await.unwrap()), "second");
    assert_eq!(subject(ask("secret:Mellon").await.unwrap()), "unknown");
    let now: u64 = subject(ask("clock").await.unwrap()).parse().unwrap();
    assert!(now > 1_700_000_000_000, "policies see the time: {now}");
    let usage = UsageReport {
        request_id: "request-1".to_owned(),
        lease: None,
        subject: "someone".to_owned(),
        tenant: Some("acme".to_owned()),
        model: "demo".to_owned(),
        prompt_tokens: 1,
        cached_tokens: 0,
        completion_tokens: 1,
        finish: Finish::Stop,
        wall_ms: 1,
    };
    policy.account(&context(), usage).await.unwrap();
}

#[tokio::test]
async fn a_policy_hears_of_tools_and_grants_some() {
    let policy = shared().policy(binding()).await;
    let asked = Facts {
        tools: vec!["f".to_owned(), "g".to_owned()],
        server_tools: vec!["calculate".to_owned()],
        ..facts("tools:f,h")
    };
    let Decision::Allow(allow) = policy.authorize(&context(), asked).await.unwrap() else {
        panic!("allowed");
    };
    assert_eq!(allow.principal.subject, r#"["f", "g"] ["calculate"]"#);
    assert!(allow.tools.permits("f") && allow.tools.permits("h") && !allow.tools.permits("g"));
    assert!(allow.server_tools.permits("calculate") && !allow.server_tools.permits("rm"));
    let many = policy.authorize(&context(), facts("many-tools")).await;
    let fault = fault_of(many.unwrap_err(), "policy.authorize");
    assert!(matches!(fault, Fault::InvalidResult(text) if text.contains("100000 tools")));
}

#[tokio::test]
async fn a_matcher_may_end_as_too_complex() {
    let grammar = shared().grammar(binding()).await;
    let source = GrammarSource::Regex("complex".to_owned());
    let mut matcher = grammar.compile(&context(), &source).await.unwrap();
    let mut row = vec![0; 3];
    matcher.mask(&mut row).await.unwrap();
    let error = matcher.advance(&[0], &mut row).await.unwrap_err();
    let fault = fault_of(error, "grammar.advance");
    assert!(fault.is_callers() && !fault.is_breakdown());
    assert_eq!(fault, Fault::TooComplex("too many states".to_owned()));
}

#[tokio::test]
async fn the_ledger_outlives_instances_and_bindings() {
    let ledger: Arc<dyn RateCounters> = Arc::new(Ledger::new());
    let bind = || {
        let mut binding = binding();
        binding.ledger = Arc::clone(&ledger);
        shared().policy(binding)
    };
    let policy = bind().await;
    let take = facts("ledger:tenant");
    let first = policy.authorize(&context(), take.clone()).await.unwrap();
    assert_eq!(subject(first), "true 2");
    policy
        .authorize(&context(), facts("panic:"))
        .await
        .unwrap_err();
    let second = policy.authorize(&context(), take.clone()).await.unwrap();
    assert_eq!(subject(second), "true 1");
    let policy = bind().await;
    let third = policy.authorize(&context(), take.clone()).await.unwrap();
    assert_eq!(subject(third), "true 0");
    let fourth = policy.authorize(&context(), take.clone()).await.unwrap();
    assert_eq!(subject(fourth), "false 0");
    let refunded = policy.authorize(&context(), take).await.unwrap();
    assert_eq!(subject(refunded), "true 2");
}

#[tokio::test]
async fn numbers_are_kept_for_each_kind_and_function() {
    let fixture = fresh();
    let template = fixture.template(binding()).await;
    render(&template, "echo:a").await.unwrap();
    render(&template, "panic").await.unwrap_err();
    render(&template, "count").await.unwrap();
    let stats = fixture.host.stats();
    assert_eq!(stats.len(), 1);
    let stats = &stats[0];
    assert_eq!(
        (stats.plugin.as_str(), stats.kind),
        ("guest", Kind::ChatTemplate)
    );
    let render = stats
        .functions
        .iter()
        .find(|f| f.function == "chat-template.render")
        .unwrap();
    assert_eq!((render.calls, render.cancelled), (3, 0));
    assert_eq!(render.faults, [("trap", 1)]);
    assert!(render.seconds_sum > 0.0);
    let prepare = stats
        .functions
        .iter()
        .find(|f| f.function == "lifecycle.prepare")
        .unwrap();
    assert_eq!(prepare.calls, stats.created_instances);
    let custom: u64 = stats.custom.iter().map(|(_, value)| value).sum();
    assert_eq!((stats.custom.len(), custom), (17, 40));
    assert!(stats.custom.contains(&("other".to_owned(), 24)));
}

#[test]
fn calls_can_be_spawned() {
    fn is_send<T: Send + 'static>(_: &T) {}
    let fixture = shared();
    let bound = async {
        let template = fixture.template(binding()).await;
        let parser = fixture.parser(binding()).await;
        let grammar = fixture.grammar(binding()).await;
        let policy = fixture.policy(binding()).await;
        is_send(&(
            template.clone(),
            parser.clone(),
            grammar.clone(),
            policy.clone(),
        ));
        let setup = ParserSetup::default();
        if let Some(mut session) = parser.open(&context(), &setup).await.unwrap() {
            session.feed("", &[]).await.unwrap();
            is_send(&session);
        }
        let source = GrammarSource::Regex("only".to_owned());
        let mut matcher = grammar.compile(&context(), &source).await.unwrap();
        matcher.mask(&mut vec![0; 3]).await.unwrap();
        is_send(&matcher);
        policy
            .authorize(&context(), Facts::default())
            .await
            .unwrap();
    };
    is_send(&bound);
    tokio::runtime::Runtime::new().unwrap().block_on(bound);
}
