//! Models in a folder and below it: folders as Hugging Face lays them out, and GGUF files.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use mortise_model::INDEX_BYTES_MAX;

use super::gguf_name::{is_projector, part_of, projector_rank, stem_of};
use super::{Found, Skipped};
use crate::limits::{MAX_SCANNED_DEPTH, MAX_SCANNED_ENTRIES, MAX_SHARD_FILES};

const INDEX: &str = "model.safetensors.index.json";

/// Entries of folders that a scan has read, and folders that it has been to.
#[derive(Default)]
pub(super) struct ScannedEntries {
    read: usize,
    visited: HashSet<(u64, u64)>,
}

impl ScannedEntries {
    /// Whether the scan has read as much as it may.
    pub(super) fn exhausted(&self) -> bool {
        self.read >= MAX_SCANNED_ENTRIES
    }

    /// Files and folders of a folder, by name. A folder that links lead back to is empty.
    pub(super) fn of(&mut self, folder: &Path) -> Result<FolderNames, std::io::Error> {
        let mut listing = FolderNames::default();
        let metadata = fs::metadata(folder)?;
        if !self.visited.insert((metadata.dev(), metadata.ino())) {
            return Ok(listing);
        }
        for entry in fs::read_dir(folder)? {
            if self.exhausted() {
                break;
            }
            self.read += 1;
            let entry = entry?;
            let path = entry.path();
            let Some(name) = entry.file_name().to_str().map(str::to_owned) else {
                listing
                    .odd
                    .push(Skipped::new(&path, "its name is not UTF-8"));
                continue;
            };
            if name.starts_with('.') {
                continue;
            }
            // A link is what it points to; one that points nowhere is nothing.
            match fs::metadata(&path) {
                Ok(data) if data.is_dir() => listing.folders.insert(name),
                Ok(data) if data.is_file() => listing.files.insert(name),
                Ok(data) if is_of_a_model(&name) => {
                    if let Err(error) = mortise_files::check_type(&data) {
                        listing.odd.push(Skipped::new(&path, error.to_string()));
                    }
                    false
                }
                _ => false,
            };
        }
        Ok(listing)
    }
}

/// Names in one folder.
#[derive(Debug, Default)]
pub(super) struct FolderNames {
    pub(super) folders: BTreeSet<String>,
    pub(super) files: BTreeSet<String>,
    /// Entries whose names are not UTF-8, and files of models that are not regular files.
    pub(super) odd: Vec<Skipped>,
}

/// Whether a file of this name is one of a model's.
fn is_of_a_model(name: &str) -> bool {
    let ends = [".gguf", ".safetensors"];
    [INDEX, "config.json", "tokenizer.json"].contains(&name)
        || ends.iter().any(|end| name.ends_with(end))
}

/// A GGUF file that holds a model.
#[derive(Debug)]
pub(super) struct GgufModel {
    /// Stem, without the number of a part.
    pub(super) stem: String,
    pub(super) path: PathBuf,
}

/// Scan a folder and what lies below it. A model is called as its path from there.
pub(super) fn scan(
    folder: &Path,
    entries: &mut ScannedEntries,
    found: &mut Vec<Found>,
    skipped: &mut Vec<Skipped>,
) {
    walk(folder, "", 0, entries, found, skipped);
}

fn walk(
    folder: &Path,
    prefix: &str,
    depth: usize,
    entries: &mut ScannedEntries,
    found: &mut Vec<Found>,
    skipped: &mut Vec<Skipped>,
) {
    let mut listing = match entries.of(folder) {
        Ok(listing) => listing,
        Err(error) => return skipped.push(Skipped::new(folder, error.to_string())),
    };
    skipped.append(&mut listing.odd);
    let is_model = match folder_model(folder, &listing.files) {
        None => false,
        Some(Ok(())) => {
            let own = folder.file_name().map(|name| name.to_string_lossy());
            let name = match prefix.trim_end_matches('/') {
                "" => own.unwrap_or_default().into_owned(),
                name => name.to_owned(),
            };
            found.push(Found {
                name,
                path: folder.to_owned(),
                projector: None,
            });
            true
        }
        Some(Err(reason)) => {
            skipped.push(Skipped::new(folder, reason));
            true
        }
    };
    let projector = projector_of(folder, &listing.files);
    for gguf in gguf_models(folder, &listing.files, skipped) {
        found.push(Found {
            name: format!("{prefix}{}", gguf.stem),
            path: gguf.path,
            projector: projector.clone(),
        });
    }
    if is_model || depth >= MAX_SCANNED_DEPTH {
        return;
    }
    for name in listing.folders {
        let below = format!("{prefix}{name}/");
        walk(
            &folder.join(name),
            &below,
            depth + 1,
            entries,
            found,
            skipped,
        );
    }
}

/// Whether files are those of a model in safetensors; an error says what is missing. `None`: there is no such model.
pub(super) fn folder_model(folder: &Path, files: &BTreeSet<String>) -> Option<Result<(), String>> {
    let weights = |name: &String| name.ends_with(".safetensors");
    if !files.contains("config.json") || !files.iter().any(weights) && !files.contains(INDEX) {
        return None;
    }
    if !files.contains("tokenizer.json") {
        return Some(Err("it has no `tokenizer.json`".to_owned()));
    }
    if !files.contains(INDEX) {
        return Some(Ok(()));
    }
    let index = match ShardIndex::read(&folder.join(INDEX)) {
        Ok(index) => index,
        Err(error) => return Some(Err(format!("`{INDEX}`: {error}"))),
    };
    let mut named = index.weight_map.0.iter();
    Some(match named.find(|file| !files.contains(*file)) {
        None => Ok(()),
        Some(file) => Err(format!("the file `{file}` is missing")),
    })
}

/// Models in GGUF files of one folder. Of a model in several files, all must be there.
pub(super) fn gguf_models(
    folder: &Path,
    files: &BTreeSet<String>,
    skipped: &mut Vec<Skipped>,
) -> Vec<GgufModel> {
    let mut models = Vec::new();
    let mut split: BTreeMap<(&str, u32), BTreeMap<u32, &String>> = BTreeMap::new();
    for file in files {
        let Some(stem) = stem_of(file).filter(|stem| !is_projector(stem)) else {
            continue;
        };
        match part_of(stem) {
            Some((whole, part, count)) => {
                split.entry((whole, count)).or_default().insert(part, file);
            }
            None => models.push((stem, file)),
        }
    }
    for ((whole, count), parts) in split {
        let first = parts.values().next().copied();
        match (1..=count).find(|part| !parts.contains_key(part)) {
            None => models.extend(first.map(|file| (whole, file))),
            Some(part) => {
                let path = folder.join(first.map_or("", String::as_str));
                let reason = format!("part {part} of {count} is missing");
                skipped.push(Skipped::new(&path, reason));
            }
        }
    }
    let mut checked = Vec::new();
    for (stem, file) in models {
        let path = folder.join(file);
        match check_magic(&path) {
            Ok(()) => checked.push(GgufModel {
                stem: stem.to_owned(),
                path,
            }),
            Err(reason) => skipped.push(Skipped::new(&path, reason)),
        }
    }
    checked
}

/// The projector that serves the models of a folder, if there is one.
pub(super) fn projector_of(folder: &Path, files: &BTreeSet<String>) -> Option<PathBuf> {
    let projectors = files.iter().filter_map(|file| Some((stem_of(file)?, file)));
    let projectors = projectors.filter(|(stem, _)| is_projector(stem));
    let best = projectors.min_by_key(|(stem, _)| projector_rank(stem));
    best.map(|(_, file)| folder.join(file))
}

fn check_magic(path: &Path) -> Result<(), String> {
    let mut magic = [0; 4];
    let read = mortise_files::open(path).and_then(|mut file| file.read_exact(&mut magic));
    match read {
        Err(error) => Err(format!("it cannot be read: {error}")),
        Ok(()) if magic != *b"GGUF" => Err("it is no GGUF file".to_owned()),
        Ok(()) => Ok(()),
    }
}

/// Index of a model in several files, as far as a scan reads it: other values of the file take no memory.
#[derive(Deserialize)]
struct ShardIndex {
    #[serde(default)]
    weight_map: ShardFiles,
}

impl ShardIndex {
    fn read(path: &Path) -> Result<Self, String> {
        let text = mortise_files::read(path, INDEX_BYTES_MAX).map_err(|error| error.to_string())?;
        serde_json::from_slice(&text).map_err(|error| error.to_string())
    }
}

/// Names of the files that hold weights, whichever.
#[derive(Default)]
struct ShardFiles(BTreeSet<String>);

impl<'de> Deserialize<'de> for ShardFiles {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;

        impl<'de> Visitor<'de> for Entries {
            type Value = ShardFiles;

            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("a map from names of tensors to files")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<ShardFiles, A::Error> {
                let mut files = BTreeSet::new();
                while let Some((IgnoredAny, file)) = entries.next_entry::<IgnoredAny, String>()? {
                    files.insert(file);
                    if files.len() > MAX_SHARD_FILES {
                        let problem = format!("it names more than {MAX_SHARD_FILES} files");
                        return Err(A::Error::custom(problem));
                    }
                }
                Ok(ShardFiles(files))
            }
        }

        deserializer.deserialize_map(Entries)
    }
}

/// A file as JSON, of at most `limit` bytes.
pub(super) fn read_json(path: &Path, limit: u64) -> Result<Value, String> {
    let text = mortise_files::read(path, limit).map_err(|error| error.to_string())?;
    serde_json::from_slice(&text).map_err(|error| error.to_string())
}
