//! The admin API, by which operators inspect and change a running server. It has a listener and a key of
//! its own, and does not exist unless it is configured.

mod aliases;
mod contract;
mod discovery;
mod events;
pub mod limits;
mod loras;
mod models;
mod row;
mod settings;

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use http::{HeaderMap, StatusCode, header};
use mortise_http::contract::Routes;
use mortise_http::{Problem, ProblemShape, check_connection, json_response, write_problem};
use mortise_models::AliasTable;
use mortise_models::lifecycle::ModelManager;
use mortise_plugin_manager::LivePlugins;
use serde_json::Value;
use subtle::ConstantTimeEq as _;

pub use discovery::Rescan;
pub use settings::{Action, Reloads, SettingsReload};

/// Header that may carry the key instead of `Authorization`.
const ADMIN_TOKEN: &str = "x-admin-token";

/// State of the handlers.
pub struct Admin {
    live: Arc<LivePlugins>,
    models: Arc<ModelManager>,
    aliases: Arc<AliasTable>,
    reloads: Reloads,
    key: String,
    shape: ProblemShape,
}

impl std::fmt::Debug for Admin {
    /// Without the key.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Admin")
    }
}

impl Admin {
    /// Callers must know `key`. Problems are written as `shape` has them.
    pub fn new(
        live: Arc<LivePlugins>,
        models: Arc<ModelManager>,
        aliases: Arc<AliasTable>,
        reloads: Reloads,
        key: String,
        shape: ProblemShape,
    ) -> Arc<Self> {
        Arc::new(Self {
            live,
            models,
            aliases,
            reloads,
            key,
            shape,
        })
    }

    /// All routes. None is reached without the key.
    ///
    /// # Errors
    /// When the routes make no document.
    pub fn router(self: Arc<Self>) -> Result<Router, String> {
        let served = Arc::new(OnceLock::new());
        let (router, operations) = routes(&served).into_parts();
        let _ = served.set(contract::of_operations(operations)?);
        let router = router
            .fallback(unknown_route)
            .method_not_allowed_fallback(unknown_route)
            .layer(middleware::from_fn_with_state(Arc::clone(&self), guard))
            .with_state(self);
        Ok(router)
    }

    fn knows_key(&self, headers: &HeaderMap) -> bool {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let bearer = text(header::AUTHORIZATION.as_str());
        let bearer = bearer.and_then(|value| value.strip_prefix("Bearer "));
        let given = bearer.or_else(|| text(ADMIN_TOKEN));
        given.is_some_and(|given| given.as_bytes().ct_eq(self.key.as_bytes()).into())
    }
}

/// The routes, with one that answers with the document of them all.
fn routes(document: &Arc<OnceLock<Value>>) -> Routes<Arc<Admin>> {
    let document = Arc::clone(document);
    Routes::default()
        .on(contract::document_itself(), move || async move {
            json_response(StatusCode::OK, &document.get())
        })
        .on(contract::plugins(), plugins)
        .on(contract::reload_plugins(), reload)
        .on(contract::list_aliases(), aliases::list)
        .on(contract::get_alias(), aliases::show)
        .on(contract::set_alias(), aliases::set)
        .on(contract::delete_alias(), aliases::remove)
        .on(contract::roll_back_alias(), aliases::roll_back)
        .on(contract::reload_settings(), settings::reload)
        .on(contract::list_models(), models::list)
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
}

async fn guard(State(admin): State<Arc<Admin>>, request: Request, next: Next) -> Response {
    if let Err(problem) = check_connection(&request, false) {
        return write_problem(problem.into_response(), admin.shape);
    }
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    if !admin.knows_key(request.headers()) {
        tracing::warn!(%method, path, "the admin side was asked without its key");
        let message =
            "the admin side needs its key as `Authorization: Bearer KEY` or `X-Admin-Token: KEY`";
        let refusal = Problem::new(StatusCode::UNAUTHORIZED, "invalid_admin_key", message)
            .with_header("www-authenticate", "Bearer");
        return write_problem(refusal.into_response(), admin.shape);
    }
    let response = write_problem(next.run(request).await, admin.shape);
    tracing::info!(%method, path, status = response.status().as_u16(), "admin request");
    response
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
