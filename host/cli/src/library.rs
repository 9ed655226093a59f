//! The library of models that come over the network, tied to the server around it.

use std::sync::Arc;

use futures::stream::{self, BoxStream, StreamExt as _};
use http::{HeaderMap, StatusCode};
use mortise_admin::{Removal, carries_key, remove_unloaded};
use mortise_api::{LibraryAccess, ModelLibrary, PullStep};
use mortise_config::Config;
use mortise_http::Problem;
use mortise_library::{Library, LibraryCallers, LibraryError, PullState, PullStatus, Ties};
use mortise_models::AliasTable;
use mortise_models::lifecycle::{LifecycleError, ModelManager, ModelState};
use mortise_service::PluginFuture;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use crate::reload::Reloader;

/// Open the library, if there is one; with `shared`, read it only, since the server that this one takes over from has it.
///
/// # Errors
/// When its folder cannot be used.
pub(crate) async fn open(config: &Config, shared: bool) -> anyhow::Result<Option<Arc<Library>>> {
    let Some(library) = config.library.clone() else {
        return Ok(None);
    };
    let open = move || match shared {
        true => Library::read(library),
        false => Library::open(library),
    };
    Ok(Some(tokio::task::spawn_blocking(open).await??))
}

/// Names stay unique, and models that come and go are listed.
pub(crate) fn tie(
    library: &Arc<Library>,
    reloader: &Arc<Reloader>,
    models: &Arc<ModelManager>,
    aliases: &Arc<AliasTable>,
) {
    let (models, aliases) = (Arc::clone(models), Arc::clone(aliases));
    let states = Arc::clone(&models);
    let rescan = reloader.on_request().rescan;
    library.tie(Ties {
        taken: Box::new(move |name| {
            let statuses = models.statuses();
            let is_alias = |name: &str| {
                let mut listed = statuses.iter().flat_map(|model| &model.listing.aliases);
                listed.any(|alias| alias == name) || aliases.row(name).is_some()
            };
            models.status(name).is_some() || is_alias(name)
        }),
        in_use: Box::new(move |name| {
            let state = states.status(name).map(|status| status.state);
            state.is_some_and(|state| !matches!(state, ModelState::Unloaded | ModelState::Failed))
        }),
        changed: Box::new(move || {
            let scan = rescan();
            Box::pin(async move {
                match scan.await.error {
                    None => Ok(()),
                    Some(error) => Err(error),
                }
            })
        }),
    });
    library.copy_all();
}

/// The library as the API's own routes have it.
pub(crate) struct OnApi {
    pub(crate) library: Arc<Library>,
    pub(crate) models: Arc<ModelManager>,
    /// Key of the operators.
    pub(crate) key: Option<String>,
}

impl ModelLibrary for OnApi {
    fn access(&self) -> LibraryAccess {
        match self.library.access() {
            LibraryCallers::Off => LibraryAccess::Off,
            LibraryCallers::Operators => LibraryAccess::Operators,
            LibraryCallers::Callers => LibraryAccess::Callers,
        }
    }

    fn knows_key(&self, headers: &HeaderMap) -> bool {
        let key = self.key.as_ref();
        key.is_some_and(|key| carries_key(headers, key))
    }

    fn pull(&self, reference: &str) -> Result<BoxStream<'static, PullStep>, Problem> {
        // Before the pull begins, so that no step is missed.
        let events = self.library.listen();
        let now = self.library.pull(reference).map_err(refused)?;
        Ok(steps(Arc::clone(&self.library), now, events))
    }

    fn remove<'a>(&'a self, name: &'a str) -> PluginFuture<'a, Result<(), Problem>> {
        Box::pin(async move {
            let removed = remove_unloaded(&self.library, &self.models, name).await;
            removed.map(drop).map_err(|removal| match removal {
                Removal::Lifecycle(error) => {
                    let status = match error {
                        LifecycleError::Unknown(_) => StatusCode::NOT_FOUND,
                        _ => StatusCode::CONFLICT,
                    };
                    Problem::new(status, error.code(), error.to_string())
                }
                Removal::Library(error) => refused(error),
            })
        })
    }
}

/// Steps of a pull, until it ends. Steps that were missed do not matter: each has all that is known.
fn steps(
    library: Arc<Library>,
    now: PullStatus,
    events: Receiver<PullStatus>,
) -> BoxStream<'static, PullStep> {
    let id = now.id.clone();
    let first = stream::iter([step(&now)]);
    let later = stream::unfold(
        (library, events, now.state.has_ended()),
        move |(library, mut events, ended)| {
            let id = id.clone();
            async move {
                if ended {
                    return None;
                }
                let status = loop {
                    match events.recv().await {
                        Ok(status) if status.id == id => break status,
                        Ok(_) => {}
                        Err(RecvError::Lagged(_)) => break library.pull_status(&id).ok()?,
                        Err(RecvError::Closed) => return None,
                    }
                };
                let ended = status.state.has_ended();
                Some((step(&status), (library, events, ended)))
            }
        },
    );
    first.chain(later).boxed()
}

fn step(status: &PullStatus) -> PullStep {
    match (status.state, &status.file) {
        (PullState::Completed, _) => PullStep::Completed,
        (PullState::Failed, _) => {
            // The reason may have paths of this machine.
            PullStep::Failed("the model could not be pulled; the server's log says why".to_owned())
        }
        (PullState::Cancelled, _) => PullStep::Failed("the pull was cancelled".to_owned()),
        (_, Some(name)) => PullStep::File {
            name: name.clone(),
            done: status.bytes_done,
            total: status.bytes_total,
        },
        (_, None) => PullStep::Waiting,
    }
}

/// A refusal for callers of the API, who are not told of this machine.
fn refused(error: LibraryError) -> Problem {
    let status = match &error {
        LibraryError::Hub(_) | LibraryError::Invalid { .. } => StatusCode::BAD_REQUEST,
        LibraryError::NameInUse(_)
        | LibraryError::NotInLibrary(_)
        | LibraryError::BeingPulled(_) => StatusCode::CONFLICT,
        LibraryError::TooMany { .. } => StatusCode::TOO_MANY_REQUESTS,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    match (status, &error) {
        (StatusCode::INTERNAL_SERVER_ERROR, error) => {
            tracing::error!(%error, "the library cannot do what a caller asked for");
            let message = "the library cannot do this now; the server's log says why";
            Problem::new(status, error.code(), message)
        }
        (_, LibraryError::Hub(error)) => {
            Problem::new(status, "invalid_value", error.to_string()).at("model")
        }
        (_, error) => Problem::new(status, error.code(), error.to_string()),
    }
}
