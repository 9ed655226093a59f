//! The life cycle of models: unloaded, loading, loaded, unloading, failed.

mod error;
mod events;
mod lease;
mod manager;
mod memory;
mod overrides;
mod progress;
mod state;

pub use error::LifecycleError;
pub use events::{EVENT_BACKLOG, ModelEvent};
pub use lease::ModelLease;
pub use manager::{
    KnownModel, LifecycleConfig, LoadModel, MemorySource, ModelManager, ModelStatus, PublishModels,
    Published,
};
pub use overrides::{KvTypeName, LoadOverrides, Override};
pub use progress::{LoadProgress, LoadStage, Progress};
pub use state::{ModelState, RoomLimits};
