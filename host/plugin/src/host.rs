//! The plugin host: one engine, one cache, one set of counters for all plugins of a server.

use std::fmt;
use std::sync::Arc;

use tokio::sync::Semaphore;
use wasmtime::Engine;

use crate::cache::CompileCache;
use crate::stats::Registry;
use crate::{Component, ComponentSource, HostConfig, LoadError, PluginStats, engine};

/// Loads plugins and makes their instances. Clones share everything.
#[derive(Clone)]
pub struct PluginHost {
    inner: Arc<Inner>,
}

struct Inner {
    engine: Engine,
    cache: Option<CompileCache>,
    stats: Registry,
    /// One permit for each instance that may live, over all bindings.
    instances: Arc<Semaphore>,
    max_instances: usize,
}

impl PluginHost {
    /// Start the runtime, and the thread that interrupts runaway guests. The thread ends when the
    /// last clone, component and binding are gone.
    ///
    /// # Errors
    /// When neither a pool nor single instances can be had, or no thread.
    pub fn new(config: HostConfig) -> Result<Self, LoadError> {
        let max_instances = config.max_instances_total as usize;
        let inner = Inner {
            engine: engine::create(&config)?,
            cache: config.cache_dir.as_deref().and_then(CompileCache::open),
            stats: Registry::default(),
            instances: Arc::new(Semaphore::new(max_instances)),
            max_instances,
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// Read, compile and check a plugin. Compiling takes up to seconds where neither embedded
    /// code nor the cache helps: call it on a thread that may block.
    ///
    /// # Errors
    /// When the plugin cannot be read or cannot work; the text says why and what to do.
    pub fn load(&self, source: ComponentSource) -> Result<Arc<Component>, LoadError> {
        Component::load(&self.inner.engine, self.inner.cache.as_ref(), source)
    }

    /// What all plugins did so far, for metrics.
    pub fn stats(&self) -> Vec<PluginStats> {
        self.inner.stats.snapshot()
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.inner.engine
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.inner.stats
    }

    pub(crate) fn instance_permits(&self) -> &Arc<Semaphore> {
        &self.inner.instances
    }

    pub(crate) fn max_instances(&self) -> usize {
        self.inner.max_instances
    }
}

impl fmt::Debug for PluginHost {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("PluginHost").finish_non_exhaustive()
    }
}
