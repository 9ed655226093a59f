//! The size of prefill chunks while sequences decode (chunked prefill, Agrawal et al., "Sarathi-Serve",
//! OSDI 2024): as many prompt tokens as take about a target time, or about as long as some steps without
//! prefill if that is less, since every decoding sequence waits for them.

use std::time::Duration;

/// Fewest prompt tokens in a step. Reading the weights, which happens anyway, takes about as long as
/// computing them.
const LEAST: usize = 32;
/// Granularity of chunks, the rows that kernels compute together.
const STEP: usize = 16;
/// Weight of the newest measurement in the moving averages.
const NEWEST: f64 = 0.3;
/// Most time of a step with prefill, in steps without: streams of a small model, whose steps take a
/// millisecond, would stall for a hundred of them.
const DECODE_STEPS: f64 = 8.0;
/// Prompt tokens that the bound in steps allows in any case. Fewer would delay prompts more than streams
/// gain; and while prompts keep coming, the last step without any may have had fewer streams.
const BATCH: usize = 256;

/// Most seconds of a step with prefill while tenants contend: a request that comes in the middle of one waits
/// for its end.
const CONTENDED: f64 = 0.005;

/// Moving averages of step times, and the chunk size that follows.
#[derive(Debug)]
pub(crate) struct PrefillChunk {
    /// Target seconds of a step with prefill; `None` sets no bound.
    target: Option<f64>,
    /// Seconds per token of such a step, once one was measured.
    token_time: Option<f64>,
    /// Seconds of a step without prefill, once one was measured.
    decode: Option<f64>,
}

impl PrefillChunk {
    pub(crate) fn new(target: Option<Duration>) -> Self {
        Self {
            target: target.map(|target| target.as_secs_f64()),
            token_time: None,
            decode: None,
        }
    }

    /// Most prompt tokens in a step in which a sequence decodes.
    pub(crate) fn tokens(&self) -> usize {
        match (self.target, self.token_time) {
            (Some(target), Some(token_time)) if token_time > 0.0 => {
                let decode = self.decode.unwrap_or(f64::INFINITY);
                let beside_streams = ((DECODE_STEPS * decode / token_time) as usize).max(BATCH);
                let tokens = ((target / token_time) as usize).min(beside_streams);
                (tokens - tokens % STEP).max(LEAST)
            }
            _ => usize::MAX,
        }
    }

    /// Most prompt tokens in a step while tenants contend, whether sequences decode or not.
    pub(crate) fn contended_tokens(&self) -> usize {
        match (self.target, self.token_time) {
            (Some(target), Some(token_time)) if token_time > 0.0 => {
                let tokens = (target.min(CONTENDED) / token_time) as usize;
                (tokens - tokens % STEP).max(LEAST)
            }
            _ => usize::MAX,
        }
    }

    /// Record a step with prefill. Steps of a few tokens say nothing about prefill.
    pub(crate) fn measured(&mut self, tokens: usize, took: Duration) {
        if tokens >= LEAST {
            follow(&mut self.token_time, took.as_secs_f64() / tokens as f64);
        }
    }

    /// Record a step without prefill.
    pub(crate) fn decoded(&mut self, took: Duration) {
        follow(&mut self.decode, took.as_secs_f64());
    }
}

/// Update a moving average.
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
        assert_eq!(chunk.tokens(), 192, "it follows the token_time");
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
    fn chunks_are_shorter_while_tenants_contend() {
        let mut chunk = chunk(100);
        assert_eq!(chunk.contended_tokens(), usize::MAX, "not measured yet");
        chunk.measured(512, Duration::from_micros(25_600));
        assert_eq!(chunk.contended_tokens(), 96, "five milliseconds");
        chunk.measured(512, Duration::from_secs(100));
        assert_eq!(chunk.contended_tokens(), LEAST);
        let mut short = self::chunk(4);
        short.measured(512, Duration::from_micros(25_600));
        assert_eq!(short.contended_tokens(), 80, "the target is less");
        assert_eq!(PrefillChunk::new(None).contended_tokens(), usize::MAX);
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
