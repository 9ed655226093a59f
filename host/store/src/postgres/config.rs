//! The database of a store, as its operator names it.

use std::fmt;
use std::str::FromStr as _;

use tokio_postgres::config::{Config, Host, SslMode};

use super::tls::{Tls, tls};
use crate::limits::{DATABASE_CONNECT_TIME, DATABASE_SILENCE};

/// A database, and the size of what is kept in it.
#[derive(Clone)]
pub struct PostgresConfig {
    config: Config,
    tls: Tls,
    /// Bytes of all of it.
    pub max_bytes: u64,
    /// Bytes of one owner.
    pub owner_max_bytes: u64,
    /// Records of one owner.
    pub owner_max_records: u64,
}

/// An address that names no database, or authorities that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DatabaseError {
    /// The address is none.
    #[error("it is no address such as `postgres://mortise@db.example/mortise`: {0}")]
    Address(String),
    /// No database is named.
    #[error("it names no {0}; write postgres://USER@HOST/DATABASE")]
    Missing(&'static str),
    /// The certificates of authorities cannot be read.
    #[error("the certificates of authorities cannot be read: {0}")]
    Authorities(String),
}

impl PostgresConfig {
    /// The database at an address, as libpq takes it. TLS is required on the way to another machine, unless the address
    /// says `sslmode=disable`; certificates are always checked as libpq does for `verify-full`. `authorities` is a PEM text, and without it those of Mozilla's list are trusted.
    ///
    /// # Errors
    /// When the address or the text cannot be read.
    pub fn new(
        url: &str,
        authorities: Option<&str>,
        [max_bytes, owner_max_bytes, owner_max_records]: [u64; 3],
    ) -> Result<Self, DatabaseError> {
        let mut config = Config::from_str(&with_known_mode(url))
            .map_err(|error| DatabaseError::Address(super::failure::told(&error)))?;
        if config.get_hosts().is_empty() {
            return Err(DatabaseError::Missing("host"));
        }
        if config.get_user().is_none() {
            return Err(DatabaseError::Missing("user"));
        }
        let far = config.get_hosts().iter().any(|host| !is_here(host));
        if far && config.get_ssl_mode() == SslMode::Prefer {
            config.ssl_mode(SslMode::Require);
        }
        if config.get_application_name().is_none() {
            config.application_name("mortise");
        }
        config.connect_timeout(DATABASE_CONNECT_TIME);
        config.tcp_user_timeout(DATABASE_SILENCE);
        config.keepalives_idle(DATABASE_SILENCE);
        Ok(Self {
            config,
            tls: tls(authorities).map_err(DatabaseError::Authorities)?,
            max_bytes,
            owner_max_bytes,
            owner_max_records,
        })
    }

    /// Parameters of connections.
    pub(super) fn parts(&self) -> (Config, Tls) {
        (self.config.clone(), self.tls.clone())
    }

    /// The place of the database, without secrets.
    pub fn place(&self) -> String {
        let host = match self.config.get_hosts().first() {
            Some(Host::Tcp(name)) => name.clone(),
            Some(Host::Unix(path)) => path.display().to_string(),
            None => String::new(),
        };
        let database = self.config.get_dbname().or_else(|| self.config.get_user());
        format!("{} on {host}", database.unwrap_or_default())
    }
}

impl fmt::Debug for PostgresConfig {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "PostgresConfig({})", self.place())
    }
}

/// The address with the mode of libpq that asks for what is always done here, by the name that the client's library knows.
fn with_known_mode(url: &str) -> String {
    let Some((place, parameters)) = url.split_once('?') else {
        return url.to_owned();
    };
    let known = |parameter| match parameter {
        "sslmode=verify-full" => "sslmode=require",
        other => other,
    };
    let parameters: Vec<&str> = parameters.split('&').map(known).collect();
    format!("{place}?{}", parameters.join("&"))
}

fn is_here(host: &Host) -> bool {
    match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => {
            let address = name.parse::<std::net::IpAddr>();
            name == "localhost" || address.is_ok_and(|address| address.is_loopback())
        }
    }
}
