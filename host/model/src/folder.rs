//! Sources of model files.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::ModelError;
use crate::file_bytes::FileBytes;
use crate::gguf::{Gguf, PartName, sole_file};

/// File with the shape of a model.
pub(crate) const CONFIG_FILE: &str = "config.json";
/// File with recommended generation settings.
pub(crate) const GENERATION_FILE: &str = "generation_config.json";

/// A model's files: a directory on disk, one GGUF file, or bytes that are part of the program.
#[derive(Debug, Clone)]
pub struct ModelFolder {
    source: Source,
}

#[derive(Debug, Clone)]
enum Source {
    Directory(PathBuf),
    Gguf(PathBuf, Gguf),
    Embedded(Vec<(&'static str, &'static [u8])>),
}

impl ModelFolder {
    /// The files of a directory, or a GGUF file, whose header is read and checked. Either must exist.
    /// Of a model that was split into several GGUF files any of them does, and so does a directory
    /// with one GGUF model and no `config.json`.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, ModelError> {
        let path = path.into();
        match std::fs::metadata(&path) {
            Ok(metadata) if metadata.is_file() && is_gguf(&path) => {
                let gguf = open_gguf(&path)?;
                Ok(Self {
                    source: Source::Gguf(path, gguf),
                })
            }
            Ok(metadata) if metadata.is_dir() => match gguf_within(&path)? {
                Some(file) => Self::open(file),
                None => Ok(Self {
                    source: Source::Directory(path),
                }),
            },
            // A file of another name, or no file at all.
            Ok(metadata) => {
                let named = mortise_files::check_type(&metadata);
                let source = named.err().unwrap_or(ErrorKind::NotADirectory.into());
                Err(ModelError::Folder { path, source })
            }
            Err(source) => Err(ModelError::Folder { path, source }),
        }
    }

    /// Files that are part of the program, by name.
    pub fn embedded(files: &[(&'static str, &'static [u8])]) -> Self {
        Self {
            source: Source::Embedded(files.to_vec()),
        }
    }

    /// The folder's name for messages: its path, or `(embedded)`.
    pub fn name(&self) -> String {
        match &self.source {
            Source::Directory(path) | Source::Gguf(path, _) => path.display().to_string(),
            Source::Embedded(_) => "(embedded)".to_owned(),
        }
    }

    /// The directory on disk, if there is one.
    pub fn path(&self) -> Option<&std::path::Path> {
        match &self.source {
            Source::Directory(path) => Some(path),
            Source::Gguf(..) | Source::Embedded(_) => None,
        }
    }

    /// The GGUF file, if it is one.
    pub fn gguf(&self) -> Option<&Gguf> {
        match &self.source {
            Source::Gguf(_, gguf) => Some(gguf),
            Source::Directory(_) | Source::Embedded(_) => None,
        }
    }

    /// A file that must be there, of at most `limit` bytes.
    pub fn read(&self, file: &str, limit: u64) -> Result<FileBytes, ModelError> {
        self.read_optional(file, limit)?
            .ok_or_else(|| self.missing(file))
    }

    /// A file that may be there, of at most `limit` bytes.
    pub fn read_optional(&self, file: &str, limit: u64) -> Result<Option<FileBytes>, ModelError> {
        let Some((mut handle, bytes)) = self.locate(file)? else {
            return Ok(None);
        };
        if bytes > limit {
            return Err(ModelError::FileTooLarge {
                file: file.to_owned(),
                bytes,
                limit,
            });
        }
        let Location::Disk(handle) = &mut handle else {
            return Ok(Some(handle.into_embedded()));
        };
        // One byte more than allowed shows a file that grew since it was measured.
        let mut content = Vec::new();
        let read = handle
            .take(limit.saturating_add(1))
            .read_to_end(&mut content);
        let length = read.map_err(|source| self.unreadable(file, source))? as u64;
        if length > limit {
            return Err(ModelError::FileTooLarge {
                file: file.to_owned(),
                bytes: length,
                limit,
            });
        }
        Ok(Some(FileBytes::from(content)))
    }

    /// A file that may be there, of any size, not copied into memory.
    pub(crate) fn map_optional(&self, file: &str) -> Result<Option<FileBytes>, ModelError> {
        match self.locate(file)? {
            None => Ok(None),
            Some((Location::Disk(handle), length)) if length > 0 => {
                let map =
                    FileBytes::map(&handle).map_err(|source| self.unreadable(file, source))?;
                Ok(Some(map))
            }
            Some((location, _)) => Ok(Some(location.into_embedded())),
        }
    }

    /// Open a regular file and measure it.
    fn locate(&self, file: &str) -> Result<Option<(Location, u64)>, ModelError> {
        let directory = match &self.source {
            Source::Directory(directory) => directory,
            Source::Gguf(..) => return Ok(None),
            Source::Embedded(files) => {
                let found = files.iter().find(|(name, _)| *name == file);
                return Ok(found.map(|(_, bytes)| (Location::Embedded(bytes), bytes.len() as u64)));
            }
        };
        let path = directory.join(file);
        let handle = match mortise_files::open(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(self.unreadable(file, source)),
            Ok(handle) => handle,
        };
        let metadata = handle
            .metadata()
            .map_err(|source| self.unreadable(file, source))?;
        Ok(Some((Location::Disk(handle), metadata.len())))
    }

    pub(crate) fn missing(&self, file: &str) -> ModelError {
        ModelError::MissingFile {
            folder: self.name(),
            file: file.to_owned(),
        }
    }

    fn unreadable(&self, file: &str, source: std::io::Error) -> ModelError {
        ModelError::Read {
            folder: self.name(),
            file: file.to_owned(),
            source,
        }
    }
}

/// By the name, since a file that was damaged should be called a damaged GGUF file.
fn is_gguf(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"))
}

/// The GGUF file of a directory that holds no model in the Hugging Face layout.
fn gguf_within(directory: &Path) -> Result<Option<PathBuf>, ModelError> {
    if directory.join(CONFIG_FILE).exists() {
        return Ok(None);
    }
    let unreadable = |source| ModelError::Folder {
        path: directory.to_owned(),
        source,
    };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(unreadable)? {
        let name = entry.map_err(unreadable)?.file_name();
        if let Some(name) = name.to_str().filter(|name| is_gguf(Path::new(name))) {
            files.push(name.to_owned());
        }
    }
    match sole_file(files) {
        Ok(file) => Ok(file.map(|file| directory.join(file))),
        Err(files) => Err(ModelError::SeveralModels {
            folder: directory.display().to_string(),
            files: files.join(", "),
        }),
    }
}

/// Open a GGUF file with the other parts of its model.
fn open_gguf(path: &Path) -> Result<Gguf, ModelError> {
    let wrong = |path: &Path, source| ModelError::Gguf {
        file: path.display().to_string(),
        source,
    };
    let opened = parse_gguf(path)?;
    let count = opened.parts().map_err(|error| wrong(path, error))?;
    if count == 1 {
        return Ok(opened);
    }
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.and_then(PartName::parse);
    let Some(name) = name.filter(|name| name.count == count) else {
        return Err(ModelError::PartName {
            file: path.display().to_string(),
            count,
        });
    };
    let mut whole: Option<Gguf> = None;
    for number in 0..count {
        let path = path.with_file_name(name.other(number + 1));
        if !path.exists() {
            return Err(ModelError::MissingFile {
                folder: path.parent().unwrap_or(&path).display().to_string(),
                file: name.other(number + 1),
            });
        }
        let part = parse_gguf(&path)?;
        let checked = part.check_part(number, count);
        let added = checked.and_then(|()| match &mut whole {
            Some(whole) => whole.append(part),
            None => {
                whole = Some(part);
                Ok(())
            }
        });
        added.map_err(|error| wrong(&path, error))?;
    }
    let whole = whole.unwrap_or(opened);
    whole.check_whole().map_err(|error| wrong(path, error))?;
    Ok(whole)
}

fn parse_gguf(path: &Path) -> Result<Gguf, ModelError> {
    let unreadable = |source| ModelError::Folder {
        path: path.to_owned(),
        source,
    };
    let file = mortise_files::open(path).map_err(unreadable)?;
    let length = file.metadata().map_err(unreadable)?.len();
    let bytes = if length == 0 {
        FileBytes::from(Vec::new())
    } else {
        FileBytes::map(&file).map_err(unreadable)?
    };
    Gguf::parse(Arc::new(bytes)).map_err(|source| ModelError::Gguf {
        file: path.display().to_string(),
        source,
    })
}

enum Location {
    Disk(File),
    Embedded(&'static [u8]),
}

impl Location {
    /// The embedded bytes; of a file on disk, which is asked only when it is empty, none.
    fn into_embedded(self) -> FileBytes {
        match self {
            Self::Disk(_) => FileBytes::from(Vec::new()),
            Self::Embedded(bytes) => FileBytes::from(bytes),
        }
    }
}
