//! The `[lifecycle]` table and the keys of a model that belong to it: when models are loaded and unloaded.

use std::time::Duration;

use mortise_models::ModelLifecycle;
use mortise_models::lifecycle::{LifecycleConfig, RoomLimits};
use serde::Deserialize;
use time::Date;
use time::macros::format_description;

use super::raw::RawModel;
use super::{ConfigError, invalid, within};

/// Most engines of one model.
const REPLICAS_MAX: usize = 64;
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
    strict: bool,
}

impl Default for RawLifecycle {
    fn default() -> Self {
        Self {
            load_on_demand: false,
            max_loaded_models: 0,
            memory_budget_mib: 0,
            idle_timeout_seconds: 0,
            idle_check_seconds: 30,
            strict: false,
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
        };
        Ok((config, self.strict))
    }
}

/// The life cycle of the model at `index`.
pub(crate) fn check_model(index: usize, raw: &RawModel) -> Result<ModelLifecycle, ConfigError> {
    let key = |name: &str| format!("models[{index}].{name}");
    let replicas = raw.replicas.unwrap_or(1);
    let most = raw.replica_max.unwrap_or(replicas.max(1));
    within(&key("replica_max"), most, REPLICAS_MAX)?;
    within(&key("replicas"), replicas, most)?;
    if let Some(date) = &raw.deprecation_date {
        let day = format_description!("[year]-[month]-[day]");
        if Date::parse(date, day).is_err() {
            let problem = format!("it must be a day such as 2027-01-31; it is `{date}`");
            return Err(invalid(&key("deprecation_date"), problem));
        }
    }
    let idle = raw.idle_timeout_seconds;
    let idle = idle.map(|value| seconds(&key("idle_timeout_seconds"), value));
    Ok(ModelLifecycle {
        enabled: raw.enabled.unwrap_or(true),
        load_on_demand: raw.load_on_demand,
        pinned: raw.pinned,
        idle_timeout: idle.transpose()?,
        replicas,
        replica_max: most,
        hidden: raw.hidden,
        owned_by: raw.owned_by.clone(),
        deprecation_date: raw.deprecation_date.clone(),
    })
}

/// A time in seconds; zero is none.
fn seconds(key: &str, value: u64) -> Result<Option<Duration>, ConfigError> {
    match value {
        0 => Ok(None),
        value if value <= SECONDS_MAX => Ok(Some(Duration::from_secs(value))),
        value => Err(invalid(
            key,
            format!("it must be at most {SECONDS_MAX}; it is {value}"),
        )),
    }
}
