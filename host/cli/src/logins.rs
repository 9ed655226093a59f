//! Entries of the audit log about users who log in, or try to.

use std::sync::{Arc, Mutex, PoisonError};

use mortise_admin::Refusals;
use mortise_api::login::{Login, RecordLogin};
use serde_json::json;

use crate::audit::Audit;

/// The writer of entries about logins. Of those that were refused, some are recorded one by one, and of the rest the
/// number is.
pub(crate) fn recorder(audit: &Arc<Audit>) -> RecordLogin {
    let (audit, refusals) = (Arc::clone(audit), Arc::<Mutex<Refusals>>::default());
    Arc::new(move |login: Login| {
        let (audit, refusals) = (Arc::clone(&audit), Arc::clone(&refusals));
        Box::pin(async move {
            let mut entry = json!({
                "action": "user.login",
                "outcome": if login.refused.is_none() { "ok" } else { "refused" },
                "peer": login.peer.to_string(),
                "request_id": &*login.request_id,
            });
            if let Some(user) = login.user {
                entry["user"] = json!(user);
            }
            if let Some(code) = login.refused {
                let count = refusals
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .count();
                let Some(left_out) = count else {
                    return Ok(());
                };
                entry["error"] = json!(code);
                if left_out > 0 {
                    entry["refusals_left_out"] = json!(left_out);
                }
            }
            audit.tell(entry).await
        })
    })
}
