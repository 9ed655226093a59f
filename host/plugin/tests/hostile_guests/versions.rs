//! Components that were built long ago go on to work.

use std::sync::Arc;

use mortise_plugin::{
    ChatTemplate, Component, ComponentTools, Decision, Facts, Fault, Finish, Grammar,
    GrammarSource, Kind, LoadError, OutputParser, ParserEvent, Policy, QuotaCaller, QuotasUntold,
    ToolAnswer, ToolCaller, ToolGrant,
};

use crate::exercise::exercise;
use crate::guests::{binding, context, render, setup, shared, source};

/// `tests/guests` with the feature `every-kind`, built against `mortise:plugin@0.1.0` of November 2026,
/// optimised for size. It is never built anew: it stands for plugins whose authors are gone. When a
/// later version of the contract comes, it stays.
const BUILT_AGAINST_0_1_0: &[u8] = include_bytes!("data/every-kind-0.1.0.wasm");

/// Component of the conformance kit of `mortise:plugin@0.2.0`, built against that version.
const BUILT_AGAINST_0_2_0: &[u8] =
    include_bytes!("../../../../wit/conformance/v0.2/every-kind.wasm");

/// Kinds that there were before 0.3.
const OLD_KINDS: [Kind; 5] = [
    Kind::ChatTemplate,
    Kind::OutputParser,
    Kind::Grammar,
    Kind::Policy,
    Kind::Tool,
];

fn load(wasm: &[u8]) -> Arc<Component> {
    shared().host.load(source("old", wasm)).unwrap()
}

fn old() -> Arc<Component> {
    load(BUILT_AGAINST_0_1_0)
}

#[tokio::test]
async fn components_built_against_earlier_versions_serve_as_every_kind_of_theirs() {
    let host = &shared().host;
    for (wasm, version) in [
        (BUILT_AGAINST_0_1_0, "0.1.0"),
        (BUILT_AGAINST_0_2_0, "0.2.0"),
    ] {
        let component = load(wasm);
        assert_eq!(component.kinds(), OLD_KINDS);
        assert_eq!(
            component.built_against(),
            format!("mortise:plugin@{version}")
        );
        for kind in OLD_KINDS {
            let served = exercise(host, &component, kind, binding()).await;
            assert!(served.is_ok(), "{kind} {version}: {served:?}");
        }
    }
}

/// Limits of callers are told since 0.3 only.
#[tokio::test]
async fn policies_of_earlier_versions_tell_no_limits_and_go_on() {
    let caller = QuotaCaller {
        id: "ann".to_owned(),
        kind: "key",
        tenant: None,
        terms: "{}".to_owned(),
    };
    for wasm in [BUILT_AGAINST_0_1_0, BUILT_AGAINST_0_2_0] {
        let policy = Policy::bind(&shared().host, &load(wasm), binding()).await;
        let told = policy.unwrap().quotas(&context(), &caller).await;
        assert_eq!(told, Err(QuotasUntold::NotExported));
    }
}

/// A policy of 0.2.0 is told of tools and limits them, and asks for no rewrites, which its version does not have.
#[tokio::test]
async fn a_policy_of_0_2_0_limits_tools_and_rewrites_nothing() {
    let policy = Policy::bind(&shared().host, &load(BUILT_AGAINST_0_2_0), binding())
        .await
        .unwrap();
    let facts = Facts {
        model: Some("tools:f".to_owned()),
        tools: vec!["f".to_owned()],
        ..Facts::default()
    };
    let Decision::Allow(allow) = policy.authorize(&context(), facts).await.unwrap() else {
        panic!("allowed");
    };
    assert_eq!(allow.principal.subject, "[\"f\"] []");
    assert_eq!(allow.tools, ToolGrant::Only(vec!["f".to_owned()]));
    assert_eq!(allow.rewrites, []);
}

#[tokio::test]
async fn what_it_is_told_and_says_is_converted() {
    let (host, component) = (&shared().host, old());
    let template = ChatTemplate::bind(host, &component, binding())
        .await
        .unwrap();
    assert_eq!(render(&template, "echo:Hi").await.unwrap(), "Hi");
    let error = render(&template, "unsupported:b").await.unwrap_err();
    assert_eq!(error.fault, Fault::Unsupported("b".to_owned()));

    let parser = OutputParser::bind(host, &component, binding())
        .await
        .unwrap();
    assert!(parser.traits().keep_special_tokens);
    let wanted = GrammarSource::Lark("start: \"a\"".to_owned());
    let constraint = parser.constraint(&context(), &setup(), Some(&wanted)).await;
    assert_eq!(constraint.unwrap(), Some(wanted));
    let mut session = parser.open(&context(), &setup()).await.unwrap().unwrap();
    let events = session.feed("text", &[1, 2]).await.unwrap();
    assert_eq!(events, [ParserEvent::Content("text[1, 2]".to_owned())]);
    session.feed("hold", &[]).await.unwrap();
    let events = session.close(Finish::Length).await.unwrap();
    let last = ParserEvent::Reasoning("held back Finish::Length".to_owned());
    assert_eq!(events, [last]);

    let grammar = Grammar::bind(host, &component, binding()).await.unwrap();
    let source = GrammarSource::Regex("dense".to_owned());
    let mut matcher = grammar.compile(&context(), &source).await.unwrap();
    let mut row = vec![0; 3];
    let step = matcher.advance(&[0, 1], &mut row).await.unwrap();
    assert_eq!((row, step.forced), (vec![1 << 2, 0, 0], vec![2]));

    let tools = ComponentTools::bind(host, &component, binding())
        .await
        .unwrap();
    let call = |name: &'static str| {
        let caller = ToolCaller::default();
        let (tools, context) = (tools.clone(), context());
        async move { tools.call(&context, &caller, name, r#"{"text":"x"}"#).await }
    };
    assert_eq!(
        call("does").await.unwrap(),
        ToolAnswer::Result("x".to_owned())
    );
    assert_eq!(
        call("refuses").await.unwrap(),
        ToolAnswer::Refused("x".to_owned())
    );
    assert_eq!(
        call("fails").await.unwrap_err().fault,
        Fault::Internal("x".to_owned())
    );
}

/// A policy of 0.1.0 has no grants of tools, so an allowance of it grants all tools.
#[tokio::test]
async fn its_policy_leaves_tools_alone() {
    let policy = Policy::bind(&shared().host, &old(), binding())
        .await
        .unwrap();
    let facts = Facts {
        model: Some("secret:mellon".to_owned()),
        tools: vec!["f".to_owned()],
        ..Facts::default()
    };
    let Decision::Allow(allow) = policy.authorize(&context(), facts).await.unwrap() else {
        panic!("allowed");
    };
    assert_eq!(allow.principal.subject, "second");
    assert_eq!(
        (allow.tools, allow.server_tools),
        (ToolGrant::All, ToolGrant::All)
    );
}

#[test]
fn a_version_that_is_not_known_is_refused_with_those_that_are() {
    let mut wasm = BUILT_AGAINST_0_1_0.to_vec();
    for start in 0..wasm.len() - 6 {
        if wasm[start..].starts_with(b"@0.1.0") {
            wasm[start..start + 6].copy_from_slice(b"@0.4.0");
        }
    }
    let error = shared()
        .host
        .load(source("new", &wasm))
        .map(drop)
        .unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, LoadError::Version { .. }), "{text}");
    assert!(
        text.contains("@0.4.0") && text.contains("0.1.x, 0.2.x, 0.3.x"),
        "{text}"
    );
}
