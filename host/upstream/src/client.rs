//! HTTP client of one model's upstreams: HTTP/1.1 and HTTP/2, a connection pool, bounds of time and size. The client
//! follows no redirect, reads no environment, and sends no header of a caller's.

use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, USER_AGENT};
use http::{Method, Request, Response, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as PooledClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use mortise_models::UpstreamConfig;
use mortise_trace::Span;
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tower_service::Service;

use crate::limits::{MAX_HEAD_BYTES, MAX_HEADERS, MAX_IDLE_CONNECTIONS};

/// Idle connections end before the upstream ends them: uvicorn, which serves vLLM and SGLang, and llama-server wait for
/// five seconds. A request on a connection that is being ended would fail, and either machine may stand still for some
/// of that time.
const IDLE: Duration = Duration::from_secs(2);
/// Pings find out that the other end of an HTTP/2 connection is gone.
const PING_EVERY: Duration = Duration::from_secs(15);

type BoxError = Box<dyn Error + Send + Sync>;

/// The client. Clones share their connections.
#[derive(Clone)]
pub(crate) struct UpstreamClient {
    pool: PooledClient<Timed<HttpsConnector<HttpConnector>>, Full<Bytes>>,
    authorization: Option<HeaderValue>,
}

/// A client that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The certificates cannot be read.
    #[error("the certificates of `ca_file` cannot be read: {0}")]
    Certificates(String),
    /// TLS cannot be set up.
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
    /// The key cannot be sent.
    #[error("the key of the upstream has characters that no header has")]
    Key,
    /// There is no asynchronous runtime to work on.
    #[error("upstreams need the server's threads")]
    NoRuntime,
}

/// Failure of a request to which no answer came.
#[derive(Debug)]
pub(crate) struct NoAnswer {
    /// Flag of a request that was not sent, since no connection was made.
    pub(crate) unsent: bool,
    pub(crate) text: String,
}

impl UpstreamClient {
    pub(crate) fn new(config: &UpstreamConfig) -> Result<Self, ClientError> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        let builder = HttpsConnectorBuilder::new();
        let builder = match &config.authorities {
            Some(pem) => builder.with_tls_config(tls_of(pem)?),
            None => builder.with_provider_and_webpki_roots(ring::default_provider())?,
        };
        let tls = builder
            .https_or_http()
            .enable_all_versions()
            .wrap_connector(tcp);
        let connector = Timed {
            inner: tls,
            limit: config.timeouts.connect,
        };
        let mut pool = PooledClient::builder(TokioExecutor::new());
        pool.timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(MAX_IDLE_CONNECTIONS)
            .http1_max_buf_size(MAX_HEAD_BYTES)
            .http1_max_headers(MAX_HEADERS)
            .http2_max_header_list_size(u32::try_from(MAX_HEAD_BYTES).unwrap_or(u32::MAX))
            .http2_keep_alive_interval(PING_EVERY);
        let authorization = config.key.as_ref().map(|key| {
            let mut value = HeaderValue::try_from(format!("Bearer {}", key.secret()))
                .map_err(|_| ClientError::Key)?;
            value.set_sensitive(true);
            Ok::<_, ClientError>(value)
        });
        Ok(Self {
            pool: pool.build(connector),
            authorization: authorization.transpose()?,
        })
    }

    /// Ask for an answer of a media type, as work of this span.
    pub(crate) async fn post(
        &self,
        url: &str,
        accept: &'static str,
        body: Bytes,
        request_id: &str,
        span: &Span,
    ) -> Result<Response<Incoming>, NoAnswer> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        if let Ok(id) = HeaderValue::from_str(request_id) {
            headers.insert("x-request-id", id);
        }
        span.name_in(headers);
        self.send(url, request).await
    }

    /// Ask for JSON.
    pub(crate) async fn get(&self, url: &str) -> Result<Response<Incoming>, NoAnswer> {
        let mut request = Request::new(Full::default());
        let json = HeaderValue::from_static("application/json");
        request.headers_mut().insert(ACCEPT, json);
        self.send(url, request).await
    }

    async fn send(
        &self,
        url: &str,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, NoAnswer> {
        *request.uri_mut() = Uri::try_from(url).map_err(|error| NoAnswer {
            unsent: true,
            text: error.to_string(),
        })?;
        let agent = HeaderValue::from_static(concat!("mortise/", env!("CARGO_PKG_VERSION")));
        let headers = request.headers_mut();
        headers.insert(USER_AGENT, agent);
        if let Some(authorization) = &self.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        let answered = self.pool.request(request).await;
        answered.map_err(|error| NoAnswer {
            unsent: error.is_connect(),
            text: with_causes(&error),
        })
    }
}

/// Text of an error and its causes, in one line.
pub(crate) fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// The beginning of a body, at most `limit` bytes. `true`: it is whole.
pub(crate) async fn beginning_of(mut body: Incoming, limit: usize) -> (Vec<u8>, bool) {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else {
            return (bytes, false);
        };
        let Some(data) = frame.data_ref() else {
            continue;
        };
        let room = limit - bytes.len();
        bytes.extend_from_slice(&data[..data.len().min(room)]);
        if data.len() > room {
            return (bytes, false);
        }
    }
    (bytes, true)
}

/// TLS that trusts these authorities and no others.
fn tls_of(pem: &str) -> Result<ClientConfig, ClientError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let unreadable =
            |error: &dyn std::fmt::Display| ClientError::Certificates(error.to_string());
        let certificate = certificate.map_err(|error| unreadable(&error))?;
        roots.add(certificate).map_err(|error| unreadable(&error))?;
    }
    if roots.is_empty() {
        let problem = "it holds no `-----BEGIN CERTIFICATE-----`".to_owned();
        return Err(ClientError::Certificates(problem));
    }
    let builder = ClientConfig::builder_with_provider(ring::default_provider().into());
    let builder = builder.with_safe_default_protocol_versions()?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// A connector with a bound of time for all that it does: name, TCP, TLS.
#[derive(Clone)]
struct Timed<C> {
    inner: C,
    limit: Duration,
}

impl<C> Service<Uri> for Timed<C>
where
    C: Service<Uri, Error = BoxError>,
    C::Future: Send + 'static,
    C::Response: 'static,
{
    type Response = C::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<C::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let limit = self.limit;
        let connecting = self.inner.call(uri);
        Box::pin(async move {
            match tokio::time::timeout(limit, connecting).await {
                Ok(connected) => connected,
                Err(_) => Err(format!("no connection within {} ms", limit.as_millis()).into()),
            }
        })
    }
}
