//! Operations of the admin side, in a document of its own.

use mortise_http::contract::{ApiInfo, DialectContract, Operation, document};
use serde_json::{Value, json};

const SHAPES: &str = include_str!("shapes.ts");
const COLLECTIONS: &str = include_str!("collections.ts");

const ABOUT: ApiInfo = ApiInfo {
    title: "mortise, the admin side",
    description: "Models, aliases, plugins, keys and settings of a running server. Each request needs the admin key.",
};

/// The document of these operations. Those of `page`, by their paths, take no key.
///
/// # Errors
/// When they make none.
pub(crate) fn of_operations(operations: Vec<Operation>, page: &[&str]) -> Result<Value, String> {
    let contract = DialectContract {
        tag: "Admin",
        about: "Models, aliases, plugins, keys and settings.",
        shapes: &[SHAPES, COLLECTIONS],
        problem: "AdminError",
        asks: false,
        operations,
    };
    let mut document = document(ABOUT, &[(contract, None)])?;
    document["components"]["securitySchemes"]["key"]["name"] = json!("x-admin-token");
    document["security"] = json!([{"bearer": []}, {"key": []}]);
    for path in page {
        document["paths"][path]["get"]["security"] = json!([]);
    }
    Ok(document)
}

/// Statuses of a refused change: of what is not there, of what is under way, of what cannot be read.
const CHANGE: &[u16] = &[404, 409, 413, 422, 503];

fn reading(path: &'static str, id: &'static str, summary: &'static str) -> Operation {
    Operation::get(path, id, summary).refuses(&[401, 403])
}

fn changing(path: &'static str, id: &'static str, summary: &'static str) -> Operation {
    Operation::post(path, id, summary)
        .refuses(&[401, 403])
        .refuses(CHANGE)
}

pub(crate) fn document_itself() -> Operation {
    reading(
        "/v1/admin/openapi.json",
        "getAdminContract",
        "This document.",
    )
    .answers(200, "object")
}

pub(crate) fn metrics() -> Operation {
    let summary = "Numbers as Prometheus reads them, if `metrics.listener` has them here.";
    reading("/metrics", "getMetrics", summary)
        .refuses(&[404])
        .writes("text/plain")
        .writes("application/openmetrics-text")
}

pub(crate) fn plugins() -> Operation {
    let summary = "Plugins and what they are assigned to.";
    reading("/v1/admin/plugins", "getPlugins", summary).answers(200, "Plugins")
}

pub(crate) fn reload_plugins() -> Operation {
    let summary = "Reads plugins again; 409 where nothing could be taken.";
    changing("/v1/admin/plugins/reload", "reloadPlugins", summary)
        .answers(200, "PluginReload")
        .answers(409, "PluginReload")
}

pub(crate) fn reload_settings() -> Operation {
    let summary = "Reads the settings again.";
    changing("/v1/admin/settings/reload", "reloadSettings", summary).answers(200, "SettingsReload")
}

/// The body that has settings.
pub(crate) fn candidate() -> Value {
    json!({
        "type": "object",
        "properties": {"settings": {"type": "string"}},
        "required": ["settings"],
        "additionalProperties": false,
    })
}

pub(crate) fn check_settings() -> Operation {
    let summary =
        "Tells what a reload would change, of the server's files or of settings in the body.";
    Operation::post("/v1/admin/settings/check", "checkSettings", summary)
        .refuses(&[400, 401, 403, 413, 503])
        .may_take("SettingsCandidate", candidate())
        .answers(200, "SettingsCheck")
}

/// Add the query parameter `persist`, which keeps the change for the next start.
fn kept(operation: Operation) -> Operation {
    let about = "Keeps the change for the next start; the header `X-Persisted` says whether it was written.";
    operation.query("persist", json!({"type": "boolean"}), about)
}

const ALIAS: &str = "/v1/admin/aliases/{name}";

pub(crate) fn list_aliases() -> Operation {
    reading("/v1/admin/aliases", "listAliases", "Lists the aliases.").answers(200, "AliasRows")
}

pub(crate) fn get_alias() -> Operation {
    reading(ALIAS, "getAlias", "An alias.")
        .refuses(&[404])
        .answers(200, "AliasRow")
}

/// The body that gives an alias its meaning.
fn alias() -> Value {
    let canary = json!({
        "type": ["object", "null"],
        "properties": {
            "target": {"type": "string"},
            "percent": {"type": "number", "minimum": 0, "maximum": 100},
            "tenants": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["target"],
        "additionalProperties": false,
    });
    json!({
        "type": "object",
        "properties": {"target": {"type": "string"}, "canary": canary},
        "required": ["target"],
        "additionalProperties": false,
    })
}

pub(crate) fn set_alias() -> Operation {
    let summary = "Gives an alias a meaning; 201 where it is new.";
    kept(Operation::put(ALIAS, "setAlias", summary))
        .refuses(&[401, 403])
        .refuses(CHANGE)
        .takes("AliasRequest", alias())
        .answers(200, "AliasRow")
        .answers(201, "AliasRow")
}

pub(crate) fn delete_alias() -> Operation {
    kept(Operation::delete(ALIAS, "deleteAlias", "Removes an alias."))
        .refuses(&[401, 403, 404, 409, 503])
        .answers(200, "DeletedAlias")
}

pub(crate) fn roll_back_alias() -> Operation {
    let summary = "Gives an alias its earlier meaning back.";
    kept(changing(
        "/v1/admin/aliases/{name}/rollback",
        "rollBackAlias",
        summary,
    ))
    .answers(200, "AliasRow")
}

pub(crate) fn list_models() -> Operation {
    reading("/v1/admin/models", "listModels", "Lists the models.").answers(200, "ModelRows")
}

pub(crate) fn gpu_memory() -> Operation {
    let summary = "Memory of the machine's GPUs, and estimates of what models take.";
    reading("/v1/admin/gpu-memory", "getGpuMemory", summary).answers(200, "GpuMemory")
}

pub(crate) fn rescan() -> Operation {
    let summary = "Looks for models again in folders and caches.";
    changing("/v1/admin/models/rescan", "rescanModels", summary).answers(200, "Rescan")
}

pub(crate) fn rescan_short() -> Operation {
    let summary = "The same, for callers of other routers.";
    reading("/admin/rescan", "rescan", summary)
        .refuses(CHANGE)
        .answers(200, "Rescan")
}

pub(crate) fn restart_models() -> Operation {
    let summary = "Unloads all models, and loads those of the start.";
    changing("/admin/reload", "restartModels", summary).answers(200, "Restarted")
}

pub(crate) fn get_model() -> Operation {
    reading("/v1/admin/models/{name}", "getModel", "A model.")
        .refuses(&[404])
        .answers(200, "ModelRow")
}

/// An adapter of a load: what is left out is as configured for that of its name.
fn lora_of_load() -> Value {
    json!({
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "path": {"type": ["string", "null"]},
            "scale": {"type": ["number", "null"]},
        },
        "required": ["name"],
        "additionalProperties": false,
    })
}

/// Settings of a load. Null sets one back, and what is absent is left alone.
fn overrides() -> Value {
    let count = || json!({"type": ["integer", "null"], "minimum": 1});
    let word = || json!({"type": ["string", "null"]});
    json!({
        "type": "object",
        "properties": {
            "max_context": count(),
            "kv_type": word(),
            "quantize": word(),
            "device": word(),
            "replicas": count(),
            "draft_model": word(),
            "loras": {"type": ["array", "null"], "items": lora_of_load()},
            "pinned": {"type": ["boolean", "null"]},
        },
        "additionalProperties": false,
    })
}

pub(crate) fn load_model() -> Operation {
    let summary = "Loads a model, and answers when it serves.";
    kept(changing(
        "/v1/admin/models/{name}/load",
        "loadModel",
        summary,
    ))
    .may_take("LoadRequest", overrides())
    .answers(200, "ModelRow")
}

pub(crate) fn unload_model() -> Operation {
    let summary = "Unloads a model, and answers when its memory is free.";
    kept(changing(
        "/v1/admin/models/{name}/unload",
        "unloadModel",
        summary,
    ))
    .answers(200, "ModelRow")
}

pub(crate) fn model_log() -> Operation {
    let lines = json!({"type": "integer", "minimum": 0});
    let summary = "Last lines of the output of a model's processes.";
    reading("/v1/admin/models/{name}/log", "getModelLog", summary)
        .query("lines", lines, "Most lines to give.")
        .refuses(&[404])
        .answers(200, "ModelLog")
}

/// A model by its name, with settings for its load.
fn named() -> Value {
    json!({
        "type": "object",
        "properties": {"model": {"type": "string"}, "overrides": overrides()},
        "required": ["model"],
        "additionalProperties": false,
    })
}

pub(crate) fn load_named() -> Operation {
    let summary = "Loads the model that the body names.";
    changing("/v1/models/load", "loadNamedModel", summary)
        .takes("NamedRequest", named())
        .answers(200, "ModelRow")
}

pub(crate) fn unload_named() -> Operation {
    let summary = "Unloads the model that the body names.";
    changing("/v1/models/unload", "unloadNamedModel", summary)
        .takes("NamedRequest", named())
        .answers(200, "ModelRow")
}

pub(crate) fn list_loras() -> Operation {
    let (model, status) = (json!({"type": "string"}), json!({"type": "string"}));
    let summary = "Lists the LoRA adapters of the models.";
    reading("/v1/admin/loras", "listLoras", summary)
        .query(
            "model",
            model,
            "Public name of a model; those of the others are left out.",
        )
        .query(
            "status",
            status,
            "A state; adapters in others are left out.",
        )
        .refuses(&[404])
        .answers(200, "LoraRows")
}

pub(crate) fn get_lora() -> Operation {
    let model = json!({"type": "string"});
    let about = "Public name of its model, where several have an adapter of this name.";
    reading("/v1/admin/loras/{name}", "getLora", "A LoRA adapter.")
        .query("base_model", model, about)
        .refuses(&[404, 409])
        .answers(200, "LoraRow")
}

/// The body that loads an adapter.
fn lora() -> Value {
    json!({
        "type": "object",
        "properties": {
            "lora_id": {"type": "string"},
            "base_model": {"type": "string"},
            "path": {"type": ["string", "null"]},
            "scale": {"type": ["number", "null"]},
        },
        "required": ["lora_id", "base_model"],
        "additionalProperties": false,
    })
}

/// The body that unloads an adapter.
fn lora_name() -> Value {
    json!({
        "type": "object",
        "properties": {"lora_id": {"type": "string"}, "base_model": {"type": "string"}},
        "required": ["lora_id", "base_model"],
        "additionalProperties": false,
    })
}

pub(crate) fn load_lora() -> Operation {
    let summary = "Loads a LoRA adapter, and answers when requests can use it.";
    changing("/v1/admin/loras/load", "loadLora", summary)
        .takes("LoraLoadRequest", lora())
        .answers(200, "LoadedLora")
}

pub(crate) fn unload_lora() -> Operation {
    let summary = "Unloads a LoRA adapter, and answers when no request uses it.";
    changing("/v1/admin/loras/unload", "unloadLora", summary)
        .takes("LoraUnloadRequest", lora_name())
        .answers(200, "UnloadedLora")
}

pub(crate) fn events() -> Operation {
    let topics = json!({"type": "string", "default": "models"});
    let about = "Names with commas: models, numbers, requests, plugins, aliases, loras, keys, collections, audit.";
    reading(
        "/v1/admin/events",
        "streamEvents",
        "Events from now on, each topic after its present state.",
    )
    .query("topics", topics, about)
    .streams("AdminEvent")
}

pub(crate) fn list_queues() -> Operation {
    let summary = "Lists the queues of loaded models, by tenant.";
    reading("/v1/admin/queues", "listQueues", summary).answers(200, "Queues")
}

pub(crate) fn list_requests() -> Operation {
    let summary = "Lists the requests that models are answering, the oldest first.";
    reading("/v1/admin/requests", "listRequests", summary).answers(200, "RequestRows")
}

pub(crate) fn cancel_request() -> Operation {
    let summary = "Cancels a request: its caller gets an error, and what it held is free.";
    Operation::post("/v1/admin/requests/{id}/cancel", "cancelRequest", summary)
        .refuses(&[401, 403, 404, 503])
        .answers(200, "CancelledRequest")
}

pub(crate) fn list_audit() -> Operation {
    let summary = "The latest entries of the audit log since the start of the server.";
    reading("/v1/admin/audit", "listAuditEntries", summary)
        .refuses(&[404])
        .answers(200, "AuditEntries")
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeSet;

    use mortise_models::Alias;
    use mortise_models::lifecycle::{LoadOverrides, LoraOverride};
    use serde::de::DeserializeOwned;

    use super::*;

    /// Field names that a type knows, read from the error of its deserializer on an unknown name.
    pub(crate) fn known<T: DeserializeOwned>() -> BTreeSet<String> {
        let failed = serde_json::from_value::<T>(json!({"absent": 1}));
        let text = failed.err().expect("an unknown field").to_string();
        let names = text.split('`').skip(3).step_by(2);
        names.map(str::to_owned).collect()
    }

    #[test]
    fn bodies_have_the_fields_that_are_read() {
        for (schema, known) in [
            (alias(), known::<Alias>()),
            (overrides(), known::<LoadOverrides>()),
            (lora_of_load(), known::<LoraOverride>()),
            (named(), known::<crate::models::NamedModel>()),
            (candidate(), known::<crate::settings::Candidate>()),
            (
                crate::library_contract::order(),
                known::<mortise_library::UploadOrder>(),
            ),
            (
                crate::plugin_contract::rollback(),
                known::<crate::plugin_files::Rollback>(),
            ),
            (lora(), known::<crate::loras::LoadLora>()),
            (lora_name(), known::<crate::loras::UnloadLora>()),
        ] {
            let declared = schema["properties"].as_object().expect("fields").keys();
            assert_eq!(declared.cloned().collect::<BTreeSet<_>>(), known);
        }
    }
}
