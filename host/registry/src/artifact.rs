//! Plugins as artifacts: what is pushed for a file, and what is pulled again.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::json;

use crate::digest::Digest;
use crate::error::RegistryError;
use crate::limits::MAX_LAYER_BYTES;
use crate::manifest::{self, CONFIG, Descriptor, LAYER, MANIFEST, Manifest, SIGNATURE};
use crate::reference::Reference;
use crate::store::ArtifactStore;

/// Bytes of an ed25519 signature.
const SIGNATURE_BYTES: usize = 64;

/// Plugin to be pushed.
#[derive(Debug, Clone, Default)]
pub struct PluginArtifact {
    /// The component.
    pub wasm: Vec<u8>,
    /// Ed25519 signature of the component.
    pub signature: Option<Vec<u8>>,
    /// Interfaces that the component imports, as WIT names them.
    pub imports: Vec<String>,
    /// Interfaces that the component exports, as WIT names them.
    pub exports: Vec<String>,
    /// Annotations of the manifest.
    pub annotations: BTreeMap<String, String>,
}

/// Plugin that was pulled, and is what its manifest says.
#[derive(Debug, Clone)]
pub struct Pulled {
    /// The component.
    pub wasm: Vec<u8>,
    /// Ed25519 signature of the component, not verified.
    pub signature: Option<Vec<u8>>,
    /// Digest of the manifest.
    pub manifest: Digest,
    /// Digest of the component.
    pub layer: Digest,
    /// Annotations of the manifest.
    pub annotations: BTreeMap<String, String>,
}

/// Push a plugin under the tag of a reference. Says the digest of the manifest.
///
/// # Errors
/// When the plugin is too large, or the store does not take it.
pub fn push(
    store: &mut impl ArtifactStore,
    reference: &Reference,
    plugin: &PluginArtifact,
) -> Result<Digest, RegistryError> {
    let size = plugin.wasm.len() as u64;
    if size > MAX_LAYER_BYTES {
        let problem = format!("it has {size} bytes, of at most {MAX_LAYER_BYTES}");
        return Err(RegistryError::unsound("the plugin", problem));
    }
    let mut layer = Descriptor::of(LAYER, &plugin.wasm);
    if let Some(signature) = &plugin.signature {
        let text = BASE64_STANDARD.encode(signature);
        layer.annotations.insert(SIGNATURE.to_owned(), text);
    }
    let config = json!({
        "architecture": "wasm",
        "os": "wasip2",
        "layerDigests": [layer.digest.as_str()],
        "component": {"imports": plugin.imports, "exports": plugin.exports},
    });
    let config = config.to_string().into_bytes();
    let manifest = Manifest {
        schema_version: 2,
        media_type: Some(MANIFEST.to_owned()),
        config: Descriptor::of(CONFIG, &config),
        layers: vec![layer],
        annotations: plugin.annotations.clone(),
    };
    let bytes = serde_json::to_vec(&manifest)
        .map_err(|error| RegistryError::unsound("the manifest", error.to_string()))?;
    let layer = &manifest.layers[0];
    store.put_content(reference, &layer.digest, &plugin.wasm)?;
    store.put_content(reference, &manifest.config.digest, &config)?;
    store.put_manifest(reference, &bytes)?;
    Ok(Digest::of(&bytes))
}

/// Digest and annotations of the manifest of a plugin.
///
/// # Errors
/// When there is no such plugin, or it is malformed or has another digest.
pub fn describe(
    store: &mut impl ArtifactStore,
    reference: &Reference,
) -> Result<(Digest, BTreeMap<String, String>), RegistryError> {
    let what = format!("the manifest of `{reference}`");
    let bytes = store.manifest(reference)?;
    let manifest = manifest::read(&what, &bytes)?;
    Ok((Digest::of(&bytes), manifest.annotations))
}

/// Pull a plugin. The component has the digest that the manifest states, and the manifest that of the reference if it
/// names one.
///
/// # Errors
/// When there is no such plugin, or it is malformed or has another digest.
pub fn pull(
    store: &mut impl ArtifactStore,
    reference: &Reference,
) -> Result<Pulled, RegistryError> {
    let what = format!("the manifest of `{reference}`");
    let bytes = store.manifest(reference)?;
    let digest = Digest::of(&bytes);
    if let Some(wanted) = reference
        .digest
        .as_ref()
        .filter(|wanted| **wanted != digest)
    {
        let problem = format!("it has the digest {digest}, and {wanted} was asked for");
        return Err(RegistryError::unsound(&what, problem));
    }
    let manifest = manifest::read(&what, &bytes)?;
    let layer = &manifest.layers[0];
    let signature = match layer.annotations.get(SIGNATURE) {
        None => None,
        Some(text) => match BASE64_STANDARD.decode(text) {
            Ok(bytes) if bytes.len() == SIGNATURE_BYTES => Some(bytes),
            _ => {
                let problem = format!("its annotation `{SIGNATURE}` is no signature");
                return Err(RegistryError::unsound(&what, problem));
            }
        },
    };
    let wasm = store.content(reference, &layer.digest, layer.size)?;
    layer.check(&wasm)?;
    Ok(Pulled {
        wasm,
        signature,
        manifest: digest,
        layer: layer.digest.clone(),
        annotations: manifest.annotations,
    })
}
