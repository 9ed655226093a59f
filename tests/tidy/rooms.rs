//! Dependencies between rooms: the table of ARCHITECTURE.md, and no circle between the files of a crate.

use std::collections::BTreeSet;
use std::fs;

use crate::{circles, manifest, root};

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
    ("host/cli", &["mortise-plugin-sdk", "toml"]),
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
        &["mortise-cuda", "mortise-files", "mortise-kernels"],
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
    (
        "host/supervise",
        &[],
        &["axum", "candle-core", "serde_json", "wasmtime"],
    ),
    ("host/aot", &[], &["axum", "tokio"]),
    (
        "host/files",
        &[],
        &["axum", "candle-core", "serde_json", "tokio", "wasmtime"],
    ),
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
            "mortise-files",
            "mortise-hub",
            "mortise-model",
            "mortise-tokenizer",
        ],
        &["axum", "wasmtime", "tokenizers"],
    ),
    (
        "host/upstream",
        &[
            "mortise-engine",
            "mortise-models",
            "mortise-supervise",
            "mortise-trace",
        ],
        &["axum", "candle-core", "tokenizers", "toml", "wasmtime"],
    ),
    (
        "host/child",
        &["mortise-engine", "mortise-models", "mortise-upstream"],
        &[
            "axum",
            "candle-core",
            "serde_json",
            "tokenizers",
            "toml",
            "wasmtime",
        ],
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
            "mortise-trace",
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
        "host/trace",
        &[],
        &["axum", "candle-core", "tokenizers", "toml", "wasmtime"],
    ),
    (
        "host/http",
        &["mortise-files", "mortise-trace"],
        &["candle-core", "wasmtime", "tokenizers", "clap", "toml"],
    ),
    (
        "host/spend",
        &["mortise-plugin", "mortise-service"],
        &["axum", "candle-core", "hyper", "redis", "wasmtime"],
    ),
    (
        "host/valkey",
        &["mortise-plugin"],
        &["axum", "candle-core", "hyper", "wasmtime", "serde_json"],
    ),
    (
        "host/store",
        &["mortise-supervise", "mortise-trace"],
        &[
            "axum",
            "candle-core",
            "wasmtime",
            "tokenizers",
            "serde_json",
        ],
    ),
    (
        "host/retrieval",
        &["mortise-kernels"],
        &["axum", "candle-core", "rusqlite", "tokio", "wasmtime"],
    ),
    (
        "host/search",
        &["mortise-retrieval", "mortise-store"],
        &["axum", "candle-core", "rusqlite", "wasmtime"],
    ),
    (
        "host/api",
        &[
            "mortise-http",
            "mortise-identity",
            "mortise-retrieval",
            "mortise-search",
            "mortise-service",
            "mortise-store",
            "mortise-trace",
        ],
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
            "mortise-trace",
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
            "mortise-files",
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
        &["mortise-files"],
        &["axum", "candle-core", "tokio", "wasmtime"],
    ),
    (
        "host/library",
        &["mortise-files", "mortise-hub", "mortise-object-store"],
        &["axum", "candle-core", "hyper", "wasmtime"],
    ),
    (
        "host/object-store",
        &[],
        &["axum", "candle-core", "hyper", "tokio", "wasmtime"],
    ),
    (
        "host/identity",
        &["mortise-files", "mortise-outbound", "mortise-store"],
        &["axum", "candle-core", "hyper", "wasmtime"],
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
            "mortise-files",
            "mortise-http",
            "mortise-hub",
            "mortise-identity",
            "mortise-library",
            "mortise-model",
            "mortise-models",
            "mortise-plugin",
            "mortise-plugin-manager",
            "mortise-service",
            "mortise-spend",
            "mortise-store",
            "mortise-telemetry",
            "mortise-trace",
            "mortise-valkey",
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
        "host/registry",
        &["mortise-outbound"],
        &["axum", "hyper", "wasmtime"],
    ),
    (
        "host/author",
        &[
            "mortise-harness",
            "mortise-plugin",
            "mortise-plugin-manager",
            "mortise-registry",
            "mortise-service",
            "mortise-wit",
        ],
        &["axum", "toml", "candle-core", "wasmtime", "tokenizers"],
    ),
    (
        "host/admin",
        &[
            "mortise-http",
            "mortise-identity",
            "mortise-library",
            "mortise-models",
            "mortise-plugin-manager",
            "mortise-spend",
        ],
        &["clap", "toml", "candle-core", "wasmtime", "tokenizers"],
    ),
    (
        "host/web",
        &["mortise-http"],
        &[
            "candle-core",
            "clap",
            "serde_json",
            "tokenizers",
            "toml",
            "wasmtime",
        ],
    ),
    (
        "host/cli",
        &[
            "mortise-admin",
            "mortise-api",
            "mortise-author",
            "mortise-bundle",
            "mortise-child",
            "mortise-config",
            "mortise-cuda",
            "mortise-engine",
            "mortise-files",
            "mortise-harness",
            "mortise-http",
            "mortise-hub",
            "mortise-identity",
            "mortise-library",
            "mortise-model",
            "mortise-models",
            "mortise-plugin",
            "mortise-plugin-manager",
            "mortise-service",
            "mortise-spend",
            "mortise-store",
            "mortise-supervise",
            "mortise-telemetry",
            "mortise-tokenizer",
            "mortise-trace",
            "mortise-upstream",
            "mortise-valkey",
            "mortise-web",
        ],
        &["axum", "toml", "candle-core", "wasmtime", "tokenizers"],
    ),
    (
        "plugins/chat-template",
        &["mortise-jinja"],
        &["tokio", "wasmtime"],
    ),
    ("plugins/jinja", &[], &["tokio", "wasmtime"]),
    (
        "plugins/output-parser",
        &["mortise-jinja", "mortise-plugin-sdk"],
        &["tokio", "wasmtime"],
    ),
    ("plugins/grammar", &[], &["tokio", "wasmtime"]),
    ("plugins/policy", &[], &["tokio", "wasmtime"]),
    ("plugins/document-reader", &[], &["tokio", "wasmtime"]),
    ("wit/sdk", &[], &["tokio", "wasmtime"]),
];

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

/// Rooms that a row of the table in ARCHITECTURE.md names, and those that it lets them depend on.
fn row_of_the_map(line: &str) -> Option<(Vec<&str>, BTreeSet<String>)> {
    let cells: Vec<&str> = line
        .strip_prefix("| ")?
        .strip_suffix(" |")?
        .split(" | ")
        .collect();
    let [rooms, _, below] = cells[..] else {
        return None;
    };
    let rooms = rooms.split('`').skip(1).step_by(2).collect();
    // Notes in brackets, and `to build` of what a build script needs, name no room.
    let bare = below
        .split('(')
        .map(|part| part.rsplit_once(')').map_or(part, |(_, rest)| rest));
    let bare = bare.collect::<String>().replace(" to build", "");
    let names = bare
        .split([',', ';'])
        .map(str::trim)
        .filter(|name| !name.is_empty() && *name != "–");
    let packages = names.map(|name| match name {
        "kernels/cuda" => "mortise-cuda".to_owned(),
        name => format!("mortise-{name}"),
    });
    Some((rooms, packages.collect()))
}

#[test]
fn the_map_says_what_is_held() {
    // What depends on nearly all is described in words.
    let in_words = ["host/cli", "host/config"];
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the page");
    let rows: Vec<_> = page.lines().filter_map(row_of_the_map).collect();
    let rooms = ROOMS
        .iter()
        .filter(|(room, ..)| room.starts_with("host/") && !in_words.contains(room));
    for (room, allowed, _) in rooms {
        let row = rows.iter().find(|(rooms, _)| rooms.contains(room));
        let (named, below) = row.unwrap_or_else(|| panic!("ARCHITECTURE.md has no row for {room}"));
        if named.len() > 1 {
            continue;
        }
        let allowed: BTreeSet<String> = allowed.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(
            *below, allowed,
            "{room}: ARCHITECTURE.md, and the table of this test"
        );
    }
    let planted =
        row_of_the_map("| `host/a`, `wit/` | what it is | b (c, d); kernels/cuda, e to build |");
    let (rooms, below) = planted.expect("a row");
    assert_eq!(rooms, ["host/a", "wit/"]);
    assert_eq!(
        below,
        ["mortise-b", "mortise-cuda", "mortise-e"]
            .map(str::to_owned)
            .into()
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
