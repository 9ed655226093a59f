//! OCI image layouts: folders with the contents of a registry, which are carried to machines without a network.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::digest::Digest;
use crate::error::RegistryError;
use crate::limits::MAX_MANIFEST_BYTES;
use crate::manifest::{Descriptor, INDEX, MANIFEST};
use crate::reference::Reference;
use crate::store::sealed::Contents;

/// Annotation of an entry of the index: the reference that it has.
const NAME: &str = "org.opencontainers.image.ref.name";

const LAYOUT: &str = "oci-layout";
const VERSION: &str = "{\"imageLayoutVersion\":\"1.0.0\"}";

/// OCI image layout in a folder.
#[derive(Debug, Clone)]
pub struct Layout {
    folder: PathBuf,
}

impl Layout {
    /// The layout of a folder, which is made one by the first push.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        let folder = folder.into();
        Self { folder }
    }

    fn path_of(&self, digest: &Digest) -> PathBuf {
        self.folder.join("blobs/sha256").join(digest.digits())
    }

    fn index(&self) -> Result<Vec<Value>, RegistryError> {
        let path = self.folder.join("index.json");
        let bytes = read(&path, MAX_MANIFEST_BYTES)?;
        let index: Value =
            serde_json::from_slice(&bytes).map_err(|error| RegistryError::Content {
                path: path.clone(),
                problem: format!("is no index of a layout: {error}"),
            })?;
        match &index["manifests"] {
            Value::Array(manifests) => Ok(manifests.clone()),
            _ => Err(RegistryError::Content {
                path,
                problem: "is no index of a layout: it has no `manifests`".to_owned(),
            }),
        }
    }

    /// The digest of the manifest that a reference names: by its whole name, or by its tag where no other
    /// artifact of the layout has that.
    fn find(&self, reference: &Reference) -> Result<Digest, RegistryError> {
        if let Some(digest) = &reference.digest {
            return Ok(digest.clone());
        }
        let entries = self.index()?;
        let by_name = |name: &str| {
            let matching = entries
                .iter()
                .filter(|entry| entry["annotations"][NAME] == name);
            matching
                .map(|entry| entry["digest"].clone())
                .collect::<Vec<_>>()
        };
        let mut found = by_name(&reference.named());
        if found.is_empty() {
            found = by_name(reference.tag());
        }
        match found.as_slice() {
            [Value::String(digest)] => {
                digest.parse().map_err(|error: crate::digest::DigestError| {
                    RegistryError::unsound("the index of the layout", error.to_string())
                })
            }
            _ => Err(RegistryError::NotFound {
                what: format!("artifact `{reference}`"),
                place: self.folder.display().to_string(),
            }),
        }
    }
}

impl Contents for Layout {
    fn manifest(&mut self, reference: &Reference) -> Result<Vec<u8>, RegistryError> {
        let digest = self.find(reference)?;
        let bytes = read(&self.path_of(&digest), MAX_MANIFEST_BYTES)?;
        match Digest::of(&bytes) == digest {
            true => Ok(bytes),
            false => Err(RegistryError::unsound(
                &format!("the manifest of `{reference}`"),
                format!("its content has not the digest {digest}"),
            )),
        }
    }

    fn content(
        &mut self,
        _: &Reference,
        digest: &Digest,
        size: u64,
    ) -> Result<Vec<u8>, RegistryError> {
        read(&self.path_of(digest), size)
    }

    fn put_content(
        &mut self,
        _: &Reference,
        digest: &Digest,
        content: &[u8],
    ) -> Result<(), RegistryError> {
        write(&self.path_of(digest), content)
    }

    fn put_manifest(&mut self, of: &Reference, manifest: &[u8]) -> Result<(), RegistryError> {
        let descriptor = Descriptor::of(MANIFEST, manifest);
        write(&self.path_of(&descriptor.digest), manifest)?;
        write(&self.folder.join(LAYOUT), VERSION.as_bytes())?;
        let mut entries = match self.folder.join("index.json").exists() {
            true => self.index()?,
            false => Vec::new(),
        };
        let name = of.named();
        entries.retain(|entry| entry["annotations"][NAME] != name.as_str());
        entries.push(json!({
            "mediaType": MANIFEST,
            "digest": descriptor.digest,
            "size": descriptor.size,
            "annotations": {NAME: name},
        }));
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries});
        write(
            &self.folder.join("index.json"),
            index.to_string().as_bytes(),
        )
    }
}

/// A file of at most so many bytes, and one more.
pub(crate) fn read(path: &Path, most: u64) -> Result<Vec<u8>, RegistryError> {
    let file = fs::File::open(path).map_err(RegistryError::file(path))?;
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(RegistryError::file(path))?;
    Ok(bytes)
}

/// Write a file whole or not at all.
///
/// # Errors
/// When it cannot be written.
pub fn write(path: &Path, content: &[u8]) -> Result<(), RegistryError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(RegistryError::file(folder))?;
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(RegistryError::file(folder))?;
    file.write_all(content).map_err(RegistryError::file(path))?;
    file.as_file()
        .sync_all()
        .map_err(RegistryError::file(path))?;
    file.persist(path)
        .map_err(|error| RegistryError::file(path)(error.error))?;
    Ok(())
}
