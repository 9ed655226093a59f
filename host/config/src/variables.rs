//! Environment variables, and files with secrets, that a configuration names.

use std::cell::RefCell;

use std::path::Path;

use super::{ConfigError, invalid};

/// A variable that a configuration names and that is not set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnsetVariable {
    /// The key that names it.
    pub key: String,
    /// Its name.
    pub variable: String,
}

thread_local! {
    /// Variables that placeholders stand for, while a configuration is read with them.
    static PLACEHOLDERS: RefCell<Option<Vec<UnsetVariable>>> = const { RefCell::new(None) };
}

/// The value of an environment variable that the configuration names.
///
/// # Errors
/// When it is not set, or is not UTF-8.
pub fn variable_of(key: &str, variable: &str) -> Result<String, ConfigError> {
    let problem = match std::env::var(variable) {
        Ok(value) => return Ok(value),
        Err(problem) => problem,
    };
    let noted = PLACEHOLDERS.with_borrow_mut(|unset| {
        let unset = unset.as_mut()?;
        unset.push(UnsetVariable {
            key: key.to_owned(),
            variable: variable.to_owned(),
        });
        Some(())
    });
    match noted {
        Some(()) if problem == std::env::VarError::NotPresent => Ok(placeholder(key, variable)),
        _ => {
            let unset =
                format!("the variable `{variable}` is not set; `export {variable}=…` sets it");
            let problem = match problem {
                std::env::VarError::NotPresent => unset,
                problem => format!("the variable `{variable}`: {problem}"),
            };
            Err(invalid(key, problem))
        }
    }
}

/// Bytes of a file with a key or certificates; whatever is longer is another file.
const SECRET_FILE_BYTES_MAX: u64 = 1 << 20;

pub(super) fn read(key: &str, path: &Path) -> Result<String, ConfigError> {
    mortise_files::read_text(path, SECRET_FILE_BYTES_MAX)
        .map_err(|error| invalid(key, format!("`{}`: {error}", path.display())))
}

/// The secret in a file that the configuration names, relative to the file of the configuration; without the end of its line.
///
/// # Errors
/// When it cannot be read, or is empty.
pub(super) fn secret_of_file(key: &str, base: &Path, path: &Path) -> Result<String, ConfigError> {
    let path = base.join(path);
    let text = read(key, &path)?;
    match text.trim_end_matches(['\r', '\n']) {
        "" => Err(invalid(key, format!("`{}` is empty", path.display()))),
        secret => Ok(secret.to_owned()),
    }
}

/// Read a configuration where its secrets are not: a placeholder stands for each variable that is not set. Returns these
/// variables too. Must not be used to serve.
pub fn with_placeholders<T>(read: impl FnOnce() -> T) -> (T, Vec<UnsetVariable>) {
    PLACEHOLDERS.set(Some(Vec::new()));
    let value = read();
    (value, PLACEHOLDERS.take().unwrap_or_default())
}

/// A value of the form that the key wants, which differs by variable.
fn placeholder(key: &str, variable: &str) -> String {
    let last = key.rsplit('.').next().unwrap_or(key);
    match last {
        "url_env" => "postgresql://placeholder@127.0.0.1/placeholder".to_owned(),
        "headers_env" => "x-placeholder=1".to_owned(),
        _ => format!("placeholder-of-{variable}-0123456789abcdef0123456789abcdef"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{Config, Overrides};

    /// Every key that names a variable.
    const ALL: &str = r#"
[admin]
port = 0
key_env = "MORTISE_TEST_UNSET_ADMIN"
[traces]
endpoint = "http://127.0.0.1:4318"
headers_env = "MORTISE_TEST_UNSET_HEADERS"
[store]
url_env = "MORTISE_TEST_UNSET_URL"
[valkey]
url = "redis://127.0.0.1:6379"
password_env = "MORTISE_TEST_UNSET_PASSWORD"
[[auth.api_keys]]
id = "a"
key_env = "MORTISE_TEST_UNSET_A"
[[auth.api_keys]]
id = "b"
key_env = "MORTISE_TEST_UNSET_B"
[[auth.jwt]]
issuer = "https://issuer.example"
audience = ["mortise"]
algorithms = ["HS256"]
secret_env = "MORTISE_TEST_UNSET_SECRET"
[[models]]
name = "remote"
[models.upstream]
urls = ["https://upstream.example/v1"]
api_key_env = "MORTISE_TEST_UNSET_UPSTREAM"
"#;

    #[test]
    fn a_configuration_is_read_where_its_secrets_are_not() {
        let read = || {
            Config::of_text(
                ALL,
                Path::new("/nowhere/mortise.toml"),
                Overrides::default(),
            )
        };
        let refused = read().expect_err("a variable is not set").to_string();
        assert!(refused.contains("MORTISE_TEST_UNSET_"), "{refused}");
        let (config, unset) = with_placeholders(read);
        config.expect("is right but for its secrets");
        let named = ALL.lines().filter(|line| line.contains("_UNSET_"));
        assert_eq!(unset.len(), named.count(), "{unset:?}");
        for UnsetVariable { key, variable } in &unset {
            assert!(key.ends_with("_env"), "{key}");
            assert!(ALL.contains(&format!("\"{variable}\"")), "{variable}");
        }
        assert!(read().is_err(), "placeholders end with the check");
    }

    #[test]
    fn keys_come_from_files_beside_the_configuration() {
        let folder = tempfile::tempdir().expect("make a folder");
        std::fs::write(folder.path().join("one"), "a key of sixteen bytes\n").expect("write");
        std::fs::write(folder.path().join("none"), "\n").expect("write");
        let read = |text: &str| {
            Config::of_text(
                text,
                &folder.path().join("mortise.toml"),
                Overrides::default(),
            )
        };
        let written = "[[auth.api_keys]]\nid = \"a\"\nkey = \"a key of sixteen bytes\"\n\
                       [admin]\nport = 0\nkey = \"a key of sixteen bytes\"\n";
        let filed = written.replace("key = \"a key of sixteen bytes\"", "key_file = \"one\"");
        let (written, filed) = (
            read(written).expect("is right"),
            read(&filed).expect("is right"),
        );
        assert_eq!(filed.auth.secrets, written.auth.secrets);
        let key = |config: &Config| config.admin.as_ref().map(|admin| admin.key.clone());
        assert_eq!(key(&filed), key(&written));
        for (text, told) in [
            (
                "[[auth.api_keys]]\nid = \"a\"\nkey_file = \"none\"\n",
                "auth.api_keys[0].key_file",
            ),
            (
                "[[auth.api_keys]]\nid = \"a\"\nkey_file = \"absent\"\n",
                "auth.api_keys[0].key_file",
            ),
            (
                "[[auth.api_keys]]\nid = \"a\"\nkey_file = \"one\"\nkey_env = \"A\"\n",
                "exactly one",
            ),
            (
                "[admin]\nport = 0\nkey_file = \"one\"\nkey = \"another key of sixteen\"\n",
                "exactly one",
            ),
        ] {
            let refused = read(text).expect_err("is wrong").to_string();
            assert!(refused.contains(told), "{refused}");
        }
    }

    #[test]
    fn other_problems_are_told_with_placeholders_as_well() {
        let text = format!("{ALL}\n[server]\nport = 70000\n");
        let read = || {
            Config::of_text(
                &text,
                Path::new("/nowhere/mortise.toml"),
                Overrides::default(),
            )
        };
        assert!(with_placeholders(read).0.is_err());
    }
}
