//! Making a request: the origin is looked up in the grant, its name is resolved once, every address is
//! checked, and the connection goes to these addresses and to no others.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::CertificateError;
use tokio::sync::Semaphore;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::tls::{RootCerts, TlsConfig};
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};
use ureq::{Agent, Error};

use crate::address::is_public;
use crate::origin::Origin;
use crate::request::{Checked, OutboundRequest, OutboundResponse, RequestError};
use crate::{Grant, HttpAuthorities};

/// Addresses of a host and port. Called on a thread that may block.
pub type Resolve = dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// Most addresses of one name that are tried.
const MAX_ADDRESSES: usize = 16;

/// Makes the requests of one plugin. Clones share its bounds.
#[derive(Clone)]
pub struct Outbound {
    grant: Arc<Grant>,
    gate: Arc<Semaphore>,
    resolve: Arc<Resolve>,
}

impl fmt::Debug for Outbound {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Outbound")
            .field("grant", &self.grant)
            .finish_non_exhaustive()
    }
}

impl Outbound {
    /// A client within these bounds.
    pub fn new(grant: Grant) -> Self {
        Self::with_resolver(
            grant,
            Arc::new(|host, port| Ok((host, port).to_socket_addrs()?.collect())),
        )
    }

    /// A client within a grant, with a resolver of names to addresses.
    pub fn with_resolver(grant: Grant, resolve: Arc<Resolve>) -> Self {
        Self {
            gate: Arc::new(Semaphore::new(grant.at_once.max(1))),
            grant: Arc::new(grant),
            resolve,
        }
    }

    /// The bounds.
    pub fn grant(&self) -> &Grant {
        &self.grant
    }

    /// Make one request. Redirects are answers like any other. Needs a tokio runtime with time.
    ///
    /// If the future is dropped, the exchange ends in the background, at its timeout at the latest, and
    /// holds its place among those under way until then.
    ///
    /// # Errors
    /// When the request is malformed, may not go there, or is not answered within the bounds.
    pub async fn send(&self, request: OutboundRequest) -> Result<OutboundResponse, RequestError> {
        let wanted = request.timeout.unwrap_or(Duration::MAX);
        let limit = wanted.min(self.grant.timeout);
        let checked = request.check()?;
        self.check_origin(&checked.origin)?;
        let begun = Instant::now();
        let exchange = async {
            // The gate is never closed.
            let place = Arc::clone(&self.gate).acquire_owned().await;
            let (grant, resolve) = (Arc::clone(&self.grant), Arc::clone(&self.resolve));
            let blocking = tokio::task::spawn_blocking(move || {
                let _place = place;
                let addresses = addresses(&checked.origin, &grant, &*resolve)?;
                let left = limit.saturating_sub(begun.elapsed());
                exchange(checked, addresses, &grant, left)
            });
            let ended = blocking.await;
            ended.unwrap_or_else(|error| Err(RequestError::Unreachable(error.to_string())))
        };
        let ended = tokio::time::timeout(limit, exchange).await;
        ended.unwrap_or(Err(RequestError::Timeout))
    }

    fn check_origin(&self, origin: &Origin) -> Result<(), RequestError> {
        let listed = &self.grant.origins;
        if listed.contains(origin) {
            return Ok(());
        }
        Err(RequestError::Denied(match listed.is_empty() {
            true => format!("no origin is listed for this plugin, so not `{origin}` either"),
            false => format!("the origin `{origin}` is not listed for this plugin"),
        }))
    }
}

/// The addresses of an origin, all of which must be allowed: a name that stands for one inside and one
/// outside is no name to trust.
fn addresses(
    origin: &Origin,
    grant: &Grant,
    resolve: &Resolve,
) -> Result<Vec<SocketAddr>, RequestError> {
    if let Some(address) = origin.address() {
        // Whoever lists an address means it.
        return Ok(vec![SocketAddr::new(address, origin.port)]);
    }
    let found = resolve(&origin.host, origin.port).map_err(|error| {
        RequestError::Unreachable(format!("the name `{}` is not known: {error}", origin.host))
    })?;
    for address in &found {
        let ip = address.ip();
        let listed = || grant.networks.iter().any(|network| network.contains(ip));
        if !is_public(ip) && !listed() {
            return Err(RequestError::Denied(format!(
                "the name `{}` stands for {ip}, which is not public and in no listed network",
                origin.host
            )));
        }
    }
    if found.is_empty() {
        let text = format!("the name `{}` stands for no address", origin.host);
        return Err(RequestError::Unreachable(text));
    }
    Ok(found)
}

/// Resolver that answers every name with addresses that have been checked.
struct Fixed(Vec<SocketAddr>);

impl fmt::Debug for Fixed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(&self.0).finish()
    }
}

impl Resolver for Fixed {
    fn resolve(&self, _: &Uri, _: &Config, _: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
        let mut addresses = self.empty();
        for address in self.0.iter().take(MAX_ADDRESSES) {
            addresses.push(*address);
        }
        Ok(addresses)
    }
}

/// Connect, ask, read. Blocks.
fn exchange(
    checked: Checked,
    addresses: Vec<SocketAddr>,
    grant: &Grant,
    left: Duration,
) -> Result<OutboundResponse, RequestError> {
    let authorities = grant.authorities.as_ref();
    let roots = authorities.map_or(RootCerts::WebPki, HttpAuthorities::roots);
    let config = Agent::config_builder()
        .tls_config(TlsConfig::builder().root_certs(roots).build())
        // A redirect would go where nobody has looked.
        .max_redirects(0)
        .max_redirects_will_error(false)
        .http_status_as_error(false)
        // Not from the environment.
        .proxy(None)
        // Each connection goes to addresses that were checked for this request.
        .max_idle_connections(0)
        .timeout_global(Some(left.max(Duration::from_millis(1))))
        .user_agent(concat!("mortise/", env!("CARGO_PKG_VERSION")))
        .build();
    let agent = Agent::with_parts(config, DefaultConnector::default(), Fixed(addresses));
    let limit = grant.max_response_bytes;
    let Checked { request, origin } = checked;
    let failure = |error| failure(error, &origin, limit);
    let (parts, body) = request.into_parts();
    let carries = !matches!(parts.method.as_str(), "GET" | "HEAD" | "DELETE");
    let answered = match carries {
        true => agent.run(ureq::http::Request::from_parts(parts, body)),
        false => agent.run(ureq::http::Request::from_parts(parts, ())),
    };
    let mut answer = answered.map_err(failure)?;
    let headers = answer.headers().iter().map(|(name, value)| {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        (name.as_str().to_owned(), value)
    });
    let headers = headers.collect();
    let body = answer.body_mut().with_config().limit(limit).read_to_vec();
    Ok(OutboundResponse {
        status: answer.status().as_u16(),
        headers,
        body: body.map_err(failure)?,
    })
}

fn failure(error: Error, origin: &Origin, limit: u64) -> RequestError {
    match error {
        Error::Timeout(_) => RequestError::Timeout,
        Error::BodyExceedsLimit(_) => RequestError::TooLarge { limit },
        Error::Io(error) if error.kind() == io::ErrorKind::TimedOut => RequestError::Timeout,
        Error::Rustls(error) => RequestError::Unreachable(tls_failure(&error, origin)),
        Error::Io(error) => RequestError::Unreachable(
            match error.get_ref().and_then(|inner| inner.downcast_ref()) {
                Some(error) => tls_failure(error, origin),
                None => error.to_string(),
            },
        ),
        error => RequestError::Unreachable(error.to_string()),
    }
}

fn tls_failure(error: &rustls::Error, origin: &Origin) -> String {
    let rustls::Error::InvalidCertificate(problem) = error else {
        return format!("TLS with `{origin}` failed: {error}");
    };
    let problem = match problem {
        // One that has the name of a trusted one, but not its key, has signed badly.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "comes from no authority that is trusted for this plugin".to_owned()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            format!("has expired: {problem}")
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!("is another server's: {problem}")
        }
        _ => format!("is not accepted: {problem}"),
    };
    format!("the certificate of `{origin}` {problem}")
}
