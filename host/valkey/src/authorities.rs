//! Certificate authorities of a server's TLS.

use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

/// Certificate authorities that are trusted of a server's TLS.
#[derive(Clone)]
pub struct ValkeyAuthorities(Arc<ClientConfig>);

impl ValkeyAuthorities {
    /// The public ones.
    ///
    /// # Errors
    /// When TLS cannot be set up.
    pub fn public() -> Result<Self, String> {
        let roots = webpki_roots::TLS_SERVER_ROOTS.iter().cloned();
        Self::of(roots.collect())
    }

    /// Authorities of a PEM text, and no others.
    ///
    /// # Errors
    /// When it holds no certificate, or one that cannot be read.
    pub fn from_pem(pem: &str) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            let certificate = certificate.map_err(|error| error.to_string())?;
            roots.add(certificate).map_err(|error| error.to_string())?;
        }
        if roots.is_empty() {
            return Err("it holds no `-----BEGIN CERTIFICATE-----`".to_owned());
        }
        Self::of(roots)
    }

    pub(crate) fn tls(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.0)
    }

    fn of(roots: RootCertStore) -> Result<Self, String> {
        let builder = ClientConfig::builder_with_provider(ring::default_provider().into());
        let builder = builder.with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| error.to_string())?;
        let config = builder.with_root_certificates(roots).with_no_client_auth();
        Ok(Self(Arc::new(config)))
    }
}

impl std::fmt::Debug for ValkeyAuthorities {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Authorities")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorities_are_certificates() {
        assert!(ValkeyAuthorities::public().is_ok());
        for text in [
            "",
            "text",
            "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----",
        ] {
            assert!(ValkeyAuthorities::from_pem(text).is_err(), "{text}");
        }
    }
}
