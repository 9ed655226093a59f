//! Plugins that a configuration takes from a registry: pinned by the lock file, kept in the folder, and not asked for
//! again.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::registries::{Desk, Registry, text, two_policies};
use crate::support::client::Request;
use crate::support::{Server, binary, have};

fn config(folder: &Path, source: &str) -> String {
    format!(
        "[plugins]\ndir = {folder:?}\n[[plugins.bindings]]\nkind = \"policy\"\n\
         source = {source:?}\nsettings = {{ requests = 2 }}\n"
    )
}

/// Error output of a server that does not start.
fn refuses(config: &str) -> String {
    let folder = tempfile::tempdir().expect("make a folder");
    let file = folder.path().join("mortise.toml");
    std::fs::write(&file, config).expect("write the configuration");
    let output = Command::new("timeout")
        .arg("300")
        .arg(binary())
        .args(["serve", "--port", "0", "--config"])
        .arg(&file)
        .output()
        .expect("run mortise");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    // A setting that is wrong is another status than a start that failed.
    assert!(matches!(output.status.code(), Some(1 | 2)), "{errors}");
    errors
}

/// Code that the quota answers who names no tenant with.
fn code(server: &Server) -> String {
    let answer = server.send(&Request::get("/v1/models"));
    answer.json()["error"]["code"].to_string()
}

#[test]
fn feature_w2_a_binding_takes_its_plugin_from_a_registry() {
    if !have(&["docker-registry"]) {
        return;
    }
    let registry = Registry::start(false);
    let (author, operator) = (Desk::new(), Desk::new());
    let reference = format!("{}/team/quota:1.0", registry.name);
    let (quota, other) = two_policies();
    author.does(&["push", text(&quota), &reference]);
    let folder = operator.plugins();
    std::fs::create_dir_all(&folder).expect("make a folder");
    let config = config(&folder, &format!("oci://{reference}"));
    let file = folder.join("quota.wasm");
    let is_the_quota = || std::fs::read(&file).ok() == std::fs::read(&quota).ok();

    assert_eq!(code(&Server::configured(&config)), "\"no_tenant\"");
    assert_eq!(operator.installed(), ["mortise-plugins.lock", "quota.wasm"]);
    assert!(is_the_quota());

    // A tag that was moved means nothing: neither while the file is there, nor once it is lost.
    author.does(&["push", text(&other), &reference]);
    assert_eq!(code(&Server::configured(&config)), "\"no_tenant\"");
    std::fs::remove_file(&file).expect("remove the file");
    assert_eq!(code(&Server::configured(&config)), "\"no_tenant\"");
    assert!(is_the_quota());

    // Without the registry what is there serves, and what is not the file that is pinned does not.
    drop(registry);
    assert_eq!(code(&Server::configured(&config)), "\"no_tenant\"");
    std::fs::copy(&other, &file).expect("put in another");
    let told = refuses(&config);
    assert!(told.contains("plugins.bindings[0].source"), "{told}");
    assert!(told.contains("nothing was installed"), "{told}");
}

#[test]
fn feature_w2_a_source_that_makes_no_sense_is_told() {
    let folder: PathBuf = "plugins".into();
    for (config, part) in [
        (config(&folder, "registry.example/a:1"), "write oci://"),
        (config(&folder, "oci://registry.example"), "write oci://"),
        (
            config(&folder, "oci://registry.example/..:1"),
            "write oci://",
        ),
        (
            config(&folder, "oci://registry.example/a@sha256:1"),
            "stands no digest",
        ),
        (
            config(&folder, "oci://registry.example/a:1").replace("dir =", "cache_dir ="),
            "it needs plugins.dir",
        ),
        (
            config(&folder, "oci://registry.example/a:1")
                .replace("settings", "file = \"a.wasm\"\nsettings"),
            "the binding has a `file` as well",
        ),
    ] {
        let told = refuses(&config);
        assert!(
            told.contains("plugins.bindings[0].source") && told.contains(part),
            "{told}"
        );
    }
}
