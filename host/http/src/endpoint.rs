//! Sockets that a server listens on: an address, with or without TLS, and a socket in the file system beside it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use socket2::{Domain, SockAddr, Socket, Type};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use crate::proxy_protocol::ProxyProtocol;
use crate::tls::TlsServer;
use crate::wire::Wire;

/// Connections of a socket in the file system that wait to be accepted.
const SOCKET_BACKLOG: i32 = 1024;

/// Address of clients of a socket in the file system, which have none.
const THIS_MACHINE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Listeners of a server.
#[derive(Debug)]
pub struct Endpoint {
    tcp: TcpListener,
    tls: Option<Arc<TlsServer>>,
    socket: Option<LocalSocket>,
}

/// A connection that was accepted and has said nothing yet.
#[derive(Debug)]
pub(crate) enum Accepted {
    Tcp(TcpStream, Option<Arc<TlsServer>>),
    Unix(UnixStream),
}

impl Endpoint {
    /// Listen on an address, with TLS if there is `tls`, and on a socket if there is one.
    pub fn new(
        tcp: TcpListener,
        tls: Option<Arc<TlsServer>>,
        socket: Option<LocalSocket>,
    ) -> Arc<Self> {
        Arc::new(Self { tcp, tls, socket })
    }

    /// The listeners, for a process that takes over: the address, and the socket in the file system.
    pub fn listeners(&self) -> (BorrowedFd<'_>, Option<BorrowedFd<'_>>) {
        let socket = self.socket.as_ref();
        (
            self.tcp.as_fd(),
            socket.map(|socket| socket.listener.as_fd()),
        )
    }

    /// Leave the file of the socket where it is: another process listens there from now on.
    pub fn leave(&self) {
        if let Some(socket) = &self.socket {
            socket.left.store(true, Ordering::Relaxed);
        }
    }

    /// The next connection, and its other end. Cancel safe.
    pub(crate) async fn accept(&self) -> io::Result<(Accepted, SocketAddr)> {
        let local = async {
            match &self.socket {
                Some(socket) => socket.listener.accept().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            accepted = self.tcp.accept() => {
                let (stream, peer) = accepted?;
                Ok((Accepted::Tcp(stream, self.tls.clone()), peer))
            }
            accepted = local => {
                let (stream, _) = accepted?;
                Ok((Accepted::Unix(stream), THIS_MACHINE))
            }
        }
    }
}

impl Accepted {
    /// The stream of the connection, after its handshake if there is one, which takes `limit` at most, and the client,
    /// whom a proxy may name.
    pub(crate) async fn open(
        self,
        peer: SocketAddr,
        limit: Duration,
        proxies: &ProxyProtocol,
    ) -> io::Result<(Wire, SocketAddr)> {
        match self {
            Self::Tcp(mut stream, tls) => {
                let peer = proxies.client(&mut stream, peer, limit).await?;
                // Tokens are small and each should leave at once.
                let _ = stream.set_nodelay(true);
                match tls {
                    None => Ok((Wire::Tcp(stream), peer)),
                    Some(tls) => Ok((Wire::secure(stream, &tls, limit).await?, peer)),
                }
            }
            Self::Unix(stream) => Ok((Wire::Unix(stream), peer)),
        }
    }
}

/// A listening socket in the file system. Its file goes with it.
#[derive(Debug)]
pub struct LocalSocket {
    listener: UnixListener,
    path: PathBuf,
    /// Device and number of the file.
    file: (u64, u64),
    /// The file stays.
    left: AtomicBool,
}

impl LocalSocket {
    /// Listen at `path`, where only whom `mode` allows to write may connect. What a server that has ended left there
    /// is replaced.
    ///
    /// # Errors
    /// When a server listens there, something else is there, or the file cannot be made.
    pub fn bind(path: &Path, mode: u32) -> io::Result<Self> {
        remove_abandoned(path)?;
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        socket.bind(&SockAddr::unix(path)?)?;
        // Nobody can connect before the socket listens, so nobody comes in under other permissions.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
        let file = identity(path)?;
        socket.listen(SOCKET_BACKLOG)?;
        Ok(Self {
            listener: UnixListener::from_std(socket.into())?,
            path: path.to_owned(),
            file,
            left: AtomicBool::new(false),
        })
    }

    /// Listen on a socket that another process has opened. If it `stays`, its file is left there at the end.
    ///
    /// # Errors
    /// When it has no file.
    pub fn inherited(listener: std::os::unix::net::UnixListener, stays: bool) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let path = address.as_pathname();
        let path = path.ok_or_else(|| io::Error::other("the socket has no file"))?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            file: identity(path)?,
            path: path.to_owned(),
            left: AtomicBool::new(stays),
            listener: UnixListener::from_std(listener)?,
        })
    }
}

impl Drop for LocalSocket {
    fn drop(&mut self) {
        // A server that came later may have put its own there.
        let left = *self.left.get_mut();
        if !left && identity(&self.path).is_ok_and(|file| file == self.file) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = std::fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

/// Remove a socket that nobody listens on.
fn remove_abandoned(path: &Path) -> io::Result<()> {
    let metadata = match std::fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !metadata.file_type().is_socket() {
        let message = "something else than a socket is there";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path)
        }
        Err(error) => Err(error),
        Ok(_) => {
            let message = "another server listens there";
            Err(io::Error::new(io::ErrorKind::AddrInUse, message))
        }
    }
}
