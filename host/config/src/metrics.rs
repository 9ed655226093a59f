//! The `[metrics]` table: where the numbers are shown, and under which names.

use mortise_telemetry::ContentLogConfig;
use serde::Deserialize;

use super::{ConfigError, invalid};

/// Listener that shows the numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Listener {
    /// The main listener.
    #[default]
    Main,
    /// The admin side.
    Admin,
    /// Both listeners.
    Both,
}

/// The `[metrics]` table as it is written.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawMetrics {
    listener: Listener,
    vllm_names: bool,
    gen_ai_names: bool,
}

/// Numbers and lines about requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MetricsConfig {
    /// The main listener shows the numbers.
    pub on_main: bool,
    /// The admin side shows the numbers.
    pub on_admin: bool,
    /// The numbers are shown under the names that vLLM has for them, too.
    pub aliases: bool,
    /// The numbers are shown under the names of OpenTelemetry's conventions, too.
    pub gen_ai: bool,
    /// The access log has a line when a request begins.
    pub log_begins: bool,
    /// Requests whose texts are logged; `None`: no text is.
    pub content: Option<ContentLogConfig>,
}

impl RawMetrics {
    /// Settings of the numbers, with those of the lines; `has_admin` says whether there is an admin side.
    pub(crate) fn check(
        self,
        (log_begins, content): (bool, Option<ContentLogConfig>),
        has_admin: bool,
    ) -> Result<MetricsConfig, ConfigError> {
        if self.listener != Listener::Main && !has_admin {
            let message = "there is no admin side to show them; give it a port with `admin.port`";
            return Err(invalid("metrics.listener", message));
        }
        Ok(MetricsConfig {
            on_main: self.listener != Listener::Admin,
            on_admin: self.listener != Listener::Main,
            aliases: self.vllm_names,
            gen_ai: self.gen_ai_names,
            log_begins,
            content,
        })
    }
}
