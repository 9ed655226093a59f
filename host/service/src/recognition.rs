//! Recognition of callers by their credentials, before policies are asked. What is found out reaches the policies as a
//! header of the facts that no caller can send.

use mortise_plugin::Facts;

use crate::error::ServiceError;
use crate::plugins::PluginFuture;

/// Name of the header in which policies are told who was recognised, as JSON. What a caller sends by this name is left
/// out of the facts.
pub const IDENTITY_HEADER: &str = "mortise-identity";

/// Name of the header in which policies are told of the `metadata` of a request, as JSON. What a caller sends by this
/// name is left out of the facts.
pub(crate) const METADATA_HEADER: &str = "mortise-metadata";

/// Recognises callers by what they send.
pub trait RecogniseCaller: Send + Sync {
    /// Facts about the caller who sent these headers, as JSON; `None` if there is nothing to tell.
    fn recognise<'a>(
        &'a self,
        headers: &'a [(String, String)],
    ) -> PluginFuture<'a, Result<Option<String>, ServiceError>>;
}

/// Recognises nobody.
pub(crate) struct RecogniseNobody;

impl RecogniseCaller for RecogniseNobody {
    fn recognise<'a>(
        &'a self,
        _headers: &'a [(String, String)],
    ) -> PluginFuture<'a, Result<Option<String>, ServiceError>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}

/// The facts with what is found out about the caller.
pub(crate) async fn recognised(
    by: &dyn RecogniseCaller,
    mut facts: Facts,
) -> Result<Facts, ServiceError> {
    if let Some(found) = by.recognise(&facts.headers).await? {
        facts.headers.push((IDENTITY_HEADER.to_owned(), found));
    }
    Ok(facts)
}
