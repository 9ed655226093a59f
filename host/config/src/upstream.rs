//! The `upstream` table of a model: servers that answer for it.

use std::path::{Path, PathBuf};
use std::str::FromStr as _;

use mortise_models::{
    ApiKey, BaseUrl, Capability, Dispatch, HealthCheck, MaxTokensField, Rendering, UpstreamApi,
    UpstreamConfig, UpstreamTimeouts,
};
use serde::Deserialize;

use super::variables::read;
use super::{ConfigError, invalid, milliseconds, positive, variable_of, within};

/// Servers of one model at most.
const UPSTREAMS_MAX: usize = 64;
/// Texts of one request for embeddings at most: those of a request to this server.
const EMBEDDING_BATCH_MAX: usize = 2048;
/// Further attempts of a request at most.
const RETRIES_MAX: u32 = 10;

/// The `upstream` table as it is written.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawUpstream {
    pub(crate) urls: Vec<String>,
    pub(crate) standby: Vec<String>,
    pub(crate) model: Option<String>,
    pub(crate) api_key_env: Option<String>,
    pub(crate) api_key_file: Option<PathBuf>,
    pub(crate) ca_file: Option<PathBuf>,
    pub(crate) api: RawApi,
    pub(crate) capability: RawCapability,
    pub(crate) embedding_batch: Option<usize>,
    pub(crate) render: RawRender,
    pub(crate) max_tokens_field: RawMaxTokensField,
    pub(crate) thinking: Option<RawThinking>,
    pub(crate) forward_image_urls: bool,
    pub(crate) require_allow_remote: bool,
    pub(crate) dispatch: RawDispatch,
    pub(crate) context_length: Option<usize>,
    pub(crate) max_requests: usize,
    pub(crate) max_retries: Option<u32>,
    pub(crate) connect_timeout_ms: u64,
    pub(crate) first_byte_timeout_ms: u64,
    pub(crate) chunk_timeout_ms: u64,
    pub(crate) health_check: RawHealthCheck,
    pub(crate) health_path: String,
    pub(crate) health_interval_ms: u64,
}

impl Default for RawUpstream {
    fn default() -> Self {
        Self {
            urls: Vec::new(),
            standby: Vec::new(),
            model: None,
            api_key_env: None,
            api_key_file: None,
            ca_file: None,
            api: RawApi::default(),
            capability: RawCapability::default(),
            embedding_batch: None,
            render: RawRender::default(),
            max_tokens_field: RawMaxTokensField::default(),
            thinking: None,
            forward_image_urls: false,
            require_allow_remote: false,
            dispatch: RawDispatch::default(),
            context_length: None,
            max_requests: 256,
            max_retries: None,
            connect_timeout_ms: 5_000,
            first_byte_timeout_ms: 120_000,
            chunk_timeout_ms: 60_000,
            health_check: RawHealthCheck::default(),
            health_path: "models".to_owned(),
            health_interval_ms: 10_000,
        }
    }
}

/// Family of servers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RawApi {
    #[default]
    Openai,
    Vllm,
    LlamaServer,
    Mortise,
}

impl From<RawApi> for UpstreamApi {
    fn from(api: RawApi) -> Self {
        match api {
            RawApi::Openai => Self::Openai,
            RawApi::Vllm => Self::Vllm,
            RawApi::LlamaServer => Self::LlamaServer,
            RawApi::Mortise => Self::Mortise,
        }
    }
}

/// Capability of the model that is asked for there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RawCapability {
    #[default]
    Generate,
    Embed,
}

impl From<RawCapability> for Capability {
    fn from(capability: RawCapability) -> Self {
        match capability {
            RawCapability::Generate => Self::Generate,
            RawCapability::Embed => Self::Embed,
        }
    }
}

/// Renderer of conversations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RawRender {
    #[default]
    Upstream,
    Here,
}

/// Name of the field that limits an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RawMaxTokensField {
    #[default]
    MaxTokens,
    MaxCompletionTokens,
}

/// Reasoning of the upstream's model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RawThinking {
    Enabled,
    Disabled,
}

/// Choice among servers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RawDispatch {
    #[default]
    LeastInflight,
    PrefixAffine,
}

/// Health check of an upstream: by requests of its own, or by configuration only.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RawHealthCheck {
    /// Probe: the upstream is asked.
    #[default]
    Probe,
    /// No probe: the upstream is taken to be healthy.
    ConfigOnly,
}

/// Servers that the command line names: `--upstream` and what goes with it.
#[derive(Debug, Clone, Default)]
pub struct UpstreamOverride {
    /// Base URLs; the models that the first of them to answer lists are served.
    pub urls: Vec<String>,
    /// Environment variable with the key.
    pub key_env: Option<String>,
}

impl UpstreamOverride {
    /// The servers, whose models are to be found by asking.
    pub(super) fn check(&self) -> Result<UpstreamConfig, ConfigError> {
        let raw = RawUpstream {
            urls: self.urls.clone(),
            api_key_env: self.key_env.clone(),
            ..RawUpstream::default()
        };
        raw.check(
            &|name| name.replace('_', "-"),
            "--upstream",
            "",
            Path::new("."),
        )
    }
}

impl RawUpstream {
    /// The checked table. `key` is the path of a key for messages, `urls_key` that of the URLs; the model is
    /// called `name` there if nothing else is said.
    pub(super) fn check(
        self,
        key: &dyn Fn(&str) -> String,
        urls_key: &str,
        name: &str,
        base: &Path,
    ) -> Result<UpstreamConfig, ConfigError> {
        let urls = base_urls(&self.urls, urls_key)?;
        let standby = standby_urls(&self.standby, &urls, &key("standby"))?;
        let retries = self.max_retries.unwrap_or_else(|| {
            // Each other server is asked once.
            u32::try_from(urls.len() + standby.len() - 1).unwrap_or(RETRIES_MAX)
        });
        if self.max_retries.is_some() && retries > RETRIES_MAX {
            let problem = format!("it must be from 0 to {RETRIES_MAX}; it is {retries}");
            return Err(invalid(&key("max_retries"), problem));
        }
        let time = |name: &str, value| milliseconds(&key(name), value);
        self.check_capability(key)?;
        Ok(UpstreamConfig {
            capability: self.capability.into(),
            embedding_batch: self.batch(key)?,
            key: self.secret(key, base)?,
            authorities: match &self.ca_file {
                None => None,
                Some(path) => Some(read(&key("ca_file"), &base.join(path))?),
            },
            model: self.model.unwrap_or_else(|| name.to_owned()),
            api: self.api.into(),
            rendering: match self.render {
                RawRender::Upstream => Rendering::Upstream,
                RawRender::Here => Rendering::Here,
            },
            max_tokens_field: match self.max_tokens_field {
                RawMaxTokensField::MaxTokens => MaxTokensField::MaxTokens,
                RawMaxTokensField::MaxCompletionTokens => MaxTokensField::MaxCompletionTokens,
            },
            thinking: self
                .thinking
                .map(|thinking| thinking == RawThinking::Enabled),
            forward_image_urls: self.forward_image_urls,
            require_allow_remote: self.require_allow_remote,
            dispatch: match self.dispatch {
                RawDispatch::LeastInflight => Dispatch::LeastInflight,
                RawDispatch::PrefixAffine => Dispatch::PrefixAffine,
            },
            context_length: match self.context_length {
                None => None,
                Some(tokens) => Some(positive(&key("context_length"), tokens)?),
            },
            // Known once the callers are.
            reserve_places: false,
            max_requests: positive(&key("max_requests"), self.max_requests)?,
            max_retries: retries.min(RETRIES_MAX),
            timeouts: UpstreamTimeouts {
                connect: time("connect_timeout_ms", self.connect_timeout_ms)?,
                first_byte: time("first_byte_timeout_ms", self.first_byte_timeout_ms)?,
                chunk: time("chunk_timeout_ms", self.chunk_timeout_ms)?,
            },
            health: match self.health_check {
                RawHealthCheck::ConfigOnly => None,
                RawHealthCheck::Probe => Some(HealthCheck {
                    path: health_path(&key("health_path"), self.health_path)?,
                    interval: time("health_interval_ms", self.health_interval_ms)?,
                }),
            },
            urls,
            standby,
        })
    }

    /// Texts of one request for embeddings.
    fn batch(&self, key: &dyn Fn(&str) -> String) -> Result<usize, ConfigError> {
        let usual = UpstreamConfig::new(Vec::new(), "").embedding_batch;
        let batch = self.embedding_batch.unwrap_or(usual);
        within(&key("embedding_batch"), batch, EMBEDDING_BATCH_MAX)
    }

    /// Refuse keys that say nothing to a model of this capability.
    fn check_capability(&self, key: &dyn Fn(&str) -> String) -> Result<(), ConfigError> {
        let given: &[(&str, bool)] = match self.capability {
            RawCapability::Generate => &[("embedding_batch", self.embedding_batch.is_some())],
            RawCapability::Embed => &[
                ("render", self.render != RawRender::default()),
                (
                    "max_tokens_field",
                    self.max_tokens_field != RawMaxTokensField::default(),
                ),
                ("thinking", self.thinking.is_some()),
                ("forward_image_urls", self.forward_image_urls),
            ],
        };
        let Some((name, _)) = given.iter().find(|(_, given)| *given) else {
            return Ok(());
        };
        let problem = match self.capability {
            RawCapability::Generate => "it needs `capability = \"embed\"`",
            RawCapability::Embed => {
                "it is about conversations, and `capability` is \"embed\"; leave it out"
            }
        };
        Err(invalid(&key(name), problem))
    }

    fn secret(
        &self,
        key: &dyn Fn(&str) -> String,
        base: &Path,
    ) -> Result<Option<ApiKey>, ConfigError> {
        let (name, text) = match (&self.api_key_env, &self.api_key_file) {
            (None, None) => return Ok(None),
            (Some(variable), None) => {
                let key = key("api_key_env");
                let text = variable_of(&key, variable)?;
                (key, text)
            }
            (None, Some(path)) => {
                let key = key("api_key_file");
                let text = read(&key, &base.join(path))?;
                (key, text)
            }
            (Some(_), Some(_)) => {
                let problem = "give one of `api_key_env` and `api_key_file`";
                return Err(invalid(&key("api_key_file"), problem));
            }
        };
        let secret = ApiKey::new(&text).map_err(|error| invalid(&name, error.to_string()))?;
        Ok(Some(secret))
    }
}

fn base_urls(urls: &[String], key: &str) -> Result<Vec<BaseUrl>, ConfigError> {
    if urls.is_empty() || urls.len() > UPSTREAMS_MAX {
        let problem = format!(
            "it must list 1 to {UPSTREAMS_MAX} base URLs, such as \"http://127.0.0.1:8000/v1\"; it \
             lists {}",
            urls.len()
        );
        return Err(invalid(key, problem));
    }
    let mut found: Vec<BaseUrl> = Vec::with_capacity(urls.len());
    for text in urls {
        let url = BaseUrl::from_str(text).map_err(|error| invalid(key, error.to_string()))?;
        if found.contains(&url) {
            return Err(invalid(key, format!("it lists `{url}` twice")));
        }
        found.push(url);
    }
    Ok(found)
}

/// Servers that stand by for others, which none of them may be one of.
fn standby_urls(
    standby: &[String],
    urls: &[BaseUrl],
    key: &str,
) -> Result<Vec<BaseUrl>, ConfigError> {
    if standby.is_empty() {
        return Ok(Vec::new());
    }
    let standby = base_urls(standby, key)?;
    if let Some(url) = standby.iter().find(|url| urls.contains(url)) {
        let problem = format!("it lists `{url}`, which `urls` lists too");
        return Err(invalid(key, problem));
    }
    if urls.len() + standby.len() > UPSTREAMS_MAX {
        let problem = format!(
            "`urls` and it may list {UPSTREAMS_MAX} base URLs together; they list {}",
            urls.len() + standby.len()
        );
        return Err(invalid(key, problem));
    }
    Ok(standby)
}

fn health_path(key: &str, path: String) -> Result<String, ConfigError> {
    let plain = |byte: u8| byte.is_ascii_graphic() && !b"\"<>\\^`{|}#".contains(&byte);
    match !path.is_empty() && path.bytes().all(plain) && !path.starts_with("//") {
        true => Ok(path),
        false => Err(invalid(
            key,
            "it must be a path, such as `models` below the base URL or `/health` from the root",
        )),
    }
}
