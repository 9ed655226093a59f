//! Requests to a store: signed, sent, and their answers' statuses read.

use std::fmt;
use std::thread;
use std::time::Duration;

use rusty_s3::{Bucket, Credentials, S3Action, UrlStyle};
use ureq::http::{Response, StatusCode};
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Body, SendBody};

use crate::config::BucketConfig;
use crate::error::{ObjectStoreError, unusable};
use crate::limits::{CONNECT_TIMEOUT, MAX_ANSWER_BYTES, MAX_ATTEMPTS, STALL_TIMEOUT};

/// Time for which a signed address is good.
const SIGNED_FOR: Duration = Duration::from_secs(3600);

/// A bucket of an S3-compatible store. All of its functions block.
pub struct ObjectStore {
    pub(crate) bucket: Bucket,
    pub(crate) credentials: Credentials,
    /// Beginning of all keys: empty, or with a slash at its end.
    pub(crate) prefix: String,
    pub(crate) agent: Agent,
    pub(crate) part_bytes: u64,
    retry_delay: Duration,
}

impl fmt::Debug for ObjectStore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ObjectStore")
            .field("bucket", &self.bucket.base_url().as_str())
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

impl ObjectStore {
    /// A client. Nothing is asked yet.
    ///
    /// # Errors
    /// When the address, the bucket's name or the certificates are none.
    pub fn new(config: &BucketConfig) -> Result<Self, ObjectStoreError> {
        let wrong = |problem: String| ObjectStoreError::Config(problem);
        let endpoint = config.endpoint.parse();
        let endpoint = endpoint.map_err(|error| wrong(format!("its address is none: {error}")))?;
        let style = match config.path_style {
            true => UrlStyle::Path,
            false => UrlStyle::VirtualHost,
        };
        let (name, region) = (config.bucket.clone(), config.region.clone());
        let bucket = Bucket::new(endpoint, style, name, region);
        let bucket = bucket.map_err(|error| wrong(format!("its address is none: {error}")))?;
        let credentials = &config.credentials;
        let (id, secret) = (credentials.key_id.clone(), credentials.secret.clone());
        let credentials = match credentials.token.clone() {
            Some(token) => Credentials::new_with_token(id, secret, token),
            None => Credentials::new(id, secret),
        };
        let agent = Agent::config_builder()
            // A store that sends requests elsewhere could send signed ones to anybody.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .http_status_as_error(false)
            .proxy(None)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_recv_response(Some(STALL_TIMEOUT))
            .timeout_per_read(Some(STALL_TIMEOUT))
            .timeout_per_write(Some(STALL_TIMEOUT))
            .user_agent(concat!("mortise/", env!("CARGO_PKG_VERSION")))
            .tls_config(tls(config.authorities.as_deref())?)
            .build()
            .new_agent();
        Ok(Self {
            bucket,
            credentials,
            prefix: match config.prefix.trim_matches('/') {
                "" => String::new(),
                prefix => format!("{prefix}/"),
            },
            agent,
            part_bytes: config.part_bytes.max(1),
            retry_delay: config.retry_delay,
        })
    }

    /// Key of an object in the bucket.
    pub(crate) fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Remove an object; one that there is not is removed as well.
    ///
    /// # Errors
    /// When the store refuses.
    pub fn remove(&self, name: &str) -> Result<(), ObjectStoreError> {
        let key = self.key(name);
        self.persistent(|| {
            let action = self.bucket.delete_object(Some(&self.credentials), &key);
            let url = signed(&action);
            let answer = self.agent.delete(&url).call();
            match checked(name, answer.map_err(network(name))?) {
                Ok(_) | Err(ObjectStoreError::NotFound { .. }) => Ok(()),
                Err(error) => Err(error),
            }
        })
    }

    /// A small object.
    ///
    /// # Errors
    /// When there is none, or it has more than `most` bytes.
    pub fn read(&self, name: &str, most: u64) -> Result<Vec<u8>, ObjectStoreError> {
        let key = self.key(name);
        self.persistent(|| {
            let action = self.bucket.get_object(Some(&self.credentials), &key);
            let answer = self.agent.get(signed(&action)).call();
            body(name, checked(name, answer.map_err(network(name))?)?, most)
        })
    }

    /// Write a small object; with `only_new`, none is replaced by stores that know `If-None-Match`.
    ///
    /// # Errors
    /// When the store refuses.
    pub fn write(
        &self,
        name: &str,
        content: &[u8],
        only_new: bool,
    ) -> Result<(), ObjectStoreError> {
        let key = self.key(name);
        self.persistent(|| {
            let action = self.bucket.put_object(Some(&self.credentials), &key);
            let mut request = self.agent.put(signed(&action));
            if only_new {
                request = request.header("if-none-match", "*");
            }
            let answer = request.send(content).map_err(network(name))?;
            if answer.status() == StatusCode::PRECONDITION_FAILED {
                let what = name.to_owned();
                return Err(ObjectStoreError::Exists { what });
            }
            checked(name, answer).map(drop)
        })
    }

    /// Try a request again where another outcome may be had soon.
    pub(crate) fn persistent<T>(
        &self,
        mut ask: impl FnMut() -> Result<T, ObjectStoreError>,
    ) -> Result<T, ObjectStoreError> {
        let mut attempt = 1;
        loop {
            match ask() {
                Err(error) if error.is_passing() && attempt < MAX_ATTEMPTS => {
                    tracing::debug!(%error, attempt, "a request to the object store failed");
                    thread::sleep(self.pause(attempt));
                    attempt += 1;
                }
                ended => return ended,
            }
        }
    }

    /// Wait after so many attempts.
    pub(crate) fn pause(&self, attempts: u32) -> Duration {
        self.retry_delay * 2_u32.saturating_pow(attempts.saturating_sub(1).min(6))
    }

    /// Send a body of a known length.
    pub(crate) fn send(
        &self,
        what: &str,
        url: &str,
        bytes: u64,
        body: &mut dyn std::io::Read,
    ) -> Result<Response<Body>, ObjectStoreError> {
        let request = self.agent.put(url).header("content-length", bytes);
        let answer = request.send(SendBody::from_reader(body));
        checked(what, answer.map_err(network(what))?)
    }
}

/// The address of a request, with its signature.
pub(crate) fn signed<'a>(action: &impl S3Action<'a>) -> String {
    action.sign(SIGNED_FOR).into()
}

/// TLS with the public authorities, or with these.
fn tls(authorities: Option<&[u8]>) -> Result<TlsConfig, ObjectStoreError> {
    let Some(pem) = authorities else {
        return Ok(TlsConfig::builder().build());
    };
    let wrong = |problem: &str| ObjectStoreError::Config(format!("its certificates: {problem}"));
    let mut certificates = Vec::new();
    for item in parse_pem(pem) {
        match item.map_err(|error| wrong(&error.to_string()))? {
            PemItem::Certificate(certificate) => certificates.push(certificate),
            _ => return Err(wrong("there is something else in the file")),
        }
    }
    if certificates.is_empty() {
        return Err(wrong("there are none in the file"));
    }
    let roots = RootCerts::new_with_certs(&certificates);
    Ok(TlsConfig::builder().root_certs(roots).build())
}

/// A failure of the connection. The client's own words have no address.
pub(crate) fn network(what: &str) -> impl Fn(ureq::Error) -> ObjectStoreError + '_ {
    move |error| ObjectStoreError::Network {
        what: what.to_owned(),
        problem: match error {
            ureq::Error::BadUri(_) => "its address is none".to_owned(),
            error => error.to_string(),
        },
    }
}

/// An answer that is no refusal.
pub(crate) fn checked(
    what: &str,
    answer: Response<Body>,
) -> Result<Response<Body>, ObjectStoreError> {
    let status = answer.status();
    match status.as_u16() {
        200..300 => Ok(answer),
        404 => {
            let what = what.to_owned();
            Err(ObjectStoreError::NotFound { what })
        }
        status => {
            let what = what.to_owned();
            let code = code_of(answer);
            Err(ObjectStoreError::Status { what, status, code })
        }
    }
}

/// The store's code of a refusal: the only word of it that is passed on.
fn code_of(answer: Response<Body>) -> String {
    let text = body("", answer, MAX_ANSWER_BYTES).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let code = text.split_once("<Code>").and_then(|(_, rest)| {
        let (code, _) = rest.split_once("</Code>")?;
        let plain = code.bytes().all(|byte| byte.is_ascii_alphanumeric());
        (plain && code.len() <= 64).then(|| code.to_owned())
    });
    code.unwrap_or_default()
}

/// The body of an answer with so many bytes at most.
pub(crate) fn body(
    what: &str,
    mut answer: Response<Body>,
    most: u64,
) -> Result<Vec<u8>, ObjectStoreError> {
    let read = answer.body_mut().with_config().limit(most).read_to_vec();
    read.map_err(|error| match error {
        ureq::Error::BodyExceedsLimit(_) => {
            unusable(what, format!("it has more than {most} bytes"))
        }
        error => network(what)(error),
    })
}

/// The body of an answer in XML.
pub(crate) fn text(
    what: &str,
    answer: Response<Body>,
    most: u64,
) -> Result<String, ObjectStoreError> {
    let bytes = body(what, answer, most)?;
    String::from_utf8(bytes).map_err(|_| unusable(what, "it is not UTF-8"))
}
