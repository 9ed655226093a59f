//! Address of a Valkey server.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Port of Valkey and Redis.
const DEFAULT_PORT: u16 = 6379;

/// Server and database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerAddress {
    pub(crate) server: Server,
    pub(crate) database: i64,
}

/// Way to a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Server {
    Tcp { host: String, port: u16, tls: bool },
    Unix(PathBuf),
}

/// A text is no address of a Valkey server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Scheme, host or path is missing or unknown.
    #[error(
        "write `redis://HOST:PORT/DATABASE`, `rediss://…` for TLS, or `unix:///PATH/TO/SOCKET`"
    )]
    Form,
    /// A URL comes into logs.
    #[error(
        "it holds a user or a password; give them by `valkey.username` and `valkey.password_env`"
    )]
    Credentials,
    /// Databases have numbers.
    #[error("the database `{0}` is no number from 0 on")]
    Database(String),
}

impl FromStr for ServerAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (scheme, rest) = text.split_once("://").ok_or(AddressError::Form)?;
        let tls = match scheme {
            "unix" if rest.starts_with('/') && rest.len() > 1 => {
                let server = Server::Unix(PathBuf::from(rest));
                return Ok(Self {
                    server,
                    database: 0,
                });
            }
            "redis" | "valkey" => false,
            "rediss" | "valkeys" => true,
            _ => return Err(AddressError::Form),
        };
        let (place, database) = rest.split_once('/').unwrap_or((rest, ""));
        if place.contains('@') {
            return Err(AddressError::Credentials);
        }
        let database = match database {
            "" => 0,
            number => match number.parse::<u32>() {
                Ok(number) => i64::from(number),
                Err(_) => return Err(AddressError::Database(number.to_owned())),
            },
        };
        let (host, port) = split_port(place).ok_or(AddressError::Form)?;
        Ok(Self {
            server: Server::Tcp { host, port, tls },
            database,
        })
    }
}

/// Host and port. The address of an IPv6 host stands in brackets.
fn split_port(place: &str) -> Option<(String, u16)> {
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            host.parse::<std::net::Ipv6Addr>().ok()?;
            (host, port)
        }
        None => match place.find(':') {
            Some(at) => place.split_at(at),
            None => (place, ""),
        },
    };
    let port = match port.strip_prefix(':') {
        Some(port) => port.parse().ok()?,
        None if port.is_empty() => DEFAULT_PORT,
        None => return None,
    };
    let sound = |byte: u8| byte.is_ascii_graphic() && !b"?#\\".contains(&byte);
    (!host.is_empty() && host.bytes().all(sound)).then(|| (host.to_owned(), port))
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.server {
            Server::Unix(path) => write!(formatter, "unix://{}", path.display()),
            Server::Tcp { host, port, tls } => {
                let scheme = if *tls { "rediss" } else { "redis" };
                let (open, close) = if host.contains(':') {
                    ("[", "]")
                } else {
                    ("", "")
                };
                write!(
                    formatter,
                    "{scheme}://{open}{host}{close}:{port}/{}",
                    self.database
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        for (text, written) in [
            ("redis://localhost", "redis://localhost:6379/0"),
            (
                "rediss://cache.example.com:7000/3",
                "rediss://cache.example.com:7000/3",
            ),
            ("valkey://10.0.0.1:1/", "redis://10.0.0.1:1/0"),
            ("redis://[::1]:6380/1", "redis://[::1]:6380/1"),
            ("redis://[::1]", "redis://[::1]:6379/0"),
            ("unix:///run/valkey.sock", "unix:///run/valkey.sock"),
        ] {
            let address: ServerAddress = text.parse().expect(text);
            assert_eq!(address.to_string(), written);
            assert_eq!(written.parse(), Ok(address));
        }
    }

    #[test]
    fn other_texts_are_refused_with_a_reason() {
        for text in [
            "",
            "localhost:6379",
            "http://a",
            "redis://",
            "redis://:1",
            "redis://a:b",
            "redis://a:70000",
            "unix://",
            "redis://[::1",
            "redis://[a]:1",
            "redis://[::1]1",
            "redis://a b",
            "redis://a?b",
            "unix:/a",
        ] {
            assert_eq!(
                text.parse::<ServerAddress>(),
                Err(AddressError::Form),
                "{text}"
            );
        }
        let secret = "redis://user:secret@host/0".parse::<ServerAddress>();
        assert_eq!(secret, Err(AddressError::Credentials));
        for database in ["x", "-1", "1/2", "99999999999"] {
            let read = format!("redis://a/{database}").parse::<ServerAddress>();
            assert_eq!(read, Err(AddressError::Database(database.to_owned())));
        }
    }
}
