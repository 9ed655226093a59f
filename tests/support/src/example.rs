//! Plugins that tests build from source, as their authors would.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Target folder of all plugins in Rust: their dependencies are the same.
pub fn target() -> PathBuf {
    root().join("target/guests")
}

/// Add the target that plugins are built for, once.
pub fn add_target() {
    static ADDED: OnceLock<()> = OnceLock::new();
    ADDED.get_or_init(|| {
        let output = Command::new(root().join("host/bundle/add-target")).output();
        let output = output.expect("run host/bundle/add-target");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
    });
}

/// Build the plugin in `source` with the cargo that runs the tests; the file of this name.
fn build(source: &Path, file: &str, more: &[&str]) -> PathBuf {
    add_target();
    let target = target();
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--release", "--locked"])
        .args(["--target", "wasm32-wasip2"])
        .args(more)
        .arg("--target-dir")
        .arg(&target)
        // Flags for the machine are not flags for WebAssembly.
        .env_remove("RUSTFLAGS")
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

/// The clone.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The folder of `examples/plugins/NAME`.
pub fn source(name: &str) -> PathBuf {
    root().join("examples/plugins").join(name)
}

/// `examples/plugins/NAME`, built as it says.
pub fn built(name: &str) -> PathBuf {
    let file = format!("{}.wasm", name.replace('-', "_"));
    build(&source(name), &file, &[])
}

/// `tests/guests`, which is of every kind and can be told by its settings to fail in any function.
pub fn every_kind() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| guest("every-kind", "guest.wasm"))
}

/// The chat template of `tests/guests` that is put around another one.
pub fn outer_template() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| guest("outer-template", "outer.wasm"))
}

/// The chat template of `tests/guests` that is put into it.
pub fn inner_template() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| guest("inner-template", "inner.wasm"))
}

fn guest(feature: &str, name: &str) -> PathBuf {
    let _alone = alone();
    // Under a name of its own: each is built to the same place.
    let source = root().join("tests/guests");
    let built = build(&source, "guests.wasm", &["--features", feature]);
    let folder = crate::kept("guests");
    // Another test program may be reading the file that is there.
    let aside = tempfile::NamedTempFile::new_in(&folder).expect("make a file");
    std::fs::copy(built, aside.path()).expect("keep the guest");
    let kept = folder.join(name);
    aside.persist(&kept).expect("put the guest in its place");
    kept
}

/// Lock on the guests of `tests/guests`, which are all built to one file, by several test programs at a time
/// (`host/plugin/tests/hostile_guests` takes it as well). It is given back when the file is dropped.
fn alone() -> File {
    let target = target();
    std::fs::create_dir_all(&target).expect("make a folder below target/");
    let lock = File::create(target.join("guests.lock")).expect("make the lock of guests");
    lock.lock().expect("lock the guests");
    lock
}
