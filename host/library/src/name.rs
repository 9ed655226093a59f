//! Names of models and files that callers choose. Names of files become names on the disk, those of models never do.

use crate::error::{LibraryError, invalid};
use crate::limits::{MAX_FILE_NAME_BYTES, MAX_NAME_BYTES};

/// Endings of the files that a model may have.
const ENDINGS: [&str; 6] = ["gguf", "jinja", "json", "model", "safetensors", "txt"];

/// Check the name of a model: `name` or `org/name`.
pub(crate) fn check_model_name(name: &str) -> Result<(), LibraryError> {
    let parts = name.split('/').count();
    if name.len() <= MAX_NAME_BYTES && parts <= 2 && name.split('/').all(is_plain) {
        return Ok(());
    }
    Err(invalid(
        "model_id",
        format!(
            "the name of a model has letters, digits, `-`, `_` and `.`, with one `/` at most, and begins with a letter \
             or digit; {MAX_NAME_BYTES} bytes at most"
        ),
    ))
}

/// Check the name of a file of a model.
pub(crate) fn check_file_name(name: &str) -> Result<(), LibraryError> {
    let ending = name.rsplit_once('.').map(|(_, ending)| ending);
    let known = ending.is_some_and(|ending| ENDINGS.contains(&ending));
    if known && name.len() <= MAX_FILE_NAME_BYTES && is_plain(name) {
        return Ok(());
    }
    Err(invalid(
        "file",
        format!(
            "the name of a file has letters, digits, `-`, `_` and `.`, without a folder, and ends in one of {}; \
             {MAX_FILE_NAME_BYTES} bytes at most",
            ENDINGS.map(|ending| format!(".{ending}")).join(", ")
        ),
    ))
}

pub(crate) fn is_plain(part: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    part.bytes().all(allowed)
        && part.starts_with(|first: char| first.is_ascii_alphanumeric())
        && !part.contains("..")
}

/// Check a SHA-256 digest as hexadecimal digits; in lower case.
pub(crate) fn digest_of(text: &str) -> Result<String, LibraryError> {
    let text = text.strip_prefix("sha256:").unwrap_or(text);
    match text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        true => Ok(text.to_ascii_lowercase()),
        false => Err(invalid(
            "sha256",
            "a SHA-256 digest has 64 hexadecimal digits",
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Component, Path};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_of_models_and_files_are_plain() {
        for name in ["a", "org/name", "Qwen3-0.6B_q8.0"] {
            assert!(check_model_name(name).is_ok(), "{name}");
        }
        for name in [
            "", "/a", "a/", "../a", "a/..", "a/b/c", "a b", "ä", ".a", "-a", "a\0", "a\\b",
        ] {
            assert!(check_model_name(name).is_err(), "{name:?}");
        }
        for name in [
            "model.gguf",
            "config.json",
            "model-00001-of-00002.safetensors",
        ] {
            assert!(check_file_name(name).is_ok(), "{name}");
        }
        for name in [
            "",
            "model",
            "a/b.json",
            "../x.json",
            "..json",
            ".json",
            "x.py",
            "x.JSON",
            "C:x.json",
            "a\\b.json",
        ] {
            assert!(check_file_name(name).is_err(), "{name:?}");
        }
    }

    proptest! {
        #[test]
        fn a_file_that_is_taken_stays_in_its_folder(name in "[a-z./\\\\: -]{0,24}(\\.json|\\.gguf)?") {
            if check_file_name(&name).is_ok() {
                let parts: Vec<Component<'_>> = Path::new(&name).components().collect();
                prop_assert!(matches!(parts[..], [Component::Normal(_)]));
            }
        }
    }
}
