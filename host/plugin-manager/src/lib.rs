//! Plugins of a server: files (`library`), assignments to models and requests (`assignments`), bound
//! handles (`bound`), their replacement while the server runs (`live`), and files that operators send (`change`).

mod assignments;
mod bound;
mod change;
mod config;
mod declared;
mod error;
mod folder;
mod granted_secrets;
mod keys;
mod library;
mod live;
mod managed_model;
mod model;
mod pattern;
mod plugin_set;
mod precedence;
mod progress;
mod schema;
mod scope;
mod shelf;
mod signature;

pub use bound::OpenCounters;
pub use change::{ChangeError, FileChange, Incoming};
pub use config::{
    AuthConfig, BindingConfig, OnFailure, PluginBounds, PluginConfig, TemplateSource,
    VerdictTiming, at_line, deserialize_kind, nearest_line,
};
pub use declared::DeclaredModels;
pub use folder::Rejected;
pub use library::Prove;
pub use live::{LivePlugins, ReadConfig, Reload, ReloadObserver, SwapCounters};
pub use managed_model::ManagedModel;
pub use model::{ModelFacts, ModelKey};
pub use mortise_plugin::{Kind, QuotaCaller, QuotaUse};
pub use mortise_service::PolicyQuotas;
pub use plugin_set::{LoadedPlugins, PluginSet};
pub use signature::check_signature;
