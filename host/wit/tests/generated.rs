//! Generated files that are committed equal what the WIT package says today. Run with
//! `MORTISE_UPDATE=1` to write it anew.

use std::path::{Path, PathBuf};

use wit_bindgen_c::Opts;
use wit_parser_of_generator::{Resolve, WorldId};

/// How the generator begins what refers to the object file.
const OBJECT_FILE: &str = "\n// Ensure that the *_component_type.o object is linked in";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The committed file must hold `text`; with `MORTISE_UPDATE=1` it is made to.
fn check(path: &str, text: &str) {
    let file = root().join(path);
    if std::env::var_os("MORTISE_UPDATE").is_some() {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, text).unwrap();
    }
    let committed = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        committed == text,
        "`{path}` is not what the WIT package says; run `MORTISE_UPDATE=1 cargo test --release -p mortise-wit`"
    );
}

#[test]
fn the_reference_is_up_to_date() {
    check(
        "docs/plugins/reference.md",
        &mortise_wit::reference().unwrap(),
    );
}

/// C headers and glue, by the generator that the component model's C tools use.
#[test]
fn the_c_bindings_are_up_to_date() {
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_path(root().join("wit/v0.3")).unwrap();
    let worlds = resolve.packages[package].worlds.clone();
    for (name, world) in worlds {
        let kind = name.strip_suffix("-plugin").unwrap();
        c_bindings(&resolve, world, kind);
    }
    // What some kinds may export besides.
    for (world, interface, folder) in [
        ("reasoning-marks", "reasoning", "output-parser/reasoning"),
        ("limits-of-callers", "quotas", "policy/quotas"),
    ] {
        let source = format!(
            "package mortise:{interface}; world {world} {{ export mortise:plugin/{interface}@0.3.0; }}"
        );
        let package = resolve.push_source("optional.wit", &source).unwrap();
        let id = resolve.packages[package].worlds[world];
        c_bindings(&resolve, id, folder);
    }
}

/// The files of a world, in a folder below `wit/c`.
fn c_bindings(resolve: &Resolve, world: WorldId, folder: &str) {
    let opts = Opts {
        // `mortise plugin pack` knows the world; the object file would only tell it again.
        no_object_file: true,
        ..Opts::default()
    };
    let mut files = Default::default();
    let mut resolve = resolve.clone();
    opts.build()
        .generate(&mut resolve, world, &mut files)
        .unwrap();
    for (file, content) in files.iter() {
        let text = std::str::from_utf8(content).unwrap();
        // The end of the glue calls into that object file, so that linkers keep it.
        let text = text.split(OBJECT_FILE).next().unwrap();
        check(&format!("wit/c/{folder}/{file}"), text);
    }
}

#[test]
fn every_item_of_the_reference_is_explained() {
    let page = mortise_wit::reference().unwrap();
    assert!(!page.contains("`?`") && !page.contains("<?") && !page.contains("| `` |"));
    for (index, _) in page.match_indices("\n### ") {
        let block: Vec<&str> = page[index + 1..].lines().take(3).collect();
        assert!(block[2].len() > 10, "{} is not explained", block[0]);
    }
}
