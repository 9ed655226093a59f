//! HTTP client of the collector, for gRPC too: it follows no redirect, and its time and what it reads are bounded.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, TE, USER_AGENT};
use http::{HeaderMap, HeaderName, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as PooledClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tokio::time::timeout;

use crate::answer::TracedOutcome;
use crate::config::{Encoding, TraceConfig};
use crate::grpc;
use crate::limits::MAX_ANSWER_BYTES;

/// A collector that cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum CollectorError {
    /// The address is none.
    #[error("`traces.endpoint` is no address: {0}")]
    Address(#[from] http::uri::InvalidUri),
    /// A header is none.
    #[error("`traces.headers` has `{0}`, whose name or value is that of no header")]
    Header(String),
    /// The certificates cannot be read.
    #[error("the certificates of `traces.ca_file` cannot be read: {0}")]
    Certificates(String),
    /// TLS cannot be set up.
    #[error("TLS to the collector of traces cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
}

/// Client of one collector.
pub(crate) struct CollectorClient {
    pool: PooledClient<HttpsConnector<HttpConnector>, Full<Bytes>>,
    address: Uri,
    headers: HeaderMap,
    grpc: bool,
    limit: Duration,
}

impl CollectorClient {
    pub(crate) fn new(config: &TraceConfig) -> Result<Self, CollectorError> {
        let mut headers = HeaderMap::new();
        let agent = HeaderValue::from_static(concat!("mortise/", env!("CARGO_PKG_VERSION")));
        headers.insert(USER_AGENT, agent);
        for (name, value) in &config.headers {
            let unfit = || CollectorError::Header(name.clone());
            let key = HeaderName::try_from(name).map_err(|_| unfit())?;
            let mut value = HeaderValue::try_from(value).map_err(|_| unfit())?;
            value.set_sensitive(true);
            headers.insert(key, value);
        }
        let kind = HeaderValue::from_static(config.encoding.content_type());
        headers.insert(CONTENT_TYPE, kind);
        let grpc = config.encoding == Encoding::Grpc;
        if grpc {
            headers.insert(TE, HeaderValue::from_static("trailers"));
        }
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(config.timeout));
        let builder = HttpsConnectorBuilder::new();
        let builder = match &config.authorities {
            Some(pem) => builder.with_tls_config(tls_of(pem)?),
            None => builder.with_provider_and_webpki_roots(ring::default_provider())?,
        };
        let builder = builder.https_or_http();
        let connector = match grpc {
            true => builder.enable_http2(),
            false => builder.enable_all_versions(),
        };
        let mut pool = PooledClient::builder(TokioExecutor::new());
        pool.pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(1)
            .http2_only(grpc);
        Ok(Self {
            pool: pool.build(connector.wrap_connector(tcp)),
            address: match grpc {
                true => {
                    format!("{}{}", config.endpoint.trim_end_matches('/'), grpc::EXPORT).parse()?
                }
                false => config.endpoint.parse()?,
            },
            grpc,
            headers,
            limit: config.timeout,
        })
    }

    /// Post a message.
    pub(crate) async fn post(&self, message: Bytes) -> TracedOutcome {
        let message = match self.grpc {
            false => message,
            true => match grpc::framed(&message) {
                Some(framed) => framed,
                None => {
                    return TracedOutcome::Refused("the message is too long for gRPC".to_owned());
                }
            },
        };
        let mut request = Request::new(Full::new(message));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.address.clone();
        *request.headers_mut() = self.headers.clone();
        let asked = async {
            let answer = self.pool.request(request).await;
            let answer = answer.map_err(|error| with_cause(&error))?;
            let (head, body) = answer.into_parts();
            // A long answer says nothing more than a short one.
            let body = Limited::new(body, MAX_ANSWER_BYTES).collect().await;
            let (trailers, body) = match body {
                Ok(body) => (body.trailers().cloned(), body.to_bytes()),
                Err(_) => (None, Bytes::new()),
            };
            Ok::<_, String>((head, trailers, body))
        };
        match timeout(self.limit, asked).await {
            Err(_) => TracedOutcome::Later("it did not answer in time".to_owned(), None),
            Ok(Err(error)) => TracedOutcome::Later(error, None),
            Ok(Ok((head, trailers, body))) if self.grpc => {
                grpc::answer(head.status, &head.headers, trailers.as_ref(), &body)
            }
            Ok(Ok((head, _, body))) => answer(head.status, &head.headers, body),
        }
    }
}

fn answer(status: StatusCode, headers: &HeaderMap, body: Bytes) -> TracedOutcome {
    if status.is_success() {
        return TracedOutcome::Taken(body);
    }
    let text = format!("it answered {status}");
    let later = [
        StatusCode::TOO_MANY_REQUESTS,
        StatusCode::BAD_GATEWAY,
        StatusCode::SERVICE_UNAVAILABLE,
        StatusCode::GATEWAY_TIMEOUT,
    ];
    if !later.contains(&status) {
        return TracedOutcome::Refused(text);
    }
    let pause = headers.get(RETRY_AFTER);
    let pause = pause.and_then(|value| value.to_str().ok()?.parse().ok());
    TracedOutcome::Later(text, pause.map(Duration::from_secs))
}

/// An error and its first cause, in one line.
fn with_cause(error: &(dyn std::error::Error + 'static)) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

fn tls_of(pem: &str) -> Result<ClientConfig, CollectorError> {
    let mut roots = RootCertStore::empty();
    let unreadable =
        |error: &dyn std::fmt::Display| CollectorError::Certificates(error.to_string());
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate = certificate.map_err(|error| unreadable(&error))?;
        roots.add(certificate).map_err(|error| unreadable(&error))?;
    }
    if roots.is_empty() {
        return Err(unreadable(&"it holds no `-----BEGIN CERTIFICATE-----`"));
    }
    let builder = ClientConfig::builder_with_provider(ring::default_provider().into());
    let builder = builder.with_safe_default_protocol_versions()?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}
