//! Plugins that are dropped in, changed, broken and removed while the server runs.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::house_rules;
use crate::support::client::{Request, Response};
use crate::support::{Server, wait_for};

pub(crate) const KEY: &str = "an-admin-key-of-some-length";

/// A server with a scripted model, a plugins folder that is looked at often, and an admin side.
pub(crate) struct Live {
    pub(crate) server: Server,
    pub(crate) folder: tempfile::TempDir,
    pub(crate) admin: String,
}

impl Live {
    pub(crate) fn start(watch_ms: u64, more: &str) -> Self {
        let folder = tempfile::tempdir().expect("make a folder");
        std::fs::create_dir(folder.path().join("plugins")).expect("make a folder");
        let config = configure(folder.path(), watch_ms, more);
        let server = Server::start(&["--config", &config]);
        let line = server.wait_for_log(|line| line.contains("admin side on http://"));
        let (_, address) = line.split_once("http://").expect("an address");
        let admin = address.trim().to_owned();
        Self {
            server,
            folder,
            admin,
        }
    }

    pub(crate) fn plugin(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join("plugins").join(name)
    }

    pub(crate) fn ask_admin(&self, request: Request) -> Response {
        request
            .header("authorization", &format!("Bearer {KEY}"))
            .send(&self.admin)
    }

    pub(crate) fn status(&self) -> Value {
        let response = self.ask_admin(Request::get("/v1/admin/plugins"));
        assert_eq!(response.status(), 200, "{}", response.text());
        response.json()
    }

    fn reload(&self) -> Value {
        let response = self.ask_admin(Request::post("/v1/admin/plugins/reload", &json!({})));
        response.json()
    }

    /// Serving entry of the chat template, from the status of the plugins.
    pub(crate) fn template(&self) -> Value {
        let status = self.status();
        let serving = status["serving"].as_array().expect("places").clone();
        let of_kind = |place: &&Value| place["kind"] == "chat-template";
        serving.iter().find(of_kind).expect("a template").clone()
    }

    /// Wait until the status satisfies `wanted`.
    fn until(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        wait_for(|| {
            let status = self.status();
            match wanted(&status) {
                true => Ok(status),
                false => Err(format!("{what}: {status:#}")),
            }
        })
    }

    pub(crate) fn prompt_tokens(&self) -> u64 {
        let answer = chat(&self.server);
        answer["usage"]["prompt_tokens"].as_u64().expect("usage")
    }

    fn drop_in(&self, content: &[u8]) {
        std::fs::write(self.plugin("rules.wasm"), content).expect("write the plugin");
    }
}

/// Write `mortise.toml`; its path.
pub(crate) fn configure(folder: &Path, watch_ms: u64, more: &str) -> String {
    let path = folder.join("mortise.toml");
    let model = crate::support::model::byte_level();
    let text = format!(
        "[admin]\nport = 0\nkey = {KEY:?}\n\
         [plugins]\ndir = {:?}\nwatch_ms = {watch_ms}\n{more}\n\
         [[models]]\nname = \"scripted\"\npath = {model:?}\nbackend = \"scripted\"\n\
         [models.script]\ndefault = \"The answer.\"\n",
        folder.join("plugins")
    );
    std::fs::write(&path, text).expect("write the configuration");
    path.to_str().expect("UTF-8").to_owned()
}

fn chat(server: &Server) -> Value {
    let messages = json!([{"role": "user", "content": "Hello"}]);
    let response = server.post(
        "/v1/chat/completions",
        &json!({"model": "scripted", "messages": messages}),
    );
    assert_eq!(response.status(), 200, "{}", response.text());
    let answer = response.json();
    assert_eq!(answer["choices"][0]["message"]["content"], "The answer.");
    answer
}

/// `house-rules` with a version of our choice, which makes it another file.
pub(crate) fn version(version: &str) -> Vec<u8> {
    let mut wasm = std::fs::read(house_rules()).expect("read the plugin");
    let size = u8::try_from(1 + "version".len() + version.len()).expect("short");
    wasm.extend_from_slice(&[0, size, 7]);
    wasm.extend_from_slice(b"version");
    wasm.extend_from_slice(version.as_bytes());
    wasm
}

#[test]
fn a_file_is_taken_replaced_refused_and_removed_while_the_server_runs() {
    let live = Live::start(30, "");
    let plain = live.prompt_tokens();
    let whole = version("1.0.0");

    // Half of a file, as a slow copy leaves it, is refused and does no harm.
    live.drop_in(&whole[..whole.len() / 2]);
    let status = live.until("half a file is refused", |status| {
        status["rejected"][0]["file"].is_string()
    });
    let reason = status["rejected"][0]["reason"].as_str().expect("a reason");
    assert!(reason.contains("rules.wasm"), "{reason}");
    assert_eq!(live.prompt_tokens(), plain);

    live.drop_in(&whole);
    live.until("the file is taken", |status| status["generation"] == 2);
    assert_eq!(live.template()["version"], "1.0.0");
    let ruled = live.prompt_tokens();
    assert!(ruled > plain, "the rules are in the prompt");

    live.drop_in(&version("1.1.0"));
    live.until("the next version is taken", |status| {
        status["generation"] == 3
    });
    assert_eq!(live.template()["version"], "1.1.0");

    // A bad file leaves the good one serving and says why, also in log and metrics.
    live.drop_in(b"not wasm at all");
    let status = live.until("the bad file is refused", |status| {
        status["rejected"][0]["reason"].is_string()
    });
    assert_eq!(status["generation"], 3);
    let line = live
        .server
        .wait_for_log(|line| line.contains("refused") && line.contains("begins with"));
    assert!(line.contains("rules.wasm"), "{line}");
    assert_eq!(live.template()["version"], "1.1.0");
    assert_eq!(live.prompt_tokens(), ruled);
    let page = live.server.get("/metrics").text();
    assert!(page.contains("mortise_plugin_generation 3"), "{page}");
    let refused = page
        .lines()
        .find(|line| line.starts_with("mortise_plugin_reloads_total{outcome=\"rejected\"}"))
        .expect("a counter of refused files");
    assert!(!refused.ends_with(" 0"), "{refused}");

    std::fs::remove_file(live.plugin("rules.wasm")).expect("remove the plugin");
    live.until("the default serves again", |status| {
        status["generation"] == 4
    });
    assert_eq!(live.template()["origin"], "embedded");
    assert_eq!(live.prompt_tokens(), plain);
}

#[test]
fn bindings_are_read_again_and_settings_that_a_plugin_refuses_change_nothing() {
    let rules = |rules: &str| {
        format!(
            "[[plugins.bindings]]\nkind = \"chat-template\"\nfile = \"plugins/rules.wasm\"\nsettings = {{ rules = {rules} }}\n"
        )
    };
    let live = Live::start(0, "");
    live.drop_in(&version("1.0.0"));
    assert_eq!(live.reload()["changed"], true);
    let short = live.prompt_tokens();
    configure(
        live.folder.path(),
        0,
        &rules("\"Answer in one word, and be kind.\""),
    );
    assert_eq!(live.reload()["changed"], true);
    let long = live.prompt_tokens();
    assert!(long > short, "the settings are followed");

    configure(live.folder.path(), 0, &rules("5"));
    let response = live.ask_admin(Request::post("/v1/admin/plugins/reload", &json!({})));
    assert_eq!(response.status(), 409);
    let error = response.json()["error"]
        .as_str()
        .expect("a text")
        .to_owned();
    assert!(error.contains("settings.rules (line"), "{error}");
    assert_eq!(live.prompt_tokens(), long);
    assert_eq!(live.status()["error"], error);

    // A file that the configuration names must be there: without it nothing is taken away.
    configure(live.folder.path(), 0, &rules("\"Be brief.\""));
    std::fs::remove_file(live.plugin("rules.wasm")).expect("remove the plugin");
    let reload = live.reload();
    assert!(
        reload["rejected"][0]["reason"]
            .as_str()
            .is_some_and(|reason| reason.contains("cannot read")),
        "{reload:#}"
    );
    assert_eq!(live.template()["version"], "1.0.0");
}

#[test]
fn two_files_of_a_kind_are_told_apart_by_who_came_first() {
    let live = Live::start(0, "");
    live.drop_in(&version("1.0.0"));
    assert_eq!(live.reload()["changed"], true);
    std::fs::write(live.plugin("also.wasm"), version("2.0.0")).expect("write the plugin");
    let reload = live.reload();
    assert_eq!(reload["changed"], false, "{reload:#}");
    let reason = reload["rejected"][0]["reason"].as_str().expect("a reason");
    assert!(reason.contains("[[plugins.bindings]]"), "{reason}");
    assert_eq!(live.template()["version"], "1.0.0");
}

/// `house-rules` with these golden cases, carried as `mortise plugin pack` writes them.
pub(crate) fn carrying(cases: &Value) -> Vec<u8> {
    let mut wasm = std::fs::read(house_rules()).expect("read the plugin");
    let mut body = vec![u8::try_from("mortise:cases".len()).expect("short")];
    body.extend_from_slice(b"mortise:cases");
    body.extend_from_slice(cases.to_string().as_bytes());
    wasm.push(0);
    // The length, seven bits to a byte.
    let mut rest = body.len();
    while rest >= 0x80 {
        wasm.push(u8::try_from(rest & 0x7f).expect("seven bits") | 0x80);
        rest >>= 7;
    }
    wasm.push(u8::try_from(rest).expect("seven bits"));
    wasm.extend_from_slice(&body);
    wasm
}

/// A case of `house-rules` that passes, with settings of its own.
pub(crate) fn kept_promise() -> Value {
    let file = crate::support::example::source("house-rules").join("cases/rules-first.json");
    let text = std::fs::read_to_string(file).expect("read the case");
    serde_json::from_str(&text).expect("JSON")
}

/// A case of `house-rules` that fails.
pub(crate) fn broken_promise() -> Value {
    let messages = json!([{"role": "user", "content": "Hi"}]);
    json!({"input": {"messages": messages}, "expect": {"prompt": "HI"}})
}

fn tells_of_the_broken_promise(text: &str) {
    for part in [
        "rules.wasm",
        "`shouts`",
        ".prompt is ",
        "it should be \"HI\"",
    ] {
        assert!(text.contains(part), "{text:?} lacks {part:?}");
    }
}

#[test]
fn a_file_that_fails_a_case_that_it_carries_is_refused() {
    let live = Live::start(0, "");
    let plain = live.prompt_tokens();
    // Other settings than those of the case, which comes out as its author saw it all the same.
    configure(
        live.folder.path(),
        0,
        "[[plugins.bindings]]\nkind = \"chat-template\"\nfile = \"plugins/rules.wasm\"\nsettings = { rules = \"Be brief.\" }\n",
    );
    live.drop_in(&carrying(&json!({"rules-first": kept_promise()})));
    let reload = live.reload();
    assert_eq!(reload["changed"], true, "{reload:#}");
    let ruled = live.prompt_tokens();
    assert!(ruled > plain, "the rules are in the prompt");
    let served = live.template()["digest"].clone();

    let broken = json!({"rules-first": kept_promise(), "shouts": broken_promise()});
    let broken = carrying(&broken);
    live.drop_in(&broken);
    let reload = live.reload();
    assert_eq!(reload["changed"], false, "{reload:#}");
    tells_of_the_broken_promise(reload["rejected"][0]["reason"].as_str().expect("a reason"));
    assert_eq!(live.template()["digest"], served);
    assert_eq!(live.prompt_tokens(), ruled);
    // What only a bench was bound for is not said to serve.
    let benched = |line: &String| line.contains("plugin serves") && line.contains("mortise-demo");
    assert!(!live.server.log().iter().any(benched));

    let plugins = crate::folder("rules.wasm", &broken);
    let config = plugins.path().join("mortise.toml");
    let text = format!("[plugins]\ndir = {:?}\nstrict = true\n", plugins.path());
    std::fs::write(&config, text).expect("write the configuration");
    let message = crate::refused(&["--config", config.to_str().expect("UTF-8")]);
    tells_of_the_broken_promise(&message);
}

#[test]
fn an_author_learns_whether_a_server_would_take_the_cases() {
    let verify = |cases: &Value| {
        let folder = crate::folder("rules.wasm", &carrying(cases));
        Command::new(env!("CARGO_BIN_EXE_mortise"))
            .args(["plugin", "verify"])
            .arg(folder.path().join("rules.wasm"))
            .output()
            .expect("run mortise")
    };
    let kept = verify(&json!({"rules-first": kept_promise()}));
    let message = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(kept.status.success(), "{}", message(&kept));
    let told: Value = serde_json::from_slice(&kept.stdout).expect("JSON");
    assert_eq!(told["cases_passed"], 1);

    let broken = verify(&json!({"shouts": broken_promise()}));
    assert!(!broken.status.success());
    tells_of_the_broken_promise(&message(&broken));

    let cases = (0..65).map(|index| (index.to_string(), kept_promise()));
    let many = verify(&Value::Object(cases.collect()));
    assert!(!many.status.success());
    let message = message(&many);
    assert!(
        message.contains("65") && message.contains("may carry 64"),
        "{message}"
    );

    let torn = verify(&json!({"neither": {"input": {}}}));
    let message = String::from_utf8_lossy(&torn.stderr);
    assert!(message.contains("`neither` needs one of"), "{message}");
}

#[test]
fn j8_swaps_over_http_drop_no_request() {
    let live = Live::start(0, "");
    let over = AtomicBool::new(false);
    let answers = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut answers = 0u32;
                    while !over.load(Ordering::Relaxed) {
                        chat(&live.server);
                        answers += 1;
                    }
                    answers
                })
            })
            .collect();
        let files = [version("1.0.0"), version("2.0.0")];
        for round in 0..30 {
            live.drop_in(&files[round % 2]);
            let reload = live.reload();
            assert_eq!(reload["generation"], round + 2, "{reload:#}");
        }
        over.store(true, Ordering::Relaxed);
        let answers = callers
            .into_iter()
            .map(|caller| caller.join().expect("a sound caller"));
        answers.sum::<u32>()
    });
    assert!(answers >= 30, "only {answers} answers met the swaps");
    let line = |line: &String| line.contains("a plugin failed");
    assert!(!live.server.log().iter().any(line));
}

#[test]
fn the_admin_side_is_off_by_default_and_guarded_by_its_key() {
    let live = Live::start(0, "");
    for authorization in [None, Some("Bearer wrong"), Some(KEY), Some("Bearer ")] {
        for path in ["/v1/admin/plugins", "/v1/admin/nothing"] {
            let mut request = Request::get(path);
            if let Some(value) = authorization {
                request = request.header("authorization", value);
            }
            let response = request.send(&live.admin);
            let (status, code) = match authorization {
                Some("Bearer wrong") => (403, "forbidden"),
                _ => (401, "missing_admin_key"),
            };
            assert_eq!(response.status(), status, "{authorization:?} {path}");
            assert_eq!(response.json()["error"]["code"], code);
        }
    }
    assert_eq!(
        live.ask_admin(Request::get("/v1/admin/nothing")).status(),
        404
    );
    // Inference callers do not reach it.
    assert_eq!(live.server.get("/v1/admin/plugins").status(), 404);
    let plain = Server::scripted("default = \"The answer.\"", "");
    assert!(!plain.log().iter().any(|line| line.contains("admin side")));
}

/// A configuration file that can be changed.
fn configured(folder: &Path, text: &str) -> String {
    let path = folder.join("mortise.toml");
    std::fs::write(&path, text).expect("write the configuration");
    path.to_str().expect("UTF-8").to_owned()
}

#[test]
fn a_hangup_reads_bindings_and_keys_again_and_buckets_stay_drawn() {
    let folder = tempfile::tempdir().expect("make a folder");
    let model = crate::support::model::byte_level();
    let config = |more: &str| {
        format!(
            "{more}\n[[models]]\nname = \"scripted\"\npath = {model:?}\nbackend = \"scripted\"\n\
             [[auth.api_keys]]\nid = \"alice\"\nkey = \"alices-key\"\nrequests_per_minute = 2\n"
        )
    };
    let path = configured(folder.path(), &config(""));
    let server = Server::start(&["--config", &path]);
    let ask = |key: &str| {
        let body = json!({"model": "scripted", "messages": [{"role": "user", "content": "Hi"}]});
        let request = Request::post("/v1/chat/completions", &body);
        let request = request.header("authorization", &format!("Bearer {key}"));
        server.send(&request)
    };
    assert_eq!(ask("alices-key").status(), 200);
    assert_eq!(ask("bobs-key").status(), 401);

    let bob = "[[auth.api_keys]]\nid = \"bob\"\nkey = \"bobs-key\"\n";
    configured(folder.path(), &format!("{}{bob}", config("")));
    server.signal("HUP");
    server.wait_for_log(|line| line.contains("plugins reloaded") && line.contains("generation=2"));
    assert_eq!(ask("bobs-key").status(), 200, "the new key is known");
    assert_eq!(ask("alices-key").status(), 200);
    let third = ask("alices-key");
    assert_eq!(third.status(), 429, "what was drawn before stays drawn");

    // A configuration that makes no sense changes nothing.
    configured(folder.path(), "[[auth.api_keys]]\nid = 5\n");
    server.signal("HUP");
    server.wait_for_log(|line| line.contains("were not reloaded") && line.contains("line 2"));
    assert_eq!(ask("bobs-key").status(), 200);
}

#[test]
fn rate_limits_outlive_a_new_order_of_the_bindings() {
    let keys = "[[auth.api_keys]]\nid = \"a\"\nkey = \"one\"\nrequests_per_minute = 2\n";
    let policy = "[[plugins.bindings]]\nkind = \"policy\"\norder = -1\n";
    let live = Live::start(0, &format!("{policy}{keys}"));
    let ask = || {
        let messages = json!([{"role": "user", "content": "Hello"}]);
        let body = json!({"model": "scripted", "messages": messages});
        let request = Request::post("/v1/chat/completions", &body);
        let request = request.header("authorization", "Bearer one");
        live.server.send(&request).status()
    };
    assert_eq!([ask(), ask(), ask()], [200, 200, 429]);
    // Another binding now stands where that of the policy stood, and is asked after it.
    let other = format!(
        "[[plugins.bindings]]\nkind = \"policy\"\nfile = {:?}\n",
        crate::support::example::every_kind()
    );
    configure(live.folder.path(), 0, &format!("{other}{policy}{keys}"));
    let reloaded = live.reload();
    assert_eq!(reloaded["changed"], true, "{reloaded}");
    assert_eq!(ask(), 429, "what was drawn stays drawn");
}
