//! Configuration of a model that other servers answer for.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::capability::Capability;
use crate::limits::MAX_BASE_URL_BYTES;

/// Servers with an OpenAI-compatible API that answer for a model, and how they are asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamConfig {
    /// Base URLs; at least one.
    pub urls: Vec<BaseUrl>,
    /// Base URLs of servers that are asked only while none of `urls` can be.
    pub standby: Vec<BaseUrl>,
    /// Name of the model there.
    pub model: String,
    /// API key, sent as `Authorization: Bearer KEY`.
    pub key: Option<ApiKey>,
    /// Certificates of authorities in PEM, trusted in place of the public ones.
    pub authorities: Option<String>,
    /// Fields that the servers know.
    pub api: UpstreamApi,
    /// Capability of the model that is asked for there: generate or embed.
    pub capability: Capability,
    /// Texts of one request for embeddings to a server; longer lists are sent in parts.
    pub embedding_batch: usize,
    /// Renderer of conversations.
    pub rendering: Rendering,
    /// Name of the field that limits an answer.
    pub max_tokens_field: MaxTokensField,
    /// Whether the model reasons, where a request does not say.
    pub thinking: Option<bool>,
    /// Addresses of images are passed on, for the server to fetch.
    pub forward_image_urls: bool,
    /// Requests must say `allow_remote`.
    pub require_allow_remote: bool,
    /// Choice among several servers.
    pub dispatch: Dispatch,
    /// Tokens that a conversation and its answer may have together, if known.
    pub context_length: Option<usize>,
    /// Requests under way at once.
    pub max_requests: usize,
    /// A tenant that has as many requests under way as there are free places takes no more.
    pub reserve_places: bool,
    /// Further attempts of one request.
    pub max_retries: u32,
    /// Bounds of time.
    pub timeouts: UpstreamTimeouts,
    /// Health checks; `None`: a server counts as healthy because it is configured.
    pub health: Option<HealthCheck>,
}

impl UpstreamConfig {
    /// A model of these servers, with defaults in all else.
    pub fn new(urls: Vec<BaseUrl>, model: impl Into<String>) -> Self {
        let others = urls.len().saturating_sub(1);
        Self {
            urls,
            standby: Vec::new(),
            model: model.into(),
            key: None,
            authorities: None,
            api: UpstreamApi::default(),
            capability: Capability::Generate,
            embedding_batch: 64,
            rendering: Rendering::default(),
            max_tokens_field: MaxTokensField::default(),
            thinking: None,
            forward_image_urls: false,
            require_allow_remote: false,
            dispatch: Dispatch::default(),
            context_length: None,
            max_requests: 256,
            reserve_places: false,
            max_retries: u32::try_from(others).unwrap_or(u32::MAX),
            timeouts: UpstreamTimeouts::default(),
            health: Some(HealthCheck::default()),
        }
    }
}

/// Bounds of time of one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpstreamTimeouts {
    /// Name lookup, TCP and TLS.
    pub connect: Duration,
    /// Time from the connection to the first byte of the answer's body.
    pub first_byte: Duration,
    /// Time between two pieces of the answer.
    pub chunk: Duration,
}

impl Default for UpstreamTimeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            first_byte: Duration::from_secs(120),
            chunk: Duration::from_secs(60),
        }
    }
}

/// Periodic request that tells whether a server is well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthCheck {
    /// Path to ask: below the base URL, or from the root if it begins with `/`.
    pub path: String,
    /// Pause between two checks.
    pub interval: Duration,
}

impl Default for HealthCheck {
    fn default() -> Self {
        Self {
            path: "models".to_owned(),
            interval: Duration::from_secs(10),
        }
    }
}

/// Family of servers: extension fields that exist, and the form of constraints.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UpstreamApi {
    /// OpenAI's own fields.
    #[default]
    Openai,
    /// vLLM; SGLang has the same sampling fields.
    Vllm,
    /// llama.cpp's server.
    LlamaServer,
    /// Another mortise server.
    Mortise,
}

impl UpstreamApi {
    /// Name of the family, as configurations have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Openai => "openai",
            Self::Vllm => "vllm",
            Self::LlamaServer => "llama-server",
            Self::Mortise => "mortise",
        }
    }
}

/// Renderer of conversations, which makes prompts of them and reads the answer for reasoning and tool calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Rendering {
    /// The upstream, which is sent the conversation.
    #[default]
    Upstream,
    /// Plugins of this server; the upstream is sent tokens to complete.
    Here,
}

/// Name of the field that limits the tokens of an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MaxTokensField {
    /// `max_tokens`, which every server knows but OpenAI's newest models.
    #[default]
    MaxTokens,
    /// `max_completion_tokens`.
    MaxCompletionTokens,
}

/// Choice among several servers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Dispatch {
    /// Least in flight: the server with the fewest requests under way.
    #[default]
    LeastInflight,
    /// Prefix affinity: the server that the beginning of the conversation hashes to, so that its prefix cache is used.
    PrefixAffine,
}

/// Secret of a server. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

/// A text that is no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a key has letters, digits and signs only, and at least one")]
pub struct BadApiKey;

impl ApiKey {
    /// A key of printable ASCII; white space around it does not count.
    ///
    /// # Errors
    /// When it is empty or has other characters.
    pub fn new(key: &str) -> Result<Self, BadApiKey> {
        let key = key.trim();
        match !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic()) {
            true => Ok(Self(key.to_owned())),
            false => Err(BadApiKey),
        }
    }

    /// The secret itself.
    pub fn secret(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ApiKey(…)")
    }
}

/// Base URL of an API, such as `http://127.0.0.1:8000/v1`; without a slash at its end.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BaseUrl(String);

/// A text that is no base URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadBaseUrl {
    /// The text begins with neither `http://` nor `https://`.
    #[error("a base URL begins with `http://` or `https://`, such as `http://127.0.0.1:8000/v1`")]
    Scheme,
    /// The URL has no host.
    #[error("a base URL names a host after `//`")]
    Host,
    /// The URL has a user or a password, which would be logged.
    #[error(
        "a base URL holds no user or password; give the key by `api_key_env` or `api_key_file`"
    )]
    Secret,
    /// The URL has a query or a fragment.
    #[error("a base URL has neither `?` nor `#`")]
    Query,
    /// The text is too long, or has characters that no URL has.
    #[error("a base URL has at most {MAX_BASE_URL_BYTES} letters, digits and signs")]
    Characters,
}

impl BaseUrl {
    /// The URL.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Scheme, host and port, such as `http://127.0.0.1:8000`.
    pub fn origin(&self) -> &str {
        let host = self.0.find("//").map_or(0, |at| at + 2);
        let end = self.0[host..]
            .find('/')
            .map_or(self.0.len(), |at| host + at);
        &self.0[..end]
    }

    /// Address of `path`: below the base, or from the root if it begins with `/`.
    pub fn join(&self, path: &str) -> String {
        match path.strip_prefix('/') {
            Some(path) => format!("{}/{path}", self.origin()),
            None => format!("{}/{path}", self.0),
        }
    }

    /// Whether what is sent there can be read on the way: no TLS, and another machine.
    pub fn is_open(&self) -> bool {
        let Some(host) = self.origin().strip_prefix("http://") else {
            return false;
        };
        let host = host.rsplit_once(':').map_or(host, |(host, port)| {
            // The colons of an address in brackets separate no port.
            if port.ends_with(']') {
                &self.origin()[7..]
            } else {
                host
            }
        });
        let loopback = host == "localhost" || host.starts_with("127.") || host == "[::1]";
        !loopback
    }
}

impl FromStr for BaseUrl {
    type Err = BadBaseUrl;

    fn from_str(text: &str) -> Result<Self, BadBaseUrl> {
        let graphic = |byte: u8| byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte);
        if text.len() > MAX_BASE_URL_BYTES || !text.bytes().all(graphic) {
            return Err(BadBaseUrl::Characters);
        }
        let rest = ["http://", "https://"]
            .iter()
            .find_map(|scheme| text.strip_prefix(scheme));
        let authority = rest.ok_or(BadBaseUrl::Scheme)?;
        let authority = authority.split(['/', '?', '#']).next().unwrap_or_default();
        if authority.contains('@') {
            return Err(BadBaseUrl::Secret);
        }
        if authority.is_empty() || authority.starts_with(':') {
            return Err(BadBaseUrl::Host);
        }
        if text.contains(['?', '#']) {
            return Err(BadBaseUrl::Query);
        }
        Ok(Self(text.trim_end_matches('/').to_owned()))
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_urls_are_checked_and_joined() {
        let url: BaseUrl = "http://10.0.0.7:8000/v1/".parse().expect("a base URL");
        assert_eq!(url.as_str(), "http://10.0.0.7:8000/v1");
        assert_eq!(url.join("models"), "http://10.0.0.7:8000/v1/models");
        assert_eq!(url.join("/health"), "http://10.0.0.7:8000/health");
        let bare: BaseUrl = "https://models.example".parse().expect("a base URL");
        assert_eq!(bare.join("/health"), "https://models.example/health");
        for (text, problem) in [
            ("", BadBaseUrl::Scheme),
            ("ftp://a", BadBaseUrl::Scheme),
            ("http://", BadBaseUrl::Host),
            ("http://:80/v1", BadBaseUrl::Host),
            ("http://me:secret@a/v1", BadBaseUrl::Secret),
            ("http://a/v1?key=s", BadBaseUrl::Query),
            ("http://a/v1#x", BadBaseUrl::Query),
            ("http://a b", BadBaseUrl::Characters),
            ("http://a\r\nx: y", BadBaseUrl::Characters),
        ] {
            assert_eq!(text.parse::<BaseUrl>(), Err(problem), "{text:?}");
        }
    }

    #[test]
    fn open_ways_are_known() {
        let open = |text: &str| text.parse::<BaseUrl>().expect("a base URL").is_open();
        for text in [
            "http://10.0.0.7:8000/v1",
            "http://models.example",
            "http://[fe80::1]/v1",
        ] {
            assert!(open(text), "{text}");
        }
        for text in [
            "https://models.example",
            "http://localhost:1/v1",
            "http://127.0.0.1",
            "http://[::1]:8000",
            "http://[::1]/v1",
        ] {
            assert!(!open(text), "{text}");
        }
    }

    #[test]
    fn keys_are_never_printed() {
        let key = ApiKey::new(" s3cret\n").expect("a key");
        assert_eq!(key.secret(), "s3cret");
        let urls = vec!["http://a".parse().expect("a base URL")];
        let config = UpstreamConfig {
            key: Some(key),
            ..UpstreamConfig::new(urls, "m")
        };
        assert!(!format!("{config:?}").contains("s3cret"));
        for bad in ["", " ", "a b", "a\r\nb", "ü"] {
            assert_eq!(ApiKey::new(bad), Err(BadApiKey), "{bad:?}");
        }
    }
}
