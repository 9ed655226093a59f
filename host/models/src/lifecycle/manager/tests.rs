//! The manager with a loader that does what the test says.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;

use super::*;
use crate::config::ModelLifecycle;
use crate::lifecycle::Override;
use crate::lifecycle::contract::Published;
use crate::lifecycle::progress::LoadProgress;
use crate::lifecycle::state::RoomLimits;

/// Loads models without runtimes; each load waits for leave.
#[derive(Default)]
struct FakeLoader {
    loads: AtomicUsize,
    /// A load waits for one message, if there is a gate.
    gate: Mutex<Option<mpsc::Receiver<Result<(), String>>>>,
    bytes: u64,
    /// Bytes of the KV cache of a replica.
    cache_bytes: u64,
}

impl LoadModel for FakeLoader {
    fn load(
        &self,
        config: &ModelConfig,
        _: &LoadOverrides,
        progress: &LoadProgress,
    ) -> anyhow::Result<Model> {
        self.loads.fetch_add(1, SeqCst);
        progress.file("weights", 100, 0);
        assert!(config.name != "panics late", "a load that panics");
        if let Some(gate) = &*self.gate.lock().expect("a gate") {
            gate.recv()
                .expect("a message")
                .map_err(anyhow::Error::msg)?;
        }
        Ok(Model {
            name: config.name.clone(),
            architecture: String::new(),
            generator: None,
            embedder: None,
            reranker: None,
            loaded_at: std::time::Instant::now(),
        })
    }

    fn check(&self, _: &ModelConfig, overrides: &LoadOverrides) -> Result<(), LifecycleError> {
        match overrides.replicas {
            Override::Set(0) => Err(LifecycleError::BadOverride {
                field: "replicas",
                message: "it is 0".to_owned(),
            }),
            _ => Ok(()),
        }
    }

    fn prepare(&self, config: &ModelConfig, _: &LoadProgress) -> anyhow::Result<()> {
        anyhow::ensure!(config.name != "missing", "no such folder");
        assert!(config.name != "panics", "a preparation that panics");
        Ok(())
    }

    fn artifact_bytes(&self, _: &ModelConfig) -> Option<u64> {
        Some(self.bytes)
    }

    fn expected_bytes(&self, _: &ModelConfig, overrides: &LoadOverrides) -> Option<u64> {
        let replicas = match overrides.replicas {
            Override::Set(replicas) => replicas as u64,
            _ => 1,
        };
        Some(self.bytes + replicas * self.cache_bytes)
    }
}

fn named(name: &str) -> ModelConfig {
    ModelConfig {
        name: name.to_owned(),
        ..ModelConfig::of_path(None)
    }
}

fn manager(names: &[&str], loader: &Arc<FakeLoader>, config: LifecycleConfig) -> Arc<ModelManager> {
    let models = names.iter().map(|name| named(name)).collect();
    ModelManager::new(models, Arc::clone(loader) as Arc<dyn LoadModel>, config)
}

fn gated(loader: &FakeLoader) -> mpsc::Sender<Result<(), String>> {
    let (leave, gate) = mpsc::channel();
    *loader.gate.lock().expect("a gate") = Some(gate);
    leave
}

fn on_demand() -> LifecycleConfig {
    LifecycleConfig {
        load_on_demand: true,
        ..LifecycleConfig::default()
    }
}

fn state(manager: &ModelManager, name: &str) -> ModelState {
    manager.status(name).expect("a model").state
}

async fn until(manager: &ModelManager, name: &str, wanted: ModelState) {
    let mut changes = manager.changes.subscribe();
    while state(manager, name) != wanted {
        changes.changed().await.expect("the manager lives");
    }
}

const NONE: fn() -> LoadOverrides = LoadOverrides::default;

#[tokio::test]
async fn feature_l2_two_loads_at_once_are_one() {
    let loader = Arc::new(FakeLoader::default());
    let leave = gated(&loader);
    let manager = manager(&["m"], &loader, LifecycleConfig::default());
    let (one, two) = (manager.load("m", NONE()), manager.load("m", NONE()));
    leave.send(Ok(())).expect("sent");
    let (one, two) = tokio::join!(one, two);
    assert_eq!((one, two), (Ok(()), Ok(())));
    assert_eq!(manager.load("m", NONE()).await, Ok(()));
    assert_eq!(loader.loads.load(SeqCst), 1);
}

#[tokio::test]
async fn feature_l2_a_load_that_fails_takes_no_memory_and_says_why() {
    let loader = Arc::new(FakeLoader {
        bytes: 60,
        cache_bytes: 10,
        ..FakeLoader::default()
    });
    let leave = gated(&loader);
    let room = RoomLimits {
        models: 0,
        bytes: 100,
    };
    let config = LifecycleConfig {
        room,
        ..LifecycleConfig::default()
    };
    let manager = manager(&["a", "b"], &loader, config);
    let three = LoadOverrides {
        replicas: Override::Set(3),
        ..NONE()
    };
    let reason = "replica 3 of 3 failed: no memory";
    leave.send(Err(reason.to_owned())).expect("sent");
    let failed = manager.load("a", three.clone()).await.expect_err("no load");
    assert!(failed.to_string().contains(reason), "{failed}");
    let status = manager.status("a").expect("a model");
    assert_eq!(status.state, ModelState::Failed);
    assert_eq!(status.last_error.as_deref(), Some(reason));
    assert!(status.loaded.is_none() && status.overrides.is_none());
    // Its 90 bytes are free: 70 others fit, without an eviction.
    leave.send(Ok(())).expect("sent");
    assert_eq!(manager.load("b", NONE()).await, Ok(()));
    assert_eq!(state(&manager, "a"), ModelState::Failed);
    assert_eq!(manager.unload("b").await, Ok(()));
    leave.send(Ok(())).expect("sent");
    assert_eq!(manager.load("a", three).await, Ok(()), "from failed");
    let status = manager.status("a").expect("a model");
    assert_eq!(
        (status.state, status.last_error),
        (ModelState::Loaded, None)
    );
}

#[tokio::test]
async fn feature_l2_settings_come_too_late_for_a_model_that_is_loaded_or_being_loaded() {
    let loader = Arc::new(FakeLoader::default());
    let leave = gated(&loader);
    let manager = manager(&["m"], &loader, LifecycleConfig::default());
    let settings = LoadOverrides {
        max_context: Override::Set(9),
        ..NONE()
    };
    let bad = LoadOverrides {
        replicas: Override::Set(0),
        ..NONE()
    };
    let refused = manager.load("m", bad).await.expect_err("is checked first");
    assert_eq!(refused.code(), "invalid_load_request");
    manager.begin_load("m", settings.clone()).expect("begins");
    let refused = manager.load("m", settings.clone()).await;
    assert_eq!(refused.expect_err("is loading").code(), "model_loading");
    leave.send(Ok(())).expect("sent");
    until(&manager, "m", ModelState::Loaded).await;
    let refused = manager.load("m", settings.clone()).await;
    assert_eq!(refused.expect_err("is loaded").code(), "model_loaded");
    assert_eq!(
        manager.status("m").and_then(|status| status.overrides),
        Some(settings)
    );
    manager.unload("m").await.expect("unloads");
    assert_eq!(manager.status("m").expect("a model").overrides, None);
}

#[tokio::test]
async fn feature_l1_a_failed_load_keeps_its_error_until_the_next_load() {
    let loader = Arc::new(FakeLoader::default());
    let leave = gated(&loader);
    let manager = manager(&["m", "missing"], &loader, on_demand());
    leave.send(Err("no such tensor".to_owned())).expect("sent");
    let error = manager.load("m", NONE()).await.expect_err("fails");
    assert_eq!(error.code(), "model_failed");
    assert!(error.to_string().contains("no such tensor"), "{error}");
    let refused = manager.acquire("m").await.expect_err("does not serve");
    assert_eq!(refused, error);
    leave.send(Ok(())).expect("sent");
    manager.load("m", NONE()).await.expect("the second load");
    assert_eq!(manager.status("m").expect("a model").last_error, None);
    let error = manager.acquire("missing").await.expect_err("no files");
    assert!(error.to_string().contains("no such folder"), "{error}");
}

#[tokio::test]
async fn feature_x3_only_a_loaded_model_serves() {
    let loader = Arc::new(FakeLoader::default());
    let leave = gated(&loader);
    let manager = manager(&["m"], &loader, LifecycleConfig::default());
    let code = async || manager.acquire("m").await.expect_err("refused").code();
    assert_eq!(code().await, "model_not_loaded");
    manager.begin_load("m", NONE()).expect("begins");
    assert_eq!(code().await, "model_loading");
    assert_eq!(
        manager.unload("m").await.expect_err("is loading").code(),
        "model_loading"
    );
    leave.send(Ok(())).expect("sent");
    until(&manager, "m", ModelState::Loaded).await;
    let lease = manager.acquire("m").await.expect("serves");
    let unloading = tokio::spawn({
        let manager = Arc::clone(&manager);
        async move { manager.unload("m").await }
    });
    until(&manager, "m", ModelState::Unloading).await;
    assert!(*lease.closing().borrow(), "queued requests are told");
    assert_eq!(code().await, "model_unloading");
    let late = manager.load("m", NONE()).await.expect_err("is unloading");
    assert_eq!(late.code(), "model_unloading");
    assert_eq!(state(&manager, "m"), ModelState::Unloading);
    drop(lease);
    unloading.await.expect("joins").expect("unloads");
    assert_eq!(code().await, "model_not_loaded");
    assert_eq!(manager.unload("m").await, Ok(()));
    let unknown = manager.unload("x").await.expect_err("unknown");
    assert_eq!(unknown.code(), "unknown_model");
}

#[tokio::test]
async fn a_storm_of_requests_for_a_cold_model_loads_it_once() {
    let loader = Arc::new(FakeLoader::default());
    let leave = gated(&loader);
    let manager = manager(&["m"], &loader, on_demand());
    let requests: Vec<_> = (0..50)
        .map(|_| {
            let manager = Arc::clone(&manager);
            tokio::spawn(async move { manager.acquire("m").await.map(drop) })
        })
        .collect();
    // One that gives up does not end the load.
    let gone = tokio::time::timeout(Duration::from_millis(1), manager.acquire("m"));
    assert!(gone.await.is_err(), "nothing is loaded yet");
    leave.send(Ok(())).expect("sent");
    for request in requests {
        request.await.expect("joins").expect("a lease");
    }
    assert_eq!(loader.loads.load(SeqCst), 1);
    let status = manager.status("m").expect("a model");
    assert_eq!((status.in_flight, status.uses), (0, 50));
}

#[tokio::test]
async fn models_beyond_the_room_take_turns_and_no_request_is_lost() {
    let loader = Arc::new(FakeLoader::default());
    let config = LifecycleConfig {
        room: RoomLimits {
            models: 3,
            bytes: 0,
        },
        ..on_demand()
    };
    let names: Vec<String> = (0..10).map(|number| format!("m{number}")).collect();
    let shown: Vec<&str> = names.iter().map(String::as_str).collect();
    let manager = manager(&shown, &loader, config);
    let requests = (0..400usize).map(|number| {
        let (manager, name) = (Arc::clone(&manager), names[number * 7 % 10].clone());
        tokio::spawn(async move {
            let lease = manager.acquire(&name).await?;
            let loaded = manager.statuses();
            let loaded = loaded.iter().filter(|model| model.loaded.is_some());
            assert!(loaded.count() <= 3);
            tokio::task::yield_now().await;
            drop(lease);
            Ok::<(), LifecycleError>(())
        })
    });
    let requests: Vec<_> = requests.collect();
    for request in requests {
        request.await.expect("joins").expect("is answered");
    }
    let uses: u64 = manager.statuses().iter().map(|model| model.uses).sum();
    assert_eq!(uses, 400);
}

#[tokio::test]
async fn feature_m6_a_model_without_room_is_refused_with_numbers() {
    let loader = Arc::new(FakeLoader {
        bytes: 80,
        ..FakeLoader::default()
    });
    let mut pinned = named("pinned");
    pinned.lifecycle = ModelLifecycle {
        pinned: true,
        ..ModelLifecycle::default()
    };
    let config = LifecycleConfig {
        room: RoomLimits {
            models: 1,
            bytes: 0,
        },
        ..on_demand()
    };
    let models = vec![pinned, named("other")];
    let manager = ModelManager::new(models, Arc::clone(&loader) as Arc<dyn LoadModel>, config);
    manager.load("pinned", NONE()).await.expect("loads");
    let error = manager.acquire("other").await.expect_err("no room");
    assert_eq!(error.code(), "insufficient_memory");
    let told = "`max_loaded_models` is 1, and what is loaded is pinned";
    assert!(error.to_string().ends_with(told), "{error}");
    assert_eq!(state(&manager, "other"), ModelState::Unloaded);
    assert_eq!(state(&manager, "pinned"), ModelState::Loaded);
}

#[tokio::test]
async fn the_kv_cache_of_each_replica_takes_room() {
    // So large that what this process grows by meanwhile is nothing.
    const UNIT: u64 = 1 << 40;
    let loader = Arc::new(FakeLoader {
        bytes: UNIT,
        cache_bytes: UNIT,
        ..FakeLoader::default()
    });
    let mut pinned = named("pinned");
    pinned.lifecycle.pinned = true;
    let config = LifecycleConfig {
        room: RoomLimits {
            models: 0,
            bytes: 5 * UNIT,
        },
        ..LifecycleConfig::default()
    };
    let models = vec![pinned, named("other")];
    let manager = ModelManager::new(models, Arc::clone(&loader) as Arc<dyn LoadModel>, config);
    manager.load("pinned", NONE()).await.expect("loads");
    let three = LoadOverrides {
        replicas: Override::Set(3),
        ..NONE()
    };
    let error = manager.load("other", three).await.expect_err("no room");
    assert_eq!(error.code(), "insufficient_memory");
    let told = error.to_string();
    for number in [4 * UNIT, 3 * UNIT] {
        let mib = (number >> 20).to_string();
        assert!(told.contains(&mib), "{mib}: {told}");
    }
    // Settings of one load do not count for the next.
    assert!(manager.has_room("other"));
    manager.load("other", NONE()).await.expect("loads");
    let taken = manager.statuses();
    assert!(taken.iter().all(|model| model.memory_bytes >= 2 * UNIT));
}

#[tokio::test]
async fn feature_l7_idle_models_are_unloaded_and_used_ones_stay() {
    let loader = Arc::new(FakeLoader::default());
    let config = LifecycleConfig {
        idle_timeout: Some(Duration::ZERO),
        idle_check: Duration::from_millis(1),
        ..LifecycleConfig::default()
    };
    let manager = manager(&["idle", "used"], &loader, config);
    for name in ["idle", "used"] {
        manager.load(name, NONE()).await.expect("loads");
    }
    let lease = manager.acquire("used").await.expect("serves");
    let checker = tokio::spawn({
        let manager = Arc::clone(&manager);
        async move { manager.unload_idle().await }
    });
    until(&manager, "idle", ModelState::Unloaded).await;
    assert_eq!(state(&manager, "used"), ModelState::Loaded);
    drop(lease);
    until(&manager, "used", ModelState::Unloaded).await;
    checker.abort();
}

#[tokio::test]
async fn a_load_that_panics_fails_its_model_and_no_other() {
    let loader = Arc::new(FakeLoader::default());
    let manager = manager(&["m", "panics", "panics late"], &loader, on_demand());
    for name in ["panics", "panics late"] {
        let error = manager.load(name, NONE()).await.expect_err("panics");
        assert_eq!(error.code(), "model_failed", "{error}");
        assert_eq!(state(&manager, name), ModelState::Failed);
    }
    assert!(manager.acquire("m").await.is_ok(), "loads go on");
}

struct PanickingPublisher;

impl PublishModels for PanickingPublisher {
    fn publish(&self, _: Vec<KnownModel>) -> Published<'_> {
        panic!("nobody publishes");
    }
}

#[tokio::test]
async fn a_publication_that_panics_leaves_no_state_behind() {
    let loader = Arc::new(FakeLoader::default());
    let manager = manager(&["m"], &loader, LifecycleConfig::default());
    let publisher = Arc::new(PanickingPublisher);
    let weak: Weak<PanickingPublisher> = Arc::downgrade(&publisher);
    manager.load("m", NONE()).await.expect("loads");
    manager.publish_to(weak);
    manager.unload("m").await.expect("ends");
    assert_eq!(state(&manager, "m"), ModelState::Unloaded);
    let error = manager.load("m", NONE()).await.expect_err("panics");
    assert_eq!(error.code(), "model_failed", "{error}");
}

/// Publishes what the test says.
struct Publisher(Mutex<Vec<Vec<String>>>, bool);

impl PublishModels for Publisher {
    fn publish(&self, models: Vec<KnownModel>) -> Published<'_> {
        let loaded = models.iter().filter(|model| model.loaded.is_some());
        let names = loaded.map(|model| model.listing.name.clone()).collect();
        self.0.lock().expect("a list").push(names);
        let outcome = match self.1 {
            true => Ok(()),
            false => Err("no plugin fits".to_owned()),
        };
        Box::pin(std::future::ready(outcome))
    }
}

#[tokio::test]
async fn models_are_published_before_they_serve_and_withdrawn_before_they_are_freed() {
    let loader = Arc::new(FakeLoader::default());
    let manager = manager(&["m", "n"], &loader, LifecycleConfig::default());
    let publisher: Arc<Publisher> = Arc::new(Publisher(Mutex::default(), true));
    let weak: Weak<Publisher> = Arc::downgrade(&publisher);
    manager.publish_to(weak);
    manager.load("m", NONE()).await.expect("loads");
    manager.load("n", NONE()).await.expect("loads");
    manager.unload("m").await.expect("unloads");
    let published = publisher.0.lock().expect("a list").clone();
    let expected: [&[&str]; 3] = [&["m"], &["m", "n"], &["n"]];
    assert_eq!(published, expected);
}

#[tokio::test]
async fn a_model_that_no_plugin_fits_is_failed() {
    let loader = Arc::new(FakeLoader::default());
    let manager = manager(&["m"], &loader, LifecycleConfig::default());
    let publisher: Arc<Publisher> = Arc::new(Publisher(Mutex::default(), false));
    let weak: Weak<Publisher> = Arc::downgrade(&publisher);
    manager.publish_to(weak);
    let error = manager.load("m", NONE()).await.expect_err("fails");
    assert!(error.to_string().contains("no plugin fits"), "{error}");
    assert_eq!(state(&manager, "m"), ModelState::Failed);
}

#[tokio::test]
async fn listeners_see_states_and_progress_in_order() {
    let loader = Arc::new(FakeLoader::default());
    let manager = manager(&["m"], &loader, LifecycleConfig::default());
    let mut events = manager.listen();
    manager.load("m", NONE()).await.expect("loads");
    manager.unload("m").await.expect("unloads");
    let mut seen = Vec::new();
    while let Ok(event) = events.try_recv() {
        let stage = event.progress.map(|progress| progress.stage);
        seen.push((event.state.name(), stage));
    }
    let expected = [
        ("loading", None),
        ("loading", Some(LoadStage::Reading)),
        ("loading", Some(LoadStage::Downloading)),
        ("loading", Some(LoadStage::Binding)),
        ("loaded", None),
        ("unloading", None),
        ("unloaded", None),
    ];
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn feature_l7_a_model_that_is_to_go_at_once_waits_for_no_look() {
    let loader = Arc::new(FakeLoader::default());
    let config = LifecycleConfig {
        idle_check: Duration::from_secs(86_400),
        ..LifecycleConfig::default()
    };
    let manager = manager(&["idle", "used", "stays"], &loader, config);
    let checker = tokio::spawn({
        let manager = Arc::clone(&manager);
        async move { manager.unload_idle().await }
    });
    for name in ["idle", "used", "stays"] {
        manager.load(name, NONE()).await.expect("loads");
        assert_eq!(manager.time_left(name), None);
    }
    let lease = manager.acquire("used").await.expect("serves");
    manager.keep("used", Duration::from_millis(1));
    manager.keep("idle", Duration::ZERO);
    until(&manager, "idle", ModelState::Unloaded).await;
    assert_eq!(manager.time_left("used"), Some(Duration::from_millis(1)));
    assert_eq!(state(&manager, "used"), ModelState::Loaded);
    drop(lease);
    until(&manager, "used", ModelState::Unloaded).await;
    assert_eq!(state(&manager, "stays"), ModelState::Loaded);
    checker.abort();
}
