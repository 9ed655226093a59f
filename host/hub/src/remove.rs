//! Removal of models from a cache that is one's own.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::cache::disk;
use crate::error::HubError;

/// Entries of a repository's folder that are looked at.
const MAX_ENTRIES: usize = 200_000;

/// Remove a model from `cache`: of a folder of a model its whole repository, of a GGUF file that file with its further
/// parts, and the repository once no GGUF file is left. `model` is a path as [`Hub::fetch`](crate::Hub::fetch) gave it.
///
/// # Errors
/// When the path is not that of a model in the cache, or the disk refuses.
pub fn remove(cache: &Path, model: &Path) -> Result<(), HubError> {
    let inside = model.strip_prefix(cache).ok();
    let mut parts = inside.into_iter().flat_map(Path::components);
    let repository = parts
        .next()
        .map(|part| cache.join(part.as_os_str()))
        .filter(|folder| folder.join("snapshots").is_dir())
        .ok_or_else(|| HubError::Disk {
            path: model.to_owned(),
            source: std::io::Error::other("it is no model of this cache"),
        })?;
    let is_file = model
        .extension()
        .is_some_and(|extension| extension == "gguf");
    if is_file {
        for part in parts_of(model) {
            match fs::remove_file(&part) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(disk(&part)(error));
                }
                _ => {}
            }
        }
        let links = links(&repository.join("snapshots"));
        let gguf = |link: &PathBuf| link.extension().is_some_and(|end| end == "gguf");
        if links.iter().any(gguf) {
            return remove_unused(&repository.join("blobs"), &links);
        }
    }
    fs::remove_dir_all(&repository).map_err(disk(&repository))
}

/// Bytes of a model's files: of a folder, or of a GGUF file with its further parts.
pub fn size_of(model: &Path) -> u64 {
    let files = match model.is_dir() {
        true => links(model),
        false => parts_of(model),
    };
    // Follows links: of those the contents count.
    let sizes = files.iter().filter_map(|file| fs::metadata(file).ok());
    sizes.map(|data| data.len()).sum()
}

/// A file and, if its name ends in the number of a part, the others beside it.
fn parts_of(file: &Path) -> Vec<PathBuf> {
    let name = file.file_stem().and_then(|stem| stem.to_str());
    let count = name.and_then(|name| {
        let (rest, count) = name.rsplit_once("-of-")?;
        let (stem, number) = rest.rsplit_once('-')?;
        let digits = |text: &str| text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
        (digits(number) && digits(count)).then(|| (stem, count.parse::<u32>().unwrap_or(0)))
    });
    match count {
        None => vec![file.to_owned()],
        Some((stem, count)) => (1..=count)
            .map(|number| file.with_file_name(format!("{stem}-{number:05}-of-{count:05}.gguf")))
            .collect(),
    }
}

/// Links of all snapshots, at most so many as are looked at.
fn links(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            if found.len() + folders.len() >= MAX_ENTRIES {
                return found;
            }
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                Ok(_) => found.push(entry.path()),
                Err(_) => {}
            }
        }
    }
    found
}

/// Remove contents that no snapshot shows. Those that are still coming stay.
fn remove_unused(blobs: &Path, links: &[PathBuf]) -> Result<(), HubError> {
    let target = |link: &PathBuf| Some(fs::read_link(link).ok()?.file_name()?.to_owned());
    let used: BTreeSet<_> = links.iter().filter_map(target).collect();
    for entry in fs::read_dir(blobs).map_err(disk(blobs))?.flatten() {
        let path = entry.path();
        if !used.contains(&entry.file_name()) && path.extension().is_none() {
            fs::remove_file(&path).map_err(disk(&path))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(files: &[&str]) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let repository = folder.path().join("models--a--b");
        let snapshot = repository.join("snapshots/0123456");
        fs::create_dir_all(&snapshot).expect("a folder");
        fs::create_dir_all(repository.join("blobs")).expect("a folder");
        for file in files {
            fs::write(
                repository.join("blobs").join(format!("tag{}", file.len())),
                file,
            )
            .expect("written");
            let target = format!("../../blobs/tag{}", file.len());
            std::os::unix::fs::symlink(target, snapshot.join(file)).expect("a link");
        }
        (folder, snapshot)
    }

    #[test]
    fn a_file_goes_with_its_parts_and_the_last_takes_the_repository() {
        let (folder, snapshot) = cache(&[
            "m-00001-of-00002.gguf",
            "m--00002-of-00002.gguf",
            "other.gguf",
        ]);
        fs::rename(
            snapshot.join("m--00002-of-00002.gguf"),
            snapshot.join("m-00002-of-00002.gguf"),
        )
        .expect("renamed");
        remove(folder.path(), &snapshot.join("m-00001-of-00002.gguf")).expect("removed");
        let blobs =
            || fs::read_dir(folder.path().join("models--a--b/blobs")).map(|all| all.count());
        assert_eq!(blobs().expect("a folder"), 1);
        assert!(snapshot.join("other.gguf").exists());
        remove(folder.path(), &snapshot.join("other.gguf")).expect("removed");
        assert!(!folder.path().join("models--a--b").exists());
    }

    #[test]
    fn a_folder_takes_its_repository_and_nothing_outside() {
        let (folder, snapshot) = cache(&["config.json"]);
        fs::write(folder.path().join("beside"), "x").expect("written");
        for outside in [
            folder.path().to_owned(),
            folder.path().join("beside"),
            PathBuf::from("/tmp"),
        ] {
            assert!(remove(folder.path(), &outside).is_err(), "{outside:?}");
        }
        remove(folder.path(), &snapshot).expect("removed");
        assert!(folder.path().join("beside").exists() && !snapshot.exists());
    }
}
