//! An adapter for a small model: its configuration, a zero byte, and its matrices.

use std::sync::LazyLock;

use crate::files;
use mortise_model::{Adapter, ModelFolder, ModelSpec};

static BASE: LazyLock<ModelSpec> = LazyLock::new(|| {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/parity/data/llama-rope-scaled");
    let folder = ModelFolder::open(folder).expect("open the base");
    ModelSpec::read(&folder).expect("read the base")
});

/// Run on one input.
pub fn run(bytes: &[u8]) {
    let Some((settings, matrices)) = files::parts(bytes) else {
        return;
    };
    let folder = files::with(&[
        ("adapter_config.json", settings),
        ("adapter_model.safetensors", matrices),
    ]);
    let folder = ModelFolder::open(folder).expect("open the folder");
    if let Ok(adapter) = Adapter::load(&folder, &BASE, 1.0) {
        let most = 65_536 + 64 * bytes.len() as u64;
        assert!(adapter.bytes() <= most, "it is as large as its file");
    }
}
