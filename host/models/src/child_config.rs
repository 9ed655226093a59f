//! Configuration of a model that a child process answers for.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::upstream_config::UpstreamConfig;

/// Process that serves a model, and how it is started, watched and ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildConfig {
    /// Program and arguments, in which `{model}`, `{port}`, `{host}` and `{name}` are replaced.
    pub command: Vec<String>,
    /// Working directory; the server's own if there is none.
    pub directory: Option<PathBuf>,
    /// Environment variables beside the server's own.
    pub variables: BTreeMap<String, String>,
    /// Path that answers with 200 once the process serves.
    pub health_path: String,
    /// Path below which its API lies.
    pub base_path: String,
    /// Time from its start until it must serve.
    pub ready_timeout: Duration,
    /// Time from SIGTERM to SIGKILL.
    pub stop_timeout: Duration,
    /// First port that is tried; the first free one is taken.
    pub base_port: u16,
    /// Name of the processes that may run beside it; `None`: it runs alone.
    pub group: Option<String>,
    /// Restarts after a crash.
    pub restart: RestartPolicy,
    /// API. The addresses are known once it has a port.
    pub upstream: UpstreamConfig,
}

/// Restarts of a process that has crashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestartPolicy {
    /// Restarts in a row; 0: an operator, or nobody, loads it again.
    pub attempts: u32,
    /// Pause before the first of them; it doubles.
    pub pause: Duration,
}

impl RestartPolicy {
    /// Longest pause between two restarts.
    pub const LONGEST_PAUSE: Duration = Duration::from_secs(60);
    /// Crashes count as in a row until a process has run for so long.
    pub const STEADY: Duration = Duration::from_secs(300);

    /// Pause before another restart after so many in a row; `None`: there is none.
    pub fn pause_after(&self, restarts: u32) -> Option<Duration> {
        let pause = self.pause.saturating_mul(2_u32.saturating_pow(restarts));
        (restarts < self.attempts).then(|| pause.min(Self::LONGEST_PAUSE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound_and_attempts_end() {
        let policy = RestartPolicy {
            attempts: 9,
            pause: Duration::from_millis(500),
        };
        let pauses: Vec<_> = (0..10).map(|count| policy.pause_after(count)).collect();
        assert_eq!(pauses[0], Some(Duration::from_millis(500)));
        assert_eq!(pauses[1], Some(Duration::from_secs(1)));
        assert_eq!(pauses[8], Some(RestartPolicy::LONGEST_PAUSE));
        assert_eq!(pauses[9], None);
        let never = RestartPolicy {
            attempts: 0,
            ..policy
        };
        assert_eq!(never.pause_after(0), None);
    }
}
