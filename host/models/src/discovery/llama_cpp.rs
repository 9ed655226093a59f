//! Models in the cache of llama.cpp: files `VENDOR_REPOSITORY_FILE.gguf` in one folder, and manifests
//! `manifest=VENDOR=REPOSITORY=QUANT.json` that say whose they are.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::folder::{ScannedEntries, gguf_models, projector_of, read_json};
use super::{Found, Skipped};

/// Largest manifest that is read.
const MANIFEST_BYTES_MAX: u64 = 1 << 20;

/// Name and projector of a model, as its manifest has them.
struct Manifest {
    name: String,
    projector: Option<PathBuf>,
}

/// Scan a cache. One that does not exist is empty; manifests may be missing or broken.
pub(super) fn scan(
    cache: &Path,
    entries: &mut ScannedEntries,
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
    let mut manifests = HashMap::new();
    for file in &files {
        if let Some((file, manifest)) = read_manifest(cache, file, &files) {
            manifests.insert(file, manifest);
        }
    }
    for model in gguf_models(cache, &files, skipped) {
        let file = model.path.file_name().and_then(|name| name.to_str());
        let manifest = file.and_then(|file| manifests.remove(file));
        let (name, projector) = match manifest {
            Some(manifest) => (manifest.name, manifest.projector),
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
fn read_manifest(cache: &Path, file: &str, files: &BTreeSet<String>) -> Option<(String, Manifest)> {
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
    Some((model, Manifest { name, projector }))
}
