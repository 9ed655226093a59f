//! Callers as the service asks for them.

use std::sync::Arc;

use mortise_identity::CallerDirectory;
use mortise_service::{PluginFuture, RecogniseCaller, ServiceError};

/// Seconds after which a caller may ask again whose issuer's keys could not be had: as long as until they are read
/// again.
const RETRY_AFTER: u32 = 10;

/// Recognises callers by issued keys and by tokens.
pub(crate) struct Callers(pub(crate) Arc<CallerDirectory>);

impl RecogniseCaller for Callers {
    fn recognise<'a>(
        &'a self,
        headers: &'a [(String, String)],
    ) -> PluginFuture<'a, Result<Option<String>, ServiceError>> {
        Box::pin(async move {
            match self.0.recognise(headers).await {
                Ok(found) => Ok(found.map(|found| found.to_string())),
                Err(outage) => Err(ServiceError::Unrecognised {
                    message: outage.to_string(),
                    retry_after: RETRY_AFTER,
                }),
            }
        })
    }
}
