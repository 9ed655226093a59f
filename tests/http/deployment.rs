//! Files of `examples/deployment` and the container file: what they name is there, and what they start serves.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::client::Request;
use crate::support::postgres::Postgres;
use crate::support::valkey::Valkey;
use crate::support::{Server, binary, have, skipped_because};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn deployment() -> PathBuf {
    repository().join("examples/deployment")
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The whole number behind a word.
fn number(text: &str, word: &str) -> u64 {
    let (_, rest) = text.split_once(word).unwrap_or_else(|| panic!("no {word}"));
    let digits: String = rest
        .chars()
        .skip_while(|letter| !letter.is_ascii_digit())
        .take_while(char::is_ascii_digit)
        .collect();
    digits.parse().expect("a number")
}

#[test]
fn feature_z15_settings_of_the_deployments_are_right() {
    let settings = deployment().join("mortise.toml");
    let copy = deployment().join("kubernetes/mortise.toml");
    assert_eq!(text(&settings), text(&copy), "kustomize reads a copy");
    let output = Command::new(binary())
        .args(["config", "check", settings.to_str().expect("UTF-8")])
        .env("MORTISE_KEY", "a key of the tests")
        .output()
        .expect("run mortise");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    // Open answers may end before they are killed.
    let drain = number(&text(&settings), "drain_seconds");
    let compose = text(&deployment().join("compose.yaml"));
    assert!(number(&compose, "stop_grace_period") > drain);
    let server = text(&deployment().join("kubernetes/server.yaml"));
    let waits = number(&server, "\"sleep\", ");
    assert!(number(&server, "terminationGracePeriodSeconds") > drain + waits);
}

#[test]
fn feature_z15_files_that_compose_mounts_are_there() {
    let compose = text(&deployment().join("compose.yaml"));
    let mounts = compose.lines().map(str::trim);
    let mounts = mounts.filter_map(|line| line.strip_prefix("- ./")?.split(':').next());
    let mounts: Vec<&str> = mounts.collect();
    assert!(mounts.len() >= 6, "{mounts:?}");
    for mount in mounts {
        assert!(deployment().join(mount).is_file(), "{mount}");
    }
    // Both scrape the port that the settings have.
    let port = number(&text(&deployment().join("compose.toml")), "\nport = ");
    let scrape = text(&deployment().join("prometheus-compose.yml"));
    assert!(scrape.contains(&format!("mortise:{port}")), "{scrape}");
}

#[test]
fn feature_z15_the_server_of_compose_serves_with_its_database_and_counters() {
    let settings = text(&deployment().join("compose.toml"));
    let drain = number(&settings, "drain_seconds");
    let compose = text(&deployment().join("compose.yaml"));
    assert!(number(&compose, "stop_grace_period") > drain);
    // Each variable that the settings name is one of the container's, and each host one of its services.
    for line in settings.lines().filter(|line| line.contains("_env = ")) {
        let variable = line.split('"').nth(1).expect("a name");
        assert!(
            compose.contains(&format!("      {variable}: ")),
            "{variable}"
        );
    }
    let counters = "redis://valkey:6379/0";
    assert!(settings.contains(counters) && compose.contains("\n  valkey:\n"));
    assert!(
        compose.contains("@postgres/mortise?sslmode=disable\"")
            && compose.contains("\n  postgres:\n")
    );
    let (Some(postgres), Some(valkey)) = (Postgres::shared(), Valkey::start()) else {
        return;
    };
    // As in the container, but for addresses and folders of this machine.
    let folder = tempfile::tempdir().expect("make a folder");
    let here = settings
        .replace("0.0.0.0", "127.0.0.1")
        .replace("port = 8080", "port = 0")
        .replace("port = 8081", "port = 0")
        .replace(counters, &valkey.url())
        .replace("/var/lib/mortise", folder.path().to_str().expect("UTF-8"));
    let database = postgres.database("compose");
    let variables = [
        ("MORTISE_KEY", Path::new("a key of the tests")),
        ("MORTISE_ADMIN_KEY", Path::new("an admin key of the tests")),
        ("MORTISE_DATABASE", Path::new(&database)),
    ];
    let server = Server::configured_with(&here, &variables);
    let body = serde_json::json!({"model": "mortise-demo", "input": "One, two,", "max_output_tokens": 16, "store": true});
    let keyed = |request: Request| request.header("authorization", "Bearer a key of the tests");
    let made = server
        .send(&keyed(Request::post("/v1/responses", &body)))
        .ok();
    let id = made["id"].as_str().expect("an id");
    server
        .send(&keyed(Request::get(&format!("/v1/responses/{id}"))))
        .ok();
}

#[test]
fn feature_z15_the_container_serves_and_probes_are_answered() {
    let file = text(&repository().join("packaging/Containerfile"));
    let entry = file
        .lines()
        .find_map(|line| line.strip_prefix("ENTRYPOINT "));
    let entry: Vec<String> =
        serde_json::from_str(entry.expect("an entry point")).expect("a list of words");
    assert_eq!(entry[..2], ["mortise", "serve"]);
    let arguments: Vec<&str> = entry[2..].iter().map(String::as_str).collect();
    let server = Server::start(&arguments);
    let manifest = text(&deployment().join("kubernetes/server.yaml"));
    let paths = manifest.split("httpGet: {path: ").skip(1);
    let paths: Vec<&str> = paths.filter_map(|rest| rest.split(',').next()).collect();
    assert_eq!(paths, ["/ready", "/health", "/ready"]);
    for path in paths {
        assert_eq!(server.get(path).status(), 200, "{path}");
    }
    // What the autoscaler asks for is on the page.
    let rule = text(&deployment().join("kubernetes/prometheus-adapter.yaml"));
    let body = serde_json::json!({"model": "mortise-demo", "prompt": "One, two,", "max_tokens": 2});
    server.post("/v1/completions", &body).ok();
    let page = server.get("/metrics").text();
    for series in [
        "mortise_queue_time_seconds_sum",
        "mortise_queue_time_seconds_count",
    ] {
        assert!(rule.contains(series), "{series}");
        assert!(page.contains(&format!("\n{series}{{")), "{series}");
    }
    let autoscaling = text(&deployment().join("kubernetes/autoscaling.yaml"));
    let name = rule
        .lines()
        .find_map(|line| line.trim().strip_prefix("as: "));
    assert!(autoscaling.contains(name.expect("a name")));
}

#[test]
fn feature_z15_files_are_yaml() {
    const READ: &str = "import sys, yaml\nfor name in sys.argv[1:]:\n    assert all(isinstance(part, dict) for part in yaml.safe_load_all(open(name))), name\n";
    let reads = |arguments: &[PathBuf]| {
        let run = Command::new("python3")
            .args(["-c", READ])
            .args(arguments)
            .output();
        run.expect("run python3")
    };
    if !have(&["python3"]) || !reads(&[]).status.success() {
        return skipped_because("PyYAML is not installed");
    }
    let mut left = vec![deployment()];
    let mut files = Vec::new();
    while let Some(path) = left.pop() {
        if path.is_dir() {
            let entries = std::fs::read_dir(&path).expect("read a folder");
            left.extend(entries.map(|entry| entry.expect("an entry").path()));
        } else if path
            .extension()
            .is_some_and(|ending| ending == "yaml" || ending == "yml")
        {
            files.push(path);
        }
    }
    assert!(files.len() >= 9, "{files:?}");
    let read = reads(&files);
    let told = String::from_utf8_lossy(&read.stderr);
    assert!(read.status.success(), "{told}");
}
