//! Operations on the files of the plugin folder.

use mortise_http::contract::Operation;
use mortise_plugin_manager::Kind;
use serde_json::{Value, json};

/// Header with the signature of a component.
pub(crate) const SIGNATURE: &str = "x-plugin-signature";

const FILE: &str = "/v1/admin/plugins/files/{file}";

/// Statuses of refused changes.
const CHANGE: &[u16] = &[401, 403, 409, 422, 500, 503, 507];

/// Add a component as the body, with the header of its signature and the refusals of a change.
fn component(operation: Operation) -> Operation {
    let about = "Signature (ed25519) of the component in hexadecimal digits.";
    operation
        .header("X-Plugin-Signature", json!({"type": "string"}), about)
        .takes_bytes("PluginComponent")
        .refuses(CHANGE)
        .refuses(&[408, 413])
}

pub(crate) fn put_file() -> Operation {
    let summary =
        "Puts a component into the plugin folder and serves by it; 201 where the file is new.";
    component(Operation::put(FILE, "putPluginFile", summary))
        .answers(200, "PluginFileChange")
        .answers(201, "PluginFileChange")
}

pub(crate) fn check_file() -> Operation {
    let path = "/v1/admin/plugins/files/{file}/check";
    let summary =
        "Examines a component as if it were put into the plugin folder, and writes nothing.";
    component(Operation::post(path, "checkPluginFile", summary)).answers(200, "PluginFileCheck")
}

pub(crate) fn delete_file() -> Operation {
    let summary = "Takes a file out of the plugin folder; what it was stays as a version.";
    Operation::delete(FILE, "deletePluginFile", summary)
        .refuses(CHANGE)
        .refuses(&[400, 404])
        .answers(200, "DeletedPluginFile")
}

pub(crate) fn list_files() -> Operation {
    let path = "/v1/admin/plugins/files";
    let summary =
        "Lists the files of the plugin folder, and those that are gone and have versions.";
    Operation::get(path, "listPluginFiles", summary)
        .refuses(&[401, 403, 500])
        .answers(200, "PluginFiles")
}

pub(crate) fn list_versions() -> Operation {
    let path = "/v1/admin/plugins/files/{file}/versions";
    let summary = "Lists the earlier versions of a plugin file, the last one first.";
    Operation::get(path, "listPluginVersions", summary)
        .refuses(&[400, 401, 403, 500])
        .answers(200, "PluginVersions")
}

/// The body that names a version.
pub(crate) fn rollback() -> Value {
    json!({
        "type": "object",
        "properties": {"digest": {"type": ["string", "null"]}},
        "additionalProperties": false,
    })
}

pub(crate) fn roll_back_file() -> Operation {
    let path = "/v1/admin/plugins/files/{file}/rollback";
    let summary = "Puts an earlier version of a plugin file back: the one named, or the last one.";
    Operation::post(path, "rollBackPluginFile", summary)
        .may_take("PluginRollback", rollback())
        .refuses(CHANGE)
        .refuses(&[404])
        .answers(200, "PluginFileChange")
        .answers(201, "PluginFileChange")
}

const BINDING: &str = "/v1/admin/plugins/bindings/{name}";

/// Statuses of a binding that is not taken.
const UNBOUND: &[u16] = &[400, 401, 403, 409, 422, 500, 503];

pub(crate) fn list_bindings() -> Operation {
    let path = "/v1/admin/plugins/bindings";
    let summary =
        "Lists the bindings of plugins, those of the configuration and those of this side.";
    Operation::get(path, "listPluginBindings", summary)
        .refuses(&[401, 403, 500])
        .answers(200, "PluginBindings")
}

/// The body that binds a plugin.
fn binding() -> Value {
    let patterns = json!({"type": ["array", "null"], "items": {"type": "string"}});
    json!({
        "type": "object",
        "properties": {
            "kind": {"enum": Kind::ALL.map(Kind::as_str)},
            "file": {"type": ["string", "null"]},
            "sha256": {"type": ["string", "null"]},
            "models": patterns, "architectures": patterns, "tenants": patterns, "routes": patterns,
            "order": {"type": ["integer", "null"], "minimum": i32::MIN, "maximum": i32::MAX},
            "on_failure": {"enum": ["closed", "open", "fallback", null]},
            "settings": {"type": ["object", "null"]},
        },
        "required": ["kind"],
        "additionalProperties": false,
    })
}

pub(crate) fn set_binding() -> Operation {
    let summary = "Binds a plugin to models, callers and routes; 201 where the binding is new.";
    Operation::put(BINDING, "setPluginBinding", summary)
        .refuses(UNBOUND)
        .refuses(&[413])
        .takes("PluginBindingRequest", binding())
        .answers(200, "PluginBinding")
        .answers(201, "PluginBinding")
}

pub(crate) fn delete_binding() -> Operation {
    let summary = "Removes a binding that was made on this side.";
    Operation::delete(BINDING, "deletePluginBinding", summary)
        .refuses(UNBOUND)
        .refuses(&[404])
        .answers(200, "DeletedPluginBinding")
}
