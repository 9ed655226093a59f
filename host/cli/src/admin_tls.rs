//! TLS of a client of the admin side: whom it believes, and what it shows.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use ureq::tls::{
    Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, TlsConfigBuilder, parse_pem,
};

/// Bytes of a file of certificates or of a key.
const MAX_PEM_BYTES: u64 = 4 << 20;

/// TLS of the admin side.
#[derive(Debug, Args)]
pub(crate) struct AdminTls {
    /// With TLS: certificates (PEM) of the authorities that are believed, if it is not the public ones
    #[arg(long, value_name = "FILE")]
    pub(crate) admin_ca: Option<PathBuf>,
    /// With TLS: the certificate (PEM) to show to a server that asks for one
    #[arg(long, value_name = "FILE", requires = "admin_cert_key")]
    pub(crate) admin_cert: Option<PathBuf>,
    /// The private key (PEM) of that certificate
    #[arg(long, value_name = "FILE", requires = "admin_cert")]
    pub(crate) admin_cert_key: Option<PathBuf>,
}

/// Settings of the client; without a file of authorities, those are believed that browsers believe.
pub(crate) fn tls_config(files: &AdminTls) -> anyhow::Result<TlsConfig> {
    let mut config = trusting(files.admin_ca.as_deref())?;
    if let (Some(cert), Some(key)) = (&files.admin_cert, &files.admin_cert_key) {
        let private = PrivateKey::from_pem(&read(key)?);
        let private = private
            .with_context(|| format!("the file `{}` holds no private key in PEM", key.display()))?;
        let shown = ClientCert::new_with_certs(&certificates(cert)?, private);
        config = config.client_cert(Some(shown));
    }
    Ok(config.build())
}

/// TLS settings of a client that believes the authorities in a file (PEM), or those that browsers believe.
pub(crate) fn trusting(authorities: Option<&Path>) -> anyhow::Result<TlsConfigBuilder> {
    let config = TlsConfig::builder();
    Ok(match authorities {
        Some(file) => config.root_certs(RootCerts::new_with_certs(&certificates(file)?)),
        None => config,
    })
}

fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    mortise_files::read(file, MAX_PEM_BYTES)
        .with_context(|| format!("the file `{}` cannot be read", file.display()))
}

fn certificates(file: &Path) -> anyhow::Result<Vec<Certificate<'static>>> {
    let text = read(file)?;
    let mut found = Vec::new();
    for item in parse_pem(&text) {
        let item = item.with_context(|| format!("the file `{}` is no PEM", file.display()))?;
        if let PemItem::Certificate(certificate) = item {
            found.push(certificate);
        }
    }
    anyhow::ensure!(
        !found.is_empty(),
        "the file `{}` holds no certificate in PEM",
        file.display()
    );
    Ok(found)
}
