mod upstreams;

use mortise_engine::{EngineConfig, KvType, Speculation};
use mortise_models::Capability;
use mortise_plugin_manager::PluginBounds;
use proptest::prelude::*;

use super::*;

fn load(text: &str) -> Result<Config, String> {
    let raw = raw::parse(text)?;
    let laid = LaidChanges::default();
    let config = Config::check(raw, &laid, Path::new("/base"), Overrides::default());
    config.map_err(|e| e.to_string())
}

fn refused(text: &str, expected: &[&str]) {
    let message = load(text).expect_err("must be refused");
    for part in expected {
        assert!(message.contains(part), "{message:?} lacks {part:?}");
    }
}

#[test]
fn the_sample_file_holds_the_defaults() {
    assert_eq!(
        raw::parse(DEFAULT_FILE).expect("the sample parses"),
        Raw::default()
    );
}

#[test]
fn what_the_sample_file_comments_out_parses_too() {
    // Lines such as `# dir = "plugins"` and `# [[models]]` are examples; prose is not.
    let uncommented: String = DEFAULT_FILE
        .lines()
        .map(|line| {
            let inner = line.strip_prefix("# ").unwrap_or(line);
            let example = inner.starts_with('[')
                || inner.split_once(" = ").is_some_and(|(key, _)| {
                    key.chars().all(|c| c.is_ascii_lowercase() || c == '_')
                });
            if example {
                format!("{inner}\n")
            } else {
                String::new()
            }
        })
        .collect();
    let raw = raw::parse(&uncommented).expect("the examples parse");
    assert_eq!(raw.models.len(), 1);
    assert_eq!(raw.plugins.bindings.len(), 1);
    assert_eq!(raw.auth.api_keys.len(), 1);
    assert_eq!((raw.auth.users.len(), raw.auth.jwt.len()), (1, 1));
}

#[test]
fn unknown_names_are_refused_with_the_nearest() {
    refused(
        "[server]\nprot = 1",
        &["line 2, column 1", "`prot`", "did you mean `port`?"],
    );
    refused("[sever]\n", &["`sever`", "`server`"]);
    refused("[log]\nformat = \"jsn\"", &["line 2", "`jsn`", "`json`"]);
    refused(
        "[[plugins.bindings]]\nkind = \"grammer\"",
        &["`grammer`", "`grammar`"],
    );
    refused("zzzzzzz = 1", &["`zzzzzzz`", "known are"]);
}

#[test]
fn wrong_values_are_named() {
    refused("[server]\nport = 70000", &["line 2"]);
    refused("[server]\nport = \"x\"", &["line 2", "invalid type"]);
    refused(
        "[server]\nhost = \"example.org\"",
        &["server.host", "example.org"],
    );
    refused("[server]\nheartbeat_ms = 0", &["server.heartbeat_ms"]);
    refused("[limits]\nn_max = 0", &["limits.n_max"]);
    refused(
        "[plugins]\nmemory_mib = 99999999999",
        &["plugins.memory_mib"],
    );
    refused(
        "[engine]\nstep_token_budget = 31",
        &["engine.step_token_budget", "31", "`limits.max_batch`", "32"],
    );
    refused("[engine]\nkv_cache_mib = 0", &["engine.kv_cache_mib"]);
    refused("[engine]\ndraft_tokens = 33", &["engine.draft_tokens"]);
    refused("[engine]\nspeculation = \"on\"", &["line 2", "`on`"]);
    refused(
        "[engine]\nspeculation = \"draft-model\"",
        &["engine.speculation", "draft_model"],
    );
    refused(
        "[[models]]\ndraft_model = \"x\"",
        &["models[0].draft_model", "draft-model"],
    );
    refused(
        "[engine.tenant_weights]\na = 0",
        &["engine.tenant_weights.a"],
    );
    refused(
        "[limits]\nmax_queued_tokens = 0",
        &["limits.max_queued_tokens"],
    );
    refused("[server\n", &["line 1"]);
    refused(
        "[[models]]\n[models.script]\n",
        &["models[0].script", "scripted"],
    );
    refused(
        "[[auth.api_keys]]\nid = \"a\"",
        &["auth.api_keys[0]", "exactly one"],
    );
    refused(
        "[[auth.api_keys]]\nid = \"a\"\nkey_env = \"MORTISE_NO_SUCH_VARIABLE\"",
        &["MORTISE_NO_SUCH_VARIABLE"],
    );
}

#[test]
fn keys_become_secrets_and_settings_name_them() {
    let config = load("[[auth.api_keys]]\nid = \"a\"\nkey = \"s3cret\"\ntenant = \"t\"").unwrap();
    assert_eq!(
        config.auth.secrets,
        [mortise_plugin::Secret::new("a", "s3cret")]
    );
    let settings = config.auth.settings.to_string();
    assert!(settings.contains("\"secret\":\"a\"") && settings.contains("\"tenant\":\"t\""));
    assert!(
        !settings.contains("s3cret"),
        "the key itself must stay with the host"
    );
    assert!(!format!("{config:?}").contains("s3cret"));
}

#[test]
fn the_engine_gets_what_the_file_says() {
    let config = load(
        "[limits]\nmax_batch = 7\nmax_queue = 8\nmax_queued_tokens = 9\n\
         max_queue_per_tenant = 2\nmax_batch_per_tenant = 4\nidle_tenant_seconds = 5\nbreaker_failures = 3\n\
         [health]\nengine_stall_seconds = 60\n[engine]\ndevice = \"cuda:2\"\nthreads = 3\nwarm_up = false\nstep_token_budget = 99\nprefill_chunk_ms = 70\nkv_cache_mib = 2\nkv_type = \"q8_0\"\nprefix_cache = false\n\
         share_prefixes_between_tenants = true\nspeculation = \"prompt-lookup\"\ndraft_tokens = 5\n\
         tenant_weights = { research = 4 }",
    )
    .unwrap();
    let expected = EngineConfig {
        max_sequences: 7,
        max_queue: 8,
        max_queued_tokens: 9,
        max_queue_per_tenant: 2,
        max_sequences_per_tenant: 4,
        idle_tenant: Some(Duration::from_secs(5)),
        breaker_failures: 3,
        stall: Some(Duration::from_secs(60)),
        step_token_budget: 99,
        prefill_chunk: Some(Duration::from_millis(70)),
        kv_cache_bytes: 2 << 20,
        kv_type: KvType::Q8_0,
        prefix_cache: false,
        speculation: Speculation::PromptLookup { draft_tokens: 5 },
        threads: 3,
        ..EngineConfig::default()
    };
    assert_eq!(config.engine.engine, expected);
    assert_eq!(config.engine.device, DeviceChoice::Cuda(2));
    assert!(config.engine.share_prefixes);
    assert_eq!(config.engine.tenant_weights["research"], 4);
    // The table's defaults are the engine's own, but for the size of the batch, the warm-up, the breaker and idle
    // tenants.
    let config = load("").unwrap();
    let expected = EngineConfig {
        max_sequences: 32,
        warm_up: true,
        idle_tenant: Some(Duration::from_secs(600)),
        breaker_failures: 5,
        stall: Some(Duration::from_secs(120)),
        ..EngineConfig::default()
    };
    assert_eq!(config.engine.engine, expected);
}

#[test]
fn plugins_ask_where_the_file_says() {
    let binding = |kind: &str, http: &str| {
        let text = format!("[[plugins.bindings]]\nkind = \"{kind}\"\nhttp = {{ {http} }}\n");
        load(&text).map(|config| config.plugins.bindings[0].http.clone())
    };
    let listed = "origins = [\"https://API.example/\"], networks = [\"10.0.0.0/8\"]";
    let grant = binding("tool", listed).expect("a good binding");
    assert_eq!(grant.origins[0].to_string(), "https://api.example");
    assert_eq!(grant.networks[0].to_string(), "10.0.0.0/8");
    assert_eq!(grant.timeout, Duration::from_secs(5));
    for (kind, http, expected) in [
        (
            "grammar",
            "origins = []",
            "only a policy, a tool, a guardrail or a retriever",
        ),
        ("tool", "origins = [\"api.example\"]", "http.origins[0]"),
        ("policy", "origins = [\"https://a.b/path\"]", "has a path"),
        (
            "tool",
            "origins = [], networks = [\"10/8\"]",
            "http.networks[0]",
        ),
        ("tool", "origins = [], timeout_ms = 0", "http.timeout_ms"),
        ("tool", "networks = []", "origins"),
    ] {
        let message = binding(kind, http).expect_err(http);
        assert!(message.contains(expected), "{message:?} lacks {expected:?}");
    }
}

#[test]
fn authorities_of_other_servers_are_read_from_their_file() {
    // Good until 2126; nobody has its key.
    const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\n\
        MIIBUzCCAQWgAwIBAgIUSY50JNzs8c0DMllGinMImVIQf+AwBQYDK2VwMB4xHDAa\n\
        BgNVBAMME2F1dGhvcml0eSBvZiBhIHRlc3QwIBcNMjYxMTIyMDIyMjM4WhgPMjEy\n\
        NjEwMjkwMjIyMzhaMB4xHDAaBgNVBAMME2F1dGhvcml0eSBvZiBhIHRlc3QwKjAF\n\
        BgMrZXADIQCtuLE3pW0r+iOuLx8vWaHRmKPNxcRNq7S0620FHktyv6NTMFEwHQYD\n\
        VR0OBBYEFLIZU+Fo2F1j6vcdXs/im5mGs3KwMB8GA1UdIwQYMBaAFLIZU+Fo2F1j\n\
        6vcdXs/im5mGs3KwMA8GA1UdEwEB/wQFMAMBAf8wBQYDK2VwA0EAtTaojTLceldv\n\
        Ath32LnJCtA2bffgxiiBZX4Bj++RFl6RfYgHU2HWMxhW40SDxg9yhrjT7SNNICTW\n\
        LBCVfU91CQ==\n\
        -----END CERTIFICATE-----";
    let folder = tempfile::tempdir().unwrap();
    let load = |file: &str| {
        let text = format!(
            "[[plugins.bindings]]\nkind = \"policy\"\n\
             http = {{ origins = [\"https://login.example\"], ca_file = \"{file}\" }}\n"
        );
        let raw = raw::parse(&text).unwrap();
        let laid = LaidChanges::default();
        let config = Config::check(raw, &laid, folder.path(), Overrides::default());
        config.map_err(|error| error.to_string())
    };
    let write = |file: &str, text: &str| std::fs::write(folder.path().join(file), text).unwrap();
    write("ours.pem", CERTIFICATE);
    let config = load("ours.pem").expect("a certificate");
    let http = &config.plugins.bindings[0].http;
    assert_eq!(http.authorities, Some(CERTIFICATE.parse().unwrap()));
    write("empty.pem", "");
    for (file, expected) in [
        ("none.pem", "No such file"),
        ("empty.pem", "no certificate"),
    ] {
        let message = load(file).expect_err(file);
        for part in ["plugins.bindings[0].http.ca_file", file, expected] {
            assert!(message.contains(part), "{message:?} lacks {part:?}");
        }
    }
}

#[test]
fn the_command_line_wins() {
    let overrides = Overrides {
        port: Some(1),
        served_model_name: vec!["a".to_owned(), "b".to_owned()],
        max_context: Some(77),
        ..Overrides::default()
    };
    let raw = raw::parse("[server]\nport = 2\n[limits]\nmax_context = 5").unwrap();
    let config =
        Config::check(raw, &LaidChanges::default(), Path::new("/base"), overrides).unwrap();
    assert_eq!((config.port, config.limits.max_context), (1, 77));
    assert_eq!(config.models[0].name, "a");
    assert_eq!(config.models[0].aliases, ["b"]);
    assert_eq!(config.models[0].path, None);
}

#[test]
fn paths_are_relative_to_the_file() {
    let config = load("[[models]]\npath = \"m/x\"\n[plugins]\ndir = \"p\"").unwrap();
    assert_eq!(
        config.models[0].path.as_deref(),
        Some(Path::new("/base/m/x"))
    );
    assert_eq!(config.models[0].name, "x");
    assert_eq!(config.plugins.dir.as_deref(), Some(Path::new("/base/p")));
}

#[test]
fn names_of_bindings_are_told_apart() {
    let two = "[[plugins.bindings]]\nkind = \"policy\"\nname = \"desk\"\n".repeat(2);
    refused(&two, &["plugins.bindings[1].name", "plugins.bindings[0]"]);
    let config = load(
        "[plugins]\nbudget_ms = 5000\n\
         [[plugins.bindings]]\nkind = \"policy\"\nname = \"desk\"\nbudget_ms = 70",
    )
    .unwrap();
    let budget = |bounds: &PluginBounds| bounds.budget.map(|budget| budget.as_millis());
    assert_eq!(budget(&config.plugins.bounds), Some(5000));
    let binding = &config.plugins.bindings[0];
    assert_eq!(binding.name.as_deref(), Some("desk"));
    assert_eq!(budget(&binding.bounds), Some(70));
}

#[test]
fn bindings_choose_models_by_architecture() {
    let binding = |kind: &str, list: &str| {
        load(&format!(
            "[[plugins.bindings]]\nkind = \"{kind}\"\narchitectures = {list}\n"
        ))
    };
    let chosen = binding("grammar", "[\"qwen3\", \"llama*\"]").expect("a good binding");
    let chosen = &chosen.plugins.bindings[0];
    assert_eq!(chosen.architectures, ["qwen3", "llama*"]);
    assert!(chosen.is_by_architecture());
    let all = load("[[plugins.bindings]]\nkind = \"grammar\"").expect("a good binding");
    assert!(!all.plugins.bindings[0].is_by_architecture());
    for (kind, list, expected) in [
        ("policy", "[\"qwen3\"]", "choose them by `models`"),
        ("tool", "[\"qwen3\"]", "choose them by `models`"),
        ("chat-template", "[]", "leave it out"),
        ("chat-template", "[\"qwen3\", \"\"]", "architectures[1]"),
        ("output-parser", "[\"Qwen3ForCausalLM\"]", "`model_type`"),
    ] {
        let message = binding(kind, list).expect_err(list);
        for part in ["architectures", expected] {
            assert!(message.contains(part), "{message:?} lacks {part:?}");
        }
    }
    let message = binding("output-parser", "\"qwen3\"").expect_err("a text is no list");
    assert!(message.contains("line 3, column 17"), "{message}");
}

/// Changes of a file: bytes at a place give way to others.
fn changes() -> impl Strategy<Value = Vec<(prop::sample::Index, usize, String)>> {
    let pieces = prop::sample::select(vec![
        "[",
        "]",
        "[[plugins.bindings]]",
        "{",
        "}",
        "=",
        "\"",
        "\n",
        "-1",
        "1e400",
        "nan",
        "18446744073709551616",
        "true",
        "kind = \"policy\"\n",
        "[a.b.c]\n",
        ".",
        "\\u0000",
        "'''",
        "# ",
        "\u{feff}",
        "1979-05-27",
    ]);
    let piece = prop_oneof![pieces.prop_map(str::to_owned), any::<String>()];
    prop::collection::vec((any::<prop::sample::Index>(), 0usize..40, piece), 1..8)
}

proptest! {
    #[test]
    fn a_damaged_file_is_read_or_refused(changes in changes(), uncommented in any::<bool>()) {
        let mut text = match uncommented {
            true => DEFAULT_FILE.replace("\n# ", "\n"),
            false => DEFAULT_FILE.to_owned(),
        };
        for (place, length, piece) in changes {
            let start = text.floor_char_boundary(place.index(text.len() + 1));
            let end = text.ceil_char_boundary((start + length).min(text.len()));
            text.replace_range(start..end, &piece);
        }
        if let Err(message) = load(&text) {
            prop_assert!(!message.is_empty());
        }
    }
}

#[test]
fn models_of_child_processes_are_checked_and_start_when_they_are_needed() {
    let child = |keys: &str| format!("[[models]]\nname = \"m\"\n[models.child]\n{keys}\n");
    refused(&child(""), &["models[0].child.command", "it has 0"]);
    let command = "command = [\"run\"]\n";
    for (keys, key) in [
        ("base_port = 80", "models[0].child.base_port"),
        ("health_path = \"ready\"", "models[0].child.health_path"),
        ("base_path = \"//x\"", "models[0].child.base_path"),
        ("ready_timeout_ms = 0", "models[0].child.ready_timeout_ms"),
        ("restart = 1001", "models[0].child.restart"),
        ("group = \" \"", "models[0].child.group"),
        ("env = { \"a=b\" = \"c\" }", "models[0].child.env"),
        ("render = \"here\"", "models[0].path"),
    ] {
        refused(&child(&format!("{command}{keys}")), &[key]);
    }
    refused(
        "[[models]]\nname = \"m\"\nquantize = \"q8_0\"\n[models.child]\ncommand = [\"run\"]\n",
        &["models[0].quantize", "leave it out"],
    );
    let config = load(&child(command)).expect("a configuration");
    let lifecycle = &config.models[0].lifecycle;
    assert!(!lifecycle.enabled);
    assert_eq!(lifecycle.load_on_demand, Some(true));
    let start = |name: &str| {
        format!(
            "[lifecycle]\nstartup_model = \"{name}\"\n{}",
            child(command)
        )
    };
    let config = load(&start("m")).expect("a configuration");
    assert!(config.models[0].lifecycle.enabled);
    refused(&start("n"), &["lifecycle.startup_model", "`n`"]);
}

#[test]
fn feature_a1_adapters_of_a_model_are_checked() {
    let loras = |loras: &str| format!("[[models]]\nname = \"m\"\nloras = [{loras}]\n");
    let config = load(&loras(
        "{ name = \"a\", path = \"x/a\" }, { name = \"b\", path = \"/b\", scale = 0.5 }",
    ));
    let found = &config.expect("a configuration").models[0].loras;
    let scales: Vec<(&str, f32)> = found.iter().map(|a| (&*a.name, a.scale)).collect();
    assert_eq!(scales, [("a", 1.0), ("b", 0.5)]);
    assert!(found[0].path.ends_with("x/a"));
    let one = "{ name = \"a\", path = \"a\" }";
    let many: Vec<String> = (0..65)
        .map(|n| format!("{{ name = \"a{n}\", path = \"a\" }}"))
        .collect();
    for (given, key) in [
        (format!("{one}, {one}"), "models[0].loras[1].name"),
        (
            one.replace("\"a\", path", "\"a:b\", path"),
            "models[0].loras[0].name",
        ),
        (
            one.replace("\"a\", path", "\"\", path"),
            "models[0].loras[0].name",
        ),
        ("{ name = \"a\" }".to_owned(), "path"),
        (one.replace(" }", ", rank = 8 }"), "rank"),
        (many.join(", "), "models[0].loras"),
    ] {
        refused(&loras(&given), &[key]);
    }
    let scripted = loras(one) + "backend = \"scripted\"\n";
    refused(&scripted, &["models[0].loras", "no weights"]);
    let elsewhere = loras(one) + "[models.upstream]\nurls = [\"http://h/v1\"]\n";
    refused(&elsewhere, &["models[0].loras", "leave it out"]);
}

#[test]
fn feature_m2_aliases_of_the_file_stand_for_its_models() {
    let alias = |name: &str, target: &str| {
        format!("[[aliases]]\nname = {name:?}\ntarget = {target:?}\n[[models]]\nname = \"m\"\n")
    };
    let config = load(&alias("prod", "m")).expect("a configuration");
    assert_eq!(config.aliases[0].1.alias.target, "m");
    refused(&alias("prod", "n"), &["aliases[0]", "`n`"]);
    refused(&alias("m", "m"), &["aliases[0]", "name of a model"]);
    // Where models are found while the server runs, its model may still come; a configured name is taken all the same.
    let found = |name: &str, target: &str| {
        alias(name, target) + "path = \"p\"\n[discovery]\nfolders = [\"f\"]\n"
    };
    let config = load(&found("prod", "n")).expect("a configuration");
    assert_eq!(config.aliases[0].1.alias.target, "n");
    refused(&found("m", "n"), &["the alias `m`", "name of a model"]);
    refused(&found("prod", "prod"), &["the alias `prod`", "`target`"]);
}

#[test]
fn a_model_that_is_the_demo_model_by_omission_is_told_of() {
    let warnings = |text: &str| load(text).expect("a configuration").warnings;
    let named = "[[models]]\nname = \"big\"\n";
    let other = "[[models]]\npath = \"p\"\n";
    assert!(warnings(named)[0].contains("`models[0]` (`big`)"));
    assert!(warnings(&format!("{other}[[models]]\n"))[0].contains("`models[1]`"));
    for meant in [
        "",
        "[[models]]\n",
        "[[models]]\nname = \"mortise-demo\"\n",
        other,
    ] {
        assert_eq!(warnings(meant), Vec::<String>::new(), "{meant}");
    }
}

#[test]
fn feature_m3_a_day_may_be_a_text_or_a_date() {
    let model = |day: &str| format!("[[models]]\ndeprecation_date = {day}\n");
    for day in ["\"2027-01-31\"", "2027-01-31"] {
        let config = load(&model(day)).expect(day);
        let read = config.models[0].lifecycle.deprecation_date.as_deref();
        assert_eq!(read, Some("2027-01-31"));
    }
    refused(
        &model("2027-01-31T10:00:00Z"),
        &["models[0].deprecation_date"],
    );
    refused(&model("\"2027-13-31\""), &["models[0].deprecation_date"]);
    refused(&model("2027"), &["line 2", "a day"]);
}

#[test]
fn feature_c6_c8_settings_of_one_model_are_checked_and_refused_where_nothing_computes() {
    let config = load(
        "[defaults]\ntop_k = 1\n[[models]]\n[models.engine]\ndevice = \"cpu\"\nmax_batch = 4\nkv_type = \"bf16\"\n\
         [models.defaults]\ntemperature = 0.5\ntemplate_arguments = { enable_thinking = false }",
    )
    .expect("right settings");
    let model = &config.models[0];
    assert_eq!(model.engine.max_sequences, Some(4));
    assert_eq!(model.defaults.temperature, Some(0.5));
    assert_eq!(config.engine.defaults.top_k, Some(1));
    for (text, key) in [
        (
            "[[models]]\n[models.engine]\nmax_context = 0",
            "models[0].engine.max_context",
        ),
        (
            "[[models]]\n[models.engine]\nkv_cache_mib = 0",
            "models[0].engine.kv_cache_mib",
        ),
        (
            "[[models]]\n[models.engine]\nmax_batch = 5000",
            "models[0].engine.max_batch",
        ),
        (
            "[[models]]\n[models.defaults]\ntemperature = 2.5",
            "models[0].defaults.temperature",
        ),
        (
            "[[models]]\n[models.defaults]\nmax_tokens = 0",
            "models[0].defaults.max_tokens",
        ),
        ("[defaults]\ntop_p = 0", "defaults.top_p"),
        ("[defaults]\nmin_p = nan", "defaults.min_p"),
        (
            "[defaults]\ntemplate_arguments = { messages = 1 }",
            "defaults.template_arguments.messages",
        ),
        (
            "[[models]]\nbackend = \"scripted\"\n[models.engine]\nmax_batch = 1",
            "models[0].engine",
        ),
        (
            "[[models]]\nname = \"m\"\n[models.engine]\nmax_batch = 1\n[models.upstream]\nurls = [\"http://a/v1\"]",
            "models[0].engine",
        ),
        (
            "[[models]]\nname = \"m\"\n[models.defaults]\ntop_k = 1\n[models.upstream]\nurls = [\"http://a/v1\"]",
            "models[0].defaults",
        ),
        (
            "[[models]]\nname = \"m\"\n[models.engine]\nmax_batch = 1\n[models.child]\ncommand = [\"x\"]",
            "models[0].engine",
        ),
    ] {
        refused(text, &[&format!("`{key}`")]);
    }
}
