//! The life cycle of models: unloaded, loading, loaded, unloading, failed.

mod clock;
mod contract;
mod error;
mod events;
mod lease;
mod load_time;
mod manager;
mod memory;
mod output_log;
mod overrides;
mod progress;
mod state;

pub use contract::{
    KnownModel, LifecycleConfig, LoadModel, MemorySource, ModelStatus, PublishModels, Published,
};
pub use error::LifecycleError;
pub use events::ModelEvent;
pub use lease::ModelLease;
pub use load_time::LoadTime;
pub use manager::{AdapterRefusal, ModelManager, Redefinition, RedefinitionConflict};
pub use output_log::{OutputLine, OutputLog};
pub use overrides::{KvTypeName, LoadOverrides, LoraOverride, Override};
pub use progress::{LoadProgress, LoadStage, LoadStatus};
pub use state::{ModelState, RoomLimits};
