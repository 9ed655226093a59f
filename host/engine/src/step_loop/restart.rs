//! A new beginning of the loop after a panic of its own.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::StepLoop;
use crate::decision::RowDecision;
use crate::event::SequenceError;

impl StepLoop {
    /// End all sequences with an error and forget what was planned. The panic may have left the state of any
    /// of it half changed, and the contents of the cache unknown. Requests that the loop had not received
    /// yet are served.
    pub(super) fn begin_anew(&mut self, cause: &str) {
        let counters = &self.shared.counters;
        counters.restarts.fetch_add(1, Ordering::Relaxed);
        self.shared.circuit.failed(Instant::now());
        tracing::error!(
            cause,
            sequences = self.sequences.len() + self.beams.len(),
            "the engine's loop panicked; its sequences end and it begins anew"
        );
        let error = SequenceError::Inference("the engine's loop panicked".to_owned());
        for mut sequence in std::mem::take(&mut self.sequences).into_values() {
            let error = error.clone();
            // A sequence in a state that this finds impossible is dropped, which closes its stream.
            let _ = catch_unwind(AssertUnwindSafe(move || {
                sequence.commit(RowDecision::Fail(error), 0);
                sequence.flush();
            }));
        }
        for mut group in std::mem::take(&mut self.beams) {
            let _ = catch_unwind(AssertUnwindSafe(|| {
                group.fail(&error, &mut self.scheduler);
                group.deliver(&mut self.scheduler);
            }));
        }
        self.scheduler = self.scheduler.anew();
        self.speculator.begin_anew();
        self.in_flight.clear();
        self.blocked_since = None;
        if let Some(device) = self.model.device() {
            // Tokens of steps that were in flight belong to nobody any more.
            while device.sampled().is_ok_and(|tokens| !tokens.is_empty()) {}
        }
    }
}
