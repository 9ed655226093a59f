//! Models in the cache that `huggingface_hub` and other tools share: of each repository the branch `main`.

use std::collections::BTreeSet;
use std::path::Path;

use mortise_hub::{CachedRepository, ModelReference};

use super::folder::{GgufModel, ScannedEntries, folder_model, gguf_models, projector_of};
use super::gguf_name::tag_of;
use super::{Found, Skipped};

/// Prefix of a repository's folder.
const MODELS: &str = "models--";
const BRANCH: &str = "main";

/// Scan a cache. One that does not exist is empty.
pub(super) fn scan(
    cache: &Path,
    entries: &mut ScannedEntries,
    found: &mut Vec<Found>,
    skipped: &mut Vec<Skipped>,
) {
    if !cache.exists() {
        return;
    }
    let listing = match entries.of(cache) {
        Ok(listing) => listing,
        Err(error) => return skipped.push(Skipped::new(cache, error.to_string())),
    };
    for folder in &listing.folders {
        let Some(name) = folder.strip_prefix(MODELS) else {
            continue;
        };
        let name = name.replacen("--", "/", 1);
        if let Err(reason) = repository(cache, &name, entries, found, skipped) {
            skipped.push(Skipped::new(&cache.join(folder), reason));
        }
    }
}

/// Models of one repository; an error says why there is none.
fn repository(
    cache: &Path,
    name: &str,
    entries: &mut ScannedEntries,
    found: &mut Vec<Found>,
    skipped: &mut Vec<Skipped>,
) -> Result<(), String> {
    let reference: ModelReference = name.parse().map_err(|error| format!("{error}"))?;
    let cached = CachedRepository::new(cache, &reference);
    let commit = cached.commit(BRANCH);
    let commit = commit.ok_or_else(|| format!("its branch `{BRANCH}` is not in the cache"))?;
    let snapshot = cached.snapshot(&commit);
    let mut listing = entries.of(&snapshot).map_err(|error| error.to_string())?;
    skipped.append(&mut listing.odd);
    let model = folder_model(&snapshot, &listing.files);
    if let Some(checked) = &model {
        checked.clone()?;
        found.push(Found {
            name: name.to_owned(),
            path: snapshot.clone(),
            projector: None,
        });
    }
    // Files of one quantisation may lie in a folder of their own.
    let mut models: Vec<(GgufModel, _)> = Vec::new();
    let mut add = |folder: &Path, files: &BTreeSet<String>| {
        let projector = projector_of(folder, files);
        let ggufs = gguf_models(folder, files, skipped);
        models.extend(ggufs.into_iter().map(|model| (model, projector.clone())));
    };
    add(&snapshot, &listing.files);
    for folder in &listing.folders {
        let folder = snapshot.join(folder);
        let listing = entries.of(&folder).map_err(|error| error.to_string())?;
        add(&folder, &listing.files);
    }
    let alone = models.len() == 1 && model.is_none();
    for (gguf, projector) in models {
        let tag = tag_of(&gguf.stem).unwrap_or(&gguf.stem);
        found.push(Found {
            name: match alone {
                true => name.to_owned(),
                false => format!("{name}:{tag}"),
            },
            path: gguf.path,
            projector,
        });
    }
    Ok(())
}
