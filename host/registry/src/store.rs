//! Places that artifacts are in: a registry, or a folder.

/// Place that artifacts are in. Contents that it gives are checked by those who ask.
pub trait ArtifactStore: crate::store::sealed::Contents {}

impl<T: sealed::Contents> ArtifactStore for T {}

pub(crate) mod sealed {
    use crate::digest::Digest;
    use crate::error::RegistryError;
    use crate::reference::Reference;

    /// Manifests and contents of a place.
    pub trait Contents {
        /// The manifest that a reference names.
        fn manifest(&mut self, reference: &Reference) -> Result<Vec<u8>, RegistryError>;

        /// The content of this digest, of at most so many bytes and one more.
        fn content(
            &mut self,
            of: &Reference,
            digest: &Digest,
            size: u64,
        ) -> Result<Vec<u8>, RegistryError>;

        /// Store a content, unless it is there.
        fn put_content(
            &mut self,
            of: &Reference,
            digest: &Digest,
            content: &[u8],
        ) -> Result<(), RegistryError>;

        /// Store a manifest under the tag of the reference.
        fn put_manifest(&mut self, of: &Reference, manifest: &[u8]) -> Result<(), RegistryError>;
    }
}
