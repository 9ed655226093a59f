//! Health of the server: checks with a state each, which `/health` and `/ready` tell of.

use axum::response::Response;
use http::StatusCode;
use serde_json::{Map, Value, json};

use crate::problem::json_response;

/// State of a part of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckState {
    /// The part works.
    Ok,
    /// The part works in part, or needs an operator.
    Degraded,
    /// The part does not work.
    Failed,
}

impl CheckState {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Degraded => "degraded",
            Self::Failed => "failed",
        }
    }
}

/// A check of a part of the server.
#[derive(Debug, Clone)]
pub struct Check {
    /// Name of the part.
    pub name: &'static str,
    /// State of the part.
    pub state: CheckState,
    /// True if only a restart helps when the part has failed: `/health` answers 503 then.
    pub vital: bool,
    /// True if the server takes no new work when the part has failed: `/ready` answers 503 then.
    pub required: bool,
    /// More about a state other than `ok`, without a name; `null` is nothing.
    pub detail: Value,
}

impl Check {
    fn has_failed(&self) -> bool {
        self.state == CheckState::Failed
    }
}

/// Function that checks the parts of the server. Called for every health request, so it must not block.
pub type Checks = Box<dyn Fn() -> Vec<Check> + Send + Sync>;

/// Answer of `/health` (liveness): 503 if a vital part has failed.
pub(crate) fn health(checks: &[Check]) -> Response {
    let failed = checks.iter().any(|check| check.vital && check.has_failed());
    let vital = checks.iter().filter(|check| check.vital);
    let (status, word) = match failed {
        false => (StatusCode::OK, "ok"),
        true => (StatusCode::SERVICE_UNAVAILABLE, "failed"),
    };
    json_response(status, &json!({"status": word, "checks": states(vital)}))
}

/// True if new work is welcome to a server that has started and does not drain.
pub(crate) fn ready(checks: &[Check]) -> Response {
    let failed = checks
        .iter()
        .any(|check| (check.required || check.vital) && check.has_failed());
    let (status, word) = match failed {
        false => (StatusCode::OK, "ready"),
        true => (StatusCode::SERVICE_UNAVAILABLE, "not_ready"),
    };
    let mut body = json!({"status": word, "checks": states(checks.iter())});
    for check in checks {
        if !check.detail.is_null() {
            body[check.name] = check.detail.clone();
        }
    }
    json_response(status, &body)
}

fn states<'a>(checks: impl Iterator<Item = &'a Check>) -> Map<String, Value> {
    checks
        .map(|check| (check.name.to_owned(), json!(check.state.name())))
        .collect()
}
