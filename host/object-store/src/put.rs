//! Files that become objects: in one request, or in parts.

use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom, Take};
use std::path::Path;

use rusty_s3::actions::{CompleteMultipartUploadResponse, CreateMultipartUpload};
use ureq::http::header;

use crate::client::{ObjectStore, checked, network, signed, text};
use crate::error::{ObjectStoreError, unusable};
use crate::fetch::disk;
use crate::limits::{MAX_ANSWER_BYTES, MAX_PARTS};

/// Part of a file, which tells how much of it was read.
struct Counted<'a> {
    part: Take<File>,
    more: &'a dyn Fn(u64) -> bool,
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.part.read(buffer)?;
        match (self.more)(count as u64) {
            true => Ok(count),
            false => Err(io::Error::other("the transfer was cancelled")),
        }
    }
}

impl ObjectStore {
    /// Make a file an object. `more` is told of bytes that were read to be sent, and ends the transfer if it is false.
    ///
    /// # Errors
    /// When the store refuses. Nothing of the object is left then, as far as the store does as it is asked.
    pub fn put(
        &self,
        name: &str,
        path: &Path,
        more: &dyn Fn(u64) -> bool,
    ) -> Result<(), ObjectStoreError> {
        let part_bytes = self.part_bytes;
        let bytes = path.metadata().map_err(disk(path))?.len();
        let key = self.key(name);
        if bytes <= part_bytes {
            return self.persistent(|| {
                let action = self.bucket.put_object(Some(&self.credentials), &key);
                let mut part = part_of(path, 0, bytes, more)?;
                let url = signed(&action);
                self.send(name, &url, bytes, &mut part).map(drop)
            });
        }
        let upload = self.begin(name, &key)?;
        let part_bytes = part_bytes.max(bytes.div_ceil(MAX_PARTS));
        let put = self.put_parts(name, &key, &upload, (path, bytes, part_bytes), more);
        put.inspect_err(|_| {
            let action =
                (self.bucket).abort_multipart_upload(Some(&self.credentials), &key, &upload);
            if let Err(error) = self.agent.delete(signed(&action)).call() {
                tracing::warn!(name, %error, "parts of an object may be left in the object store");
            }
        })
    }

    /// Begin to send parts; the id of what they are to make.
    fn begin(&self, name: &str, key: &str) -> Result<String, ObjectStoreError> {
        let begun = self.persistent(|| {
            let action = self
                .bucket
                .create_multipart_upload(Some(&self.credentials), key);
            let answer = self.agent.post(signed(&action)).send_empty();
            text(
                name,
                checked(name, answer.map_err(network(name))?)?,
                MAX_ANSWER_BYTES,
            )
        })?;
        let begun = CreateMultipartUpload::parse_response(&begun);
        let begun = begun.map_err(|_| unusable(name, "it names no upload"))?;
        Ok(begun.upload_id().to_owned())
    }

    fn put_parts(
        &self,
        name: &str,
        key: &str,
        upload: &str,
        (path, bytes, part_bytes): (&Path, u64, u64),
        more: &dyn Fn(u64) -> bool,
    ) -> Result<(), ObjectStoreError> {
        let mut tags = Vec::new();
        let mut from = 0;
        while from < bytes {
            let length = part_bytes.min(bytes - from);
            let number = u16::try_from(tags.len() + 1).unwrap_or(u16::MAX);
            let tag = self.persistent(|| {
                let credentials = Some(&self.credentials);
                let action = self.bucket.upload_part(credentials, key, number, upload);
                let mut part = part_of(path, from, length, more)?;
                let answer = self.send(name, &signed(&action), length, &mut part)?;
                let tag = answer.headers().get(header::ETAG);
                let tag = tag.and_then(|tag| tag.to_str().ok());
                let tag = tag.ok_or_else(|| unusable(name, "it does not name a part"))?;
                Ok(tag.to_owned())
            })?;
            tags.push(tag);
            from += length;
        }
        let tags = || tags.iter().map(String::as_str);
        let done = self.persistent(|| {
            let credentials = Some(&self.credentials);
            let action = self
                .bucket
                .complete_multipart_upload(credentials, key, upload, tags());
            let url = signed(&action);
            let answer = self.agent.post(&url).send(action.body());
            text(
                name,
                checked(name, answer.map_err(network(name))?)?,
                MAX_ANSWER_BYTES,
            )
        })?;
        // A refusal may come with a good status here, and not all stores name the good answer as S3 does: then the length of
        // the object decides.
        if CompleteMultipartUploadResponse::parse(&done).is_ok() || self.has(name, key, bytes)? {
            return Ok(());
        }
        Err(unusable(
            name,
            "it does not say that the object is complete",
        ))
    }

    /// True if there is an object of this length.
    fn has(&self, name: &str, key: &str, bytes: u64) -> Result<bool, ObjectStoreError> {
        self.persistent(|| {
            let action = self.bucket.head_object(Some(&self.credentials), key);
            let answer = self.agent.head(signed(&action)).call();
            let answer = match checked(name, answer.map_err(network(name))?) {
                Err(ObjectStoreError::NotFound { .. }) => return Ok(false),
                answer => answer?,
            };
            let length = answer.headers().get(header::CONTENT_LENGTH);
            let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
            Ok(length == Some(bytes))
        })
    }
}

fn part_of<'a>(
    path: &Path,
    from: u64,
    bytes: u64,
    more: &'a dyn Fn(u64) -> bool,
) -> Result<Counted<'a>, ObjectStoreError> {
    let mut file = File::open(path).map_err(disk(path))?;
    file.seek(SeekFrom::Start(from)).map_err(disk(path))?;
    let part = file.take(bytes);
    Ok(Counted { part, more })
}
