//! Bounds that only the dialects have. Those of a request's parts are in [`mortise_service::limits`].

use mortise_service::limits::MAX_JSON_DEPTH;

/// Most prompts in one completion request.
pub(crate) const MAX_PROMPTS: usize = 32;

// A body's depth is bounded before it is parsed, by the bound that the service has for its parts.
const _: () = assert!(mortise_http::MAX_DEPTH == MAX_JSON_DEPTH);
