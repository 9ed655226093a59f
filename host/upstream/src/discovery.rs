//! Models that an upstream lists: how `mortise serve --upstream` learns what to serve.

use std::collections::HashSet;

use mortise_models::{Capability, UpstreamApi, UpstreamConfig};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::timeout;

use crate::client::{ClientError, UpstreamClient, beginning_of};
use crate::limits::{MAX_CHECK_TIME, MAX_LIST_BYTES, MAX_LISTED_MODELS};
use crate::refusal::shortened;

/// The list of an upstream's models cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DiscoveryError {
    /// No client can be made.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// No upstream answers at the address.
    #[error("the upstream `{url}` cannot be asked for its models; is it running? {problem}")]
    Unreachable {
        /// Address that was asked.
        url: String,
        /// Description of the failure.
        problem: String,
    },
    /// The answer is no list of models.
    #[error("the upstream `{url}` gave no list of models: {problem}")]
    NoList {
        /// Address that was asked.
        url: String,
        /// Description of the answer.
        problem: String,
    },
}

#[derive(Deserialize)]
struct List {
    data: Vec<Listed>,
}

#[derive(Deserialize)]
struct Listed {
    id: String,
    owned_by: Option<String>,
    max_model_len: Option<usize>,
    /// Capabilities of a loaded model, as a mortise tells them.
    #[serde(default)]
    capabilities: Value,
    /// Member in which a llama-server tells its `n_ctx`.
    #[serde(default)]
    meta: Value,
}

impl Listed {
    /// Capability that the model is served for: to embed, where the server says so and nothing of an ability to generate.
    fn capability(&self) -> Capability {
        let has = |name: &str| {
            let names = self.capabilities.as_array();
            names.is_some_and(|names| names.iter().any(|known| known == name))
        };
        match has(Capability::Embed.name()) && !has(Capability::Generate.name()) {
            true => Capability::Embed,
            false => Capability::Generate,
        }
    }

    /// Tokens of a prompt and its answer, if the server tells.
    fn context_length(&self) -> Option<usize> {
        let tokens = || self.meta["n_ctx"].as_u64()?.try_into().ok();
        self.max_model_len
            .or_else(tokens)
            .filter(|tokens| *tokens > 0)
    }
}

/// Configuration for each model that the upstreams list: they serve the same ones, and the first that answers is asked.
/// `owned_by` tells the family of servers, unless `api` says.
///
/// # Errors
/// When no upstream answers with a list of models: what the first one did.
pub async fn discover(
    config: &UpstreamConfig,
    api: Option<UpstreamApi>,
) -> Result<Vec<UpstreamConfig>, DiscoveryError> {
    let client = UpstreamClient::new(config)?;
    let mut first = None;
    for url in &config.urls {
        let url = url.join("models");
        match listed(&client, &url).await {
            Ok(list) => return Ok(found(config, api, &url, list)),
            Err(error) => {
                if config.urls.len() > 1 {
                    tracing::warn!(%error, "the next upstream is asked for the models");
                }
                first.get_or_insert(error);
            }
        }
    }
    Err(first.unwrap_or_else(|| DiscoveryError::NoList {
        url: String::new(),
        problem: "no upstream is named".to_owned(),
    }))
}

/// Models that one upstream lists.
async fn listed(client: &UpstreamClient, url: &str) -> Result<Vec<Listed>, DiscoveryError> {
    let asked = timeout(MAX_CHECK_TIME, async {
        let response = client.get(url).await.map_err(|none| none.text)?;
        let status = response.status();
        Ok::<_, String>((
            status,
            beginning_of(response.into_body(), MAX_LIST_BYTES).await,
        ))
    });
    let unreachable = |problem: String| DiscoveryError::Unreachable {
        url: url.to_owned(),
        problem,
    };
    let late = |_| unreachable(format!("no answer within {} s", MAX_CHECK_TIME.as_secs()));
    let (status, (body, whole)) = asked.await.map_err(late)?.map_err(unreachable)?;
    let no_list = |problem: String| DiscoveryError::NoList {
        url: url.to_owned(),
        problem,
    };
    if !status.is_success() {
        return Err(no_list(format!(
            "it answered with HTTP {}",
            status.as_u16()
        )));
    }
    if !whole {
        return Err(no_list(format!(
            "it broke off, or is longer than {MAX_LIST_BYTES} bytes"
        )));
    }
    read_list(&body).map_err(no_list)
}

/// Configuration for each model of a list.
fn found(
    config: &UpstreamConfig,
    api: Option<UpstreamApi>,
    url: &str,
    list: Vec<Listed>,
) -> Vec<UpstreamConfig> {
    let of = |listed: Listed| UpstreamConfig {
        capability: listed.capability(),
        api: api.unwrap_or_else(|| api_of(listed.owned_by.as_deref())),
        context_length: listed.context_length().or(config.context_length),
        model: listed.id,
        ..config.clone()
    };
    let models: Vec<UpstreamConfig> = list.into_iter().map(of).collect();
    for model in &models {
        tracing::info!(
            model = shortened(&model.model),
            api = model.api.name(),
            capability = model.capability.name(),
            url,
            "found on the upstream"
        );
    }
    models
}

/// The models of a list, each with an id of its own; an error says what is wrong with the list.
fn read_list(body: &[u8]) -> Result<Vec<Listed>, String> {
    let list: List = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let count = list.data.len();
    if count == 0 || count > MAX_LISTED_MODELS {
        return Err(format!(
            "it has {count} models; 1 to {MAX_LISTED_MODELS} can be served"
        ));
    }
    let mut ids = HashSet::new();
    let mut models = list.data.iter();
    match models.find(|model| model.id.is_empty() || !ids.insert(&model.id)) {
        Some(twice) => Err(format!(
            "it has the model `{}` twice, or one without an id",
            shortened(&twice.id)
        )),
        None => Ok(list.data),
    }
}

/// The family of servers that lists a model with this owner.
fn api_of(owner: Option<&str>) -> UpstreamApi {
    match owner {
        Some("vllm" | "sglang") => UpstreamApi::Vllm,
        Some("llamacpp") => UpstreamApi::LlamaServer,
        Some("mortise") => UpstreamApi::Mortise,
        _ => UpstreamApi::Openai,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_and_capabilities_are_found_where_servers_have_them() {
        let list = br#"{"data": [
            {"id": "a", "max_model_len": 100}, {"id": "b", "meta": {"n_ctx": 200, "n_ctx_train": 300}},
            {"id": "c", "meta": "none"}, {"id": "d", "meta": {"n_ctx": 0}}, {"id": "e"},
            {"id": "f", "capabilities": ["embed"]}, {"id": "g", "capabilities": ["generate", "embed"]},
            {"id": "h", "capabilities": {"embed": 1}}
        ]}"#;
        let list = read_list(list).expect("a list");
        let contexts: Vec<_> = list.iter().map(Listed::context_length).collect();
        assert_eq!(contexts[..5], [Some(100), Some(200), None, None, None]);
        let embed: Vec<&str> = list
            .iter()
            .filter(|listed| listed.capability() == Capability::Embed)
            .map(|listed| listed.id.as_str())
            .collect();
        assert_eq!(embed, ["f"]);
    }
}
