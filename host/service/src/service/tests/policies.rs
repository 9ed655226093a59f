use std::sync::Arc;
use std::time::Duration;

use mortise_models::{NameMatching, Script};
use mortise_plugin::{Allowance, Decision, Denial, Fault, Finish, Principal, ToolGrant};

use super::{allow, until};
use crate::fakes::{
    FakePolicy, ask, call, chat, collect, fault, functions, loaded, model, rename, says, service,
};
use crate::plugins::DecidePolicy;
use crate::{Event, Request, Service, ServiceConfig, ServiceError};

#[tokio::test]
async fn policies_are_told_once_of_a_complete_answer() {
    let policy = FakePolicy::new(Ok(allow()));
    let service = service(
        model(says("hello")),
        vec![policy.clone() as Arc<dyn DecidePolicy>],
    );
    let mut fields = chat("hi");
    fields.model = "any name".to_owned();
    let request = Request::check(fields).expect("good");
    let answer = service.start(call(), request).await.expect("an answer");
    assert_eq!(
        answer.headers(),
        [("x-remaining".to_owned(), "7".to_owned())]
    );
    assert_eq!(
        answer.principal().map(|p| p.subject.as_str()),
        Some("alice")
    );
    let usage = collect(answer).await.usage.expect("completed");
    service.settle().await;
    let accounts = policy.accounts();
    assert_eq!(accounts.len(), 1);
    let told = &accounts[0];
    assert_eq!(told.lease.as_deref(), Some("lease-1"));
    assert_eq!(
        (told.subject.as_str(), told.model.as_str()),
        ("alice", "demo")
    );
    assert_eq!(told.prompt_tokens, usage.prompt_tokens);
    assert_eq!(told.completion_tokens, usage.completion_tokens);
    assert_eq!(told.finish, Finish::Stop);
    let facts = policy.facts.lock().expect("lock")[0].clone();
    assert_eq!(
        facts.model.as_deref(),
        Some("demo"),
        "the name of the model that answers"
    );
    // With the length of what was asked, whatever the caller said of it.
    let headers = [("authorization", "Bearer x"), ("content-length", "2")];
    let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(facts.headers, headers);
}

#[tokio::test]
async fn feature_f15_policies_are_told_of_labels_and_callers_cannot_forge_them() {
    let policy = FakePolicy::new(Ok(allow()));
    let service = service(
        model(says("hello")),
        vec![policy.clone() as Arc<dyn DecidePolicy>],
    );
    let labels = r#"{"tenant_id":"acme"}"#;
    for (at, told) in [Some(labels), None].into_iter().enumerate() {
        let mut call = call();
        let forged = ("Mortise-Metadata".to_owned(), "{}".to_owned());
        call.headers.push(forged);
        let mut fields = chat("hi");
        fields.metadata = told.map(str::to_owned);
        let request = Request::check(fields).expect("good");
        let answer = service.start(call, request).await.expect("an answer");
        collect(answer).await;
        let facts = policy.facts.lock().expect("lock")[at].clone();
        let mut headers = facts.headers.iter();
        let header = headers.find(|(name, _)| name == "mortise-metadata");
        assert_eq!(header.map(|(_, value)| value.as_str()), told);
    }
}

#[tokio::test]
async fn a_dropped_answer_cancels_and_is_accounted_once() {
    let policy = FakePolicy::new(Ok(allow()));
    let script = Script {
        token_delay: Duration::from_millis(1),
        repeat: 10_000,
        ..says("hello the world ")
    };
    let mut served = model(script);
    let described = Arc::clone(&loaded(&mut served).model);
    let service = service(served, vec![policy.clone() as Arc<dyn DecidePolicy>]);
    let mut fields = chat("hi");
    (fields.n, fields.max_tokens) = (Some(3), Some(5000));
    let mut answer = service
        .start(call(), Request::check(fields).expect("good"))
        .await
        .expect("an answer");
    for _ in 0..10 {
        assert!(matches!(answer.next().await, Some(Event::Delta { .. })));
    }
    let usage = answer.usage();
    drop(answer);
    service.settle().await;
    let accounts = policy.accounts();
    assert_eq!(accounts.len(), 1);
    assert_eq!(accounts[0].finish, Finish::Cancelled);
    assert_eq!(accounts[0].completion_tokens, usage.completion_tokens);
    assert!(usage.completion_tokens >= 10);
    until("the sequences are freed", || described.load().running == 0).await;
}

#[tokio::test]
async fn a_request_that_fails_after_it_was_allowed_is_accounted() {
    let policy = FakePolicy::new(Ok(allow()));
    let service = service(
        model(says("x")),
        vec![policy.clone() as Arc<dyn DecidePolicy>],
    );
    let mut fields = chat("hi");
    fields.max_tokens = Some(1_000_000);
    let error = ask(&service, fields).await.expect_err("too long");
    assert!(matches!(
        error,
        ServiceError::ContextLength {
            requested: 1_000_000,
            ..
        }
    ));
    service.settle().await;
    let accounts = policy.accounts();
    assert_eq!(accounts.len(), 1);
    assert_eq!(
        (accounts[0].finish, accounts[0].completion_tokens),
        (Finish::Error, 0)
    );
}

#[tokio::test]
async fn the_first_policy_that_does_not_abstain_decides() {
    let denial = Denial {
        status: 401,
        kind: "authentication_error".to_owned(),
        code: "invalid_api_key".to_owned(),
        message: "no".to_owned(),
        retry_after_ms: None,
        headers: Vec::new(),
    };
    let abstain = FakePolicy::new(Ok(Decision::Abstain));
    let deny = FakePolicy::new(Ok(Decision::Deny(denial)));
    let broken = FakePolicy::new(Err(fault("policy.authorize", Fault::Stack)));
    let good = FakePolicy::new(Ok(allow()));
    let chain = |policies: &[&Arc<FakePolicy>]| {
        let chain = policies
            .iter()
            .map(|&p| Arc::clone(p) as Arc<dyn DecidePolicy>)
            .collect();
        service(model(says("hello")), chain)
    };
    assert!(ask(&chain(&[]), chat("hi")).await.is_ok());
    assert!(
        ask(&chain(&[&abstain, &good, &deny]), chat("hi"))
            .await
            .is_ok()
    );
    let error = ask(&chain(&[&abstain, &deny, &good]), chat("hi"))
        .await
        .expect_err("denied");
    assert!(matches!(error, ServiceError::Denied(d) if d.status == 401));
    let error = ask(&chain(&[&abstain]), chat("hi"))
        .await
        .expect_err("nobody allows");
    assert!(matches!(error, ServiceError::Denied(d) if d.status == 403));
    let error = ask(&chain(&[&broken, &good]), chat("hi"))
        .await
        .expect_err("fails closed");
    assert!(matches!(error, ServiceError::Plugin(_)));
    assert!(deny.accounts().is_empty() && broken.accounts().is_empty());
}

#[tokio::test]
async fn other_routes_are_authorized_and_accounted() {
    let policy = FakePolicy::new(Ok(allow()));
    let service = service(
        model(says("x")),
        vec![policy.clone() as Arc<dyn DecidePolicy>],
    );
    let admission = service.authorize(&call(), None).await.expect("allowed");
    assert_eq!(admission.allowance().principal.subject, "alice");
    drop(admission);
    service.settle().await;
    assert_eq!(policy.accounts().len(), 1);
    assert_eq!(policy.accounts()[0].finish, Finish::Stop);
}

#[tokio::test]
async fn unknown_models_are_refused_after_the_policies() {
    let mut served = model(says("x"));
    let config = ServiceConfig {
        name_matching: NameMatching {
            sole_model: false,
            ..NameMatching::default()
        },
        ..ServiceConfig::default()
    };
    rename(&mut served, "real", &["alias"]);
    let policy = FakePolicy::new(Ok(allow()));
    let chain = vec![policy.clone() as Arc<dyn DecidePolicy>];
    let service = Service::new(config, vec![served], chain, &[], Vec::new()).expect("a good setup");
    let error = ask(&service, chat("hi")).await.expect_err("unknown");
    assert!(
        matches!(error, ServiceError::ModelNotFound { available, .. } if available == ["real"])
    );
    assert_eq!(
        policy.facts.lock().expect("lock")[0].model.as_deref(),
        Some("demo")
    );
    let mut fields = chat("hi");
    fields.model = "ALIAS".to_owned();
    assert!(ask(&service, fields).await.is_ok());
}

#[tokio::test]
async fn tools_that_the_policy_does_not_grant_are_refused_by_name() {
    let policy = FakePolicy::new(Ok(Decision::Allow(Allowance {
        principal: Principal {
            subject: "alice".to_owned(),
            tenant: Some("acme".to_owned()),
            ..Principal::default()
        },
        tools: ToolGrant::Only(vec!["f".to_owned()]),
        server_tools: ToolGrant::AllBut(vec!["rm".to_owned()]),
        ..Allowance::default()
    })));
    let service = service(
        model(says("hello")),
        vec![policy.clone() as Arc<dyn DecidePolicy>],
    );
    let refusal = async |tools: &[&str], server_tools: &[&str]| {
        let mut fields = chat("hi");
        fields.tools = functions(tools);
        fields.server_tools = server_tools.iter().map(|name| (*name).to_owned()).collect();
        match ask(&service, fields).await {
            Ok(_) => None,
            Err(ServiceError::Denied(denial)) => {
                assert_eq!((denial.status, &*denial.code), (403, "tool_not_allowed"));
                Some(denial.message)
            }
            Err(other) => Some(other.to_string()),
        }
    };
    assert_eq!(refusal(&["f"], &[]).await, None);
    assert_eq!(refusal(&[], &[]).await, None);
    let message = refusal(&["f", "g"], &[]).await.expect("a refusal");
    assert!(
        message.contains("`alice`") && message.contains("`g` (tools[1])"),
        "{message}"
    );
    let message = refusal(&["f"], &["calculate", "rm"])
        .await
        .expect("a refusal");
    assert!(message.contains("`rm` (server_tools[1])"), "{message}");
    // One that is granted and does not exist is refused for that.
    let message = refusal(&["f"], &["calculate"]).await.expect("a refusal");
    assert!(message.contains("no tool `calculate`"), "{message}");

    let facts = policy.facts.lock().expect("lock").clone();
    assert_eq!(facts[2].tools, ["f", "g"]);
    assert_eq!(facts[3].server_tools, ["calculate", "rm"]);
    service.settle().await;
    let accounts = policy.accounts();
    assert_eq!(accounts.len(), 5, "of refused requests as well");
    assert!(
        accounts
            .iter()
            .all(|told| told.tenant.as_deref() == Some("acme"))
    );
}
