//! Descriptions of models in an object store. Whoever may write there wrote them: each is checked before it is used.

use std::collections::BTreeSet;
use std::path::PathBuf;

use mortise_hub::ModelReference;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::contents::ReceivedFile;
use crate::entries::{EntrySource, LibraryEntry};
use crate::limits::{MAX_ABOUT_BYTES, MAX_FILE_DEPTH, MAX_STORED_FILES};
use crate::name::{check_model_name, is_plain};

/// A model in an object store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ModelRecord {
    /// Public name.
    pub(crate) name: String,
    /// Origin.
    pub(crate) source: EntrySource,
    /// Folder of its files, there and here.
    pub(crate) id: String,
    /// The GGUF file that stands for it; the folder does if there is none.
    pub(crate) file: Option<String>,
    /// All files.
    pub(crate) files: Vec<RecordFile>,
    /// Digest of the model, if it was uploaded.
    pub(crate) sha256: Option<String>,
    /// Version.
    pub(crate) version: Option<String>,
    /// Description.
    pub(crate) description: Option<String>,
    /// Seconds since 1970.
    pub(crate) added_at: u64,
}

/// One file of a model in an object store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecordFile {
    /// Path below the folder of the model.
    pub(crate) name: String,
    /// Bytes.
    pub(crate) size_bytes: u64,
    /// SHA-256 digest in lower case.
    pub(crate) sha256: String,
}

impl ModelRecord {
    /// The description of a model with these files.
    pub(crate) fn of(entry: &LibraryEntry, files: &[ReceivedFile], file: Option<String>) -> Self {
        let files: Vec<RecordFile> = files
            .iter()
            .map(|file| RecordFile {
                name: file.name.clone(),
                size_bytes: file.bytes,
                sha256: file.sha256.clone(),
            })
            .collect();
        // The same files under the same name have the same place, however often they are sent.
        let mut digest = Sha256::new();
        digest.update(&entry.name);
        for file in &files {
            digest.update(format!("\n{}  {}", file.sha256, file.name));
        }
        let id = format!("{:x}", digest.finalize());
        let own = entry.path.strip_prefix("files").ok();
        let own = own.and_then(|path| path.components().next());
        Self {
            id: match own {
                Some(own) => own.as_os_str().to_string_lossy().into_owned(),
                None => id.chars().take(ID_DIGITS).collect(),
            },
            name: entry.name.clone(),
            source: entry.source,
            file,
            files,
            sha256: entry.sha256.clone(),
            version: entry.version.clone(),
            description: entry.description.clone(),
            added_at: entry.added_at,
        }
    }

    /// A description as it was read, if it is one.
    pub(crate) fn read(text: &[u8]) -> Result<Self, String> {
        let record: Self = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        record.check()?;
        Ok(record)
    }

    fn check(&self) -> Result<(), String> {
        let known = |name: &str| {
            let reference = name.parse::<ModelReference>();
            check_model_name(name).is_ok()
                || reference.is_ok_and(|reference| reference.to_string() == name)
        };
        if !known(&self.name) {
            return Err("its name is none of a model".to_owned());
        }
        if self.id.len() != ID_DIGITS || !is_hexadecimal(&self.id) {
            return Err("its id is none".to_owned());
        }
        if self.files.is_empty() || self.files.len() > MAX_STORED_FILES {
            return Err(format!("it must have 1 to {MAX_STORED_FILES} files"));
        }
        let mut names = BTreeSet::new();
        let mut sum = 0_u64;
        for file in &self.files {
            let parts: Vec<&str> = file.name.split('/').collect();
            if parts.len() > MAX_FILE_DEPTH || !parts.iter().all(|part| is_plain(part)) {
                return Err("a name of a file is none".to_owned());
            }
            if file.sha256.len() != 64 || !is_hexadecimal(&file.sha256) {
                return Err("a digest of a file is none".to_owned());
            }
            sum = sum.checked_add(file.size_bytes).ok_or("it is too large")?;
            if !names.insert(&file.name) {
                return Err("it has a file twice".to_owned());
            }
        }
        let stands = |file: &String| names.contains(file) && file.ends_with(".gguf");
        if self.file.as_ref().is_some_and(|file| !stands(file)) {
            return Err("its file is none of its files".to_owned());
        }
        let texts = [&self.version, &self.description, &self.sha256];
        let long = |text: &String| text.len() > MAX_ABOUT_BYTES;
        match texts.into_iter().flatten().any(long) {
            true => Err("what is said about it is too long".to_owned()),
            false => Ok(()),
        }
    }

    /// Name of the object that describes the model of this name.
    pub(crate) fn object(name: &str) -> String {
        format!("{ENTRIES}{:x}.json", Sha256::digest(name.as_bytes()))
    }

    /// Name of the object with a file.
    pub(crate) fn object_of(&self, file: &RecordFile) -> String {
        format!("files/{}/{}", self.id, file.name)
    }

    /// The folder of its files, below the library's.
    pub(crate) fn folder(&self) -> PathBuf {
        PathBuf::from("files").join(&self.id)
    }

    /// The path that stands for the model once its files are here, below the library's folder.
    pub(crate) fn path(&self) -> PathBuf {
        match &self.file {
            Some(file) => self.folder().join(file),
            None => self.folder(),
        }
    }

    /// Bytes of all files.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.size_bytes).sum()
    }

    /// The entry of the library once its files are here.
    pub(crate) fn entry(&self) -> LibraryEntry {
        LibraryEntry {
            name: self.name.clone(),
            source: self.source,
            path: self.path(),
            size_bytes: self.size_bytes(),
            sha256: self.sha256.clone(),
            version: self.version.clone(),
            description: self.description.clone(),
            added_at: self.added_at,
        }
    }
}

/// Beginning of the names of objects that describe models.
pub(crate) const ENTRIES: &str = "entries/";
/// Digits of an id.
const ID_DIGITS: usize = 32;

fn is_hexadecimal(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn good() -> Value {
        json!({
            "name": "org/name:Q8_0", "source": "pull", "id": "0123456789abcdef0123456789abcdef",
            "file": "model.gguf",
            "files": [
                {"name": "model.gguf", "size_bytes": 3, "sha256": "a".repeat(64)},
                {"name": "1_Pooling/config.json", "size_bytes": 2, "sha256": "b".repeat(64)},
            ],
            "sha256": null, "version": null, "description": null, "added_at": 7,
        })
    }

    fn read(value: &Value) -> Result<ModelRecord, String> {
        ModelRecord::read(value.to_string().as_bytes())
    }

    #[test]
    fn feature_b16_descriptions_from_a_store_are_checked() {
        let record = read(&good()).expect("a description");
        assert_eq!(record.size_bytes(), 5);
        let path = "files/0123456789abcdef0123456789abcdef/model.gguf";
        assert_eq!(record.path(), PathBuf::from(path));
        for (place, wrong) in [
            ("/name", json!("../x")),
            ("/name", json!("a b")),
            ("/id", json!("../../etc/passwd/0123456789abcde")),
            ("/id", json!("0123")),
            ("/file", json!("other.gguf")),
            ("/file", json!("1_Pooling/config.json")),
            ("/files", json!([])),
            ("/files/0/name", json!("../model.gguf")),
            ("/files/0/name", json!("/model.gguf")),
            ("/files/0/name", json!("a/.hidden")),
            ("/files/0/name", json!("1_Pooling/config.json")),
            ("/files/0/sha256", json!("A")),
            ("/files/0/size_bytes", json!(-1)),
            ("/files/0/size_bytes", json!(u64::MAX)),
            ("/version", json!("x".repeat(2000))),
            ("/source", json!("thief")),
        ] {
            let mut value = good();
            *value.pointer_mut(place).expect("a place") = wrong.clone();
            assert!(read(&value).is_err(), "{place} = {wrong}");
        }
        let mut value = good();
        value["more"] = json!(1);
        assert!(read(&value).is_err());
    }

    proptest! {
        #[test]
        fn files_of_a_description_stay_in_their_folder(name in "[a-z./\\\\:~ -]{0,24}(\\.json|\\.gguf)?") {
            use std::path::Component;
            let mut value = good();
            value["files"][1]["name"] = json!(name);
            if let Ok(record) = read(&value) {
                let path = PathBuf::from(record.object_of(&record.files[1]));
                let inside = |part: Component<'_>| matches!(part, Component::Normal(_));
                prop_assert!(path.components().all(inside));
            }
        }
    }
}
