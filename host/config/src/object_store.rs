//! The `[library.object_store]` table: a bucket that has the models of the library as well.

use std::path::{Path, PathBuf};
use std::time::Duration;

use mortise_library::{BucketConfig, StoreCredentials};
use serde::Deserialize;

use super::variables::read;
use super::{ConfigError, invalid, variable_of};

/// Longest beginning of keys, in bytes.
const PREFIX_MAX_BYTES: usize = 256;
/// Largest part that a file is sent in, in MiB; 5 GiB is the bound of the protocol.
const PART_MAX_MIB: u64 = 4096;
/// Smallest part, which is the protocol's own.
const PART_MIN_MIB: u64 = 5;

/// The table as it is written.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawObjectStore {
    endpoint: Option<String>,
    bucket: Option<String>,
    region: String,
    prefix: String,
    path_style: bool,
    access_key_id_env: Option<String>,
    access_key_id_file: Option<PathBuf>,
    secret_access_key_env: Option<String>,
    secret_access_key_file: Option<PathBuf>,
    session_token_env: Option<String>,
    ca_file: Option<PathBuf>,
    part_mib: u64,
}

impl Default for RawObjectStore {
    fn default() -> Self {
        Self {
            endpoint: None,
            bucket: None,
            region: "us-east-1".to_owned(),
            prefix: String::new(),
            path_style: true,
            access_key_id_env: None,
            access_key_id_file: None,
            secret_access_key_env: None,
            secret_access_key_file: None,
            session_token_env: None,
            ca_file: None,
            part_mib: 64,
        }
    }
}

fn key(name: &str) -> String {
    format!("library.object_store.{name}")
}

impl RawObjectStore {
    /// The checked table.
    pub(super) fn check(self, base: &Path) -> Result<BucketConfig, ConfigError> {
        let needed = |name: &str, value: Option<String>| {
            let problem = "it is missing; an object store has an `endpoint` and a `bucket`";
            value.ok_or_else(|| invalid(&key(name), problem))
        };
        let endpoint = endpoint_of(needed("endpoint", self.endpoint)?)?;
        let bucket = needed("bucket", self.bucket)?;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
        if !(3..=63).contains(&bucket.len()) || !bucket.bytes().all(plain) {
            let problem = "a bucket has a name of 3 to 63 letters, digits, `-`, `.` and `_`";
            return Err(invalid(&key("bucket"), problem));
        }
        let inner = |byte: u8| plain(byte) || byte == b'/';
        if self.prefix.len() > PREFIX_MAX_BYTES
            || !self.prefix.bytes().all(inner)
            || self
                .prefix
                .split('/')
                .any(|part| matches!(part, "." | ".."))
        {
            let problem = format!(
                "it has letters, digits, `-`, `.`, `_` and `/`, {PREFIX_MAX_BYTES} bytes at most"
            );
            return Err(invalid(&key("prefix"), problem));
        }
        if !(PART_MIN_MIB..=PART_MAX_MIB).contains(&self.part_mib) {
            let mib = self.part_mib;
            let problem = format!("it must be from {PART_MIN_MIB} to {PART_MAX_MIB}; it is {mib}");
            return Err(invalid(&key("part_mib"), problem));
        }
        let token = self.session_token_env.as_deref();
        let token = token.map(|variable| variable_of(&key("session_token_env"), variable));
        let credentials = StoreCredentials {
            key_id: secret(
                "access_key_id",
                (self.access_key_id_env, "AWS_ACCESS_KEY_ID"),
                self.access_key_id_file,
                base,
            )?,
            secret: secret(
                "secret_access_key",
                (self.secret_access_key_env, "AWS_SECRET_ACCESS_KEY"),
                self.secret_access_key_file,
                base,
            )?,
            token: token.transpose()?,
        };
        let authorities = self
            .ca_file
            .map(|path| read(&key("ca_file"), &base.join(path)));
        Ok(BucketConfig {
            endpoint,
            bucket,
            region: self.region,
            prefix: self.prefix,
            path_style: self.path_style,
            credentials,
            authorities: authorities.transpose()?.map(String::into_bytes),
            part_bytes: self.part_mib << 20,
            retry_delay: Duration::from_secs(1),
        })
    }
}

/// An address without what belongs elsewhere.
fn endpoint_of(text: String) -> Result<String, ConfigError> {
    let rest = text
        .strip_prefix("https://")
        .or(text.strip_prefix("http://"));
    match rest {
        Some(rest) if !rest.is_empty() && !rest.contains(['@', '?', '#']) => Ok(text),
        _ => Err(invalid(
            &key("endpoint"),
            "it must be an address such as \"https://s3.eu-central-1.amazonaws.com\", without user, password and query",
        )),
    }
}

/// Part of the credentials: of a file, of a variable, or of the variable that other tools read.
fn secret(
    name: &str,
    (variable, usual): (Option<String>, &str),
    file: Option<PathBuf>,
    base: &Path,
) -> Result<String, ConfigError> {
    let (of_file, of_variable) = (key(&format!("{name}_file")), key(&format!("{name}_env")));
    let (from, text) = match (variable, file) {
        (Some(_), Some(_)) => {
            let problem = format!("give one of `{name}_env` and `{name}_file`");
            return Err(invalid(&of_file, problem));
        }
        (None, Some(path)) => {
            let text = read(&of_file, &base.join(path))?;
            (of_file, text)
        }
        (variable, None) => {
            let variable = variable.unwrap_or_else(|| usual.to_owned());
            let text = variable_of(&of_variable, &variable)?;
            (of_variable, text)
        }
    };
    let text = text.trim();
    match !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic()) {
        true => Ok(text.to_owned()),
        false => Err(invalid(&from, "it must be visible ASCII characters")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(text: &str) -> Result<BucketConfig, String> {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["id", "secret"] {
            std::fs::write(folder.path().join(name), format!("{name}-1\n")).expect("written");
        }
        let files = "access_key_id_file = \"id\"\nsecret_access_key_file = \"secret\"\n";
        let raw: RawObjectStore = toml::from_str(&format!("{files}{text}")).expect("a table");
        let checked = raw.check(folder.path());
        checked.map_err(|error| error.to_string())
    }

    #[test]
    fn feature_b16_settings_of_a_store_are_checked() {
        let good = "endpoint = \"https://s3.example\"\nbucket = \"models\"\n";
        let config = checked(good).expect("settings");
        assert_eq!(config.region, "us-east-1");
        assert!(config.path_style);
        assert_eq!(config.credentials.key_id, "id-1");
        assert_eq!(config.credentials.secret, "secret-1");
        let shown = format!("{config:?}");
        assert!(
            !shown.contains("id-1") && !shown.contains("secret-1"),
            "{shown}"
        );
        let of = |more: &str| checked(&format!("{good}{more}")).expect_err("it is refused");
        for (more, words) in [
            ("prefix = \"a/../b\"", "prefix"),
            ("part_mib = 4", "from 5 to 4096"),
            (
                "session_token_env = \"MORTISE_NO_SUCH_VARIABLE\"",
                "session_token_env",
            ),
            ("access_key_id_env = \"X\"", "give one of"),
            ("ca_file = \"absent.pem\"", "ca_file"),
        ] {
            assert!(of(more).contains(words), "{more}: {}", of(more));
        }
        for (text, words) in [
            ("bucket = \"models\"", "endpoint"),
            ("endpoint = \"https://s3.example\"", "bucket"),
            ("endpoint = \"s3.example\"\nbucket = \"models\"", "such as"),
            (
                "endpoint = \"https://me:secret@s3.example\"\nbucket = \"models\"",
                "without user",
            ),
            (
                "endpoint = \"https://s3.example\"\nbucket = \"a b\"",
                "3 to 63",
            ),
        ] {
            let refused = checked(text).expect_err("it is refused");
            assert!(refused.contains(words), "{text}: {refused}");
        }
    }
}
