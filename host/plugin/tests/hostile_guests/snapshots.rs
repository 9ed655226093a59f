//! Instances that begin with the memory of a prepared one are as those that are prepared themselves.

use std::time::Duration;

use mortise_plugin::{
    Binding, ChatTemplate, Facts, Finish, Grammar, GrammarSource, HostConfig, Kind, OutputParser,
    PluginHost, PluginStats, Policy,
};

use crate::forged::{Forged, RESULT, words};
use crate::guests::{Fixture, binding, context, fresh, render, setup, source};

/// A binding whose prepared memory is kept, with a command for `prepare`.
fn keeping(prepare: &str) -> Binding {
    let mut binding = binding();
    binding.settings = format!("{{\"prepare\":\"{prepare}\"}}");
    binding.limits.keep_prepared_from_us = 0;
    binding
}

fn stats(host: &PluginHost, kind: Kind) -> PluginStats {
    let all = host.stats();
    let mut of_kind = all.into_iter().filter(|stats| stats.kind == kind);
    of_kind.next().expect("it is bound")
}

/// Wait until further instances begin with a prepared memory.
async fn until_kept(host: &PluginHost, kind: Kind) {
    let kept = tokio::time::timeout(Duration::from_secs(120), async {
        while stats(host, kind).image_bytes == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    kept.await.expect("the memory is kept");
}

fn prepared(stats: &PluginStats) -> u64 {
    let mut functions = stats.functions.iter();
    let prepare = functions.find(|function| function.function == "lifecycle.prepare");
    prepare.expect("it is counted").calls
}

/// Each new instance has what was prepared and nothing of what another was told.
#[tokio::test]
async fn c2_a_new_instance_has_what_was_prepared_and_nothing_else() {
    const CANARY: &str = "tenant-a-secret";
    let fixture = fresh();
    let template = fixture.template(keeping("keep:prepared")).await;
    until_kept(&fixture.host, Kind::ChatTemplate).await;
    for end in ["panic", "overflow", "bomb", "huge", "panic"] {
        let recalled = render(&template, "recall").await.unwrap();
        assert_eq!(recalled, "prepared", "before {end}");
        let told = format!("remember:{CANARY}");
        render(&template, &told).await.unwrap();
        assert_eq!(render(&template, "recall").await.unwrap(), CANARY);
        render(&template, end).await.unwrap_err();
    }
    let stats = stats(&fixture.host, Kind::ChatTemplate);
    assert_eq!(prepared(&stats), 1);
    assert!(stats.created_instances >= 5, "{stats:?}");
    // The memory goes with the binding.
    drop(template);
    let gone = tokio::time::timeout(Duration::from_secs(120), async {
        while self::stats(&fixture.host, Kind::ChatTemplate).image_bytes > 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    gone.await.expect("the memory is given up");
}

/// Sessions, matchers and tools work in such instances as in others, several at a time.
#[tokio::test]
async fn instances_of_every_kind_begin_with_a_prepared_memory() {
    let fixture = fresh();
    let Fixture { host, component } = &fixture;
    let parser = OutputParser::bind(host, component, keeping("keep:a")).await;
    let grammar = Grammar::bind(host, component, keeping("keep:b")).await;
    let policy = Policy::bind(host, component, keeping("keep:c")).await;
    let (parser, grammar, policy) = (parser.unwrap(), grammar.unwrap(), policy.unwrap());
    for kind in [Kind::OutputParser, Kind::Grammar, Kind::Policy] {
        until_kept(host, kind).await;
    }
    let (mut sessions, mut matchers) = (Vec::new(), Vec::new());
    let only = GrammarSource::Regex("only".to_owned());
    for _ in 0..3 {
        sessions.push(parser.open(&context(), &setup()).await.unwrap().unwrap());
        matchers.push(grammar.compile(&context(), &only).await.unwrap());
    }
    for (mut session, mut matcher) in sessions.into_iter().zip(matchers) {
        session.feed("text", &[]).await.unwrap();
        session.close(Finish::Stop).await.unwrap();
        let mut row = vec![0; 3];
        matcher.mask(&mut row).await.unwrap();
        assert!(row.iter().any(|word| *word != 0));
        let mut fork = matcher.fork().await.unwrap();
        fork.advance(&[], &mut row).await.unwrap();
    }
    policy
        .authorize(&context(), Facts::default())
        .await
        .unwrap();
    for (kind, instances) in [(Kind::OutputParser, 3), (Kind::Grammar, 3)] {
        let stats = stats(host, kind);
        assert_eq!(
            (prepared(&stats), stats.created_instances),
            (1, instances),
            "{kind}"
        );
    }
}

/// Length of the text that a guest renders to, on instances that are used once.
async fn rendered(wasm: &[u8], keep_prepared_from_us: u64) -> Vec<usize> {
    let host = PluginHost::new(HostConfig::default()).unwrap();
    let component = host.load(source("guest", wasm)).unwrap();
    assert_eq!(component.prepared_anew(), None);
    let mut binding = binding();
    binding.limits.recycle_after_uses = 1;
    binding.limits.keep_prepared_from_us = keep_prepared_from_us;
    let template = ChatTemplate::bind(&host, &component, binding).await;
    let template = template.unwrap();
    if keep_prepared_from_us == 0 {
        until_kept(&host, Kind::ChatTemplate).await;
    }
    let mut lengths = Vec::new();
    for _ in 0..3 {
        lengths.push(render(&template, "").await.unwrap().len());
    }
    let stats = stats(&host, Kind::ChatTemplate);
    // One may have been made ahead.
    assert!(stats.created_instances >= 3, "{stats:?}");
    let each = stats.created_instances;
    assert_eq!(
        prepared(&stats),
        if keep_prepared_from_us == 0 { 1 } else { each }
    );
    lengths
}

/// Memory that a guest wrote and globals that it changed while it was prepared, up to the last byte of what it grew by.
#[tokio::test]
async fn what_a_preparation_wrote_is_there_byte_for_byte() {
    const LAST: u32 = 67 * 65_536 - 4;
    let prepare = format!(
        "(global.set $count (i64.add (global.get $count) (i64.const 0x100000001))) \
         (global.set $part (f32.const 1.5)) (global.set $whole (f64.const -0.1)) \
         (i32.store (i32.const 200000) (i32.const 7)) (drop (memory.grow (i32.const 3))) \
         (i32.store (i32.const {LAST}) (i32.const 9)) (i32.const 64)"
    );
    // The text is as long as all of it adds up to: 7, 9, 67 pages, 1, 1 and 1.
    let render = format!(
        "(i32.store (i32.const 2056) (i32.add (i32.load (i32.const 200000)) \
           (i32.add (i32.load (i32.const {LAST})) (i32.add (memory.size) \
             (i32.add (i32.wrap_i64 (i64.shr_u (global.get $count) (i64.const 32))) \
               (i32.add (f32.eq (global.get $part) (f32.const 1.5)) \
                 (f64.eq (global.get $whole) (f64.const -0.1)))))))) \
         (i32.const {RESULT})"
    );
    let wasm = Forged::new(Kind::ChatTemplate)
        .declare(
            "(global $count (mut i64) (i64.const 0)) (global $part (mut f32) (f32.const 0)) \
             (global $whole (mut f64) (f64.const 0))",
        )
        .data(4096, &[b'x'; 200])
        .data(2048, &words(&[1, 4096, 0]))
        .data(RESULT + 4, &words(&[2048, 1]))
        .body("lifecycle@0.3.0#prepare", &prepare)
        .body("#render", &render)
        .build();
    for keep_from_us in [u64::MAX, 0] {
        assert_eq!(rendered(&wasm, keep_from_us).await, [86, 86, 86]);
    }
}

/// Handles of the host, and data from outside a binding, belong to no other instance.
#[tokio::test]
async fn a_preparation_that_reaches_further_is_done_each_time() {
    for (prepare, reason) in [
        ("grants", "its preparation uses `clock`"),
        ("take", "its preparation uses `ledger`"),
        (
            "say",
            "cannot allocate another handle: store handle limit exceeded",
        ),
    ] {
        let fixture = fresh();
        let policy = fixture.policy(keeping(prepare)).await;
        let told = tokio::time::timeout(Duration::from_secs(120), async {
            loop {
                if let Some(told) = stats(&fixture.host, Kind::Policy).prepared_anew {
                    return told;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        });
        assert_eq!(told.await.expect("it is told"), reason);
        policy
            .authorize(&context(), Facts::default())
            .await
            .unwrap();
        let stats = stats(&fixture.host, Kind::Policy);
        assert_eq!((prepared(&stats), stats.image_bytes), (1, 0));
        assert!(stats.breakdowns.is_empty(), "the attempt is nobody's fault");
    }
}

/// A prepared memory that has no room beside others is not kept.
#[tokio::test]
async fn prepared_memories_beyond_their_budget_are_not_kept() {
    let config = HostConfig {
        max_image_bytes: 6 << 20,
        ..HostConfig::default()
    };
    let host = PluginHost::new(config).unwrap();
    // Four MiB each.
    let wasm = Forged::new(Kind::ChatTemplate).build();
    let component = host.load(source("guest", &wasm)).unwrap();
    let bind = || ChatTemplate::bind(&host, &component, keeping(""));
    let first = bind().await.unwrap();
    until_kept(&host, Kind::ChatTemplate).await;
    let second = bind().await.unwrap();
    let told = tokio::time::timeout(Duration::from_secs(120), async {
        while stats(&host, Kind::ChatTemplate).prepared_anew.is_none() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    told.await.expect("it is told");
    assert_eq!(stats(&host, Kind::ChatTemplate).image_bytes, 4 << 20);
    assert_eq!(render(&second, "").await.unwrap(), "");
    drop(first);
}

/// Reasons for having no image are told, and the plugin works as before.
#[tokio::test]
async fn a_module_with_other_state_is_prepared_each_time() {
    let changed =
        "(table $other 2 funcref) (func $change (table.set $other (i32.const 0) (ref.null func)))";
    let start = "(global $state (mut i32) (i32.const 0)) (func $begin (global.set $state (i32.const 1))) (start $begin)";
    let passive = "(data $more \"x\") (func $copy (memory.init $more (i32.const 0) (i32.const 0) (i32.const 1)))";
    let many = "(global (mut i32) (i32.const 0)) ".repeat(1001);
    let vector = "(global $wide (mut v128) (v128.const i64x2 0 0))";
    for (declared, reason) in [
        (changed, "a module changes its tables"),
        (start, "a module with state has a start function"),
        (passive, "a module has passive data"),
        (vector, "a module has a global of type v128"),
        (&many, "it has 1002 globals, of at most 1000"),
    ] {
        let wasm = Forged::new(Kind::ChatTemplate).declare(declared).build();
        let host = PluginHost::new(HostConfig::default()).unwrap();
        let component = host.load(source("guest", &wasm)).unwrap();
        assert_eq!(component.prepared_anew(), Some(reason));
        let template = ChatTemplate::bind(&host, &component, keeping(""))
            .await
            .unwrap();
        assert_eq!(render(&template, "").await.unwrap(), "");
    }
}
