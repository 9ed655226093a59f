//! The `[lifecycle]` table: when models are loaded and unloaded.

use std::time::Duration;

use mortise_models::lifecycle::{LifecycleConfig, LoadTime, RoomLimits};
use serde::Deserialize;

use super::{ConfigError, invalid};

/// Longest time of a setting in seconds: ten years.
const SECONDS_MAX: u64 = 10 * 366 * 24 * 3600;

/// The table as it is written.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawLifecycle {
    load_on_demand: bool,
    max_loaded_models: usize,
    memory_budget_mib: u64,
    idle_timeout_seconds: u64,
    idle_check_seconds: u64,
    keep_alive: bool,
    swap_notices: bool,
    load_stall_seconds: u64,
    load_timeout_seconds: u64,
    strict: bool,
    pub(crate) startup_model: Option<String>,
}

impl Default for RawLifecycle {
    fn default() -> Self {
        Self {
            load_on_demand: false,
            max_loaded_models: 0,
            memory_budget_mib: 0,
            idle_timeout_seconds: 0,
            idle_check_seconds: 30,
            keep_alive: false,
            swap_notices: false,
            load_stall_seconds: 300,
            load_timeout_seconds: 0,
            strict: false,
            startup_model: None,
        }
    }
}

impl RawLifecycle {
    /// Settings of the manager, and whether a model that cannot be loaded ends the start.
    pub(crate) fn check(&self) -> Result<(LifecycleConfig, bool), ConfigError> {
        let check = seconds("lifecycle.idle_check_seconds", self.idle_check_seconds)?;
        let Some(idle_check) = check else {
            return Err(invalid(
                "lifecycle.idle_check_seconds",
                "it must be at least 1; it is 0",
            ));
        };
        let idle = seconds("lifecycle.idle_timeout_seconds", self.idle_timeout_seconds)?;
        let config = LifecycleConfig {
            room: RoomLimits {
                models: self.max_loaded_models,
                bytes: self.memory_budget_mib.saturating_mul(1 << 20),
            },
            load_on_demand: self.load_on_demand,
            idle_timeout: idle,
            idle_check,
            keep_alive: self.keep_alive,
            swap_notices: self.swap_notices,
            load_time: LoadTime {
                stall: seconds("lifecycle.load_stall_seconds", self.load_stall_seconds)?,
                whole: seconds("lifecycle.load_timeout_seconds", self.load_timeout_seconds)?,
            },
        };
        Ok((config, self.strict))
    }
}

/// A time in seconds; zero is none.
pub(super) fn seconds(key: &str, value: u64) -> Result<Option<Duration>, ConfigError> {
    match value {
        0 => Ok(None),
        value if value <= SECONDS_MAX => Ok(Some(Duration::from_secs(value))),
        value => Err(invalid(
            key,
            format!("it must be at most {SECONDS_MAX}; it is {value}"),
        )),
    }
}
