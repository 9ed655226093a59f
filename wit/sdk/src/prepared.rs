//! The plugin that an instance is, from `prepare` to the end of the instance.

use std::any::Any;
use std::cell::OnceCell;

use serde::de::DeserializeOwned;

use crate::Fault;
use crate::bindings::imports::mortise::plugin::settings;

thread_local! {
    // A component has one thread and, by `export!`, one plugin.
    static PLUGIN: OnceCell<&'static dyn Any> = const { OnceCell::new() };
}

/// The operator's settings.
///
/// # Errors
/// When they are not what the plugin reads; the operator is told which key is wrong.
pub(crate) fn settings<S: DeserializeOwned>() -> Result<S, Fault> {
    serde_json::from_str(&settings::get())
        .map_err(|error| Fault::Invalid(format!("settings: {error}")))
}

/// Keep what `prepare` made.
pub(crate) fn keep<P: 'static>(plugin: P) -> Result<(), Fault> {
    // An instance lives as long as its memory: nothing is ever taken back.
    let plugin: &'static dyn Any = Box::leak(Box::new(plugin));
    PLUGIN.with(|cell| {
        cell.set(plugin)
            .map_err(|_| Fault::Internal("`prepare` was called twice".to_owned()))
    })
}

/// Plugin that `prepare` made.
pub(crate) fn plugin<P: 'static>() -> Result<&'static P, Fault> {
    PLUGIN
        .with(|cell| cell.get().and_then(|plugin| plugin.downcast_ref()))
        .ok_or_else(|| Fault::Internal("a call arrived before `prepare`".to_owned()))
}
