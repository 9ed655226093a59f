//! Templates of published models, fetched by `published.py`, and `published.json` about them. Part of the tests of the
//! chat-template plugin and of the output parser.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The folder of the templates, and what is known of them. `None` if they cannot be had here, which fails where
/// `MORTISE_REQUIRE_SDKS` is set.
pub(crate) fn published(tmp: &str, test: &str) -> Option<(PathBuf, Value)> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/templates");
    let script = std::fs::read(here.join("published.py")).unwrap();
    let document = std::fs::read(here.join("published.json")).unwrap();
    // Another version of the script may fetch other packages.
    let version = script.iter().fold(0_u32, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(u32::from(*byte))
    });
    let folder = Path::new(tmp).join(format!("published-templates-{version:08x}"));
    let fetched = Command::new("python3")
        .arg(here.join("published.py"))
        .arg("fetch")
        .arg(&folder)
        .output();
    let why = match fetched {
        Ok(output) if output.status.success() => {
            return Some((folder, serde_json::from_slice(&document).unwrap()));
        }
        Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
        Err(error) => error.to_string(),
    };
    assert!(
        std::env::var_os("MORTISE_REQUIRE_SDKS").is_none(),
        "the templates cannot be fetched, and MORTISE_REQUIRE_SDKS is set: {why}"
    );
    // Past the capture of the test runner, which shows nothing of tests that pass.
    let line = format!("skipped: {test}: the templates cannot be fetched\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
    None
}
