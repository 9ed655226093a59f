//! Registry over HTTP: the requests of the distribution API that plugins need.

use std::path::PathBuf;
use std::time::Duration;

use mortise_outbound::{
    Grant, Network, Origin, Outbound, OutboundRequest, OutboundResponse, is_public,
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};

use crate::challenge::Challenge;
use crate::credentials::Credentials;
use crate::digest::Digest;
use crate::error::RegistryError;
use crate::limits::{
    ANSWER_TIMEOUT, LAYER_TIMEOUT, MAX_ANSWER_BYTES, MAX_LISTED, MAX_MANIFEST_BYTES, MAX_PAGES,
    MAX_REDIRECTS,
};
use crate::manifest::MANIFEST;
use crate::reference::{Reference, is_repository, is_tag};
use crate::store::sealed::Contents;

/// Names of a page of a list.
const PAGE: usize = 100;

/// Characters of a registry's own words that are told.
const MAX_DETAIL: usize = 300;

/// Query values: everything but unreserved characters (RFC 3986, 2.3).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Settings of a client.
#[derive(Debug, Clone, Default)]
pub struct RegistryConfig {
    /// Speak HTTP without TLS, which this machine's own registries are spoken to by anyway.
    pub plain_http: bool,
    /// Origins at private addresses that the registry may name as its token service or storage.
    pub origins: Vec<Origin>,
    /// Files with credentials, in the form of Docker's `config.json`.
    pub credentials: Vec<PathBuf>,
}

/// Client of one registry. Its calls block.
#[derive(Debug)]
pub struct RegistryClient {
    /// Host and port.
    name: String,
    base: String,
    origin: Origin,
    config: RegistryConfig,
    /// Header that the registry took last.
    authorization: Option<String>,
    runtime: Runtime,
}

/// Request to the registry.
struct Call<'a> {
    what: String,
    method: &'static str,
    url: String,
    accept: Option<&'static str>,
    content: Option<(&'static str, &'a [u8])>,
    limit: u64,
    timeout: Duration,
}

impl Call<'_> {
    fn new(what: String, method: &'static str, url: String) -> Self {
        Self {
            what,
            method,
            url,
            accept: None,
            content: None,
            limit: MAX_ANSWER_BYTES,
            timeout: ANSWER_TIMEOUT,
        }
    }
}

impl RegistryClient {
    /// A client. Nothing is asked yet.
    ///
    /// # Errors
    /// When the name is none of a registry.
    pub fn new(name: &str, config: RegistryConfig) -> Result<Self, RegistryError> {
        let host = name.rsplit_once(':').map_or(name, |(host, _)| host);
        let here = ["localhost", "127.0.0.1", "[::1]"].contains(&host) || name == "localhost";
        let scheme = match config.plain_http || here {
            true => "http",
            false => "https",
        };
        let base = format!("{scheme}://{name}");
        let what = "the name of the registry";
        let origin = Origin::of_url(&base)
            .map_err(|error| RegistryError::unsound(what, error.to_string()))?;
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(RegistryError::file("the runtime"))?;
        Ok(Self {
            name: name.to_owned(),
            base,
            origin,
            config,
            authorization: None,
            runtime,
        })
    }

    /// Names of repositories that have `term` in them, where the registry has a catalogue.
    ///
    /// # Errors
    /// When the registry has none, or does not tell.
    pub fn search(&mut self, term: &str) -> Result<Vec<String>, RegistryError> {
        let mut found = self.list("the catalogue", "_catalog", "repositories")?;
        found.retain(|name| is_repository(name) && name.contains(term));
        Ok(found)
    }

    /// Tags of a repository.
    ///
    /// # Errors
    /// When there is no such repository, or the registry does not tell.
    pub fn tags(&mut self, repository: &str) -> Result<Vec<String>, RegistryError> {
        let what = format!("the tags of `{repository}`");
        let mut tags = self.list(&what, &format!("{repository}/tags/list"), "tags")?;
        tags.retain(|tag| is_tag(tag));
        Ok(tags)
    }

    /// A list, page by page. The next one begins behind the last name, so that no address of the registry's
    /// is followed.
    fn list(&mut self, what: &str, path: &str, field: &str) -> Result<Vec<String>, RegistryError> {
        let mut names: Vec<String> = Vec::new();
        for _ in 0..MAX_PAGES {
            let last = names.last().map(|last| {
                let last = utf8_percent_encode(last, RESERVED);
                format!("&last={last}")
            });
            let last = last.unwrap_or_default();
            let url = format!("{}/v2/{path}?n={PAGE}{last}", self.base);
            let answer = self.expect(&Call::new(what.to_owned(), "GET", url))?;
            let body: Value = serde_json::from_slice(&answer.body).map_err(|error| {
                RegistryError::unsound(what, format!("it is not JSON: {error}"))
            })?;
            let page = body[field].as_array().into_iter().flatten();
            let page: Vec<String> = page
                .filter_map(|name| Some(name.as_str()?.to_owned()))
                .collect();
            let more = answer.headers.iter().any(|(name, _)| name == "link");
            let nothing = page.last().is_none_or(|last| names.contains(last));
            names.extend(page);
            if nothing || !more || names.len() >= MAX_LISTED {
                break;
            }
        }
        names.dedup();
        names.truncate(MAX_LISTED);
        Ok(names)
    }

    /// An answer with a good status.
    fn expect(&mut self, call: &Call<'_>) -> Result<OutboundResponse, RegistryError> {
        let answer = self.follow(call)?;
        match answer.status {
            200..300 => Ok(answer),
            _ => Err(self.refusal(call, &answer)),
        }
    }

    /// Make a call, with credentials where the registry wants some, and follow where it leads.
    fn follow(&mut self, call: &Call<'_>) -> Result<OutboundResponse, RegistryError> {
        let mut url = call.url.clone();
        let mut tried = false;
        let mut redirects = 0;
        loop {
            let own = self.is_own(&call.what, &url)?;
            let authorization = self.authorization.clone().filter(|_| own);
            let answer = self.send(call, &url, authorization)?;
            match answer.status {
                401 if own && !tried => {
                    tried = true;
                    let Some(authorization) = self.answer_to(call, &answer)? else {
                        return Ok(answer);
                    };
                    self.authorization = Some(authorization);
                }
                301 | 302 | 303 | 307 | 308 if matches!(call.method, "GET" | "HEAD") => {
                    redirects += 1;
                    if redirects > MAX_REDIRECTS {
                        return Err(RegistryError::unsound(
                            &call.what,
                            "it is redirected too often",
                        ));
                    }
                    url = self.target(&call.what, &url, header(&answer, "location"))?;
                }
                _ => return Ok(answer),
            }
        }
    }

    fn is_own(&self, what: &str, url: &str) -> Result<bool, RegistryError> {
        let origin = Origin::of_url(url);
        let origin = origin.map_err(|error| RegistryError::unsound(what, error.to_string()))?;
        Ok(origin == self.origin)
    }

    /// The address that a redirect or a location names. Never from an encrypted to an open one.
    fn target(
        &self,
        what: &str,
        from: &str,
        target: Option<&str>,
    ) -> Result<String, RegistryError> {
        let Some(target) = target else {
            return Err(RegistryError::unsound(what, "it is redirected to nowhere"));
        };
        let scheme = from.split("://").next().unwrap_or("https");
        let authority_end = from[scheme.len() + 3..]
            .find(['/', '?'])
            .map_or(from.len(), |end| scheme.len() + 3 + end);
        let url = match target {
            _ if target.starts_with("//") => format!("{scheme}:{target}"),
            _ if target.starts_with('/') => format!("{}{target}", &from[..authority_end]),
            _ => target.to_owned(),
        };
        match scheme == "https" && !url.starts_with("https://") {
            true => Err(RegistryError::Redirect {
                what: what.to_owned(),
                target: shown(&url),
                problem: "which is not encrypted",
            }),
            false => Ok(url),
        }
    }

    /// Send one request, to an address that may be asked.
    fn send(
        &self,
        call: &Call<'_>,
        url: &str,
        authorization: Option<String>,
    ) -> Result<OutboundResponse, RegistryError> {
        let origin = Origin::of_url(url)
            .map_err(|error| RegistryError::unsound(&call.what, error.to_string()))?;
        // The operator named the registry and the listed origins; others come from the registry.
        let named = origin == self.origin || self.config.origins.contains(&origin);
        if let Some(address) = origin.address()
            && !named
            && !is_public(address)
        {
            return Err(RegistryError::Redirect {
                what: call.what.clone(),
                target: shown(url),
                problem: "which is not a public address; --allow-origin lists those that are meant",
            });
        }
        let everywhere: Vec<Network> = ["0.0.0.0/0", "::/0"]
            .iter()
            .filter_map(|network| network.parse().ok())
            .collect();
        let outbound = Outbound::new(Grant {
            origins: vec![origin.clone()],
            networks: if named { everywhere } else { Vec::new() },
            max_response_bytes: call.limit,
            timeout: call.timeout,
            ..Grant::default()
        });
        let mut headers = Vec::new();
        let mut add = |name: &str, value: &str| headers.push((name.to_owned(), value.to_owned()));
        if let Some(accept) = call.accept {
            add("accept", accept);
        }
        if let Some((kind, _)) = call.content {
            add("content-type", kind);
        }
        if let Some(authorization) = &authorization {
            add("authorization", authorization);
        }
        let request = OutboundRequest {
            method: call.method.to_owned(),
            url: url.to_owned(),
            headers,
            body: call
                .content
                .map(|(_, content)| content.to_vec())
                .unwrap_or_default(),
            timeout: None,
        };
        self.runtime
            .block_on(outbound.send(request))
            .map_err(|cause| RegistryError::Network {
                what: call.what.clone(),
                origin: origin.to_string(),
                cause,
            })
    }

    /// The header that a challenge wants, if there are credentials for it.
    fn answer_to(
        &self,
        call: &Call<'_>,
        answer: &OutboundResponse,
    ) -> Result<Option<String>, RegistryError> {
        let Some(challenge) = header(answer, "www-authenticate").and_then(Challenge::parse) else {
            return Ok(None);
        };
        let credentials = Credentials::find(&self.config.credentials, &self.name)?;
        match challenge {
            Challenge::Basic => Ok(credentials.and_then(|known| known.basic())),
            Challenge::Bearer {
                realm,
                service,
                scope,
            } => self
                .token(
                    call,
                    &realm,
                    service.as_deref(),
                    scope.as_deref(),
                    credentials,
                )
                .map(Some),
        }
    }

    /// A token of the token service that the registry names.
    fn token(
        &self,
        call: &Call<'_>,
        realm: &str,
        service: Option<&str>,
        scope: Option<&str>,
        credentials: Option<Credentials>,
    ) -> Result<String, RegistryError> {
        let what = format!("a token for {}", call.what);
        // A token service in the clear would be told the password by whoever is between.
        let realm = self.target(&what, &self.base, Some(realm))?;
        let mut query = String::new();
        for (name, value) in [("service", service), ("scope", scope)] {
            if let Some(value) = value {
                let value = utf8_percent_encode(value, RESERVED);
                query.push_str(&format!("&{name}={value}"));
            }
        }
        let (authorization, form) = match &credentials {
            Some(Credentials::Identity(token)) => {
                let token = utf8_percent_encode(token, RESERVED);
                let form = format!(
                    "grant_type=refresh_token&client_id=mortise&refresh_token={token}{query}"
                );
                (None, Some(form))
            }
            known => (known.as_ref().and_then(Credentials::basic), None),
        };
        let mut ask = match &form {
            Some(_) => Call::new(what.clone(), "POST", realm),
            None => {
                let joint = if realm.contains('?') { '&' } else { '?' };
                let query = query.trim_start_matches('&');
                Call::new(what.clone(), "GET", format!("{realm}{joint}{query}"))
            }
        };
        if let Some(form) = &form {
            ask.content = Some(("application/x-www-form-urlencoded", form.as_bytes()));
        }
        let answer = self.send(&ask, &ask.url, authorization)?;
        if answer.status != 200 {
            return Err(self.refusal(&ask, &answer));
        }
        let body: Value = serde_json::from_slice(&answer.body)
            .map_err(|error| RegistryError::unsound(&what, format!("it is not JSON: {error}")))?;
        let token = body["token"]
            .as_str()
            .or_else(|| body["access_token"].as_str());
        match token {
            Some(token)
                if token.bytes().all(|byte| byte.is_ascii_graphic()) && !token.is_empty() =>
            {
                Ok(format!("Bearer {token}"))
            }
            _ => Err(RegistryError::unsound(&what, "it has no `token`")),
        }
    }

    fn refusal(&self, call: &Call<'_>, answer: &OutboundResponse) -> RegistryError {
        let what = call.what.clone();
        let registry = self.name.clone();
        let detail = detail(&answer.body);
        match answer.status {
            401 => RegistryError::Denied {
                what,
                registry,
                status: 401,
                advice: "log in with `docker login` or `podman login`, whose credentials are used",
                detail,
            },
            403 => RegistryError::Denied {
                what,
                registry,
                status: 403,
                advice: "these credentials have no right to it",
                detail,
            },
            404 => RegistryError::NotFound {
                what,
                place: registry,
            },
            status => RegistryError::Status {
                what,
                registry,
                status,
                detail,
            },
        }
    }

    fn url_of(&self, reference: &Reference, kind: &str, name: &str) -> String {
        format!("{}/v2/{}/{kind}/{name}", self.base, reference.repository)
    }
}

impl Contents for RegistryClient {
    fn manifest(&mut self, reference: &Reference) -> Result<Vec<u8>, RegistryError> {
        let what = format!("the manifest of `{reference}`");
        let url = self.url_of(reference, "manifests", reference.selector());
        let answer = self.expect(&Call {
            accept: Some(MANIFEST),
            limit: MAX_MANIFEST_BYTES,
            ..Call::new(what.clone(), "GET", url)
        })?;
        let kind = header(&answer, "content-type").unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim();
        if kind != MANIFEST {
            let problem = format!("its media type is `{}` and not `{MANIFEST}`", shown(kind));
            return Err(RegistryError::unsound(&what, problem));
        }
        let digest = Digest::of(&answer.body);
        match header(&answer, "docker-content-digest") {
            Some(said) if said != digest.as_str() => Err(RegistryError::unsound(
                &what,
                format!(
                    "it has the digest {digest}, and the registry says {}",
                    shown(said)
                ),
            )),
            _ => Ok(answer.body),
        }
    }

    fn content(
        &mut self,
        of: &Reference,
        digest: &Digest,
        size: u64,
    ) -> Result<Vec<u8>, RegistryError> {
        let url = self.url_of(of, "blobs", digest.as_str());
        let answer = self.expect(&Call {
            // A content that has more than its size, or less, is told as such.
            limit: size.saturating_add(1),
            timeout: LAYER_TIMEOUT,
            ..Call::new(format!("the content of `{of}`"), "GET", url)
        })?;
        Ok(answer.body)
    }

    fn put_content(
        &mut self,
        of: &Reference,
        digest: &Digest,
        content: &[u8],
    ) -> Result<(), RegistryError> {
        let what = format!("to store a content of `{of}`");
        let url = self.url_of(of, "blobs", digest.as_str());
        let known = self.follow(&Call::new(what.clone(), "HEAD", url))?;
        if known.status == 200 {
            return Ok(());
        }
        let url = self.url_of(of, "blobs", "uploads/");
        let begun = self.expect(&Call {
            content: Some(("application/octet-stream", &[])),
            ..Call::new(what.clone(), "POST", url.clone())
        })?;
        let place = self.target(&what, &url, header(&begun, "location"))?;
        if !self.is_own(&what, &place)? {
            return Err(RegistryError::Redirect {
                what,
                target: shown(&place),
                problem: "which is not the registry",
            });
        }
        let joint = if place.contains('?') { '&' } else { '?' };
        let digest = utf8_percent_encode(digest.as_str(), RESERVED);
        self.expect(&Call {
            content: Some(("application/octet-stream", content)),
            timeout: LAYER_TIMEOUT,
            ..Call::new(what, "PUT", format!("{place}{joint}digest={digest}"))
        })?;
        Ok(())
    }

    fn put_manifest(&mut self, of: &Reference, manifest: &[u8]) -> Result<(), RegistryError> {
        let url = self.url_of(of, "manifests", of.tag());
        self.expect(&Call {
            content: Some((MANIFEST, manifest)),
            ..Call::new(format!("to store the manifest of `{of}`"), "PUT", url)
        })?;
        Ok(())
    }
}

fn header<'a>(answer: &'a OutboundResponse, wanted: &str) -> Option<&'a str> {
    let mut headers = answer.headers.iter();
    let found = headers.find(|(name, _)| name == wanted);
    found.map(|(_, value)| value.as_str())
}

/// A text of the registry's, as it may be shown.
fn shown(text: &str) -> String {
    text.chars()
        .take(MAX_DETAIL)
        .flat_map(char::escape_debug)
        .collect()
}

/// The registry's own words of a refusal.
fn detail(body: &[u8]) -> String {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    match body["errors"][0]["message"].as_str() {
        Some(message) => format!(": {}", shown(message)),
        None => String::new(),
    }
}
