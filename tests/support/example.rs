//! Plugins that tests build from source, as their authors would.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Build the plugin in `source` with the cargo that runs the tests; the file of this name.
fn build(source: &Path, target: &Path, file: &str, more: &[&str]) -> PathBuf {
    let output = Command::new(env!("CARGO"))
        .args(["build", "--release", "--locked"])
        .args(["--target", "wasm32-wasip2"])
        .args(more)
        .arg("--target-dir")
        .arg(target)
        .current_dir(source)
        .output()
        .expect("run cargo");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    target.join("wasm32-wasip2/release").join(file)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The folder of `examples/plugins/NAME`.
pub fn source(name: &str) -> PathBuf {
    root().join("examples/plugins").join(name)
}

/// `examples/plugins/NAME`, built as it says. The examples share a folder, since what they depend on is
/// the same.
pub fn built(name: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("example-plugins");
    let file = format!("{}.wasm", name.replace('-', "_"));
    build(&source(name), &target, &file, &[])
}

/// `tests/guests`, which is of every kind and can be told by its settings to fail in any function.
pub fn every_kind() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let (source, target) = (root().join("tests/guests"), root().join("target/guests"));
        let built = build(
            &source,
            &target,
            "guests.wasm",
            &["--features", "every-kind"],
        );
        // Under a name of its own: other tests build other guests to the same place.
        let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guest.wasm");
        std::fs::copy(built, &kept).expect("keep the guest");
        kept
    })
}
