//! Policies and plugins that are bound to tenants and routes.

use std::sync::Arc;

use mortise_plugin::{Allowance, Decision, Denial, Finish, Principal, ToolGrant};
use serde_json::json;

use crate::fakes::{
    FakePolicy, FakeTemplate, ask, call, chat, collect, loaded, model, says, service,
};
use crate::plugins::{DecidePolicy, RenderChat};
use crate::{
    ApiCall, Granted, PluginRoutes, Request, RoutingKey, ScopePredicate, ScopedPolicy, ServiceError,
};

/// An allowance for a caller of this tenant.
fn of(tenant: Option<&str>) -> Allowance {
    Allowance {
        principal: Principal {
            subject: "alice".to_owned(),
            tenant: tenant.map(str::to_owned),
            ..Principal::default()
        },
        priority: 2,
        max_tokens: Some(20),
        headers: vec![("x-first".to_owned(), "1".to_owned())],
        lease: Some("first".to_owned()),
        tools: ToolGrant::AllBut(vec!["nuke".to_owned()]),
        ..Allowance::default()
    }
}

/// Allowance of a policy that is bound to a tenant.
fn narrower() -> Allowance {
    Allowance {
        principal: Principal {
            subject: "the guard".to_owned(),
            tenant: Some("umbrella".to_owned()),
            ..Principal::default()
        },
        priority: -1,
        max_tokens: Some(5),
        headers: vec![("x-second".to_owned(), "2".to_owned())],
        lease: Some("second".to_owned()),
        rewrites: Vec::new(),
        tools: ToolGrant::Only(vec!["nuke".to_owned(), "add".to_owned()]),
        server_tools: ToolGrant::Only(Vec::new()),
    }
}

fn wider() -> Allowance {
    Allowance {
        priority: 9,
        max_tokens: Some(500),
        ..narrower()
    }
}

fn denied() -> Decision {
    Decision::Deny(Denial {
        status: 403,
        kind: "permission_error".to_owned(),
        code: "blocked".to_owned(),
        message: "no".to_owned(),
        retry_after_ms: None,
        headers: Vec::new(),
    })
}

fn policy(decision: Decision) -> Arc<FakePolicy> {
    FakePolicy::new(Ok(decision))
}

fn bound(policy: &Arc<FakePolicy>, tenant: &'static str) -> Arc<dyn DecidePolicy> {
    Arc::new(ScopedPolicy {
        policy: policy.clone(),
        scope: Arc::new(move |asking: &RoutingKey<'_>| asking.tenant == Some(tenant)),
        tenants: Arc::new(move |asking| asking == Some(tenant)),
        by_tenant: true,
        required: true,
    })
}

/// Outcome of a request: the allowance, or the code of the refusal.
async fn admitted(chain: Vec<Arc<dyn DecidePolicy>>) -> Result<Allowance, String> {
    let service = service(model(says("hello")), chain);
    let result = match service.authorize(&call(), None).await {
        Ok(admission) => Ok(admission.allowance().clone()),
        Err(ServiceError::Denied(denial)) => Err(denial.code),
        Err(error) => panic!("{error}"),
    };
    service.settle().await;
    result
}

#[tokio::test]
async fn a_policy_of_a_tenant_is_asked_once_the_tenant_is_known() {
    let guard = policy(denied());
    // Wherever it stands: the policy that names the tenant has to be asked first.
    for guard_first in [true, false] {
        let named: Arc<dyn DecidePolicy> = policy(Decision::Allow(of(Some("acme"))));
        let chain = match guard_first {
            true => vec![bound(&guard, "acme"), named],
            false => vec![named, bound(&guard, "acme")],
        };
        assert_eq!(admitted(chain).await, Err("blocked".to_owned()));
    }
    assert_eq!(guard.facts.lock().expect("lock").len(), 2);
    for tenant in [None, Some("umbrella")] {
        let named: Arc<dyn DecidePolicy> = policy(Decision::Allow(of(tenant)));
        let chain = vec![named, bound(&guard, "acme")];
        assert_eq!(admitted(chain).await, Ok(of(tenant)));
    }
    assert_eq!(guard.facts.lock().expect("lock").len(), 2, "not its tenant");
    // Nobody names a tenant where nobody decides, and a guard alone lets nobody in as its tenant.
    let anonymous = admitted(vec![bound(&guard, "acme")]).await;
    assert_eq!(anonymous.expect("free").principal.subject, "anonymous");
}

#[tokio::test]
async fn a_policy_of_a_tenant_narrows_and_never_widens() {
    let first: Arc<dyn DecidePolicy> = policy(Decision::Allow(of(Some("acme"))));
    let with = |decision| {
        let guard = bound(&policy(decision), "acme");
        admitted(vec![Arc::clone(&first), guard])
    };
    let own = with(Decision::Abstain).await.expect("allowed");
    assert_eq!(own, of(Some("acme")));
    let narrow = with(Decision::Allow(narrower())).await.expect("allowed");
    assert_eq!(narrow.principal, own.principal, "who asks stays");
    assert_eq!((narrow.max_tokens, narrow.priority), (Some(5), -1));
    assert_eq!(narrow.tools, ToolGrant::Only(vec!["add".to_owned()]));
    assert_eq!(narrow.server_tools, ToolGrant::Only(Vec::new()));
    let names: Vec<&str> = narrow.headers.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["x-first", "x-second"]);
    let wide = with(Decision::Allow(wider())).await.expect("allowed");
    assert_eq!((wide.max_tokens, wide.priority), (Some(20), 2));
    let silent = Allowance {
        priority: 0,
        max_tokens: None,
        ..narrower()
    };
    let same = with(Decision::Allow(silent)).await.expect("allowed");
    assert_eq!((same.max_tokens, same.priority), (Some(20), 2));
}

#[tokio::test]
async fn feature_e29_work_that_was_granted_keeps_its_bounds_and_leaves_its_turn() {
    let guard = policy(denied());
    let chain: Vec<Arc<dyn DecidePolicy>> = vec![guard.clone()];
    let service = service(model(says("hello")), chain);
    let mut call = ApiCall {
        granted: Some(Granted::of(&narrower())),
        waived_priority: 10,
        ..call()
    };
    let admission = service.authorize(&call, None).await.expect("granted");
    let (kept, given) = (admission.allowance(), narrower());
    assert_eq!(kept.priority, given.priority - 10);
    assert_eq!(
        (kept.max_tokens, &kept.tools),
        (given.max_tokens, &given.tools)
    );
    assert_eq!(
        (&kept.server_tools, &kept.principal),
        (&given.server_tools, &given.principal)
    );
    assert!(
        guard.facts.lock().expect("lock").is_empty(),
        "it is not asked again"
    );
    call.granted = None;
    assert!(service.authorize(&call, None).await.is_err());
}

#[tokio::test]
async fn all_policies_that_allowed_are_told_and_each_gets_its_own_lease() {
    let first = policy(Decision::Allow(of(Some("acme"))));
    let second = policy(Decision::Allow(narrower()));
    let refusing = policy(denied());
    let chain = |more: Vec<Arc<dyn DecidePolicy>>| {
        let chain: Vec<Arc<dyn DecidePolicy>> = vec![first.clone(), bound(&second, "acme")];
        service(model(says("hello")), [chain, more].concat())
    };
    let allowed = chain(Vec::new());
    let all = ask(&allowed, chat("hi")).await.expect("an answer");
    let usage = all.usage.expect("completed");
    allowed.settle().await;
    let told = [first.accounts(), second.accounts()].concat();
    let leases: Vec<_> = told.iter().map(|usage| usage.lease.as_deref()).collect();
    assert_eq!(leases, [Some("first"), Some("second")]);
    let subjects: Vec<_> = told.iter().map(|usage| usage.subject.as_str()).collect();
    assert_eq!(subjects, ["alice", "the guard"], "from its own `allow`");
    for told in &told {
        assert_eq!(told.completion_tokens, usage.completion_tokens);
        assert_eq!(told.finish, Finish::Stop);
    }
    // What was drawn for a request that a later policy refuses is given back.
    let refused = chain(vec![bound(&refusing, "acme")]);
    ask(&refused, chat("hi")).await.expect_err("refused");
    refused.settle().await;
    assert!(refusing.accounts().is_empty());
    for policy in [&first, &second] {
        let told = policy.accounts();
        assert_eq!(told.len(), 2);
        assert_eq!(
            (told[1].finish, told[1].completion_tokens),
            (Finish::Error, 0)
        );
    }
}

#[tokio::test]
async fn tenant_and_route_choose_the_plugins_of_a_request() {
    let [acmes, texts, everybodys] = [(); 3].map(|()| Arc::new(FakeTemplate::default()));
    let mut served = model(says("hello"));
    let entry = |scope: ScopePredicate, template: &Arc<FakeTemplate>| {
        let template: Arc<dyn RenderChat> = template.clone();
        (scope, Some(template))
    };
    loaded(&mut served).plugins.chat_template = PluginRoutes::new([
        entry(
            Arc::new(|key: &RoutingKey<'_>| {
                key.tenant == Some("acme") && key.model == Some("demo")
            }),
            &acmes,
        ),
        entry(
            Arc::new(|key: &RoutingKey<'_>| key.route == "/other"),
            &texts,
        ),
        entry(Arc::new(|_: &RoutingKey<'_>| true), &everybodys),
    ]);
    let asked = async |tenant: Option<&str>, route: &'static str| {
        let named: Arc<dyn DecidePolicy> = policy(Decision::Allow(of(tenant)));
        let service = service(served.clone(), vec![named]);
        let call = ApiCall { route, ..call() };
        let request = Request::check(chat("hi")).expect("good");
        let answer = service.start(call, request).await.expect("an answer");
        assert!(collect(answer).await.usage.is_some());
        [&acmes, &texts, &everybodys].map(|t| t.inputs.lock().expect("lock").len())
    };
    let chat = "/v1/chat/completions";
    assert_eq!(asked(Some("acme"), chat).await, [1, 0, 0]);
    assert_eq!(asked(Some("umbrella"), chat).await, [1, 0, 1]);
    assert_eq!(asked(None, "/other").await, [1, 1, 1]);
    assert_eq!(asked(Some("acme"), "/other").await, [2, 1, 1]);
    let input = everybodys.inputs.lock().expect("lock")[0].clone();
    assert!(input.messages.contains(&json!("hi").to_string()));
}
