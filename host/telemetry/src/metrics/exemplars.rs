//! Histograms that name, for each bucket, the trace of the last recorded request that fell into it.

use std::time::{Duration, SystemTime};

use mortise_trace::Span;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::exemplar::HistogramWithExemplars;

/// Labels of an exemplar.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct TraceLabel {
    trace_id: String,
}

/// Histogram of times with exemplars: one for each bucket at most.
pub(super) type TracedHistogram = HistogramWithExemplars<TraceLabel>;

pub(super) fn traced_histogram<const N: usize>(bounds: [f64; N]) -> TracedHistogram {
    TracedHistogram::new(bounds.into_iter())
}

/// Count a time of the request that a span is of. Only traces that are recorded can be looked up.
pub(super) fn observe(histogram: &TracedHistogram, time: Duration, span: &Span) {
    let trace_id = if span.is_sampled() {
        span.trace_id()
    } else {
        None
    };
    observe_traced(histogram, time, trace_id);
}

/// Count a time of a request whose trace, if it is recorded, has this id.
pub(super) fn observe_traced(
    histogram: &TracedHistogram,
    time: Duration,
    trace_id: Option<String>,
) {
    let label = trace_id.map(|trace_id| TraceLabel { trace_id });
    let at = label.is_some().then(SystemTime::now);
    histogram.observe(time.as_secs_f64(), label, at);
}

#[cfg(test)]
mod tests {
    use prometheus_client::registry::Registry;

    use super::*;

    #[test]
    fn a_bucket_names_the_last_trace_that_fell_into_it() {
        let histogram = traced_histogram([0.1, 1.0]);
        let mut registry = Registry::default();
        registry.register("time_seconds", "A time", histogram.clone());
        for (milliseconds, trace) in [(50, "aa"), (60, "bb"), (500, ""), (5000, "cc")] {
            let trace = (!trace.is_empty()).then(|| trace.to_owned());
            observe_traced(&histogram, Duration::from_millis(milliseconds), trace);
        }
        observe(&histogram, Duration::from_millis(70), &Span::default());
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &registry).expect("text");
        let of_bucket = |bound: &str| {
            let beginning = format!("time_seconds_bucket{{le=\"{bound}\"}} ");
            let found = page.lines().find_map(|line| line.strip_prefix(&beginning));
            found
                .unwrap_or_else(|| panic!("{bound}\n{page}"))
                .to_owned()
        };
        assert!(of_bucket("0.1").starts_with("3 # {trace_id=\"bb\"} 0.06 "));
        assert_eq!(of_bucket("1.0"), "4");
        assert!(of_bucket("+Inf").starts_with("5 # {trace_id=\"cc\"} 5.0 "));
    }
}
