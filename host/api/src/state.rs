//! State of the handlers of all dialects.

use std::fmt;
use std::sync::Arc;

use mortise_http::HttpState;
use mortise_service::Service;

use crate::unsupported::Unsupported;

/// State of the handlers.
pub struct ApiState {
    /// Serves requests.
    pub service: Arc<Service>,
    /// Limits of bodies and streams.
    pub http: Arc<HttpState>,
    /// Treatment of fields that cannot be honoured.
    pub unsupported: Unsupported,
}

impl fmt::Debug for ApiState {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ApiState")
    }
}
