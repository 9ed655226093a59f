//! A component bound as one of its kinds, and the steps that all calls into it share.

use std::sync::Arc;

use wasmtime::Store;

use crate::call::GuestResult;
use crate::instance::Exports;
use crate::pool::{InstancePool, Lease};
use crate::state::StoreData;
use crate::{
    Binding, CallContext, Component, Deadlines, Fault, Limits, LoadError, PluginError, PluginHost,
};

/// A component bound to its surroundings. The public handle of each kind wraps one.
pub(crate) struct PluginHandle<E: Exports> {
    pool: Arc<InstancePool<E>>,
}

impl<E: Exports> Clone for PluginHandle<E> {
    fn clone(&self) -> Self {
        Self {
            pool: Arc::clone(&self.pool),
        }
    }
}

impl<E: Exports> PluginHandle<E> {
    pub(crate) async fn bind(
        host: &PluginHost,
        component: &Arc<Component>,
        binding: Binding,
    ) -> Result<Self, LoadError> {
        let pool = InstancePool::bind(host, component, binding).await?;
        Ok(Self { pool })
    }

    pub(crate) fn component(&self) -> &Arc<Component> {
        self.pool.component()
    }

    /// Another handle of the same binding.
    pub(crate) fn of(pool: &Arc<InstancePool<E>>) -> Self {
        Self {
            pool: Arc::clone(pool),
        }
    }

    pub(crate) fn pool(&self) -> &Arc<InstancePool<E>> {
        &self.pool
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.pool.grants().limits
    }

    pub(crate) fn deadlines(&self) -> &Deadlines {
        &self.limits().deadlines
    }

    /// Call a function on a free instance, and check the result.
    pub(crate) async fn call<T, U>(
        &self,
        context: &CallContext,
        function: &'static str,
        deadline_ms: u64,
        guest: impl AsyncFnOnce(&E, &mut Store<StoreData>) -> GuestResult<T>,
        check: impl FnOnce(T, &mut StoreData) -> Result<U, Fault>,
    ) -> Result<U, PluginError> {
        let opened = self.open(context, function, deadline_ms, guest, check);
        Ok(opened.await?.0)
    }

    /// Call a function on a free instance, check the result, and return the instance too: the result lives in it.
    pub(crate) async fn open<T, U>(
        &self,
        context: &CallContext,
        function: &'static str,
        deadline_ms: u64,
        guest: impl AsyncFnOnce(&E, &mut Store<StoreData>) -> GuestResult<T>,
        check: impl FnOnce(T, &mut StoreData) -> Result<U, Fault>,
    ) -> Result<(U, Lease<E>), PluginError> {
        let mut lease = self.pool.checkout(context, function).await?;
        let value = lease.call(context, function, deadline_ms, guest, check);
        Ok((value.await?, lease))
    }
}

/// The public handle of a kind: how it is bound, and what it is made of.
macro_rules! kind_handle {
    ($(#[$docs:meta])* $name:ident, $exports:ty) => {
        $(#[$docs])*
        #[derive(Clone)]
        pub struct $name {
            handle: $crate::handle::PluginHandle<$exports>,
        }

        impl $name {
            /// Bind a component, preparing a first instance. Needs a tokio runtime with time.
            ///
            /// # Errors
            /// When the component is not of this kind, does not fit, lacks something in its
            /// binding, or refuses its settings.
            pub async fn bind(
                host: &$crate::PluginHost,
                component: &std::sync::Arc<$crate::Component>,
                binding: $crate::Binding,
            ) -> Result<Self, $crate::LoadError> {
                let handle = $crate::handle::PluginHandle::bind(host, component, binding).await?;
                Ok(Self { handle })
            }

            /// The component behind this handle.
            pub fn component(&self) -> &std::sync::Arc<$crate::Component> {
                self.handle.component()
            }
        }
    };
}
pub(crate) use kind_handle;
