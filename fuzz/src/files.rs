//! Files of one input. The folder stays for all inputs, since making and removing one takes
//! longer than what most inputs do.

use std::path::Path;
use std::sync::LazyLock;

static FOLDER: LazyLock<tempfile::TempDir> =
    LazyLock::new(|| tempfile::tempdir().expect("make a folder"));

/// The folder, with these files in place of those of the input before, which had the same names.
pub(crate) fn with(files: &[(&str, &[u8])]) -> &'static Path {
    for (name, bytes) in files {
        std::fs::write(FOLDER.path().join(name), bytes).expect("write a file");
    }
    FOLDER.path()
}

/// The two parts of an input: up to its first zero byte, which JSON does not have, and behind it.
pub(crate) fn parts(input: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = input.iter().position(|byte| *byte == 0)?;
    Some((&input[..end], &input[end + 1..]))
}
