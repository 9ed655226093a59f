//! Routes that lines of a batch are sent to, and the time in which all must be answered.

use crate::fields::words;

words! {
    /// Route that all lines are sent to.
    Endpoint {
        Chat = "/v1/chat/completions",
        Completions = "/v1/completions",
        Embeddings = "/v1/embeddings",
        Responses = "/v1/responses",
    }
}

words! {
    /// Time in which a batch must be complete.
    Window {
        Day = "24h",
    }
}

/// The route of an endpoint.
pub(super) fn route(endpoint: &str) -> Option<&'static str> {
    let mut routes = Endpoint::WORDS.iter();
    routes.find(|route| **route == endpoint).copied()
}
