//! Signatures as cosign keeps them: beside an artifact, under a tag that is made of the artifact's digest, stands a
//! manifest whose layers are the texts that were signed. The signatures are annotations of the layers.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::digest::Digest;
use crate::error::RegistryError;
use crate::limits::{MAX_PAYLOAD_BYTES, MAX_SIGNATURES};
use crate::manifest::{Descriptor, MANIFEST, Manifest};
use crate::reference::Reference;
use crate::store::ArtifactStore;

/// Media type of a text that was signed.
const PAYLOAD: &str = "application/vnd.dev.cosign.simplesigning.v1+json";

/// Media type of the configuration of an image, which cosign writes for its manifests.
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";

/// Annotation of a layer: the signature in base64.
const SIGNATURE: &str = "dev.cosignproject.cosign/signature";

/// Type that a text of cosign names.
const TYPE: &str = "cosign container image signature";

/// Signature and the text that it is over. Nobody has checked either.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CosignSignature {
    /// Text that was signed.
    pub payload: Vec<u8>,
    /// Signature, an ECDSA signature in DER for a key of P-256.
    pub signature: Vec<u8>,
}

impl CosignSignature {
    /// True if the text is about this manifest.
    pub fn is_of(&self, manifest: &Digest) -> bool {
        let text: Value = serde_json::from_slice(&self.payload).unwrap_or_default();
        let critical = &text["critical"];
        critical["type"] == TYPE && critical["image"]["docker-manifest-digest"] == manifest.as_str()
    }
}

/// The text that says of a manifest what it is, which is what is signed.
pub fn cosign_payload(reference: &Reference, manifest: &Digest) -> Vec<u8> {
    let name = format!("{}/{}", reference.registry, reference.repository);
    let text = json!({
        "critical": {
            "identity": {"docker-reference": name},
            "image": {"docker-manifest-digest": manifest},
            "type": TYPE,
        },
        "optional": null,
    });
    text.to_string().into_bytes()
}

/// The reference under which the signatures of a manifest stand.
fn place(reference: &Reference, manifest: &Digest) -> Reference {
    Reference {
        tag: Some(format!("sha256-{}.sig", manifest.digits())),
        digest: None,
        ..reference.clone()
    }
}

/// Add a signature to those that a manifest has.
///
/// # Errors
/// When the store does not take it, or what it has at the place is none of cosign's.
pub fn push_cosign_signature(
    store: &mut impl ArtifactStore,
    reference: &Reference,
    manifest: &Digest,
    signed: &CosignSignature,
) -> Result<(), RegistryError> {
    let place = place(reference, manifest);
    let mut layers = layers(store, &place)?;
    let mut layer = Descriptor::of(PAYLOAD, &signed.payload);
    let text = BASE64_STANDARD.encode(&signed.signature);
    layer.annotations.insert(SIGNATURE.to_owned(), text);
    layers.push(layer);
    let digests: Vec<&Digest> = layers.iter().map(|layer| &layer.digest).collect();
    let config = json!({
        "architecture": "",
        "created": "0001-01-01T00:00:00Z",
        "history": vec![json!({"created": "0001-01-01T00:00:00Z"}); layers.len()],
        "os": "",
        "rootfs": {"type": "layers", "diff_ids": digests},
        "config": {},
    });
    let config = config.to_string().into_bytes();
    let manifest = Manifest {
        schema_version: 2,
        media_type: Some(MANIFEST.to_owned()),
        config: Descriptor::of(CONFIG, &config),
        layers,
        annotations: Default::default(),
    };
    let bytes = serde_json::to_vec(&manifest)
        .map_err(|error| RegistryError::unsound("the manifest", error.to_string()))?;
    store.put_content(&place, &Digest::of(&signed.payload), &signed.payload)?;
    store.put_content(&place, &manifest.config.digest, &config)?;
    store.put_manifest(&place, &bytes)
}

/// The signatures of a manifest, as far as they are cosign's; none if nobody has signed it.
///
/// # Errors
/// When the store does not answer, or what it gives is too large or has another digest.
pub fn cosign_signatures(
    store: &mut impl ArtifactStore,
    reference: &Reference,
    manifest: &Digest,
) -> Result<Vec<CosignSignature>, RegistryError> {
    let place = place(reference, manifest);
    let mut signatures = Vec::new();
    for layer in layers(store, &place)? {
        let signature = layer.annotations.get(SIGNATURE);
        let Some(signature) = signature.and_then(|text| BASE64_STANDARD.decode(text).ok()) else {
            continue;
        };
        let payload = store.content(&place, &layer.digest, layer.size)?;
        layer.check(&payload)?;
        signatures.push(CosignSignature { payload, signature });
    }
    Ok(signatures)
}

/// The texts that stand at a place; none if there is nothing.
fn layers(
    store: &mut impl ArtifactStore,
    place: &Reference,
) -> Result<Vec<Descriptor>, RegistryError> {
    let what = format!("the signatures at `{place}`");
    let bytes = match store.manifest(place) {
        Err(RegistryError::NotFound { .. }) => return Ok(Vec::new()),
        manifest => manifest?,
    };
    let manifest: Manifest = serde_json::from_slice(&bytes)
        .map_err(|error| RegistryError::unsound(&what, format!("it is no manifest: {error}")))?;
    let count = manifest.layers.len();
    if count > MAX_SIGNATURES {
        let problem = format!("it has {count} layers, of at most {MAX_SIGNATURES}");
        return Err(RegistryError::unsound(&what, problem));
    }
    let mut layers = manifest.layers;
    layers.retain(|layer| layer.media_type == PAYLOAD);
    match layers.iter().find(|layer| layer.size > MAX_PAYLOAD_BYTES) {
        None => Ok(layers),
        Some(layer) => {
            let problem = format!(
                "a layer has {} bytes, of at most {MAX_PAYLOAD_BYTES}",
                layer.size
            );
            Err(RegistryError::unsound(&what, problem))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Layout;

    fn digest() -> Digest {
        Digest::of(b"a manifest")
    }

    fn reference() -> Reference {
        "registry.example/team/policy:1.0".parse().unwrap()
    }

    /// Bytes that cosign 2 signs for an image, members in its order.
    #[test]
    fn the_text_is_that_of_cosign() {
        let text = String::from_utf8(cosign_payload(&reference(), &digest())).unwrap();
        let expected = format!(
            "{{\"critical\":{{\"identity\":{{\"docker-reference\":\"registry.example/team/policy\"}},\
             \"image\":{{\"docker-manifest-digest\":\"{}\"}},\
             \"type\":\"cosign container image signature\"}},\"optional\":null}}",
            digest()
        );
        assert_eq!(text, expected);
    }

    #[test]
    fn signatures_stand_under_the_tag_of_the_digest() {
        let folder = tempfile::tempdir().unwrap();
        let mut layout = Layout::new(folder.path());
        // A layout is one from the first push on.
        crate::artifact::push(&mut layout, &reference(), &Default::default()).unwrap();
        let found = |layout: &mut Layout| cosign_signatures(layout, &reference(), &digest());
        assert_eq!(found(&mut layout).unwrap(), []);
        let signed = |signature: &[u8]| CosignSignature {
            payload: cosign_payload(&reference(), &digest()),
            signature: signature.to_vec(),
        };
        for signature in [b"one", b"two"] {
            push_cosign_signature(&mut layout, &reference(), &digest(), &signed(signature))
                .unwrap();
        }
        assert_eq!(
            found(&mut layout).unwrap(),
            [signed(b"one"), signed(b"two")]
        );
        let index = std::fs::read_to_string(folder.path().join("index.json")).unwrap();
        let tag = format!("policy:sha256-{}.sig", digest().digits());
        assert!(index.contains(&tag), "{index}");
    }

    #[test]
    fn a_text_about_another_manifest_is_told() {
        let mut signed = CosignSignature {
            payload: cosign_payload(&reference(), &digest()),
            signature: Vec::new(),
        };
        assert!(signed.is_of(&digest()));
        assert!(!signed.is_of(&Digest::of(b"another")));
        for payload in ["", "[]", "{\"critical\": 1}", "\u{0}"] {
            signed.payload = payload.as_bytes().to_vec();
            assert!(!signed.is_of(&digest()), "{payload:?}");
        }
    }
}
