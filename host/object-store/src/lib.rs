//! Objects in one bucket of an S3-compatible store: listed, read, written and removed.
//!
//! The store is not trusted. Its answers are bounded in bytes and time, redirects are refused, and the content of an object
//! counts only once its length and its SHA-256 digest are those that the caller expects.

mod client;
mod config;
mod error;
mod fetch;
pub mod limits;
mod listing;
mod put;

pub use client::ObjectStore;
pub use config::{BucketConfig, StoreCredentials};
pub use error::ObjectStoreError;
pub use fetch::Expected;
