//! Settings of the export.

use std::fmt;
use std::time::Duration;

/// Encoding of OTLP messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Encoding {
    /// `http/protobuf`
    #[default]
    Protobuf,
    /// `http/json`
    Json,
    /// `grpc`: protobuf in calls over HTTP/2
    Grpc,
}

impl Encoding {
    /// Content type of the messages.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Protobuf => "application/x-protobuf",
            Self::Json => "application/json",
            Self::Grpc => "application/grpc",
        }
    }
}

/// Selection of the traces that are recorded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TraceSampling {
    /// Part of all traces, from 0 to 1.
    pub ratio: f64,
    /// A trace that a caller began is recorded if the caller records it, whatever the ratio.
    pub parent_based: bool,
}

/// Collector, and what it is sent.
#[derive(Clone)]
pub struct TraceConfig {
    /// URL that spans are posted to; of gRPC, the address of the collector.
    pub endpoint: String,
    /// Headers of each request, which may be secrets.
    pub headers: Vec<(String, String)>,
    /// Encoding of the messages.
    pub encoding: Encoding,
    /// Authorities of the collector's certificate in PEM, in place of public ones.
    pub authorities: Option<String>,
    /// Time for one request to the collector.
    pub timeout: Duration,
    /// Spans that wait to be sent; further ones are dropped.
    pub queue: usize,
    /// Selection of traces.
    pub sampling: TraceSampling,
    /// Name of the service.
    pub service: String,
}

impl fmt::Debug for TraceConfig {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the headers' values.
        let names: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        formatter
            .debug_struct("TraceConfig")
            .field("endpoint", &self.endpoint)
            .field("headers", &names)
            .field("sampling", &self.sampling)
            .finish_non_exhaustive()
    }
}
