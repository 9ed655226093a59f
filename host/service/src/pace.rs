//! How fast models work, to tell those who are turned away when to come back.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use mortise_engine::EngineLoad;

/// Seconds that are advised at least and at most.
const ADVICE: std::ops::RangeInclusive<u32> = 1..=60;

/// What is measured over less than this is noise; over more than that, an engine may have idled.
const WINDOW: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(30);

/// The paces of all models, by their public names.
#[derive(Debug, Default)]
pub(crate) struct Paces(Mutex<BTreeMap<String, Pace>>);

/// The pace of one model.
#[derive(Debug)]
struct Pace {
    /// When the window began, and the tokens that had been computed by then.
    begun: (Instant, u64),
    /// Tokens a second in the last window in which there were any.
    rate: Option<f64>,
}

impl Paces {
    /// Learn what a model's engine has done so far. Called as requests come, it measures most when
    /// it matters most.
    pub(crate) fn note(&self, model: &str, load: &EngineLoad, now: Instant) {
        let mut paces = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match paces.get_mut(model) {
            Some(pace) => pace.note(computed(load), now),
            None => {
                let begun = (now, computed(load));
                paces.insert(model.to_owned(), Pace { begun, rate: None });
            }
        }
    }

    /// Seconds until what waits for a model now will have been computed: the prompts, and answers as
    /// long as those that were given so far.
    pub(crate) fn retry_after(&self, model: &str, load: &EngineLoad) -> u32 {
        let paces = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(rate) = paces.get(model).and_then(|pace| pace.rate) else {
            return *ADVICE.start();
        };
        let answer = load.decode_tokens as f64 / load.finished.max(1) as f64;
        let waits = load.waiting_tokens as f64 + load.waiting as f64 * answer;
        let seconds = (waits / rate).ceil();
        (seconds.min(f64::from(*ADVICE.end())) as u32).max(*ADVICE.start())
    }
}

impl Pace {
    fn note(&mut self, computed: u64, now: Instant) {
        let elapsed = now.saturating_duration_since(self.begun.0);
        if elapsed < *WINDOW.start() {
            return;
        }
        let tokens = computed.saturating_sub(self.begun.1);
        if tokens > 0 && elapsed <= *WINDOW.end() {
            self.rate = Some(tokens as f64 / elapsed.as_secs_f64());
        }
        self.begun = (now, computed);
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
    fn advice_is_the_queue_over_the_pace_within_bounds() {
        let paces = Paces::default();
        let begun = Instant::now();
        let after = |seconds| begun + Duration::from_secs(seconds);
        assert_eq!(
            paces.retry_after("m", &load(0, 100, 10_000)),
            1,
            "nothing is known"
        );
        paces.note("m", &load(0, 0, 0), begun);
        paces.note("m", &load(1000, 0, 0), begun + Duration::from_millis(10));
        assert_eq!(
            paces.retry_after("m", &load(1000, 100, 10_000)),
            1,
            "too short a time"
        );
        paces.note("m", &load(2000, 0, 0), after(2));
        // 1000 tokens a second; 100 prompts with 10 000 tokens, and 100 answers of 50.
        assert_eq!(paces.retry_after("m", &load(2000, 100, 10_000)), 15);
        assert_eq!(paces.retry_after("m", &load(2000, 100, 10_000_000)), 60);
        assert_eq!(paces.retry_after("m", &load(2000, 0, 0)), 1);
        assert_eq!(paces.retry_after("other", &load(2000, 100, 10_000)), 1);
        // A pause is no pace, and a slower one is learnt.
        paces.note("m", &load(2010, 0, 0), after(3600));
        assert_eq!(paces.retry_after("m", &load(2000, 100, 10_000)), 15);
        paces.note("m", &load(2510, 0, 0), after(3601));
        assert!(paces.retry_after("m", &load(2500, 100, 10_000)) >= 30);
    }
}
