//! TLS of a listener: certificates and keys from files, which can be read again while the server runs.
//!
//! A connection keeps what its handshake found; those that come later find what was read last. OCSP responses are
//! not stapled, and certificates are not taken back by lists (CRL).

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion, version};
use serde::Deserialize;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Bytes of a file of certificates or of a key. The authorities of a whole system have 250 KB.
const MAX_PEM_BYTES: u64 = 4 << 20;

/// Protocols that are offered, the better one first.
const ALPN: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Oldest version of TLS that is spoken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub enum TlsVersion {
    /// 1.2, with forward secrecy and authenticated encryption only.
    #[default]
    #[serde(rename = "1.2")]
    Tls12,
    /// 1.3
    #[serde(rename = "1.3")]
    Tls13,
}

impl TlsVersion {
    fn and_later(self) -> &'static [&'static SupportedProtocolVersion] {
        const FROM_1_2: &[&SupportedProtocolVersion] = &[&version::TLS13, &version::TLS12];
        const FROM_1_3: &[&SupportedProtocolVersion] = &[&version::TLS13];
        match self {
            Self::Tls12 => FROM_1_2,
            Self::Tls13 => FROM_1_3,
        }
    }
}

/// Files of a listener's TLS, all in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsSettings {
    /// The certificate, with those between it and the authority behind it.
    pub cert: PathBuf,
    /// Its private key: PKCS#8, PKCS#1 or SEC1.
    pub key: PathBuf,
    /// Authorities one of which must have signed a client's certificate; `None`: clients need none.
    pub client_ca: Option<PathBuf>,
    /// Oldest version that is spoken.
    pub min_version: TlsVersion,
}

/// Error of TLS settings.
#[derive(Debug, thiserror::Error)]
#[error("`{field}`: {message}")]
pub struct TlsError {
    /// The key below `tls`.
    pub field: &'static str,
    /// The problem, with the file.
    pub message: String,
}

/// Certificates and keys that were read, and fit together.
#[derive(Clone)]
pub struct TlsMaterial(Arc<ServerConfig>);

impl std::fmt::Debug for TlsMaterial {
    /// Without the key.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("TlsMaterial")
    }
}

impl TlsSettings {
    /// Read the files. Blocks.
    ///
    /// # Errors
    /// When one cannot be read, or the key is not that of the certificate.
    pub fn read(&self) -> Result<TlsMaterial, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let chain = certificates("cert", &self.cert)?;
        let key = pem_text(&self.key)
            .and_then(|text| PrivateKeyDer::from_pem_slice(&text))
            .map_err(|error| wrong_file("key", &self.key, "private key", &error))?;
        let verifier = match &self.client_ca {
            None => WebPkiClientVerifier::no_client_auth(),
            Some(file) => verifier(file, &provider)?,
        };
        let versions = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(self.min_version.and_later())
            .map_err(|error| wrong("min_version", error))?;
        let mut config = versions
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .map_err(|error| {
                let (cert, key) = (self.cert.display(), self.key.display());
                let message =
                    format!("`{cert}` and the key in `{key}` cannot be used together: {error}");
                wrong("cert", message)
            })?;
        // All ciphers are sound; scanners want the server to choose among them.
        config.ignore_client_order = true;
        config.alpn_protocols = ALPN.map(<[u8]>::to_vec).to_vec();
        Ok(TlsMaterial(Arc::new(config)))
    }
}

/// The text of a file in PEM.
fn pem_text(file: &Path) -> Result<Vec<u8>, pem::Error> {
    mortise_files::read(file, MAX_PEM_BYTES).map_err(pem::Error::Io)
}

fn certificates(
    field: &'static str,
    file: &Path,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = pem_text(file)
        .and_then(|text| CertificateDer::pem_slice_iter(&text).collect::<Result<_, _>>());
    let found: Vec<_> = read.map_err(|error| wrong_file(field, file, "certificate", &error))?;
    match found.is_empty() {
        true => Err(wrong_file(
            field,
            file,
            "certificate",
            &pem::Error::NoItemsFound,
        )),
        false => Ok(found),
    }
}

/// Asks clients for a certificate of one of the authorities in `file`.
fn verifier(
    file: &Path,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let field = "client_ca";
    let mut roots = RootCertStore::empty();
    for certificate in certificates(field, file)? {
        roots.add(certificate).map_err(|error| {
            let file = file.display();
            wrong(
                field,
                format!("a certificate in `{file}` cannot be used: {error}"),
            )
        })?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
        .build()
        .map_err(|error| wrong(field, error))
}

fn wrong(field: &'static str, problem: impl ToString) -> TlsError {
    TlsError {
        field,
        message: problem.to_string(),
    }
}

fn wrong_file(field: &'static str, file: &Path, item: &str, error: &pem::Error) -> TlsError {
    let file = file.display();
    let message = match error {
        pem::Error::NoItemsFound => format!("the file `{file}` holds no {item} in PEM"),
        pem::Error::Io(error) => format!("the file `{file}` cannot be read: {error}"),
        error => format!("the file `{file}` is no PEM: {error}"),
    };
    wrong(field, message)
}

/// The TLS of a listener.
#[derive(Debug)]
pub struct TlsServer {
    current: RwLock<TlsMaterial>,
    failed: AtomicU64,
}

impl TlsServer {
    /// TLS with these certificates and keys.
    pub fn new(material: TlsMaterial) -> Arc<Self> {
        Arc::new(Self {
            current: RwLock::new(material),
            failed: AtomicU64::new(0),
        })
    }

    /// Other certificates and keys for the handshakes to come.
    pub fn replace(&self, material: TlsMaterial) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = material;
    }

    /// Handshakes that failed since the start.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Count a handshake that did not come about.
    pub(crate) fn count_failure(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    fn current(&self) -> TlsMaterial {
        self.current
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Shake hands.
    pub(crate) async fn accept(&self, stream: TcpStream) -> std::io::Result<TlsStream<TcpStream>> {
        let TlsMaterial(current) = self.current();
        TlsAcceptor::from(current).accept(stream).await
    }
}
