//! Speculative decoding with a draft model: it changes the number of steps and never the tokens, whatever
//! the draft model does.

mod support;

use std::sync::Arc;

use mortise_engine::{
    Engine, EngineConfig, EngineError, EngineHandle, ForwardPass, SamplingParams, SequenceRequest,
    Share, Speculation, TokenStream,
};
use mortise_model::{InputError, Logits, ModelInput};
use support::{FakeModel, VOCABULARY, collect, config, expected, greedy, until_empty};

/// A fake draft model.
struct Draft {
    model: FakeModel,
    vocabulary: usize,
    /// Steps after which it fails.
    steps: usize,
    /// Every so many rows it says something else.
    wrong_every: usize,
    rows: usize,
}

impl Draft {
    fn of(model: FakeModel) -> Self {
        Self {
            model,
            vocabulary: VOCABULARY,
            steps: usize::MAX,
            wrong_every: usize::MAX,
            rows: 0,
        }
    }

    /// One that has room for everything and is always right.
    fn right() -> Self {
        Self::of(FakeModel::new(400, 1000))
    }
}

impl ForwardPass for Draft {
    fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    fn context_length(&self) -> usize {
        self.model.context_length()
    }

    fn cache_blocks(&self) -> usize {
        self.model.cache_blocks()
    }

    fn forward(&mut self, input: &ModelInput) -> Result<Logits, InputError> {
        let tokens = input
            .sequences()
            .flat_map(|sequence| sequence.tokens.to_vec());
        for token in tokens {
            assert!(
                (token as usize) < self.vocabulary,
                "it does not know {token}"
            );
        }
        self.steps = self.steps.checked_sub(1).expect("told to fail");
        let logits = self.model.forward(input)?;
        let mut values = Vec::new();
        for row in logits.rows() {
            self.rows += 1;
            let mut row = row[..self.vocabulary].to_vec();
            if self.rows.is_multiple_of(self.wrong_every) {
                row[self.rows % 40] = 50.0;
            }
            values.extend(row);
        }
        Ok(Logits::new(values, self.vocabulary))
    }
}

fn drafted(draft: Draft, config: EngineConfig) -> EngineHandle {
    let config = EngineConfig {
        speculation: Speculation::DraftModel { draft_tokens: 6 },
        ..config
    };
    let model = Box::new(FakeModel::new(400, 1000));
    Engine::start_drafted_with(model, Box::new(draft), config).unwrap()
}

fn roomy() -> EngineConfig {
    EngineConfig {
        step_token_budget: 100,
        ..config()
    }
}

/// Eight greedy sequences at once come out as they must.
fn check(engine: &EngineHandle) {
    let prompts: Vec<Vec<u32>> = (0..8)
        .map(|n| (0..5 + 9 * n).map(|at| (at * n + 3) % 40).collect())
        .collect();
    let streams: Vec<TokenStream> = prompts
        .iter()
        .map(|prompt| engine.submit(greedy(prompt, 90)).unwrap())
        .collect();
    for (prompt, mut stream) in prompts.iter().zip(streams) {
        assert_eq!(collect(&mut stream).0, expected(prompt, 90));
    }
    until_empty(engine);
}

#[test]
fn a_draft_that_agrees_saves_most_of_the_steps() {
    let engine = drafted(Draft::right(), roomy());
    check(&engine);
    let load = engine.load();
    assert_eq!(load.speculation.name(), "draft-model");
    assert_eq!(load.accepted_tokens, load.drafted_tokens);
    assert!(load.accepted_tokens > 8 * 60, "{load:?}");
    assert!(load.draft_steps > load.steps);
    let (tokens, _) = collect(&mut engine.submit(greedy(&[9, 9], 90)).unwrap());
    assert_eq!(tokens, expected(&[9, 9], 90));
    until_empty(&engine);
    let steps = engine.load().steps - load.steps;
    assert!(steps < 20, "90 tokens took {steps} steps");
}

#[test]
fn a_draft_that_is_often_wrong_changes_nothing() {
    for wrong_every in [1, 2, 7] {
        let draft = Draft {
            wrong_every,
            ..Draft::right()
        };
        let engine = drafted(draft, roomy());
        check(&engine);
        let load = engine.load();
        assert!(load.accepted_tokens < load.drafted_tokens);
        // What is wrong on purpose may be right by chance.
        let often = load.accepted_tokens * 10 > load.drafted_tokens;
        assert_eq!(often, wrong_every > 1, "{load:?}");
    }
}

#[test]
fn sampling_draws_the_same_numbers_with_speculation_and_without() {
    let request = |seed: u64| SequenceRequest {
        sampling: SamplingParams {
            seed: Some(seed),
            top_p: 0.9,
            frequency_penalty: 0.5,
            repetition_penalty: 1.1,
            ..SamplingParams::default()
        },
        ..greedy(&[4, 5, 6], 60)
    };
    let plain = support::engine(400, 1000, roomy());
    let engine = drafted(Draft::right(), roomy());
    for seed in 0..20 {
        let alone = collect(&mut plain.submit(request(seed)).unwrap()).0;
        assert_eq!(collect(&mut engine.submit(request(seed)).unwrap()).0, alone);
    }
    until_empty(&engine);
    let load = engine.load();
    // The draft model samples with the sequence's own random numbers.
    assert_eq!(load.accepted_tokens, load.drafted_tokens);
    assert!(load.accepted_tokens > 20 * 40);
}

#[test]
fn a_draft_model_that_fails_is_turned_off_without_an_error() {
    for steps in [0, 1, 9] {
        let draft = Draft {
            steps,
            ..Draft::right()
        };
        let engine = drafted(draft, roomy());
        check(&engine);
        check(&engine);
        assert_eq!(engine.load().draft_steps, steps as u64);
    }
}

#[test]
fn a_draft_model_with_a_small_cache_drafts_when_it_can() {
    // A cache for one or two of eight, a context that ends before theirs, few tokens.
    for (blocks, context, vocabulary) in [
        (9, 1000, VOCABULARY),
        (400, 50, VOCABULARY),
        (400, 1000, 33),
    ] {
        let draft = Draft {
            vocabulary,
            ..Draft::of(FakeModel::new(blocks, context))
        };
        let engine = drafted(draft, roomy());
        check(&engine);
        assert!(engine.load().accepted_tokens > 0);
    }
}

#[test]
fn a_crowded_engine_with_a_draft_stays_exact() {
    let config = EngineConfig {
        kv_cache_tokens: None,
        ..config()
    };
    let draft = Draft {
        wrong_every: 5,
        ..Draft::of(FakeModel::new(30, 1000))
    };
    let config = EngineConfig {
        speculation: Speculation::DraftModel { draft_tokens: 4 },
        ..config
    };
    // Too few blocks for all: some are preempted while they have drafts.
    let model = Box::new(FakeModel::new(20, 1000));
    let engine = Engine::start_drafted_with(model, Box::new(draft), config).unwrap();
    check(&engine);
    let load = engine.load();
    assert!(load.preemptions > 0 && load.accepted_tokens > 0, "{load:?}");
}

#[test]
fn the_draft_finds_prompts_in_its_own_cache_and_keeps_tenants_apart() {
    let engine = drafted(Draft::right(), config());
    let prompt: Vec<u32> = (0..300).map(|n| n * n % 37).collect();
    let drafted = |tenant: &str| {
        let before = engine.load().accepted_tokens;
        let name: Arc<str> = tenant.into();
        let request = SequenceRequest {
            salt: Some(Arc::clone(&name)),
            share: Share {
                tenant: name,
                ..Share::default()
            },
            ..greedy(&prompt, 40)
        };
        let (tokens, _) = collect(&mut engine.submit(request).unwrap());
        assert_eq!(tokens, expected(&prompt, 40));
        until_empty(&engine);
        engine.load().accepted_tokens - before
    };
    // Its prefill takes twenty tokens at a time, and it drafts nothing before its end.
    let cold = drafted("a");
    assert_eq!(drafted("b"), cold, "another tenant's drafts come no sooner");
    assert!(drafted("a") > cold + 8);
}

#[test]
fn a_draft_is_given_if_and_only_if_it_is_asked_for() {
    let model = || Box::new(FakeModel::new(10, 100));
    let asked = EngineConfig {
        speculation: Speculation::DraftModel { draft_tokens: 4 },
        ..config()
    };
    let none = Engine::start_with(model(), asked).unwrap_err();
    let unasked = Engine::start_drafted_with(model(), model(), config()).unwrap_err();
    for error in [none, unasked] {
        assert!(matches!(
            error,
            EngineError::Config {
                field: "speculation",
                ..
            }
        ));
    }
}
