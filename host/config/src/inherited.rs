//! Listeners that the service manager has opened (socket activation), and where it hears of the server's state.

use std::ffi::OsString;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;

use listenfd::ListenFd;

use super::{ConfigError, invalid};

/// Listeners that another process has opened.
#[derive(Debug, Default)]
pub struct Inherited {
    /// Listener of the API.
    pub main: Option<TcpListener>,
    /// Listener of the admin side.
    pub admin: Option<TcpListener>,
    /// The socket in the file system.
    pub socket: Option<UnixListener>,
    /// The service manager opened the listeners, whose addresses may differ from those of the settings.
    pub by_manager: bool,
}

impl Inherited {
    /// Listeners of the service manager: `LISTEN_FDS`, `LISTEN_PID`, `LISTEN_FDNAMES`. Called once, before there are threads.
    pub fn of_manager() -> Result<Self, ConfigError> {
        let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut sockets = ListenFd::from_env();
        let mut names = names.split(':');
        let mut inherited = Self::default();
        for index in 0..sockets.len() {
            let name = names.next().unwrap_or_default().to_owned();
            let unfit = |error: std::io::Error| {
                let text = format!("the socket `{name}` of the service manager: {error}");
                invalid("LISTEN_FDS", text)
            };
            match name.as_str() {
                "admin" => inherited.admin = sockets.take_tcp_listener(index).map_err(unfit)?,
                "socket" => inherited.socket = sockets.take_unix_listener(index).map_err(unfit)?,
                _ if inherited.main.is_none() => {
                    inherited.main = sockets.take_tcp_listener(index).map_err(unfit)?;
                }
                _ => {
                    let text = format!(
                        "the socket `{name}` of the service manager has no use; name one of them `admin` or `socket` \
                         with FileDescriptorName="
                    );
                    return Err(invalid("LISTEN_FDS", text));
                }
            }
            inherited.by_manager = true;
        }
        Ok(inherited)
    }
}

/// Socket of the service manager for the server's state: `NOTIFY_SOCKET`.
pub fn notify_socket() -> Option<OsString> {
    std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty())
}
