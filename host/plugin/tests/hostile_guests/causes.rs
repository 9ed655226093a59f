//! Attribution of excess, by kind: what a caller or a model makes large suspends no plugin for others, and a plugin that
//! takes too much on ordinary input, or always, is suspended.

use std::time::Duration;

use mortise_plugin::{
    AnswerPart, Binding, Cause, ComponentTools, Facts, Fault, Finish, GrammarSource, GuardContext,
    GuardVerdict, Guardrail, ParserSetup, PluginError, Policy, ToolAnswer, ToolCaller,
};

use crate::guests::{context, fault_of, hasty, setup, shared};

/// Commands that take more time, memory and stack than a call may.
const ATTACKS: [&str; 3] = ["loop", "bomb", "overflow"];

/// A binding of one instance, which so many breakdowns suspend.
fn brittle(settings: &str, failures: u32) -> Binding {
    let mut binding = hasty();
    binding.settings = settings.to_owned();
    binding.limits.breaker.failures = failures;
    binding.limits.max_instances = 1;
    binding
}

#[track_caller]
fn assert_cause<T: std::fmt::Debug>(said: Result<T, PluginError>, function: &str, cause: Cause) {
    let fault = fault_of(said.unwrap_err(), function);
    assert_eq!(fault.cause(), cause, "{fault}");
}

#[track_caller]
fn assert_suspended<T: std::fmt::Debug>(said: Result<T, PluginError>) {
    let fault = said.unwrap_err().fault;
    assert!(matches!(fault, Fault::Suspended { .. }), "{fault}");
}

async fn guardrail(settings: &str) -> Guardrail {
    let (host, component) = (&shared().host, &shared().component);
    let bound = Guardrail::bind(host, component, brittle(settings, 2)).await;
    bound.unwrap()
}

async fn checked(guardrail: &Guardrail, messages: &str) -> Result<GuardVerdict, PluginError> {
    let told = GuardContext::default();
    guardrail.check_input(&context(), &told, messages).await
}

/// The last verdict on a choice that has these texts, or the first fault.
async fn watched(guardrail: &Guardrail, texts: [&str; 2]) -> Result<GuardVerdict, PluginError> {
    let told = GuardContext::default();
    let mut session = guardrail.open(&context(), &told).await?.unwrap();
    for text in texts {
        session.feed(&AnswerPart::Content, text, 0).await?;
    }
    session.close(Finish::Stop, 0).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_are_too_much_for_a_guardrail_are_their_callers_fault() {
    const FUNCTION: &str = "guardrail.check-input";
    let sound = guardrail("{}").await;
    for attack in ATTACKS {
        assert_cause(checked(&sound, attack).await, FUNCTION, Cause::Caller);
    }
    assert_eq!(checked(&sound, "[]").await.unwrap(), GuardVerdict::Pass);
    let broken = guardrail(r#"{"check-input":"loop"}"#).await;
    for _ in 0..2 {
        assert_cause(checked(&broken, "[]").await, FUNCTION, Cause::Plugin);
    }
    assert_suspended(checked(&broken, "[]").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_text_that_is_too_much_for_a_guardrail_is_the_models_fault_if_it_is_long() {
    const FUNCTION: &str = "guardrail.feed";
    let (short, long) = ("x".repeat(1000), "x".repeat(100_000));
    let sound = guardrail("{}").await;
    for attack in ATTACKS {
        let said = watched(&sound, [&long, attack]).await;
        assert_cause(said, FUNCTION, Cause::Model);
    }
    watched(&sound, ["text", "text"]).await.unwrap();
    for _ in 0..2 {
        let said = watched(&sound, [&short, "loop"]).await;
        assert_cause(said, FUNCTION, Cause::Plugin);
    }
    assert_suspended(watched(&sound, ["text", "text"]).await);
    // Always, so that the length of the text is no excuse.
    for (setting, function) in [("watch", FUNCTION), ("close-watch", "guardrail.close")] {
        let broken = guardrail(&format!("{{\"{setting}\":\"loop\"}}")).await;
        for _ in 0..2 {
            let said = watched(&broken, [&long, "text"]).await;
            assert_cause(said, function, Cause::Plugin);
        }
        assert_suspended(watched(&broken, ["text", "text"]).await);
    }
}

/// A question that tells the policy what to do, with a header of so many bytes.
fn asks(command: &str, bytes: usize) -> Facts {
    let header = |name: &str, value: String| (name.to_owned(), value);
    Facts {
        headers: vec![
            header("x-ask", command.to_owned()),
            header("x-filler", "x".repeat(bytes)),
        ],
        ..Facts::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_that_are_too_much_for_a_policy_are_their_callers_fault_if_they_are_large() {
    let policy = async |settings: &str| -> Policy {
        let bound = shared().policy(brittle(settings, 2));
        bound.await
    };
    let (large, small) = (20_000, 1000);
    let sound = policy("{}").await;
    for attack in ATTACKS {
        let said = sound.authorize(&context(), asks(attack, large)).await;
        assert_cause(said, "policy.authorize", Cause::Caller);
        let said = sound.identify(&context(), asks(attack, large)).await;
        assert_cause(said, "policy.identify", Cause::Caller);
    }
    let said = sound.authorize(&context(), asks("abstain", large)).await;
    said.unwrap();
    let said = sound.identify(&context(), asks("loop", small)).await;
    assert_cause(said, "policy.identify", Cause::Plugin);
    let said = sound.authorize(&context(), asks("loop", small)).await;
    assert_cause(said, "policy.authorize", Cause::Plugin);
    assert_suspended(sound.authorize(&context(), asks("abstain", small)).await);
    let broken = policy(r#"{"authorize":"loop"}"#).await;
    for _ in 0..2 {
        let said = broken.authorize(&context(), asks("abstain", large)).await;
        assert_cause(said, "policy.authorize", Cause::Plugin);
    }
    assert_suspended(broken.authorize(&context(), asks("abstain", small)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn arguments_that_are_too_much_for_a_tool_are_refused_if_they_are_large() {
    let call = async |tools: &ComponentTools, text: &str, bytes: usize| {
        let arguments = format!("{{\"text\":\"{text}\"{}}}", " ".repeat(bytes));
        let caller = ToolCaller::default();
        tools.call(&context(), &caller, "does", &arguments).await
    };
    let (large, small) = (100_000, 100);
    let sound = shared().tools(brittle("{}", 2)).await;
    let answer = ToolAnswer::Result("text".to_owned());
    assert_eq!(call(&sound, "text", large).await.unwrap(), answer);
    for attack in ATTACKS {
        match call(&sound, attack, large).await.unwrap() {
            ToolAnswer::Refused(text) => assert!(text.contains("shorter arguments"), "{text}"),
            ToolAnswer::Result(text) => panic!("{attack}: {text}"),
        }
    }
    assert_eq!(call(&sound, "text", small).await.unwrap(), answer);
    for _ in 0..2 {
        let said = call(&sound, "loop", small).await;
        assert_cause(said, "tool.call", Cause::Plugin);
    }
    assert_suspended(call(&sound, "text", small).await);
}

/// Dropping what a long text or a caller's grammar left behind may take long; dropping what an ordinary text left may not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drops_after_a_long_text_or_a_grammar_suspend_nobody() {
    const LOOPS: &str = r#"{"drop":"loop"}"#;
    let long = "x".repeat(100_000);
    let parser = shared().parser(brittle(LOOPS, 1)).await;
    let parsed = async |setup: &ParserSetup, text: &str| -> Result<(), PluginError> {
        let mut session = parser.open(&context(), setup).await?.unwrap();
        session.feed(text, &[]).await.map(drop)
    };
    let grammar = shared().grammar(brittle(LOOPS, 1)).await;
    // The only instance is not free before the drop is over.
    for _ in 0..3 {
        parsed(&setup(), &long).await.unwrap();
        let source = GrammarSource::Regex("dense".to_owned());
        drop(grammar.compile(&context(), &source).await.unwrap());
    }
    loop {
        match parsed(&setup(), "text").await {
            Ok(()) => tokio::time::sleep(Duration::from_millis(10)).await,
            suspended => return assert_suspended(suspended),
        }
    }
}
