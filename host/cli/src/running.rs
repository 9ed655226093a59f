//! A server that is ready: its tasks, its admin side, the routes of all dialects, and its end.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use mortise_admin::{Admin, Around, MetricsPage};
use mortise_api::batches::Batches;
use mortise_api::llm::{self, Llm};
use mortise_api::{
    AllCollections, ApiState, Collections, anthropic, batches, echo_socket, files, login, ollama,
    openai, prepare_collections, rerank, responses, resume_collections, vector_stores,
};
use mortise_config::{Config, ConfigSource};
use mortise_http::{
    ConnectionLimits, ConnectionShares, ConnectionTable, Elsewhere, Startup, router, serve_beside,
};
use mortise_identity::CallerDirectory;
use mortise_library::Library;
use mortise_models::AliasTable;
use mortise_models::lifecycle::ModelManager;
use mortise_plugin_manager::LivePlugins;
use mortise_service::Service;
use mortise_supervise::supervise;
use mortise_telemetry::Metrics;
use serde_json::json;
use tokio::signal::unix::Signal;
use tokio::sync::{Mutex, watch};

use crate::audit::Audit;
use crate::counters::KeptCounters;
use crate::discovery::KnownModels;
use crate::documents::Known;
use crate::doors::{Certificates, Door, Doors};
use crate::library::OnApi;
use crate::memory::trim_regularly;
use crate::operator::Operating;
use crate::reload::Reloader;
use crate::sharing::{SharedState, start_sharing_store};
use crate::spending::SpendLimits;
use crate::tasks::{
    reload_on_hangup, start_idle_check, start_sharing, start_watcher, start_writing,
};
use crate::traces::Traces;
use crate::watch::WatchedRequests;
use crate::{library, logins, notify, start};

/// Time for policies to hear of the last requests, and for threads to end.
pub(crate) const SETTLE: Duration = Duration::from_secs(2);

/// Writer of problems on paths of no dialect.
const ELSEWHERE: Elsewhere = Elsewhere {
    shape: openai::error_body,
    problem: openai::ERROR,
};

/// Parts of the API that the configuration turns on, and their bounds.
pub(crate) struct Offered {
    /// The admin side shows the numbers.
    admin_metrics: bool,
    /// OpenAI's main routes are there without `/v1` too.
    unversioned: bool,
    /// Lines of batches that are answered at once.
    batch_lines: usize,
    /// An owner of batches leaves places to others, as in the queues of models.
    shared_by_tenants: bool,
    /// The page of the playground is at `/`.
    playground: bool,
    /// A WebSocket sends back what it gets.
    websocket_echo: bool,
}

impl Offered {
    pub(crate) fn of(config: &Config) -> Self {
        Self {
            admin_metrics: config.metrics.on_admin,
            unversioned: config.unversioned,
            batch_lines: config.limits.batch_lines,
            shared_by_tenants: config.engine.engine.reserve_queue,
            playground: config.http.playground,
            websocket_echo: config.http.websocket_echo,
        }
    }
}

/// A server that is ready.
pub(crate) struct Running {
    pub(crate) state: Arc<ApiState>,
    pub(crate) collections: Arc<Collections>,
    pub(crate) live: Arc<LivePlugins>,
    pub(crate) aliases: Arc<AliasTable>,
    pub(crate) audit: Arc<Audit>,
    pub(crate) offered: Offered,
    pub(crate) identity: Arc<CallerDirectory>,
    pub(crate) counters: Arc<KeptCounters>,
    pub(crate) money: Option<SpendLimits>,
    /// Interval at which the plugin files are polled.
    pub(crate) watch: Option<Duration>,
    pub(crate) metrics: Arc<Metrics>,
}

impl Running {
    /// Reader of the settings while the server runs.
    pub(crate) fn reloader(
        &self,
        source: ConfigSource,
        models: &Arc<ModelManager>,
        known: Option<KnownModels>,
        certificates: Certificates,
    ) -> Arc<Reloader> {
        let (live, audit) = (Arc::clone(&self.live), Arc::clone(&self.audit));
        let models = (Arc::clone(models), Arc::clone(&self.aliases));
        let identity = Arc::clone(&self.identity);
        Reloader::new(source, live, models, identity, known, certificates, audit)
    }

    /// Tie the library to the server, if there is one.
    pub(crate) fn tie(
        &self,
        library: Option<&Arc<Library>>,
        models: &Arc<ModelManager>,
        reloader: &Arc<Reloader>,
        doors: &Doors,
    ) {
        if let Some(library) = library {
            library::tie(library, reloader, models, &self.aliases);
            let on_api = OnApi {
                library: Arc::clone(library),
                models: Arc::clone(models),
                key: doors.admin.as_ref().map(|(_, key)| key.clone()),
            };
            let _ = self.state.library.set(Arc::new(on_api));
        }
    }

    /// Tasks that go on for as long as the server runs.
    pub(crate) fn start_tasks(
        &self,
        models: &Arc<ModelManager>,
        reloader: &Arc<Reloader>,
        hangups: Arc<Mutex<Signal>>,
    ) {
        reload_on_hangup(Arc::clone(reloader), hangups);
        if let Some(every) = self.watch {
            start_watcher(Arc::clone(&self.live), every);
        }
        start_idle_check(Arc::clone(models));
        trim_regularly();
        self.audit.follow_plugins(&self.live);
        start_writing(Arc::clone(&self.counters));
        start_sharing(&self.counters);
        tokio::spawn(responses::resume(Arc::clone(&self.state)));
        tokio::spawn(files::sweep(Arc::clone(&self.state)));
    }

    /// End of the server, once the last answer has been given.
    pub(crate) async fn end(&self, models: &ModelManager, traces: &Traces) {
        notify::stopping();
        settle(&self.state.service, models, &self.counters).await;
        traces.flush(SETTLE).await;
        let stop = json!({"action": "server.stop"});
        // Nothing is left to be refused.
        let _ = self.audit.tell(stop).await;
        let _ = tokio::time::timeout(SETTLE, self.state.store.leave()).await;
    }

    /// The admin side for callers who know `key`, with or without its page.
    pub(crate) fn admin(
        &self,
        models: &Arc<ModelManager>,
        reloader: &Arc<Reloader>,
        (key, page): (String, bool),
        library: Option<Arc<Library>>,
    ) -> Arc<Admin> {
        let (live, models) = (Arc::clone(&self.live), Arc::clone(models));
        let aliases = Arc::clone(&self.aliases);
        let reload = reloader.on_request();
        let http = Arc::clone(&self.state.http);
        let numbers: MetricsPage = Box::new(move |headers| http.metrics_page(headers));
        let around = Around {
            identity: Arc::clone(&self.identity),
            auditor: self.audit.auditor(),
            metrics: self.offered.admin_metrics.then_some(numbers),
            watch: Arc::new(WatchedRequests {
                service: Arc::clone(&self.state.service),
                metrics: Arc::clone(&self.metrics),
            }),
            page: page.then(|| mortise_web::admin(ELSEWHERE)),
            library,
            documents: Arc::new(Known(AllCollections::new(&self.collections))),
            draining: self.state.http.draining.clone(),
            spending: self.money.as_ref().map(SpendLimits::shown),
        };
        Admin::new(
            live,
            models,
            aliases,
            reload,
            key,
            around,
            openai::error_body,
        )
    }

    /// Answer on the routes of all dialects from now on.
    pub(crate) fn complete(
        &self,
        startup: &Startup,
        models: &Arc<ModelManager>,
        operator_key: Option<String>,
        library: Option<Arc<Library>>,
    ) -> anyhow::Result<()> {
        let draining = self.state.http.draining.clone();
        let operating = Operating::new(Arc::clone(models), operator_key, library, draining);
        let mut openai = openai::api(Arc::clone(&self.state), self.offered.unversioned);
        openai.router = anthropic::beside(openai.router, Arc::clone(&self.state));
        let responses = responses::api(Arc::clone(&self.state));
        // Lines of batches go to the same routes as requests from outside.
        let lines = openai.router.clone().merge(responses.router.clone());
        let Offered {
            batch_lines,
            shared_by_tenants,
            ..
        } = self.offered;
        let state = Arc::clone(&self.state);
        let batches = Batches::new(state, lines, batch_lines, shared_by_tenants);
        tokio::spawn(batches::resume(Arc::clone(&batches)));
        let collections = Arc::clone(&self.collections);
        tokio::spawn(resume_collections(Arc::clone(&collections)));
        tokio::spawn(prepare_collections(Arc::clone(&collections)));
        start_sharing_store(SharedState {
            state: Arc::clone(&self.state),
            batches: Arc::clone(&batches),
            collections: Arc::clone(&collections),
            identity: Arc::clone(&self.identity),
        });
        let mut dialects = vec![
            openai,
            anthropic::api(Arc::clone(&self.state)),
            responses,
            files::api(Arc::clone(&self.state)),
            batches::api(&batches),
            ollama::api(Arc::clone(&self.state)),
            llm::api(Llm::new(Arc::clone(&self.state), operating)),
            vector_stores::api(collections),
            rerank::api(Arc::clone(&self.state), openai::error_body),
            login::api(
                Arc::clone(&self.state),
                Arc::clone(&self.identity),
                logins::recorder(&self.audit),
            ),
        ];
        if self.offered.playground {
            dialects.push(mortise_web::api(ELSEWHERE));
        }
        if self.offered.websocket_echo {
            let state = Arc::clone(&self.state);
            dialects.push(echo_socket::api(state, openai::error_body));
        }
        let http = Arc::clone(&self.state.http);
        let router = router(http, dialects, ELSEWHERE).map_err(anyhow::Error::msg);
        startup.complete(router.context("the routes make no contract")?);
        Ok(())
    }
}

/// Tell policies of the last requests, write what they counted, and end all runtimes.
async fn settle(service: &Service, models: &ModelManager, counters: &KeptCounters) {
    let _ = tokio::time::timeout(SETTLE, service.settle()).await;
    let _ = tokio::time::timeout(SETTLE, counters.write()).await;
    let _ = tokio::time::timeout(SETTLE, counters.leave()).await;
    let limit = SETTLE + start::longest_end(&models.statuses());
    let _ = tokio::time::timeout(limit, models.stop()).await;
}

/// Serve the admin side beside the API.
pub(crate) fn start_admin(
    admin: Arc<Admin>,
    door: &Door,
    shares: ConnectionShares,
    limits: ConnectionLimits,
    closing: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    let router = admin.router().map_err(anyhow::Error::msg)?;
    let (endpoint, table) = (Arc::clone(&door.endpoint), ConnectionTable::new(shares));
    supervise("admin-listener", move || {
        let (endpoint, table) = (Arc::clone(&endpoint), Arc::clone(&table));
        serve_beside(
            endpoint,
            router.clone(),
            limits.clone(),
            table,
            closing.clone(),
        )
    });
    tracing::info!("admin side on {}", door.url());
    Ok(())
}
