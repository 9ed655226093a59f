//! Certificate authorities that TLS connections of plugins trust.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use ureq::tls::{Certificate, PemItem, RootCerts, parse_pem};

/// The certificate authorities that are trusted, in place of the public ones.
#[derive(Clone)]
pub struct HttpAuthorities(Arc<Vec<Certificate<'static>>>);

/// A text holds no certificates of authorities.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthoritiesError {
    /// There is nothing to trust.
    #[error(
        "it holds no certificate; the certificates of authorities are expected as PEM, \
         `-----BEGIN CERTIFICATE-----` and so on"
    )]
    Empty,
    /// A block is broken.
    #[error("it is no PEM: {0}")]
    NotPem(String),
    /// A secret is where none belongs.
    #[error(
        "it holds a private key, which is nobody's business here; \
         give the certificates of the authorities alone"
    )]
    PrivateKey,
    /// A block is no certificate.
    #[error("its certificate number {number} cannot be read: {problem}")]
    NotACertificate {
        /// Number of the certificate, from 1.
        number: usize,
        /// Defect.
        problem: String,
    },
}

impl HttpAuthorities {
    pub(crate) fn roots(&self) -> RootCerts {
        RootCerts::Specific(Arc::clone(&self.0))
    }

    fn der(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(Certificate::der)
    }
}

impl FromStr for HttpAuthorities {
    type Err = AuthoritiesError;

    /// Read certificates as PEM; text around them is passed over.
    fn from_str(pem: &str) -> Result<Self, AuthoritiesError> {
        // The client would pass over what it cannot read, and then trust nobody.
        let mut readable = RootCertStore::empty();
        let mut certificates = Vec::new();
        for item in parse_pem(pem.as_bytes()) {
            match item.map_err(|error| AuthoritiesError::NotPem(error.to_string()))? {
                PemItem::Certificate(certificate) => {
                    let added = readable.add(CertificateDer::from(certificate.der()));
                    added.map_err(|error| AuthoritiesError::NotACertificate {
                        number: certificates.len() + 1,
                        problem: error.to_string(),
                    })?;
                    certificates.push(certificate);
                }
                PemItem::PrivateKey(_) => return Err(AuthoritiesError::PrivateKey),
                // There are no other items today.
                _ => {}
            }
        }
        match certificates.is_empty() {
            true => Err(AuthoritiesError::Empty),
            false => Ok(Self(Arc::new(certificates))),
        }
    }
}

impl PartialEq for HttpAuthorities {
    fn eq(&self, other: &Self) -> bool {
        self.der().eq(other.der())
    }
}

impl Eq for HttpAuthorities {}

impl fmt::Debug for HttpAuthorities {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Authorities({} certificates)", self.0.len())
    }
}
