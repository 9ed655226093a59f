//! Credentials for registries, from the files and helpers that container tools use.

use std::fmt;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::error::RegistryError;
use crate::layout::read;
use crate::limits::MAX_ANSWER_BYTES;

/// User name of a helper's answer whose secret is an identity token.
const TOKEN_USER: &str = "<token>";

/// Credentials for one registry.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Credentials {
    /// User name and password.
    Password { user: String, password: String },
    /// A token that token services take for others (`identitytoken`).
    Identity(String),
}

impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Password { user, .. } => write!(formatter, "Password({user})"),
            Self::Identity(_) => formatter.write_str("Identity"),
        }
    }
}

impl Credentials {
    /// The header for the user name and the password.
    pub(crate) fn basic(&self) -> Option<String> {
        match self {
            Self::Password { user, password } => {
                let text = BASE64_STANDARD.encode(format!("{user}:{password}"));
                Some(format!("Basic {text}"))
            }
            Self::Identity(_) => None,
        }
    }

    /// The credentials for a registry in the first of the files that has some.
    pub(crate) fn find(files: &[PathBuf], registry: &str) -> Result<Option<Self>, RegistryError> {
        for file in files {
            let bytes = match read(file, MAX_ANSWER_BYTES) {
                Err(RegistryError::File { cause, .. })
                    if cause.kind() == std::io::ErrorKind::NotFound =>
                {
                    continue;
                }
                read => read?,
            };
            let wrong = |problem: String| RegistryError::Content {
                path: file.clone(),
                problem,
            };
            let config: Value = serde_json::from_slice(&bytes)
                .map_err(|error| wrong(format!("is not JSON: {error}")))?;
            if let Some(helper) = helper_of(&config, registry)
                && let Some(found) = ask(helper, registry)?
            {
                return Ok(Some(found));
            }
            if let Some(entry) = entry_of(&config["auths"], registry) {
                return of_entry(entry).map_err(wrong).map(Some);
            }
        }
        Ok(None)
    }
}

/// The helper that is named for the registry, or for all.
fn helper_of<'a>(config: &'a Value, registry: &str) -> Option<&'a str> {
    let own = config["credHelpers"][registry].as_str();
    own.or_else(|| config["credsStore"].as_str())
        .filter(|name| !name.is_empty())
}

/// The entry of a registry, which may be written as a URL. Empty ones stand beside a helper.
fn entry_of<'a>(auths: &'a Value, registry: &str) -> Option<&'a Value> {
    let host = |name: &str| {
        let name = name.split_once("://").map_or(name, |(_, rest)| rest);
        name.split('/')
            .next()
            .unwrap_or_default()
            .to_ascii_lowercase()
    };
    let mut entries = auths.as_object()?.iter();
    let found = entries.find(|(name, _)| host(name) == registry);
    found
        .map(|(_, entry)| entry)
        .filter(|entry| entry.as_object().is_some_and(|fields| !fields.is_empty()))
}

fn of_entry(entry: &Value) -> Result<Credentials, String> {
    let text = |name: &str| entry[name].as_str().filter(|text| !text.is_empty());
    if let Some(token) = text("identitytoken") {
        return Ok(Credentials::Identity(token.to_owned()));
    }
    if let Some(auth) = text("auth") {
        let wrong = || "has an `auth` that is not `user:password` in base64".to_owned();
        let decoded = BASE64_STANDARD.decode(auth).map_err(|_| wrong())?;
        let decoded = String::from_utf8(decoded).map_err(|_| wrong())?;
        let (user, password) = decoded.split_once(':').ok_or_else(wrong)?;
        return Ok(Credentials::Password {
            user: user.to_owned(),
            password: password.trim_end_matches('\0').to_owned(),
        });
    }
    match (text("username"), text("password")) {
        (Some(user), Some(password)) => Ok(Credentials::Password {
            user: user.to_owned(),
            password: password.to_owned(),
        }),
        _ => Err("has an entry with neither `auth` nor `identitytoken`".to_owned()),
    }
}

/// Ask a helper program, `docker-credential-NAME`.
fn ask(helper: &str, registry: &str) -> Result<Option<Credentials>, RegistryError> {
    let wrong = |problem: String| RegistryError::Credentials {
        registry: registry.to_owned(),
        problem,
    };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if !helper.bytes().all(plain) {
        return Err(wrong(format!(
            "`{}` is no name of a helper",
            helper.escape_default()
        )));
    }
    let program = format!("docker-credential-{helper}");
    let failed = |error: std::io::Error| wrong(format!("`{program}`: {error}"));
    let mut child = Command::new(&program)
        .arg("get")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .map_err(failed)?;
    if let Some(mut input) = child.stdin.take() {
        // A helper that reads nothing answers all the same.
        let _ = input.write_all(registry.as_bytes());
    }
    let output = child.wait_with_output().map_err(failed)?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stdout);
        return match said.contains("credentials not found") {
            true => Ok(None),
            false => Err(wrong(format!(
                "`{program}` failed: {}",
                said.trim().escape_debug()
            ))),
        };
    }
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or(json!({}));
    match (answer["Username"].as_str(), answer["Secret"].as_str()) {
        (Some(TOKEN_USER), Some(token)) => Ok(Some(Credentials::Identity(token.to_owned()))),
        (Some(user), Some(secret)) => Ok(Some(Credentials::Password {
            user: user.to_owned(),
            password: secret.to_owned(),
        })),
        _ => Err(wrong(format!(
            "`{program}` answers without `Username` and `Secret`"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(config: &Value, registry: &str) -> Result<Option<Credentials>, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), config.to_string()).unwrap();
        let files = [PathBuf::from("/no/such/file"), file.path().to_owned()];
        Credentials::find(&files, registry).map_err(|error| error.to_string())
    }

    #[test]
    fn entries_are_found_however_they_are_written() {
        let auth = BASE64_STANDARD.encode("user:pass:word");
        let config = json!({"auths": {
            "https://one.example/v1/": {"auth": auth},
            "two.example:5000": {"identitytoken": "t"},
            "three.example": {},
            "four.example": {"auth": "!"},
        }});
        let password = Credentials::Password {
            user: "user".to_owned(),
            password: "pass:word".to_owned(),
        };
        assert_eq!(found(&config, "one.example"), Ok(Some(password.clone())));
        assert_eq!(password.basic(), Some(format!("Basic {auth}")));
        let identity = Credentials::Identity("t".to_owned());
        assert_eq!(found(&config, "two.example:5000"), Ok(Some(identity)));
        for registry in [
            "two.example",
            "three.example",
            "example",
            "evil-one.example",
        ] {
            assert_eq!(found(&config, registry), Ok(None), "{registry}");
        }
        assert!(
            found(&config, "four.example")
                .unwrap_err()
                .contains("base64")
        );
        assert_eq!(format!("{password:?}"), "Password(user)");
    }

    #[test]
    fn a_helper_that_is_missing_or_no_name_is_told() {
        let config = json!({"credHelpers": {"a.example": "no-such-helper", "b.example": "../x"}});
        assert!(
            found(&config, "a.example")
                .unwrap_err()
                .contains("docker-credential-no-such-helper")
        );
        assert!(
            found(&config, "b.example")
                .unwrap_err()
                .contains("no name of a helper")
        );
        assert_eq!(found(&config, "c.example"), Ok(None));
    }
}
