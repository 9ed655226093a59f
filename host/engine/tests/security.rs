//! Side channels between tenants, and floods: the engine's cases of the project's threat list, named by their
//! ids (H: isolation of tenants, L: overload). Latency is shown by the tokens that are computed, which a
//! busy machine does not change.

mod support;

use std::sync::Arc;

use mortise_engine::{
    Engine, EngineConfig, EngineHandle, SequenceEnd, SequenceRequest, Share, SubmitError,
};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use support::{FakeModel, collect, config, engine, expected, greedy, next, until_empty};

/// A request of a tenant, who shares nothing with others.
fn of(tenant: usize, prompt: &[u32], max_tokens: u32) -> SequenceRequest {
    let name: Arc<str> = tenant.to_string().into();
    SequenceRequest {
        salt: Some(Arc::clone(&name)),
        share: Share {
            tenant: name,
            ..Share::default()
        },
        ..greedy(prompt, max_tokens)
    }
}

/// Prompt tokens and steps that a request cost, and the tokens that it was told were cached.
fn cost(engine: &EngineHandle, request: SequenceRequest) -> (u64, u64, u32) {
    let before = engine.load();
    let (_, end) = collect(&mut engine.submit(request).unwrap());
    until_empty(engine);
    let after = engine.load();
    (
        after.prefill_tokens - before.prefill_tokens,
        after.steps - before.steps,
        end.unwrap().1.cached_tokens,
    )
}

#[test]
fn h1_h2_guessing_what_another_tenant_asked_shows_nothing() {
    let engine = engine(4000, 800, config());
    let secret: Vec<u32> = (0..400).map(|n| n * n % 37).collect();
    let (cold, ..) = cost(&engine, of(0, &secret, 1));
    assert_eq!(cold, 400);
    for guess in 0..50 {
        let mut right = secret.clone();
        right.push(guess % 40);
        let mut wrong = right.clone();
        wrong[0] = (wrong[0] + 1 + guess) % 40;
        // Each guess comes from somebody who has asked nothing before.
        let right = cost(&engine, of(1 + 2 * guess as usize, &right, 1));
        let wrong = cost(&engine, of(2 + 2 * guess as usize, &wrong, 1));
        assert_eq!(right, wrong);
        assert_eq!(right.2, 0);
    }
    let own = cost(&engine, of(0, &secret, 1));
    assert_eq!((own.0, own.2), (16, 384), "the tenant's own is found");
}

#[test]
fn h3_prompts_that_almost_agree_share_only_what_agrees() {
    let engine = engine(60, 300, config());
    let mut random = Pcg64::seed_from_u64(3);
    let base: Vec<u32> = (0..120).map(|_| random.random_range(0..2)).collect();
    for _ in 0..300 {
        let mut prompt = base.clone();
        prompt.truncate(random.random_range(1..=120));
        let place = random.random_range(0..prompt.len());
        prompt[place] ^= 1;
        // The fake model's answer depends on every token that the cache holds for the sequence.
        let (tokens, end) = collect(&mut engine.submit(greedy(&prompt, 5)).unwrap());
        assert_eq!(tokens, expected(&prompt, 5));
        assert!((end.unwrap().1.cached_tokens as usize) < prompt.len());
    }
    assert!(engine.load().prefix_hit_tokens > 0);
}

#[test]
fn h7_sixty_four_tenants_at_once_get_what_each_would_get_alone() {
    let config = EngineConfig {
        max_sequences: 64,
        step_token_budget: 100,
        ..config()
    };
    // Too little room for all of them: some are interrupted.
    let engine = engine(120, 300, config);
    let canary = |tenant: usize| [tenant as u32 % 40, tenant as u32 / 40, 5, 6, 7];
    let streams: Vec<_> = (0..64)
        .map(|tenant| engine.submit(of(tenant, &canary(tenant), 60)).unwrap())
        .collect();
    for (tenant, mut stream) in streams.into_iter().enumerate() {
        assert_eq!(collect(&mut stream).0, expected(&canary(tenant), 60));
    }
    until_empty(&engine);
    assert!(engine.load().preemptions > 0);
}

#[test]
fn l1_l5_what_is_too_much_is_refused_and_what_is_accepted_is_answered() {
    let config = EngineConfig {
        max_queue: 20,
        ..config()
    };
    let engine = engine(40, 200, config);
    let mut accepted = Vec::new();
    let mut refused = 0;
    // Faster than anything could be answered.
    for n in 0..1000u32 {
        let prompt = [n % 40, n / 40, 1];
        match engine.submit(greedy(&prompt, 20)) {
            Ok(stream) => accepted.push((prompt, stream)),
            Err(error) => {
                assert_eq!(error, SubmitError::QueueFull { limit: 20 });
                refused += 1;
            }
        }
    }
    assert!(refused > 0 && accepted.len() >= 20);
    for (prompt, mut stream) in accepted {
        let (tokens, end) = collect(&mut stream);
        assert_eq!(tokens, expected(&prompt, 20));
        assert_eq!(end.unwrap().0, SequenceEnd::Length);
    }
    // Afterwards nothing is left of it: the next one costs what it would have cost before.
    until_empty(&engine);
    let load = engine.load();
    assert_eq!(
        (load.waiting, load.waiting_tokens, load.preempted),
        (0, 0, 0)
    );
    assert_eq!(cost(&engine, greedy(&[39, 39, 39], 20)), (3, 20, 0));
}

#[test]
fn l2_a_flood_does_not_drown_those_who_behave() {
    let engine = engine(200, 300, config());
    // All places and a long queue are one tenant's.
    let flood: Vec<_> = (0..60)
        .map(|n| engine.submit(of(0, &[n % 40, n / 40, 1], 250)).unwrap())
        .collect();
    let readers: Vec<_> = flood
        .into_iter()
        .map(|mut stream| std::thread::spawn(move || collect(&mut stream)))
        .collect();
    for tenant in 1..10 {
        let begun = engine.load();
        let prompt = [tenant as u32, 2, 3];
        let (tokens, _) = collect(&mut engine.submit(of(tenant, &prompt, 30)).unwrap());
        assert_eq!(tokens, expected(&prompt, 30));
        // Its own thirty steps, those until it gets a place, and those until its end is read.
        let others = engine.load().decode_tokens - begun.decode_tokens;
        assert!(
            others < 60 * 250 / 4,
            "{others} tokens of others came first"
        );
    }
    for reader in readers {
        assert_eq!(
            reader.join().unwrap().0.len(),
            250,
            "and the flood is served too"
        );
    }
}

#[test]
fn l3_prompts_as_long_as_the_context_are_served_one_after_the_other() {
    let engine = engine(20, 1000, config());
    assert_eq!(engine.context_length(), 320);
    let prompt = |n: u32| -> Vec<u32> { (0..310).map(|at| (at * n) % 40).collect() };
    let streams: Vec<_> = (0..12)
        .map(|n| engine.submit(greedy(&prompt(n), 100)).unwrap())
        .collect();
    let too_long = engine.submit(greedy(&[1; 320], 1)).unwrap_err();
    assert!(matches!(too_long, SubmitError::ContextLength { .. }));
    for (n, mut stream) in (0..12).zip(streams) {
        let (tokens, end) = collect(&mut stream);
        assert_eq!(tokens, expected(&prompt(n), 10));
        assert_eq!(end.unwrap().0, SequenceEnd::Length);
    }
    until_empty(&engine);
}

#[test]
fn readers_who_stop_reading_do_not_keep_places_or_blocks() {
    let config = EngineConfig {
        max_sequences: 2,
        ..config()
    };
    let model = FakeModel::new(30, 400);
    let engine = Engine::start_with(Box::new(model), config).unwrap();
    let mut idle: Vec<_> = (0..2)
        .map(|n| engine.submit(greedy(&[n; 20], 200)).unwrap())
        .collect();
    for stream in &mut idle {
        next(stream);
    }
    let (tokens, _) = collect(&mut engine.submit(greedy(&[9; 300], 20)).unwrap());
    assert_eq!(tokens, expected(&[9; 300], 20));
    // And lose nothing by it.
    for (n, mut stream) in (0..2).zip(idle) {
        assert_eq!(collect(&mut stream).0, expected(&[n; 20], 200)[1..]);
    }
    until_empty(&engine);
}
