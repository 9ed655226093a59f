//! The admin API, by which operators inspect and change a running server. It has a listener and a key of
//! its own, and does not exist unless it is configured.

mod aliases;
mod audit;
mod bindings;
mod collection_contract;
mod collections;
mod contract;
mod discovery;
mod events;
mod gpu;
mod key_contract;
mod keys;
mod library;
mod library_contract;
pub mod limits;
mod loras;
mod models;
mod persist;
mod plugin_contract;
mod plugin_files;
mod queues;
mod quotas;
mod requests;
mod row;
mod settings;
mod spend;
mod uploads;
mod watch;

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use mortise_http::contract::Routes;
use mortise_http::{
    Api, Problem, ProblemShape, check_connection, json_response, metrics_elsewhere, write_problem,
};
use mortise_identity::CallerDirectory;
use mortise_library::Library;
use mortise_models::AliasTable;
use mortise_models::lifecycle::ModelManager;
use mortise_plugin_manager::LivePlugins;
use serde_json::Value;
use subtle::ConstantTimeEq as _;
use tokio::sync::{Mutex, Semaphore};

use self::audit::{Requests, ending};
use self::limits::{MAX_EVENT_STREAMS, MAX_PLUGIN_UPLOADS};
pub use audit::{AuditEntry, AuditRecording, Auditor, Refusals};
pub use collections::{Ask, DocumentContent, Documents, Telling};
pub use discovery::Rescan;
pub use library::{Removal, library_off, remove_unloaded};
pub use persist::{KeepChange, KeptBindings, PersistRequest};
pub use settings::{Action, Inquiry, Reloads, SettingsCheck, SettingsReload};
pub use spend::Spending;
pub use uploads::take_form;
pub use watch::{RequestRow, ServerFigures, ServerWatch, TenantRow};

/// Metrics in a format of Prometheus.
pub(crate) const METRICS: &str = "/metrics";

/// Header that may carry the key instead of `Authorization`.
const ADMIN_TOKEN: &str = "x-admin-token";

/// State of the handlers.
pub struct Admin {
    live: Arc<LivePlugins>,
    models: Arc<ModelManager>,
    aliases: Arc<AliasTable>,
    identity: Arc<CallerDirectory>,
    reloads: Reloads,
    key: String,
    audit: Option<Requests>,
    metrics: Option<MetricsPage>,
    watch: Arc<dyn ServerWatch>,
    page: Option<Api>,
    /// Slots for streams of events.
    streams: Arc<Semaphore>,
    /// Slots for uploads of plugins.
    plugin_uploads: Arc<Semaphore>,
    /// Held while a binding changes.
    bindings: Mutex<()>,
    library: Option<Arc<Library>>,
    documents: Arc<dyn Documents>,
    /// Becomes true when the server takes no new work.
    draining: tokio::sync::watch::Receiver<bool>,
    spending: Option<Spending>,
    /// Limits of keys as they were last looked at for events.
    quotas: quotas::Watched,
    shape: ProblemShape,
}

/// Writes the answer with the numbers that Prometheus reads, in the format that the headers of the request ask for.
pub type MetricsPage = Box<dyn Fn(&HeaderMap) -> Response + Send + Sync>;

/// Parts of the server around the admin side.
pub struct Around {
    /// Issued keys and users.
    pub identity: Arc<CallerDirectory>,
    /// Records what callers do.
    pub auditor: Option<Arc<dyn Auditor>>,
    /// Numbers that this side shows.
    pub metrics: Option<MetricsPage>,
    /// Requests and their figures.
    pub watch: Arc<dyn ServerWatch>,
    /// The page for browsers, which needs no key itself.
    pub page: Option<Api>,
    /// Models that come and go over the network; `None`: none do.
    pub library: Option<Arc<Library>>,
    /// Collections of documents.
    pub documents: Arc<dyn Documents>,
    /// Becomes true when the server takes no new work.
    pub draining: tokio::sync::watch::Receiver<bool>,
    /// Prices and totals of requests.
    pub spending: Option<Spending>,
}

impl std::fmt::Debug for Admin {
    /// Without the key.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Admin")
    }
}

impl Admin {
    /// The admin side of a server. Callers must give `key`; `around` has the audit log and the metrics; problems are
    /// written in `shape`.
    pub fn new(
        live: Arc<LivePlugins>,
        models: Arc<ModelManager>,
        aliases: Arc<AliasTable>,
        reloads: Reloads,
        key: String,
        around: Around,
        shape: ProblemShape,
    ) -> Arc<Self> {
        Arc::new(Self {
            live,
            models,
            aliases,
            identity: around.identity,
            reloads,
            key,
            audit: around.auditor.map(Requests::new),
            metrics: around.metrics,
            watch: around.watch,
            page: around.page,
            streams: Arc::new(Semaphore::new(MAX_EVENT_STREAMS)),
            plugin_uploads: Arc::new(Semaphore::new(MAX_PLUGIN_UPLOADS)),
            bindings: Mutex::new(()),
            library: around.library,
            documents: around.documents,
            draining: around.draining,
            spending: around.spending,
            quotas: quotas::Watched::default(),
            shape,
        })
    }

    /// All routes. Each requires the key, but for those of the page and of its files.
    ///
    /// # Errors
    /// When the routes make no document.
    pub fn router(self: Arc<Self>) -> Result<Router, String> {
        let served = Arc::new(OnceLock::new());
        let (router, mut operations) = routes(&served).into_parts();
        let page = self.page.clone();
        let paths = page.as_ref().map_or(&[][..], |page| page.routes);
        if let Some(page) = &page {
            operations.extend(page.contract.operations.iter().cloned());
        }
        let _ = served.set(contract::of_operations(operations, paths)?);
        let shown = page.map_or_else(Router::new, |page| page.router);
        let open = shown.layer(middleware::from_fn_with_state(Arc::clone(&self), open));
        let router = router
            .fallback(unknown_route)
            .method_not_allowed_fallback(unknown_route)
            .layer(middleware::from_fn_with_state(Arc::clone(&self), guard))
            .with_state(self);
        Ok(router.merge(open))
    }

    /// Refuse a request without the key: 401 with no key, 403 with another one.
    fn check_key(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let bytes = |name: &str| headers.get(name).map(HeaderValue::as_bytes);
        let bearer = bytes(header::AUTHORIZATION.as_str());
        let bearer = bearer.and_then(|value| value.strip_prefix(b"Bearer "));
        let Some(given) = bearer.or_else(|| bytes(ADMIN_TOKEN)) else {
            let message = "the admin side needs its key as `Authorization: Bearer KEY` or `X-Admin-Token: KEY`";
            return Err(
                Problem::new(StatusCode::UNAUTHORIZED, "missing_admin_key", message)
                    .with_header("www-authenticate", "Bearer"),
            );
        };
        if given.ct_eq(self.key.as_bytes()).into() {
            return Ok(());
        }
        let message = "this is not the key of the admin side";
        Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", message))
    }
}

/// True if a request carries a key, in either of two headers.
pub fn carries_key(headers: &HeaderMap, key: &str) -> bool {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let bearer = text(header::AUTHORIZATION.as_str());
    let bearer = bearer.and_then(|value| value.strip_prefix("Bearer "));
    let given = [bearer, text(ADMIN_TOKEN)].into_iter().flatten();
    // Both are compared: behind the API's own key may stand that of the operator.
    given.fold(false, |known, given| {
        known | bool::from(given.as_bytes().ct_eq(key.as_bytes()))
    })
}

/// Routes of the admin side, with the route of the document of all of these routes.
fn routes(document: &Arc<OnceLock<Value>>) -> Routes<Arc<Admin>> {
    let document = Arc::clone(document);
    of_keys(of_collections(Routes::default()))
        .on(contract::document_itself(), move || async move {
            json_response(StatusCode::OK, &document.get())
        })
        .on(contract::metrics(), metrics)
        .on(contract::plugins(), plugins)
        .on(contract::reload_plugins(), reload)
        .on(plugin_contract::list_files(), plugin_files::list)
        .on(plugin_contract::put_file(), plugin_files::put)
        .on(plugin_contract::check_file(), plugin_files::check)
        .on(plugin_contract::delete_file(), plugin_files::remove)
        .on(plugin_contract::list_versions(), plugin_files::versions)
        .on(plugin_contract::roll_back_file(), plugin_files::roll_back)
        .on(plugin_contract::list_bindings(), bindings::list)
        .on(plugin_contract::set_binding(), bindings::set)
        .on(plugin_contract::delete_binding(), bindings::remove)
        .on(contract::list_aliases(), aliases::list)
        .on(contract::get_alias(), aliases::show)
        .on(contract::set_alias(), aliases::set)
        .on(contract::delete_alias(), aliases::remove)
        .on(contract::roll_back_alias(), aliases::roll_back)
        .on(contract::reload_settings(), settings::reload)
        .on(contract::check_settings(), settings::check)
        .on(contract::list_queues(), queues::list)
        .on(contract::list_models(), models::list)
        .on(contract::gpu_memory(), gpu::memory)
        .on(contract::rescan(), discovery::rescan)
        .on(contract::rescan_short(), discovery::rescan)
        .on(contract::restart_models(), discovery::restart)
        .on(contract::get_model(), models::show)
        .on(contract::load_model(), models::load)
        .on(contract::unload_model(), models::unload)
        .on(contract::model_log(), models::log)
        .on(contract::load_named(), models::load_named)
        .on(contract::unload_named(), models::unload_named)
        .on(contract::list_loras(), loras::list)
        .on(contract::get_lora(), loras::show)
        .on(contract::load_lora(), loras::load)
        .on(contract::unload_lora(), loras::unload)
        .on(contract::events(), events::stream)
        .on(contract::list_requests(), requests::list)
        .on(contract::cancel_request(), requests::cancel)
        .on(contract::list_audit(), audit::list)
        .on(library_contract::list_library(), library::list)
        .on(library_contract::remove_model(), library::remove)
        .on(library_contract::pull_model(), library::pull)
        .on(library_contract::list_pulls(), library::list_pulls)
        .on(library_contract::get_pull(), library::show_pull)
        .on(library_contract::cancel_pull(), library::cancel_pull)
        .on(library_contract::ingest(), uploads::ingest)
        .on(library_contract::begin_upload(), uploads::begin)
        .on(library_contract::list_uploads(), uploads::list)
        .on(library_contract::get_upload(), uploads::show)
        .on(library_contract::append_chunk(), uploads::append)
        .on(library_contract::cancel_upload(), uploads::cancel)
        .on(spend::operation(), spend::show)
}

/// Add the routes of keys.
fn of_keys(routes: Routes<Arc<Admin>>) -> Routes<Arc<Admin>> {
    routes
        .on(key_contract::list_keys(), keys::list)
        .on(key_contract::create_key(), keys::create)
        .on(key_contract::get_key(), keys::show)
        .on(key_contract::update_key(), keys::update)
        .on(key_contract::delete_key(), keys::remove)
        .on(key_contract::rotate_key(), keys::rotate)
        .on(key_contract::revoke_key(), keys::revoke)
        .on(quotas::key_operation(), quotas::show)
        .on(quotas::list_operation(), quotas::list)
}

/// Add the routes of collections.
fn of_collections(routes: Routes<Arc<Admin>>) -> Routes<Arc<Admin>> {
    routes
        .on(collection_contract::list(), collections::list)
        .on(collection_contract::create(), collections::create)
        .on(collection_contract::get(), collections::show)
        .on(collection_contract::delete(), collections::remove)
        .on(collection_contract::search(), collections::search)
        .on(collection_contract::list_files(), collections::files)
        .on(collection_contract::add_file(), collections::add)
        .on(collection_contract::detach(), collections::detach)
        .on(collection_contract::reembed(), collections::reembed)
        .on(
            collection_contract::keep_vectors(),
            collections::keep_vectors,
        )
}

/// Routes without a key: the page and its files, which hold no data.
async fn open(State(admin): State<Arc<Admin>>, request: Request, next: Next) -> Response {
    if let Err(problem) = check_connection(&request, false) {
        return write_problem(problem.into_response(), admin.shape);
    }
    write_problem(next.run(request).await, admin.shape)
}

async fn guard(State(admin): State<Arc<Admin>>, request: Request, next: Next) -> Response {
    if let Err(problem) = check_connection(&request, false) {
        return write_problem(problem.into_response(), admin.shape);
    }
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    if let Err(refusal) = admin.check_key(request.headers()) {
        tracing::warn!(%method, path, code = refusal.code, "the admin side was asked without its key");
        let audit = admin.audit.as_ref();
        let entry = audit.and_then(|audit| audit.refusal(&request, &refusal));
        if let (Some(audit), Some(entry)) = (audit, entry) {
            // Nothing happens, so nothing is held up.
            let _ = audit.record(entry).await;
        }
        return write_problem(refusal.into_response(), admin.shape);
    }
    let response = write_problem(audited(&admin, request, next).await, admin.shape);
    tracing::info!(%method, path, status = response.status().as_u16(), "admin request");
    response
}

/// Answer a request between its entries in the audit log.
async fn audited(admin: &Admin, request: Request, next: Next) -> Response {
    let audit = admin.audit.as_ref();
    let entry = audit.and_then(|audit| audit.beginning(&request));
    let (Some(audit), Some(entry)) = (audit, entry) else {
        return next.run(request).await;
    };
    if let Err(problem) = audit.record(entry.clone()).await {
        return problem.into_response();
    }
    let response = next.run(request).await;
    let ended = ending(entry, &response);
    // It has happened; the log of the server tells of an entry that was not kept.
    let _ = audit.record(ended).await;
    response
}

/// Metrics in a format of Prometheus.
async fn metrics(State(admin): State<Arc<Admin>>, headers: HeaderMap) -> Response {
    match &admin.metrics {
        Some(page) => page(&headers),
        None => metrics_elsewhere(METRICS).into_response(),
    }
}

/// Assignments of plugins.
async fn plugins(State(admin): State<Arc<Admin>>) -> Response {
    json_response(StatusCode::OK, &admin.live.status())
}

/// Read configuration and plugins again. 409 if nothing could be taken; a file that was refused
/// beside others that were taken is told of with 200.
async fn reload(State(admin): State<Arc<Admin>>) -> Response {
    let reload = admin.live.reload("admin request").await;
    let status = match reload.error {
        Some(_) => StatusCode::CONFLICT,
        None => StatusCode::OK,
    };
    json_response(status, &reload.to_json())
}

async fn unknown_route(request: Request) -> Problem {
    let path: String = request.uri().path().chars().take(200).collect();
    Problem::new(
        StatusCode::NOT_FOUND,
        "unknown_route",
        format!("the admin side has no route {} {path}", request.method()),
    )
}
