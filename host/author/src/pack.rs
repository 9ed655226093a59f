//! `mortise plugin pack`: what compilers leave to do until a file is a plugin.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail};
use mortise_plugin::{
    CASES_SECTION, MAX_SECTION_BYTES, SCHEMA_SECTION, SERVES_SECTION, VERSION_SECTION,
};
use mortise_plugin_manager::DeclaredModels;
use serde_json::{Value, json};

use crate::args::PluginPackArgs;
use crate::cases::raw_cases;
use mortise_harness::check_number;

/// Make a component of a core module, if it is one, and put into it what was given. Says what it made.
pub(crate) fn pack(args: &PluginPackArgs) -> anyhow::Result<Value> {
    let file = args.file.display();
    let read =
        |path: &Path| fs::read(path).with_context(|| format!("cannot read `{}`", path.display()));
    let mut wasm = read(&args.file)?;
    if mortise_wit::is_core_module(&wasm) {
        let Some(kind) = args.kind else {
            bail!("`{file}` is a core module; say what it is to be with --kind");
        };
        let kind = kind.as_str();
        wasm = mortise_wit::wrap(&wasm, kind).with_context(|| format!("cannot pack `{file}`"))?;
    }
    let mut sections: Vec<(&str, Vec<u8>)> = Vec::new();
    if let Some(path) = &args.settings_schema {
        let schema = read(path)?;
        let wrong = || format!("`{}` is not JSON", path.display());
        let _: Value = serde_json::from_slice(&schema).with_context(wrong)?;
        sections.push((SCHEMA_SECTION, schema));
    }
    if let Some(folder) = &args.cases {
        let wrong = || format!("the cases in `{}` cannot be carried", folder.display());
        let cases = raw_cases(folder)?;
        check_number(&cases).with_context(wrong)?;
        sections.push((CASES_SECTION, serde_json::to_vec(&cases)?));
    }
    if let Some(path) = &args.serves {
        let text = fs::read_to_string(path)
            .with_context(|| format!("cannot read `{}`", path.display()))?;
        DeclaredModels::parse(&text)
            .map_err(anyhow::Error::msg)
            .with_context(|| format!("`{}` is no good", path.display()))?;
        sections.push((SERVES_SECTION, text.into_bytes()));
    }
    if let Some(version) = &args.plugin_version {
        sections.push((VERSION_SECTION, version.clone().into_bytes()));
    }
    for (name, content) in &sections {
        mortise_wit::add_section(&mut wasm, name, content, MAX_SECTION_BYTES)?;
    }
    fs::write(&args.output, &wasm)
        .with_context(|| format!("cannot write `{}`", args.output.display()))?;
    let names: Vec<&str> = sections.iter().map(|(name, _)| *name).collect();
    Ok(json!({"file": args.output, "bytes": wasm.len(), "sections": names}))
}
