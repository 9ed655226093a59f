//! Health checks: a request now and then that tells whether an upstream is well.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use mortise_models::HealthCheck;
use tokio::time::{sleep, timeout};

use crate::client::{UpstreamClient, beginning_of};
use crate::limits::{MAX_CHECK_TIME, MAX_LIST_BYTES};
use crate::members::UpstreamMember;

/// Check an upstream for ever.
pub(crate) async fn watch(
    client: UpstreamClient,
    member: Arc<UpstreamMember>,
    health: HealthCheck,
) {
    let url = member.url.join(&health.path);
    loop {
        let problem = problem(&client, &url).await;
        let healthy = problem.is_none();
        if member.healthy.swap(healthy, Relaxed) != healthy {
            let upstream = member.url.as_str();
            match problem {
                Some(problem) => tracing::warn!(upstream, problem, "an upstream is not well"),
                None => tracing::info!(upstream, "an upstream is well again"),
            }
        }
        sleep(health.interval).await;
    }
}

/// Fault that the health check found; `None` if the upstream answers. A refusal is an answer: requests tell whether a
/// key is right.
async fn problem(client: &UpstreamClient, url: &str) -> Option<String> {
    let checked = timeout(MAX_CHECK_TIME, async {
        let response = client.get(url).await.map_err(|none| none.text)?;
        let status = response.status();
        // Read to its end, the connection can be used again.
        beginning_of(response.into_body(), MAX_LIST_BYTES).await;
        match status.is_server_error() {
            true => Err(format!("HTTP {}", status.as_u16())),
            false => Ok(()),
        }
    });
    match checked.await {
        Ok(answered) => answered.err(),
        Err(_) => Some(format!("no answer within {} s", MAX_CHECK_TIME.as_secs())),
    }
}
