//! The configuration of a model: what it says of the shape, without weights.

use crate::files;
use mortise_model::{EncoderSpec, GenerationConfig, ModelFolder, ModelSpec};

/// Run on one input.
pub fn run(data: &[u8]) {
    let folder = files::with(&[("config.json", data), ("generation_config.json", data)]);
    let folder = ModelFolder::open(folder).expect("open the folder");
    let _ = GenerationConfig::read(&folder, 1 << 16);
    let _ = EncoderSpec::read(&folder);
    if let Ok(spec) = ModelSpec::read(&folder) {
        assert_eq!(spec.layer_specs.len(), spec.layers);
        assert!(spec.heads.is_multiple_of(spec.kv_heads) && spec.kv_shape().key_dim > 0);
    }
}
