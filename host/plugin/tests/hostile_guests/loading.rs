//! Files that are no plugins, and plugins that cannot be bound.

use std::sync::Arc;

use mortise_plugin::{
    ChatTemplate, Component, ComponentSource, Fault, Grammar, HostConfig, Kind, LoadError,
    PluginHost,
};

use crate::guests::{
    binding, endless_start, every_kind, file, greedy_template, render, shared, source,
};

fn load(wasm: &[u8]) -> Result<Arc<Component>, LoadError> {
    let (_folder, path) = file("suspect.wasm", wasm);
    shared().host.load(ComponentSource::File(path))
}

/// The guest with one name replaced by another of the same length wherever it stands.
fn renamed(from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut wasm = every_kind().to_vec();
    let mut count = 0;
    for start in 0..wasm.len() - from.len() {
        if wasm[start..].starts_with(from.as_bytes()) {
            wasm[start..start + from.len()].copy_from_slice(to.as_bytes());
            count += 1;
        }
    }
    assert!(count > 0, "{from} is not in the guest");
    wasm
}

#[track_caller]
fn check(result: Result<Arc<Component>, LoadError>, parts: &[&str]) -> LoadError {
    let error = result.map(drop).unwrap_err();
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
    error
}

#[test]
fn a_component_describes_itself() {
    let (_folder, path) = file("my-plugin.wasm", every_kind());
    let component = shared()
        .host
        .load(ComponentSource::File(path.clone()))
        .unwrap();
    assert_eq!(component.name(), "my-plugin");
    assert_eq!(component.origin(), path.to_str().unwrap());
    assert_eq!(component.kinds(), Kind::ALL);
    assert_eq!(component.built_against(), "mortise:plugin@0.3.0");
    assert_eq!(component.digest().len(), 64);
    assert_eq!(component.version(), &component.digest()[..12]);
    assert!(
        component
            .imports()
            .iter()
            .any(|name| name == "mortise:plugin/mask-sink@0.3.0")
    );
}

#[test]
fn a_version_section_is_shown() {
    let mut wasm = every_kind().to_vec();
    wasm.extend_from_slice(b"\0\x0d\x07version1.2.3");
    assert_eq!(load(&wasm).unwrap().version(), "1.2.3");
}

#[test]
fn a_missing_file_is_named() {
    let source = ComponentSource::File("/nowhere/plugin.wasm".into());
    let error = check(
        shared().host.load(source),
        &["/nowhere/plugin.wasm", "check the path"],
    );
    assert!(matches!(error, LoadError::Unreadable { .. }));
}

#[test]
fn what_is_no_component_is_told_apart() {
    check(load(b""), &["suspect.wasm", "is empty", "wasm32-wasip2"]);
    check(load(b"#!/bin/sh\nrm"), &["begins with \"#!/bin/sh\\nrm\""]);
    check(
        load(b"\0asm\x01\0\0\0"),
        &["core WebAssembly module", "component new"],
    );
    check(load(b"\0asm\x63\0\0\0"), &["unknown WebAssembly version"]);
}

#[test]
fn a_file_that_is_too_large_is_not_compiled() {
    let mut wasm = every_kind().to_vec();
    wasm.resize((64 << 20) + 1, 0);
    let error = check(load(&wasm), &["67108864", "strip"]);
    assert!(matches!(error, LoadError::TooLarge { .. }));
}

#[test]
fn a_truncated_file_is_refused_at_any_length() {
    let wasm = every_kind();
    let lengths = (0..64).chain((64..wasm.len()).step_by(wasm.len() / 200));
    for length in lengths {
        let error = load(&wasm[..length]).map(drop);
        // A cut between two sections can leave a whole component, with fewer exports.
        let error = error.expect_err(&format!("{length} of {} bytes", wasm.len()));
        assert!(error.to_string().contains("suspect.wasm"), "{error}");
    }
}

#[test]
fn a_damaged_file_never_brings_the_host_down() {
    let wasm = every_kind();
    for round in 0..12usize {
        let mut damaged = wasm.to_vec();
        let start = 8 + round * 16_001 % (wasm.len() - 64);
        for (offset, byte) in damaged[start..start + 40].iter_mut().enumerate() {
            *byte = byte.wrapping_mul(31).wrapping_add((round + offset) as u8);
        }
        // Damage in a data segment goes unnoticed, which is fine; damage in code does not.
        if let Err(error) = load(&damaged) {
            assert!(error.to_string().contains("suspect.wasm"), "{error}");
        }
    }
}

#[test]
fn another_world_is_refused() {
    let error = check(
        load(&renamed("mortise:plugin/", "another:plugin/")),
        &["exports no kind of plugin", "another:plugin/policy@0.3.0"],
    );
    assert!(matches!(error, LoadError::NoKind { .. }));
}

#[test]
fn another_version_is_refused() {
    let error = check(
        load(&renamed("@0.3.0", "@0.4.0")),
        &[
            "@0.4.0",
            "speaks mortise:plugin 0.1.x, 0.2.x, 0.3.x",
            "rebuild",
        ],
    );
    assert!(matches!(error, LoadError::Version { .. }));
}

#[test]
fn a_component_of_two_versions_is_refused() {
    let mixed = renamed(
        "mortise:plugin/lifecycle@0.3.0",
        "mortise:plugin/lifecycle@0.1.0",
    );
    let error = check(
        load(&mixed),
        &["does not fit", "exports both", "0.1.0", "0.3.0"],
    );
    assert!(matches!(error, LoadError::Interface { .. }));
}

#[test]
fn a_later_patch_of_the_same_version_works() {
    assert_eq!(
        load(&renamed("@0.3.0", "@0.3.7")).unwrap().kinds(),
        Kind::ALL
    );
}

#[test]
fn forbidden_imports_are_named() {
    let sockets = renamed("mortise:plugin/ledger@0.3.0", "wasi:sockets/tcp-xxxx@0.2.6");
    check(
        load(&sockets),
        &["wasi:sockets/tcp-xxxx@0.2.6", "not grantable", "no network"],
    );
    let unknown = renamed("mortise:plugin/ledger@0.3.0", "mortise:plugin/wallet@0.3.0");
    check(
        load(&unknown),
        &["mortise:plugin/wallet@0.3.0", "not grantable"],
    );
    check(
        load(&greedy_template()),
        &["mortise:plugin/clock@0.3.0", "a chat-template plugin"],
    );
}

#[tokio::test]
async fn interfaces_of_other_types_are_refused() {
    let wasm = renamed(
        "mortise:plugin/chat-template",
        "mortise:plugin/swapped-xxxxx",
    );
    let wasm = String::from_utf8_lossy(&wasm)
        .contains("swapped")
        .then_some(wasm)
        .unwrap();
    // The names of two interfaces, which have the same length, change places.
    let swap = |wasm: Vec<u8>, from: &str, to: &str| {
        let mut wasm = wasm;
        for start in 0..wasm.len() - from.len() {
            if wasm[start..].starts_with(from.as_bytes()) {
                wasm[start..start + from.len()].copy_from_slice(to.as_bytes());
            }
        }
        wasm
    };
    let wasm = swap(
        wasm,
        "mortise:plugin/output-parser",
        "mortise:plugin/chat-template",
    );
    let wasm = swap(
        wasm,
        "mortise:plugin/swapped-xxxxx",
        "mortise:plugin/output-parser",
    );
    let component = load(&wasm).unwrap();
    let bound = ChatTemplate::bind(&shared().host, &component, binding()).await;
    let error = bound.map(drop).unwrap_err();
    assert!(matches!(error, LoadError::Interface { .. }), "{error}");
}

#[tokio::test]
async fn a_binding_must_suit_the_kind() {
    let fixture = shared();
    let mut without = binding();
    without.vocabulary = None;
    let error = Grammar::bind(&fixture.host, &fixture.component, without)
        .await
        .map(drop);
    let text = error.unwrap_err().to_string();
    assert!(
        text.contains("cannot serve as grammar without a vocabulary"),
        "{text}"
    );

    for settings in ["", "[]", "{", "null", "{} {}"] {
        let mut binding = binding();
        binding.settings = settings.to_owned();
        let bound = ChatTemplate::bind(&fixture.host, &fixture.component, binding).await;
        assert!(
            matches!(bound, Err(LoadError::Settings { .. })),
            "{settings}"
        );
    }

    let no_template = renamed(
        "mortise:plugin/chat-template",
        "mortise:plugin/chat-xxxxxxxx",
    );
    let component = load(&no_template).unwrap();
    let error = ChatTemplate::bind(&fixture.host, &component, binding()).await;
    let text = error.map(drop).unwrap_err().to_string();
    let expected =
        "is no chat-template (it is: output-parser, grammar, policy, tool, guardrail, retriever)";
    assert!(text.contains(expected), "{text}");
}

/// Whether a fault is the one that a case is about.
type Expected = fn(&Fault) -> bool;

#[tokio::test]
async fn a_plugin_that_cannot_be_prepared_fails_its_load() {
    let cases: [(&str, Expected); 5] = [
        ("fault", |fault| {
            *fault == Fault::Internal("bad setting".to_owned())
        }),
        ("loop", |fault| {
            *fault == Fault::Deadline { deadline_ms: 300 }
        }),
        (
            "panic",
            |fault| matches!(fault, Fault::Trap(text) if text.contains("gives up")),
        ),
        ("bomb", |fault| matches!(fault, Fault::Memory { .. })),
        ("overflow", |fault| *fault == Fault::Stack),
    ];
    for (command, expected) in cases {
        let mut binding = binding();
        if command == "loop" {
            binding.limits.deadlines.prepare_ms = 300;
        }
        binding.settings = format!("{{\"prepare\":\"{command}\"}}");
        let fixture = shared();
        let bound = ChatTemplate::bind(&fixture.host, &fixture.component, binding).await;
        match bound.map(drop).unwrap_err() {
            LoadError::Prepare { source, .. } => {
                assert_eq!(source.function, "lifecycle.prepare");
                assert!(expected(&source.fault), "{command}: {source}");
            }
            other => panic!("{command}: {other}"),
        }
    }
}

#[tokio::test]
async fn an_endless_start_function_meets_the_deadline() {
    let component = shared()
        .host
        .load(source("sleepy", &endless_start()))
        .unwrap();
    let mut binding = binding();
    binding.limits.deadlines.prepare_ms = 300;
    let bound = ChatTemplate::bind(&shared().host, &component, binding).await;
    match bound.map(drop).unwrap_err() {
        LoadError::Prepare { source, .. } => {
            assert_eq!(source.fault, Fault::Deadline { deadline_ms: 300 });
        }
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn compiled_plugins_are_kept_and_checked() {
    let folder = tempfile::tempdir().unwrap();
    let cache_dir = folder.path().join("compiled");
    let host = || {
        PluginHost::new(HostConfig {
            cache_dir: Some(cache_dir.clone()),
            ..HostConfig::default()
        })
    };
    let works = async |host: PluginHost| {
        let component = host.load(source("guest", every_kind())).unwrap();
        let template = ChatTemplate::bind(&host, &component, binding())
            .await
            .unwrap();
        assert_eq!(render(&template, "echo:a").await.unwrap(), "a");
    };
    let compiled = || {
        let files = std::fs::read_dir(&cache_dir)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        files
            .filter(|path| path.extension().is_some_and(|e| e == "cwasm"))
            .collect::<Vec<_>>()
    };
    works(host().unwrap()).await;
    let [file] = compiled().try_into().unwrap();
    let first = std::fs::read(&file).unwrap();
    let written = std::fs::metadata(&file).unwrap().modified().unwrap();

    works(host().unwrap()).await;
    let again = std::fs::metadata(&file).unwrap().modified().unwrap();
    assert_eq!(written, again, "the second host used the file");

    let mut damaged = first.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 0xff;
    std::fs::write(&file, &damaged).unwrap();
    works(host().unwrap()).await;
    assert_eq!(
        std::fs::read(&file).unwrap(),
        first,
        "the damaged file was made again"
    );
}

#[cfg(unix)]
#[test]
fn a_cache_that_others_may_write_to_is_not_used() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(folder.path(), open).unwrap();
    let config = HostConfig {
        cache_dir: Some(folder.path().to_owned()),
        ..HostConfig::default()
    };
    let host = PluginHost::new(config).unwrap();
    host.load(source("guest", every_kind())).unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn embedded_code_is_used_or_made_again() {
    let load = |precompiled: &[u8]| {
        shared().host.load(ComponentSource::Embedded {
            name: "guest",
            wasm: every_kind().to_vec(),
            precompiled: precompiled.to_vec(),
        })
    };
    let compiled = |wasm: &[u8]| mortise_aot::precompile(wasm).unwrap();
    for precompiled in [&*compiled(every_kind()), b"made for another machine"] {
        assert_eq!(load(precompiled).unwrap().origin(), "embedded");
    }
    // What another file was compiled to is taken for this one: nothing is compiled again.
    let other = load(&compiled(&greedy_template()));
    assert!(matches!(other, Err(LoadError::Import { .. })));
    assert!(mortise_aot::precompile(b"nonsense").is_err());
}
