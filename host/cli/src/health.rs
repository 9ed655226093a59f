//! Checks of the parts of the server, for `/health` and `/ready`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use mortise_config::HealthConfig;
use mortise_engine::{CircuitState, EngineLoad};
use mortise_http::{Check, CheckState};
use mortise_models::AliasTable;
use mortise_models::lifecycle::{ModelManager, ModelState, ModelStatus};
use mortise_plugin_manager::LivePlugins;
use mortise_store::{Store, StoreError};
use mortise_supervise::supervise;
use mortise_valkey::WhenLost;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::audit::Audit;
use crate::counters::KeptCounters;
use crate::kept::DurableState;

/// Interval at which the store and the disk are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Time after which a store that does not answer counts as lost.
const STORE_LIMIT: Duration = Duration::from_secs(10);

/// Owner that the store is asked about. It has no records, so only the disk can fail it.
const NOBODY: &str = "health";

/// Bytes free that are not known.
const UNKNOWN: u64 = u64::MAX;

/// States that are found out in the background, since finding out may block.
#[derive(Debug)]
struct Found {
    /// 0 works, 1 is full, 2 is lost.
    store: AtomicU8,
    free_bytes: AtomicU64,
}

/// Checks of this server.
pub(crate) struct Health {
    config: HealthConfig,
    models: Arc<ModelManager>,
    aliases: Arc<AliasTable>,
    live: Arc<LivePlugins>,
    audit: Arc<Audit>,
    store: Arc<dyn Store>,
    counters: Arc<KeptCounters>,
    /// Folders in which something is kept.
    folders: Vec<PathBuf>,
    found: Found,
}

impl Health {
    pub(crate) fn new(
        config: HealthConfig,
        (models, aliases): (Arc<ModelManager>, &Arc<AliasTable>),
        live: Arc<LivePlugins>,
        kept: &DurableState,
    ) -> Arc<Self> {
        Arc::new(Self {
            config,
            models,
            aliases: Arc::clone(aliases),
            live,
            audit: Arc::clone(&kept.audit),
            store: Arc::clone(&kept.store),
            counters: Arc::clone(&kept.counters),
            folders: kept.folders.clone(),
            found: Found {
                store: AtomicU8::new(0),
                free_bytes: AtomicU64::new(UNKNOWN),
            },
        })
    }

    /// Look at the store and the disk for as long as the server runs.
    pub(crate) fn start(self: &Arc<Self>) {
        let this = Arc::clone(self);
        supervise("health", move || {
            let this = Arc::clone(&this);
            async move {
                loop {
                    this.look().await;
                    tokio::time::sleep(LOOK_EVERY).await;
                }
            }
        });
    }

    async fn look(&self) {
        let owner: Arc<str> = Arc::from(NOBODY);
        let store = match timeout(STORE_LIMIT, self.store.promise(&owner)).await {
            Ok(Ok(()) | Err(StoreError::Busy | StoreError::Quota { .. })) => 0,
            Ok(Err(StoreError::Full)) => 1,
            Ok(Err(_)) | Err(_) => 2,
        };
        self.found.store.store(store, Ordering::Relaxed);
        let folders = self.folders.clone();
        let free = move || folders.iter().filter_map(|folder| free_bytes(folder)).min();
        let free = tokio::task::spawn_blocking(free).await.ok().flatten();
        let free = free.unwrap_or(UNKNOWN);
        self.found.free_bytes.store(free, Ordering::Relaxed);
    }

    /// All checks, as they are now.
    pub(crate) fn checks(&self) -> Vec<Check> {
        let models = self.models.statuses();
        let mut checks = vec![
            self.engine(&models),
            self.of_models(&models),
            self.plugins(),
            self.store(),
        ];
        checks.extend(self.of_aliases());
        checks.extend(self.disk());
        checks.extend(self.of_audit());
        checks.extend(self.shared_counters());
        checks
    }

    fn check(&self, name: &'static str, state: CheckState, detail: Value) -> Check {
        Check {
            name,
            state,
            vital: name == "engine",
            required: self.config.required.iter().any(|required| required == name),
            detail,
        }
    }

    /// Check that the loop of each engine goes on: the one whose step takes longest.
    fn engine(&self, models: &[ModelStatus]) -> Check {
        let loaded = models.iter().filter_map(|model| model.loaded.as_ref());
        let loads: Vec<EngineLoad> = loaded.map(|model| model.load()).collect();
        let longest = loads.iter().filter_map(|load| load.step_time).max();
        let broken = loads
            .iter()
            .filter(|load| load.circuit != CircuitState::Closed);
        let on_standby = loads.iter().filter(|load| load.on_standby).count();
        match longest {
            Some(time) if time >= self.config.engine_stall => {
                let detail = json!({"stuck_seconds": time.as_secs()});
                self.check("engine", CheckState::Failed, detail)
            }
            _ => match (broken.count(), on_standby) {
                (0, 0) => self.check("engine", CheckState::Ok, Value::Null),
                (0, count) => {
                    let detail = json!({"models_on_standby": count});
                    self.check("engine", CheckState::Degraded, detail)
                }
                (count, _) => {
                    let detail = json!({"models_refused": count});
                    self.check("engine", CheckState::Degraded, detail)
                }
            },
        }
    }

    /// Check that no model failed: the number of them, without a name.
    fn of_models(&self, models: &[ModelStatus]) -> Check {
        let is = |state: ModelState| models.iter().filter(move |model| model.state == state);
        let failed = is(ModelState::Failed).count();
        let detail = json!({"failed": failed});
        match (failed, is(ModelState::Loaded).next()) {
            (0, _) => self.check("models", CheckState::Ok, Value::Null),
            (_, Some(_)) => self.check("models", CheckState::Degraded, detail),
            (_, None) => self.check("models", CheckState::Failed, detail),
        }
    }

    /// Check that the models of all aliases are there: the number of aliases of which one is not. Nothing without aliases.
    fn of_aliases(&self) -> Option<Check> {
        let rows = self.aliases.rows();
        let is_model = |name: &str| self.models.status(name).is_some();
        let dangling = rows
            .iter()
            .filter(|row| !row.alias.missing(&is_model).is_empty());
        match (rows.len(), dangling.count()) {
            (0, _) => None,
            (_, 0) => Some(self.check("aliases", CheckState::Ok, Value::Null)),
            (_, count) => {
                let detail = json!({"without_model": count});
                Some(self.check("aliases", CheckState::Degraded, detail))
            }
        }
    }

    /// Check that no file was refused, and how the last reload went.
    fn plugins(&self) -> Check {
        match self.live.condition() {
            None => self.check("plugins", CheckState::Ok, Value::Null),
            Some(detail) => self.check("plugins", CheckState::Degraded, detail),
        }
    }

    fn store(&self) -> Check {
        let problem = match self.found.store.load(Ordering::Relaxed) {
            0 => return self.check("store", CheckState::Ok, Value::Null),
            1 => "full",
            _ => "lost",
        };
        self.check("store", CheckState::Failed, json!({"problem": problem}))
    }

    /// Room where something is kept; nothing, if nothing is.
    fn disk(&self) -> Option<Check> {
        let free = self.found.free_bytes.load(Ordering::Relaxed);
        if self.folders.is_empty() {
            return None;
        }
        let state = match free < self.config.min_free_bytes {
            false => return Some(self.check("disk", CheckState::Ok, Value::Null)),
            true => CheckState::Failed,
        };
        Some(self.check("disk", state, json!({"free_mib": free >> 20})))
    }

    /// Check that the server through which hosts share their counters answers; nothing without one.
    fn shared_counters(&self) -> Option<Check> {
        let valkey = self.counters.shared()?;
        if valkey.stats().up {
            return Some(self.check("counters", CheckState::Ok, Value::Null));
        }
        let (state, limits) = match valkey.when_lost() {
            WhenLost::Refuse => (CheckState::Failed, "refused"),
            WhenLost::Local => (CheckState::Degraded, "local"),
        };
        Some(self.check("counters", state, json!({"limits": limits})))
    }

    /// Check that the last entry of the audit log was kept; nothing without a log.
    fn of_audit(&self) -> Option<Check> {
        let lost = self.audit.lost()?;
        let detail = json!({"lost_entries": lost});
        Some(match self.audit.condition() {
            (false, _) => self.check("audit", CheckState::Ok, Value::Null),
            (true, false) => self.check("audit", CheckState::Degraded, detail),
            (true, true) => self.check("audit", CheckState::Failed, detail),
        })
    }
}

/// Bytes that an ordinary process may still write where a folder is.
fn free_bytes(folder: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(folder).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}
