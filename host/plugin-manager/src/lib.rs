//! The plugins of a server: which files there are (`library`), who serves where (`places`), the
//! bound handles (`seats`), and how all of it is replaced while the server runs (`live`).

mod config;
mod declared;
mod library;
mod live;
mod loaded;
mod model;
mod pattern;
mod places;
mod precedence;
mod schema;
mod scope;
mod seats;
mod signature;
mod unfit;

pub use config::{
    AuthConfig, BindingConfig, OnFailure, PluginBounds, PluginConfig, at_line, deserialize_kind,
    nearest_line,
};
pub use declared::Declared;
pub use library::{Prove, Rejected};
pub use live::{LivePlugins, ReadConfig, Reload, SwapCounters};
pub use loaded::{BoundPlugins, LoadedPlugins};
pub use model::{ModelFacts, ModelKey};
