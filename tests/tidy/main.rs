//! Rules that reviewers would otherwise repeat: who may depend on whom, how long a file may be,
//! which names are no names, what the CI must run.

mod circles;
mod functions;
mod limits;
mod source;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder, the crates of ours that it may depend on, and crates that it must never name.
type Room = (
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
);

/// Crates that a room may depend on for its tests only.
const FOR_TESTS: &[(&str, &[&str])] = &[
    (
        "host/bundle",
        &[
            "mortise-grammar",
            "mortise-service",
            "mortise-tokenizer",
            "tokio",
        ],
    ),
    (
        "host/engine",
        &["mortise-cuda", "mortise-cuda-emulator", "serde_json"],
    ),
    ("host/cli", &["toml"]),
    ("host/model", &["mortise-cuda-emulator"]),
    (
        "kernels/cuda",
        &["mortise-cuda-emulator", "mortise-kernels"],
    ),
];

/// Each room with the rooms it may depend on, and crates it must never name. The same table, with
/// reasons, is in ARCHITECTURE.md.
const ROOMS: &[Room] = &[
    ("kernels", &[], &["candle-core", "tokio"]),
    ("kernels/cuda", &[], &["candle-core", "tokio"]),
    ("kernels/cuda/emulator", &["mortise-cuda"], &["tokio"]),
    (
        "host/model",
        &["mortise-cuda", "mortise-kernels"],
        &["tokio", "tokenizers", "wasmtime", "axum"],
    ),
    (
        "host/engine",
        &["mortise-model", "mortise-kernels"],
        &["axum", "serde_json", "tokenizers", "wasmtime", "time"],
    ),
    (
        "host/outbound",
        &[],
        &["axum", "candle-core", "serde_json", "wasmtime"],
    ),
    ("host/aot", &[], &["axum", "tokio"]),
    (
        "host/plugin",
        &["mortise-aot", "mortise-outbound"],
        &["axum", "candle-core", "tokenizers", "hyper"],
    ),
    (
        "host/models",
        &[
            "mortise-cuda",
            "mortise-engine",
            "mortise-hub",
            "mortise-model",
            "mortise-tokenizer",
        ],
        &["axum", "wasmtime", "tokenizers"],
    ),
    (
        "host/tokenizer",
        &[],
        &["axum", "candle-core", "tokio", "wasmtime"],
    ),
    (
        "host/service",
        &[
            "mortise-engine",
            "mortise-models",
            "mortise-plugin",
            "mortise-tokenizer",
        ],
        &[
            "axum",
            "wasmtime",
            "candle-core",
            "http",
            "hyper",
            "tokenizers",
        ],
    ),
    (
        "host/http",
        &[],
        &["candle-core", "wasmtime", "tokenizers", "clap", "toml"],
    ),
    (
        "host/api",
        &["mortise-http", "mortise-service"],
        &["candle-core", "wasmtime", "tokenizers", "clap", "toml"],
    ),
    (
        "host/telemetry",
        &[
            "mortise-engine",
            "mortise-http",
            "mortise-models",
            "mortise-plugin",
            "mortise-service",
        ],
        &[
            "axum",
            "candle-core",
            "wasmtime",
            "tokenizers",
            "clap",
            "toml",
        ],
    ),
    (
        "host/plugin-manager",
        &[
            "mortise-bundle",
            "mortise-models",
            "mortise-plugin",
            "mortise-service",
            "mortise-tokenizer",
        ],
        &[
            "axum",
            "candle-core",
            "wasmtime",
            "tokenizers",
            "clap",
            "toml",
        ],
    ),
    (
        "host/hub",
        &[],
        &["axum", "candle-core", "tokio", "wasmtime"],
    ),
    (
        "host/bundle",
        &["mortise-aot", "mortise-plugin"],
        &["axum", "tokio"],
    ),
    ("host/wit", &[], &["axum", "tokio", "wasmtime"]),
    (
        "host/config",
        &[
            "mortise-api",
            "mortise-engine",
            "mortise-http",
            "mortise-hub",
            "mortise-model",
            "mortise-models",
            "mortise-plugin",
            "mortise-plugin-manager",
            "mortise-service",
            "mortise-telemetry",
        ],
        &["axum", "clap", "candle-core", "wasmtime", "tokenizers"],
    ),
    (
        "host/harness",
        &[
            "mortise-bundle",
            "mortise-models",
            "mortise-plugin",
            "mortise-plugin-manager",
            "mortise-service",
        ],
        &[
            "axum",
            "clap",
            "toml",
            "candle-core",
            "wasmtime",
            "tokenizers",
        ],
    ),
    (
        "host/author",
        &[
            "mortise-harness",
            "mortise-plugin",
            "mortise-plugin-manager",
            "mortise-service",
            "mortise-wit",
        ],
        &["axum", "toml", "candle-core", "wasmtime", "tokenizers"],
    ),
    (
        "host/admin",
        &["mortise-http", "mortise-models", "mortise-plugin-manager"],
        &["clap", "toml", "candle-core", "wasmtime", "tokenizers"],
    ),
    (
        "host/cli",
        &[
            "mortise-admin",
            "mortise-api",
            "mortise-author",
            "mortise-bundle",
            "mortise-config",
            "mortise-cuda",
            "mortise-engine",
            "mortise-harness",
            "mortise-http",
            "mortise-hub",
            "mortise-model",
            "mortise-models",
            "mortise-plugin",
            "mortise-plugin-manager",
            "mortise-service",
            "mortise-telemetry",
            "mortise-tokenizer",
        ],
        &["axum", "toml", "candle-core", "wasmtime", "tokenizers"],
    ),
    ("plugins/chat-template", &[], &["tokio", "wasmtime"]),
    (
        "plugins/output-parser",
        &["mortise-plugin-sdk"],
        &["tokio", "wasmtime"],
    ),
    ("plugins/grammar", &[], &["tokio", "wasmtime"]),
    ("plugins/policy", &[], &["tokio", "wasmtime"]),
    ("wit/sdk", &[], &["tokio", "wasmtime"]),
];

/// Lines of a source file at most; tests apart.
const FILE_LINES: usize = 600;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn manifest(room: &str) -> toml::Table {
    toml_file(&root().join(room).join("Cargo.toml"))
}

fn toml_file(path: &Path) -> toml::Table {
    let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    text.parse()
        .unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Names in the tables of one kind of dependencies, those for certain targets included.
fn dependencies(manifest: &toml::Table, kind: &str) -> BTreeSet<String> {
    let names = |table: &toml::Table| -> Vec<String> {
        let dependencies = table.get(kind).and_then(toml::Value::as_table);
        let entries = dependencies.into_iter().flatten();
        let package = |(name, value): (&String, &toml::Value)| {
            let renamed = value.get("package").and_then(toml::Value::as_str);
            renamed.unwrap_or(name).to_owned()
        };
        entries.map(package).collect()
    };
    let targets = manifest.get("target").and_then(toml::Value::as_table);
    let of_targets = targets
        .into_iter()
        .flatten()
        .filter_map(|(_, target)| target.as_table());
    of_targets.chain([manifest]).flat_map(names).collect()
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("read a folder of the repository") {
        let path = entry.expect("read a folder entry").path();
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        if path.is_dir() && name != "target" && !name.starts_with('.') && name != "node_modules" {
            rust_files(&path, found);
        } else if name.ends_with(".rs") {
            found.push(path);
        }
    }
}

fn sources() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in ["host", "kernels", "plugins", "wit"] {
        rust_files(&root().join(folder), &mut found);
    }
    assert!(
        found.len() > 30,
        "the walk found only {} files",
        found.len()
    );
    found
}

fn is_test(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == "tests")
        || path.file_name().is_some_and(|name| name == "tests.rs")
}

/// Dependencies of a room that the tables do not allow.
fn wrong_arrows(room: &Room, manifest: &toml::Table) -> Vec<String> {
    let (_, allowed, forbidden) = room;
    let mut wrong = Vec::new();
    for (kind, more) in [
        ("dependencies", &[][..]),
        ("build-dependencies", &[]),
        ("dev-dependencies", extra_for_tests(room.0)),
    ] {
        for name in dependencies(manifest, kind) {
            let for_tests = kind == "dev-dependencies" && name.starts_with("mortise-test-");
            let known =
                for_tests || allowed.contains(&name.as_str()) || more.contains(&name.as_str());
            let ours = name.starts_with("mortise-") || name == "mortise";
            if !known && (ours || forbidden.contains(&name.as_str())) {
                wrong.push(format!("{}: [{kind}] {name}", room.0));
            }
        }
    }
    wrong
}

fn extra_for_tests(room: &str) -> &'static [&'static str] {
    let row = FOR_TESTS.iter().find(|(name, _)| *name == room);
    row.map_or(&[], |(_, names)| *names)
}

#[test]
fn arrows_between_rooms_point_the_agreed_way() {
    let wrong: Vec<_> = ROOMS
        .iter()
        .flat_map(|room| wrong_arrows(room, &manifest(room.0)))
        .collect();
    assert!(
        wrong.is_empty(),
        "ARCHITECTURE.md does not allow {wrong:#?}"
    );
}

#[test]
fn planted_arrows_are_found() {
    let engine = ROOMS.iter().find(|(name, ..)| *name == "host/engine");
    let planted = "
        [dependencies]
        mortise-model.workspace = true
        [build-dependencies]
        axum = \"0.8\"
        [target.'cfg(unix)'.dependencies]
        speech = { package = \"mortise-http\", path = \"../http\" }
        [dev-dependencies]
        mortise-cuda.workspace = true
        mortise-service.workspace = true
    ";
    let planted = planted.parse().expect("a manifest");
    let wrong = wrong_arrows(engine.expect("the engine's room"), &planted);
    let expected = [
        "host/engine: [dependencies] mortise-http",
        "host/engine: [build-dependencies] axum",
        "host/engine: [dev-dependencies] mortise-service",
    ];
    assert_eq!(wrong, expected);
}

#[test]
fn no_circle_between_the_files_of_a_crate() {
    let crates = ROOMS.iter().map(|(room, ..)| *room);
    let found: Vec<_> = crates
        .flat_map(|room| {
            let circles = circles::circles(&root().join(room).join("src"));
            circles
                .into_iter()
                .map(move |circle| format!("{room}: {circle}"))
        })
        .collect();
    assert!(found.is_empty(), "cut these circles: {found:#?}");
}

/// Dialects that name another dialect. A dialect is a folder below `src` that has an `api`, its routes.
fn dialects_that_know_another(src: &Path) -> Vec<String> {
    let graph = circles::graph(src);
    let dialect = |module: &circles::Module| {
        let first = module.first()?;
        let head = fs::read_to_string(src.join(first).join("mod.rs")).unwrap_or_default();
        head.contains("pub fn api(").then(|| first.clone())
    };
    let pairs = graph.iter().flat_map(|(module, named)| {
        let pairs = named.iter().map(|other| (dialect(module), dialect(other)));
        pairs.collect::<BTreeSet<_>>()
    });
    let foreign = pairs.filter_map(|pair| match pair {
        (Some(one), Some(other)) if one != other => Some(format!("{one} names {other}")),
        _ => None,
    });
    foreign.collect()
}

#[test]
fn no_dialect_knows_another() {
    let src = root().join("host/api/src");
    assert!(src.is_dir(), "no dialects at {}", src.display());
    let found = dialects_that_know_another(&src);
    assert!(
        found.is_empty(),
        "{found:?}; what they share lies beside them"
    );
}

#[test]
fn a_dialect_that_imports_another_is_found() {
    let folder = tempfile::tempdir().expect("make a folder");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("make a folder");
        fs::write(path, text).expect("write a file");
    };
    write("lib.rs", "mod one; mod two; mod shared;");
    write("shared/mod.rs", "pub struct Shared;");
    write(
        "two/mod.rs",
        "pub fn api() {}\nuse crate::shared::Shared;\npub struct Two;",
    );
    write(
        "one/mod.rs",
        "pub fn api() {}\nmod inner;\nuse crate::shared::Shared;",
    );
    write("one/inner.rs", "fn planted(_: crate::two::Two) {}");
    let found = dialects_that_know_another(folder.path());
    assert_eq!(found, ["one names two"]);
}

#[test]
fn functions_fit_on_a_screen() {
    let mut long = Vec::new();
    for path in sources().iter().filter(|path| !is_test(path)) {
        let text = fs::read_to_string(path).expect("read a source file");
        for (name, line, length) in functions::long_functions(&text) {
            long.push(format!("{}:{line} {name}: {length} lines", path.display()));
        }
    }
    let limit = functions::FUNCTION_LINES;
    assert!(
        long.is_empty(),
        "functions of more than {limit} lines: {long:#?}"
    );
}

#[test]
fn every_member_is_a_known_room() {
    for folder in ["host", "plugins"] {
        for entry in fs::read_dir(root().join(folder)).expect("read a folder") {
            let name = entry.expect("read a folder entry").file_name();
            let room = format!("{folder}/{}", name.to_string_lossy());
            assert!(
                ROOMS.iter().any(|(known, _, _)| *known == room),
                "{room} is not in the table of rooms"
            );
        }
    }
}

#[test]
fn files_can_be_read_in_a_sitting() {
    for path in sources().iter().filter(|path| !is_test(path)) {
        let lines = fs::read_to_string(path)
            .expect("read a source file")
            .lines()
            .count();
        assert!(
            lines <= FILE_LINES,
            "{} has {lines} lines; split what does not belong together",
            path.display()
        );
    }
}

#[test]
fn names_say_what_is_inside() {
    const NO_NAMES: &[&str] = &["util", "utils", "common", "helper", "helpers", "misc"];
    for path in sources() {
        for part in path.components() {
            let name = part.as_os_str().to_string_lossy();
            let stem = name.strip_suffix(".rs").unwrap_or(&name);
            assert!(
                !NO_NAMES.contains(&stem),
                "{}: {stem} is no name",
                path.display()
            );
        }
    }
}

#[test]
fn every_source_file_says_what_it_is_for() {
    for path in sources() {
        let text = fs::read_to_string(&path).expect("read a source file");
        assert!(
            text.starts_with("//!") || is_test(&path),
            "{} has no module head",
            path.display()
        );
    }
}

#[test]
fn unsafe_code_stays_at_the_edges() {
    const EDGES: &[&str] = &["kernels/", "host/plugin/", "host/model/", "wit/"];
    for path in sources() {
        let text = fs::read_to_string(&path).expect("read a source file");
        let relative = path.strip_prefix(root()).expect("a path below the root");
        let relative = relative.to_string_lossy();
        let uses = text.lines().any(|line| {
            let code = line.trim_start();
            !code.starts_with("//") && (code.contains("unsafe {") || code.contains("unsafe fn"))
        });
        assert!(
            !uses || EDGES.iter().any(|edge| relative.starts_with(edge)),
            "{relative} has unsafe code; it belongs in kernels/ or at an FFI edge"
        );
    }
}

/// Ids at the beginning of the name of a test, such as `a4` and `a5` of `a4_a5_what_it_shows`.
fn threat_ids(name: &str) -> Vec<String> {
    let id = |part: &&str| {
        let (letter, number) = part.split_at(part.len().min(1));
        let known = letter.chars().all(|letter| ('a'..='m').contains(&letter));
        known && !number.is_empty() && number.chars().all(|digit| digit.is_ascii_digit())
    };
    let ids = name.split('_').take_while(id);
    ids.map(str::to_uppercase).collect()
}

#[test]
fn threats_that_tests_cite_are_listed() {
    let page = fs::read_to_string(root().join("tests/THREATS.md")).expect("read the list");
    let mut files = sources();
    rust_files(&root().join("tests"), &mut files);
    files.retain(|path| !path.starts_with(root().join("kernels")));
    let mut cited = BTreeSet::new();
    for path in files {
        let text = fs::read_to_string(path).expect("read a source file");
        let after = |attribute: &str| {
            let tests = text.split(attribute).skip(1);
            let names = tests.filter_map(|test| test.split_once("fn ")?.1.split_once('('));
            names
                .flat_map(|(name, _)| threat_ids(name))
                .collect::<Vec<_>>()
        };
        cited.extend(after("#[test]"));
        cited.extend(after("#[tokio::test"));
    }
    let missing: Vec<_> = cited
        .iter()
        .filter(|id| !page.contains(&format!("| {id} |")))
        .collect();
    assert!(cited.len() > 40, "only {} ids were found", cited.len());
    assert!(
        missing.is_empty(),
        "tests/THREATS.md does not list {missing:?}"
    );
}

#[test]
fn every_wit_item_is_documented() {
    let versions = ["wit/v0.1", "wit/v0.2"].map(|version| root().join(version));
    let folders =
        versions.map(|version| fs::read_dir(version).expect("read a version of the contract"));
    for entry in folders.into_iter().flatten() {
        let path = entry.expect("read a folder entry").path();
        let text = fs::read_to_string(&path).expect("read a WIT file");
        let mut previous = "";
        for (number, line) in text.lines().enumerate() {
            let code = line.trim();
            let declares = [
                "interface ",
                "world ",
                "record ",
                "variant ",
                "enum ",
                "resource ",
            ]
            .iter()
            .any(|word| code.starts_with(word))
                || code.contains(": func(")
                || (code.starts_with("type ") && code.ends_with(';'));
            assert!(
                !declares || previous.starts_with("///"),
                "{}:{}: no doc comment above `{code}`",
                path.display(),
                number + 1
            );
            previous = code;
        }
    }
}

#[test]
fn ci_runs_the_command_that_the_readme_promises() {
    let readme = fs::read_to_string(root().join("README.md")).expect("read README.md");
    let ci = fs::read_to_string(root().join(".ci/run")).expect("read .ci/run");
    let command = "cargo test --release --workspace";
    assert!(
        readme.contains(command),
        "README.md does not show `{command}`"
    );
    assert!(ci.contains(command), ".ci/run does not run `{command}`");
}

#[test]
fn j12_the_sandbox_page_names_every_machine_that_is_shipped_for() {
    // What a runtime escapes from on one kind of processor it may not on another.
    let deny = toml_file(&root().join("deny.toml"));
    let targets = deny["graph"]["targets"].as_array().expect("targets");
    let page = fs::read_to_string(root().join("docs/plugins/sandbox.md")).expect("the page");
    let native = targets.iter().filter_map(toml::Value::as_str);
    let native: Vec<&str> = native
        .filter(|target| !target.starts_with("wasm"))
        .collect();
    assert!(native.contains(&"x86_64-unknown-linux-gnu"), "{native:?}");
    for target in native {
        let name = format!("`{target}`");
        assert!(
            page.contains(&name),
            "docs/plugins/sandbox.md says nothing of {name}"
        );
    }
    let advice = "Run untrusted plugins on x86-64";
    assert!(
        page.contains(advice),
        "docs/plugins/sandbox.md no longer advises: {advice}"
    );
}

#[test]
fn panics_unwind_in_the_release_profile() {
    // A panic in one request must end that request, not the process.
    let profile = &manifest(".")["profile"]["release"];
    assert_eq!(profile["panic"].as_str(), Some("unwind"));
}

/// Packages with their features, as cargo would choose them.
fn chosen_features(selection: &[&str]) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--offline", "--prefix", "none"])
        .args([
            "--target",
            "x86_64-unknown-linux-gnu",
            "--format",
            "{p} [{f}]",
        ])
        .args(selection)
        .current_dir(root())
        .output()
        .expect("run cargo tree");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| line.trim_end_matches(" (*)").replace(" (proc-macro)", ""))
        .collect()
}

#[test]
fn running_and_testing_share_what_is_compiled() {
    // Cargo chooses features for what a command selects. Where `cargo run` and `cargo test` differ in
    // one crate, everything above it is compiled twice: minutes on a fresh clone.
    let run = chosen_features(&["-p", "mortise", "-e", "normal,build"]);
    let test = chosen_features(&["--workspace", "-e", "normal,build,dev"]);
    let alone: Vec<_> = run.difference(&test).collect();
    assert!(
        run.len() > 200 && alone.is_empty(),
        "tests choose other features than these; add theirs to host/bundle/Cargo.toml: {alone:#?}"
    );
}
