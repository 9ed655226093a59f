//! A model as the admin API shows it.

use mortise_models::lifecycle::{KvTypeName, LoadOverrides, LoraOverride, ModelStatus, Override};
use mortise_models::{ModelConfig, ModelEngine, Quantize, RequestDefaults};
use serde_json::{Map, Value, json};

const MIB: u64 = 1 << 20;

/// One model with everything that is known of it.
pub(crate) fn row(model: &ModelStatus) -> Value {
    let (config, listing) = (&model.config, &model.listing);
    let load = model.loaded.as_ref().map(|model| model.load());
    let replicas = model.loaded.as_ref().map_or(0, |model| model.replicas());
    let milliseconds = |time: std::time::Duration| u64::try_from(time.as_millis()).ok();
    json!({
        "name": listing.name,
        "aliases": listing.aliases,
        "origin": config.origin.name(),
        "resolved_backend": backend(config),
        "configured_enabled": config.lifecycle.enabled,
        "runtime_state": model.state.name(),
        "is_loaded": model.state.name() == "loaded",
        "pinned": model.pinned,
        "hidden": listing.hidden,
        "owned_by": listing.owned_by,
        "deprecation_date": listing.deprecation_date,
        "replicas": config.lifecycle.replicas,
        "replica_max": config.lifecycle.replica_max,
        "loaded_replicas": replicas,
        "inflight_requests": model.in_flight,
        "queue_depth": load.map_or(0, |load| load.waiting),
        "runtime_inflight": load.map_or(0, |load| load.running),
        "configured_target_inflight": target(config),
        "effective_target_inflight": load.and_then(|load| match load.max_running {
            0 => target(config),
            places => Some(places),
        }),
        "usage_count": model.uses,
        "idle_seconds": model.idle.map(|idle| idle.as_secs()),
        "loaded_at_ms": model.loaded_at_ms,
        "load_time_ms": model.load_time.and_then(milliseconds),
        "last_error": model.last_error,
        "progress": model.progress,
        "vram_estimate_mib": model.memory_bytes / MIB,
        "vram_estimate_replica_count": replicas.max(1),
        "vram_estimate_source": model.memory_source.name(),
        "architecture": model.loaded.as_ref().map(|model| &model.architecture),
        "context_length": model.loaded.as_ref().and_then(|model| model.context_length()),
        "capabilities": model.loaded.as_ref().map(|model| {
            let capabilities = model.capabilities().into_iter();
            capabilities.map(|capability| capability.name()).collect::<Vec<_>>()
        }),
        "features": model.loaded.as_ref().map(|model| listing.features(&model.capabilities())),
        "definition": definition(config),
        "load_override": model.overrides.as_ref().map(overrides),
        "load_constraints": constraints(config),
        "load_recommendations": recommendations(config),
    })
}

/// Requests that the configuration has a model answer at once, if it says so for this model.
fn target(config: &ModelConfig) -> Option<usize> {
    let child = config.child.as_ref().map(|child| &child.upstream);
    match config.upstream.as_ref().or(child) {
        Some(upstream) => Some(upstream.max_requests),
        None => config.engine.max_sequences,
    }
}

/// Settings of a load that go well together, each with what it gives and costs.
fn recommendations(config: &ModelConfig) -> Value {
    if config.upstream.is_some() || config.child.is_some() || config.script.is_some() {
        return json!([]);
    }
    json!([
        {"settings": {"kv_type": "f32"}, "note": "exact: keys and values as they were computed"},
        {"settings": {"kv_type": "bf16"}, "note": "half of the memory of f32 for keys and values, with its range"},
        {"settings": {"kv_type": "q8_0"}, "note": "little more than a quarter of the memory of f32 for keys and values"},
        {
            "settings": {"quantize": "q8_0", "kv_type": "q8_0"},
            "note": "half of the memory of bf16 for weights that the files have in full precision, and less for keys and values",
        },
    ])
}

fn backend(config: &ModelConfig) -> &'static str {
    match (&config.upstream, &config.child, &config.script) {
        (Some(_), _, _) => "upstream",
        (None, Some(_), _) => "child",
        (None, None, Some(_)) => "scripted",
        (None, None, None) => "engine",
    }
}

/// The model as the configuration has it.
fn definition(config: &ModelConfig) -> Value {
    json!({
        "path": config.path.as_ref().map(|path| path.display().to_string()),
        "hf": config.hf.as_ref().map(ToString::to_string),
        "command": config.child.as_ref().map(|child| &child.command),
        "group": config.child.as_ref().and_then(|child| child.group.as_ref()),
        "quantize": config.quantize.map(Quantize::name),
        "draft_model": config.draft.as_ref().map(|draft| &draft.name),
        "engine": engine(&config.engine),
        "defaults": defaults(&config.defaults),
        "loras": config.loras.iter().map(|lora| &lora.name).collect::<Vec<_>>(),
        "load_on_demand": config.lifecycle.load_on_demand,
        "idle_timeout_seconds": config.lifecycle.idle_timeout.map(|timeout| {
            timeout.map_or(0, |timeout| timeout.as_secs())
        }),
    })
}

/// The engine's settings of this model: what is as for all is null.
fn engine(engine: &ModelEngine) -> Value {
    let kv_type = KvTypeName::ALL
        .into_iter()
        .find(|name| Some((*name).into()) == engine.kv_type);
    json!({
        "device": engine.device.map(|device| device.to_string()),
        "max_context": engine.max_context,
        "kv_type": kv_type.map(KvTypeName::name),
        "kv_cache_mib": engine.kv_cache_bytes.map(|bytes| bytes >> 20),
        "max_batch": engine.max_sequences,
        "prefix_cache": engine.prefix_cache,
    })
}

/// Values for requests to this model that say nothing: what is as for all is null.
fn defaults(defaults: &RequestDefaults) -> Value {
    json!({
        "temperature": defaults.temperature,
        "top_p": defaults.top_p,
        "top_k": defaults.top_k,
        "min_p": defaults.min_p,
        "repetition_penalty": defaults.repetition_penalty,
        "max_tokens": defaults.max_tokens,
        "template_arguments": defaults.template_arguments.members(),
    })
}

/// Settings of the load in force: what was left alone is absent, what was set back is null.
fn overrides(overrides: &LoadOverrides) -> Value {
    let LoadOverrides {
        max_context,
        kv_type,
        quantize,
        device,
        replicas,
        draft_model,
        loras,
        pinned,
    } = overrides;
    let mut shown = Map::new();
    let mut show = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            shown.insert(name.to_owned(), value);
        }
    };
    show("max_context", shown_as(*max_context, Value::from));
    show("kv_type", shown_as(*kv_type, |kind| kind.name().into()));
    show(
        "quantize",
        shown_as(*quantize, |format| format.name().into()),
    );
    show(
        "device",
        shown_as(*device, |device| device.to_string().into()),
    );
    show("replicas", shown_as(*replicas, Value::from));
    show("draft_model", shown_as(draft_model.clone(), Value::from));
    show("loras", shown_as(loras.as_deref(), loras_of));
    show("pinned", shown_as(*pinned, Value::from));
    Value::Object(shown)
}

/// Adapters of a load, each with what was said of it.
fn loras_of(loras: &[LoraOverride]) -> Value {
    let rows = loras.iter().map(|lora| {
        let path = lora.path.as_ref().map(|path| path.display().to_string());
        json!({"name": lora.name, "path": path, "scale": lora.scale})
    });
    rows.collect()
}

fn shown_as<T>(value: Override<T>, show: impl FnOnce(T) -> Value) -> Option<Value> {
    match value {
        Override::Keep => None,
        Override::Default => Some(Value::Null),
        Override::Set(value) => Some(show(value)),
    }
}

/// Constraints on the settings of a load (`load_constraints`), from which a form can be made.
fn constraints(config: &ModelConfig) -> Value {
    let pinned =
        json!({"kind": "boolean", "default": config.lifecycle.pinned, "null_means": "false"});
    if config.upstream.is_some() || config.child.is_some() {
        return json!({"pinned": pinned});
    }
    if config.script.is_some() {
        return json!({"replicas": replicas(config), "pinned": pinned});
    }
    json!({
        "max_context": {
            "kind": "integer", "minimum": 1, "step": 1, "null_means": "the server's limit",
        },
        "kv_type": {
            "kind": "choice", "allowed_values": KvTypeName::ALL.map(KvTypeName::name), "null_means": "f32",
        },
        "quantize": {
            "kind": "choice", "allowed_values": [Quantize::Q8_0.name(), Quantize::Q4K.name()],
            "default": config.quantize.map(Quantize::name), "null_means": "as the files are",
        },
        "device": {
            "kind": "text", "allowed_values": ["auto", "cpu", "cuda", "cuda:N"],
            "null_means": "auto",
        },
        "replicas": replicas(config),
        "draft_model": {"kind": "text", "null_means": "none"},
        "loras": {
            "kind": "adapters", "default": config.loras.iter().map(|lora| &lora.name).collect::<Vec<_>>(),
            "null_means": "none",
        },
        "pinned": pinned,
    })
}

fn replicas(config: &ModelConfig) -> Value {
    json!({
        "kind": "integer",
        "minimum": 1,
        "maximum": config.lifecycle.replica_max,
        "step": 1,
        "default": config.lifecycle.replicas,
        "null_means": "1",
    })
}
