//! W3C trace context in headers: `traceparent` and `tracestate`.

use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::Context;
use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator as _};
use opentelemetry_sdk::propagation::TraceContextPropagator;

use crate::limits::MAX_TRACE_STATE_BYTES;

const TRACE_STATE: &str = "tracestate";

struct Incoming<'a>(&'a HeaderMap);

impl Extractor for Incoming<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        let mut values = self.0.get_all(key).iter();
        let value = values.next()?.to_str().ok()?;
        // A second parent, or a state in parts or without end, is as good as none.
        let usable = values.next().is_none() && value.len() <= MAX_TRACE_STATE_BYTES;
        usable.then_some(value)
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(HeaderName::as_str).collect()
    }
}

struct Outgoing<'a>(&'a mut HeaderMap);

impl Injector for Outgoing<'_> {
    fn set(&mut self, key: &str, value: String) {
        if key == TRACE_STATE && value.is_empty() {
            return;
        }
        let name = HeaderName::try_from(key);
        if let (Ok(name), Ok(value)) = (name, HeaderValue::try_from(value)) {
            self.0.insert(name, value);
        }
    }
}

/// The context that a request names, or one without a span.
pub(crate) fn context_of(headers: &HeaderMap) -> Context {
    TraceContextPropagator::new().extract_with_context(&Context::new(), &Incoming(headers))
}

/// Name the context in the headers of a request.
pub(crate) fn name(context: &Context, headers: &mut HeaderMap) {
    TraceContextPropagator::new().inject_context(context, &mut Outgoing(headers));
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::TraceContextExt as _;
    use proptest::prelude::*;

    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn headers(all: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in all {
            headers.append(*name, HeaderValue::from_str(value).expect("value"));
        }
        headers
    }

    fn again(incoming: &HeaderMap) -> HeaderMap {
        let mut outgoing = HeaderMap::new();
        name(&context_of(incoming), &mut outgoing);
        outgoing
    }

    #[test]
    fn a_context_goes_out_as_it_came_in() {
        let whole = headers(&[("traceparent", PARENT), ("tracestate", "a=1,b=2")]);
        assert_eq!(again(&whole), whole);
        let parent = headers(&[("traceparent", PARENT)]);
        assert_eq!(again(&parent), parent);
        let long = format!("a={}", "x".repeat(MAX_TRACE_STATE_BYTES));
        let long = headers(&[("traceparent", PARENT), ("tracestate", &long)]);
        assert_eq!(again(&long), parent);
    }

    #[test]
    fn a_context_that_is_none_is_left_out() {
        for wrong in [
            "",
            "00",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        ] {
            let context = context_of(&headers(&[("traceparent", wrong)]));
            assert!(!context.span().span_context().is_valid(), "{wrong}");
        }
        let two = headers(&[("traceparent", PARENT), ("traceparent", PARENT)]);
        assert!(again(&two).is_empty());
    }

    proptest! {
        #[test]
        fn any_header_is_read(parent in "[ -~]{0,80}", state in "[ -~]{0,80}") {
            let all = headers(&[("traceparent", &parent), ("tracestate", &state)]);
            let once = again(&all);
            prop_assert_eq!(again(&once), once.clone());
        }
    }
}
