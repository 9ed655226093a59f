//! `mortise models pull`, `upload` and `rm`: models that come to a running server, and go.

use std::fs::File;
use std::io::{IsTerminal as _, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, bail};
use mortise_harness::print;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use crate::admin_client::AdminClient;

/// Pause between two looks at a pull.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Bytes of a chunk of an upload.
const CHUNK_BYTES: u64 = 64 << 20;
/// Attempts in a row of a chunk of which nothing comes through.
const ATTEMPTS: u32 = 5;

/// Have the server pull a model, and wait until it is there.
pub(super) fn pull(server: &AdminClient, model: &str, detach: bool) -> anyhow::Result<()> {
    let mut pull = server.post("/v1/admin/pulls", &json!({"model": model}))?;
    if detach {
        return print(&format!("{}\n", text(&pull["id"])));
    }
    let path = format!("/v1/admin/pulls/{}", text(&pull["id"]));
    let mut shown = Progress::default();
    loop {
        match text(&pull["state"]) {
            "completed" => {
                shown.clear();
                return print(&format!(
                    "{} is there; load it with `mortise models load`\n",
                    text(&pull["model"])
                ));
            }
            "failed" => bail!("the pull failed: {}", text(&pull["error"])),
            "cancelled" => bail!("the pull was cancelled; what has come stays for the next one"),
            _ => {}
        }
        if let Some(file) = pull["file"].as_str() {
            shown.show(file, &pull["bytes_done"], &pull["bytes_total"]);
        }
        thread::sleep(LOOK_EVERY);
        pull = server.get(&path)?;
    }
}

/// Remove a model that was pulled or uploaded.
pub(super) fn remove(server: &AdminClient, model: &str) -> anyhow::Result<()> {
    let name = utf8_percent_encode(model, NON_ALPHANUMERIC);
    server.delete(&format!("/v1/admin/models/{name}"))?;
    print(&format!("{model} is removed\n"))
}

/// Upload a GGUF file in chunks, or go on with an upload of it that was cut.
pub(super) fn upload(
    server: &AdminClient,
    path: &Path,
    name: Option<String>,
    sha256: Option<String>,
) -> anyhow::Result<()> {
    let opened = || format!("`{}` cannot be read", path.display());
    let mut file = File::open(path).with_context(opened)?;
    let size = file.metadata().with_context(opened)?.len();
    let stem = path.file_stem().map(|stem| stem.to_string_lossy());
    let name = name.unwrap_or_else(|| stem.unwrap_or_default().into_owned());
    let mut upload = begun(server, &name, size, sha256)?;
    let mut shown = Progress::default();
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
        shown.show(&name, &upload["offset"], &json!(size));
        let id = text(&upload["id"]).to_owned();
        let length = CHUNK_BYTES.min(size - offset);
        file.seek(SeekFrom::Start(offset)).with_context(opened)?;
        let range = format!("bytes {offset}-{}/{size}", offset + length - 1);
        let sent = server.put_range(
            &format!("/v1/admin/uploads/{id}"),
            &range,
            length,
            (&mut file).take(length),
        );
        upload = match sent {
            Ok(row) if row["name"].is_string() => {
                shown.clear();
                return print(&format!("{name} is there, {}\n", text(&row["checksum"])));
            }
            Ok(row) => row,
            // What has come through stays, and the server says how much that is.
            Err(error) => match server.get(&format!("/v1/admin/uploads/{id}")) {
                Ok(row) if attempts < ATTEMPTS => row,
                _ => return Err(error),
            },
        };
    }
}

/// The upload of this file that is not complete, or a new one.
fn begun(
    server: &AdminClient,
    name: &str,
    size: u64,
    sha256: Option<String>,
) -> anyhow::Result<Value> {
    let uploads = server.get("/v1/admin/uploads")?;
    let same = |row: &&Value| text(&row["model_id"]) == name && row["size_bytes"] == size;
    let found = uploads["data"].as_array().into_iter().flatten().find(same);
    match found {
        Some(row) => Ok(row.clone()),
        None => {
            let order = json!({"model_id": name, "size_bytes": size, "sha256": sha256});
            server.post("/v1/admin/uploads", &order)
        }
    }
}

/// A line that tells how far a transfer is, where a person watches.
#[derive(Default)]
struct Progress {
    written: bool,
}

impl Progress {
    fn show(&mut self, name: &str, done: &Value, total: &Value) {
        if std::io::stderr().is_terminal() {
            let mib = |value: &Value| value.as_u64().unwrap_or(0) >> 20;
            eprint!("\r\x1b[K{name}  {} of {} MiB", mib(done), mib(total));
            let _ = std::io::stderr().flush();
            self.written = true;
        }
    }

    fn clear(&self) {
        if self.written {
            eprint!("\r\x1b[K");
        }
    }
}

/// A text of an answer; nothing if it is none.
fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
