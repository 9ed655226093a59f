//! Operations: the page of metrics, the alerts and the dashboard that ask it, the runbook, the access log.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::answers::{CHAT, chat};
use crate::support::client::Request;
use crate::support::{Server, have, until};
use crate::tls::{page_over_tls, secured};

fn repository(path: &str) -> String {
    let root: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let file = root.join(path);
    std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// Families of pages, each with the names of its labels.
fn families(pages: &[String]) -> BTreeMap<String, BTreeSet<String>> {
    let mut families: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in pages.iter().flat_map(|page| page.lines()) {
        if line.starts_with('#') {
            continue;
        }
        let (series, _) = line.rsplit_once(' ').expect("a value");
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let known = families.entry(name.to_owned()).or_default();
        let labels = labels.trim_end_matches('}').split("\",");
        let names = labels.filter_map(|label| Some(label.split_once('=')?.0.to_owned()));
        known.extend(names);
    }
    families
}

/// Series that an expression asks for, each with the labels that it asks them by.
fn asked(expression: &str) -> Vec<(String, BTreeSet<String>)> {
    let mut found: Vec<(String, BTreeSet<String>)> = Vec::new();
    let mut rest = expression;
    while let Some(at) = rest.find("mortise_") {
        let name: String = rest[at..]
            .chars()
            .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
            .collect();
        rest = &rest[at + name.len()..];
        let matchers: &str = match rest.strip_prefix('{') {
            Some(matchers) => matchers.split('}').next().unwrap_or_default(),
            None => "",
        };
        let labels = matchers
            .split("\",")
            .filter_map(|matcher| matcher.split(['=', '!']).next());
        let labels = labels.filter(|label| !label.is_empty());
        found.push((name, labels.map(str::to_owned).collect()));
    }
    // Labels by which sums are grouped belong to all series of the expression.
    for grouped in expression.split(" by (").skip(1) {
        let names = grouped.split(')').next().unwrap_or_default().split(',');
        let names: Vec<String> = names.map(|name| name.trim().to_owned()).collect();
        for (_, labels) in &mut found {
            labels.extend(names.iter().cloned());
        }
    }
    found
}

/// Alerts of the rules: name, expression and severity.
fn alerts() -> Vec<(String, String)> {
    let rules = repository("examples/deployment/alerts.yml");
    let mut alerts: Vec<(String, String)> = Vec::new();
    for line in rules.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("- alert: ") {
            alerts.push((name.to_owned(), String::new()));
        } else if let Some(expression) = line.strip_prefix("expr: ") {
            let (_, last) = alerts.last_mut().expect("an alert before its expression");
            *last = expression.trim_matches('\'').replace("''", "'");
        }
    }
    alerts
}

fn expressions_of(panels: &Value) -> Vec<String> {
    let panels = panels.as_array().expect("panels");
    let targets = panels.iter().flat_map(|panel| {
        let targets = panel["targets"].as_array().expect("targets");
        targets.iter().map(|target| target["expr"].as_str())
    });
    targets
        .map(|expr| expr.expect("an expression").to_owned())
        .collect()
}

/// Pages of servers that have met what the families are about.
fn pages() -> Vec<String> {
    let folder = tempfile::tempdir().expect("make a folder");
    let audit = folder.path().join("audit.jsonl");
    let config = format!(
        "[audit]\nfile = {audit:?}\n[openai]\nany_model = false\n\
         [valkey]\nurl = \"unix:///nowhere/valkey.sock\"\nwhen_lost = \"local\"\n\
         [spend]\ncurrency = \"EUR\"\n[[spend.prices]]\nmodel = \"*\"\ninput = \"1\"\noutput = \"1\"\n"
    );
    let plain = Server::configured(&config);
    let body = json!({"model": "mortise-demo", "prompt": "One, two,", "max_tokens": 4});
    plain.post("/v1/completions", &body).ok();
    let unknown = json!({"model": "absent", "prompt": "One"});
    plain.post("/v1/completions", &unknown);
    let wrong = json!({"model": "mortise-demo", "prompt": "One", "n": 0});
    assert_eq!(plain.post("/v1/completions", &wrong).status(), 400);
    let (secured, authority) = secured("", "default = \"x\"");
    vec![
        plain.get("/metrics").text(),
        page_over_tls(&secured, &authority, "/metrics"),
    ]
}

/// Families that a sound server has no sample of, with the labels that the code gives them.
const WITHOUT_SAMPLES: [(&str, &[&str]); 3] = [
    (
        "mortise_guardrail_refusals_total",
        &["guardrail", "refused"],
    ),
    ("mortise_task_restarts_total", &["task"]),
    ("mortise_plugin_faults_total", &["plugin", "kind", "fault"]),
];

#[test]
fn feature_o1_dashboard_and_alerts_ask_for_series_that_there_are() {
    if !have(&["curl"]) {
        return;
    }
    let mut known = families(&pages());
    for (name, labels) in WITHOUT_SAMPLES {
        let labels = labels.iter().map(|label| (*label).to_owned());
        known
            .entry(name.to_owned())
            .or_insert_with(|| labels.collect());
    }
    let dashboard: Value =
        serde_json::from_str(&repository("examples/deployment/grafana-dashboard.json"))
            .expect("JSON");
    let mut expressions = expressions_of(&dashboard["panels"]);
    assert!(expressions.len() >= 20);
    expressions.extend(alerts().into_iter().map(|(_, expression)| expression));
    // Of the scrape, and of histograms.
    let always = ["instance", "job", "le"];
    let mut wrong = Vec::new();
    for expression in &expressions {
        for (name, labels) in asked(expression) {
            let Some(has) = known.get(&name) else {
                wrong.push(format!("{name} is on no page: {expression}"));
                continue;
            };
            let lacks =
                |label: &&String| !has.contains(*label) && !always.contains(&label.as_str());
            for label in labels.iter().filter(lacks) {
                wrong.push(format!("{name} has no label {label}: {expression}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // The check itself finds what is wrong.
    let (name, labels) =
        asked("sum by (model) (rate(mortise_absent_total{a=~\"b\"}[5m]))").remove(0);
    assert_eq!(name, "mortise_absent_total");
    assert_eq!(labels, BTreeSet::from(["a".to_owned(), "model".to_owned()]));
}

#[test]
fn feature_o7_what_misses_an_objective_is_counted() {
    let server = Server::scripted("default = \"x\"", "");
    let route = "route=\"/v1/chat/completions\"";
    let cases = [
        ("time_to_first_token", "0.8", "model=\"scripted\""),
        ("request_duration", "5.0", route),
    ];
    for _ in 0..3 {
        server.post(CHAT, &chat("Hi")).ok();
    }
    let rules = repository("examples/deployment/alerts.yml");
    for (family, bound, label) in cases {
        let family = format!("mortise_{family}_seconds");
        // A bucket of each, so that it is told how many were in time.
        let within = format!("{family}_bucket{{le=\"{bound}\",{label}}}");
        let all = format!("{family}_count{{{label}}}");
        let counts = crate::support::wait_for(|| {
            let counts = (server.metric(&within), server.metric(&all));
            match counts.1 >= 3.0 {
                true => Ok(counts),
                false => Err(format!("{counts:?}")),
            }
        });
        assert!(counts.0 <= counts.1, "{family}: {counts:?}");
        assert!(rules.contains(&format!("{family}_bucket{{le=\"{bound}\"")));
    }
}

#[test]
fn feature_o1_each_alert_has_an_entry_in_the_runbook_and_leads_to_it() {
    let rules = repository("examples/deployment/alerts.yml");
    let runbook = repository("docs/runbook.md");
    let entries: Vec<&str> = runbook
        .lines()
        .filter_map(|line| line.strip_prefix("## "))
        .collect();
    let alerts = alerts();
    let names: Vec<&str> = alerts.iter().map(|(name, _)| name.as_str()).collect();
    assert!(names.len() >= 15);
    assert_eq!(names, entries);
    for name in names {
        let link = format!("runbook: 'docs/runbook.md#{}'", name.to_lowercase());
        assert!(rules.contains(&link), "{name} does not lead to its entry");
    }
}

/// Commands of a page: its spans of code that begin with one of these words and go on.
fn commands(page: &str, programs: &[&str]) -> Vec<String> {
    let spans = page.split('`').skip(1).step_by(2);
    let lines = spans.map(|span| span.split_whitespace().collect::<Vec<_>>().join(" "));
    lines
        .filter(|line| {
            let mut words = line.split(' ');
            let program = words.next().unwrap_or_default();
            programs.contains(&program) && line.contains(['/', '.', '-'])
        })
        .collect()
}

#[test]
fn feature_o1_commands_of_the_runbook_run() {
    if !have(&["curl"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("make a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let plugin = path("plugin.wasm");
    let embedded = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bundle/prebuilt/policy.wasm");
    std::fs::copy(embedded, &plugin).expect("copy a plugin");
    let admin = |port: &str| {
        format!(
            "[admin]\nport = {port}\nkey = \"an admin key of the tests\"\n[spend]\ncurrency = \"EUR\"\n[[spend.prices]]\nmodel = \"*\"\ninput = \"1\"\noutput = \"1\"\n"
        )
    };
    let server = Server::configured(&admin("0"));
    let line = server.wait_for_log(|line| line.contains("admin side on http://"));
    let (_, address) = line
        .split_once("admin side on http://")
        .expect("an address");
    let address = address.trim_end_matches(['"', '}']).to_owned();
    let port = address.rsplit(':').next().expect("a port");
    // The store of a server that has ended, and a key to revoke.
    std::fs::write(path("mortise.toml"), admin(port)).expect("write");
    let own = format!("{}[store]\npath = {:?}\n", admin(port), path("state.db"));
    std::fs::write(path("ended.toml"), own).expect("write");
    let body = json!({"id": "ID"});
    let key =
        Request::post("/v1/admin/keys", &body).header("x-admin-token", "an admin key of the tests");
    assert_eq!(key.send(&address).status(), 201);
    let run = |command: &str| {
        let command = command
            .replace("127.0.0.1:8080", server.address())
            .replace("127.0.0.1:8081", &address)
            .replace("FILE", &plugin)
            .replace("NAME", "mortise-demo");
        let config = match command.starts_with("mortise store") {
            true => "ended.toml",
            false => "mortise.toml",
        };
        let command = command.replace("mortise.toml", &path(config));
        let command = match command.strip_prefix("mortise ") {
            Some(rest) => format!("{} {rest}", crate::support::binary().display()),
            None => command.replace("curl ", "curl --fail --silent --show-error "),
        };
        let output = std::process::Command::new("sh")
            .args(["-c", &command])
            .env("MORTISE_ADMIN_KEY", "an admin key of the tests")
            .output()
            .expect("run a shell");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command}: {errors}");
    };
    run(&format!(
        "mortise keys create other --store {}",
        path("state.db")
    ));
    let page = repository("docs/runbook.md");
    let mut commands = commands(&page, &["curl", "mortise"]);
    commands.sort();
    commands.dedup();
    assert!(commands.len() >= 9, "{commands:?}");
    for command in &commands {
        run(command);
    }
}

#[test]
fn feature_o1_metrics_may_be_on_the_admin_side_alone() {
    let admin = "[admin]\nport = 0\nkey = \"an admin key of the tests\"\n";
    for (listener, main, side) in [("main", 200, 404), ("admin", 404, 200), ("both", 200, 200)] {
        let config = format!("{admin}[metrics]\nlistener = \"{listener}\"\nvllm_names = true\n");
        let server = Server::scripted("default = \"x\"", &config);
        let line = server.wait_for_log(|line| line.contains("admin side on http://"));
        let (_, address) = line.split_once("http://").expect("an address");
        let address = address.trim_end_matches(['"', '}']);
        let ask = Request::get("/metrics");
        assert_eq!(ask.send(server.address()).status(), main, "{listener}");
        // What a caller has used itself is no secret to it; figures of all are.
        assert_eq!(server.get("/v1/metrics").status(), 200, "{listener}");
        for path in ["stats", "workers", "cache/stats"] {
            let status = server.get(&format!("/api/v1/llm/{path}")).status();
            assert_eq!(status, main, "{listener}: {path}");
        }
        assert_eq!(ask.send(address).status(), 401, "{listener}");
        let ask = ask.header("authorization", "Bearer an admin key of the tests");
        let page = ask.send(address);
        assert_eq!(page.status(), side, "{listener}");
        if side == 200 {
            let page = page.text();
            for name in [
                "mortise_connections ",
                "mortise_check_state{check=\"store\",state=\"ok\"} 1",
            ] {
                assert!(page.contains(name), "{name} is not in\n{page}");
            }
            let aliased = "vllm:num_requests_waiting{model_name=\"scripted\"} 0";
            assert!(page.contains(aliased), "{page}");
        }
    }
}

#[test]
fn feature_o1_answers_are_measured_under_the_names_of_the_conventions() {
    let server = Server::scripted("default = \"x\"", "[metrics]\ngen_ai_names = true\n");
    let usage = server.post(CHAT, &chat("Hi")).ok()["usage"].clone();
    let labels = "gen_ai_provider_name=\"mortise\",gen_ai_request_model=\"scripted\"";
    let sum = |kind: &str| {
        let labels = format!("{labels},gen_ai_token_type=\"{kind}\"");
        server.metric(&format!("gen_ai_client_token_usage_sum{{{labels}}}"))
    };
    assert_eq!(Some(sum("input")), usage["prompt_tokens"].as_f64());
    assert_eq!(Some(sum("output")), usage["completion_tokens"].as_f64());
    for name in [
        "gen_ai_server_request_duration_seconds",
        "gen_ai_server_time_to_first_token_seconds",
    ] {
        assert_eq!(
            server.metric(&format!("{name}_count{{{labels}}}")),
            1.0,
            "{name}"
        );
    }
}

#[test]
fn feature_e7_a_disk_without_room_is_told_of_and_may_end_new_work() {
    let folder = tempfile::tempdir().expect("make a folder");
    let store = format!("[store]\npath = {:?}\n", folder.path().join("state.db"));
    for (required, status) in [("\"engine\"", 200), ("\"disk\"", 503)] {
        // No disk has so much room.
        let health = format!("[health]\nmin_free_mib = 1000000000000\nrequired = [{required}]\n");
        let server = Server::scripted("default = \"x\"", &format!("{store}{health}"));
        until("the disk is looked at", || {
            server.get("/ready").json()["checks"]["disk"] == "failed"
        });
        let ready = server.get("/ready");
        assert_eq!(ready.status(), status);
        assert!(
            ready.json()["disk"]["free_mib"].is_u64(),
            "{}",
            ready.text()
        );
        assert_eq!(server.get("/health").status(), 200);
        let line = "mortise_check_state{check=\"disk\",state=\"failed\"}";
        assert!((server.metric(line) - 1.0).abs() < f64::EPSILON);
    }
}

#[test]
fn feature_o4_the_access_log_tells_who_asked_for_how_much_and_when_it_began() {
    let config = "[log]\nformat = \"json\"\nrequest_begins = true\n\
                  [[auth.api_keys]]\nid = \"ann\"\nkey = \"a key of the tests\"\ntenant = \"acme\"\n";
    let server = Server::scripted("default = \"x\"", config);
    let mut body = chat("a secret question");
    body["max_tokens"] = json!(7);
    body["user"] = json!("user-17");
    let request = Request::post(CHAT, &body).header("authorization", "Bearer a key of the tests");
    let response = server.send(&request);
    assert_eq!(response.status(), 200);
    let id = response.header("x-request-id").expect("an id").to_owned();
    let line = |message: &str| {
        let wanted = format!("\"message\":\"{message}\"");
        let line = server.wait_for_log(|line| line.contains(&id) && line.contains(&wanted));
        serde_json::from_str::<Value>(&line).expect("JSON")
    };
    let (begins, ended) = (line("request begins"), line("request"));
    for fields in [&begins, &ended] {
        assert_eq!(fields["model"], "scripted");
        assert_eq!(fields["max_tokens"], 7);
        assert_eq!(fields["user"], "user-17");
        assert_eq!(fields["stream"], false);
    }
    assert_eq!(
        (&ended["principal"], &ended["tenant"]),
        (&json!("ann"), &json!("acme"))
    );
    assert!(!server.log().join("\n").contains("secret question"));
}
