//! ThemisDB's login: a user name and a password for a token of this server.

mod contract;

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::response::Response;
use http::{Request as HttpRequest, StatusCode};
use mortise_http::contract::Routes;
use mortise_http::{
    Api, Context, Conventions, Dialect, Owner, Problem, json_response, read_object,
};
use mortise_identity::{CallerDirectory, LoginError};
use serde_json::{Map, Value, json};

use crate::state::ApiState;

const LOGIN: &str = "/api/v1/auth/login";

/// Codes of problems by status, as ThemisDB has them.
const CODES: [(u16, &str); 6] = [
    (401, "UNAUTHORIZED"),
    (403, "FORBIDDEN"),
    (404, "NOT_FOUND"),
    (429, "RATE_LIMIT_EXCEEDED"),
    (500, "INTERNAL_ERROR"),
    (503, "UNAVAILABLE"),
];

/// A login, or a try.
#[derive(Debug, Clone)]
pub struct Login {
    /// Address of who asked.
    pub peer: IpAddr,
    /// Name of the user; `None` if there is no such user, since it may be a password.
    pub user: Option<String>,
    /// Code of the refusal.
    pub refused: Option<String>,
    /// The server's id of the request.
    pub request_id: Arc<str>,
}

/// An entry that is being written; an error is the reason why nothing may happen without it.
pub type LoginRecording = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// Records logins.
pub type RecordLogin = Arc<dyn Fn(Login) -> LoginRecording + Send + Sync>;

/// State of the route.
struct LoginState {
    api: Arc<ApiState>,
    identity: Arc<CallerDirectory>,
    record: RecordLogin,
}

/// Paths and shape of problems.
pub const DIALECT: Dialect = Dialect {
    prefix: LOGIN,
    shape: error_body,
    conventions: Conventions::NONE,
};

/// The dialect's route.
pub fn api(api: Arc<ApiState>, identity: Arc<CallerDirectory>, record: RecordLogin) -> Api {
    let (router, operations) = Routes::default().on(contract::login(), log_in).into_parts();
    Api {
        router: router.with_state(Arc::new(LoginState {
            api,
            identity,
            record,
        })),
        dialect: DIALECT,
        routes: &[LOGIN],
        contract: contract::contract(operations),
    }
}

/// A token for whoever knows the password of a user.
async fn log_in(
    State(state): State<Arc<LoginState>>,
    Extension(context): Extension<Context>,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let peer: IpAddr = context.peer.ip();
    let mut reserved = state.api.http.bodies.open(Owner::new(peer, None));
    let limits = &state.api.http.body;
    let mut object = read_object(&parts.headers, body, limits, &mut reserved).await?;
    let name = text(&mut object, "username")?;
    let password = text(&mut object, "password")?;
    if let Some(unknown) = object.keys().next() {
        let message = format!("unknown field `{unknown}`; send `username` and `password`");
        return Err(Problem::invalid(unknown.clone(), message));
    }
    let token = state.identity.log_in(peer, &name, &password).await;
    let token = token.map_err(problem);
    let recorded = (state.record)(Login {
        peer,
        user: state.identity.has_user(&name).then(|| name.clone()),
        refused: token.as_ref().err().map(|problem| problem.code.clone()),
        request_id: Arc::clone(&context.id),
    });
    let recorded = recorded.await;
    let token = token?;
    recorded.map_err(unrecorded)?;
    tracing::info!(request_id = %context.id, user = name, "a user logged in");
    let mut response = json_response(StatusCode::OK, &json!({"token": token}));
    let none = http::HeaderValue::from_static("no-store");
    response
        .headers_mut()
        .insert(http::header::CACHE_CONTROL, none);
    Ok(response)
}

fn text(object: &mut Map<String, Value>, field: &str) -> Result<String, Problem> {
    match object.remove(field) {
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(Problem::invalid(field, format!("`{field}` must be a text"))),
        None => Err(Problem::invalid(field, format!("`{field}` is required"))),
    }
}

fn problem(error: LoginError) -> Problem {
    let message = error.to_string();
    match error {
        LoginError::Wrong => Problem::new(StatusCode::UNAUTHORIZED, "wrong_login", message),
        LoginError::NoUsers => Problem::new(StatusCode::NOT_FOUND, "no_users", message),
        LoginError::TooMany { retry_after } => {
            Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_logins", message)
                .with_header("retry-after", retry_after.to_string())
        }
        LoginError::Busy => Problem::new(StatusCode::SERVICE_UNAVAILABLE, "logins_busy", message)
            .with_header("retry-after", "1"),
    }
}

fn unrecorded(reason: String) -> Problem {
    let message = format!(
        "the audit log cannot be written ({reason}), and `audit.required` lets nobody log in without it"
    );
    let status = StatusCode::SERVICE_UNAVAILABLE;
    Problem::new(status, "audit_unavailable", message).with_header("retry-after", "5")
}

/// A problem in ThemisDB's shape.
fn error_body(problem: &Problem) -> Value {
    let status = problem.status.as_u16();
    let code = CODES.iter().find(|(of, _)| *of == status);
    let code = code.map_or("INVALID_REQUEST", |(_, code)| code);
    let mut error = json!({
        "code": code,
        "message": problem.text(),
        "details": {"reason": problem.code, "param": problem.param},
    });
    let retry = problem
        .headers
        .iter()
        .find(|(name, _)| name == "retry-after");
    let retry = retry.and_then(|(_, seconds)| seconds.parse::<u64>().ok());
    if let Some(seconds) = retry {
        error["retry_after_seconds"] = json!(seconds);
    }
    json!({"error": error})
}
