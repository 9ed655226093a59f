//! Files of a model that was uploaded: checked, and what they are together.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;

use sha2::{Digest as _, Sha256};

use crate::error::{LibraryError, disk};

/// A file that has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReceivedFile {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    pub(crate) sha256: String,
}

/// First bytes of a GGUF file.
const GGUF: &[u8; 4] = b"GGUF";

/// The model that files in a folder make: the folder itself (`None`), or the file that stands for it.
///
/// Weights are read when the model is loaded; here it is found out what kind of model it would be.
pub(crate) fn model_of(
    folder: &Path,
    files: &[ReceivedFile],
) -> Result<Option<String>, LibraryError> {
    let no_model = |reason: String| Err(LibraryError::NoModel(reason));
    let mut ggufs: Vec<&str> = Vec::new();
    for file in files {
        if file.name.ends_with(".gguf") {
            let path = folder.join(&file.name);
            let mut magic = [0; 4];
            let read = mortise_files::open(&path).and_then(|mut file| file.read_exact(&mut magic));
            if read.is_err() || magic != *GGUF {
                return no_model(format!("`{}` is no GGUF file", file.name));
            }
            ggufs.push(&file.name);
        }
    }
    ggufs.sort_unstable();
    if let [first, rest @ ..] = ggufs.as_slice() {
        if ggufs.len() < files.len() {
            return no_model("GGUF files come without others".to_owned());
        }
        let suffix = format!("-00001-of-{:05}.gguf", ggufs.len());
        if !rest.is_empty() && !first.ends_with(&suffix) {
            return no_model(format!(
                "several GGUF files must be the parts of one model: the first must end in `{suffix}`"
            ));
        }
        return Ok(Some((*first).to_owned()));
    }
    let has = |name: &str| files.iter().any(|file| file.name == name);
    for needed in ["config.json", "tokenizer.json"] {
        if !has(needed) {
            return no_model(format!(
                "a model is a GGUF file, or a folder with `{needed}`"
            ));
        }
    }
    match files.iter().any(|file| file.name.ends_with(".safetensors")) {
        true => Ok(None),
        false => no_model("there is no *.safetensors among them".to_owned()),
    }
}

/// The digest of a model: that of its only file, or of the list that `sha256sum *` writes in its folder.
pub(crate) fn digest_of_all(files: &[ReceivedFile]) -> String {
    if let [only] = files {
        return only.sha256.clone();
    }
    let mut sorted: Vec<&ReceivedFile> = files.iter().collect();
    sorted.sort_by(|one, other| one.name.cmp(&other.name));
    let mut digest = Sha256::new();
    for file in sorted {
        digest.update(format!("{}  {}\n", file.sha256, file.name));
    }
    format!("{:x}", digest.finalize())
}

/// A file that is there as a whole, with its digest. Blocks.
pub(crate) fn received(path: &Path) -> Result<ReceivedFile, LibraryError> {
    let failed = disk(path);
    let mut file = mortise_files::open(path).map_err(&failed)?;
    let mut digest = Sha256::new();
    let bytes = io::copy(&mut file, &mut digest).map_err(&failed)?;
    let name = path.file_name().map(|name| name.to_string_lossy());
    Ok(ReceivedFile {
        name: name.unwrap_or_default().into_owned(),
        bytes,
        sha256: format!("{:x}", digest.finalize()),
    })
}

/// Put the files of a folder on the disk for good, and the folder in its place. Blocks.
pub(crate) fn settle(from: &Path, to: &Path) -> Result<(), LibraryError> {
    let sync = || -> io::Result<()> {
        for entry in fs::read_dir(from)? {
            File::open(entry?.path())?.sync_all()?;
        }
        File::open(from)?.sync_all()?;
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent)?;
            fs::rename(from, to)?;
            File::open(parent)?.sync_all()?;
        }
        Ok(())
    };
    sync().map_err(disk(to))
}

/// Remove a folder with all that is in it, if it is there. Blocks.
pub(crate) fn remove_folder(folder: &Path) {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(path = %folder.display(), %error, "a folder of the library cannot be removed");
        }
        _ => {}
    }
}
