//! Pins of models: the digest that the files of a model must have.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use sha2::{Digest as _, Sha256};

use crate::config::ModelConfig;

/// Check the files at a path against the pin of a model, if it has one. Reads all of them.
///
/// # Errors
/// When a file cannot be read, or the digest is another.
pub fn check_pin(config: &ModelConfig, path: &Path) -> anyhow::Result<()> {
    let Some(pin) = &config.sha256 else {
        return Ok(());
    };
    let found = digest_of(path)
        .with_context(|| format!("the digest of `{}` cannot be had", path.display()))?;
    if found != *pin {
        bail!(
            "the files of `{}` have the SHA-256 digest {found}, and `sha256` pins {pin}; they were changed, or the pin \
             is that of other files",
            path.display()
        );
    }
    Ok(())
}

/// The digest of a file; of a folder, that of the list that `sha256sum *` writes there in the order of bytes; and so
/// of the parts of a GGUF model, of which the path is the first.
fn digest_of(path: &Path) -> io::Result<String> {
    let files = match path.is_dir() {
        true => files_of(path)?,
        false => parts_of(path),
    };
    if let ([only], false) = (files.as_slice(), path.is_dir()) {
        return digest_of_file(only);
    }
    let mut list = Sha256::new();
    for file in files {
        let name = file.file_name().map(|name| name.to_string_lossy());
        let digest = digest_of_file(&file)?;
        list.update(format!("{digest}  {}\n", name.unwrap_or_default()));
    }
    Ok(format!("{:x}", list.finalize()))
}

/// Files of a folder that are not hidden, in the order of bytes. Links are followed.
fn files_of(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        if !hidden && fs::metadata(entry.path())?.is_file() {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}

/// A GGUF file, and the other parts of its model if its name says that it is the first.
fn parts_of(first: &Path) -> Vec<PathBuf> {
    let name = first.file_name().map(|name| name.to_string_lossy());
    let split = name.as_deref().and_then(|name| {
        let (stem, count) = name.strip_suffix(".gguf")?.split_once("-00001-of-")?;
        Some((stem.to_owned(), count.parse::<u32>().ok()?))
    });
    match split {
        Some((stem, count @ 2..=99_999)) => (1..=count)
            .map(|part| first.with_file_name(format!("{stem}-{part:05}-of-{count:05}.gguf")))
            .collect(),
        _ => vec![first.to_owned()],
    }
}

fn digest_of_file(path: &Path) -> io::Result<String> {
    let mut digest = Sha256::new();
    let read = mortise_files::open(path).and_then(|mut file| io::copy(&mut file, &mut digest));
    read.map_err(|error| io::Error::new(error.kind(), format!("`{}`: {error}", path.display())))?;
    Ok(format!("{:x}", digest.finalize()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The digest of `abc`, as the standard has it (FIPS 180-2, appendix B.1).
    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn pinned(pin: &str) -> ModelConfig {
        ModelConfig {
            sha256: Some(pin.to_owned()),
            ..ModelConfig::of_path(None)
        }
    }

    #[test]
    fn a_pin_holds_a_file_and_a_folder_to_what_they_were() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("m.gguf");
        fs::write(&file, "abc").expect("written");
        check_pin(&pinned(ABC), &file).expect("the digest");
        fs::write(folder.path().join(".hidden"), "x").expect("written");
        let list = format!("{ABC}  m.gguf\n");
        let of_list = format!("{:x}", Sha256::digest(list));
        check_pin(&pinned(&of_list), folder.path()).expect("the digest");
        fs::write(&file, "abd").expect("written");
        let error = check_pin(&pinned(ABC), &file)
            .expect_err("changed")
            .to_string();
        assert!(error.contains(ABC) && error.contains("m.gguf"), "{error}");
        assert!(check_pin(&pinned(&of_list), folder.path()).is_err());
        assert!(check_pin(&pinned(ABC), &folder.path().join("absent")).is_err());
    }

    #[test]
    fn a_part_that_is_a_fifo_is_named_and_not_waited_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let [first, second] =
            ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"].map(|name| folder.path().join(name));
        fs::write(&first, "abc").expect("written");
        let made = std::process::Command::new("mkfifo").arg(&second).status();
        assert!(made.expect("run mkfifo").success());
        let error = check_pin(&pinned(ABC), &first).expect_err("refused");
        let said = format!("{error:#}");
        assert!(
            said.contains("m-00002-of-00002.gguf`: it is a FIFO"),
            "{said}"
        );
    }

    #[test]
    fn all_parts_of_a_model_count() {
        let folder = tempfile::tempdir().expect("a folder");
        let parts =
            ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"].map(|name| folder.path().join(name));
        parts
            .iter()
            .for_each(|part| fs::write(part, "abc").expect("written"));
        let list = format!("{ABC}  m-00001-of-00002.gguf\n{ABC}  m-00002-of-00002.gguf\n");
        let pin = format!("{:x}", Sha256::digest(list));
        check_pin(&pinned(&pin), &parts[0]).expect("the digest");
        fs::write(&parts[1], "x").expect("written");
        assert!(check_pin(&pinned(&pin), &parts[0]).is_err());
    }
}
