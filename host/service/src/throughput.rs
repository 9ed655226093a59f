//! Throughput of each model, measured as requests arrive, to advise rejected requests when to retry.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use mortise_engine::EngineLoad;

/// Bounds of the advice, in seconds.
const RETRY_AFTER: std::ops::RangeInclusive<u32> = 1..=60;

/// Bounds of a measuring window: a shorter one is noise, and in a longer one the engine may have
/// been idle.
const WINDOW: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(30);

/// Throughput of all models, by public name.
#[derive(Debug, Default)]
pub(crate) struct Throughputs(Mutex<BTreeMap<String, Throughput>>);

/// Throughput of one model.
#[derive(Debug)]
struct Throughput {
    /// Start of the window, and the tokens computed until then.
    window: (Instant, u64),
    /// Tokens a second in the last window in which any were computed.
    rate: Option<f64>,
}

impl Throughputs {
    /// Sample a model's counters. Called as requests arrive, so a loaded model is sampled most.
    pub(crate) fn sample(&self, model: &str, load: &EngineLoad, now: Instant) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match all.get_mut(model) {
            Some(throughput) => throughput.sample(computed(load), now),
            None => {
                let window = (now, computed(load));
                all.insert(model.to_owned(), Throughput { window, rate: None });
            }
        }
    }

    /// Seconds until the model's queue will have been served: the waiting prompts, and answers of
    /// the mean length so far.
    pub(crate) fn retry_after(&self, model: &str, load: &EngineLoad) -> u32 {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(rate) = all.get(model).and_then(|throughput| throughput.rate) else {
            return *RETRY_AFTER.start();
        };
        let answer = load.decode_tokens as f64 / load.finished.max(1) as f64;
        let queued = load.waiting_tokens as f64 + load.waiting as f64 * answer;
        let seconds = (queued / rate).ceil();
        (seconds.min(f64::from(*RETRY_AFTER.end())) as u32).max(*RETRY_AFTER.start())
    }
}

impl Throughput {
    fn sample(&mut self, computed: u64, now: Instant) {
        let elapsed = now.saturating_duration_since(self.window.0);
        if elapsed < *WINDOW.start() {
            return;
        }
        let tokens = computed.saturating_sub(self.window.1);
        if tokens > 0 && elapsed <= *WINDOW.end() {
            self.rate = Some(tokens as f64 / elapsed.as_secs_f64());
        }
        self.window = (now, computed);
    }
}

/// Tokens computed so far.
fn computed(load: &EngineLoad) -> u64 {
    load.prefill_tokens + load.decode_tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(computed: u64, waiting: usize, waiting_tokens: usize) -> EngineLoad {
        EngineLoad {
            prefill_tokens: computed / 2,
            decode_tokens: computed - computed / 2,
            // Answers of 50 tokens.
            finished: (computed - computed / 2) / 50,
            waiting,
            waiting_tokens,
            ..EngineLoad::default()
        }
    }

    #[test]
    fn advice_is_the_queue_over_the_throughput_within_bounds() {
        let all = Throughputs::default();
        let begun = Instant::now();
        let after = |seconds| begun + Duration::from_secs(seconds);
        assert_eq!(
            all.retry_after("m", &load(0, 100, 10_000)),
            1,
            "nothing is known"
        );
        all.sample("m", &load(0, 0, 0), begun);
        all.sample("m", &load(1000, 0, 0), begun + Duration::from_millis(10));
        assert_eq!(
            all.retry_after("m", &load(1000, 100, 10_000)),
            1,
            "too short a window"
        );
        all.sample("m", &load(2000, 0, 0), after(2));
        // 1000 tokens a second; 100 prompts with 10 000 tokens, and 100 answers of 50.
        assert_eq!(all.retry_after("m", &load(2000, 100, 10_000)), 15);
        assert_eq!(all.retry_after("m", &load(2000, 100, 10_000_000)), 60);
        assert_eq!(all.retry_after("m", &load(2000, 0, 0)), 1);
        assert_eq!(all.retry_after("other", &load(2000, 100, 10_000)), 1);
        // An idle hour does not count, and a lower rate replaces the last one.
        all.sample("m", &load(2010, 0, 0), after(3600));
        assert_eq!(all.retry_after("m", &load(2000, 100, 10_000)), 15);
        all.sample("m", &load(2510, 0, 0), after(3601));
        assert!(all.retry_after("m", &load(2500, 100, 10_000)) >= 30);
    }
}
