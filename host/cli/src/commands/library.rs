//! `mortise models pull` and `upload`: models that come to a running server.

use std::fs;
use std::io::{Read, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use crate::admin_client::AdminClient;
use crate::progress::Progress;

/// Pause between two looks at a pull.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Bytes of a chunk of an upload.
const CHUNK_BYTES: u64 = 64 << 20;
/// Attempts in a row of a chunk of which nothing comes through.
const ATTEMPTS: u32 = 5;

/// Have the server pull a model, and wait until it is there. Returns the row of the pull.
pub(super) fn pull(server: &AdminClient, model: &str, detach: bool) -> anyhow::Result<Value> {
    let mut pull = server.post("/v1/admin/pulls", &json!({"model": model}))?;
    if detach {
        return Ok(pull);
    }
    let path = format!("/v1/admin/pulls/{}", text(&pull["id"]));
    let shown = Progress::spinner(&format!("{model}  waiting"));
    loop {
        match text(&pull["state"]) {
            "completed" => return Ok(pull),
            "failed" => bail!("the pull failed: {}", text(&pull["error"])),
            "cancelled" => bail!("the pull was cancelled; what has come stays for the next one"),
            _ => {}
        }
        if let Some(file) = pull["file"].as_str() {
            let bytes = |key: &str| pull[key].as_u64().unwrap_or(0);
            shown.bytes(file, bytes("bytes_done"), bytes("bytes_total"));
        }
        thread::sleep(LOOK_EVERY);
        pull = server.get(&path)?;
    }
}

/// Files that are uploaded, one after another.
struct Source {
    /// Path, name and bytes of each.
    files: Vec<(PathBuf, String, u64)>,
    /// The files are those of a folder.
    is_folder: bool,
}

/// Endings of the files of a folder that belong to a model.
const ENDINGS: [&str; 5] = ["jinja", "json", "model", "safetensors", "txt"];

impl Source {
    /// A GGUF file, or the files of a folder that belong to a model.
    fn of(path: &Path) -> anyhow::Result<Self> {
        let opened = || format!("`{}` cannot be read", path.display());
        let is_folder = path.is_dir();
        let mut paths = vec![path.to_owned()];
        if is_folder {
            let entries = fs::read_dir(path).with_context(opened)?;
            let entries: Result<Vec<_>, _> = entries.collect();
            let found = entries.with_context(opened)?.into_iter();
            paths = found.map(|entry| entry.path()).collect();
            paths.retain(|path| {
                let ending = path.extension().and_then(|ending| ending.to_str());
                path.is_file() && ending.is_some_and(|ending| ENDINGS.contains(&ending))
            });
            paths.sort();
        }
        let mut files = Vec::new();
        for path in paths {
            let size = fs::metadata(&path).with_context(opened)?.len();
            let name = path.file_name().map(|name| name.to_string_lossy());
            let name = name.unwrap_or_default().into_owned();
            files.push((path, name, size));
        }
        anyhow::ensure!(
            !files.is_empty(),
            "`{}` has no files of a model",
            path.display()
        );
        Ok(Self { files, is_folder })
    }

    fn size(&self) -> u64 {
        self.files.iter().map(|(_, _, size)| size).sum()
    }

    /// Files as the order of an upload lists them; empty for a single file.
    fn listed(&self) -> Vec<Value> {
        let files = self.files.iter().filter(|_| self.is_folder);
        files
            .map(|(_, name, size)| json!({"name": name, "size_bytes": size}))
            .collect()
    }

    /// The bytes from `offset` on.
    fn read_from(&self, mut offset: u64) -> anyhow::Result<Box<dyn Read>> {
        let mut all: Box<dyn Read> = Box::new(std::io::empty());
        for (path, _, size) in &self.files {
            if offset >= *size {
                offset -= size;
                continue;
            }
            let opened = || format!("`{}` cannot be read", path.display());
            let mut file = mortise_files::open(path).with_context(opened)?;
            file.seek(SeekFrom::Start(offset)).with_context(opened)?;
            // A file that grows meanwhile keeps its length.
            all = Box::new(all.chain(file.take(size - offset)));
            offset = 0;
        }
        Ok(all)
    }
}

/// Upload a GGUF file or the files of a folder in chunks, or go on with an upload of them that was cut. Returns the row of
/// the model.
pub(super) fn upload(
    server: &AdminClient,
    path: &Path,
    name: Option<String>,
    sha256: Option<String>,
) -> anyhow::Result<Value> {
    let source = Source::of(path)?;
    let size = source.size();
    let stem = match source.is_folder {
        true => path.file_name(),
        false => path.file_stem(),
    };
    let stem = stem.map(|stem| stem.to_string_lossy());
    let name = name.unwrap_or_else(|| stem.unwrap_or_default().into_owned());
    let mut upload = begun(server, &name, &source, sha256)?;
    let shown = Progress::spinner(&name);
    let (mut attempts, mut before) = (0, None);
    loop {
        let offset = upload["offset"].as_u64();
        let offset = offset.context("the server does not say where the upload stands")?;
        attempts = if before == Some(offset) {
            attempts + 1
        } else {
            0
        };
        before = Some(offset);
        shown.bytes(&name, offset, size);
        let id = text(&upload["id"]).to_owned();
        let length = CHUNK_BYTES.min(size - offset);
        let rest = source.read_from(offset)?;
        let range = format!("bytes {offset}-{}/{size}", offset + length - 1);
        let sent = server.put_range(
            &format!("/v1/admin/uploads/{id}"),
            &range,
            length,
            rest.take(length),
        );
        upload = match sent {
            Ok(row) if row["name"].is_string() => return Ok(row),
            Ok(row) => row,
            // What has come through stays, and the server says how much that is.
            Err(error) => match server.get(&format!("/v1/admin/uploads/{id}")) {
                Ok(row) if attempts < ATTEMPTS => row,
                _ => return Err(error),
            },
        };
    }
}

/// The upload of these files that is not complete, or a new one.
fn begun(
    server: &AdminClient,
    name: &str,
    source: &Source,
    sha256: Option<String>,
) -> anyhow::Result<Value> {
    let uploads = server.get("/v1/admin/uploads")?;
    let (size, files) = (source.size(), json!(source.listed()));
    let same = |row: &&Value| {
        text(&row["model_id"]) == name && row["size_bytes"] == size && row["files"] == files
    };
    let found = uploads["data"].as_array().into_iter().flatten().find(same);
    match found {
        Some(row) => Ok(row.clone()),
        None => {
            let order = json!({
                "model_id": name, "size_bytes": size, "sha256": sha256, "files": files,
            });
            server.post("/v1/admin/uploads", &order)
        }
    }
}

/// A text of an answer; nothing if it is none.
fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
