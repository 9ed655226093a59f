//! Where a model's files come from.

use std::fs::File;
use std::io::Read;
use std::ops::Deref;
use std::path::PathBuf;

use memmap2::Mmap;

use crate::error::ModelError;

/// A model's files: a directory on disk, or bytes that are part of the program.
#[derive(Debug, Clone)]
pub struct ModelFolder {
    source: Source,
}

#[derive(Debug, Clone)]
enum Source {
    Directory(PathBuf),
    Embedded(Vec<(&'static str, &'static [u8])>),
}

/// The bytes of one file.
#[derive(Debug)]
pub struct FileBytes(Bytes);

#[derive(Debug)]
enum Bytes {
    Owned(Vec<u8>),
    Embedded(&'static [u8]),
    Mapped(Mmap),
}

impl Deref for FileBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Bytes::Owned(bytes) => bytes,
            Bytes::Embedded(bytes) => bytes,
            Bytes::Mapped(map) => map,
        }
    }
}

impl ModelFolder {
    /// The files of a directory, which must exist.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, ModelError> {
        let path = path.into();
        match std::fs::metadata(&path) {
            Ok(metadata) if metadata.is_dir() => Ok(Self {
                source: Source::Directory(path),
            }),
            Ok(_) => {
                let source = std::io::Error::from(std::io::ErrorKind::NotADirectory);
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
            Source::Directory(path) => path.display().to_string(),
            Source::Embedded(_) => "(embedded)".to_owned(),
        }
    }

    /// The directory on disk, if there is one.
    pub fn path(&self) -> Option<&std::path::Path> {
        match &self.source {
            Source::Directory(path) => Some(path),
            Source::Embedded(_) => None,
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
        Ok(Some(FileBytes(Bytes::Owned(content))))
    }

    /// A file that may be there, of any size, not copied into memory.
    pub(crate) fn map_optional(&self, file: &str) -> Result<Option<FileBytes>, ModelError> {
        match self.locate(file)? {
            None => Ok(None),
            Some((Location::Disk(handle), length)) if length > 0 => {
                // SAFETY: the mapping is only read, and only while the model is loaded, after
                // which nothing of it is kept. Whoever truncates a model file in that moment
                // kills the process, as with every program that maps files.
                #[allow(unsafe_code, reason = "memory-maps the weights")]
                let map = unsafe { Mmap::map(&handle) };
                let map = map.map_err(|source| self.unreadable(file, source))?;
                Ok(Some(FileBytes(Bytes::Mapped(map))))
            }
            Some((location, _)) => Ok(Some(location.into_embedded())),
        }
    }

    /// Open a regular file and measure it.
    fn locate(&self, file: &str) -> Result<Option<(Location, u64)>, ModelError> {
        let directory = match &self.source {
            Source::Directory(directory) => directory,
            Source::Embedded(files) => {
                let found = files.iter().find(|(name, _)| *name == file);
                return Ok(found.map(|(_, bytes)| (Location::Embedded(bytes), bytes.len() as u64)));
            }
        };
        let path = directory.join(file);
        // Asked before opening: opening a pipe would wait for its other end.
        match std::fs::metadata(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(self.unreadable(file, source)),
            Ok(metadata) if !metadata.is_file() => {
                let source = std::io::Error::other("not a regular file");
                return Err(self.unreadable(file, source));
            }
            Ok(_) => {}
        }
        let handle = File::open(&path).map_err(|source| self.unreadable(file, source))?;
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

enum Location {
    Disk(File),
    Embedded(&'static [u8]),
}

impl Location {
    /// The embedded bytes; of a file on disk, which is asked only when it is empty, none.
    fn into_embedded(self) -> FileBytes {
        FileBytes(match self {
            Self::Disk(_) => Bytes::Owned(Vec::new()),
            Self::Embedded(bytes) => Bytes::Embedded(bytes),
        })
    }
}
