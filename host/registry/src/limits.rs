//! Bounds on what a registry may send. What is longer ends the command.

use std::time::Duration;

/// Largest plugin that is pulled or pushed: the largest that a server loads.
pub(crate) const MAX_LAYER_BYTES: u64 = 64 << 20;

/// Largest manifest, and largest configuration of an artifact, which the distribution API limits alike.
pub(crate) const MAX_MANIFEST_BYTES: u64 = 4 << 20;

/// Signatures of cosign that an artifact may have.
pub(crate) const MAX_SIGNATURES: usize = 32;

/// Largest text that a signature of cosign is over.
pub(crate) const MAX_PAYLOAD_BYTES: u64 = 64 << 10;

/// Largest answer about anything else: tokens, lists, errors.
pub(crate) const MAX_ANSWER_BYTES: u64 = 1 << 20;

/// Redirects that are followed for one file.
pub(crate) const MAX_REDIRECTS: usize = 5;

/// Pages of a list that are asked for.
pub(crate) const MAX_PAGES: usize = 100;

/// Names of a list that are kept.
pub(crate) const MAX_LISTED: usize = 10_000;

/// Time for one answer.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Time for the content of one plugin.
pub(crate) const LAYER_TIMEOUT: Duration = Duration::from_secs(600);
