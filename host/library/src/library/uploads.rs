//! Uploads in chunks, which outlive a cut connection and the process: of one file, or of the files of a folder one after
//! another, as if they were one.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::fs::{File, OpenOptions};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::OwnedMutexGuard;

use super::receive::UploadInfo;
use super::{Library, blocking, is_old};
use crate::contents::{ReceivedFile, received, remove_folder};
use crate::entries::LibraryEntry;
use crate::error::{LibraryError, disk, invalid};
use crate::limits::{MAX_ENTRY_BYTES, MAX_FILES, MAX_UPLOADS};
use crate::name::{check_file_name, check_model_name};
use crate::room::{LibraryRoom, Promise};

/// Order of an upload: name and size of what comes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UploadOrder {
    /// Name of the model.
    pub model_id: String,
    /// Name of its only file, a GGUF file.
    #[serde(default)]
    pub file_name: Option<String>,
    /// Files of the upload in the order in which they come, if there are several.
    #[serde(default)]
    pub files: Vec<UploadFile>,
    /// Bytes of all files.
    pub size_bytes: u64,
    /// SHA-256 digest of the file, or of the list that `sha256sum *` writes of several.
    #[serde(default)]
    pub sha256: Option<String>,
    /// Version.
    #[serde(default)]
    pub version: Option<String>,
    /// Description.
    #[serde(default)]
    pub description: Option<String>,
}

/// A file of an upload of several files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UploadFile {
    /// Name.
    pub name: String,
    /// Bytes.
    pub size_bytes: u64,
}

/// Name of a file that has none.
const DEFAULT_FILE: &str = "model.gguf";

impl UploadOrder {
    /// Names and bytes of the files, in order.
    fn parts(&self) -> Vec<(&str, u64)> {
        if self.files.is_empty() {
            let name = self.file_name.as_deref().unwrap_or(DEFAULT_FILE);
            return vec![(name, self.size_bytes)];
        }
        let files = self.files.iter();
        files.map(|file| (&*file.name, file.size_bytes)).collect()
    }

    /// The file of the byte at `offset`, and how many of its bytes are from there on; of the end, the last file.
    fn part_at(&self, offset: u64) -> (&str, u64) {
        let (mut end, mut last) = (0, "");
        for (name, bytes) in self.parts() {
            end += bytes;
            if offset < end {
                return (name, end - offset);
            }
            last = name;
        }
        (last, 0)
    }
}

/// An upload that is not complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadStatus {
    /// Id of the upload.
    pub id: String,
    /// Order that began the upload.
    pub order: UploadOrder,
    /// Bytes that have come: where the next chunk begins.
    pub offset: u64,
}

/// Uploads that are not complete.
#[derive(Debug)]
pub(crate) struct Uploads {
    pub(crate) folder: PathBuf,
    known: Mutex<HashMap<String, Arc<Upload>>>,
}

#[derive(Debug)]
struct Upload {
    id: String,
    order: UploadOrder,
    folder: PathBuf,
    state: Arc<tokio::sync::Mutex<Arrived>>,
    /// Bytes that have arrived, for readers of the status.
    offset: Mutex<u64>,
}

/// Bytes that have come, and room for the others.
#[derive(Debug)]
struct Arrived {
    offset: u64,
    room: Promise,
    /// The upload is complete, or cancelled.
    ended: bool,
}

/// File that tells what an upload will bring.
const ORDER: &str = "upload.json";
/// Folder of the file that comes.
const CONTENT: &str = "content";

impl Uploads {
    /// None, until the folder is taken.
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            known: Mutex::default(),
        }
    }

    /// Find the uploads that an earlier process began. Blocks.
    pub(crate) fn take(&self, room: &Arc<LibraryRoom>) -> Result<(), LibraryError> {
        let folder = &self.folder;
        fs::create_dir_all(folder).map_err(disk(folder))?;
        let mut known = HashMap::new();
        for entry in fs::read_dir(folder).map_err(disk(folder))?.flatten() {
            let path = entry.path();
            let found = entry.file_name().into_string().ok();
            let found = found.and_then(|id| Upload::found(id, &path, room));
            match found.filter(|_| known.len() < MAX_UPLOADS) {
                Some(upload) => {
                    known.insert(upload.id.clone(), Arc::new(upload));
                }
                // A form that was cut, or something old.
                None => remove_folder(&path),
            }
        }
        *self.known() = known;
        Ok(())
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Arc<Upload>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, id: &str) -> Result<Arc<Upload>, LibraryError> {
        let unknown = || LibraryError::UnknownUpload(id.chars().take(64).collect());
        self.known().get(id).cloned().ok_or_else(unknown)
    }

    fn forget(&self, id: &str) {
        self.known().remove(id);
    }

    /// Remove uploads of which nothing came for long.
    fn sweep(&self) {
        self.known().retain(|_, upload| {
            let busy = Arc::strong_count(upload) > 1;
            let keep = busy || !is_old(&upload.newest());
            if !keep {
                remove_folder(&upload.folder);
            }
            keep
        });
    }
}

impl Upload {
    fn new(id: String, order: UploadOrder, folder: PathBuf, offset: u64, room: Promise) -> Self {
        Self {
            id,
            order,
            folder,
            state: Arc::new(tokio::sync::Mutex::new(Arrived {
                offset,
                room,
                ended: false,
            })),
            offset: Mutex::new(offset),
        }
    }

    /// An upload whose folder is there.
    fn found(id: String, folder: &Path, room: &Arc<LibraryRoom>) -> Option<Self> {
        let path = folder.join(ORDER);
        let order = mortise_files::read(&path, MAX_ENTRY_BYTES).ok()?;
        let order: UploadOrder = serde_json::from_slice(&order).ok()?;
        check_order(&order).ok()?;
        let offset = arrived(&folder.join(CONTENT), &order)?;
        let left = order.size_bytes - offset;
        let upload = Self::new(
            id,
            order,
            folder.to_owned(),
            offset,
            room.promise(left).ok()?,
        );
        (!is_old(&upload.newest())).then_some(upload)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(CONTENT).join(name)
    }

    /// The file that was written last.
    fn newest(&self) -> PathBuf {
        let offset = self.status().offset;
        let (name, _) = self.order.part_at(offset.saturating_sub(1));
        self.file(name)
    }

    fn status(&self) -> UploadStatus {
        let offset = self.offset.lock().unwrap_or_else(PoisonError::into_inner);
        UploadStatus {
            id: self.id.clone(),
            order: self.order.clone(),
            offset: *offset,
        }
    }

    fn stands_at(&self, offset: u64) {
        *self.offset.lock().unwrap_or_else(PoisonError::into_inner) = offset;
    }
}

/// Bytes of an upload that are in its folder; `None` if they cannot be those of the order. Files come one after another.
fn arrived(folder: &Path, order: &UploadOrder) -> Option<u64> {
    let mut offset = 0u64;
    let mut whole = true;
    for (name, bytes) in order.parts() {
        let found = fs::metadata(folder.join(name)).map_or(0, |data| data.len());
        if found > bytes || (found > 0 && !whole) {
            return None;
        }
        offset += found;
        whole = found == bytes;
    }
    Some(offset)
}

fn check_order(order: &UploadOrder) -> Result<(), LibraryError> {
    check_model_name(&order.model_id)?;
    if order.size_bytes == 0 {
        return Err(invalid("size_bytes", "the file has at least 1 byte"));
    }
    if !order.files.is_empty() {
        return check_files(order);
    }
    let name = order.file_name.as_deref().unwrap_or(DEFAULT_FILE);
    check_file_name(name)?;
    match name.ends_with(".gguf") {
        true => Ok(()),
        false => Err(invalid(
            "file_name",
            "a model of one file is a GGUF file; `files` lists those of a folder",
        )),
    }
}

fn check_files(order: &UploadOrder) -> Result<(), LibraryError> {
    let wrong = |problem: &str| Err(invalid("files", problem));
    if order.file_name.is_some() {
        return wrong("give `file_name` or `files`");
    }
    if order.files.len() > MAX_FILES {
        return wrong(&format!("a model has {MAX_FILES} files at most"));
    }
    let mut names = BTreeSet::new();
    let mut sum = 0u64;
    for file in &order.files {
        check_file_name(&file.name)?;
        if file.size_bytes == 0 || !names.insert(&file.name) {
            return wrong("each file is listed once, with 1 byte or more");
        }
        sum = sum.saturating_add(file.size_bytes);
    }
    match sum == order.size_bytes {
        true => Ok(()),
        false => wrong("`size_bytes` is the sum of the files' own"),
    }
}

fn about(order: &UploadOrder) -> UploadInfo {
    UploadInfo {
        sha256: order.sha256.clone(),
        version: order.version.clone(),
        description: order.description.clone(),
    }
}

impl Library {
    /// Begin an upload in chunks.
    ///
    /// # Errors
    /// When a value is wrong, the name is in use, there is no room, or too many are under way.
    pub async fn begin_upload(
        self: &Arc<Self>,
        mut order: UploadOrder,
    ) -> Result<UploadStatus, LibraryError> {
        check_order(&order)?;
        if order.files.is_empty() {
            order.file_name.get_or_insert(DEFAULT_FILE.to_owned());
        }
        about(&order).check()?;
        let most = self.config.max_file_bytes;
        if order.parts().iter().any(|(_, bytes)| *bytes > most) {
            return Err(LibraryError::TooLarge { most });
        }
        self.check_free(&order.model_id)?;
        let this = Arc::clone(self);
        blocking(move || {
            this.uploads.sweep();
            if this.uploads.known().len() >= MAX_UPLOADS {
                return Err(LibraryError::TooMany {
                    what: format!("{MAX_UPLOADS} uploads"),
                });
            }
            let room = this.room.promise(order.size_bytes)?;
            let id = uuid::Uuid::new_v4().simple().to_string();
            let folder = this.uploads.folder.join(&id);
            let upload = Upload::new(id.clone(), order, folder, 0, room);
            let write = || {
                fs::create_dir_all(upload.folder.join(CONTENT))?;
                fs::File::create_new(upload.newest())?;
                let order = serde_json::to_vec(&upload.order)?;
                fs::write(upload.folder.join(ORDER), order)
            };
            let failed = disk(&upload.folder);
            write()
                .map_err(failed)
                .inspect_err(|_| remove_folder(&upload.folder))?;
            let status = upload.status();
            this.uploads.known().insert(id, Arc::new(upload));
            Ok(status)
        })
        .await
    }

    /// Uploads in chunks that are not complete.
    pub fn uploads(&self) -> Vec<UploadStatus> {
        let known = self.uploads.known();
        let mut all: Vec<UploadStatus> = known.values().map(|upload| upload.status()).collect();
        all.sort_by(|one, other| one.id.cmp(&other.id));
        all
    }

    /// An upload in chunks that is not complete.
    ///
    /// # Errors
    /// When there is none.
    pub fn upload(&self, id: &str) -> Result<UploadStatus, LibraryError> {
        Ok(self.uploads.get(id)?.status())
    }

    /// Begin to write a chunk of `length` bytes at `start`, of a file that is said to have `total`.
    ///
    /// # Errors
    /// When the upload stands elsewhere, the file has another length, or another request writes.
    pub async fn append(
        self: &Arc<Self>,
        id: &str,
        start: u64,
        length: u64,
        total: u64,
    ) -> Result<Appending, LibraryError> {
        let upload = self.uploads.get(id)?;
        let state = Arc::clone(&upload.state).try_lock_owned();
        let state = state.map_err(|_| LibraryError::UploadBusy)?;
        if state.ended {
            return Err(LibraryError::UnknownUpload(upload.id.clone()));
        }
        let size = upload.order.size_bytes;
        if total != size || start.saturating_add(length) > size {
            return Err(LibraryError::WrongLength {
                problem: format!("the file was announced with {size} bytes"),
                offset: state.offset,
            });
        }
        if start != state.offset {
            return Err(LibraryError::WrongOffset {
                offset: state.offset,
            });
        }
        let open = open(&upload, start).await?;
        Ok(Appending {
            library: Arc::clone(self),
            open,
            state,
            upload,
            left: length,
        })
    }

    /// Cancel an upload in chunks, and remove what has come.
    ///
    /// # Errors
    /// When there is none, or a request is writing to it.
    pub async fn cancel_upload(&self, id: &str) -> Result<UploadStatus, LibraryError> {
        let upload = self.uploads.get(id)?;
        let state = Arc::clone(&upload.state).try_lock_owned();
        let mut state = state.map_err(|_| LibraryError::UploadBusy)?;
        state.ended = true;
        self.uploads.forget(id);
        let folder = upload.folder.clone();
        blocking(move || {
            remove_folder(&folder);
            Ok(())
        })
        .await?;
        Ok(upload.status())
    }
}

/// A chunk that is being written. Of one that breaks off, what has come stays.
#[derive(Debug)]
pub struct Appending {
    library: Arc<Library>,
    open: OpenPart,
    state: OwnedMutexGuard<Arrived>,
    upload: Arc<Upload>,
    left: u64,
}

/// A file that is being written, and how many of its bytes are to come.
#[derive(Debug)]
struct OpenPart {
    path: PathBuf,
    file: File,
    left: u64,
}

/// Open the file of the byte at `offset`.
async fn open(upload: &Upload, offset: u64) -> Result<OpenPart, LibraryError> {
    let (name, left) = upload.order.part_at(offset);
    let path = upload.file(name);
    let mut options = OpenOptions::new();
    let file = options.append(true).create(true).open(&path).await;
    let file = file.map_err(disk(&path))?;
    Ok(OpenPart { path, file, left })
}

impl Appending {
    /// Write more of the chunk.
    ///
    /// # Errors
    /// When the chunk is longer than announced, or the disk refuses.
    pub async fn write(&mut self, data: &[u8]) -> Result<(), LibraryError> {
        let length = data.len() as u64;
        if length > self.left {
            return Err(LibraryError::WrongLength {
                problem: "the body is longer than `Content-Range` says".to_owned(),
                offset: self.state.offset,
            });
        }
        let mut rest = data;
        while !rest.is_empty() {
            if self.open.left == 0 {
                self.open = open(&self.upload, self.state.offset).await?;
            }
            let count = usize::try_from(self.open.left).unwrap_or(usize::MAX);
            let (part, others) = rest.split_at(count.min(rest.len()));
            self.write_part(part).await?;
            rest = others;
        }
        Ok(())
    }

    /// Bytes of the open file.
    async fn write_part(&mut self, data: &[u8]) -> Result<(), LibraryError> {
        let length = data.len() as u64;
        let OpenPart { path, file, left } = &mut self.open;
        // Flushed, so that the file never has less than what is counted.
        file.write_all(data).await.map_err(disk(path))?;
        file.flush().await.map_err(disk(path))?;
        *left -= length;
        self.left -= length;
        self.state.offset += length;
        self.state.room.arrived(length);
        self.upload.stands_at(self.state.offset);
        Ok(())
    }

    /// End the chunk. Returns the status of the upload, and the model if the chunk completes it.
    ///
    /// # Errors
    /// When the body was shorter than announced; and of a complete file, when it does not become a model, which ends the
    /// upload.
    pub async fn finish(mut self) -> Result<(UploadStatus, Option<LibraryEntry>), LibraryError> {
        if self.left > 0 {
            return Err(LibraryError::WrongLength {
                problem: "the body is shorter than `Content-Range` says".to_owned(),
                offset: self.state.offset,
            });
        }
        let status = self.upload.status();
        if status.offset < status.order.size_bytes {
            return Ok((status, None));
        }
        let (library, upload) = (Arc::clone(&self.library), Arc::clone(&self.upload));
        let entry = blocking(move || {
            library.check_free(&upload.order.model_id)?;
            let order = upload.order.clone();
            let parts = order.parts().into_iter();
            let files: Result<Vec<ReceivedFile>, _> = parts
                .map(|(name, _)| received(&upload.file(name)))
                .collect();
            let about = about(&order).check()?;
            let content = upload.folder.join(CONTENT);
            let files = files?;
            library.keep(&content, &upload.id, &files, order.model_id, about)
        })
        .await;
        // No chunk is left that could finish it another time.
        self.state.ended = true;
        let library = Arc::clone(&self.library);
        library.uploads.forget(&status.id);
        let folder = self.upload.folder.clone();
        blocking(move || {
            remove_folder(&folder);
            Ok(())
        })
        .await?;
        let entry = entry?;
        library.copy_soon(entry.name.clone());
        library.list_anew().await;
        Ok((status, Some(entry)))
    }
}
