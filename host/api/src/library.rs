//! Models that callers pull and delete, where the server lets them.

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use http::HeaderMap;
use mortise_http::Problem;

/// Callers who may pull and delete models on routes of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LibraryAccess {
    /// No caller.
    Off,
    /// Callers who give the operator's key.
    Operators,
    /// Every caller that policies let ask for the model.
    Callers,
}

/// Step of a pull.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PullStep {
    /// The pull waits, or asks for files.
    Waiting,
    /// Bytes of a file that are here, of all.
    File {
        /// Name of the file.
        name: String,
        /// Bytes that are here.
        done: u64,
        /// Bytes in all.
        total: u64,
    },
    /// The model is here.
    Completed,
    /// There will be no model, for this reason.
    Failed(String),
}

/// Models that come and go while the server runs, as the server ties them in.
pub trait ModelLibrary: Send + Sync {
    /// Callers who may pull and delete models on routes of the API.
    fn access(&self) -> LibraryAccess;

    /// True if a request carries the operator's key.
    fn knows_key(&self, headers: &HeaderMap) -> bool;

    /// Pull a model of the hub. The stream of steps ends when the pull ends; dropping the stream does not end the pull.
    ///
    /// # Errors
    /// When the model cannot be pulled.
    fn pull(&self, reference: &str) -> Result<BoxStream<'static, PullStep>, Problem>;

    /// Remove a model that is not loaded, with its files.
    fn remove<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), Problem>>;
}
