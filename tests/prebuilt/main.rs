//! The default plugins that the server embeds are those that the sources below `plugins/` make: built
//! again here, bit for bit.
//!
//! Where Rust's target wasm32-wasip2 is missing and cannot be fetched, the test fails and says how to add it.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

const PLUGINS: [&str; 5] = [
    "chat-template",
    "output-parser",
    "grammar",
    "policy",
    "document-reader",
];

#[test]
fn prebuilt_plugins_are_what_their_sources_make() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let rebuilt = Path::new(env!("CARGO_TARGET_TMPDIR")).join("prebuilt");
    let output = Command::new(root.join("host/bundle/build-plugins"))
        .arg(&rebuilt)
        .output()
        .expect("run host/bundle/build-plugins");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "host/bundle/build-plugins failed:\n{errors}"
    );
    for plugin in PLUGINS {
        let name = format!("{plugin}.wasm");
        let new = fs::read(rebuilt.join(&name)).expect("read a plugin that was just built");
        let committed =
            fs::read(root.join("host/bundle/prebuilt").join(&name)).unwrap_or_else(|error| {
                panic!("host/bundle/prebuilt/{name}: {error}; run host/bundle/build-plugins")
            });
        let same = new.iter().zip(&committed).take_while(|(a, b)| a == b);
        assert!(
            new == committed,
            "host/bundle/prebuilt/{name} ({} bytes) is not what its sources make ({} bytes, the first {} are the \
             same); run host/bundle/build-plugins and commit the file",
            committed.len(),
            new.len(),
            same.count(),
        );
    }
}
