//! Replicas: several engines of the same weights behind one model.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use anyhow::Context as _;
use mortise_engine::{
    BeamRequest, EngineLoad, SequenceRequest, SubmitError, TenantLoad, TokenStream, sum_tenants,
};

use crate::token_runtime::{AdapterBase, TokenRuntime};

/// Identical runtimes. Each sequence goes to the one with the fewest; ties take turns.
pub(crate) struct Replicas {
    runtimes: Vec<Arc<dyn TokenRuntime>>,
    next: AtomicUsize,
}

impl Replicas {
    /// One runtime of all of these; `runtimes` must not be empty.
    pub(crate) fn of(mut runtimes: Vec<Arc<dyn TokenRuntime>>) -> Arc<dyn TokenRuntime> {
        match (runtimes.len(), runtimes.pop()) {
            (1, Some(only)) => only,
            (_, last) => {
                runtimes.extend(last);
                Arc::new(Self {
                    runtimes,
                    next: AtomicUsize::new(0),
                })
            }
        }
    }

    /// Start the replicas behind the first one, and join all to one runtime. If one cannot be started, those
    /// that were end.
    ///
    /// # Errors
    /// When `start` fails; the error says which replica it was.
    pub(crate) fn start(
        first: Arc<dyn TokenRuntime>,
        count: usize,
        start: impl Fn() -> anyhow::Result<Arc<dyn TokenRuntime>>,
    ) -> anyhow::Result<Arc<dyn TokenRuntime>> {
        let mut runtimes = vec![first];
        while runtimes.len() < count {
            let number = runtimes.len() + 1;
            let runtime = start();
            runtimes.push(runtime.with_context(|| format!("replica {number} of {count} failed"))?);
        }
        Ok(Self::of(runtimes))
    }

    /// The runtime for the next sequence.
    fn pick(&self) -> Result<&Arc<dyn TokenRuntime>, SubmitError> {
        let count = self.runtimes.len().max(1);
        let turn = self.next.fetch_add(1, Relaxed);
        let in_turn = (0..count).map(|offset| turn.wrapping_add(offset) % count);
        let runtimes = in_turn.filter_map(|index| self.runtimes.get(index));
        // One that takes no requests is left out as long as another does.
        let rank = |runtime: &&Arc<dyn TokenRuntime>| {
            let load = runtime.load();
            let in_flight = load.running + load.waiting + load.preempted;
            (load.circuit, in_flight)
        };
        runtimes.min_by_key(rank).ok_or(SubmitError::Stopped)
    }
}

impl TokenRuntime for Replicas {
    fn submit(&self, request: SequenceRequest) -> Result<TokenStream, SubmitError> {
        self.pick()?.submit(request)
    }

    fn submit_beams(&self, request: BeamRequest) -> Result<Vec<TokenStream>, SubmitError> {
        self.pick()?.submit_beams(request)
    }

    fn context_length(&self) -> usize {
        let lengths = self.runtimes.iter();
        lengths
            .map(|runtime| runtime.context_length())
            .min()
            .unwrap_or(0)
    }

    fn load(&self) -> EngineLoad {
        let loads = self.runtimes.iter().map(|runtime| runtime.load());
        loads.fold(EngineLoad::default(), EngineLoad::plus)
    }

    fn loads(&self) -> Vec<EngineLoad> {
        self.runtimes.iter().map(|runtime| runtime.load()).collect()
    }

    fn tenants(&self) -> Vec<TenantLoad> {
        sum_tenants(self.runtimes.iter().flat_map(|runtime| runtime.tenants()))
    }

    fn clear_prefixes(&self) -> usize {
        let cleared = self.runtimes.iter().map(|runtime| runtime.clear_prefixes());
        cleared.sum()
    }

    fn adapter_base(&self) -> AdapterBase {
        match self.runtimes.first() {
            Some(runtime) => runtime.adapter_base(),
            None => Err("it has no engine"),
        }
    }

    fn replicas(&self) -> usize {
        self.runtimes.len()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use mortise_engine::{SamplingParams, Share};

    use super::*;

    /// A runtime with so many sequences under way, which counts what it is given.
    struct Busy {
        running: AtomicUsize,
        refused: Mutex<usize>,
    }

    impl TokenRuntime for Busy {
        fn submit(&self, _: SequenceRequest) -> Result<TokenStream, SubmitError> {
            self.running.fetch_add(1, Relaxed);
            *self.refused.lock().expect("a count") += 1;
            Err(SubmitError::Stopped)
        }

        fn context_length(&self) -> usize {
            8
        }

        fn load(&self) -> EngineLoad {
            EngineLoad {
                running: self.running.load(Relaxed),
                max_running: 4,
                ..EngineLoad::default()
            }
        }
    }

    fn request() -> SequenceRequest {
        SequenceRequest {
            prompt: vec![1],
            max_tokens: 1,
            stop_tokens: Vec::new(),
            sampling: SamplingParams::default(),
            logprobs: None,
            prompt_logprobs: None,
            priority: 0,
            share: Share::default(),
            salt: None,
            adapter: None,
            constraint: None,
        }
    }

    fn given(runtimes: &[Arc<Busy>]) -> Vec<usize> {
        let counts = runtimes.iter();
        counts
            .map(|runtime| *runtime.refused.lock().expect("a count"))
            .collect()
    }

    #[test]
    fn feature_l2_replicas_end_if_a_later_one_cannot_be_started() {
        let started: Mutex<Vec<std::sync::Weak<Busy>>> = Mutex::default();
        let start = || {
            let mut started = started.lock().expect("the runtimes");
            anyhow::ensure!(started.len() < 3, "no memory");
            let runtime = Arc::new(Busy {
                running: AtomicUsize::new(0),
                refused: Mutex::new(0),
            });
            started.push(Arc::downgrade(&runtime));
            Ok(runtime as Arc<dyn TokenRuntime>)
        };
        let alive = || {
            let started = started.lock().expect("the runtimes");
            let alive = started.iter().filter(|runtime| runtime.strong_count() > 0);
            alive.count()
        };
        let Err(error) = Replicas::start(start().expect("the first"), 4, start) else {
            panic!("the fourth was started");
        };
        assert_eq!(format!("{error:#}"), "replica 4 of 4 failed: no memory");
        assert_eq!(alive(), 0);
        started.lock().expect("the runtimes").clear();
        let three = Replicas::start(start().expect("the first"), 3, start);
        assert_eq!(three.expect("three").replicas(), 3);
        assert_eq!(alive(), 0, "nobody holds them any more");
    }

    #[test]
    fn feature_q2_the_replica_with_the_fewest_is_asked_and_equals_take_turns() {
        let busy = |running| {
            Arc::new(Busy {
                running: AtomicUsize::new(running),
                refused: Mutex::new(0),
            })
        };
        let runtimes = [busy(3), busy(0), busy(1)];
        let all = runtimes.iter();
        let all = all.map(|runtime| Arc::<Busy>::clone(runtime) as Arc<dyn TokenRuntime>);
        let replicas = Replicas::of(all.collect());
        assert_eq!(replicas.replicas(), 3);
        assert_eq!(replicas.load().max_running, 12);
        for _ in 0..5 {
            let _ = replicas.submit(request());
        }
        assert_eq!(given(&runtimes), [0, 3, 2], "the busiest was left alone");
        let loads: Vec<usize> = replicas.loads().iter().map(|load| load.running).collect();
        assert_eq!(loads, [3, 3, 3]);
        // Equals take turns: three more requests go to three engines.
        for _ in 0..3 {
            let _ = replicas.submit(request());
        }
        let loads: Vec<usize> = replicas.loads().iter().map(|load| load.running).collect();
        assert_eq!(loads, [4, 4, 4]);
    }
}
