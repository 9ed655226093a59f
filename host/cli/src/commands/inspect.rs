//! Describes a plugin, a weights file or a model folder, without running anything of it.

use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, bail};
use mortise_model::{ModelFolder, ModelSpec, gguf};
use mortise_plugin::{ComponentSource, HostConfig, PluginHost};
use serde_json::{Map, Value, json};

/// Longest header of a safetensors file; the format's own reader has the same limit.
const MAX_HEADER_BYTES: u64 = 100_000_000;

/// Description of the file or folder at `path`.
pub(crate) fn inspect(path: &Path) -> anyhow::Result<Value> {
    if path.is_dir() {
        return model(path);
    }
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("wasm") => plugin(path),
        Some("safetensors") => {
            let mut description = tensors(path)?;
            description.insert("type".to_owned(), json!("safetensors"));
            Ok(Value::Object(description))
        }
        Some(extension) if extension.eq_ignore_ascii_case("gguf") => gguf(path),
        _ => bail!(
            "`{}` is neither a .wasm file, nor .safetensors, nor .gguf, nor a folder",
            path.display()
        ),
    }
}

/// A plugin file.
pub(crate) fn plugin(path: &Path) -> anyhow::Result<Value> {
    let host = PluginHost::new(HostConfig::default())?;
    let component = host.load(ComponentSource::File(path.to_owned()))?;
    let kinds: Vec<&str> = component.kinds().iter().map(|kind| kind.as_str()).collect();
    Ok(json!({
        "type": "plugin",
        "name": component.name(),
        "kinds": kinds,
        "version": component.version(),
        "built_against": component.built_against(),
        "digest": component.digest(),
        "bytes": component.bytes(),
        "exports": component.exports(),
        "imports": component.imports(),
        "prepared_anew": component.prepared_anew(),
        "settings_schema": component.settings_schema().map(section),
        "serves": component.serves().map(section),
    }))
}

/// A custom section as JSON, or as text if it is none, so that its author sees the mistake.
fn section(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::from(text))
}

fn model(path: &Path) -> anyhow::Result<Value> {
    let folder = ModelFolder::open(path)?;
    let spec = ModelSpec::read(&folder)?;
    let mut description = Map::new();
    for (name, value) in [
        ("type", json!("model")),
        ("architecture", json!(spec.architecture.name())),
        ("vocabulary", json!(spec.vocabulary)),
        ("hidden", json!(spec.hidden)),
        ("intermediate", json!(spec.feed_forward.intermediate)),
        ("layers", json!(spec.layers)),
        ("heads", json!(spec.heads)),
        ("kv_heads", json!(spec.kv_heads)),
        ("head_dim", json!(spec.head_dim)),
        ("context", json!(spec.context)),
        ("tied_embeddings", json!(spec.tied_embeddings)),
    ] {
        description.insert(name.to_owned(), value);
    }
    let (mut parameters, mut all) = (0_u64, Vec::new());
    for file in weight_files(path)? {
        let mut part = tensors(&file)?;
        parameters += part.get("parameters").and_then(Value::as_u64).unwrap_or(0);
        if let Some(Value::Array(list)) = part.remove("tensors") {
            all.extend(list);
        }
    }
    description.insert("parameters".to_owned(), json!(parameters));
    description.insert("tensors".to_owned(), Value::Array(all));
    Ok(Value::Object(description))
}

/// Elements of an array that are shown.
const SHOWN_ELEMENTS: usize = 8;

/// The header of a GGUF file, long arrays shortened.
fn gguf(path: &Path) -> anyhow::Result<Value> {
    let folder = ModelFolder::open(path)?;
    let Some(gguf) = folder.gguf() else {
        bail!("`{}` is no GGUF file", path.display());
    };
    let metadata = gguf.metadata();
    let mut entries = Map::new();
    for key in metadata.keys() {
        // Text that is none is shown as what it is not.
        let shown = match metadata.get(key) {
            Ok(Some(value)) => shown(value),
            Ok(None) => Value::Null,
            Err(error) => json!({"error": error.to_string()}),
        };
        entries.insert(key.to_owned(), shown);
    }
    let (mut parameters, mut tensors) = (0_u64, Vec::new());
    for tensor in gguf.tensors() {
        parameters += tensor
            .shape
            .iter()
            .map(|side| *side as u64)
            .product::<u64>();
        tensors.push(json!({
            "name": tensor.name,
            "type": tensor.kind.name,
            "shape": tensor.shape,
            "bytes": tensor.bytes(),
        }));
    }
    Ok(json!({
        "type": "gguf",
        "version": gguf.version(),
        "metadata": entries,
        "parameters": parameters,
        "tensors": tensors,
    }))
}

fn shown(value: gguf::Value<'_>) -> Value {
    match value {
        gguf::Value::Integer(number) => match u64::try_from(number) {
            Ok(number) => json!(number),
            Err(_) => json!(i64::try_from(number).ok()),
        },
        gguf::Value::Float(number) => json!(number),
        gguf::Value::Flag(flag) => json!(flag),
        gguf::Value::Text(text) => json!(text),
        gguf::Value::Array(array) => {
            let first: Vec<Value> = array
                .values()
                .take(SHOWN_ELEMENTS)
                .map(|value| value.map_or(Value::Null, shown))
                .collect();
            json!({"length": array.len(), "first": first})
        }
    }
}

fn weight_files(folder: &Path) -> anyhow::Result<Vec<std::path::PathBuf>> {
    let mut files = Vec::new();
    let unreadable = || format!("cannot read `{}`", folder.display());
    for entry in std::fs::read_dir(folder).with_context(unreadable)? {
        let path = entry.with_context(unreadable)?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "safetensors")
        {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// The header of a safetensors file: names, types and shapes.
fn tensors(path: &Path) -> anyhow::Result<Map<String, Value>> {
    let name = path.display();
    let mut file = mortise_files::open(path).with_context(|| format!("cannot open `{name}`"))?;
    let mut length = [0; 8];
    file.read_exact(&mut length)
        .with_context(|| format!("`{name}` is too short"))?;
    let length = u64::from_le_bytes(length);
    if length > MAX_HEADER_BYTES {
        bail!("`{name}` announces a header of {length} bytes; the limit is {MAX_HEADER_BYTES}");
    }
    let mut header = Vec::new();
    file.take(length)
        .read_to_end(&mut header)
        .with_context(|| format!("cannot read `{name}`"))?;
    if (header.len() as u64) < length {
        bail!(
            "`{name}` is truncated: its header has {} of {length} bytes",
            header.len()
        );
    }
    let header: Map<String, Value> = serde_json::from_slice(&header)
        .with_context(|| format!("the header of `{name}` is not a JSON object"))?;
    let (mut parameters, mut list) = (0_u64, Vec::new());
    for (tensor, entry) in header
        .iter()
        .filter(|(tensor, _)| *tensor != "__metadata__")
    {
        let shape = entry
            .get("shape")
            .and_then(Value::as_array)
            .map(Vec::as_slice);
        let count = shape
            .unwrap_or_default()
            .iter()
            .try_fold(1_u64, |product, side| product.checked_mul(side.as_u64()?));
        let Some(count) = count else {
            bail!("the tensor `{tensor}` of `{name}` has a shape that makes no sense");
        };
        parameters = parameters.saturating_add(count);
        list.push(json!({
            "name": tensor,
            "type": entry.get("dtype"),
            "shape": entry.get("shape"),
        }));
    }
    let mut description = Map::new();
    description.insert("parameters".to_owned(), json!(parameters));
    description.insert("tensors".to_owned(), Value::Array(list));
    Ok(description)
}
