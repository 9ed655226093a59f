use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::*;
use crate::limits::{MAX_SCANNED_DEPTH, MAX_SHARD_FILES};

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("a parent")).expect("folders");
    fs::write(path, text).expect("a file");
}

fn gguf(path: &Path) {
    write(path, "GGUF and more");
}

fn safetensors(folder: &Path) {
    for file in ["config.json", "tokenizer.json", "model.safetensors"] {
        write(&folder.join(file), "{}");
    }
}

fn names(scan: &Scan) -> Vec<&str> {
    scan.models
        .iter()
        .map(|model| model.name.as_str())
        .collect()
}

fn reasons(scan: &Scan) -> Vec<(String, &str)> {
    let name = |path: &Path| {
        path.file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned()
    };
    let skipped = scan.skipped.iter();
    skipped
        .map(|skipped| (name(&skipped.path), skipped.reason.as_str()))
        .collect()
}

fn of_folder(folder: &Path) -> DiscoveryConfig {
    DiscoveryConfig {
        folders: vec![folder.to_owned()],
        ..DiscoveryConfig::default()
    }
}

#[test]
fn feature_b9_models_are_called_by_their_path_and_what_is_broken_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path();
    safetensors(&root.join("org/tensors"));
    gguf(&root.join("one-Q8_0.gguf"));
    gguf(&root.join("org/two/two-Q4_K_M.gguf"));
    gguf(&root.join("org/two/mmproj-F16.gguf"));
    gguf(&root.join(".hidden/no.gguf"));
    write(&root.join("text.gguf"), "this is none");
    write(&root.join("empty.gguf"), "");
    write(&root.join("notes/config.json"), "{}");
    write(&root.join("half/config.json"), "{}");
    write(&root.join("half/model.safetensors"), "");
    for part in 1..=2 {
        gguf(&root.join(format!("split/whole-0000{part}-of-00002.gguf")));
    }
    gguf(&root.join("torn/torn-00002-of-00003.gguf"));
    symlink(root, root.join("org/again")).expect("a link");
    symlink("nowhere", root.join("gone.gguf")).expect("a link");

    let scan = of_folder(root).scan(["one"]);
    assert_eq!(
        names(&scan),
        [
            "one-Q8_0",
            "org/tensors",
            "org/two/two-Q4_K_M",
            "split/whole"
        ]
    );
    assert!(scan.models.iter().all(|model| {
        model.origin == DefinitionOrigin::Discovered
            && !model.lifecycle.enabled
            && model.lifecycle.load_on_demand == Some(true)
    }));
    let first = "split/whole-00001-of-00002.gguf";
    assert_eq!(scan.models[3].path, Some(root.join(first)));
    let mut reasons = reasons(&scan);
    reasons.sort();
    assert_eq!(reasons.len(), 4, "{reasons:?}");
    assert!(reasons[0].1.starts_with("it cannot be read"), "{reasons:?}");
    assert_eq!(reasons[0].0, "empty.gguf");
    assert_eq!(
        reasons[1],
        ("half".to_owned(), "it has no `tokenizer.json`")
    );
    assert_eq!(reasons[2], ("text.gguf".to_owned(), "it is no GGUF file"));
    let torn = "torn-00002-of-00003.gguf".to_owned();
    assert_eq!(reasons[3], (torn, "part 1 of 3 is missing"));

    let scan = of_folder(root).scan(["org/tensors"]);
    assert!(!names(&scan).contains(&"org/tensors"));
    let taken = "another model is called `org/tensors`";
    assert!(self::reasons(&scan).contains(&("tensors".to_owned(), taken)));
}

#[test]
fn files_of_models_that_are_no_regular_files_are_told_and_not_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path();
    let fifo = |path: &str| {
        let path = root.join(path);
        let _ = fs::remove_file(&path);
        let made = std::process::Command::new("mkfifo").arg(path).status();
        assert!(made.expect("run mkfifo").success());
    };
    fifo("alone.gguf");
    fifo("notes.txt");
    for (number, file) in [
        "config.json",
        "tokenizer.json",
        "model.safetensors",
        "model.safetensors.index.json",
    ]
    .into_iter()
    .enumerate()
    {
        safetensors(&root.join(number.to_string()));
        fifo(&format!("{number}/{file}"));
    }
    gguf(&root.join("parts-00001-of-00002.gguf"));
    fifo("parts-00002-of-00002.gguf");
    let scan = of_folder(root).scan([]);
    let odd = reasons(&scan).into_iter();
    let odd = odd.filter(|(_, reason)| *reason == "it is a FIFO, not a regular file");
    let mut odd: Vec<String> = odd.map(|(name, _)| name).collect();
    odd.sort();
    let expected = [
        "alone.gguf",
        "config.json",
        "model.safetensors",
        "model.safetensors.index.json",
        "parts-00002-of-00002.gguf",
        "tokenizer.json",
    ];
    assert_eq!(odd, expected);
}

#[test]
fn a_folder_that_is_a_model_itself_has_its_own_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path().join("small");
    safetensors(&root);
    let index = r#"{"weight_map": {"a": "model.safetensors", "b": "more.safetensors"}}"#;
    assert_eq!(names(&of_folder(&root).scan([])), ["small"]);
    write(&root.join("model.safetensors.index.json"), index);
    let scan = of_folder(&root).scan([]);
    assert_eq!(names(&scan), Vec::<&str>::new());
    assert_eq!(
        scan.skipped[0].reason,
        "the file `more.safetensors` is missing"
    );
    // Values that nobody reads, of any kind, are no part of the index; names of files are bounded.
    let others =
        r#"{"metadata": {"a": [[], [1, {}]]}, "weight_map": {"a": "model.safetensors"}, "b": 7}"#;
    write(&root.join("model.safetensors.index.json"), others);
    assert_eq!(names(&of_folder(&root).scan([])), ["small"]);
    let many: Vec<String> = (0..=MAX_SHARD_FILES)
        .map(|number| format!("\"{number}\":\"{number}.safetensors\""))
        .collect();
    let many = format!("{{\"weight_map\":{{{}}}}}", many.join(","));
    write(&root.join("model.safetensors.index.json"), &many);
    let skipped = &of_folder(&root).scan([]).skipped[0].reason;
    assert!(skipped.contains("more than 1024 files"), "{skipped}");
    let missing = of_folder(&folder.path().join("nowhere")).scan([]);
    assert_eq!(missing.skipped.len(), 1);
}

#[test]
fn depth_and_names_are_bounded() {
    let folder = tempfile::tempdir().expect("a folder");
    let deep = |levels: usize| {
        let levels = (0..levels).map(|level| format!("d{level}"));
        levels.fold(folder.path().to_owned(), |path, level| path.join(level))
    };
    gguf(&deep(MAX_SCANNED_DEPTH).join("in.gguf"));
    gguf(&deep(MAX_SCANNED_DEPTH + 1).join("out.gguf"));
    gguf(&folder.path().join("{port}.gguf"));
    gguf(&folder.path().join("a\nb.gguf"));
    let long = folder.path().join("l".repeat(200)).join("m".repeat(100));
    gguf(&long.with_extension("gguf"));
    let scan = of_folder(folder.path()).scan([]);
    assert_eq!(scan.models.len(), 1);
    assert!(names(&scan)[0].ends_with("/in"));
    assert_eq!(scan.skipped.len(), 3, "{:?}", scan.skipped);
}

#[test]
fn feature_b8_the_hub_cache_gives_the_main_branch_of_each_repository() {
    let folder = tempfile::tempdir().expect("a folder");
    let cache = folder.path();
    let commit = "0123456789abcdef0123456789abcdef01234567";
    let snapshot = |repository: &str| {
        let repository = cache.join(format!("models--{repository}"));
        write(&repository.join("refs/main"), commit);
        repository.join("snapshots").join(commit)
    };
    safetensors(&snapshot("org--tensors"));
    gguf(&snapshot("org--single").join("single-Q8_0.gguf"));
    let several = snapshot("org--several");
    gguf(&several.join("several-Q4_K_M.gguf"));
    for part in 1..=2 {
        gguf(&several.join(format!("Q8_0/several-Q8_0-0000{part}-of-00002.gguf")));
    }
    write(&cache.join("models--org--empty/blobs/x"), "");
    write(&cache.join("datasets--org--data/refs/main"), commit);
    let discovery = DiscoveryConfig {
        hub_cache: Some(cache.to_owned()),
        ..DiscoveryConfig::default()
    };
    let scan = discovery.scan([]);
    let expected = [
        "org/several:Q4_K_M",
        "org/several:Q8_0",
        "org/single",
        "org/tensors",
    ];
    assert_eq!(names(&scan), expected);
    assert_eq!(
        reasons(&scan),
        [(
            "models--org--empty".to_owned(),
            "its branch `main` is not in the cache"
        )]
    );
}

#[test]
fn feature_b8_b10_manifests_of_llama_cpp_name_files_and_broken_ones_do_no_harm() {
    let folder = tempfile::tempdir().expect("a folder");
    let cache = folder.path();
    for file in [
        "ggml-org_gemma_gemma-Q4_0.gguf",
        "ggml-org_gemma_mmproj-f16.gguf",
        "ggml-org_gemma_mmproj-bf16.gguf",
        "other_plain_plain-Q8_0.gguf",
        "third_named_sub_named-Q6_K.gguf",
        "third_named_mmproj.gguf",
    ] {
        gguf(&cache.join(file));
    }
    let manifest = |name: &str, text: &str| write(&cache.join(name), text);
    manifest(
        "manifest=ggml-org=gemma=Q4_0.json",
        r#"{"ggufFile": {"rfilename": "gemma-Q4_0.gguf"}}"#,
    );
    manifest(
        "manifest=third=named=Q6_K.json",
        r#"{"ggufFile": {"rfilename": "sub/named-Q6_K.gguf"}, "mmprojFile": {"rfilename": "mmproj.gguf"}}"#,
    );
    manifest("manifest=other=plain=Q8_0.json", "{ torn");
    manifest("manifest=a=b.json", "{}");
    let command = ["llama-server".to_owned()].to_vec();
    let discovery = DiscoveryConfig {
        llama_cpp_cache: Some(cache.to_owned()),
        child: Some(child(command)),
        startup_model: Some("ggml-org/gemma:Q4_0".to_owned()),
        ..DiscoveryConfig::default()
    };
    let scan = discovery.scan([]);
    assert_eq!(
        names(&scan),
        [
            "ggml-org/gemma:Q4_0",
            "other_plain_plain-Q8_0",
            "third/named:Q6_K"
        ]
    );
    // Each is a process of the command, with the projector that belongs to it.
    let words = |model: &ModelConfig| model.child.as_ref().expect("a child").command.clone();
    let projector = |file: &str| cache.join(file).display().to_string();
    let expected = [
        "llama-server",
        "--mmproj",
        &projector("ggml-org_gemma_mmproj-bf16.gguf"),
    ];
    assert_eq!(words(&scan.models[0]), expected);
    assert_eq!(words(&scan.models[1]), ["llama-server"]);
    let expected = [
        "llama-server",
        "--mmproj",
        &projector("third_named_mmproj.gguf"),
    ];
    assert_eq!(words(&scan.models[2]), expected);
    let enabled: Vec<bool> = scan
        .models
        .iter()
        .map(|model| model.lifecycle.enabled)
        .collect();
    assert_eq!(enabled, [true, false, false]);
}

fn child(command: Vec<String>) -> ChildConfig {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use crate::child_config::RestartPolicy;
    use crate::upstream_config::UpstreamConfig;

    ChildConfig {
        command,
        directory: None,
        variables: BTreeMap::new(),
        health_path: "/health".to_owned(),
        base_path: "/v1".to_owned(),
        ready_timeout: Duration::from_secs(60),
        stop_timeout: Duration::from_secs(2),
        base_port: 50_000,
        group: None,
        restart: RestartPolicy {
            attempts: 0,
            pause: Duration::from_secs(1),
        },
        upstream: UpstreamConfig::new(Vec::new(), ""),
    }
}
