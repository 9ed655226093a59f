//! Figures of all requests that asked a model for something, for those who watch the server.

use std::ops::AddAssign;
use std::time::Duration;

/// Requests that have ended, and their tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestSums {
    /// Requests that named a known model.
    pub requests: u64,
    /// Prompt tokens of the requests.
    pub prompt_tokens: u64,
    /// Tokens generated.
    pub completion_tokens: u64,
}

impl AddAssign for RequestSums {
    fn add_assign(&mut self, other: Self) {
        self.requests += other.requests;
        self.prompt_tokens += other.prompt_tokens;
        self.completion_tokens += other.completion_tokens;
    }
}

/// Figures since the start of the server, but for what is of late.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RequestFigures {
    /// Time since the start.
    pub uptime: Duration,
    /// Requests that named a model and have ended.
    pub requests: u64,
    /// Requests that ended with a status from 400 on, or whose answer broke off.
    pub failed: u64,
    /// Requests that named a known model and have ended.
    pub known: u64,
    /// Answers for whose prompt a cached prefix was found.
    pub prefix_hits: u64,
    /// Answers for whose prompt no cached prefix was found.
    pub prefix_misses: u64,
    /// Prompt tokens found in the prefix cache.
    pub prefix_tokens: u64,
    /// Requests that ended in a second, on average over the last minute.
    pub requests_per_second: f64,
    /// Throughput: tokens generated in a second, on average over the last minute.
    pub tokens_per_second: f64,
    /// Times from arrival to end of the last requests that were answered; `None` if there were none.
    pub latency: Option<RequestLatency>,
}

/// Times from arrival to end, over the last requests that were answered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestLatency {
    /// Median: half of the requests took no longer.
    pub p50: Duration,
    /// 95th percentile: 95 in 100 requests took no longer.
    pub p95: Duration,
    /// 99th percentile: 99 in 100 requests took no longer.
    pub p99: Duration,
    /// Mean latency of the requests.
    pub mean: Duration,
}
