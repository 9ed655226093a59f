//! The `[limits]` table: bounds of requests.

use mortise_service::ToolLimits;
use serde::Deserialize;

use super::{ConfigError, milliseconds, positive, within};

/// Lines of batches at once that may be configured.
const BATCH_LINES_MAX: usize = 1024;

/// The table as it is written.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawLimits {
    pub(crate) default_max_tokens: u32,
    pub(crate) max_context: usize,
    pub(crate) max_queue: usize,
    pub(crate) max_queued_tokens: usize,
    pub(crate) reserve_queue: Option<bool>,
    pub(crate) max_queue_per_tenant: usize,
    pub(crate) max_batch_per_tenant: usize,
    pub(crate) idle_tenant_seconds: u64,
    pub(crate) breaker_failures: u32,
    pub(crate) max_expected_wait_ms: u64,
    pub(crate) max_queue_wait_ms: u64,
    pub(crate) max_body_bytes_in_flight: usize,
    pub(crate) max_batch: usize,
    pub(crate) n_max: u32,
    pub(crate) batch_lines: usize,
    pub(crate) tool_rounds: u32,
    pub(crate) tool_calls: u32,
    pub(crate) tool_calls_at_once: usize,
    pub(crate) tool_time_ms: u64,
}

impl Default for RawLimits {
    fn default() -> Self {
        Self {
            default_max_tokens: 2048,
            max_context: 4096,
            max_queue: 256,
            max_queued_tokens: 262_144,
            reserve_queue: None,
            max_queue_per_tenant: 0,
            max_batch_per_tenant: 0,
            idle_tenant_seconds: 600,
            breaker_failures: 5,
            max_expected_wait_ms: 0,
            max_queue_wait_ms: 0,
            max_body_bytes_in_flight: 128 * 1024 * 1024,
            max_batch: 32,
            n_max: 16,
            batch_lines: 8,
            tool_rounds: 5,
            tool_calls: 32,
            tool_calls_at_once: 8,
            tool_time_ms: 30_000,
        }
    }
}

/// Bounds of requests.
#[derive(Debug, Clone, Copy)]
pub struct LimitConfig {
    /// Tokens to generate where nobody says.
    pub default_max_tokens: u32,
    /// Tokens of prompt and answer together.
    pub max_context: usize,
    /// Choices of a request.
    pub n_max: u32,
    /// Lines of batches that are answered at once.
    pub batch_lines: usize,
    /// Runs of server tools for a request.
    pub tools: ToolLimits,
}

pub(super) fn check_limits(
    limits: &RawLimits,
    max_context: Option<usize>,
) -> Result<LimitConfig, ConfigError> {
    let max_tokens = positive(
        "limits.default_max_tokens",
        limits.default_max_tokens as usize,
    )?;
    let n_max = positive("limits.n_max", limits.n_max as usize)?;
    let context = max_context.unwrap_or(limits.max_context);
    Ok(LimitConfig {
        default_max_tokens: u32::try_from(max_tokens).unwrap_or(u32::MAX),
        max_context: positive("limits.max_context", context)?,
        n_max: u32::try_from(n_max).unwrap_or(u32::MAX),
        batch_lines: within("limits.batch_lines", limits.batch_lines, BATCH_LINES_MAX)?,
        tools: ToolLimits {
            rounds: limits.tool_rounds,
            calls: limits.tool_calls,
            parallel: positive("limits.tool_calls_at_once", limits.tool_calls_at_once)?,
            time: milliseconds("limits.tool_time_ms", limits.tool_time_ms)?,
        },
    })
}
