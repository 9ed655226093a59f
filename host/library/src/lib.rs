//! Models that come over the network while the server runs: pulled from the hub, or uploaded; and the folder that
//! keeps them.
//!
//! ```text
//! FOLDER/entries/DIGEST.json     a model: its name, where its files are, where it came from
//!       /files/ID/…              files of a model that was uploaded
//!       /incoming/ID/…           files of an upload that is not complete
//!       /hub/…                   models that were pulled, as the cache of the hub has them
//!       /fetching/ID/…           files of a model that come from the object store
//!       /fetching.lock           held while such files come
//!       /lock                    held by the server that uses the folder
//! ```
//!
//! A model exists once its entry does, which is written last and in one step: whatever ends the process, a model is
//! there as a whole or not at all. The same holds in the object store, which has `entries/DIGEST.json` and `files/ID/…` too.

mod contents;
mod entries;
mod error;
mod library;
pub mod limits;
mod name;
mod record;
mod room;

pub use entries::{EntrySource, LibraryEntry};
pub use error::LibraryError;
pub use library::{
    Appending, Library, LibraryCallers, LibraryConfig, Places, PullState, PullStatus, Receiving,
    RescanReport, Ties, UploadFile, UploadInfo, UploadOrder, UploadStatus,
};
pub use mortise_object_store::{BucketConfig, StoreCredentials};
