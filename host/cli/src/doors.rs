//! Listeners of the server, and their certificates, which a reload reads again.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use anyhow::Context as _;
use mortise_config::{AdminConfig, Config, ConfigError, Inherited, SocketConfig};
use mortise_http::{Endpoint, LocalSocket, TlsMaterial, TlsServer, TlsSettings};
use tokio::net::TcpListener;

use crate::advice::Advise as _;

/// The TLS of each side, where it has some.
#[derive(Clone, Default)]
pub(crate) struct Certificates {
    pub(crate) main: Option<Arc<TlsServer>>,
    pub(crate) admin: Option<Arc<TlsServer>>,
}

/// Certificates that were read, for the sides that have TLS.
pub(crate) struct Renewal {
    main: Option<TlsMaterial>,
    admin: Option<TlsMaterial>,
}

impl Certificates {
    /// Read those that the settings name. Blocks.
    pub(crate) fn read(config: &Config) -> Result<Renewal, ConfigError> {
        let admin = config.admin.as_ref().and_then(|admin| admin.tls.as_ref());
        Ok(Renewal {
            main: read("server", config.tls.as_ref())?,
            admin: read("admin", admin)?,
        })
    }

    /// Use others from the next handshake on. Whether there is TLS stays as it was at the start.
    pub(crate) fn renew(&self, renewal: Renewal) {
        for (server, material) in [(&self.main, renewal.main), (&self.admin, renewal.admin)] {
            if let (Some(server), Some(material)) = (server, material) {
                server.replace(material);
            }
        }
    }
}

fn read(table: &str, settings: Option<&TlsSettings>) -> Result<Option<TlsMaterial>, ConfigError> {
    let read = settings.map(TlsSettings::read).transpose();
    read.map_err(|error| ConfigError::Invalid {
        key: format!("{table}.tls.{}", error.field),
        line: None,
        message: error.message,
    })
}

/// The listeners of a server.
pub(crate) struct Doors {
    pub(crate) main: Door,
    /// The admin side, and its key.
    pub(crate) admin: Option<(Door, String)>,
}

impl Doors {
    /// Listen as the settings say, on listeners that another process has opened where they fit.
    pub(crate) async fn open(
        config: &mut Config,
        inherited: &mut Inherited,
    ) -> anyhow::Result<Self> {
        let main = bind(config, inherited).await?;
        let admin = match config.admin.take() {
            Some(admin) => Some((bind_admin(&admin, inherited).await?, admin.key)),
            None => None,
        };
        Ok(Self { main, admin })
    }

    /// All listeners, by name, for a process that takes over.
    pub(crate) fn listeners(&self) -> Vec<(&'static str, BorrowedFd<'_>)> {
        let (main, socket) = self.main.endpoint.listeners();
        let admin = self.admin.as_ref();
        let admin = admin.map(|(door, _)| ("admin", door.endpoint.listeners().0));
        let socket = socket.map(|socket| ("socket", socket));
        let all = [Some(("main", main)), socket, admin];
        all.into_iter().flatten().collect()
    }

    /// Another process listens from now on, and what it needs stays.
    pub(crate) fn leave(&self) {
        self.main.endpoint.leave();
    }

    /// The certificates of both sides.
    pub(crate) fn certificates(&self) -> Certificates {
        Certificates {
            main: self.main.tls.clone(),
            admin: self.admin.as_ref().and_then(|(door, _)| door.tls.clone()),
        }
    }
}

/// A listener, and how it is reached.
pub(crate) struct Door {
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) address: SocketAddr,
    pub(crate) tls: Option<Arc<TlsServer>>,
}

impl Door {
    /// Its beginning of addresses.
    pub(crate) fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }
}

/// The main listener.
async fn bind(config: &Config, inherited: &mut Inherited) -> anyhow::Result<Door> {
    let address = SocketAddr::new(config.host, config.port);
    if !address.ip().is_loopback() && config.auth.keys == 0 {
        tracing::warn!("other machines can reach this server and it asks for no key");
    }
    let tls = read("server", config.tls.as_ref())?.map(TlsServer::new);
    let listener = match fitting(inherited.main.take(), address, inherited.by_manager)? {
        Some(listener) => listener,
        None => listen(address, "main").await?,
    };
    let by_manager = inherited.by_manager;
    let socket = match (inherited.socket.take(), &config.socket) {
        (Some(listener), Some(_)) => Some(LocalSocket::inherited(listener, by_manager)?),
        (Some(listener), None) if by_manager => Some(LocalSocket::inherited(listener, true)?),
        (_, config) => config.as_ref().map(bind_socket).transpose()?,
    };
    door(listener, tls, socket)
}

/// The listener of the admin side.
async fn bind_admin(config: &AdminConfig, inherited: &mut Inherited) -> anyhow::Result<Door> {
    let address = SocketAddr::new(config.host, config.port);
    let tls = read("admin", config.tls.as_ref())?.map(TlsServer::new);
    let listener = match fitting(inherited.admin.take(), address, inherited.by_manager)? {
        Some(listener) => listener,
        None => listen(address, "admin").await?,
    };
    door(listener, tls, None)
}

/// A new listener.
async fn listen(address: SocketAddr, side: &str) -> anyhow::Result<TcpListener> {
    let bound = TcpListener::bind(address).await;
    let in_use = bound.as_ref().err().map(io::Error::kind) == Some(ErrorKind::AddrInUse);
    let bound = bound.with_context(|| format!("cannot listen on {address} for the {side} side"));
    let keys = match side {
        "main" => "--port, --host or `[server]`",
        _ => "`port` and `host` of `[admin]`",
    };
    bound.advise(|| match in_use {
        true => {
            format!("another program listens there: end it, or choose another port with {keys}")
        }
        false => format!("choose another address with {keys}"),
    })
}

/// A listener that another process has opened, if it is where the settings say or a service manager opened it. Port 0 is
/// any.
fn fitting(
    listener: Option<std::net::TcpListener>,
    address: SocketAddr,
    by_manager: bool,
) -> anyhow::Result<Option<TcpListener>> {
    let Some(listener) = listener else {
        return Ok(None);
    };
    let found = listener.local_addr()?;
    let same = found.ip() == address.ip() && [0, found.port()].contains(&address.port());
    if !same && !by_manager {
        return Ok(None);
    }
    listener.set_nonblocking(true)?;
    Ok(Some(TcpListener::from_std(listener)?))
}

fn bind_socket(config: &SocketConfig) -> anyhow::Result<LocalSocket> {
    let path = config.path.display();
    let socket = LocalSocket::bind(&config.path, config.mode)
        .with_context(|| format!("cannot listen on the socket `{path}`"))?;
    tracing::info!(path = %path, "listening on a socket");
    Ok(socket)
}

fn door(
    listener: TcpListener,
    tls: Option<Arc<TlsServer>>,
    socket: Option<LocalSocket>,
) -> anyhow::Result<Door> {
    let address = listener
        .local_addr()
        .context("the listener has no address")?;
    Ok(Door {
        endpoint: Endpoint::new(listener, tls.clone(), socket),
        address,
        tls,
    })
}
