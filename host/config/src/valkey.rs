//! The `[valkey]` table: a server in which several hosts share their counters.

use std::path::{Path, PathBuf};
use std::time::Duration;

use mortise_valkey::{ServerAddress, ValkeyAuthorities, ValkeyConfig, WhenLost};
use serde::Deserialize;

use super::variables::read;
use super::{ConfigError, invalid, milliseconds, variable_of};

/// Longest lease, an hour.
const LEASE_MAX_SECONDS: u64 = 3600;

/// Longest beginning of keys.
const PREFIX_MAX_BYTES: usize = 64;

/// The table as it is written.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawValkey {
    url: Option<String>,
    username: Option<String>,
    password_env: Option<String>,
    ca_file: Option<PathBuf>,
    prefix: String,
    timeout_ms: u64,
    lease_seconds: u64,
    when_lost: RawWhenLost,
}

/// Behaviour without the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RawWhenLost {
    Refuse,
    Local,
}

impl Default for RawValkey {
    fn default() -> Self {
        Self {
            url: None,
            username: None,
            password_env: None,
            ca_file: None,
            prefix: "mortise".to_owned(),
            timeout_ms: 250,
            lease_seconds: 15,
            when_lost: RawWhenLost::Refuse,
        }
    }
}

impl RawValkey {
    /// The server; none without a URL.
    pub(crate) fn check(self, base: &Path) -> Result<Option<ValkeyConfig>, ConfigError> {
        let Some(url) = &self.url else {
            let others = Self {
                url: None,
                ..Self::default()
            };
            return match self == others {
                true => Ok(None),
                false => Err(invalid(
                    "valkey.url",
                    "it is missing, and the other keys of [valkey] need it",
                )),
            };
        };
        let address: ServerAddress = url
            .parse()
            .map_err(|error| invalid("valkey.url", format!("{error}")))?;
        let sound = |byte: u8| byte.is_ascii_graphic() && !b"{}".contains(&byte);
        if self.prefix.is_empty()
            || self.prefix.len() > PREFIX_MAX_BYTES
            || !self.prefix.bytes().all(sound)
        {
            let problem = "it must be 1 to 64 visible ASCII characters other than braces";
            return Err(invalid("valkey.prefix", problem));
        }
        if !(3..=LEASE_MAX_SECONDS).contains(&self.lease_seconds) {
            let problem = format!(
                "it must be from 3 to {LEASE_MAX_SECONDS}; it is {}",
                self.lease_seconds
            );
            return Err(invalid("valkey.lease_seconds", problem));
        }
        let password = self.password_env.as_deref();
        let password = password.map(|variable| variable_of("valkey.password_env", variable));
        Ok(Some(ValkeyConfig {
            address,
            username: self.username,
            password: password.transpose()?,
            prefix: self.prefix,
            timeout: milliseconds("valkey.timeout_ms", self.timeout_ms)?,
            lease: Duration::from_secs(self.lease_seconds),
            when_lost: match self.when_lost {
                RawWhenLost::Refuse => WhenLost::Refuse,
                RawWhenLost::Local => WhenLost::Local,
            },
            authorities: authorities(self.ca_file.as_deref(), base)?,
        }))
    }
}

fn authorities(file: Option<&Path>, base: &Path) -> Result<ValkeyAuthorities, ConfigError> {
    const KEY: &str = "valkey.ca_file";
    let authorities = match file {
        None => ValkeyAuthorities::public(),
        Some(file) => ValkeyAuthorities::from_pem(&read(KEY, &base.join(file))?),
    };
    authorities.map_err(|problem| invalid(KEY, problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Result<Option<ValkeyConfig>, String> {
        let raw: RawValkey = toml::from_str(text).map_err(|error| error.to_string())?;
        raw.check(Path::new("/")).map_err(|error| error.to_string())
    }

    #[test]
    fn a_server_needs_a_url_and_little_else() {
        assert!(check("").expect("nothing").is_none());
        let server = check(r#"url = "redis://localhost""#).expect("a server");
        let server = server.expect("a server");
        assert_eq!(server.when_lost, WhenLost::Refuse);
        assert_eq!(server.timeout, Duration::from_millis(250));
    }

    #[test]
    fn wrong_values_are_named() {
        for (text, named) in [
            (r#"prefix = "a""#, "valkey.url"),
            (r#"url = "localhost""#, "valkey.url"),
            (r#"url = "redis://user:secret@localhost""#, "password_env"),
            ("url = \"redis://a\"\nprefix = \"a{b\"", "valkey.prefix"),
            (
                "url = \"redis://a\"\nlease_seconds = 1",
                "valkey.lease_seconds",
            ),
            ("url = \"redis://a\"\ntimeout_ms = 0", "valkey.timeout_ms"),
            ("url = \"redis://a\"\nca_file = \"/none\"", "valkey.ca_file"),
            (
                "url = \"redis://a\"\npassword_env = \"MORTISE_NO_SUCH\"",
                "MORTISE_NO_SUCH",
            ),
            ("url = \"redis://a\"\nwhen_lost = \"open\"", "when_lost"),
        ] {
            let error = check(text).expect_err(text);
            assert!(error.contains(named), "{error}");
        }
    }
}
