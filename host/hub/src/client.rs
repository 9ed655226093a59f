//! The hub over HTTP: what a repository holds, where a file is, and its bytes from any offset on.

use std::fmt;
use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use ureq::http::{Response, StatusCode, header};
use ureq::{Agent, Body};

use crate::error::HubError;
use crate::reference::ModelReference;

/// Endpoint, token and cache of the hub.
#[derive(Clone)]
pub struct HubConfig {
    /// `https://huggingface.co`, or a mirror.
    pub endpoint: String,
    /// Sent to the endpoint, but not to hosts that it redirects to.
    pub token: Option<String>,
    /// The cache's folder, `~/.cache/huggingface/hub` for other tools.
    pub cache: PathBuf,
    /// Do not ask the hub; take what the cache has.
    pub offline: bool,
    /// Wait before the second attempt; each further wait is twice as long.
    pub retry_delay: Duration,
}

impl HubConfig {
    /// The public hub.
    pub const ENDPOINT: &str = "https://huggingface.co";
}

impl fmt::Debug for HubConfig {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("HubConfig")
            .field("endpoint", &self.endpoint)
            .field("token", &self.token.as_ref().map(|_| "…"))
            .field("cache", &self.cache)
            .field("offline", &self.offline)
            .finish_non_exhaustive()
    }
}

/// A hub and the cache that it fills.
#[derive(Debug)]
pub struct Hub {
    pub(crate) config: HubConfig,
    agent: Agent,
}

/// A repository at one commit.
pub(crate) struct RepositoryListing {
    pub(crate) commit: String,
    pub(crate) files: Vec<String>,
}

/// Metadata of a file, from a HEAD request.
#[derive(Debug)]
pub(crate) struct RemoteFile {
    /// Names the contents; the name of the blob.
    pub(crate) etag: String,
    pub(crate) size: u64,
    /// URL of the content: the endpoint or the storage that it redirects to.
    url: String,
    /// Whether the bytes come from the endpoint itself, which may see the token.
    own: bool,
}

impl RemoteFile {
    /// The SHA-256 digest of the contents, which is the tag of large files.
    pub(crate) fn sha256(&self) -> Option<&str> {
        (self.etag.len() == 64).then_some(self.etag.as_str())
    }
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A connection that sends nothing for so long is given up.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);
const LISTING_BYTES_MAX: u64 = 16 << 20;
const FILES_MAX: usize = 50_000;
const REDIRECTS_MAX: usize = 5;

impl Hub {
    /// A client. Nothing is asked yet.
    pub fn new(mut config: HubConfig) -> Result<Self, HubError> {
        let address = config.endpoint.trim_end_matches('/').to_owned();
        if !address.starts_with("https://") && !address.starts_with("http://") {
            return Err(HubError::Endpoint {
                endpoint: config.endpoint,
            });
        }
        config.endpoint = address;
        let agent = Agent::config_builder()
            // Redirects are followed by hand, so that the token stays with the endpoint.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .http_status_as_error(false)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_recv_response(Some(STALL_TIMEOUT))
            .timeout_per_read(Some(STALL_TIMEOUT))
            .user_agent(concat!("mortise/", env!("CARGO_PKG_VERSION")))
            .build()
            .new_agent();
        Ok(Self { config, agent })
    }

    /// The files of a repository, and the commit that its revision stands for.
    pub(crate) fn list(&self, reference: &ModelReference) -> Result<RepositoryListing, HubError> {
        #[derive(Deserialize)]
        struct Answer {
            sha: String,
            siblings: Vec<Sibling>,
        }
        #[derive(Deserialize)]
        struct Sibling {
            rfilename: String,
        }
        let what = format!("{}@{}", reference.repository, reference.revision);
        let url = format!(
            "{}/api/models/{}/revision/{}",
            self.config.endpoint,
            reference.repository,
            path_segment(&reference.revision)
        );
        let mut response = self.get(&url, true, None).map_err(network(&what))?;
        check_status(response.status(), &what, self.config.token.is_some())?;
        let body = response
            .body_mut()
            .with_config()
            .limit(LISTING_BYTES_MAX)
            .read_to_vec()
            .map_err(network(&what))?;
        let answer: Answer =
            serde_json::from_slice(&body).map_err(|error| unusable(&what, error.to_string()))?;
        if !is_commit(&answer.sha) {
            return Err(unusable(&what, "its commit is not a hexadecimal number"));
        }
        if answer.siblings.len() > FILES_MAX {
            return Err(unusable(
                &what,
                format!("it lists more than {FILES_MAX} files"),
            ));
        }
        let files = answer.siblings.into_iter().map(|file| file.rfilename);
        Ok(RepositoryListing {
            commit: answer.sha,
            files: files.filter(|file| is_relative(file)).collect(),
        })
    }

    /// Ask for a file without its contents.
    pub(crate) fn locate(
        &self,
        repository: &str,
        commit: &str,
        file: &str,
    ) -> Result<RemoteFile, HubError> {
        let what = format!("{repository}/{file}");
        let path: Vec<String> = file.split('/').map(path_segment).collect();
        let mut url = format!(
            "{}/{repository}/resolve/{commit}/{}",
            self.config.endpoint,
            path.join("/")
        );
        let mut own = true;
        let mut etag = None;
        let mut size = None;
        for _ in 0..=REDIRECTS_MAX {
            let response = self.head(&url, own).map_err(network(&what))?;
            // The first answer that names the contents is the hub's; storages have tags of their own.
            let named = text(&response, "x-linked-etag").or_else(|| text(&response, "etag"));
            if etag.is_none() {
                etag = named.map(|tag| tag.trim_start_matches("W/").trim_matches('"').to_owned());
                size = text(&response, "x-linked-size");
            }
            if !response.status().is_redirection() {
                check_status(response.status(), &what, self.config.token.is_some())?;
                let size = size.or_else(|| text(&response, "content-length"));
                return remote_file(&what, etag, size.as_deref(), url, own);
            }
            let Some(target) = text(&response, header::LOCATION.as_str()) else {
                return Err(unusable(&what, "it redirects to nowhere"));
            };
            url = self
                .redirected(&url, &target)
                .map_err(|problem| unusable(&what, problem))?;
            own = self.is_own(&url);
        }
        Err(unusable(&what, "it redirects too often"))
    }

    /// The bytes of a file from `offset` on. Where the server cannot begin there, the second value
    /// is 0: it begins at the start.
    pub(crate) fn read(
        &self,
        what: &str,
        file: &RemoteFile,
        offset: u64,
    ) -> Result<(impl Read + use<>, u64), HubError> {
        let range = (offset > 0).then(|| format!("bytes={offset}-"));
        let response = self
            .get(&file.url, file.own, range.as_deref())
            .map_err(network(what))?;
        let begins = if response.status() == StatusCode::PARTIAL_CONTENT {
            offset
        } else {
            check_status(response.status(), what, self.config.token.is_some())?;
            0
        };
        Ok((response.into_body().into_reader(), begins))
    }

    fn get(
        &self,
        url: &str,
        own: bool,
        range: Option<&str>,
    ) -> Result<Response<Body>, ureq::Error> {
        let mut request = self.agent.get(url);
        if let (true, Some(token)) = (own, &self.config.token) {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        if let Some(range) = range {
            request = request.header(header::RANGE, range);
        }
        request.call()
    }

    fn head(&self, url: &str, own: bool) -> Result<Response<Body>, ureq::Error> {
        // Sizes before compression.
        let mut request = self
            .agent
            .head(url)
            .header(header::ACCEPT_ENCODING, "identity");
        if let (true, Some(token)) = (own, &self.config.token) {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        request.call()
    }

    /// The address that a redirection points at. Never from an encrypted to an open one.
    fn redirected(&self, from: &str, target: &str) -> Result<String, &'static str> {
        let origin = origin(from);
        let url = if let Some(rest) = target.strip_prefix("//") {
            let scheme = from.split("://").next().unwrap_or("https");
            format!("{scheme}://{rest}")
        } else if target.starts_with('/') {
            format!("{origin}{target}")
        } else {
            target.to_owned()
        };
        match (url.starts_with("https://"), url.starts_with("http://")) {
            (true, _) => Ok(url),
            (_, true) if from.starts_with("http://") => Ok(url),
            (_, true) => Err("it redirects from https to http"),
            _ => Err("it redirects to an address that is not HTTP"),
        }
    }

    fn is_own(&self, url: &str) -> bool {
        origin(url) == origin(&self.config.endpoint)
    }
}

/// Scheme, host and port.
fn origin(url: &str) -> &str {
    let host = url.find("://").map_or(0, |at| at + 3);
    let end = url[host..].find(['/', '?', '#']);
    &url[..end.map_or(url.len(), |end| host + end)]
}

fn remote_file(
    what: &str,
    etag: Option<String>,
    size: Option<&str>,
    url: String,
    own: bool,
) -> Result<RemoteFile, HubError> {
    let etag = etag.ok_or_else(|| unusable(what, "it has no ETag"))?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if !(1..=128).contains(&etag.len()) || !etag.bytes().all(plain) {
        return Err(unusable(what, "its ETag is not letters and digits"));
    }
    let size = size.and_then(|size| size.parse().ok());
    let size = size.ok_or_else(|| unusable(what, "it does not say how long it is"))?;
    Ok(RemoteFile {
        etag,
        size,
        url,
        own,
    })
}

fn text(response: &Response<Body>, name: &str) -> Option<String> {
    let value = response.headers().get(name)?.to_str().ok()?;
    Some(value.to_owned())
}

fn network(what: &str) -> impl Fn(ureq::Error) -> HubError + '_ {
    move |source| HubError::Network {
        what: what.to_owned(),
        source: Box::new(source),
    }
}

fn unusable(what: &str, problem: impl Into<String>) -> HubError {
    HubError::Answer {
        what: what.to_owned(),
        problem: problem.into(),
    }
}

fn check_status(status: StatusCode, what: &str, has_token: bool) -> Result<(), HubError> {
    let what = what.to_owned();
    let code = status.as_u16();
    match code {
        200..300 => Ok(()),
        401 | 403 => Err(HubError::Denied {
            what,
            status: code,
            advice: if has_token {
                "the token has no right to it, or the model's terms must be accepted on its page first"
            } else {
                "set HF_TOKEN to a token that may read it"
            },
        }),
        404 => Err(HubError::NotFound { what }),
        _ => Err(HubError::Status { what, status: code }),
    }
}

pub(crate) fn is_commit(text: &str) -> bool {
    (7..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whether a name stays below the folder that it is joined to.
pub(crate) fn is_relative(file: &str) -> bool {
    let part = |part: &str| {
        !matches!(part, "" | "." | "..")
            && !part
                .chars()
                .any(|c| c == '\\' || c == ':' || c.is_control())
    };
    (1..=512).contains(&file.len()) && file.split('/').all(part)
}

/// Everything but unreserved characters (RFC 3986, 2.3).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

fn path_segment(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirections_keep_to_encrypted_addresses() {
        let hub = Hub::new(HubConfig {
            endpoint: "https://hub.example/".to_owned(),
            token: None,
            cache: PathBuf::new(),
            offline: false,
            retry_delay: Duration::ZERO,
        })
        .expect("an address");
        let from = "https://hub.example/a/b";
        for (target, expected) in [
            ("/x?y", Some("https://hub.example/x?y")),
            ("//cdn.example/x", Some("https://cdn.example/x")),
            ("https://cdn.example/x", Some("https://cdn.example/x")),
            ("http://cdn.example/x", None),
            ("file:///etc/passwd", None),
        ] {
            assert_eq!(
                hub.redirected(from, target).ok().as_deref(),
                expected,
                "{target}"
            );
        }
        assert!(hub.is_own("https://hub.example/z") && !hub.is_own("https://hub.example.evil/z"));
        assert!(!hub.is_own("https://hub.example:444/z") && !hub.is_own("http://hub.example/z"));
    }

    #[test]
    fn a12_names_that_leave_the_folder_are_no_files() {
        for name in ["a.json", "1_Pooling/config.json", "modèle.json"] {
            assert!(is_relative(name), "{name}");
        }
        for name in [
            "",
            "/etc/passwd",
            "../x",
            "a/../../x",
            "a//b",
            "a\\..\\b",
            "C:x",
            "a\n",
            "./a",
        ] {
            assert!(!is_relative(name), "{name}");
        }
        assert_eq!(path_segment("refs/pr/1 é"), "refs%2Fpr%2F1%20%C3%A9");
    }
}
