//! The Helm chart, rendered by Helm's own library.

use std::process::Command;

use crate::support::{binary, example, have};
use crate::{environment, run, sources};

#[test]
fn feature_z15_the_chart_makes_what_the_manifests_have() {
    if !have(&["python3"]) {
        return;
    }
    let venv = environment("sdk-helm", "helm/requirements.txt");
    let settings = run(Command::new(venv.join("bin/python"))
        .arg(sources().join("helm/render.py"))
        .arg(example::root()));
    let folder = tempfile::tempdir().expect("make a folder");
    let file = folder.path().join("mortise.toml");
    std::fs::write(&file, settings).expect("write the settings");
    run(Command::new(binary())
        .args(["config", "check"])
        .arg(&file)
        .env("MORTISE_KEY", "a key of sixteen bytes"));
}
