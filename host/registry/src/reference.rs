//! References to artifacts: `registry.example:5000/team/plugin:1.0@sha256:…`.

use std::fmt;
use std::str::FromStr;

use crate::digest::Digest;

/// Longest name of a repository, with its registry.
const MAX_NAME_BYTES: usize = 255;

/// Longest tag.
const MAX_TAG_BYTES: usize = 128;

/// Tag of a reference that names none.
const LATEST: &str = "latest";

/// Reference to an artifact in a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// Host, and port if it is not that of the scheme.
    pub registry: String,
    /// Name in the registry, such as `team/plugin`.
    pub repository: String,
    /// Tag, such as `1.0`.
    pub tag: Option<String>,
    /// Digest of the manifest, which alone counts where it is given.
    pub digest: Option<Digest>,
}

/// A text is no reference.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is no reference: {problem}; write registry.example/team/plugin:1.0, or with @sha256:… behind it"
)]
pub struct ReferenceError {
    text: String,
    problem: &'static str,
}

impl Reference {
    /// Tag or digest that a manifest is asked for by.
    pub fn selector(&self) -> &str {
        match (&self.digest, &self.tag) {
            (Some(digest), _) => digest.as_str(),
            (None, Some(tag)) => tag,
            (None, None) => LATEST,
        }
    }

    /// The tag, or `latest`.
    pub fn tag(&self) -> &str {
        self.tag.as_deref().unwrap_or(LATEST)
    }

    /// The reference without its digest.
    pub fn named(&self) -> String {
        format!("{}/{}:{}", self.registry, self.repository, self.tag())
    }

    /// The last part of the repository.
    pub fn name(&self) -> &str {
        self.repository.rsplit('/').next().unwrap_or_default()
    }
}

impl FromStr for Reference {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, ReferenceError> {
        parse(text).map_err(|problem| ReferenceError {
            text: text
                .chars()
                .take(300)
                .flat_map(char::escape_default)
                .collect(),
            problem,
        })
    }
}

fn parse(text: &str) -> Result<Reference, &'static str> {
    let text = text.strip_prefix("oci://").unwrap_or(text);
    let (text, digest) = match text.split_once('@') {
        Some((name, digest)) => {
            let digest = digest.parse().map_err(|_| "behind `@` stands no digest")?;
            (name, Some(digest))
        }
        None => (text, None),
    };
    let (registry, rest) = text.split_once('/').ok_or("it names no registry")?;
    if !registry.contains(['.', ':']) && registry != "localhost" {
        return Err("it does not begin with the name of a registry");
    }
    if !is_registry(registry) {
        return Err("the registry is no host with a port");
    }
    let (repository, tag) = match rest.split_once(':') {
        Some((repository, tag)) if is_tag(tag) => (repository, Some(tag.to_owned())),
        Some(_) => {
            return Err("the tag has other characters than letters, digits, `.`, `_` and `-`");
        }
        None => (rest, None),
    };
    if registry.len() + repository.len() > MAX_NAME_BYTES {
        return Err("its name is too long");
    }
    if !is_repository(repository) {
        return Err(
            "the name must be lower-case letters and digits, joined by `.`, `_`, `-` and `/`",
        );
    }
    Ok(Reference {
        registry: registry.to_ascii_lowercase(),
        repository: repository.to_owned(),
        tag,
        digest,
    })
}

/// True if the text is a host name or an address, with or without a port.
fn is_registry(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) => {
            let port = port.strip_prefix(':').unwrap_or(port);
            return address.parse::<std::net::Ipv6Addr>().is_ok() && is_port(port);
        }
        None => text.split_once(':').unwrap_or((text, "")),
    };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-".contains(&byte);
    !host.is_empty()
        && !text.ends_with(':')
        && host.bytes().all(plain)
        && !host.ends_with('.')
        && is_port(port)
}

fn is_port(text: &str) -> bool {
    text.is_empty() || text.parse::<u16>().is_ok()
}

/// True if the text is a tag, as the distribution API has it.
pub(crate) fn is_tag(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=MAX_TAG_BYTES).contains(&text.len())
        && text.bytes().all(plain)
        && !text.starts_with(['.', '-'])
}

/// True if the text is the name of a repository, as the distribution API has it.
pub(crate) fn is_repository(text: &str) -> bool {
    let alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let component = |part: &str| {
        let bytes = part.as_bytes();
        let ends = bytes.first().is_some_and(|byte| alphanumeric(*byte))
            && bytes.last().is_some_and(|byte| alphanumeric(*byte));
        let plain = |byte: u8| alphanumeric(byte) || b"._-".contains(&byte);
        ends && part.bytes().all(plain) && !part.contains("..")
    };
    text.len() <= MAX_NAME_BYTES && text.split('/').all(component)
}

impl fmt::Display for Reference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(formatter, ":{tag}")?;
        }
        match &self.digest {
            Some(digest) => write!(formatter, "@{digest}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn references_are_read_as_containers_have_them() {
        let read = |text: &str| text.parse::<Reference>().expect(text);
        let plain = read("registry.example/team/my-plugin");
        assert_eq!((plain.selector(), plain.name()), ("latest", "my-plugin"));
        let tagged = read("oci://localhost:5000/a/b:1.0");
        assert_eq!(tagged.registry, "localhost:5000");
        assert_eq!((tagged.selector(), tagged.tag()), ("1.0", "1.0"));
        let digest = Digest::of(b"x");
        let pinned = read(&format!("[::1]:5000/a:1@{digest}"));
        assert_eq!(pinned.selector(), digest.as_str());
        assert_eq!(pinned.named(), "[::1]:5000/a:1");
        for text in [
            "",
            "plugin",
            "team/plugin",
            "registry.example",
            "registry.example/",
            "registry.example/Team",
            "registry.example/a//b",
            "registry.example/../b",
            "registry.example/a..b",
            "registry.example/a:",
            "registry.example/a:-x",
            "registry.example/a:b/c",
            "registry.example/a@sha256:12",
            "registry.example/a@md5:12",
            "user@registry.example/a",
            "registry.example:port/a",
            "https://registry.example/a",
            "registry.example?/a",
        ] {
            assert!(text.parse::<Reference>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,60}") {
            if let Ok(reference) = text.parse::<Reference>() {
                let again = reference.to_string().parse::<Reference>();
                prop_assert_eq!(again, Ok(reference));
            }
        }

        #[test]
        fn a_name_never_leaves_its_folder(text in "[a-z./:_-]{0,20}") {
            if let Ok(reference) = format!("r.example/{text}").parse::<Reference>() {
                prop_assert!(!reference.name().contains(['/', '\\']) && !reference.name().starts_with('.'));
            }
        }
    }
}
