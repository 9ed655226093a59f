//! Byte stream of a connection, whatever it runs over: TCP, TLS or a Unix socket.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;

use crate::tls::TlsServer;

/// Bytes that are read and thrown away after the last answer, and the time for it.
pub(crate) const LINGER_BYTES: usize = 4 * 1024 * 1024;
pub(crate) const LINGER_TIME: Duration = Duration::from_secs(2);

/// First byte of a client that speaks TLS: the type of a handshake record.
const HANDSHAKE: u8 = 0x16;

/// Answer to a client that speaks HTTP where TLS is spoken. It has asked no route yet, so no dialect writes it.
const SPEAK_TLS: &[u8] = b"HTTP/1.1 400 Bad Request\r\n\
    content-type: text/plain; charset=utf-8\r\n\
    content-length: 54\r\n\
    connection: close\r\n\r\n\
    this port speaks TLS; begin the address with https://\n";

/// An open stream.
#[derive(Debug)]
pub(crate) enum Wire {
    /// TCP in the clear.
    Tcp(TcpStream),
    /// TLS over TCP.
    Tls(Box<TlsStream<TcpStream>>),
    /// A process of this machine.
    Unix(UnixStream),
}

/// The certificate that a client proved to have: SHA-256 of its DER, in hex.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate(pub String);

impl Wire {
    /// Shake hands within `limit`.
    ///
    /// # Errors
    /// When the client speaks no TLS, none that is taken, is not known, or is too slow.
    pub(crate) async fn secure(
        stream: TcpStream,
        tls: &TlsServer,
        limit: Duration,
    ) -> io::Result<Self> {
        let shaken = timeout(limit, shake_hands(stream, tls)).await;
        let shaken = shaken.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        if shaken.is_err() {
            tls.count_failure();
        }
        shaken.map(|stream| Self::Tls(Box::new(stream)))
    }

    /// The certificate of the client, if one was asked for.
    pub(crate) fn client_certificate(&self) -> Option<ClientCertificate> {
        let Self::Tls(stream) = self else {
            return None;
        };
        let (_, session) = stream.get_ref();
        let certificate = session.peer_certificates()?.first()?;
        let digest = Sha256::digest(certificate);
        let hex = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        Some(ClientCertificate(hex))
    }
}

async fn shake_hands(mut stream: TcpStream, tls: &TlsServer) -> io::Result<TlsStream<TcpStream>> {
    let mut first = [0];
    if stream.peek(&mut first).await? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let [first] = first;
    if first != HANDSHAKE && first.is_ascii_uppercase() {
        stream.write_all(SPEAK_TLS).await?;
        stream.shutdown().await?;
        // Closing with unread bytes would reset the connection before the client has read the answer.
        let mut rest = stream.take(LINGER_BYTES as u64);
        let _ = timeout(
            LINGER_TIME,
            tokio::io::copy(&mut rest, &mut tokio::io::sink()),
        )
        .await;
        return Err(io::Error::other("the client speaks HTTP without TLS"));
    }
    tls.accept(stream).await
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Unix(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Self::Unix(stream) => Pin::new(stream).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tcp(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
            Self::Unix(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
            Self::Unix(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
