//! Failures of the service as problems: the one place that turns its kinds into statuses, codes and headers.

use http::StatusCode;
use mortise_http::{Problem, WaitEnd, stopping};
use mortise_service::{
    AdapterError, Fault, INVALID_SCHEMA, LifecycleError, PluginError, ServiceError,
};

/// Longest pause that an overloaded server asks for, in seconds.
const LONGEST_WAIT: u64 = 60;

/// Problem that a failure of the service is answered with.
pub(crate) fn problem_of(error: ServiceError) -> Problem {
    let message = error.to_string();
    match error {
        ServiceError::Invalid { param, code, .. } => {
            let status = match code {
                INVALID_SCHEMA => StatusCode::UNPROCESSABLE_ENTITY,
                _ => StatusCode::BAD_REQUEST,
            };
            let mut problem = Problem::new(status, code, message);
            problem.param = param;
            problem
        }
        ServiceError::ModelNotFound { available, .. } => {
            let problem = Problem::new(StatusCode::NOT_FOUND, "model_not_found", message);
            problem.at("model").among(available)
        }
        ServiceError::Adapter(error) => {
            let (status, code) = match error {
                AdapterError::Unsupported { .. } => (StatusCode::BAD_REQUEST, "lora_not_supported"),
                _ => (StatusCode::NOT_FOUND, "lora_not_found"),
            };
            Problem::new(status, code, message).at("lora_adapter")
        }
        ServiceError::Model(error) => model_error(&error),
        ServiceError::Denied(denial) => {
            let status = StatusCode::from_u16(denial.status)
                .ok()
                .filter(StatusCode::is_client_error)
                .unwrap_or(StatusCode::FORBIDDEN);
            let mut problem = Problem::new(status, &denial.code, message);
            problem.kind = Some(denial.kind.into_boxed_str());
            problem.headers = denial.headers;
            if let Some(ms) = denial.retry_after_ms {
                problem = problem.with_header("retry-after", ms.div_ceil(1000).max(1).to_string());
            }
            problem
        }
        ServiceError::ContextLength { param, .. } => {
            Problem::new(StatusCode::BAD_REQUEST, "context_length_exceeded", message).at(param)
        }
        ServiceError::QueueFull { retry_after, .. } => {
            Problem::new(StatusCode::TOO_MANY_REQUESTS, "queue_full", message)
                .with_header("retry-after", retry_after.to_string())
        }
        ServiceError::TenantQueueFull { retry_after, .. } => {
            Problem::new(StatusCode::TOO_MANY_REQUESTS, "tenant_queue_full", message)
                .with_header("retry-after", retry_after.to_string())
        }
        ServiceError::Overloaded { seconds } => unavailable("overloaded", message)
            .with_header("retry-after", seconds.clamp(1, LONGEST_WAIT).to_string()),
        ServiceError::CountersLost => counters_lost(message),
        ServiceError::Plugin(error) => plugin_error(&error),
        ServiceError::Engine(_) => {
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "engine_error", message)
        }
        ServiceError::Upstream(_) => {
            Problem::new(StatusCode::BAD_GATEWAY, "upstream_error", message)
        }
        ServiceError::Unavailable { retry_after, .. } => unavailable("model_unavailable", message)
            .with_header("retry-after", retry_after.to_string()),
        ServiceError::Unrecognised { retry_after, .. } => {
            unavailable("identity_unavailable", message)
                .with_header("retry-after", retry_after.to_string())
        }
        ServiceError::ClientTimeout => WaitEnd::Client.problem(),
        ServiceError::QueueTimeout => WaitEnd::Queue.problem(),
        ServiceError::CancelledByOperator => cancelled(message),
        ServiceError::Stopping => stopping(),
    }
}

/// No status that clients take as a reason to send the request again.
fn cancelled(message: String) -> Problem {
    Problem::new(StatusCode::FORBIDDEN, "request_cancelled", message)
}

fn unavailable(code: &str, message: String) -> Problem {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, code, message)
}

/// Problem of a model that cannot be used now. The caller is told that a load failed, and no details: they may name
/// files, and stand in the log and on the admin side.
fn model_error(error: &LifecycleError) -> Problem {
    let (status, retry_after) = match error {
        LifecycleError::Unknown(_) => (StatusCode::NOT_FOUND, None),
        LifecycleError::NotLoaded(_)
        | LifecycleError::Failed { .. }
        | LifecycleError::Late { .. }
        | LifecycleError::Stuck(_) => (StatusCode::CONFLICT, None),
        LifecycleError::Loaded(_)
        | LifecycleError::Excluded { .. }
        | LifecycleError::BadOverride { .. } => (StatusCode::CONFLICT, None),
        LifecycleError::Loading(_) | LifecycleError::Unloading(_) => {
            (StatusCode::CONFLICT, Some(1))
        }
        LifecycleError::Unloaded(_) => (StatusCode::SERVICE_UNAVAILABLE, Some(1)),
        LifecycleError::NoRoom { .. } => (StatusCode::SERVICE_UNAVAILABLE, Some(10)),
        LifecycleError::Stopping => return stopping(),
    };
    let message = match error {
        LifecycleError::Failed { model, .. } => format!(
            "the model `{model}` has failed; the server's log says why, and an operator can load it \
             again"
        ),
        LifecycleError::Late { model, .. } | LifecycleError::Stuck(model) => format!(
            "the model `{model}` was not loaded in time; the server's log says why, and an operator can load it again"
        ),
        LifecycleError::NoRoom { model, .. } => {
            format!("there is no room to load the model `{model}` at present")
        }
        LifecycleError::Excluded { model, .. } => {
            format!("the model `{model}` may not run beside one that is loaded and stays so")
        }
        error => error.to_string(),
    };
    let problem = Problem::new(status, error.code(), message).at("model");
    match retry_after {
        Some(seconds) => problem.with_header("retry-after", seconds.to_string()),
        // It would meet the same end.
        None => problem.with_header("x-should-retry", "false"),
    }
}

fn counters_lost(message: String) -> Problem {
    let unavailable = StatusCode::SERVICE_UNAVAILABLE;
    Problem::new(unavailable, "counters_unavailable", message).with_header("retry-after", "1")
}

/// Problem of a plugin's failure. A refusal has the plugin's own message, since the caller can act on it. A trap, a
/// missed deadline or a defect has its kind alone: details may quote a panic, and stand in the log and on the admin
/// side.
fn plugin_error(error: &PluginError) -> Problem {
    let fault = &error.fault;
    let (status, code) = match fault {
        Fault::Invalid(_) => (StatusCode::BAD_REQUEST, "invalid_value"),
        Fault::TooComplex(_) => (StatusCode::BAD_REQUEST, "too_complex"),
        Fault::Unsupported(_) => (StatusCode::BAD_REQUEST, "unsupported_value"),
        Fault::Internal(_) => (StatusCode::INTERNAL_SERVER_ERROR, "plugin_internal"),
        Fault::Deadline { .. } => (StatusCode::INTERNAL_SERVER_ERROR, "plugin_deadline"),
        Fault::Budget { .. } => (StatusCode::INTERNAL_SERVER_ERROR, "plugin_budget"),
        Fault::Memory { .. } => (StatusCode::INTERNAL_SERVER_ERROR, "plugin_memory"),
        Fault::Stack => (StatusCode::INTERNAL_SERVER_ERROR, "plugin_stack"),
        Fault::Output { .. } => (StatusCode::INTERNAL_SERVER_ERROR, "plugin_output"),
        Fault::Trap(_) => (StatusCode::INTERNAL_SERVER_ERROR, "plugin_trap"),
        Fault::InvalidResult(_) => (StatusCode::INTERNAL_SERVER_ERROR, "plugin_invalid_result"),
        Fault::ModelOutput(_) => (StatusCode::INTERNAL_SERVER_ERROR, "model_output"),
        Fault::Overloaded { .. } => (StatusCode::SERVICE_UNAVAILABLE, "plugin_overloaded"),
        Fault::Suspended { .. } => (StatusCode::SERVICE_UNAVAILABLE, "plugin_suspended"),
        Fault::CountersLost => (StatusCode::SERVICE_UNAVAILABLE, "counters_unavailable"),
    };
    if let Fault::ModelOutput(_) = fault {
        // The same request would meet the same end.
        let problem = Problem::new(status, code, fault.to_string());
        return problem.with_header("x-should-retry", "false");
    }
    let Some((happened, retry)) = outline(fault) else {
        // Which plugin said so is no business of the caller's.
        return Problem::new(status, code, fault.to_string());
    };
    let advice = match retry {
        Retry::Later(_) => "retry later",
        Retry::Once => "the request may be retried",
        Retry::InVain => "the same request is likely to fail again",
    };
    let message = format!(
        "the {} plugin {happened}; {advice}; the server's log says more under the request id {}",
        error.kind, error.request_id
    );
    let problem = Problem::new(status, code, message);
    match retry {
        Retry::Later(seconds) => problem.with_header("retry-after", seconds.to_string()),
        Retry::Once => problem,
        // OpenAI's clients retry what is answered with 500, unless they are told this.
        Retry::InVain => problem.with_header("x-should-retry", "false"),
    }
}

/// Retry advice after a breakdown.
enum Retry {
    /// After so many seconds.
    Later(u64),
    /// At once, since an instance that broke down is replaced.
    Once,
    /// Never: the call exceeded a limit, and would exceed it again.
    InVain,
}

/// A breakdown in words that quote nothing; `None` for a refusal.
fn outline(fault: &Fault) -> Option<(&'static str, Retry)> {
    Some(match fault {
        Fault::Invalid(_)
        | Fault::TooComplex(_)
        | Fault::Unsupported(_)
        | Fault::ModelOutput(_) => return None,
        Fault::Internal(_) => ("reports a defect of its own", Retry::Once),
        Fault::Deadline { .. } => ("did not answer in time", Retry::Once),
        Fault::Trap(_) => ("broke down", Retry::Once),
        Fault::InvalidResult(_) => ("gave an answer that makes no sense", Retry::Once),
        Fault::Budget { .. } => ("used up its time for one request", Retry::InVain),
        Fault::Memory { .. } => ("asked for more memory than it may have", Retry::InVain),
        Fault::Stack => ("overflowed its stack", Retry::InVain),
        Fault::Output { .. } => ("answered with more bytes than it may", Retry::InVain),
        Fault::Overloaded { .. } => ("is busy with other requests", Retry::Later(1)),
        Fault::CountersLost => (
            "cannot reach the counters that several hosts share",
            Retry::Later(1),
        ),
        Fault::Suspended { retry_after_ms } => {
            let seconds = retry_after_ms.div_ceil(1000).max(1);
            (
                "failed too often and is not called for a while",
                Retry::Later(seconds),
            )
        }
    })
}

#[cfg(test)]
mod tests {
    use mortise_service::Kind;

    use super::*;

    fn told(fault: Fault) -> (Problem, String) {
        let error = problem_of(ServiceError::Plugin(PluginError {
            plugin: "acme_secrets".into(),
            version: "0123456789ab".into(),
            kind: Kind::OutputParser,
            function: "output-parser.feed",
            request_id: "request-7".into(),
            fault,
            printed: "at src/vault.rs:7: the password is hunter2".into(),
        }));
        let text = error.message.to_string();
        (error, text)
    }

    #[test]
    fn feature_x4_a_model_that_was_unloaded_meanwhile_may_be_asked_again() {
        let gone = LifecycleError::Unloaded("m".to_owned());
        let problem = problem_of(ServiceError::Model(gone));
        assert_eq!(problem.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(problem.code, "model_unloaded");
        let retry = |(name, _): &(_, _)| *name == "retry-after";
        assert!(problem.headers.iter().any(retry));
    }

    #[test]
    fn breakdowns_quote_nothing_of_the_plugin() {
        let words = || "at src/vault.rs:7: the password is hunter2".to_owned();
        let faults = [
            (Fault::Internal(words()), None),
            (Fault::Trap(words()), None),
            (Fault::InvalidResult(words()), None),
            (Fault::Deadline { deadline_ms: 4321 }, None),
            (
                Fault::Budget { budget_ms: 4321 },
                Some("x-should-retry: false"),
            ),
            (
                Fault::Memory { limit_bytes: 4321 },
                Some("x-should-retry: false"),
            ),
            (Fault::Stack, Some("x-should-retry: false")),
            (
                Fault::Output { limit_bytes: 4321 },
                Some("x-should-retry: false"),
            ),
            (
                Fault::Overloaded { instances: 4321 },
                Some("retry-after: 1"),
            ),
            (
                Fault::Suspended {
                    retry_after_ms: 4321,
                },
                Some("retry-after: 5"),
            ),
        ];
        for (fault, header) in faults {
            let code = format!("plugin_{}", fault.label().replace('-', "_"));
            let (error, text) = told(fault);
            assert_eq!(error.code, code);
            assert!(error.status.is_server_error(), "{code}");
            for part in ["the output-parser plugin ", "request-7"] {
                assert!(text.contains(part), "{text}");
            }
            let advice = ["retry later", "may be retried", "fail again"];
            assert!(advice.iter().any(|part| text.contains(part)), "{text}");
            for part in ["hunter2", "vault", ".rs", "acme", "0123", "feed", "4321"] {
                assert!(!text.contains(part), "{code} tells {part}: {text}");
            }
            let headers = error.headers.iter();
            let headers: Vec<String> = headers.map(|(name, v)| format!("{name}: {v}")).collect();
            assert_eq!(headers, header.into_iter().collect::<Vec<_>>(), "{code}");
        }
    }

    #[test]
    fn refusals_read_as_the_plugin_wrote_them() {
        let words = || "send fewer tools".to_owned();
        for fault in [
            Fault::Invalid(words()),
            Fault::TooComplex(words()),
            Fault::Unsupported(words()),
        ] {
            let (error, text) = told(fault);
            assert_eq!(error.status, StatusCode::BAD_REQUEST);
            assert!(text.contains("send fewer tools"), "{text}");
        }
        let (error, text) = told(Fault::ModelOutput("has too many calls".to_owned()));
        assert_eq!((error.status.as_u16(), &*error.code), (500, "model_output"));
        assert_eq!(text, "the model's output has too many calls");
    }
}
