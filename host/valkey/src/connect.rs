//! Connections to a Valkey server: a socket, TCP, or TLS over TCP.

use redis::AsyncConnectionConfig;
use redis::RedisConnectionInfo;
use redis::aio::MultiplexedConnection;
use rustls::pki_types::{InvalidDnsNameError, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::address::Server;
use crate::config::ValkeyConfig;
use crate::limits::CONNECT_TIMEOUT;

/// Reason for which a server cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// No connection, or none with TLS.
    #[error("it cannot be reached: {0}")]
    Unreachable(#[from] std::io::Error),
    /// The server refused the connection, such as for a wrong password.
    #[error("it refuses: {0}")]
    Refused(#[from] redis::RedisError),
    /// No certificate is for this name.
    #[error("its name cannot stand in a certificate: {0}")]
    Name(#[from] InvalidDnsNameError),
    /// The connection was not made in time.
    #[error("it did not answer within {} ms", CONNECT_TIMEOUT.as_millis())]
    Timeout,
}

/// Connect and authenticate.
pub(crate) async fn connect(config: &ValkeyConfig) -> Result<MultiplexedConnection, ConnectError> {
    let connected = timeout(CONNECT_TIMEOUT, open(config)).await;
    connected.unwrap_or(Err(ConnectError::Timeout))
}

async fn open(config: &ValkeyConfig) -> Result<MultiplexedConnection, ConnectError> {
    let login = login(config);
    let (host, port, tls) = match &config.address.server {
        Server::Unix(path) => return multiplex(&login, UnixStream::connect(path).await?).await,
        Server::Tcp { host, port, tls } => (host, *port, *tls),
    };
    let stream = TcpStream::connect((host.as_str(), port)).await?;
    // A script is small, and a request waits for it.
    stream.set_nodelay(true)?;
    if !tls {
        return multiplex(&login, stream).await;
    }
    let name = ServerName::try_from(host.clone())?;
    let connector = TlsConnector::from(config.authorities.tls());
    multiplex(&login, connector.connect(name, stream).await?).await
}

fn login(config: &ValkeyConfig) -> RedisConnectionInfo {
    let mut login = RedisConnectionInfo::default().set_db(config.address.database);
    if let Some(username) = &config.username {
        login = login.set_username(username);
    }
    if let Some(password) = &config.password {
        login = login.set_password(password);
    }
    login
}

/// A multiplexed connection for all requests, which ends with its last handle.
async fn multiplex<S>(
    login: &RedisConnectionInfo,
    stream: S,
) -> Result<MultiplexedConnection, ConnectError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    // The bounds of time are ours: one over the whole call, whatever it takes.
    let settings = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None);
    let multiplexed = MultiplexedConnection::new_with_config(login, stream, settings);
    let (connection, driver) = multiplexed.await?;
    tokio::spawn(driver);
    Ok(connection)
}
