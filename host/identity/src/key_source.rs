//! Public keys of an issuer, from a file or from its server: kept, read again, and used for a while when they cannot be.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use mortise_outbound::{Grant, Network, Origin, Outbound, OutboundRequest};
use serde::Deserialize;
use tokio::sync::Mutex;

use crate::jwk::{PublicKey, key_set};
use crate::limits::MAX_KEY_SET_BYTES;

/// Shortest time between two readings, whatever tokens name: callers cannot make the server ask more often.
const RETRY: Duration = Duration::from_secs(10);

/// Time that an issuer's server has to answer, and a disk to give a file of keys.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Place of an issuer's keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyPlace {
    /// A secret that is shared with the issuer.
    Shared(Vec<u8>),
    /// A file with a set of keys.
    File(PathBuf),
    /// The URL of a set of keys.
    Url(String),
    /// URL of the issuer, whose `/.well-known/openid-configuration` names that of its keys.
    Discovery(String),
}

/// Times of keys that are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyTimes {
    /// Age from which they are read again.
    pub refresh: Duration,
    /// Age up to which they are used where they cannot be read again.
    pub max_age: Duration,
}

/// Keys that were read.
#[derive(Clone)]
struct Read {
    keys: Arc<[PublicKey]>,
    at: Instant,
}

#[derive(Default)]
struct State {
    read: Option<Read>,
    /// Last try, whether it succeeded or not.
    tried: Option<Instant>,
}

/// Keys of an issuer.
pub(crate) struct KeySource {
    place: KeyPlace,
    times: KeyTimes,
    state: RwLock<State>,
    /// Readings, one at a time.
    turn: Mutex<()>,
}

/// The keys of the issuer cannot be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Outage;

#[derive(Deserialize)]
struct Discovered {
    issuer: String,
    jwks_uri: String,
}

impl KeySource {
    pub(crate) fn new(place: KeyPlace, times: KeyTimes) -> Arc<Self> {
        let read = match &place {
            KeyPlace::Shared(secret) => Some(Read {
                keys: Arc::new([PublicKey::shared(secret)]),
                at: Instant::now(),
            }),
            _ => None,
        };
        let state = State { read, tried: None };
        Arc::new(Self {
            place,
            times,
            state: RwLock::new(state),
            turn: Mutex::default(),
        })
    }

    /// The keys at present. Old ones are read again beside the request, which does not wait; where there are none, or
    /// they are older than they may be, it waits.
    pub(crate) async fn keys(self: &Arc<Self>) -> Result<Arc<[PublicKey]>, Outage> {
        let current = self.current();
        match &current {
            Some(read) if self.is_shared() || read.at.elapsed() < self.times.refresh => {
                return Ok(Arc::clone(&read.keys));
            }
            Some(read) if read.at.elapsed() < self.times.max_age => {
                if self.may_try() {
                    let this = Arc::clone(self);
                    tokio::spawn(async move { this.refresh().await });
                }
                return Ok(Arc::clone(&read.keys));
            }
            _ => self.refresh().await,
        }
        match self.current() {
            Some(read) if read.at.elapsed() < self.times.max_age => Ok(read.keys),
            _ => Err(Outage),
        }
    }

    /// The keys after another reading, for a token that names a key which is not there; `None` if it is too early for
    /// one.
    pub(crate) async fn again(&self) -> Option<Arc<[PublicKey]>> {
        let before = self.current().map(|read| read.at);
        self.refresh().await;
        let read = self.current()?;
        (Some(read.at) != before).then_some(read.keys)
    }

    fn is_shared(&self) -> bool {
        matches!(self.place, KeyPlace::Shared(_))
    }

    fn current(&self) -> Option<Read> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        state.read.clone()
    }

    fn may_try(&self) -> bool {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        !self.is_shared() && state.tried.is_none_or(|at| at.elapsed() >= RETRY)
    }

    /// Read the keys, unless somebody just has or just tried.
    async fn refresh(&self) {
        let _turn = self.turn.lock().await;
        if !self.may_try() {
            return;
        }
        let found = self.read().await;
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        state.tried = Some(Instant::now());
        match found {
            Ok(keys) => {
                state.read = Some(Read {
                    keys: keys.into(),
                    at: Instant::now(),
                });
            }
            Err(error) => {
                let place = self.name();
                tracing::error!(
                    place,
                    error,
                    "the keys of an issuer of tokens cannot be read"
                );
            }
        }
    }

    async fn read(&self) -> Result<Vec<PublicKey>, String> {
        match &self.place {
            KeyPlace::Shared(secret) => Ok(vec![PublicKey::shared(secret)]),
            KeyPlace::File(path) => {
                let path = path.clone();
                key_set(
                    &in_time(move || mortise_files::read(&path, MAX_KEY_SET_BYTES as u64)).await?,
                )
            }
            KeyPlace::Url(url) => key_set(&get(url).await?),
            KeyPlace::Discovery(issuer) => {
                let base = issuer.trim_end_matches('/');
                let document = get(&format!("{base}/.well-known/openid-configuration")).await?;
                let document: Discovered =
                    serde_json::from_slice(&document).map_err(|error| error.to_string())?;
                if document.issuer != *issuer {
                    return Err("its discovery document names another issuer".to_owned());
                }
                check_url(&document.jwks_uri)?;
                key_set(&get(&document.jwks_uri).await?)
            }
        }
    }

    fn name(&self) -> String {
        match &self.place {
            KeyPlace::Shared(_) => "a shared secret".to_owned(),
            KeyPlace::File(path) => path.display().to_string(),
            KeyPlace::Url(url) | KeyPlace::Discovery(url) => url.clone(),
        }
    }
}

/// Read of a file under a deadline: the one of an issuer's server.
async fn in_time(
    read: impl FnOnce() -> std::io::Result<Vec<u8>> + Send + 'static,
) -> Result<Vec<u8>, String> {
    let reading = tokio::task::spawn_blocking(read);
    match tokio::time::timeout(TIMEOUT, reading).await {
        Ok(Ok(read)) => read.map_err(|error| error.to_string()),
        Ok(Err(panic)) => Err(panic.to_string()),
        Err(_) => Err(format!("it was not read within {} s", TIMEOUT.as_secs())),
    }
}

/// Refuse a URL that keys cannot be trusted from: without TLS, they may only come from this machine.
///
/// # Errors
/// With the reason.
pub fn check_url(url: &str) -> Result<(), String> {
    let origin = origin(url)?;
    let loopback = ["http://127.0.0.1", "http://localhost", "http://[::1]"];
    let text = origin.to_string();
    let here = loopback.iter().any(|host| {
        text.strip_prefix(host)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
    });
    match text.starts_with("https://") || here {
        true => Ok(()),
        false => Err("keys may come over https only, but for this machine itself".to_owned()),
    }
}

/// The origin of a URL.
fn origin(url: &str) -> Result<Origin, String> {
    let after = url.find("://").map_or(0, |at| at + 3);
    let rest = url.get(after..).unwrap_or_default();
    let end = rest
        .find(['/', '?', '#'])
        .map_or(url.len(), |at| after + at);
    let text = url.get(..end).unwrap_or_default();
    text.parse().map_err(|error| format!("`{url}`: {error}"))
}

/// The body behind a URL that the operator, or an issuer that the operator trusts, named: it may be a private address.
async fn get(url: &str) -> Result<Vec<u8>, String> {
    let everywhere = ["0.0.0.0/0", "::/0"];
    let networks = everywhere
        .iter()
        .filter_map(|text| text.parse::<Network>().ok());
    let client = Outbound::new(Grant {
        origins: vec![origin(url)?],
        networks: networks.collect(),
        max_response_bytes: MAX_KEY_SET_BYTES as u64,
        timeout: TIMEOUT,
        ..Grant::default()
    });
    let request = OutboundRequest {
        method: "GET".to_owned(),
        url: url.to_owned(),
        headers: vec![("accept".to_owned(), "application/json".to_owned())],
        body: Vec::new(),
        timeout: None,
    };
    let answer = client
        .send(request)
        .await
        .map_err(|error| error.to_string())?;
    match answer.status {
        200 => Ok(answer.body),
        status => Err(format!("it answers {status}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_of_keys_that_is_a_fifo_is_not_waited_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let fifo = folder.path().join("keys.json");
        let made = std::process::Command::new("mkfifo").arg(&fifo).status();
        assert!(made.expect("run mkfifo").success());
        let times = KeyTimes {
            refresh: Duration::from_secs(60),
            max_age: Duration::from_secs(60),
        };
        let source = KeySource::new(KeyPlace::File(fifo), times);
        let error = source.read().await.map(drop).expect_err("refused");
        assert_eq!(error, "it is a FIFO, not a regular file");
        assert!(source.keys().await.is_err());
    }

    #[test]
    fn keys_come_over_tls_or_from_this_machine() {
        for url in [
            "https://issuer.test/jwks",
            "https://issuer.test:8443",
            "http://127.0.0.1:9000/jwks",
            "http://localhost/jwks",
        ] {
            assert_eq!(check_url(url), Ok(()), "{url}");
        }
        for url in [
            "http://issuer.test/jwks",
            "http://127.0.0.1.issuer.test/jwks",
            "http://localhost.issuer.test",
            "ftp://issuer.test",
            "issuer.test/jwks",
            "",
        ] {
            assert!(check_url(url).is_err(), "{url}");
        }
    }
}
