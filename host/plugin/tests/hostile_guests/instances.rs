//! Instances are lent, returned, replaced and bounded.

use std::time::{Duration, Instant};

use mortise_plugin::{
    ChatTemplate, Fault, Finish, GrammarSource, HostConfig, OutputParser, ParserSetup, PluginHost,
};

use crate::guests::{binding, context, every_kind, fault_of, fresh, render, shared, source};

const CANARY: &str = "tenant-a-secret";

#[tokio::test]
async fn a_replaced_instance_remembers_nothing() {
    let template = shared().template(binding()).await;
    for end in ["panic", "overflow", "bomb", "huge"] {
        render(&template, &format!("remember:{CANARY}"))
            .await
            .unwrap();
        assert_eq!(
            render(&template, "recall").await.unwrap(),
            CANARY,
            "the instance is reused"
        );
        render(&template, end).await.unwrap_err();
        assert_eq!(
            render(&template, "recall").await.unwrap(),
            "",
            "after {end}"
        );
    }
}

#[tokio::test]
async fn instances_share_no_memory() {
    let fixture = shared();
    let parser = fixture.parser(binding()).await;
    let template = fixture.template(binding()).await;
    render(&template, &format!("remember:{CANARY}"))
        .await
        .unwrap();
    let other = fixture.template(binding()).await;
    assert_eq!(render(&other, "recall").await.unwrap(), "");
    let setup = ParserSetup::default();
    let mut first = parser.open(&context(), &setup).await.unwrap().unwrap();
    let second = parser.open(&context(), &setup).await.unwrap().unwrap();
    first.feed("hold", &[]).await.unwrap();
    let events = second.close(Finish::Stop).await.unwrap();
    assert!(!format!("{events:?}").contains("held back"));
}

#[tokio::test]
async fn an_instance_is_replaced_after_its_uses_and_when_it_grew() {
    let mut binding = binding();
    binding.limits.recycle_after_uses = 3;
    let template = shared().template(binding).await;
    render(&template, "remember:x").await.unwrap();
    assert_eq!(render(&template, "recall").await.unwrap(), "x");
    assert_eq!(render(&template, "recall").await.unwrap(), "x");
    assert_eq!(
        render(&template, "recall").await.unwrap(),
        "",
        "after three uses"
    );

    let template = shared().template(crate::guests::binding()).await;
    assert_eq!(render(&template, "grow").await.unwrap(), "grown");
    assert_eq!(
        render(&template, "recall").await.unwrap(),
        "",
        "after growing by 20 MiB"
    );
}

/// Have four sessions of a binding open at once, told a text, so that four instances are idle afterwards.
async fn four_idle(parser: &OutputParser, text: &str) {
    let mut sessions = Vec::new();
    for _ in 0..4 {
        let setup = ParserSetup::default();
        sessions.push(parser.open(&context(), &setup).await.unwrap().unwrap());
    }
    for mut session in sessions {
        session.feed(text, &[]).await.unwrap();
        session.close(Finish::Stop).await.unwrap();
    }
}

/// Wait until no more than so many instances live.
async fn until_live(host: &PluginHost, most: u64) -> u64 {
    let live = || {
        host.stats()
            .iter()
            .map(|stats| stats.live_instances)
            .sum::<u64>()
    };
    let patience = tokio::time::timeout(Duration::from_secs(60), async {
        while live() > most {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    patience.await.expect("instances are given up");
    live()
}

#[tokio::test]
async fn c2_idle_instances_are_given_up_those_that_grew_before_the_others() {
    let fixture = fresh();
    let mut binding = binding();
    binding.limits.recycle_growth_bytes = 64 << 20;
    binding.limits.idle_grown_ms = 20;
    binding.limits.idle_ms = 3_600_000;
    let small = fixture.parser(binding.clone()).await;
    let large = fixture.parser(binding.clone()).await;
    four_idle(&small, "text").await;
    four_idle(&large, &"x".repeat(3 << 20)).await;
    // Of those that grew, the one that was used last stays; the small ones wait for an hour.
    assert_eq!(until_live(&fixture.host, 5).await, 5);
    let setup = ParserSetup::default();
    let session = large.open(&context(), &setup).await.unwrap().unwrap();
    session.close(Finish::Stop).await.unwrap();
    let made: u64 = fixture
        .host
        .stats()
        .iter()
        .map(|stats| stats.created_instances)
        .sum();
    assert_eq!(made, 8, "it is used again");
    drop((small, large));
    assert_eq!(until_live(&fixture.host, 0).await, 0);
    binding.limits.idle_ms = 20;
    let brief = fixture.parser(binding).await;
    four_idle(&brief, "text").await;
    assert_eq!(until_live(&fixture.host, 1).await, 1);
    // And again: whoever looks after them begins anew.
    four_idle(&brief, "text").await;
    assert_eq!(until_live(&fixture.host, 1).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_given_up_half_way_leave_the_host_fine() {
    let fixture = fresh();
    let template = fixture.template(binding()).await;
    for round in 0..200u64 {
        let call = render(&template, "loop");
        let time = Duration::from_micros(200 + round * 37 % 4000);
        assert!(tokio::time::timeout(time, call).await.is_err());
        assert_eq!(render(&template, "recall").await.unwrap(), "");
    }
    let stats = &fixture.host.stats()[0];
    let render = stats
        .functions
        .iter()
        .find(|f| f.function == "chat-template.render")
        .unwrap();
    assert!(render.cancelled > 100, "{render:?}");
    assert!(stats.live_instances <= 3, "{stats:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_and_matchers_dropped_at_any_time_give_their_place_back() {
    let mut binding = binding();
    binding.limits.max_instances = 2;
    binding.limits.checkout_wait_ms = 30_000;
    let fixture = fresh();
    let parser = fixture.parser(binding.clone()).await;
    let grammar = fixture.grammar(binding).await;
    let setup = ParserSetup::default();
    for round in 0..40u32 {
        let mut session = parser.open(&context(), &setup).await.unwrap().unwrap();
        if round % 2 == 0 {
            let feed = session.feed("loop", &[]);
            let _ = tokio::time::timeout(Duration::from_millis(2), feed).await;
        }
        drop(session);
        let command = if round % 2 == 0 { "then-loop" } else { "only" };
        let source = GrammarSource::Regex(command.to_owned());
        let mut matcher = grammar.compile(&context(), &source).await.unwrap();
        let _fork = matcher.fork().await.unwrap();
        let mut row = vec![0; 3];
        let mask = matcher.mask(&mut row);
        let _ = tokio::time::timeout(Duration::from_millis(2), mask).await;
    }
    for stats in fixture.host.stats() {
        assert!(stats.live_instances <= 2, "{stats:?}");
    }
}

#[tokio::test]
async fn a_matcher_dropped_outside_the_runtime_is_given_back() {
    let fixture = fresh();
    let mut binding = binding();
    binding.limits.max_instances = 1;
    let grammar = fixture.grammar(binding).await;
    let source = GrammarSource::Regex("only".to_owned());
    let matcher = grammar.compile(&context(), &source).await.unwrap();
    std::thread::spawn(move || drop(matcher)).join().unwrap();
    let matcher = grammar.compile(&context(), &source).await.unwrap();
    assert_eq!(fixture.host.stats()[0].created_instances, 1);
    drop(matcher);
}

#[tokio::test]
async fn waiting_for_an_instance_is_bounded() {
    let mut binding = binding();
    binding.limits.max_instances = 2;
    binding.limits.checkout_wait_ms = 150;
    let fixture = fresh();
    let parser = fixture.parser(binding).await;
    let setup = ParserSetup::default();
    let first = parser.open(&context(), &setup).await.unwrap().unwrap();
    let second = parser.open(&context(), &setup).await.unwrap().unwrap();
    let started = Instant::now();
    let error = parser.open(&context(), &setup).await.err().unwrap();
    let waited = started.elapsed();
    let fault = fault_of(error, "output-parser.open");
    assert_eq!(fault, Fault::Overloaded { instances: 2 });
    assert!(waited >= Duration::from_millis(150), "{waited:?}");
    drop((first, second));
}

#[tokio::test]
async fn one_that_comes_free_in_time_is_enough() {
    let mut binding = binding();
    binding.limits.max_instances = 1;
    let fixture = fresh();
    let parser = fixture.parser(binding).await;
    let setup = ParserSetup::default();
    let only = parser.open(&context(), &setup).await.unwrap().unwrap();
    let context = context();
    let (opened, ()) = tokio::join!(parser.open(&context, &setup), async {
        // The other was polled first, and waits.
        drop(only);
    });
    assert!(opened.is_ok());
}

#[tokio::test]
async fn all_bindings_together_are_bounded() {
    let config = HostConfig {
        max_instances_total: 3,
        ..HostConfig::default()
    };
    let host = PluginHost::new(config).unwrap();
    let component = host.load(source("guest", every_kind())).unwrap();
    let bind = || ChatTemplate::bind(&host, &component, binding());
    let first = bind().await.unwrap();
    let bound = (bind().await.unwrap(), bind().await.unwrap());
    let error = bind().await.map(drop).unwrap_err();
    let text = std::error::Error::source(&error).unwrap().to_string();
    assert!(text.contains("all 3 instances are busy"), "{text}");
    drop(bound);
    assert_eq!(render(&first, "echo:a").await.unwrap(), "a");
    assert!(bind().await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_callers_at_once_all_get_their_own_answer() {
    let mut binding = binding();
    binding.limits.max_instances = 8;
    let template = shared().template(binding).await;
    let calls: Vec<_> = (0..400)
        .map(|index| {
            let template = template.clone();
            tokio::spawn(async move { render(&template, &format!("echo:{index}")).await.unwrap() })
        })
        .collect();
    for (index, call) in calls.into_iter().enumerate() {
        assert_eq!(call.await.unwrap(), index.to_string());
    }
}
