//! Spans of attempts at a request, by the conventions for HTTP clients.

use mortise_models::{BaseUrl, RuntimeError, Usage};
use mortise_trace::{Span, SpanRole, Value, collected};

/// Span of an attempt. One that is dropped before it has ended was cancelled.
pub(crate) struct AttemptSpan(pub(crate) Span);

/// Span of one attempt, which begins now.
pub(crate) fn of_attempt(answer: &Span, url: &BaseUrl, resent: u32) -> AttemptSpan {
    if !collected() {
        return AttemptSpan(answer.child("upstream", SpanRole::Client, Vec::new()));
    }
    let (host, port) = address(url);
    let mut attributes = vec![
        ("http.request.method", Value::from("POST")),
        ("server.address", Value::from(host.to_owned())),
        ("server.port", Value::from(i64::from(port))),
    ];
    if resent > 0 {
        let resent = Value::from(i64::from(resent));
        attributes.push(("http.request.resend_count", resent));
    }
    AttemptSpan(answer.child("upstream", SpanRole::Client, attributes))
}

/// Host and port of a server.
fn address(url: &BaseUrl) -> (&str, u16) {
    let origin = url.origin();
    let (host, port) = match origin.strip_prefix("https://") {
        Some(host) => (host, 443),
        None => (origin.strip_prefix("http://").unwrap_or(origin), 80),
    };
    // The colons of an address in brackets separate no port.
    let split = host
        .rsplit_once(':')
        .filter(|(_, port)| !port.ends_with(']'));
    match split {
        Some((name, number)) => (name, number.parse().unwrap_or(port)),
        None => (host, port),
    }
}

/// End of an attempt.
pub(crate) enum AttemptEnd<'a> {
    /// The attempt failed, before the answer began or within it.
    Failed(&'a RuntimeError),
    /// The attempt was answered, with the usage if the upstream reported it.
    Answered(Option<Usage>),
}

impl AttemptSpan {
    /// End the span with the outcome of the attempt.
    pub(crate) fn end(&self, ended: &AttemptEnd<'_>) {
        match ended {
            AttemptEnd::Failed(error) => self.0.fail(kind(error)),
            AttemptEnd::Answered(usage) => {
                if let Some(usage) = usage {
                    let tokens = i64::from(usage.completion_tokens);
                    self.0.set("gen_ai.usage.output_tokens", tokens);
                }
            }
        }
        self.0.end();
    }
}

impl Drop for AttemptSpan {
    fn drop(&mut self) {
        // What has ended takes no attribute.
        if self.0.is_recorded() {
            self.0.set("error.type", "cancelled");
            self.0.end();
        }
    }
}

fn kind(error: &RuntimeError) -> &'static str {
    match error {
        RuntimeError::Invalid(_) => "invalid",
        RuntimeError::ContextLength { .. } => "context_length",
        RuntimeError::Upstream(_) => "upstream",
        RuntimeError::Unavailable { .. } => "unavailable",
        RuntimeError::Failed(_) => "failed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_and_port_stand_in_an_address() {
        for (url, host, port) in [
            ("http://127.0.0.1:8000/v1", "127.0.0.1", 8000),
            ("https://models.example/v1", "models.example", 443),
            ("http://[::1]:81", "[::1]", 81),
            ("http://[::1]/v1", "[::1]", 80),
        ] {
            let url: BaseUrl = url.parse().expect("URL");
            assert_eq!(address(&url), (host, port));
        }
    }
}
