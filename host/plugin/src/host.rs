//! The plugin host: one engine, one cache, one set of counters for all plugins of a server.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::Semaphore;
use wasmtime::Engine;

use crate::cache::CompileCache;
use crate::compiler::{Compiler, MachineCode};
use crate::cpu_share::CpuShare;
use crate::prepared_memory::ImageBudget;
use crate::stats::CounterRegistry;
use crate::{Component, ComponentSource, HostConfig, LoadError, PluginStats, Profile, engine};

/// Loads plugins and makes their instances. Clones share everything.
#[derive(Clone)]
pub struct PluginHost {
    inner: Arc<Inner>,
}

struct Inner {
    engine: Engine,
    /// Compiles large plugins, where that is to be done quickly.
    quick: Option<Engine>,
    cache: Option<CompileCache>,
    stats: CounterRegistry,
    /// Components that are in use, by digest: reading a file again that has not changed compiles
    /// nothing.
    loaded: Mutex<HashMap<String, Weak<Component>>>,
    /// One permit for each instance that may live, over all bindings.
    instances: Arc<Semaphore>,
    cpu_share: Arc<CpuShare>,
    /// Held while a large instance goes.
    going: tokio::sync::Mutex<()>,
    max_instances: usize,
    images: Arc<ImageBudget>,
    profile: Option<Arc<Profile>>,
}

impl Inner {
    fn lock_loaded(&self) -> MutexGuard<'_, HashMap<String, Weak<Component>>> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
            quick: config.quick.then(engine::quick).transpose()?,
            cache: config.cache_dir.as_deref().and_then(CompileCache::open),
            stats: CounterRegistry::new(config.timings),
            loaded: Mutex::default(),
            instances: Arc::new(Semaphore::new(max_instances)),
            cpu_share: CpuShare::new(),
            going: tokio::sync::Mutex::new(()),
            max_instances,
            images: Arc::new(ImageBudget::new(config.max_image_bytes)),
            profile: config.profile.then(Arc::default),
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
        let inner = &*self.inner;
        let known = |digest: &str| inner.lock_loaded().get(digest).and_then(Weak::upgrade);
        let component = Component::load(&self.compiler(), source, known)?;
        let mut loaded = inner.lock_loaded();
        loaded.retain(|_, component| component.strong_count() > 0);
        loaded.insert(component.digest().to_owned(), Arc::downgrade(&component));
        Ok(component)
    }

    /// Compile a component that is no plugin. Takes up to seconds, as [`Self::load`] does.
    pub(crate) fn compile(&self, source: ComponentSource) -> Result<MachineCode, LoadError> {
        Component::compile(&self.compiler(), source)
    }

    fn compiler(&self) -> Compiler<'_> {
        let inner = &*self.inner;
        Compiler {
            engine: &inner.engine,
            quick: inner.quick.as_ref(),
            cache: inner.cache.as_ref(),
            threads: inner.cpu_share.compiling_threads(),
        }
    }

    /// Counters of all plugins, for metrics.
    pub fn stats(&self) -> Vec<PluginStats> {
        self.inner.stats.snapshot()
    }

    /// Profile of the guests, if [`HostConfig::profile`] asked for it.
    pub fn profile(&self) -> Option<&Arc<Profile>> {
        self.inner.profile.as_ref()
    }

    /// Set the source of the number of requests being answered, with or without plugins. While there are
    /// several, long calls are held to a share of the processors. Only the first call counts.
    pub fn count_requests(&self, requests: impl Fn() -> usize + Send + Sync + 'static) {
        self.inner.cpu_share.count_requests(requests);
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.inner.engine
    }

    pub(crate) fn registry(&self) -> &CounterRegistry {
        &self.inner.stats
    }

    pub(crate) fn instance_permits(&self) -> &Arc<Semaphore> {
        &self.inner.instances
    }

    pub(crate) fn cpu_share(&self) -> &Arc<CpuShare> {
        &self.inner.cpu_share
    }

    /// Wait for the turn to let a large instance go.
    pub(crate) async fn turn_to_go(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.inner.going.lock().await
    }

    /// Whether three quarters of the places for instances are free.
    pub(crate) fn has_places_to_spare(&self) -> bool {
        let inner = &*self.inner;
        inner.instances.available_permits() >= inner.max_instances - inner.max_instances / 4
    }

    pub(crate) fn images(&self) -> &Arc<ImageBudget> {
        &self.inner.images
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
