//! Settings of a Valkey server.

use std::fmt;
use std::time::Duration;

use crate::address::ServerAddress;
use crate::authorities::ValkeyAuthorities;

/// Settings of a Valkey server.
#[derive(Clone)]
pub struct ValkeyConfig {
    /// Server.
    pub address: ServerAddress,
    /// User, where the server has others than the default one.
    pub username: Option<String>,
    /// Password.
    pub password: Option<String>,
    /// Beginning of all keys; servers with the same one share their counters.
    pub prefix: String,
    /// Time that one call may take.
    pub timeout: Duration,
    /// Time after which the answers of a host that died no longer count.
    pub lease: Duration,
    /// Behaviour without the server.
    pub when_lost: WhenLost,
    /// Authorities that are trusted of its TLS.
    pub authorities: ValkeyAuthorities,
}

impl fmt::Debug for ValkeyConfig {
    /// Without the password.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ValkeyConfig")
            .field("address", &self.address)
            .field("prefix", &self.prefix)
            .field("timeout", &self.timeout)
            .field("lease", &self.lease)
            .field("when_lost", &self.when_lost)
            .finish_non_exhaustive()
    }
}

/// Behaviour without the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenLost {
    /// Requests with a limit are refused.
    Refuse,
    /// Each host enforces the limits by itself.
    Local,
}
