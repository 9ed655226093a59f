//! Isolation of calls, bindings, instances and moments from each other (J5, J10, J11), and from the machine
//! (I5).

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Waker};

use mortise_plugin::{
    Decision, Facts, HostConfig, Kind, Ledger, LoadError, PluginHost, Policy, Secret,
};

use crate::forged::Forged;
use crate::guests::{binding, context, every_kind, fresh, render, shared, source};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn j5_ten_thousand_calls_given_up_anywhere_leave_the_next_one_fine() {
    let fixture = fresh();
    let template = fixture.template(binding()).await;
    for round in 0..10_000u32 {
        // The loop yields at every epoch; how often it is polled decides how far it comes.
        let mut call = Box::pin(render(&template, "loop"));
        let mut waiting = Context::from_waker(Waker::noop());
        for _ in 0..=round % 3 {
            assert!(call.as_mut().poll(&mut waiting).is_pending());
        }
        drop(call);
        if round % 100 == 0 {
            assert_eq!(render(&template, "recall").await.unwrap(), "");
        }
    }
    let stats = &fixture.host.stats()[0];
    let render = stats
        .functions
        .iter()
        .find(|function| function.function == "chat-template.render")
        .unwrap();
    // A few were given up before the guest was called at all.
    assert!(render.cancelled > 9_000, "{render:?}");
    assert!(stats.live_instances <= 3, "{stats:?}");
}

fn facts(model: &str) -> Facts {
    Facts {
        model: Some(model.to_owned()),
        ..Facts::default()
    }
}

async fn subject(policy: &Policy, model: &str) -> String {
    match policy.authorize(&context(), facts(model)).await.unwrap() {
        Decision::Allow(allow) => allow.principal.subject,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn j10_a_binding_knows_nothing_of_another() {
    let fixture = shared();
    let own = |secret: &str| {
        let mut own = binding();
        own.secrets = vec![Secret::new("own", secret)];
        own.ledger = Arc::new(Ledger::new());
        own
    };
    let one = fixture.policy(own("of-one")).await;
    let two = fixture.policy(own("of-two")).await;
    assert_eq!(subject(&one, "secret:of-one").await, "own");
    assert_eq!(subject(&two, "secret:of-one").await, "unknown");
    // A bucket of the same name is another bucket.
    assert_eq!(subject(&one, "ledger:shared").await, "true 2");
    assert_eq!(subject(&one, "ledger:shared").await, "true 1");
    assert_eq!(subject(&two, "ledger:shared").await, "true 2");
    // And no plugin can import what another exports.
    for kind in Kind::ALL {
        for name in [
            "chat-template",
            "output-parser",
            "grammar",
            "policy",
            "tool",
        ] {
            let wasm = Forged::new(kind).importing(&format!("mortise:plugin/{name}@0.2.0"));
            let refused = fixture.host.load(source("curious", &wasm)).map(drop);
            assert!(
                matches!(refused, Err(LoadError::Outer { .. })),
                "a {kind} imports {name}: {refused:?}"
            );
        }
    }
}

#[tokio::test]
async fn j11_the_same_question_gets_the_same_answer_wherever_and_whenever() {
    let ask = async |command: &str| {
        // A host, a compilation and an instance of its own for each question.
        let host = PluginHost::new(HostConfig::default()).unwrap();
        let component = host.load(source("guest", every_kind())).unwrap();
        let bound = mortise_plugin::ChatTemplate::bind(&host, &component, binding());
        render(&bound.await.unwrap(), command).await.unwrap()
    };
    for command in ["random", "now", "environment"] {
        let first = ask(command).await;
        assert_eq!(ask(command).await, first, "{command}");
    }
}

#[tokio::test]
async fn i5_sockets_files_variables_and_clocks_are_out_of_reach() {
    let fixture = shared();
    for kind in Kind::ALL {
        let mut names = vec![
            "wasi:sockets/tcp@0.2.6",
            "wasi:sockets/udp@0.2.6",
            "wasi:sockets/ip-name-lookup@0.2.6",
            "wasi:http/outgoing-handler@0.2.6",
            "wasi:config/store@0.2.0",
            "wasi:filesystem/types@0.3.0",
        ];
        if ![Kind::Policy, Kind::Tool, Kind::Guardrail, Kind::Retriever].contains(&kind) {
            names.extend([
                "mortise:plugin/clock@0.1.0",
                "mortise:plugin/outbound-http@0.1.0",
            ]);
        }
        if kind != Kind::Policy {
            names.extend([
                "mortise:plugin/secrets@0.1.0",
                "mortise:plugin/ledger@0.1.0",
            ]);
        }
        for name in names {
            let wasm = Forged::new(kind).importing(name);
            let refused = fixture.host.load(source("curious", &wasm)).map(drop);
            let Err(error @ LoadError::Import { .. }) = refused else {
                panic!("a {kind} imports {name}: {refused:?}");
            };
            let message = error.to_string();
            assert!(
                message.contains(name) && message.contains("curious"),
                "{message}"
            );
        }
    }
    // What standard libraries import whether they use it or not is there, and empty.
    let template = fixture.template(binding()).await;
    assert_eq!(render(&template, "environment").await.unwrap(), "0 0 false");
}
