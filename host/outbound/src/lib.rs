//! HTTP requests that plugins make: to the origins that an operator listed, at addresses that are
//! public or listed, within bounds of time and size.
//!
//! A request is checked once, as it was parsed once: the URL that is compared with the list is the one
//! that is asked, and the address that is checked is the one that is connected to. Nothing is followed.

mod address;
mod authorities;
mod client;
mod origin;
mod request;

pub use address::{Network, NetworkError, is_public};
pub use authorities::{AuthoritiesError, HttpAuthorities};
pub use client::{Outbound, Resolve};
pub use origin::{Origin, OriginError};
pub use request::{OutboundRequest, OutboundResponse, RequestError};

use std::time::Duration;

/// Grant of one plugin: requests that it may send to other servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Origins that requests may go to; if the list is empty, no request is allowed.
    pub origins: Vec<Origin>,
    /// Addresses that are allowed although they are not public. An origin whose host is an address
    /// needs none.
    pub networks: Vec<Network>,
    /// Certificate authorities of servers that speak TLS; if none are named, the public ones (Mozilla's list).
    pub authorities: Option<HttpAuthorities>,
    /// Largest content of an answer in bytes.
    pub max_response_bytes: u64,
    /// The whole of one exchange.
    pub timeout: Duration,
    /// Exchanges under way at once; further ones wait.
    pub at_once: usize,
    /// Requests of one call of the plugin.
    pub requests_per_call: u32,
}

impl Default for Grant {
    /// A grant without origins, with bounds that suit requests to another service where origins are added.
    fn default() -> Self {
        Self {
            origins: Vec::new(),
            networks: Vec::new(),
            authorities: None,
            max_response_bytes: 1 << 20,
            timeout: Duration::from_secs(5),
            at_once: 16,
            requests_per_call: 16,
        }
    }
}
