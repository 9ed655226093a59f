//! State of the handlers of all dialects.

use std::fmt;
use std::sync::{Arc, OnceLock};

use mortise_http::{BodyBudget, HttpState};
use mortise_search::SearchIndex;
use mortise_service::{DocumentReader, Service};
use mortise_store::Store;

use crate::active::ActiveRequests;
use crate::executions::Executions;
use crate::held::HeldFiles;
use crate::library::ModelLibrary;
use crate::limits::MAX_RECORDED_BYTES;
use crate::live::LiveAnswers;
use crate::retention::Retention;
use crate::unsupported::Unsupported;

/// State of the handlers.
pub struct ApiState {
    /// Serves requests.
    pub service: Arc<Service>,
    /// Limits of bodies and streams.
    pub http: Arc<HttpState>,
    /// Treatment of fields that cannot be honoured.
    pub unsupported: Unsupported,
    /// Callers may say how long a model stays loaded.
    pub keep_alive: bool,
    /// Responses, conversations and whatever else outlives a request.
    pub store: Arc<dyn Store>,
    /// Times after which it is gone.
    pub retention: Retention,
    /// Bytes of a file.
    pub max_file_bytes: u64,
    /// Models that come and go; set once the server is tied together, if there is a library.
    pub library: OnceLock<Arc<dyn ModelLibrary>>,
    /// Retriever of the collections that name none; set once the server is tied together, if there is one.
    pub retriever: OnceLock<String>,
    /// Reader of files that are no text; set once the server is tied together.
    pub reader: OnceLock<DocumentReader>,
    /// Requests with an idempotency key that are being answered.
    pub(crate) executions: Executions,
    /// Responses that are being made in the background.
    pub(crate) live: LiveAnswers,
    /// Memory of the answers of both.
    pub(crate) recordings: Arc<BodyBudget>,
    /// Files that are in use.
    pub(crate) files: HeldFiles,
    /// Index of the collections.
    pub(crate) index: Box<dyn SearchIndex>,
    /// Requests that are being answered.
    pub(crate) active: ActiveRequests,
}

impl ApiState {
    /// State of a server that has just started, with the index of the collections that are in its store.
    pub fn new(
        service: Arc<Service>,
        http: Arc<HttpState>,
        unsupported: Unsupported,
        keep_alive: bool,
        (store, index): (Arc<dyn Store>, Box<dyn SearchIndex>),
        retention: Retention,
        max_file_bytes: u64,
    ) -> Self {
        Self {
            service,
            http,
            unsupported,
            keep_alive,
            store,
            retention,
            max_file_bytes,
            library: OnceLock::new(),
            retriever: OnceLock::new(),
            reader: OnceLock::new(),
            executions: Executions::default(),
            live: LiveAnswers::default(),
            recordings: BodyBudget::new(MAX_RECORDED_BYTES),
            files: HeldFiles::default(),
            index,
            active: ActiveRequests::default(),
        }
    }
}

impl fmt::Debug for ApiState {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ApiState")
    }
}
