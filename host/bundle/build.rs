//! Builds the default plugins for WebAssembly, compiles them ahead of time, and lists them and the
//! demo model's files for `include_bytes!`.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const TARGET: &str = "wasm32-wasip2";

/// The default plugins: package and file name.
const PLUGINS: [&str; 4] = ["chat-template", "output-parser", "grammar", "policy"];

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .expect("the crate lies in the workspace");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for path in ["Cargo.lock", "Cargo.toml", "plugins", "wit"] {
        println!("cargo::rerun-if-changed={}", root.join(path).display());
    }
    let built = build_plugins(&root, &out.join("guests"));
    let mut list = String::from("static PLUGINS: &[(&str, &[u8], &[u8])] = &[\n");
    for name in PLUGINS {
        let wasm = built.join(format!("mortise_{}.wasm", name.replace('-', "_")));
        let bytes = read(&wasm);
        let compiled = out.join(format!("{name}.cwasm"));
        let machine_code = mortise_plugin::precompile(&bytes).unwrap_or_else(|error| {
            panic!("the default plugin `{name}` does not compile: {error}")
        });
        fs::write(&compiled, machine_code).expect("write below OUT_DIR");
        writeln!(
            list,
            "    ({name:?}, include_bytes!({wasm:?}), include_bytes!({compiled:?})),"
        )
        .expect("write to a string");
    }
    list.push_str("];\n");
    fs::write(out.join("plugins.rs"), list).expect("write below OUT_DIR");
    list_demo_model(&root.join("examples/demo-model/model"), &out);
}

/// Run cargo for the guests; returns the folder with the components.
fn build_plugins(root: &Path, target: &Path) -> PathBuf {
    let mut cargo = Command::new(env::var_os("CARGO").expect("cargo sets CARGO"));
    cargo
        .current_dir(root)
        .args([
            "build",
            "--locked",
            "--profile",
            "plugin",
            "--lib",
            "--target",
            TARGET,
        ])
        .arg("--target-dir")
        .arg(target);
    for name in PLUGINS {
        cargo.args(["--package", &format!("mortise-{name}")]);
    }
    // What cargo and the user set for the host's own build is not meant for the guests.
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        let leaks = text.starts_with("CARGO_ENCODED_")
            || text.starts_with("CARGO_CFG_")
            || text.starts_with("CARGO_FEATURE_")
            || text.starts_with("CARGO_PKG_")
            || text.starts_with("CARGO_PROFILE_")
            || [
                "RUSTFLAGS",
                "RUSTC_WRAPPER",
                "RUSTC_WORKSPACE_WRAPPER",
                "CARGO_TARGET_DIR",
                "CARGO_BUILD_TARGET",
            ]
            .contains(&&*text);
        if leaks {
            cargo.env_remove(&name);
        }
    }
    let status = cargo.status().expect("start cargo for the default plugins");
    assert!(
        status.success(),
        "building the default plugins failed; if the target is missing, type: rustup target add {TARGET}"
    );
    target.join(TARGET).join("plugin")
}

/// Every file of the demo model, under its own name.
fn list_demo_model(folder: &Path, out: &Path) {
    println!("cargo::rerun-if-changed={}", folder.display());
    let entries = fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("the demo model `{}`: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("read the folder of the demo model").path())
        .filter(|path| {
            path.extension()
                .is_some_and(|kind| kind == "json" || kind == "safetensors")
        })
        .collect();
    files.sort();
    assert!(
        !files.is_empty(),
        "the demo model `{}` has no files",
        folder.display()
    );
    let mut list = String::from("static DEMO_MODEL: &[(&str, &[u8])] = &[\n");
    for path in files {
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .expect("a plain file name");
        writeln!(list, "    ({name:?}, include_bytes!({path:?})),").expect("write to a string");
    }
    list.push_str("];\n");
    fs::write(out.join("demo_model.rs"), list).expect("write below OUT_DIR");
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
