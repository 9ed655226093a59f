//! Times of requests, and their quantiles.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;

/// Times from a microsecond to an hour, within one percent.
#[derive(Debug)]
pub(super) struct Times(Option<Mutex<Histogram<u32>>>);

impl Default for Times {
    fn default() -> Self {
        // There is one for every right choice of bounds, as these are.
        let histogram = Histogram::new_with_bounds(1, 3_600_000_000, 2);
        Self(histogram.ok().map(Mutex::new))
    }
}

impl Times {
    fn histogram(&self) -> Option<MutexGuard<'_, Histogram<u32>>> {
        let histogram = self.0.as_ref()?;
        Some(histogram.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn record(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        if let Some(mut histogram) = self.histogram() {
            histogram.saturating_record(micros.max(1));
        }
    }

    /// The time in milliseconds that this part of all times does not exceed; 0 where there is none.
    pub(super) fn quantile_ms(&self, part: f64) -> f64 {
        let micros = self
            .histogram()
            .map_or(0, |histogram| histogram.value_at_quantile(part));
        micros as f64 / 1000.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_sorted_times_within_a_percent() {
        let times = Times::default();
        assert_eq!(times.quantile_ms(0.99), 0.0);
        // As the numbers come from one place to the next of a prime's powers: in no order, each once.
        for number in (1..=997u64).map(|step| step * 331 % 997 + 1) {
            times.record(Duration::from_micros(number * 250));
        }
        for (part, exact) in [(0.5, 499.0), (0.99, 988.0)] {
            let found = times.quantile_ms(part) / 0.25;
            assert!((found / exact - 1.0).abs() < 0.01, "{part}: {found}");
        }
        times.record(Duration::MAX);
        assert!(times.quantile_ms(1.0) >= 3_600_000.0 * 0.99);
    }
}
