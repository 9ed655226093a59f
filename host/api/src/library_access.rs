//! Callers who may pull and delete models.

use axum::body::Body;
use http::request::Parts;
use http::{HeaderMap, Request as HttpRequest, StatusCode};
use mortise_http::{Context, Owner, Problem, read_object};
use serde_json::{Map, Value};

use crate::call::call_of;
use crate::library::{LibraryAccess, ModelLibrary};
use crate::problem::problem_of;
use crate::receive::receive;
use crate::state::ApiState;

/// The library, for a caller who may change it.
///
/// # Errors
/// When nobody may, or only others.
fn open_to<'a>(state: &'a ApiState, headers: &HeaderMap) -> Result<&'a dyn ModelLibrary, Problem> {
    let library = state.library.get().map(|library| &**library);
    let library = library.filter(|library| library.access() != LibraryAccess::Off);
    let Some(library) = library else {
        let message =
            "models come and go on the admin side; an operator can allow it here, as `library.api`";
        return Err(Problem::new(StatusCode::FORBIDDEN, "admin_only", message));
    };
    if library.access() == LibraryAccess::Operators && !library.knows_key(headers) {
        let message = "this route needs the key of the admin side, as `X-Admin-Token: KEY` or \
                       `Authorization: Bearer KEY`";
        let problem = Problem::new(StatusCode::UNAUTHORIZED, "invalid_admin_key", message);
        return Err(problem.with_header("www-authenticate", "Bearer"));
    }
    Ok(library)
}

/// The head and the body of a request that changes the library. Operators are known by their key, callers as ever.
pub(crate) async fn read(
    state: &ApiState,
    context: &Context,
    route: &'static str,
    request: HttpRequest<Body>,
) -> Result<(Parts, Map<String, Value>), Problem> {
    let library = open_to(state, request.headers())?;
    if library.access() == LibraryAccess::Callers {
        let received = receive(state, context, route, request).await?;
        return Ok((received.parts, received.object));
    }
    let (parts, body) = request.into_parts();
    let mut reserved = state.http.bodies.open(Owner::new(context.peer.ip(), None));
    let object = read_object(&parts.headers, body, &state.http.body, &mut reserved).await?;
    Ok((parts, object))
}

/// The library, for a caller who may change this model of it.
pub(crate) async fn open_for<'a>(
    state: &'a ApiState,
    context: &Context,
    (route, method): (&'static str, &'static str),
    headers: &HeaderMap,
    model: &str,
) -> Result<&'a dyn ModelLibrary, Problem> {
    let library = open_to(state, headers)?;
    if library.access() == LibraryAccess::Callers {
        let call = call_of(context, route, method, headers);
        let admitted = state.service.authorize(&call, Some(model)).await;
        admitted.map_err(problem_of)?;
    }
    tracing::info!(model, route, "a model is to come or go");
    Ok(library)
}
