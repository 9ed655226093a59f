//! Attribution of a fault to the plugin or to the request that it was called for.
//!
//! Templates, schemas and grammars are programs whose input the caller writes. A call that takes more time,
//! memory, stack or output than it may says nothing of whose fault that is, and how soon it does depends on
//! the machine. So the host has another instance do the same with the smallest input there is: if that goes
//! well, the request was the cause. The verdict does not depend on how fast the machine is, and no caller
//! can have a plugin suspended for others.

use std::pin::Pin;
use std::sync::Arc;

use crate::call::is_deferred;
use crate::instance::Exports;
use crate::pool::InstancePool;
use crate::{Fault, PluginError};

/// Bytes of a caller's input and of a model's text up to which a plugin has no reason to take more than it may.
pub(crate) const ORDINARY_BYTES: usize = 64 << 10;

/// Reason for which a plugin may take more than it is granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Load {
    /// No reason: the input is small.
    Ordinary,
    /// The caller's input is large, or is a program.
    Caller,
    /// The model's text is long.
    Text,
}

impl Load {
    /// Load of a call with these bytes of the caller's and of the model's: the larger one, if it is not ordinary.
    pub(crate) fn of(caller_bytes: usize, text_bytes: usize) -> Self {
        match caller_bytes.max(text_bytes) {
            largest if largest <= ORDINARY_BYTES => Self::Ordinary,
            largest if largest == text_bytes => Self::Text,
            _ => Self::Caller,
        }
    }
}

/// Excess that the request caused, as its caller is told.
pub(crate) fn too_complex(fault: Fault, advice: &str) -> Fault {
    match fault {
        excess if excess.is_excess() => Fault::TooComplex(format!("the plugin {excess}; {advice}")),
        other => other,
    }
}

/// Excess that the model's text caused in a plugin, such as `its parser`.
pub(crate) fn model_output(fault: Fault, whose: &str) -> Fault {
    match fault {
        excess if excess.is_excess() => {
            Fault::ModelOutput(format!("is too much for {whose}: the plugin {excess}"))
        }
        other => other,
    }
}

/// Outcome of a control call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Control {
    /// The plugin handles the smallest input.
    Passed,
    /// The plugin fails on the smallest input too.
    Failed,
    /// The control call was not made.
    Unknown,
}

impl Control {
    /// Read the outcome off a control call. A result or an orderly refusal passes.
    pub(crate) fn of<T>(called: &Result<T, PluginError>) -> Self {
        match called.as_ref().map_err(|error| &error.fault) {
            Err(Fault::Overloaded { .. } | Fault::Suspended { .. } | Fault::CountersLost) => {
                Self::Unknown
            }
            Err(fault) if fault.is_breakdown() => Self::Failed,
            _ => Self::Passed,
        }
    }
}

/// Attribute a fault to the plugin without a control call: what it was given is no reason for it. Faults that are not
/// deferred pass through.
pub(crate) fn attribute_to_plugin<E: Exports>(
    pool: &Arc<InstancePool<E>>,
    error: PluginError,
) -> PluginError {
    if is_deferred(E::KIND, error.function, &error.fault) {
        pool.record(Err(&error));
        pool.settle(&error, "a plugin failed, its instance is replaced");
    }
    error
}

/// Attribute excess in dropping what a request of such a load left behind. It costs the instance, and counts against the
/// plugin where there was no reason for it.
pub(crate) fn attribute_drop<E: Exports>(
    load: Load,
) -> impl FnOnce(&Arc<InstancePool<E>>, PluginError) + Send + 'static {
    move |pool, error| match load {
        Load::Ordinary => drop(attribute_to_plugin(pool, error)),
        Load::Caller | Load::Text if is_deferred(E::KIND, error.function, &error.fault) => {
            let fault = too_complex(error.fault, "it was dropping what a request left behind");
            pool.settle(&PluginError { fault, ..error }, "");
        }
        Load::Caller | Load::Text => {}
    }
}

/// Attribute a fault by a control call, tell the breaker, and count and log what was found. Other faults
/// pass through. `to_caller` is what becomes of a fault that the request caused.
pub(crate) fn attribute<'a, E: Exports>(
    pool: &'a Arc<InstancePool<E>>,
    error: PluginError,
    to_caller: fn(Fault) -> Fault,
    control: impl Future<Output = Control> + Send + 'a,
) -> Pin<Box<dyn Future<Output = PluginError> + Send + 'a>> {
    // Boxed, since a control call of a grammar is made of the calls that it controls.
    Box::pin(async move {
        if !is_deferred(E::KIND, error.function, &error.fault) {
            return error;
        }
        pool.let_try();
        let verdict = match control.await {
            Control::Unknown if pool.answered_lately() => Control::Passed,
            verdict => verdict,
        };
        match verdict {
            Control::Passed => {
                pool.record(Ok(()));
                let fault = to_caller(error.fault);
                let error = PluginError { fault, ..error };
                pool.settle(
                    &error,
                    "a plugin failed on one request and does well otherwise",
                );
                error
            }
            Control::Failed => {
                pool.record(Err(&error));
                pool.settle(&error, "a plugin failed, its instance is replaced");
                error
            }
            Control::Unknown => {
                pool.settle(&error, "a call failed and no other could tell why");
                error
            }
        }
    })
}
