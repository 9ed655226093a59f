//! Builds the default plugins for WebAssembly, compiles them to machine code, and writes the Rust
//! source that embeds both and the demo model.
//!
//! Compiling needs wasmtime as a build dependency. `[profile.release.build-override]` in the root
//! manifest and the tables of this crate's make cargo build it once for here and for the server.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const TARGET: &str = "wasm32-wasip2";

/// Names of the default plugins; the packages are called `mortise-` and the name.
const PLUGINS: [&str; 4] = ["chat-template", "output-parser", "grammar", "policy"];

/// Without these a model cannot be loaded.
const MODEL_FILES: [&str; 5] = [
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
];

/// Set while working on plugins only: the binary then has no demo model.
const WITHOUT_MODEL: &str = "MORTISE_WITHOUT_DEMO_MODEL";

/// Variables that describe the build of the server and would change that of the plugins.
const LEAKING: [&str; 10] = [
    "__CARGO_TEST_CHANNEL_OVERRIDE_DO_NOT_USE_THIS",
    "CARGO_UNSTABLE_FEATURE_UNIFICATION",
    "CARGO_RESOLVER_FEATURE_UNIFICATION",
    "RUSTFLAGS",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_BUILD_RUSTFLAGS",
    "CARGO_BUILD_TARGET",
    "CARGO_MAKEFLAGS",
    "RUSTC_WRAPPER",
    "RUSTC_WORKSPACE_WRAPPER",
];

fn main() {
    let manifest = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let out = PathBuf::from(variable("OUT_DIR"));
    let root = manifest.join("../..");
    watch(&root);
    let mut source = String::new();
    if let Err(message) = build_plugins(&root, &out).and_then(|folder| {
        embed_plugins(&mut source, &folder, &out)?;
        embed_model(&mut source, &root.join("examples/demo-model/model"))?;
        fs::write(out.join("bundle.rs"), &source).map_err(|error| error.to_string())
    }) {
        // Cargo shows this as it is; a panic would bury it.
        eprintln!("error: {message}");
        std::process::exit(1);
    }
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}

fn watch(root: &Path) {
    let watched = [
        "plugins",
        "wit",
        "Cargo.lock",
        "Cargo.toml",
        "examples/demo-model/model",
    ];
    for path in watched {
        println!("cargo::rerun-if-changed={}", root.join(path).display());
    }
}

/// Build all plugins in one go; they land in the returned folder.
fn build_plugins(root: &Path, out: &Path) -> Result<PathBuf, String> {
    // A target folder of their own: the one of the server is locked while this runs.
    let target = out.join("plugins");
    let mut command = Command::new(variable("CARGO"));
    command
        .current_dir(root)
        .args([
            "build",
            "--locked",
            "--profile",
            "plugin",
            "--target",
            TARGET,
        ])
        .env("CARGO_TARGET_DIR", &target);
    for plugin in PLUGINS {
        command.args(["--package", &format!("mortise-{plugin}")]);
    }
    for (name, _) in env::vars() {
        let profile = name.starts_with("CARGO_PROFILE_") || name.starts_with("CARGO_CFG_");
        if profile || name.starts_with("CARGO_FEATURE_") || LEAKING.contains(&name.as_str()) {
            command.env_remove(&name);
        }
    }
    let output = command
        .output()
        .map_err(|error| format!("cannot run cargo for the default plugins: {error}"))?;
    if output.status.success() {
        return Ok(target.join(TARGET).join("plugin"));
    }
    let text = String::from_utf8_lossy(&output.stderr);
    if text.contains("can't find crate for `core`") || text.contains("target may not be installed")
    {
        return Err(format!(
            "the default plugins are WebAssembly and Rust's target {TARGET} is not installed; type\n\n    rustup target add {TARGET}\n"
        ));
    }
    Err(format!("building the default plugins failed:\n{text}"))
}

fn embed_plugins(source: &mut String, folder: &Path, out: &Path) -> Result<(), String> {
    source.push_str("const PLUGINS: &[(&str, &[u8], &[u8])] = &[\n");
    for name in PLUGINS {
        let built = folder.join(format!("mortise_{}.wasm", name.replace('-', "_")));
        let mut wasm = fs::read(&built)
            .map_err(|error| format!("cannot read {}: {error}", built.display()))?;
        append_version(&mut wasm);
        let path = out.join(format!("{name}.wasm"));
        fs::write(&path, &wasm)
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        let machine_code = mortise_plugin::precompile(&wasm)
            .map_err(|error| format!("compiling the default plugin `{name}` failed: {error}"))?;
        let compiled = out.join(format!("{name}.cwasm"));
        fs::write(&compiled, machine_code)
            .map_err(|error| format!("cannot write {}: {error}", compiled.display()))?;
        let _ = writeln!(
            source,
            "    ({name:?}, include_bytes!({path:?}), include_bytes!({compiled:?})),"
        );
    }
    source.push_str("];\n");
    Ok(())
}

/// Add the custom section that tells the plugin's version, which is that of the workspace.
fn append_version(wasm: &mut Vec<u8>) {
    const NAME: &[u8] = b"version";
    let version = variable("CARGO_PKG_VERSION");
    let size = 1 + NAME.len() + version.len();
    let short = |length: usize| u8::try_from(length).ok().filter(|byte| *byte < 0x80);
    let (Some(size), Some(name_size)) = (short(size), short(NAME.len())) else {
        panic!("the version `{version}` is too long")
    };
    wasm.extend_from_slice(&[0, size, name_size]);
    wasm.extend_from_slice(NAME);
    wasm.extend_from_slice(version.as_bytes());
}

fn embed_model(source: &mut String, folder: &Path) -> Result<(), String> {
    source.push_str("const DEMO_MODEL: &[(&str, &[u8])] = &[\n");
    println!("cargo::rerun-if-env-changed={WITHOUT_MODEL}");
    if env::var_os(WITHOUT_MODEL).is_some() {
        source.push_str("];\n");
        return Ok(());
    }
    let missing = MODEL_FILES.iter().find(|file| !folder.join(file).is_file());
    if let Some(file) = missing {
        return Err(format!(
            "the demo model is incomplete: {} has no {file}; check out examples/demo-model again, or train it as its README says",
            folder.display()
        ));
    }
    let entries = fs::read_dir(folder).map_err(|error| error.to_string())?;
    let mut paths: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    paths.sort();
    for path in paths.iter().filter(|path| path.is_file()) {
        let path = path.canonicalize().map_err(|error| error.to_string())?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let _ = writeln!(source, "    ({name:?}, include_bytes!({path:?})),");
    }
    source.push_str("];\n");
    Ok(())
}
