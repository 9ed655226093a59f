//! Errors that name a field of the request.

use crate::error::ServiceError;

/// Code of a JSON Schema that is well-formed JSON and no schema.
pub const INVALID_SCHEMA: &str = "invalid_schema";

/// A field has a value that it must not have.
pub(crate) fn invalid(param: impl Into<String>, message: impl Into<String>) -> ServiceError {
    refuse(param, "invalid_value", message)
}

/// A field is refused with an error code of its own.
pub(crate) fn refuse(
    param: impl Into<String>,
    code: &'static str,
    message: impl Into<String>,
) -> ServiceError {
    ServiceError::Invalid {
        param: Some(param.into()),
        code,
        message: message.into(),
    }
}
