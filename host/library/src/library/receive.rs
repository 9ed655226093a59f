//! Files of a model that come in one request, written while they arrive.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use tokio::fs::File;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::OwnedSemaphorePermit;

use super::{Library, blocking, now};
use crate::contents::{ReceivedFile, digest_of_all, model_of, remove_folder, settle};
use crate::entries::{EntrySource, LibraryEntry};
use crate::error::{LibraryError, disk, invalid};
use crate::limits::{MAX_ABOUT_BYTES, MAX_FILES, MAX_FORMS_AT_ONCE};
use crate::name::{check_file_name, check_model_name, digest_of};
use crate::room::Promise;

/// Room is promised in steps of so many bytes while the length of a file is not known.
const ROOM_STEP: u64 = 64 << 20;

/// Facts that come with the files of a model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UploadInfo {
    /// SHA-256 digest of the model: of its only file, or of the list that `sha256sum *` writes.
    pub sha256: Option<String>,
    /// Version.
    pub version: Option<String>,
    /// Description.
    pub description: Option<String>,
}

impl UploadInfo {
    pub(crate) fn check(mut self) -> Result<Self, LibraryError> {
        self.sha256 = self.sha256.as_deref().map(digest_of).transpose()?;
        for (field, text) in [
            ("version", &self.version),
            ("description", &self.description),
        ] {
            let length = text.as_ref().map_or(0, String::len);
            if length > MAX_ABOUT_BYTES {
                return Err(invalid(
                    field,
                    format!("it may have {MAX_ABOUT_BYTES} bytes"),
                ));
            }
        }
        Ok(self)
    }
}

/// A model whose files are coming. Dropped before it is finished, it leaves nothing.
#[derive(Debug)]
pub struct Receiving {
    library: Arc<Library>,
    id: String,
    folder: PathBuf,
    files: Vec<ReceivedFile>,
    open: Option<OpenFile>,
    room: Promise,
    settled: bool,
    _turn: OwnedSemaphorePermit,
}

#[derive(Debug)]
struct OpenFile {
    name: String,
    file: File,
    bytes: u64,
    digest: Sha256,
}

impl Library {
    /// Begin to receive the files of a model.
    ///
    /// # Errors
    /// When too many are received already, or the disk refuses.
    pub async fn receive(self: &Arc<Self>) -> Result<Receiving, LibraryError> {
        let turn = Arc::clone(&self.forms).try_acquire_owned();
        let turn = turn.map_err(|_| LibraryError::TooMany {
            what: format!("{MAX_FORMS_AT_ONCE} uploads"),
        })?;
        let id = uuid::Uuid::new_v4().simple().to_string();
        let folder = self.uploads.folder.join(&id);
        let made = tokio::fs::create_dir_all(&folder).await;
        made.map_err(disk(&folder))?;
        let room = Arc::clone(&self.room);
        let room = blocking(move || room.promise(0)).await?;
        Ok(Receiving {
            library: Arc::clone(self),
            id,
            folder,
            files: Vec::new(),
            open: None,
            room,
            settled: false,
            _turn: turn,
        })
    }

    /// Check a name that a new model is to have.
    ///
    /// # Errors
    /// When it is no name, or in use.
    pub fn check_name(&self, name: &str) -> Result<(), LibraryError> {
        check_model_name(name)?;
        self.check_free(name)
    }
}

impl Receiving {
    /// The next file begins.
    ///
    /// # Errors
    /// When its name is no name of a file, or a file has it.
    pub async fn begin(&mut self, name: &str) -> Result<(), LibraryError> {
        check_file_name(name)?;
        self.end_file().await?;
        if self.files.iter().any(|file| file.name == name) {
            return Err(invalid("file", format!("there are two files `{name}`")));
        }
        if self.files.len() >= MAX_FILES {
            return Err(invalid(
                "file",
                format!("a model may have {MAX_FILES} files"),
            ));
        }
        let path = self.folder.join(name);
        self.open = Some(OpenFile {
            name: name.to_owned(),
            file: File::create_new(&path).await.map_err(disk(&path))?,
            bytes: 0,
            digest: Sha256::new(),
        });
        Ok(())
    }

    /// More of the file that has begun.
    ///
    /// # Errors
    /// When it becomes too large, or there is no room.
    pub async fn write(&mut self, data: &[u8]) -> Result<(), LibraryError> {
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        let length = data.len() as u64;
        let most = self.library.config.max_file_bytes;
        if open.bytes.saturating_add(length) > most {
            return Err(LibraryError::TooLarge { most });
        }
        if self.room.left() < length {
            let more = ROOM_STEP.min(most - open.bytes).max(length);
            // The last step of a nearly full library may be a small one.
            if self.room.grow(more).is_err() {
                self.room.grow(length)?;
            }
        }
        let written = open.file.write_all(data).await;
        written.map_err(disk(&self.folder.join(&open.name)))?;
        self.room.arrived(length);
        open.digest.update(data);
        open.bytes += length;
        Ok(())
    }

    async fn end_file(&mut self) -> Result<(), LibraryError> {
        if let Some(mut open) = self.open.take() {
            let path = self.folder.join(&open.name);
            open.file.flush().await.map_err(disk(&path))?;
            self.files.push(ReceivedFile {
                name: open.name,
                bytes: open.bytes,
                sha256: format!("{:x}", open.digest.finalize()),
            });
        }
        Ok(())
    }

    /// All files have come: make them a model of this name.
    ///
    /// # Errors
    /// When the name is in use, the digest is another, or the files are no model.
    pub async fn finish(
        mut self,
        name: &str,
        about: UploadInfo,
    ) -> Result<LibraryEntry, LibraryError> {
        self.library.check_name(name)?;
        let about = about.check()?;
        self.end_file().await?;
        let (library, folder, id) = (
            Arc::clone(&self.library),
            self.folder.clone(),
            self.id.clone(),
        );
        let (files, name) = (std::mem::take(&mut self.files), name.to_owned());
        let kept = Arc::clone(&library);
        let entry = blocking(move || kept.keep(&folder, &id, &files, name, about)).await?;
        self.settled = true;
        library.copy_soon(entry.name.clone());
        library.list_anew().await;
        Ok(entry)
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        if !self.settled {
            remove_folder(&self.folder);
        }
    }
}

impl Library {
    /// Make files in a folder a model of the library. Blocks.
    pub(crate) fn keep(
        &self,
        folder: &Path,
        id: &str,
        files: &[ReceivedFile],
        name: String,
        about: UploadInfo,
    ) -> Result<LibraryEntry, LibraryError> {
        let digest = digest_of_all(files);
        if let Some(expected) = about.sha256.filter(|expected| *expected != digest) {
            let file = match files {
                [only] => only.name.clone(),
                _ => name,
            };
            return Err(LibraryError::Checksum {
                file,
                expected,
                found: digest,
            });
        }
        let file = model_of(folder, files)?;
        let place = PathBuf::from("files").join(id);
        let entry = LibraryEntry {
            path: match file {
                None => place.clone(),
                Some(file) => place.join(file),
            },
            name,
            source: EntrySource::Upload,
            size_bytes: files.iter().map(|file| file.bytes).sum(),
            sha256: Some(digest),
            version: about.version,
            description: about.description,
            added_at: now(),
        };
        let place = self.config.folder.join(place);
        settle(folder, &place)?;
        let put = self.entries.put(entry.clone(), false);
        put.inspect_err(|_| remove_folder(&place))?;
        tracing::info!(
            model = entry.name,
            bytes = entry.size_bytes,
            "a model was uploaded"
        );
        Ok(entry)
    }
}
