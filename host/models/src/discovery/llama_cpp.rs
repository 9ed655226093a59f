//! Models in the cache of llama.cpp: files `VENDOR_REPOSITORY_FILE.gguf` in one folder, and manifests
//! `manifest=VENDOR=REPOSITORY=QUANT.json` that say whose they are.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::folder::{Entries, gguf_models, projector_of, read_json};
use super::{Found, Skipped};

/// Largest manifest that is read.
const MANIFEST_BYTES_MAX: u64 = 1 << 20;

/// Repository of a file, as a manifest has it.
struct Origin {
    name: String,
    projector: Option<PathBuf>,
}

/// Scan a cache. One that does not exist is empty; manifests may be missing or broken.
pub(super) fn scan(
    cache: &Path,
    entries: &mut Entries,
    found: &mut Vec<Found>,
    skipped: &mut Vec<Skipped>,
) {
    if !cache.exists() {
        return;
    }
    let files = match entries.of(cache) {
        Ok(listing) => listing.files,
        Err(error) => return skipped.push(Skipped::new(cache, error.to_string())),
    };
    let mut origins = HashMap::new();
    for file in &files {
        if let Some((file, origin)) = manifest(cache, file, &files) {
            origins.insert(file, origin);
        }
    }
    for model in gguf_models(cache, &files, skipped) {
        let file = model.path.file_name().and_then(|name| name.to_str());
        let origin = file.and_then(|file| origins.remove(file));
        let (name, projector) = match origin {
            Some(origin) => (origin.name, origin.projector),
            None => (model.stem, None),
        };
        found.push(Found {
            name,
            path: model.path,
            projector,
        });
    }
}

/// The file that a manifest is about, and whose it is. `None`: it is no manifest, or it says nothing that can be used.
fn manifest(cache: &Path, file: &str, files: &BTreeSet<String>) -> Option<(String, Origin)> {
    let parts: Vec<&str> = file.strip_suffix(".json")?.split('=').collect();
    let ["manifest", vendor, repository, quant] = parts.as_slice() else {
        return None;
    };
    let manifest = read_json(&cache.join(file), MANIFEST_BYTES_MAX).ok()?;
    let cached = |file: &Value| {
        let name = file["rfilename"].as_str()?.replace('/', "_");
        let name = format!("{vendor}_{repository}_{name}");
        files.contains(&name).then_some(name)
    };
    let model = cached(&manifest["ggufFile"])?;
    let named = cached(&manifest["mmprojFile"]).map(|file| cache.join(file));
    // The cache is one folder for all repositories: a projector is of one by its prefix.
    let prefix = format!("{vendor}_{repository}_");
    let own = files.iter().filter(|file| file.starts_with(&prefix));
    let projector = named.or_else(|| projector_of(cache, &own.cloned().collect()));
    let name = format!("{vendor}/{repository}:{quant}");
    Some((model, Origin { name, projector }))
}
