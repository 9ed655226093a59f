//! Bounds of the wiring.

use std::time::Duration;

/// Time in which a process that takes over must be ready; loading models is most of it.
pub(crate) const HAND_OVER_TIME: Duration = Duration::from_secs(1800);
