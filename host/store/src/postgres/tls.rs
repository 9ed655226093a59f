//! TLS of connections to PostgreSQL.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream as Encrypted;

/// Maker of TLS sessions. A server's certificate must be valid and for its name.
#[derive(Clone)]
pub(super) struct Tls(TlsConnector);

/// TLS that trusts the authorities of a PEM text, or without one those of Mozilla's list.
///
/// # Errors
/// When the text holds no certificate that can be read.
pub(super) fn tls(authorities: Option<&str>) -> Result<Tls, String> {
    let mut roots = RootCertStore::empty();
    match authorities {
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Some(pem) => {
            for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
                let certificate = certificate.map_err(|error| error.to_string())?;
                roots.add(certificate).map_err(|error| error.to_string())?;
            }
        }
    }
    if roots.is_empty() {
        return Err("it holds no `-----BEGIN CERTIFICATE-----`".to_owned());
    }
    let builder = ClientConfig::builder_with_provider(ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    // Servers ask for it where TLS begins without PostgreSQL's own greeting.
    config.alpn_protocols = vec![b"postgresql".to_vec()];
    Ok(Tls(TlsConnector::from(Arc::new(config))))
}

/// One session to be made.
pub(super) struct TlsHandshake {
    connector: TlsConnector,
    name: String,
}

impl<S> MakeTlsConnect<S> for Tls
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Stream<S>;
    type TlsConnect = TlsHandshake;
    type Error = std::convert::Infallible;

    /// The name of a server that is reached by a socket of this machine is empty, and no session is made with it.
    fn make_tls_connect(&mut self, domain: &str) -> Result<TlsHandshake, Self::Error> {
        Ok(TlsHandshake {
            connector: self.0.clone(),
            name: domain.to_owned(),
        })
    }
}

impl<S> TlsConnect<S> for TlsHandshake
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Stream<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Stream<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let name = ServerName::try_from(self.name).map_err(io::Error::other)?;
            let encrypted = self.connector.connect(name, stream).await?;
            Ok(Stream(Box::new(encrypted)))
        })
    }
}

/// An encrypted connection.
pub(super) struct Stream<S>(Box<Encrypted<S>>);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Stream<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Stream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_shutdown(context)
    }
}
