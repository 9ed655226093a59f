//! How many tokens of prompts a step computes while somebody decodes: as many as take about so long, or
//! about as long as some steps without prompts if that is less, since everybody who decodes waits for them
//! (chunked prefill, Agrawal et al., "Sarathi-Serve", OSDI 2024).

use std::time::Duration;

/// Fewest tokens of prompts in a step. The weights are read for them anyway, which takes about as long
/// as it takes to compute them.
const LEAST: usize = 32;
/// Chunks are multiples of so many tokens, the rows that kernels like to take together.
const STEP: usize = 16;
/// Share of the newest measurement in the pace.
const NEWEST: f64 = 0.3;
/// A step with prompts takes as long as so many without, at most: streams of a small model, whose steps
/// take a millisecond, would come to a halt for a hundred of them.
const DECODE_STEPS: f64 = 8.0;
/// Tokens of prompts that this leaves in any case. Fewer would have prompts wait longer than others gain;
/// and where prompts keep coming, the last step without any may have had fewer streams.
const BATCH: usize = 256;

/// The pace of steps, and what follows from it.
#[derive(Debug)]
pub(crate) struct PrefillChunk {
    /// Seconds that a step with prompts should take; `None` sets no bound.
    target: Option<f64>,
    /// Seconds for each token of such a step, once one was measured.
    pace: Option<f64>,
    /// Seconds of a step without prompts, once one was measured.
    decode: Option<f64>,
}

impl PrefillChunk {
    pub(crate) fn new(target: Option<Duration>) -> Self {
        Self {
            target: target.map(|target| target.as_secs_f64()),
            pace: None,
            decode: None,
        }
    }

    /// Most tokens of prompts in a step in which somebody decodes.
    pub(crate) fn tokens(&self) -> usize {
        match (self.target, self.pace) {
            (Some(target), Some(pace)) if pace > 0.0 => {
                let decode = self.decode.unwrap_or(f64::INFINITY);
                let beside_streams = ((DECODE_STEPS * decode / pace) as usize).max(BATCH);
                let tokens = ((target / pace) as usize).min(beside_streams);
                (tokens - tokens % STEP).max(LEAST)
            }
            _ => usize::MAX,
        }
    }

    /// A step with prompts computed so many tokens in this time. Those of a few tokens say nothing about
    /// prompts.
    pub(crate) fn measured(&mut self, tokens: usize, took: Duration) {
        if tokens >= LEAST {
            follow(&mut self.pace, took.as_secs_f64() / tokens as f64);
        }
    }

    /// A step without prompts took so long.
    pub(crate) fn decoded(&mut self, took: Duration) {
        follow(&mut self.decode, took.as_secs_f64());
    }
}

/// Let a mean follow the newest measurement.
fn follow(mean: &mut Option<f64>, newest: f64) {
    *mean = Some(match *mean {
        Some(mean) => mean + NEWEST * (newest - mean),
        None => newest,
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(target_ms: u64) -> PrefillChunk {
        PrefillChunk::new(Some(Duration::from_millis(target_ms)))
    }

    #[test]
    fn what_was_not_measured_is_not_bounded() {
        let mut chunk = chunk(100);
        assert_eq!(chunk.tokens(), usize::MAX);
        chunk.measured(LEAST - 1, Duration::from_secs(9));
        assert_eq!(chunk.tokens(), usize::MAX);
        let mut free = PrefillChunk::new(None);
        free.measured(100, Duration::from_secs(9));
        assert_eq!(free.tokens(), usize::MAX);
    }

    #[test]
    fn a_step_takes_about_the_target() {
        let mut chunk = chunk(100);
        chunk.measured(512, Duration::from_millis(512));
        assert_eq!(chunk.tokens(), 96, "100 tokens at a millisecond each");
        for _ in 0..50 {
            chunk.measured(64, Duration::from_micros(64 * 500));
        }
        assert_eq!(chunk.tokens(), 192, "it follows the pace");
    }

    /// Steps whose time has a part that does not depend on their tokens come to rest near the target.
    #[test]
    fn it_settles_where_each_step_has_a_price_of_its_own() {
        let mut chunk = chunk(150);
        let step = |tokens: usize| Duration::from_micros(25_000 + 2_000 * tokens as u64);
        chunk.measured(512, step(512));
        for _ in 0..50 {
            chunk.measured(chunk.tokens(), step(chunk.tokens()));
        }
        let took = step(chunk.tokens()).as_millis();
        assert!((110..=150).contains(&took), "{took} ms");
    }

    #[test]
    fn a_step_takes_no_longer_than_some_without_prompts() {
        let mut chunk = chunk(100);
        chunk.measured(512, Duration::from_millis(51));
        assert_eq!(chunk.tokens(), 992);
        chunk.decoded(Duration::from_millis(5));
        assert_eq!(chunk.tokens(), 400, "forty milliseconds");
        for _ in 0..50 {
            chunk.decoded(Duration::from_millis(1));
        }
        assert_eq!(chunk.tokens(), BATCH);
        for _ in 0..50 {
            chunk.decoded(Duration::from_millis(25));
        }
        assert_eq!(chunk.tokens(), 992, "the bound in time is less again");
    }

    #[test]
    fn slow_machines_get_on_and_fast_ones_overflow_nothing() {
        let mut chunk = chunk(1);
        chunk.measured(40, Duration::from_secs(3600));
        assert_eq!(chunk.tokens(), LEAST);
        let mut chunk = self::chunk(u64::MAX);
        chunk.measured(40, Duration::from_nanos(1));
        assert!(chunk.tokens() > 1 << 20);
        let mut chunk = self::chunk(10);
        chunk.measured(40, Duration::ZERO);
        assert_eq!(chunk.tokens(), usize::MAX);
    }
}
