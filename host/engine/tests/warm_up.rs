//! The warm-up before an engine takes requests: it computes, is counted nowhere, and changes no answer.

#[path = "support/device_model.rs"]
#[allow(dead_code, reason = "other tests count its other calls")]
mod device_model;
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use device_model::{DeviceCalls, FakeDeviceModel};
use mortise_engine::{Engine, EngineConfig, EngineError, EngineLoad, ForwardPass};
use mortise_model::{InputError, Logits, ModelInput};
use support::{FakeModel, VOCABULARY, collect, config, expected, greedy};

fn warmed() -> EngineConfig {
    EngineConfig {
        warm_up: true,
        ..config()
    }
}

/// A model that counts its passes, and fails from one of them on.
struct Counted {
    model: FakeModel,
    passes: Arc<AtomicUsize>,
    good: usize,
}

impl ForwardPass for Counted {
    fn vocabulary(&self) -> usize {
        VOCABULARY
    }

    fn context_length(&self) -> usize {
        self.model.context_length()
    }

    fn cache_blocks(&self) -> usize {
        self.model.cache_blocks()
    }

    fn forward(&mut self, input: &ModelInput) -> Result<Logits, InputError> {
        if self.passes.fetch_add(1, Ordering::Relaxed) >= self.good {
            return Err(InputError::Cache);
        }
        self.model.forward(input)
    }
}

fn counted(blocks: usize, context: usize, good: usize) -> (Box<Counted>, Arc<AtomicUsize>) {
    let passes = Arc::default();
    let model = Counted {
        model: FakeModel::new(blocks, context),
        passes: Arc::clone(&passes),
        good,
    };
    (Box::new(model), passes)
}

#[test]
fn feature_c15_a_model_has_computed_before_its_engine_is_there() {
    let (model, passes) = counted(20, 200, usize::MAX);
    let engine = Engine::start_with(model, warmed()).unwrap();
    // A prompt, and batches of 1, 2, 4 and 8.
    assert_eq!(passes.load(Ordering::Relaxed), 5);
    assert!(engine.warm_up_time().is_some());
    let load = engine.load();
    let untouched = EngineLoad {
        max_running: load.max_running,
        kv_blocks_total: load.kv_blocks_total,
        step_time: load.step_time,
        ..EngineLoad::default()
    };
    assert_eq!(load, untouched, "nothing is counted");
    let prompt: Vec<u32> = (0..70).map(|at| at * 3 % 40).collect();
    for _ in 0..2 {
        let (tokens, end) = collect(&mut engine.submit(greedy(&prompt, 20)).unwrap());
        assert_eq!(tokens, expected(&prompt, 20));
        assert!(end.is_ok());
    }
    let (model, passes) = counted(20, 200, usize::MAX);
    let cold = Engine::start_with(model, config()).unwrap();
    assert_eq!(passes.load(Ordering::Relaxed), 0);
    assert_eq!(cold.warm_up_time(), None);
}

#[test]
fn feature_c15_the_smallest_models_are_warmed_up_too() {
    for (blocks, context, passes_expected) in [(1, 1, 0), (1, 2, 2), (1, 200, 0), (2, 200, 3)] {
        let (model, passes) = counted(blocks, context, usize::MAX);
        let engine = Engine::start_with(model, warmed()).unwrap();
        assert_eq!(
            passes.load(Ordering::Relaxed),
            passes_expected,
            "{blocks} blocks"
        );
        drop(engine);
    }
}

#[test]
fn feature_c15_a_model_that_cannot_compute_is_not_started() {
    for good in [0, 3] {
        let (model, _) = counted(20, 200, good);
        let refused = Engine::start_with(model, warmed()).unwrap_err();
        assert!(matches!(refused, EngineError::WarmUp(_)), "{refused}");
    }
}

#[test]
fn feature_c15_a_device_computes_each_shape_until_it_repeats() {
    let model = FakeDeviceModel::new(FakeModel::new(20, 200));
    let asked = model.asked();
    let engine = Engine::start_with(Box::new(model), warmed()).unwrap();
    assert_eq!(DeviceCalls::get(&asked.batches), 1 + 3 * 4);
    let (tokens, _) = collect(&mut engine.submit(greedy(&[1, 2, 3], 20)).unwrap());
    assert_eq!(tokens, expected(&[1, 2, 3], 20));
}
