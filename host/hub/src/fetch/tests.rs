//! Against a hub on this machine that answers as the real one does, and misbehaves as networks do.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::*;
use crate::HubConfig;

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
const TOKEN: &str = "hf_secret";

/// Content and faults of a fake hub.
#[derive(Default)]
struct Faults {
    /// Contents break off after so many bytes, once for each entry.
    cuts: Vec<usize>,
    /// Questions answered with 503 before any is answered well.
    refusals: u32,
    /// Contents are not those of the digest.
    corrupt: bool,
    /// Contents always begin at the start.
    no_ranges: bool,
    needs_token: bool,
}

struct FakeHub {
    address: String,
    state: Arc<State>,
}

struct State {
    files: BTreeMap<String, Vec<u8>>,
    faults: Mutex<Faults>,
    storage: String,
    /// Request lines with the range that was asked for.
    seen: Mutex<Vec<String>>,
}

impl FakeHub {
    /// The hub on one port, and the storage that it redirects large files to on another.
    fn start(files: &[(&str, &[u8])], faults: Faults) -> Self {
        let hub = TcpListener::bind("127.0.0.1:0").expect("a port");
        let storage = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = format!("http://{}", hub.local_addr().expect("an address"));
        let files = files
            .iter()
            .map(|(name, bytes)| ((*name).to_owned(), bytes.to_vec()));
        let state = Arc::new(State {
            files: files.collect(),
            faults: Mutex::new(faults),
            storage: format!("http://{}", storage.local_addr().expect("an address")),
            seen: Mutex::default(),
        });
        for (listener, is_storage) in [(hub, false), (storage, true)] {
            let state = Arc::clone(&state);
            thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    // A reader that goes away is the reader's affair.
                    let _ = state.answer(stream, is_storage);
                }
            });
        }
        Self { address, state }
    }

    fn hub(&self, cache: &Path) -> Hub {
        Hub::new(HubConfig {
            endpoint: self.address.clone(),
            token: Some(TOKEN.to_owned()),
            cache: cache.to_owned(),
            offline: false,
            retry_delay: Duration::ZERO,
        })
        .expect("an address")
    }

    fn seen(&self, part: &str) -> Vec<String> {
        let seen = self.state.seen.lock().expect("not poisoned");
        seen.iter()
            .filter(|line| line.contains(part))
            .cloned()
            .collect()
    }
}

impl State {
    fn answer(&self, stream: TcpStream, is_storage: bool) -> io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let (mut line, mut range, mut token) = (String::new(), None, None);
        reader.read_line(&mut line)?;
        loop {
            let mut header = String::new();
            reader.read_line(&mut header)?;
            let Some((name, value)) = header.trim().split_once(": ") else {
                break;
            };
            match name.to_ascii_lowercase().as_str() {
                "range" => {
                    range = value
                        .strip_prefix("bytes=")
                        .and_then(|r| r.trim_end_matches('-').parse().ok())
                }
                "authorization" => token = Some(value.to_owned()),
                _ => {}
            }
        }
        let place = if is_storage { "storage" } else { "hub" };
        let note = format!("{place} {} from {}", line.trim(), range.unwrap_or(0));
        self.seen.lock().expect("not poisoned").push(note);
        let mut words = line.split(' ');
        let (method, path) = (
            words.next().unwrap_or_default(),
            words.next().unwrap_or_default(),
        );
        self.respond(
            stream,
            method == "HEAD",
            path,
            range,
            token.as_deref(),
            is_storage,
        )
    }

    fn respond(
        &self,
        mut out: TcpStream,
        head: bool,
        path: &str,
        range: Option<usize>,
        token: Option<&str>,
        is_storage: bool,
    ) -> io::Result<()> {
        let mut faults = self.faults.lock().expect("not poisoned");
        let empty = |out: &mut TcpStream, status: &str, headers: &str| {
            write!(
                out,
                "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: 0\r\n{headers}\r\n"
            )
        };
        if is_storage && token.is_some() {
            return empty(&mut out, "400 The token leaked", "");
        }
        if faults.refusals > 0 {
            faults.refusals -= 1;
            return empty(&mut out, "503 Busy", "");
        }
        if !is_storage && faults.needs_token && token != Some("Bearer hf_secret") {
            return empty(&mut out, "401 Unauthorized", "");
        }
        if let Some(revision) = path.strip_prefix("/api/models/org/name/revision/") {
            if revision != "main" && revision != COMMIT {
                return empty(&mut out, "404 Not Found", "");
            }
            let mut body = format!("{{\"sha\":\"{COMMIT}\",\"siblings\":[");
            for (index, name) in self.files.keys().enumerate() {
                let comma = if index > 0 { "," } else { "" };
                let _ = write!(body, "{comma}{{\"rfilename\":\"{name}\"}}");
            }
            body.push_str("]}");
            return write!(
                out,
                "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
        }
        let prefix = format!("/org/name/resolve/{COMMIT}/");
        let name = path
            .strip_prefix(&prefix)
            .or_else(|| path.strip_prefix("/storage/"));
        let Some((name, bytes)) = name.and_then(|name| self.files.get_key_value(name)) else {
            return empty(&mut out, "404 Not Found", "");
        };
        let digest = format!("{:x}", Sha256::digest(bytes));
        let is_large = bytes.len() > 1000;
        if is_large && !is_storage {
            let headers = format!(
                "Location: {}/storage/{name}\r\nX-Linked-Etag: \"{digest}\"\r\nX-Linked-Size: {}\r\nETag: \"not-this\"\r\n",
                self.storage,
                bytes.len()
            );
            return empty(&mut out, "302 Found", &headers);
        }
        let from = range
            .filter(|_| !faults.no_ranges)
            .unwrap_or(0)
            .min(bytes.len());
        let status = if from > 0 {
            "206 Partial Content"
        } else {
            "200 OK"
        };
        let mut rest = bytes[from..].to_vec();
        let tag = if is_storage {
            "storage-tag"
        } else {
            &digest[..40]
        };
        write!(
            out,
            "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\nETag: \"{tag}\"\r\n\r\n",
            rest.len()
        )?;
        if faults.corrupt && !rest.is_empty() {
            rest[0] ^= 1;
        }
        if is_large && !head && !faults.cuts.is_empty() {
            rest.truncate(faults.cuts.remove(0));
        }
        if head { Ok(()) } else { out.write_all(&rest) }
    }
}

#[derive(Default)]
struct Notes {
    begun: RefCell<Vec<(String, u64, u64)>>,
    advanced: RefCell<u64>,
    notes: RefCell<Vec<String>>,
}

impl DownloadProgress for Notes {
    fn begin(&self, file: &str, total: u64, present: u64) {
        self.begun
            .borrow_mut()
            .push((file.to_owned(), total, present));
    }
    fn advance(&self, bytes: u64) {
        *self.advanced.borrow_mut() += bytes;
    }
    fn end(&self) {}
    fn note(&self, text: &str) {
        self.notes.borrow_mut().push(text.to_owned());
    }
}

fn weights() -> Vec<u8> {
    (0..5000_u32).flat_map(|n| n.to_le_bytes()).collect()
}

fn reference(text: &str) -> ModelReference {
    text.parse().expect("a reference")
}

#[test]
fn a_folder_arrives_in_the_layout_that_other_tools_read() {
    let weights = weights();
    let files: &[(&str, &[u8])] = &[
        ("README.md", b"no"),
        ("config.json", b"{}"),
        ("1_Pooling/config.json", b"{ }"),
        ("model.safetensors", &weights),
    ];
    let fake = FakeHub::start(
        files,
        Faults {
            needs_token: true,
            ..Faults::default()
        },
    );
    let cache = tempfile::tempdir().expect("a folder");
    let notes = Notes::default();
    let folder = fake
        .hub(cache.path())
        .fetch(&reference("org/name"), &notes)
        .expect("fetched");
    let root = cache.path().join("models--org--name");
    assert_eq!(folder, root.join("snapshots").join(COMMIT));
    assert_eq!(
        fs::read(folder.join("model.safetensors")).expect("a file"),
        weights
    );
    assert_eq!(
        fs::read(folder.join("1_Pooling/config.json")).expect("a file"),
        b"{ }"
    );
    assert!(!folder.join("README.md").exists());
    assert_eq!(
        fs::read_to_string(root.join("refs/main")).expect("a ref"),
        COMMIT
    );
    let digest = format!("{:x}", Sha256::digest(&weights));
    let link = fs::read_link(folder.join("model.safetensors")).expect("a link");
    assert_eq!(link, Path::new("../../blobs").join(&digest));
    let link = fs::read_link(folder.join("1_Pooling/config.json")).expect("a link");
    assert!(link.starts_with("../../../blobs"), "{}", link.display());
    let total: u64 = notes.begun.borrow().iter().map(|(_, total, _)| total).sum();
    assert_eq!(*notes.advanced.borrow(), total);

    // The second time nothing but the question what is new.
    let before = fake.seen("GET").len();
    fake.hub(cache.path())
        .fetch(&reference("org/name"), &Notes::default())
        .expect("cached");
    assert_eq!(fake.seen("GET").len(), before + 1);
}

#[test]
fn a_download_goes_on_where_it_broke_off() {
    let weights = weights();
    let faults = Faults {
        cuts: vec![7000, 0, 6000],
        ..Faults::default()
    };
    let fake = FakeHub::start(&[("m-Q8_0.gguf", &weights)], faults);
    let cache = tempfile::tempdir().expect("a folder");
    let path = fake
        .hub(cache.path())
        .fetch(&reference("org/name:q8_0"), &Notes::default())
        .expect("fetched");
    assert_eq!(fs::read(path).expect("a file"), weights);
    let gets = fake.seen("storage GET");
    let froms: Vec<&str> = gets
        .iter()
        .filter_map(|line| line.rsplit(' ').next())
        .collect();
    assert_eq!(froms, ["0", "7000", "7000", "13000"]);
}

#[test]
fn a_later_run_goes_on_with_what_an_earlier_one_left() {
    let weights = weights();
    let fake = FakeHub::start(
        &[("m.gguf", &weights)],
        Faults {
            cuts: vec![9000, 0, 0, 0, 0, 0],
            ..Faults::default()
        },
    );
    let cache = tempfile::tempdir().expect("a folder");
    let error = fake
        .hub(cache.path())
        .fetch(&reference("org/name"), &Notes::default())
        .expect_err("broke off");
    assert!(
        matches!(
            error,
            HubError::BrokenOff {
                at: 9000,
                total: 20_000,
                ..
            }
        ),
        "{error}"
    );
    let notes = Notes::default();
    let path = fake
        .hub(cache.path())
        .fetch(&reference("org/name"), &notes)
        .expect("fetched");
    assert_eq!(fs::read(path).expect("a file"), weights);
    assert_eq!(*notes.begun.borrow(), [("m.gguf".to_owned(), 20_000, 9000)]);
}

#[test]
fn a_server_without_ranges_begins_anew() {
    let weights = weights();
    let faults = Faults {
        cuts: vec![7000],
        no_ranges: true,
        ..Faults::default()
    };
    let fake = FakeHub::start(&[("m.gguf", &weights)], faults);
    let cache = tempfile::tempdir().expect("a folder");
    let path = fake
        .hub(cache.path())
        .fetch(&reference("org/name"), &Notes::default())
        .expect("fetched");
    assert_eq!(fs::read(path).expect("a file"), weights);
}

#[test]
fn a14_wrong_contents_are_refused_and_not_kept() {
    let weights = weights();
    let fake = FakeHub::start(
        &[("m.gguf", &weights)],
        Faults {
            corrupt: true,
            ..Faults::default()
        },
    );
    let cache = tempfile::tempdir().expect("a folder");
    let error = fake
        .hub(cache.path())
        .fetch(&reference("org/name"), &Notes::default())
        .expect_err("corrupt");
    assert!(
        matches!(
            error,
            HubError::Corrupt {
                property: "SHA-256",
                ..
            }
        ),
        "{error}"
    );
    let blobs = cache.path().join("models--org--name/blobs");
    assert_eq!(fs::read_dir(blobs).expect("a folder").count(), 0);
}

#[test]
fn a_busy_hub_is_asked_again() {
    let faults = Faults {
        refusals: 0,
        ..Faults::default()
    };
    let fake = FakeHub::start(&[("m.gguf", b"small")], faults);
    let cache = tempfile::tempdir().expect("a folder");
    let hub = fake.hub(cache.path());
    let listing = hub.list(&reference("org/name")).expect("a listing");
    fake.state.faults.lock().expect("not poisoned").refusals = 2;
    let notes = Notes::default();
    let (reference, cached) = (
        reference("org/name"),
        CachedRepository::new(cache.path(), &reference("org/name")),
    );
    let download = Download {
        hub: &hub,
        reference: &reference,
        cached: &cached,
        commit: &listing.commit,
        progress: &notes,
    };
    download.files(&["m.gguf".to_owned()]).expect("fetched");
    let path = cached.snapshot(&listing.commit).join("m.gguf");
    assert_eq!(fs::read(path).expect("a file"), b"small");
    assert_eq!(notes.notes.borrow().len(), 2);
}

#[test]
fn offline_the_cache_serves_what_is_complete() {
    let weights = weights();
    let index = br#"{"weight_map":{"a":"model-1.safetensors"}}"#;
    let files: &[(&str, &[u8])] = &[
        ("config.json", b"{}"),
        ("model.safetensors.index.json", index),
        ("model-1.safetensors", &weights),
    ];
    let fake = FakeHub::start(files, Faults::default());
    let cache = tempfile::tempdir().expect("a folder");
    let mut hub = fake.hub(cache.path());
    let folder = hub
        .fetch(&reference("org/name"), &Notes::default())
        .expect("fetched");
    hub.config.offline = true;
    assert_eq!(
        hub.fetch(&reference("org/name"), &Notes::default())
            .expect("cached"),
        folder
    );
    let pinned = reference(&format!("org/name@{COMMIT}"));
    assert_eq!(
        hub.fetch(&pinned, &Notes::default()).expect("cached"),
        folder
    );
    fs::remove_file(folder.join("model-1.safetensors")).expect("removed");
    let error = hub
        .fetch(&reference("org/name"), &Notes::default())
        .expect_err("not complete");
    assert!(matches!(error, HubError::Offline { .. }), "{error}");

    // A hub that is not there is no reason to stop what the cache can serve.
    let mut gone = fake.hub(cache.path());
    fs::write(folder.join("model-1.safetensors"), &weights).expect("written");
    gone.config.endpoint = "http://127.0.0.1:1".to_owned();
    let notes = Notes::default();
    assert_eq!(
        gone.fetch(&reference("org/name"), &notes).expect("cached"),
        folder
    );
    assert_eq!(notes.notes.borrow().len(), 1);
}

#[test]
fn what_the_hub_refuses_says_what_to_do() {
    let fake = FakeHub::start(
        &[("config.json", b"{}")],
        Faults {
            needs_token: true,
            ..Faults::default()
        },
    );
    let cache = tempfile::tempdir().expect("a folder");
    let mut hub = fake.hub(cache.path());
    for (text, says) in [
        ("org/other", "check the spelling"),
        ("org/name@v9", "no `org/name@v9`"),
        ("org/name", "neither"),
    ] {
        let error = hub
            .fetch(&reference(text), &Notes::default())
            .expect_err(text)
            .to_string();
        assert!(error.contains(says), "{error}");
    }
    hub.config.token = None;
    let error = hub
        .fetch(&reference("org/name"), &Notes::default())
        .expect_err("denied")
        .to_string();
    assert!(error.contains("set HF_TOKEN"), "{error}");
}

#[test]
fn a12_an_index_cannot_name_files_outside_the_repository() {
    let index = br#"{"weight_map":{"a":"../../../etc/passwd"}}"#;
    let files: &[(&str, &[u8])] = &[
        ("config.json", b"{}"),
        ("model.safetensors.index.json", index),
    ];
    let fake = FakeHub::start(files, Faults::default());
    let cache = tempfile::tempdir().expect("a folder");
    let error = fake
        .hub(cache.path())
        .fetch(&reference("org/name"), &Notes::default())
        .expect_err("refused");
    assert!(matches!(error, HubError::NoModel { .. }), "{error}");
}

#[test]
fn a14_a_pinned_revision_holds_for_every_file() {
    let index = br#"{"weight_map":{"a":"one.safetensors","b":"two.safetensors"}}"#;
    let files: &[(&str, &[u8])] = &[
        ("config.json", b"{}"),
        ("tokenizer.json", b"{}"),
        ("chat_template.jinja", b"x"),
        ("modules.json", b"[]"),
        ("1_Pooling/config.json", b"{}"),
        ("model.safetensors.index.json", index),
        ("one.safetensors", b"1"),
        ("two.safetensors", b"2"),
    ];
    let fake = FakeHub::start(files, Faults::default());
    let cache = tempfile::tempdir().expect("a folder");
    let folder = fake
        .hub(cache.path())
        .fetch(&reference(&format!("org/name@{COMMIT}")), &Notes::default())
        .expect("fetched");
    assert_eq!(fake.seen("/revision/").len(), 1);
    let resolved = fake.seen("/resolve/");
    let pinned = format!("/resolve/{COMMIT}/");
    assert!(
        resolved.iter().all(|line| line.contains(&pinned)),
        "{resolved:?}"
    );
    for (file, contents) in files {
        assert!(resolved.iter().any(|line| line.contains(file)), "{file}");
        assert_eq!(fs::read(folder.join(file)).expect("a file"), *contents);
    }
}
