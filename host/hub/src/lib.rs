//! Models from the Hugging Face hub: which files of a repository a model needs, and how they get
//! into the cache that `huggingface_hub` and other tools share.
//!
//! ```text
//! CACHE/models--ORG--NAME/refs/REVISION            the commit that a branch or tag stands for
//!                        /blobs/ETAG               file contents; ETAG.incomplete while they come
//!                        /snapshots/COMMIT/FILE    links into blobs
//! CACHE/.locks/models--ORG--NAME/ETAG.lock         held while a blob is written
//! ```
//!
//! A download that broke off goes on where it stopped. What the hub says is not trusted: names of files
//! stay within the cache, and contents must have the announced size and, where the hub announces one, the
//! SHA-256 digest.

mod cache;
mod client;
mod error;
mod fetch;
mod reference;
mod remove;
mod select;

pub use cache::CachedRepository;
pub use client::{Hub, HubConfig};
pub use error::HubError;
pub use fetch::{DownloadProgress, INDEX_BYTES_MAX, free_bytes};
pub use reference::ModelReference;
pub use remove::{remove, size_of};
