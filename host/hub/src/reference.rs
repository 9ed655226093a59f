//! References to models: `org/name[:quant][@revision]`.

use std::fmt;
use std::str::FromStr;

use crate::error::HubError;

/// A model on the hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelReference {
    /// `org/name`.
    pub repository: String,
    /// Quantisation of the GGUF file, such as `Q4_K_M`. Case does not matter.
    pub quant: Option<String>,
    /// A branch, a tag or a commit.
    pub revision: String,
}

/// The branch that is meant if none is named.
const MAIN: &str = "main";
const PART_MAX: usize = 96;
const REVISION_MAX: usize = 200;

impl FromStr for ModelReference {
    type Err = HubError;

    fn from_str(text: &str) -> Result<Self, HubError> {
        let wrong = |problem: &str| HubError::Reference {
            text: text.chars().take(300).collect(),
            problem: problem.to_owned(),
        };
        let (rest, revision) = match text.split_once('@') {
            Some((rest, revision)) => (rest, revision),
            None => (text, MAIN),
        };
        let (repository, quant) = match rest.split_once(':') {
            Some((repository, quant)) => (repository, Some(quant)),
            None => (rest, None),
        };
        let Some((organization, name)) = repository.split_once('/') else {
            return Err(wrong("it has no `/` between organization and name"));
        };
        for part in [organization, name] {
            if !is_name(part, PART_MAX) {
                return Err(wrong(
                    "organization and name are letters, digits, `-`, `_` and `.`, without `--` or `..`, at most 96",
                ));
            }
        }
        if quant.is_some_and(|quant| !is_name(quant, PART_MAX)) {
            return Err(wrong(
                "after `:` stands the name of a quantisation, such as Q4_K_M",
            ));
        }
        let parts: Vec<&str> = revision.split('/').collect();
        if revision.len() > REVISION_MAX || !parts.iter().all(|part| is_name(part, REVISION_MAX)) {
            return Err(wrong(
                "after `@` stands a branch, a tag or a commit: letters, digits, `-`, `_`, `.` and `/`",
            ));
        }
        Ok(Self {
            repository: repository.to_owned(),
            quant: quant.map(str::to_owned),
            revision: revision.to_owned(),
        })
    }
}

fn is_name(text: &str, most: usize) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=most).contains(&text.len())
        && text.bytes().all(allowed)
        && !text.starts_with(['.', '-'])
        && !text.ends_with('.')
        && !text.contains("..")
        && !text.contains("--")
}

impl fmt::Display for ModelReference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.repository)?;
        if let Some(quant) = &self.quant {
            write!(formatter, ":{quant}")?;
        }
        if self.revision != MAIN {
            write!(formatter, "@{}", self.revision)?;
        }
        Ok(())
    }
}

impl ModelReference {
    /// The repository's folder in the cache.
    pub(crate) fn folder(&self) -> String {
        format!("models--{}", self.repository.replace('/', "--"))
    }

    /// The name without the organization.
    pub fn name(&self) -> &str {
        self.repository
            .split_once('/')
            .map_or(&self.repository, |(_, name)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_read() {
        let reference: ModelReference = "Qwen/Qwen3-0.6B-GGUF:q8_0@v1.0".parse().expect("valid");
        assert_eq!(reference.repository, "Qwen/Qwen3-0.6B-GGUF");
        assert_eq!(reference.quant.as_deref(), Some("q8_0"));
        assert_eq!(reference.revision, "v1.0");
        assert_eq!(reference.folder(), "models--Qwen--Qwen3-0.6B-GGUF");
        assert_eq!(reference.to_string(), "Qwen/Qwen3-0.6B-GGUF:q8_0@v1.0");
        let plain: ModelReference = "a/b".parse().expect("valid");
        assert_eq!(
            (plain.quant.as_deref(), plain.revision.as_str()),
            (None, "main")
        );
        let pull: ModelReference = "a/b@refs/pr/3".parse().expect("valid");
        assert_eq!(pull.revision, "refs/pr/3");
    }

    #[test]
    fn names_that_could_leave_the_cache_are_refused() {
        for text in [
            "",
            "name",
            "/b",
            "a/",
            "../b",
            "a/..",
            "a/b/c",
            "a/.git",
            "a--x/b",
            "a/b:",
            "a/b:../x",
            "a/b@",
            "a/b@../../x",
            "a/b@x//y",
            "a/b@/etc",
            "a\\b/c",
            "a/b c",
            "ä/b",
            "a/b@-x",
        ] {
            assert!(text.parse::<ModelReference>().is_err(), "{text}");
        }
    }
}
