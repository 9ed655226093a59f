//! Adapters in one GGUF file, as llama.cpp's converter writes them.

use std::collections::{BTreeMap, BTreeSet};

use super::config::shown;
use super::part::parts;
use super::{Contents, Pair, find_part, refused};
use crate::error::ModelError;
use crate::folder::ModelFolder;
use crate::gguf::{Gguf, GgufError, GgufTensors, Value, architecture_of, gguf_name};
use crate::limits::ADAPTER_ALPHA_MAX;
use crate::spec::ModelSpec;

const KIND_KEY: &str = "general.type";
const ADAPTER_KEY: &str = "adapter.type";
const ALPHA_KEY: &str = "adapter.lora.alpha";
/// Tokens behind which an adapter begins to count.
const INVOCATION_KEY: &str = "adapter.alora.invocation_tokens";
/// Endings of the two matrices.
const ENDINGS: [&str; 2] = [".lora_a", ".lora_b"];

/// Read an adapter's file and compare it with the shape of the base.
pub(super) fn read(
    folder: &ModelFolder,
    gguf: &Gguf,
    spec: &ModelSpec,
) -> Result<Contents, ModelError> {
    let wrong = |source: GgufError| ModelError::Gguf {
        file: folder.name(),
        source,
    };
    check_kind(gguf, spec).map_err(wrong)?;
    let alpha = alpha(gguf).map_err(wrong)?;
    let tensors = GgufTensors::new(gguf).map_err(wrong)?;
    let known = known(spec, gguf.architecture().map_err(wrong)?);
    let mut found: BTreeSet<(usize, &str)> = BTreeSet::new();
    for tensor in gguf.tensors() {
        let name = &tensor.name;
        let stem = ENDINGS.iter().find_map(|ending| name.strip_suffix(ending));
        let Some(place) = stem.and_then(|stem| known.get(stem)) else {
            let problem = format!(
                "has a tensor `{}`, which is no matrix of an adapter of a {}",
                shown(name),
                spec.architecture.name()
            );
            return Err(refused(folder, problem));
        };
        found.insert((place.0, &place.1));
    }
    let mut pairs = Vec::new();
    for (layer, name) in found {
        let part = find_part(folder, spec, layer, name, name)?;
        let weight = format!("model.layers.{layer}.{name}.weight");
        let stem = gguf_name(gguf.architecture().map_err(wrong)?, &weight).unwrap_or_default();
        let names = ENDINGS.map(|ending| format!("{stem}{ending}"));
        let [first, second] = names.each_ref().map(|name| tensors.stored(name));
        let mut pair = Pair {
            layer,
            part,
            matrices: [first?, second?],
            names,
            scale: 1.0,
            order: tensors.row_order(&weight, spec.head_dim),
        };
        pair.check()?;
        // Without an alpha there is no scale, as llama.cpp has it.
        if alpha > 0.0 {
            pair.scale = alpha / pair.rank() as f64;
        }
        pairs.push(pair);
    }
    Ok(Contents { alpha, pairs })
}

/// Matrices of the base that can be adapted, by the names that GGUF has for them.
fn known(spec: &ModelSpec, architecture: &str) -> BTreeMap<String, (usize, String)> {
    let mut known = BTreeMap::new();
    for layer in 0..spec.layers {
        for part in parts(spec, layer) {
            let weight = format!("model.layers.{layer}.{}.weight", part.name);
            if let Some(name) = gguf_name(architecture, &weight) {
                known.insert(name, (layer, part.name.to_owned()));
            }
        }
    }
    known
}

/// Check that the file is an adapter of the base's architecture.
fn check_kind(gguf: &Gguf, spec: &ModelSpec) -> Result<(), GgufError> {
    for (key, wanted) in [(KIND_KEY, "adapter"), (ADAPTER_KEY, "lora")] {
        let found = gguf.metadata().text(key)?;
        if found != Some(wanted) {
            let found = found.map_or("is missing".to_owned(), |found| {
                format!("is `{}`", shown(found))
            });
            return Err(GgufError::Entry {
                key: key.to_owned(),
                problem: format!("{found}; expected `{wanted}`"),
            });
        }
    }
    if gguf.metadata().get(INVOCATION_KEY)?.is_some() {
        return Err(GgufError::Entry {
            key: INVOCATION_KEY.to_owned(),
            problem: "is there; adapters that begin at some tokens are not supported".to_owned(),
        });
    }
    let (found, class) = (gguf.architecture()?, spec.architecture.name());
    if architecture_of(class) == Some(found) {
        return Ok(());
    }
    Err(GgufError::Entry {
        key: "general.architecture".to_owned(),
        problem: format!("is `{}`; the model is a {class}", shown(found)),
    })
}

/// The alpha of the file; 0 where there is none.
fn alpha(gguf: &Gguf) -> Result<f64, GgufError> {
    let found = match gguf.metadata().get(ALPHA_KEY)? {
        None => return Ok(0.0),
        Some(Value::Float(alpha)) => Some(alpha),
        Some(Value::Integer(alpha)) => Some(alpha as f64),
        Some(Value::Flag(_) | Value::Text(_) | Value::Array(_)) => None,
    };
    found
        .filter(|alpha| (0.0..=f64::from(ADAPTER_ALPHA_MAX)).contains(alpha))
        .ok_or_else(|| GgufError::Entry {
            key: ALPHA_KEY.to_owned(),
            problem: format!("is no number from 0 to {ADAPTER_ALPHA_MAX}"),
        })
}
