//! Manifests of plugins: OCI image manifests by the convention for WebAssembly artifacts, with one layer, which is the
//! component, and a configuration that says what it imports and exports.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::error::RegistryError;
use crate::limits::MAX_LAYER_BYTES;

/// Media type of a manifest.
pub(crate) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// Media type of a list of manifests, in a layout.
pub(crate) const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// Media type of the configuration of a component.
pub(crate) const CONFIG: &str = "application/vnd.wasm.config.v0+json";

/// Media type of a component.
pub(crate) const LAYER: &str = "application/wasm";

/// Annotation of a layer: its ed25519 signature in base64.
pub(crate) const SIGNATURE: &str = "dev.mortise.signature.ed25519";

/// Content in a registry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    pub(crate) media_type: String,
    pub(crate) digest: Digest,
    pub(crate) size: u64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) annotations: BTreeMap<String, String>,
}

impl Descriptor {
    pub(crate) fn of(media_type: &str, content: &[u8]) -> Self {
        Self {
            media_type: media_type.to_owned(),
            digest: Digest::of(content),
            size: content.len() as u64,
            annotations: BTreeMap::new(),
        }
    }

    /// Check that a content is the one that is described.
    pub(crate) fn check(&self, content: &[u8]) -> Result<(), RegistryError> {
        let what = format!("the content `{}`", self.digest);
        if content.len() as u64 != self.size {
            let problem = format!("it has {} bytes of {}", content.len(), self.size);
            return Err(RegistryError::unsound(&what, problem));
        }
        match Digest::of(content) == self.digest {
            true => Ok(()),
            false => Err(RegistryError::unsound(
                &what,
                "what came has another digest",
            )),
        }
    }
}

/// Manifest of an artifact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Manifest {
    pub(crate) schema_version: u8,
    #[serde(default)]
    pub(crate) media_type: Option<String>,
    pub(crate) config: Descriptor,
    pub(crate) layers: Vec<Descriptor>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) annotations: BTreeMap<String, String>,
}

/// Read the manifest of a plugin, and hold it to the convention.
pub(crate) fn read(what: &str, bytes: &[u8]) -> Result<Manifest, RegistryError> {
    let unsound = |problem: String| RegistryError::unsound(what, problem);
    let manifest: Manifest = serde_json::from_slice(bytes)
        .map_err(|error| unsound(format!("it is no manifest of one artifact: {error}")))?;
    if manifest.schema_version != 2 {
        let version = manifest.schema_version;
        return Err(unsound(format!(
            "its schema version is {version} and not 2"
        )));
    }
    let types = [
        (
            "manifest",
            manifest.media_type.as_deref().unwrap_or(MANIFEST),
            MANIFEST,
        ),
        ("configuration", &*manifest.config.media_type, CONFIG),
    ];
    let layers = manifest.layers.iter();
    let layers = layers.map(|layer| ("layer", &*layer.media_type, LAYER));
    for (part, found, wanted) in types.into_iter().chain(layers) {
        if found != wanted {
            let found: String = found
                .chars()
                .take(200)
                .flat_map(char::escape_default)
                .collect();
            return Err(unsound(format!(
                "it is no WebAssembly component: the media type of its {part} is `{found}` and not `{wanted}`"
            )));
        }
    }
    let [layer] = manifest.layers.as_slice() else {
        let count = manifest.layers.len();
        return Err(unsound(format!("it has {count} layers and not one")));
    };
    if layer.size > MAX_LAYER_BYTES {
        let size = layer.size;
        return Err(unsound(format!(
            "its layer has {size} bytes, of at most {MAX_LAYER_BYTES}"
        )));
    }
    Ok(manifest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn sound() -> Value {
        let config = Descriptor::of(CONFIG, b"{}");
        let layer = Descriptor::of(LAYER, b"wasm");
        json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer]})
    }

    fn refused(change: impl FnOnce(&mut Value)) -> String {
        let mut manifest = sound();
        change(&mut manifest);
        let bytes = manifest.to_string().into_bytes();
        read("the manifest", &bytes)
            .expect_err("refused")
            .to_string()
    }

    #[test]
    fn only_a_component_alone_is_a_plugin() {
        assert!(read("the manifest", sound().to_string().as_bytes()).is_ok());
        let told = refused(|manifest| {
            manifest["config"]["mediaType"] = json!("application/vnd.oci.image.config.v1+json")
        });
        assert!(told.contains("no WebAssembly component"), "{told}");
        let told = refused(|manifest| {
            manifest["layers"][0]["mediaType"] =
                json!("application/vnd.oci.image.layer.v1.tar+gzip")
        });
        assert!(told.contains("media type of its layer"), "{told}");
        let told = refused(|manifest| manifest["mediaType"] = json!(INDEX));
        assert!(told.contains("media type of its manifest"), "{told}");
        let told = refused(|manifest| manifest["layers"] = json!([]));
        assert!(told.contains("0 layers"), "{told}");
        let told = refused(|manifest| manifest["layers"][0]["size"] = json!(MAX_LAYER_BYTES + 1));
        assert!(told.contains("at most"), "{told}");
        let told =
            refused(|manifest| manifest["layers"][0]["digest"] = json!("sha256:../../etc/passwd"));
        assert!(told.contains("no digest"), "{told}");
        let told = refused(|manifest| manifest["schemaVersion"] = json!(1));
        assert!(told.contains("schema version"), "{told}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            prop_assert!(read("x", &bytes).is_err());
        }
    }
}
