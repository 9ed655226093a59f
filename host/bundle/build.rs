//! Compiles the default plugins to machine code and writes the Rust source that embeds them, with and
//! without machine code, compressed, and the demo model.
//!
//! The components themselves are files of the repository, `host/bundle/prebuilt`, made by `host/bundle/build-plugins`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use wasm_encoder::{ComponentSection, CustomSection};
use zlib_rs::{DeflateConfig, ReturnCode, compress_bound, compress_slice};

/// Names of the default plugins.
const PLUGINS: [&str; 4] = ["chat-template", "output-parser", "grammar", "policy"];

/// Name of the component that reads files.
const READER: &str = "document-reader";

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

fn main() {
    let manifest = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let out = PathBuf::from(variable("OUT_DIR"));
    let root = manifest.join("../..");
    let mut source = String::new();
    let written = embed_plugins(&mut source, &manifest.join("prebuilt"), &out)
        .and_then(|()| embed_model(&mut source, &root.join("examples/demo-model/model"), &out))
        .and_then(|()| write(&out.join("bundle.rs"), source.as_bytes()));
    if let Err(message) = written {
        // Cargo shows this as it is; a panic would bury it.
        eprintln!("error: {message}");
        std::process::exit(1);
    }
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), String> {
    fs::write(path, bytes).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

fn embed_plugins(source: &mut String, folder: &Path, out: &Path) -> Result<(), String> {
    println!("cargo::rerun-if-changed={}", folder.display());
    source.push_str("static PLUGINS: &[(&str, Packed, Packed)] = &[\n");
    for name in PLUGINS {
        let _ = writeln!(source, "    {},", embedded(name, folder, out)?);
    }
    source.push_str("];\n");
    // Few servers ever read such a file: those compile it with the first one, and the rest are smaller.
    let reader = packed(&component(READER, folder)?, &out.join(READER))?;
    let _ = writeln!(
        source,
        "static READER: (&str, Packed) = ({READER:?}, {reader});"
    );
    Ok(())
}

/// The expression of a plugin: its name, itself and its machine code.
fn embedded(name: &str, folder: &Path, out: &Path) -> Result<String, String> {
    let wasm = component(name, folder)?;
    let machine_code = mortise_aot::precompile(&wasm)
        .map_err(|error| format!("compiling the default plugin `{name}` failed: {error:#}"))?;
    let wasm = packed(&wasm, &out.join(format!("{name}.wasm")))?;
    let machine_code = packed(&machine_code, &out.join(format!("{name}.cwasm")))?;
    Ok(format!("({name:?}, {wasm}, {machine_code})"))
}

/// A component with its version.
fn component(name: &str, folder: &Path) -> Result<Vec<u8>, String> {
    let prebuilt = folder.join(format!("{name}.wasm"));
    let mut wasm = fs::read(&prebuilt)
        .map_err(|error| format!("cannot read {}: {error}", prebuilt.display()))?;
    append_version(&mut wasm);
    Ok(wasm)
}

/// The expression of bytes that are compressed in this file.
fn packed(bytes: &[u8], file: &Path) -> Result<String, String> {
    let path = file.with_added_extension("zlib");
    let mut room = vec![0; compress_bound(bytes.len())];
    let (compressed, end) = compress_slice(&mut room, bytes, DeflateConfig::best_compression());
    if end != ReturnCode::Ok {
        return Err(format!("compressing {} failed: {end:?}", file.display()));
    }
    write(&path, compressed)?;
    let length = bytes.len();
    Ok(format!(
        "Packed {{ length: {length}, bytes: include_bytes!({path:?}) }}"
    ))
}

/// Add the custom section that tells the plugin's version, which is that of the workspace.
fn append_version(wasm: &mut Vec<u8>) {
    let section = CustomSection {
        name: "version".into(),
        data: variable("CARGO_PKG_VERSION").into_bytes().into(),
    };
    section.append_to_component(wasm);
}

fn embed_model(source: &mut String, folder: &Path, out: &Path) -> Result<(), String> {
    println!("cargo::rerun-if-changed={}", folder.display());
    // A constant would be in the program once for each unit of code that names it.
    source.push_str("static DEMO_MODEL: &[(&str, Packed)] = &[\n");
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
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let bytes = fs::read(path).map_err(|error| error.to_string())?;
        let file = packed(&bytes, &out.join(&*name))?;
        let _ = writeln!(source, "    ({name:?}, {file}),");
    }
    source.push_str("];\n");
    Ok(())
}
