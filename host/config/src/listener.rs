//! Listeners: their TLS, the socket in the file system, and what may be reached by other machines in the clear.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use mortise_http::{ProxyProtocol, TlsSettings, TlsVersion};
use serde::Deserialize;

use super::variables::secret_of_file;
use super::{ConfigError, check_host, invalid, variable_of};

/// Bits that are permissions of a file: those of owner, group and others.
const PERMISSION_BITS: u32 = 0o777;

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawServer {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) tls: Option<RawTls>,
    pub(crate) plaintext: bool,
    pub(crate) socket: Option<PathBuf>,
    pub(crate) socket_mode: u32,
    pub(crate) allowed_hosts: Vec<String>,
    pub(crate) cors_origins: Vec<String>,
    pub(crate) max_body_bytes: usize,
    pub(crate) max_headers: usize,
    pub(crate) max_header_bytes: usize,
    pub(crate) max_connections: usize,
    pub(crate) max_connections_per_address: usize,
    pub(crate) header_timeout_ms: u64,
    pub(crate) body_timeout_ms: u64,
    pub(crate) write_timeout_ms: u64,
    pub(crate) heartbeat_ms: u64,
    pub(crate) max_websocket_seconds: u64,
    pub(crate) drain_seconds: u64,
    pub(crate) playground: bool,
    pub(crate) websocket_echo: bool,
    pub(crate) proxy_protocol: bool,
}

impl Default for RawServer {
    fn default() -> Self {
        Self {
            host: "127.0.0.1".to_owned(),
            port: 8080,
            tls: None,
            plaintext: false,
            socket: None,
            socket_mode: 0o600,
            allowed_hosts: Vec::new(),
            cors_origins: Vec::new(),
            max_body_bytes: 4 * 1024 * 1024,
            max_headers: 100,
            max_header_bytes: 64 * 1024,
            max_connections: 1024,
            max_connections_per_address: 0,
            header_timeout_ms: 10_000,
            body_timeout_ms: 30_000,
            write_timeout_ms: 30_000,
            heartbeat_ms: 15_000,
            max_websocket_seconds: 3600,
            drain_seconds: 30,
            playground: true,
            websocket_echo: false,
            proxy_protocol: false,
        }
    }
}

#[derive(Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawAdmin {
    pub(crate) host: String,
    pub(crate) port: Option<u16>,
    pub(crate) tls: Option<RawTls>,
    pub(crate) plaintext: bool,
    pub(crate) key: Option<String>,
    pub(crate) key_env: Option<String>,
    pub(crate) key_file: Option<PathBuf>,
    pub(crate) llm_routes: bool,
    pub(crate) page: bool,
    /// Laid over the files, see `persisted`.
    persist: Option<PathBuf>,
}

impl Default for RawAdmin {
    fn default() -> Self {
        Self {
            host: "127.0.0.1".to_owned(),
            port: None,
            tls: None,
            plaintext: false,
            key: None,
            key_env: None,
            key_file: None,
            llm_routes: false,
            page: true,
            persist: None,
        }
    }
}

impl std::fmt::Debug for RawAdmin {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the key, as with `RawKey`.
        write!(formatter, "RawAdmin({}:{:?})", self.host, self.port)
    }
}

/// The table `tls` as it is written.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawTls {
    cert: PathBuf,
    key: PathBuf,
    client_ca: Option<PathBuf>,
    #[serde(default)]
    min_version: TlsVersion,
}

impl RawTls {
    /// Its files lie beside the configuration.
    pub(crate) fn check(&self, base: &Path) -> TlsSettings {
        TlsSettings {
            cert: base.join(&self.cert),
            key: base.join(&self.key),
            client_ca: self.client_ca.as_ref().map(|file| base.join(file)),
            min_version: self.min_version,
        }
    }
}

/// Listener and key of the admin API.
pub struct AdminConfig {
    /// The address to listen on.
    pub host: IpAddr,
    /// The port.
    pub port: u16,
    /// `None`: requests and answers go in the clear.
    pub tls: Option<TlsSettings>,
    /// Key of the callers.
    pub key: String,
    /// The key is taken on the routes of `/api/v1/llm` that load models and clear caches, too.
    pub llm_routes: bool,
    /// The page for browsers is at `/`.
    pub page: bool,
}

impl std::fmt::Debug for AdminConfig {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "AdminConfig({}:{})", self.host, self.port)
    }
}

/// A socket in the file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketConfig {
    /// Its file.
    pub path: PathBuf,
    /// Permissions of the file; who may write may connect.
    pub mode: u32,
}

pub(super) fn check_socket(
    server: &RawServer,
    base: &Path,
) -> Result<Option<SocketConfig>, ConfigError> {
    if server.socket_mode > PERMISSION_BITS {
        return Err(invalid(
            "server.socket_mode",
            format!(
                "it must be permissions such as 0o660; it is 0o{:o}",
                server.socket_mode
            ),
        ));
    }
    Ok(server.socket.as_ref().map(|path| SocketConfig {
        path: base.join(path),
        mode: server.socket_mode,
    }))
}

/// Refuse to be reached by other machines in the clear, unless that is asked for by name. `table` is that of the
/// listener, `flag` the flag that says the same.
pub(super) fn check_plaintext(
    table: &str,
    host: IpAddr,
    tls: Option<&RawTls>,
    plaintext: bool,
    flag: &str,
) -> Result<(), ConfigError> {
    if host.to_canonical().is_loopback() || tls.is_some() || plaintext {
        return Ok(());
    }
    Err(invalid(
        &format!("{table}.host"),
        format!(
            "other machines can reach {host}, and without TLS keys and prompts go over the network in the clear; give a \
             certificate in [{table}.tls], or, where something in front of it speaks TLS or the network is trusted, allow \
             it with `{table}.plaintext = true`{flag}"
        ),
    ))
}

pub(super) fn check_admin(raw: &RawAdmin, base: &Path) -> Result<Option<AdminConfig>, ConfigError> {
    // Keys are sent with every request; shorter ones can be guessed.
    const LEAST_KEY_BYTES: usize = 16;
    if raw.persist.as_deref() == Some(Path::new("")) {
        let problem = "it must be a file; the server writes it";
        return Err(invalid("admin.persist", problem));
    }
    let Some(port) = raw.port else {
        return Ok(None);
    };
    let key = match (&raw.key, &raw.key_env, &raw.key_file) {
        (Some(key), None, None) => key.clone(),
        (None, Some(variable), None) => variable_of("admin.key_env", variable)?,
        (None, None, Some(file)) => secret_of_file("admin.key_file", base, file)?,
        _ => {
            return Err(invalid(
                "admin",
                "the admin side needs a key; give exactly one of `key`, `key_env` and `key_file`",
            ));
        }
    };
    if key.len() < LEAST_KEY_BYTES {
        return Err(invalid(
            "admin.key",
            format!(
                "it must have at least {LEAST_KEY_BYTES} bytes; it has {}",
                key.len()
            ),
        ));
    }
    let host = check_host("admin.host", &raw.host)?;
    check_plaintext("admin", host, raw.tls.as_ref(), raw.plaintext, "")?;
    Ok(Some(AdminConfig {
        host,
        port,
        tls: raw.tls.as_ref().map(|tls| tls.check(base)),
        key,
        llm_routes: raw.llm_routes,
        page: raw.page,
    }))
}

/// The proxies of `auth.trusted_proxies`, if they speak the PROXY protocol.
pub(super) fn check_proxies(
    server: &RawServer,
    trusted: &[String],
) -> Result<ProxyProtocol, ConfigError> {
    if !server.proxy_protocol {
        return Ok(ProxyProtocol::default());
    }
    if trusted.is_empty() {
        let message = "no proxy is trusted; name their networks in `auth.trusted_proxies`";
        return Err(invalid("server.proxy_protocol", message));
    }
    let network = |text: &String| {
        let network = text.parse::<IpNet>();
        let network = network.or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
        network.map_err(|_| {
            let message = format!("`{text}` is no network; write 10.0.0.0/8 or 10.1.2.3");
            invalid("auth.trusted_proxies", message)
        })
    };
    let trusted: Result<Vec<IpNet>, ConfigError> = trusted.iter().map(network).collect();
    Ok(ProxyProtocol { trusted: trusted? })
}
