//! The contract at `/openapi.json`: it tells what the routes take and answer, no more and no less.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};

use crate::answers::CHAT;
use crate::files::{FILES, form, upload};
use crate::support::client::{Request, Response};
use crate::support::contract::{self, Contract};
use crate::support::{Server, example, until};

const KEY: &str = "an admin key of the tests";

const SCRIPT: &str = r#"
default = "Hello there, wörld 👋."
lines = [
    { when = "Passages of documents", say = "A zebra [1]." },
    { when = "what grazes", say = "<tool_call>\n{\"name\": \"file_search\", \"arguments\": {\"query\": \"zebra\"}}\n</tool_call>" },
    { when = "weather", say = "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>" },
    { when = "think", say = "<think>\nLet me see.\n</think>\n\nForty-two." },
]
"#;

/// A user, beside callers without a key.
const USERS: &str = r#"
[auth]
anonymous = true
[[auth.users]]
name = "ann"
# `sesame`
password_hash = "$argon2id$v=19$m=19456,t=2,p=1$lr3PiqzgQ+W7sBq5ja1xWA$qvA2l8LHNI9HKBo+c+MOEXM8ypcfZEHycoKOco5YYYE"
"#;

/// A server with a model that says what it is told, and one that makes vectors.
fn server() -> Server {
    let demo = example::root().join("examples/demo-model/model");
    let demo = demo.to_str().expect("a path in UTF-8");
    let embeds = format!("[[models]]\nname = \"embeds\"\npath = '{demo}'\npooling = \"last\"\n");
    let admin = format!("[admin]\nport = 0\nkey = \"{KEY}\"\nllm_routes = true\n");
    Server::scripted(SCRIPT, &format!("{admin}{USERS}{embeds}"))
}

fn contract_of(server: &Server) -> Contract {
    Contract::new(server.get("/openapi.json").ok())
}

fn concrete(path: &str) -> String {
    let parts = path.split('/').map(|part| match part.starts_with('{') {
        true => "absent",
        false => part,
    });
    parts.collect::<Vec<_>>().join("/")
}

#[test]
fn feature_e27_the_contract_has_the_methods_of_the_routes() {
    let server = server();
    let contract = contract_of(&server);
    let paths = contract.document["paths"].as_object().expect("paths");
    assert!(paths.len() > 40, "{}", paths.len());
    for (path, methods) in paths {
        let refused = server.send(&Request::get(&concrete(path)).method("PATCH"));
        assert_eq!(refused.status(), 405, "{path}");
        let allowed = refused
            .header("allow")
            .expect("methods")
            .to_ascii_lowercase();
        let allowed: BTreeSet<&str> = allowed.split(',').filter(|name| *name != "head").collect();
        let methods = methods.as_object().expect("methods").keys();
        let methods: BTreeSet<&str> = methods.map(String::as_str).collect();
        assert_eq!(allowed, methods, "{path}");
    }
    let ids: Vec<&str> = contract
        .operations()
        .iter()
        .filter_map(|(_, _, operation)| operation["operationId"].as_str())
        .collect();
    let different: BTreeSet<&str> = ids.iter().copied().collect();
    assert_eq!(different.len(), ids.len(), "{ids:?}");
}

/// Routes are made only by the function that takes an operation.
#[test]
fn no_route_is_made_without_its_operation() {
    for folder in [
        "host/api/src",
        "host/admin/src",
        "host/http/src",
        "host/web/src",
    ] {
        for (file, text) in sources(&example::root().join(folder)) {
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            let may = file.ends_with("http/src/contract/mod.rs");
            assert!(may || !code.contains(".route("), "{file}");
        }
    }
}

fn sources(folder: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).expect("a source file");
            found.push((path.display().to_string(), text));
        }
    }
    found
}

/// A group of fields that is read is declared beside its reader, and the other way round.
#[test]
fn fields_that_are_read_are_declared() {
    let mut files = 0;
    for (file, text) in sources(&example::root().join("host/api/src")) {
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let flat = flat.replace("reader.read_if_any", "reader.read");
        let before = |mark: &str| -> BTreeSet<String> {
            let parts: Vec<&str> = flat.split(mark).collect();
            let words = parts
                .iter()
                .rev()
                .skip(1)
                .filter_map(|part| part.rsplit(' ').next());
            words
                .map(|word| word.trim_end_matches('>').to_owned())
                .collect()
        };
        let behind = |mark: &str| -> BTreeSet<String> {
            let words = flat
                .split(mark)
                .skip(1)
                .filter_map(|part| part.split('>').next());
            words.map(str::to_owned).collect()
        };
        let read = &before(" = reader.read()?") | &behind("reader.read::<");
        let mut declared = behind(".with::<");
        if flat.contains("Refused::REASONS") {
            declared.insert("Refused".to_owned());
        }
        if file.ends_with("/fields/declared.rs") || file.ends_with("/tests.rs") {
            continue;
        }
        files += usize::from(!read.is_empty());
        assert_eq!(read, declared, "{file}");
    }
    assert!(files > 10, "{files}");
}

/// A call of an operation: its id, its path if that has parameters, its body.
struct Call {
    id: &'static str,
    path: Option<String>,
    body: Option<Value>,
}

fn call(id: &'static str) -> Call {
    Call {
        id,
        path: None,
        body: None,
    }
}

impl Call {
    fn at(mut self, path: &str) -> Self {
        self.path = Some(path.to_owned());
        self
    }

    fn with(mut self, body: Value) -> Self {
        self.body = Some(body);
        self
    }

    /// Send the call, and check that call and answer are as the contract has them.
    fn send(&self, server: &Server, contract: &Contract) -> Response {
        let (path, method, operation) = contract.operation(self.id);
        let path = self.path.clone().unwrap_or(path);
        let request = match &self.body {
            Some(body) => Request::post(&path, body),
            None => Request::get(&path),
        };
        let response = server.send(&request.method(&method.to_uppercase()));
        contract.holds(operation, &response);
        let taken = &operation["requestBody"]["content"]["application/json"]["schema"];
        if let Some(body) = self.body.as_ref().filter(|_| taken.is_object()) {
            contract.check(taken, body, self.id);
        }
        response
    }
}

/// An object with the members of two.
fn joined(mut one: Value, more: Value) -> Value {
    for (name, value) in more.as_object().expect("fields") {
        one[name] = value.clone();
    }
    one
}

fn chat(text: &str, more: Value) -> Value {
    let messages = json!([{"role": "user", "content": text}]);
    joined(json!({"model": "scripted", "messages": messages}), more)
}

fn weather() -> Value {
    json!({"name": "get_weather", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
    }})
}

fn openai_calls() -> Vec<Call> {
    let tools = json!([{"type": "function", "function": weather()}]);
    let streamed = json!({"stream": true, "stream_options": {
        "include_usage": true, "include_obfuscation": true, "continuous_usage_stats": true,
    }});
    let logged = json!({"stream": true, "logprobs": true, "top_logprobs": 2});
    let functions = json!({"functions": [weather()]});
    let text = |more| joined(json!({"model": "scripted", "prompt": "Hi"}), more);
    let vectors =
        |encoding| json!({"model": "embeds", "input": ["a", "b"], "encoding_format": encoding});
    let create = "createChatCompletion";
    vec![
        call(create).with(chat(
            "Hi",
            json!({"n": 2, "logprobs": true, "top_logprobs": 2}),
        )),
        call(create).with(chat("think", json!({}))),
        call(create).with(chat("weather", json!({"tools": tools}))),
        call(create).with(chat("weather", functions)),
        call(create).with(chat("weather", json!({"tools": tools, "stream": true}))),
        call(create).with(chat("think", streamed.clone())),
        call(create).with(chat("Hi", logged)),
        call(create).with(chat("Hi", json!({"return_token_ids": true}))),
        call(create).with(chat(
            "Hi",
            json!({"return_token_ids": true, "stream": true}),
        )),
        call("createChatCompletionUnversioned").with(chat("Hi", json!({}))),
        call("createCompletion").with(text(json!({"logprobs": 2}))),
        call("createCompletion").with(text(json!({"logprobs": 0, "stream": true}))),
        call("createCompletion").with(text(json!({"return_token_ids": true}))),
        call("createCompletion").with(text(json!({"return_token_ids": true, "stream": true}))),
        call("createCompletionUnversioned").with(text(streamed)),
        call("createEmbedding").with(vectors("float")),
        call("createEmbeddingUnversioned").with(vectors("base64")),
        call("tokenize").with(json!({"model": "embeds", "text": "Hi", "return_token_strs": true})),
        call("tokenizeVersioned").with(json!({"model": "embeds", "prompt": "Hi"})),
        call("detokenize").with(json!({"model": "embeds", "tokens": [1, 2]})),
        call("renderChat").with(chat("Hi", json!({}))),
        call("parseText").with(json!({"model": "scripted", "text": "Hi", "tools": tools})),
        call("countResponseTokens").with(json!({"model": "scripted", "input": "Hi"})),
        call("renderResponse").with(json!({"model": "scripted", "input": "Hi"})),
        call("compactResponse").with(json!({"model": "scripted", "input": "Hi"})),
        call("listModels"),
        call("listModelsUnversioned"),
        call("getModel").at("/v1/models/scripted"),
        call("getModelUnversioned").at("/models/scripted"),
        call("getProps").at("/props?model=scripted"),
        call("getSlots").at("/slots?model=scripted"),
        call("getModelHealth").at("/scripted/health"),
        call("getModelProps").at("/scripted/props"),
        call("getModelSlots").at("/scripted/slots"),
    ]
}

fn other_calls() -> Vec<Call> {
    let limited = |text, more| chat(text, joined(json!({"max_tokens": 100}), more));
    let thinking = json!({"stream": true, "thinking": {"type": "adaptive"}});
    let tool = json!({"name": "get_weather", "input_schema": weather()["parameters"]});
    let functions = json!([{"type": "function", "function": weather()}]);
    let ranked = json!({"model": "embeds", "query": "a", "documents": ["a", {"text": "b"}],
        "return_documents": true});
    let texts = json!({"model": "embeds", "query": "a", "texts": ["a"], "return_text": true});
    let scored = json!({"model": "embeds", "text_1": "a", "text_2": ["b"]});
    vec![
        call("createMessage").with(limited("think", json!({}))),
        call("createMessage").with(limited("think", thinking)),
        call("createMessage").with(limited("weather", json!({"tools": [tool], "stream": true}))),
        call("countMessageTokens").with(chat("Hi", json!({}))),
        call("ollamaGenerate").with(json!({"model": "scripted", "prompt": "think"})),
        call("ollamaGenerate").with(json!({"model": "scripted"})),
        call("ollamaChat").with(chat("think", json!({"stream": false, "logprobs": true}))),
        call("ollamaChat").with(chat("think", json!({}))),
        call("ollamaChat").with(chat("weather", json!({"tools": functions}))),
        call("ollamaEmbed").with(json!({"model": "embeds", "input": "a"})),
        call("ollamaEmbeddings").with(json!({"model": "embeds", "prompt": "a"})),
        call("ollamaTags"),
        call("ollamaPs"),
        call("ollamaVersion"),
        call("ollamaShow").with(json!({"model": "embeds"})),
        call("rerank").with(ranked.clone()),
        call("rerankV2").with(ranked.clone()),
        call("rerankUnversioned").with(ranked),
        call("rerankUnversioned").with(texts),
        call("score").with(scored.clone()),
        call("scoreUnversioned").with(scored),
        call("logIn").with(json!({"username": "ann", "password": "sesame"})),
        call("embed").with(json!({"model": "embeds", "inputs": ["a"]})),
        call("llmInference").with(json!({"model": "scripted", "prompt": "Hi"})),
        call("llmInference").with(json!({"model": "scripted", "prompt": "Hi", "stream": true})),
        call("llmEmbed").with(json!({"model": "embeds", "text": "Hi"})),
        call("llmListModels"),
        call("llmListLoras"),
        call("llmGetModel").at("/api/v1/llm/models/embeds"),
        call("llmStats"),
        call("llmWorkers"),
        call("llmCacheStats"),
        call("llmHealth"),
        call("getHealth"),
        call("getReady"),
        call("getMetrics"),
        call("getSums"),
        call("getVersion"),
        call("getContract"),
        call("getContractPage"),
        call("getContractStyle"),
        call("getPlayground"),
        call("getPlaygroundFile").at("/playground/main.js"),
    ]
}

fn id_of(response: &Response) -> String {
    response.ok()["id"].as_str().expect("an id").to_owned()
}

/// Calls about what is stored: made, read, changed, removed.
fn stored_calls(server: &Server, contract: &Contract) -> Vec<Call> {
    let chat = call("createChatCompletion").with(chat("Hi", json!({"store": true})));
    let chat = format!("{CHAT}/{}", id_of(&chat.send(server, contract)));
    let ask = |more| {
        let body = joined(json!({"model": "scripted", "input": "think"}), more);
        call("createResponse").with(body)
    };
    let background = ask(json!({"background": true})).send(server, contract);
    let response = format!("/v1/responses/{}", id_of(&background));
    let items = json!([{"role": "user", "content": "Hi"}]);
    let begin = call("createConversation").with(json!({"items": items}));
    let conversation = format!("/v1/conversations/{}", id_of(&begin.send(server, contract)));
    let add = call("addConversationItems").at(&format!("{conversation}/items"));
    let add = add.with(json!({"items": items}));
    let added = add.send(server, contract).ok();
    let item = added["data"][0]["id"].as_str().expect("an id");
    let item = format!("{conversation}/items/{item}");
    let metadata = || json!({"metadata": {"a": "b"}});
    let tool = joined(json!({"type": "function"}), weather());
    let logged = json!({"stream": true, "include": ["message.output_text.logprobs"]});
    vec![
        call("listChatCompletions"),
        call("getChatCompletion").at(&chat),
        call("updateChatCompletion").at(&chat).with(metadata()),
        call("listChatCompletionMessages").at(&format!("{chat}/messages")),
        call("deleteChatCompletion").at(&chat),
        ask(logged),
        ask(json!({"input": "weather", "tools": [tool], "stream": true})),
        ask(json!({"metrics": true, "stream": true, "store": false})),
        ask(json!({"conversation": conversation.rsplit('/').next()})),
        call("getResponse").at(&response),
        call("getResponse").at(&format!("{response}?stream=true")),
        call("listInputItems").at(&format!("{response}/input_items")),
        call("cancelResponse").at(&format!("{response}/cancel")),
        call("deleteResponse").at(&response),
        call("getConversation").at(&conversation),
        call("updateConversation")
            .at(&conversation)
            .with(metadata()),
        call("listConversationItems").at(&format!("{conversation}/items?limit=1")),
        call("getConversationItem").at(&item),
        call("deleteConversationItem").at(&item),
        call("deleteConversation").at(&conversation),
    ]
}

/// Calls about a file and a batch of it.
fn batch_calls(server: &Server, contract: &Contract) -> Vec<Call> {
    let line =
        json!({"custom_id": "a", "method": "POST", "url": CHAT, "body": chat("Hi", json!({}))});
    let body = form(
        &[("purpose", "batch")],
        Some(("in.jsonl", line.to_string().as_bytes())),
    );
    let uploaded = server.send(&upload(&body));
    contract.holds(contract.operation("createFile").2, &uploaded);
    let file = format!("{FILES}/{}", id_of(&uploaded));
    let create = call("createBatch").with(json!({
        "input_file_id": id_of(&uploaded), "endpoint": CHAT, "completion_window": "24h",
    }));
    let batch = format!("/v1/batches/{}", id_of(&create.send(server, contract)));
    // It may have ended already.
    let cancelled = server.send(&Request::post(&format!("{batch}/cancel"), &json!({})));
    contract.holds(contract.operation("cancelBatch").2, &cancelled);
    until("the batch ends", || {
        let status = server.get(&batch).ok()["status"].clone();
        status == "completed" || status == "cancelled"
    });
    vec![
        call("listBatches"),
        call("getBatch").at(&batch),
        call("listFiles"),
        call("getFile").at(&file),
        call("getFileContent").at(&format!("{file}/content")),
        call("deleteFile").at(&file),
    ]
}

/// Calls about a vector store and a file in it.
fn collection_calls(server: &Server, contract: &Contract) -> Vec<Call> {
    let body = form(
        &[("purpose", "user_data")],
        Some(("a.txt", b"A zebra grazes.".as_slice())),
    );
    let file = id_of(&server.send(&upload(&body)));
    let create = call("createVectorStore").with(json!({
        "name": "contract", "file_ids": [file], "metadata": {"a": "b"}, "embedding_model": "embeds",
        "chunking_strategy": {"type": "auto"},
    }));
    let store = format!(
        "/v1/vector_stores/{}",
        id_of(&create.send(server, contract))
    );
    until("the file is ingested", || {
        server.get(&store).ok()["status"] == "completed"
    });
    let (attached, files) = (format!("{store}/files/{file}"), format!("{store}/files"));
    let renewed = format!("{store}/reembed");
    let filter = json!({"type": "and", "filters": [{"type": "eq", "key": "a", "value": true}]});
    let ranking = json!({"ranker": "auto", "score_threshold": 0.0, "diversity": 0.5,
        "hybrid_search": {"embedding_weight": 0.5, "text_weight": 0.5}});
    let attributes = json!({"attributes": {"a": true}});
    let id = store.rsplit('/').next().expect("an id");
    let asked = json!({"model": "scripted", "input": "what grazes",
        "tools": [{"type": "file_search", "vector_store_ids": [id]}],
        "include": ["file_search_call.results"]});
    let rag = json!({"query": "zebra", "collection": "contract", "model": "scripted",
        "similarity_threshold": -1.0});
    vec![
        call("listVectorStores"),
        call("getVectorStore").at(&store),
        call("updateVectorStore").at(&store).with(json!({"metadata": {}})),
        call("listVectorStoreFiles").at(&files),
        call("getVectorStoreFile").at(&attached),
        call("updateVectorStoreFile").at(&attached).with(attributes),
        call("getVectorStoreFileContent").at(&format!("{attached}/content")),
        call("searchVectorStore").at(&format!("{store}/search")).with(
            json!({"query": ["zebra"], "filters": filter, "max_num_results": 3, "ranking_options": ranking}),
        ),
        call("createResponse").with(asked.clone()),
        call("createResponse").with(joined(asked, json!({"stream": true}))),
        call("llmRag").with(rag.clone()),
        call("llmRag").with(joined(rag, json!({"stream": true}))),
        call("createVectorStoreFile").at(&files).with(json!({"file_id": file})),
        call("deleteVectorStoreFile").at(&attached),
        call("reembedVectorStore").at(&renewed).with(json!({"embedding_model": "embeds"})),
        call("getReembedding").at(&renewed),
        call("getReembedding").at(&format!("{renewed}?stream=true")),
        call("cancelReembedding").at(&renewed),
        call("deleteVectorStore").at(&store),
    ]
}

/// Calls with the operator's key.
fn operators_calls(server: &Server, contract: &Contract) {
    let model = || json!({"model_id": "scripted"});
    let options = json!({"options": {"use_mmap": true}, "pin": false});
    for (id, body) in [
        ("llmUnloadModel", model()),
        ("llmLoadModel", joined(model(), options)),
        ("llmClearCache", json!({"cache_type": "all"})),
    ] {
        let (path, _, operation) = contract.operation(id);
        let request = Request::post(&path, &body);
        let response = server.send(&request.header("x-admin-token", KEY));
        assert_eq!(response.status(), 200, "{id}: {}", response.text());
        contract.holds(operation, &response);
        let taken = &operation["requestBody"]["content"]["application/json"]["schema"];
        contract.check(taken, &body, id);
    }
}

#[test]
fn feature_e27_answers_are_those_that_the_contract_declares() {
    let server = server();
    let contract = contract_of(&server);
    let mut called = BTreeSet::from([
        "connectResponses",
        "createConversation",
        "addConversationItems",
        "createFile",
        "createBatch",
        "cancelBatch",
        "createVectorStore",
        "llmUnloadModel",
        "llmLoadModel",
        "llmClearCache",
        "deleteModel", // This and the following, in the suite `lifecycle`.
        "ollamaPull",
        "ollamaDelete",
        "llmGetLora",
        "llmLoadLora",
        "llmUnloadLora",
        "llmIngestModel",
    ]);
    let mut calls = openai_calls();
    calls.extend(other_calls());
    calls.extend(stored_calls(&server, &contract));
    calls.extend(batch_calls(&server, &contract));
    calls.extend(collection_calls(&server, &contract));
    operators_calls(&server, &contract);
    for call in &calls {
        let response = call.send(&server, &contract);
        assert_eq!(response.status(), 200, "{}: {}", call.id, response.text());
        called.insert(call.id);
    }
    // The same routes for callers of another dialect.
    for (id, name) in [
        ("listModels", ""),
        ("getModel", "scripted"),
        ("getModel", "absent"),
    ] {
        let (path, _, operation) = contract.operation(id);
        let request = Request::get(&path.replace("{id}", name));
        let response = server.send(&request.header("anthropic-version", "2023-06-01"));
        contract.holds(operation, &response);
    }
    for (path, method, operation) in contract.operations() {
        let id = operation["operationId"].as_str().expect("an id");
        assert!(called.contains(id), "nobody calls {id}");
        // What is absent, or not JSON, is refused as it is declared.
        let request = Request::raw(&concrete(&path), b"{").method(&method.to_uppercase());
        let response = server.send(&request);
        assert!(response.status() < 500, "{id}: {}", response.text());
        contract.holds(operation, &response);
    }
}

/// A value of a type that a schema does not take; none if it takes all.
fn foreign(schema: &Value) -> Option<Value> {
    let candidates = [json!({"#": []}), json!("#"), json!([[[1.5]]]), json!(true)];
    candidates
        .into_iter()
        .find(|value| !contract::takes(schema, value))
}

#[test]
fn feature_e27_each_field_of_a_body_is_read_or_refused_by_its_name() {
    let server = server();
    let contract = contract_of(&server);
    let mut calls = openai_calls();
    calls.extend(other_calls());
    calls.push(call("createResponse").with(json!({"model": "scripted", "input": "Hi"})));
    let (mut fields, mut seen) = (0, BTreeSet::new());
    for call in calls {
        let (path, _, operation) = contract.operation(call.id);
        let Some(body) = call.body.filter(|_| seen.insert(call.id)) else {
            continue;
        };
        let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
        let name = schema["$ref"].as_str().expect("a name");
        let schema = contract.document.pointer(&name[1..]).expect("a schema");
        let refused = |name: &str, value: &Value| {
            let response = server.post(&path, &joined(body.clone(), json!({name: value})));
            let text = response.text();
            assert_eq!(response.status(), 400, "{path}, {name} = {value}: {text}");
            assert!(text.contains(name), "{path}, {name} = {value}: {text}");
            text.contains(&format!("unknown field `{name}`"))
        };
        assert!(refused("mortise_absent", &json!(1)), "{path}");
        for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
            let Some(value) = foreign(schema) else {
                continue;
            };
            assert!(!refused(name, &value), "{path} does not read {name}");
            fields += 1;
        }
    }
    assert!(fields > 200, "{fields}");
}

#[test]
fn the_page_of_the_contract_needs_nothing_from_elsewhere() {
    let server = server();
    let page = server.get("/docs");
    let policy = page.header("content-security-policy").expect("a policy");
    assert!(
        policy.starts_with("default-src 'none'; style-src 'self'"),
        "{policy}"
    );
    let text = page.text();
    for part in ["<script", "http://", "https://", "style=", "src="] {
        assert!(!text.contains(part), "{part}");
    }
    for (path, _, _) in contract_of(&server).operations() {
        assert!(text.contains(&format!("<code>{path}</code>")), "{path}");
    }
}
