//! Traces: the spans of a request, as OpenTelemetry has them, and their export to a collector (OTLP over HTTP and gRPC).
//!
//! A [`Span`] is current while the future polls that it runs, so that no function has to hand it on. Without a
//! collector spans cost nothing: there is none but the one that a caller's `traceparent` names, which goes on to
//! other servers. Spans name models, tokens, outcomes and errors; never prompts, answers or keys.

mod answer;
mod client;
mod config;
mod encode;
mod export;
mod grpc;
mod headers;
pub mod limits;
mod queue;
mod span;

pub use client::CollectorError;
pub use config::{Encoding, TraceConfig, TraceSampling};
pub use export::Exporter;
pub use queue::SpanCounts;
pub use span::{Array, Span, SpanRole, Value, collected, short, traced};
