//! Question whether a server answers, without the machinery of requests.

use mortise_models::{BaseUrl, UpstreamConfig};
use tokio::time::timeout;

use crate::client::{ClientError, UpstreamClient, beginning_of};
use crate::limits::{MAX_CHECK_TIME, MAX_LIST_BYTES};

/// Asks the first upstream of a configuration for the status of a path.
pub struct Probe {
    client: UpstreamClient,
    url: Option<BaseUrl>,
}

impl std::fmt::Debug for Probe {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Probe({:?})", self.url)
    }
}

impl Probe {
    /// A probe of the first of these upstreams.
    ///
    /// # Errors
    /// When TLS or the key cannot be set up.
    pub fn new(config: &UpstreamConfig) -> Result<Self, ClientError> {
        Ok(Self {
            client: UpstreamClient::new(config)?,
            url: config.urls.first().cloned(),
        })
    }

    /// Status of a path: below the base URL, or from the root if it begins with `/`.
    ///
    /// # Errors
    /// When there is no answer; the text says why.
    pub async fn status(&self, path: &str) -> Result<u16, String> {
        let url = self.url.as_ref().ok_or("there is no upstream")?.join(path);
        let asked = timeout(MAX_CHECK_TIME, async {
            let response = self.client.get(&url).await.map_err(|none| none.text)?;
            let status = response.status().as_u16();
            beginning_of(response.into_body(), MAX_LIST_BYTES).await;
            Ok(status)
        });
        let late = |_| format!("no answer within {} s", MAX_CHECK_TIME.as_secs());
        asked.await.map_err(late)?
    }
}
