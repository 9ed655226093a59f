//! Bounds of the front door, of `[server]` and `[limits]`.

use std::time::Duration;

use mortise_http::HeaderLimits;

use super::limits::RawLimits;
use super::listener::RawServer;
use super::{ConfigError, invalid, milliseconds, positive};

/// Bounds of the front door.
#[derive(Debug)]
pub struct HttpConfig {
    /// Names by which the server may be called.
    pub allowed_hosts: Vec<String>,
    /// Origins whose pages may read answers.
    pub cors_origins: Vec<String>,
    /// Longest body.
    pub max_body_bytes: usize,
    /// Memory for all bodies.
    pub max_body_bytes_in_flight: usize,
    /// Headers of a request.
    pub headers: HeaderLimits,
    /// Connections at once.
    pub max_connections: usize,
    /// Connections of one address at once; 0 leaves an eighth of `max_connections` to other addresses.
    pub max_connections_per_address: usize,
    /// Time in which headers must arrive.
    pub header_timeout: Duration,
    /// Time in which a body must arrive.
    pub body_timeout: Duration,
    /// Time for which a write may stall.
    pub write_timeout: Duration,
    /// Pause after which a silent stream sends a comment.
    pub heartbeat: Duration,
    /// Time after which a WebSocket takes no further request.
    pub websocket_time: Duration,
    /// Time in which an answer must begin; `None`: requests wait for as long as their callers do.
    pub max_queue_wait: Option<Duration>,
    /// Time for work to end by itself when the server stops.
    pub drain: Duration,
    /// A page to try models is at `/`.
    pub playground: bool,
    /// True if a WebSocket at `/debug/websocket-echo` echoes frames.
    pub websocket_echo: bool,
}

/// The checked bounds.
pub(super) fn check_http(
    server: &RawServer,
    limits: &RawLimits,
) -> Result<HttpConfig, ConfigError> {
    // hyper needs this much to read any request at all.
    const LEAST_HEADER_BYTES: usize = 8192;
    if server.max_header_bytes < LEAST_HEADER_BYTES {
        return Err(invalid(
            "server.max_header_bytes",
            format!(
                "it must be at least {LEAST_HEADER_BYTES}; it is {}",
                server.max_header_bytes
            ),
        ));
    }
    Ok(HttpConfig {
        allowed_hosts: server.allowed_hosts.clone(),
        cors_origins: server.cors_origins.clone(),
        max_body_bytes: server.max_body_bytes,
        // Two of the largest bodies always have room, whichever limit was raised.
        max_body_bytes_in_flight: limits
            .max_body_bytes_in_flight
            .max(server.max_body_bytes.saturating_mul(2)),
        headers: HeaderLimits {
            count: positive("server.max_headers", server.max_headers)?,
            bytes: positive("server.max_header_bytes", server.max_header_bytes)?,
        },
        max_connections: server.max_connections,
        max_connections_per_address: server.max_connections_per_address,
        header_timeout: milliseconds("server.header_timeout_ms", server.header_timeout_ms)?,
        body_timeout: milliseconds("server.body_timeout_ms", server.body_timeout_ms)?,
        write_timeout: milliseconds("server.write_timeout_ms", server.write_timeout_ms)?,
        heartbeat: milliseconds("server.heartbeat_ms", server.heartbeat_ms)?,
        websocket_time: milliseconds(
            "server.max_websocket_seconds",
            server.max_websocket_seconds.saturating_mul(1000),
        )?,
        max_queue_wait: match limits.max_queue_wait_ms {
            0 => None,
            wait => Some(milliseconds("limits.max_queue_wait_ms", wait)?),
        },
        drain: Duration::from_secs(server.drain_seconds.min(24 * 3600)),
        playground: server.playground,
        websocket_echo: server.websocket_echo,
    })
}
