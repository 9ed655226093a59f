//! Adapters as PEFT writes them: `adapter_config.json` and `adapter_model.safetensors`.

use std::collections::{BTreeMap, BTreeSet};

use mortise_kernels::linear::RowOrder;

use super::config::{LoraConfig, shown};
use super::{Contents, Pair, find_part, refused};
use crate::error::ModelError;
use crate::folder::ModelFolder;
use crate::shards::Shards;
use crate::spec::ModelSpec;

/// File with the tensors of an adapter.
const FILE: &str = "adapter_model.safetensors";
/// Stands before the path of every module.
const PREFIX: &str = "base_model.model.";
/// Stand before the number of a layer: in decoders with a head, without one, and in models that also see.
const LAYERS: [&str; 4] = [
    "model.layers.",
    "layers.",
    "language_model.model.layers.",
    "model.language_model.layers.",
];
/// Endings of the two matrices.
const ENDINGS: [&str; 2] = [".lora_A.weight", ".lora_B.weight"];
/// Parts of names that belong to adapters of other kinds.
const REFUSED: [(&str, &str); 5] = [
    (".lora_magnitude_vector", "DoRA"),
    (".lora_embedding_", "an adapted embedding"),
    (".lora_B.bias", "a trained bias"),
    (".modules_to_save.", "a module that was trained as a whole"),
    (".base_layer.", "weights of the base"),
];

/// Read an adapter's files and compare them with the shape of the base.
pub(super) fn read(folder: &ModelFolder, spec: &ModelSpec) -> Result<Contents, ModelError> {
    let config = LoraConfig::read(folder)?;
    let shards = Shards::open_one(folder, FILE)?.ok_or_else(|| folder.missing(FILE))?;
    // Which of the two matrices each module has.
    let mut modules: BTreeMap<String, [bool; 2]> = BTreeMap::new();
    for tensor in shards.names() {
        let (module, side) = module(&tensor).ok_or_else(|| unexpected(folder, &tensor))?;
        modules.entry(module.to_owned()).or_default()[side] = true;
    }
    let paths: Vec<&str> = modules.keys().map(String::as_str).collect();
    config.check_targets(&paths)?;
    let mut pairs = Vec::new();
    let mut seen = BTreeSet::new();
    for (module, sides) in &modules {
        let names = ENDINGS.map(|ending| format!("{PREFIX}{module}{ending}"));
        if let Some(side) = sides.iter().position(|there| !there) {
            return Err(ModelError::MissingTensor {
                tensor: names[side].clone(),
            });
        }
        let (layer, name) = of_layer(module).ok_or_else(|| unexpected(folder, &names[0]))?;
        let part = find_part(folder, spec, layer, name, module)?;
        if !seen.insert((layer, part.name)) {
            let problem = format!("adapts `{}` of layer {layer} twice", part.name);
            return Err(refused(folder, problem));
        }
        let [first, second] = names.each_ref().map(|name| shards.find_plain(name));
        let pair = Pair {
            layer,
            part,
            matrices: [first?, second?],
            names,
            scale: config.scale(module),
            order: RowOrder::Plain,
        };
        pair.check()?;
        let rank = config.rank(module);
        if pair.rank() != rank {
            return Err(ModelError::Shape {
                tensor: pair.names[0].clone(),
                expected: vec![rank, part.inputs],
                found: pair.matrices[0].place.shape.clone(),
            });
        }
        pairs.push(pair);
    }
    Ok(Contents {
        alpha: config.alpha,
        pairs,
    })
}

/// The path of the module that a tensor belongs to, and which of the two matrices it is.
fn module(tensor: &str) -> Option<(&str, usize)> {
    let path = tensor.strip_prefix(PREFIX)?;
    let ending = |side: usize| Some((path.strip_suffix(ENDINGS[side])?, side));
    ending(0).or_else(|| ending(1))
}

/// The number of the layer that a module belongs to, and its name there.
fn of_layer(module: &str) -> Option<(usize, &str)> {
    let mut prefixes = LAYERS.iter();
    let layer = prefixes.find_map(|prefix| module.strip_prefix(prefix))?;
    let (number, name) = layer.split_once('.')?;
    Some((number.parse().ok()?, name))
}

/// The error of a tensor that is no matrix of a LoRA adapter.
fn unexpected(folder: &ModelFolder, tensor: &str) -> ModelError {
    let known = REFUSED.iter().find(|(part, _)| tensor.contains(part));
    let what = known.map_or("no matrix of a layer of the model", |(_, what)| *what);
    let tensor = shown(tensor);
    refused(
        folder,
        format!("has a tensor `{tensor}`: {what}, which is not supported"),
    )
}
