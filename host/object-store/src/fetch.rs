//! Objects that are written to files as they come, gone on with after a cut, and checked.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::thread;
use std::time::Instant;

use sha2::{Digest as _, Sha256};
use ureq::http::{StatusCode, header};

use crate::client::{ObjectStore, checked, network, signed};
use crate::error::{ObjectStoreError, unusable};
use crate::limits::{LEAST_PROGRESS_BYTES, MAX_ATTEMPTS, PROGRESS_TIME};

const BUFFER_BYTES: usize = 256 << 10;

/// Content that an object must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected<'a> {
    /// Bytes.
    pub bytes: u64,
    /// SHA-256 digest in lower case.
    pub sha256: &'a str,
}

/// A file on its way: what has come, and its digest.
struct Coming<'a> {
    name: &'a str,
    file: File,
    digest: Sha256,
    present: u64,
    total: u64,
    more: &'a dyn Fn(u64) -> bool,
}

impl ObjectStore {
    /// Write an object to a file, which has what came of it before, if anything did. `more` is told of bytes that came, and
    /// ends the transfer if it is false. What has come of a transfer that broke off stays.
    ///
    /// # Errors
    /// When the store refuses, gives up, or has other content: then the file is removed.
    pub fn fetch(
        &self,
        name: &str,
        path: &Path,
        expected: &Expected<'_>,
        more: &dyn Fn(u64) -> bool,
    ) -> Result<(), ObjectStoreError> {
        let mut coming = Coming::open(name, path, expected.bytes, more).map_err(disk(path))?;
        let mut failures = 0;
        while coming.present < coming.total {
            let before = coming.present;
            match self.go_on(&mut coming, path) {
                Err(error) if error.is_passing() => {
                    failures = if coming.present > before {
                        1
                    } else {
                        failures + 1
                    };
                    if failures >= MAX_ATTEMPTS {
                        return Err(error);
                    }
                    tracing::debug!(%error, name, "an object broke off");
                    thread::sleep(self.pause(failures));
                }
                ended => ended?,
            }
        }
        coming.file.sync_all().map_err(disk(path))?;
        let found = format!("{:x}", coming.digest.finalize());
        if found == expected.sha256 {
            return Ok(());
        }
        let _ = fs::remove_file(path);
        Err(ObjectStoreError::Corrupt {
            what: name.to_owned(),
            expected: expected.sha256.to_owned(),
            found,
        })
    }

    /// Ask for what has not come, and write it as it comes.
    fn go_on(&self, coming: &mut Coming<'_>, path: &Path) -> Result<(), ObjectStoreError> {
        let name = coming.name;
        let key = self.key(name);
        let action = self.bucket.get_object(Some(&self.credentials), &key);
        let mut request = self.agent.get(signed(&action));
        if coming.present > 0 {
            let range = format!("bytes={}-", coming.present);
            request = request.header(header::RANGE, range);
        }
        let answer = request.call().map_err(network(name))?;
        let answer = checked(name, answer)?;
        let partial = answer.status() == StatusCode::PARTIAL_CONTENT;
        let text = |name| {
            answer
                .headers()
                .get(name)
                .and_then(|value| value.to_str().ok())
        };
        let begins = text(header::CONTENT_RANGE).and_then(|range| {
            let (first, _) = range.strip_prefix("bytes ")?.split_once('-')?;
            first.parse().ok()
        });
        if partial && begins != Some(coming.present) {
            return Err(unusable(name, "it begins elsewhere than it was asked to"));
        }
        if !partial && coming.present > 0 {
            coming.begin_anew().map_err(disk(path))?;
        }
        let length: Option<u64> = text(header::CONTENT_LENGTH).and_then(|text| text.parse().ok());
        let left = coming.total - coming.present;
        if let Some(length) = length.filter(|length| *length != left) {
            let problem = format!("{length} bytes are to come, and {left} were expected");
            return Err(unusable(name, problem));
        }
        coming.take(answer.into_body().into_reader(), path)
    }
}

impl<'a> Coming<'a> {
    fn open(
        name: &'a str,
        path: &Path,
        total: u64,
        more: &'a dyn Fn(u64) -> bool,
    ) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false);
        let mut coming = Self {
            name,
            file: file.open(path)?,
            digest: Sha256::new(),
            present: 0,
            total,
            more,
        };
        let length = coming.file.metadata()?.len();
        if length > total {
            coming.begin_anew()?;
        } else {
            coming.present = io::copy(&mut coming.file, &mut coming.digest)?;
        }
        Ok(coming)
    }

    fn begin_anew(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.seek(SeekFrom::Start(0))?;
        self.digest = Sha256::new();
        self.present = 0;
        Ok(())
    }

    /// Write what an answer brings, within what is expected.
    fn take(&mut self, mut reader: impl Read, path: &Path) -> Result<(), ObjectStoreError> {
        let broken = |problem: String| ObjectStoreError::Network {
            what: self.name.to_owned(),
            problem,
        };
        let mut buffer = vec![0; BUFFER_BYTES];
        let (mut since, mut came) = (Instant::now(), 0);
        loop {
            let count = match reader.read(&mut buffer) {
                Ok(0) if self.present < self.total => {
                    let at = format!("it broke off at byte {} of {}", self.present, self.total);
                    return Err(broken(at));
                }
                Ok(0) => return Ok(()),
                Ok(count) => count,
                Err(error) => return Err(broken(error.to_string())),
            };
            let bytes = count as u64;
            if self.present + bytes > self.total {
                let problem = format!("it has more than {} bytes", self.total);
                return Err(unusable(self.name, problem));
            }
            let part = buffer.get(..count).unwrap_or_default();
            self.file.write_all(part).map_err(disk(path))?;
            self.digest.update(part);
            self.present += bytes;
            came += bytes;
            if !(self.more)(bytes) {
                return Err(ObjectStoreError::Cancelled);
            }
            if self.present == self.total {
                return Ok(());
            }
            if since.elapsed() >= PROGRESS_TIME {
                if came < LEAST_PROGRESS_BYTES {
                    return Err(broken(format!("only {came} bytes came in a minute")));
                }
                (since, came) = (Instant::now(), 0);
            }
        }
    }
}

pub(crate) fn disk(path: &Path) -> impl Fn(io::Error) -> ObjectStoreError + '_ {
    move |source| ObjectStoreError::Disk {
        path: path.to_owned(),
        source,
    }
}
