//! The document of the admin side: its answers are those that it declares.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};

use crate::library::library;
use crate::support::client::Request;
use crate::support::contract::Contract;
use crate::{Managed, scripted};

/// Calls in their order: the operation, the name in its path, its body, its status.
fn calls() -> Vec<(&'static str, &'static str, Option<Value>, u16)> {
    let one = || Some(json!({"model": "one"}));
    let lora = || Some(json!({"lora_id": "a", "base_model": "one", "path": "/nowhere"}));
    let canary = json!({"target": "two", "percent": 10, "tenants": ["t"]});
    vec![
        ("getAdminContract", "", None, 200),
        ("listModels", "", None, 200),
        ("getModel", "one", None, 200),
        ("getModel", "absent", None, 404),
        ("getModelLog", "one", None, 200),
        ("getGpuMemory", "", None, 200),
        ("unloadModel", "one", None, 200),
        ("unloadModel", "absent", None, 404),
        ("loadModel", "one", Some(json!({"replicas": 1})), 200),
        ("loadModel", "one", Some(json!({"absent": 1})), 422),
        ("unloadNamedModel", "", one(), 200),
        ("loadNamedModel", "", one(), 200),
        ("loadNamedModel", "", Some(json!([])), 422),
        ("setAlias", "a", Some(json!({"target": "one"})), 201),
        (
            "setAlias",
            "a",
            Some(json!({"target": "one", "canary": canary})),
            200,
        ),
        ("setAlias", "a", Some(json!({"target": "absent"})), 400),
        ("listAliases", "", None, 200),
        ("getAlias", "a", None, 200),
        ("rollBackAlias", "a", None, 200),
        ("rollBackAlias", "absent", None, 404),
        ("deleteAlias", "a", None, 200),
        ("deleteAlias", "a", None, 404),
        ("rescanModels", "", None, 200),
        ("rescan", "", None, 200),
        ("restartModels", "", None, 200),
        ("getMetrics", "", None, 404),
        ("getSpend", "", None, 200),
        (
            "createKey",
            "",
            Some(json!({"id": "k", "terms": {"priority": 1}})),
            201,
        ),
        ("createKey", "", Some(json!({"id": "k"})), 409),
        ("listKeys", "", None, 200),
        ("getKey", "k", None, 200),
        ("getKey", "absent", None, 404),
        (
            "updateKey",
            "k",
            Some(json!({"terms": {"models": ["*"], "tokens_per_day": 9, "max_concurrent": 1}})),
            200,
        ),
        (
            "updateKey",
            "k",
            Some(json!({"terms": {"max_tokens": 0}})),
            400,
        ),
        ("getKeyQuotas", "k", None, 200),
        ("getKeyQuotas", "absent", None, 404),
        ("listQuotas", "", None, 200),
        ("rotateKey", "k", Some(json!({"overlap_seconds": 1})), 200),
        ("revokeKey", "k", None, 200),
        ("deleteKey", "k", None, 200),
        ("deleteKey", "k", None, 404),
        ("listRequests", "", None, 200),
        ("cancelRequest", "absent", None, 404),
        ("listAuditEntries", "", None, 404),
        ("getAdminPage", "", None, 200),
        ("getAdminPageFile", "main.js", None, 200),
        ("getAdminPageFile", "absent.js", None, 404),
        ("listLibrary", "", None, 200),
        ("removeModel", "absent", None, 404),
        ("pullModel", "", Some(json!({"model": "a/b"})), 202),
        ("pullModel", "", Some(json!({"model": "b"})), 400),
        ("listPulls", "", None, 200),
        ("getPull", "absent", None, 404),
        ("cancelPull", "absent", None, 404),
        ("ingestModel", "", one(), 415),
        (
            "beginUpload",
            "",
            Some(json!({"model_id": "u", "size_bytes": 8})),
            201,
        ),
        ("beginUpload", "", one(), 422),
        ("listUploads", "", None, 200),
        ("getUpload", "absent", None, 404),
        ("appendChunk", "absent", one(), 400),
        ("cancelUpload", "absent", None, 404),
        ("listLoras", "", None, 200),
        ("getLora", "absent", None, 404),
        ("loadLora", "", lora(), 409),
        ("loadLora", "", one(), 422),
        (
            "unloadLora",
            "",
            Some(json!({"lora_id": "a", "base_model": "one"})),
            404,
        ),
        ("getPlugins", "", None, 200),
        ("listPluginBindings", "", None, 200),
        ("setPluginBinding", "b", one(), 422),
        (
            "setPluginBinding",
            "b",
            Some(json!({"kind": "policy"})),
            409,
        ),
        ("deletePluginBinding", "b", None, 404),
        ("listPluginFiles", "", None, 403),
        ("putPluginFile", "a.wasm", one(), 403),
        ("checkPluginFile", "a.wasm", one(), 403),
        ("deletePluginFile", "a.wasm", None, 403),
        ("listPluginVersions", "a.wasm", None, 403),
        ("rollBackPluginFile", "a.wasm", None, 403),
        ("reloadPlugins", "", None, 200),
        ("checkSettings", "", None, 200),
        ("checkSettings", "", one(), 400),
        ("listQueues", "", None, 200),
        ("reloadSettings", "", None, 200),
        ("listCollections", "", None, 200),
        ("createCollection", "", Some(json!({"name": "c"})), 400),
        ("getCollection", "caller a", None, 404),
        ("deleteCollection", "caller a", None, 404),
        (
            "searchCollection",
            "caller a",
            Some(json!({"query": "q"})),
            404,
        ),
        ("listCollectionFiles", "caller a", None, 404),
        ("addCollectionFile", "caller a", one(), 400),
        ("removeCollectionFile", "caller a", None, 404),
        ("reembedCollection", "caller a", None, 404),
        ("keepCollectionVectors", "caller a", None, 404),
    ]
}

#[test]
fn feature_e27_answers_of_the_admin_side_are_those_that_its_contract_declares() {
    let says = "default = \"Hello.\"";
    let models = scripted("one", says, "") + &scripted("two", says, "");
    let price = "[spend]\ncurrency = \"EUR\"\n[[spend.prices]]\nmodel = \"*\"\ninput = \"1\"\noutput = \"1\"\n";
    let folder = tempfile::tempdir().expect("a folder");
    let library = library(folder.path(), "");
    let offline = [("HF_HUB_OFFLINE", Path::new("1"))];
    let managed = Managed::with(&format!("{price}{models}{library}"), &offline);
    assert_eq!(managed.chat("one").status(), 200);
    let document = Request::get("/v1/admin/openapi.json");
    assert_eq!(document.send(&managed.admin).status(), 401);
    let contract = Contract::new(managed.ask(document).ok());
    let mut called = BTreeSet::from(["streamEvents"]);
    for (id, name, body, status) in calls() {
        let (path, method, operation) = contract.operation(id);
        let path = path
            .replace(
                "{owner}/{id}",
                &format!("{}/absent", name.replace(' ', "%20")),
            )
            .replace("{name}", name)
            .replace("{id}", name)
            .replace("{file}", &name.replace(' ', "%20"));
        let request = match &body {
            Some(body) => Request::post(&path, body),
            None => Request::get(&path),
        };
        let response = managed.ask(request.method(&method.to_uppercase()));
        assert_eq!(response.status(), status, "{id}: {}", response.text());
        contract.holds(operation, &response);
        called.insert(id);
    }
    for (path, method, operation) in contract.operations() {
        let id = operation["operationId"].as_str().expect("an id");
        assert!(called.contains(id), "nobody calls {id}");
        // What needs no key says so.
        if operation["security"] == json!([]) {
            continue;
        }
        let keyless = Request::get(&path).method(&method.to_uppercase());
        let response = keyless.send(&managed.admin);
        assert_eq!(response.status(), 401, "{id}");
        contract.holds(operation, &response);
        for word in ["summary", "operationId"] {
            assert!(
                operation[word]
                    .as_str()
                    .is_some_and(|text| !text.is_empty()),
                "{id}"
            );
        }
    }
}
