//! The masks of the grammar component, as it ships, are those of the engine in it run natively, bit for
//! bit: at every position of every text, over several vocabularies.

mod corpus;

use std::sync::Arc;
use std::time::Duration;

use corpus::{Named, Walk, byte_level, demo, large, walks};
use mortise_grammar::engine::{Engine, masks_for};
use mortise_plugin::{Binding, CallContext, Deadlines, Grammar, Kind, Limits, PluginHost};

/// The grammar plugin of the server, bound to a vocabulary; with instances that begin with the memory of a prepared
/// one, if wanted. Nothing is measured here, so a machine that is busy must not end a call.
async fn component(named: &Named, keeps_prepared: bool) -> Grammar {
    let host = PluginHost::new(mortise_plugin::HostConfig::default()).expect("a host");
    let mut plugins = mortise_bundle::plugins().into_iter();
    let component = plugins
        .by_ref()
        .map(|source| host.load(source).expect("a default plugin"))
        .find(|component| component.kinds() == [Kind::Grammar])
        .expect("the grammar plugin");
    let limits = Limits {
        deadlines: Deadlines {
            prepare_ms: 120_000,
            compile_ms: 30_000,
            mask_ms: 30_000,
            ..Deadlines::default()
        },
        // New ones come all the time.
        recycle_after_uses: 2,
        keep_prepared_from_us: if keeps_prepared { 0 } else { u64::MAX },
        ..Limits::for_kind(Kind::Grammar)
    };
    let binding = Binding {
        vocabulary: Some(Arc::new(named.vocabulary.clone())),
        limits,
        ..Binding::default()
    };
    let bound = Grammar::bind(&host, &component, binding).await;
    let kept = || host.stats().iter().any(|stats| stats.image_bytes > 0);
    let until_kept = tokio::time::timeout(Duration::from_secs(120), async {
        while keeps_prepared && !kept() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    until_kept.await.expect("the prepared memory is kept");
    bound.expect("the grammar plugin takes the vocabulary")
}

async fn compare(grammar: &Grammar, engine: &mut Engine, named: &Named, walk: &Walk) -> usize {
    let place = format!("{} over {}", walk.name, named.name);
    let tokens = named.tokens_of(walk.text);
    let native = masks_for(engine, &walk.source, &tokens);
    let native = native.unwrap_or_else(|error| panic!("{place}: {error}"));
    assert_eq!(native.len(), tokens.len() + 1, "{place}");
    // Once more with what the lexer has learnt from the text.
    assert_eq!(
        masks_for(engine, &walk.source, &tokens).as_ref(),
        Ok(&native)
    );
    let context = CallContext::new("masks");
    for _ in 0..2 {
        let compiled = grammar.compile(&context, &walk.to_host()).await;
        let mut matcher = compiled.expect(&place);
        let mut row = vec![0; named.vocabulary.mask_words()];
        matcher.mask(&mut row).await.expect(&place);
        assert_eq!(row, native[0], "{place}, at the start");
        for (position, (token, expected)) in tokens.iter().zip(&native[1..]).enumerate() {
            matcher.advance(&[*token], &mut row).await.expect(&place);
            assert_eq!(&row, expected, "{place}, after token {position}");
        }
        drop(matcher);
        // Its instance, which has the lexer, comes back when the guest has dropped it.
        tokio::task::yield_now().await;
    }
    native.len()
}

#[tokio::test]
async fn the_component_and_the_engine_allow_the_same_tokens() {
    let mut positions = 0;
    let vocabularies = [(byte_level(), false), (demo(), true), (large(20_000), true)];
    for (named, keeps_prepared) in vocabularies {
        let grammar = component(&named, keeps_prepared).await;
        let mut engine = Engine::new(&named.to_native()).expect("an engine");
        for walk in walks() {
            positions += compare(&grammar, &mut engine, &named, &walk).await;
        }
    }
    assert!(positions > 900, "{positions} positions are no corpus");
}
