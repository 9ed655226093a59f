//! `mortise plugin new`: a project from templates that are part of the program. It holds the package of its language as
//! it is published (the SDK, the headers, `mortise_plugin` or `mortise-plugin`), so that it builds without the server's
//! sources and without a registry that has the package. Taking it from one later is a line in the manifest.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail};
use mortise_harness::print_as;
use serde_json::json;

use crate::args::{Language, PluginNewArgs};
use crate::templates::{
    JAVASCRIPT, PYTHON, SDK, TYPES, TemplateFile, of_kind, of_language, sources,
};

/// Stand for the plugin's name and kind in the templates.
const NAME: &str = "plugin-name";
const KIND: &str = "plugin-kind";

/// Start of the test dependencies in the manifest of the SDK.
const SDK_TESTS: &str = "\n[dev-dependencies]";

/// Make the project, and print what to do next.
pub(crate) fn make(args: &PluginNewArgs) -> anyhow::Result<()> {
    check_name(&args.name)?;
    let folder = Path::new(&args.name);
    if folder.exists() {
        bail!("`{}` is there already; choose another name", args.name);
    }
    let kind = args.kind.as_str();
    let own = of_language(args.lang).iter().chain(of_kind(args.kind));
    for (path, text) in own.chain(sources(args.kind, args.lang)) {
        let text = text.replace(NAME, &args.name).replace(KIND, kind);
        write(&folder.join(path), &text)?;
    }
    for (path, text) in carried(args.lang) {
        write(&folder.join(path), text)?;
    }
    let steps = [vec![format!("cd {}", args.name)], steps(args)].concat();
    let made = json!({"folder": args.name, "kind": kind, "next": steps});
    print_as(args.json, &made, |_| {
        let mut text = format!("made `{}`; next:\n", args.name);
        for step in &steps {
            let _ = writeln!(text, "  {step}");
        }
        text
    })
}

/// Files of this release that a project carries unchanged.
fn carried(lang: Language) -> Vec<(String, &'static str)> {
    let named = |(path, text): &TemplateFile| ((*path).to_owned(), *text);
    match lang {
        Language::Rust => {
            let mut files: Vec<_> = SDK.iter().map(named).collect();
            for (path, text) in &mut files {
                if path == "sdk/Cargo.toml" {
                    *text = text.split(SDK_TESTS).next().unwrap_or(text);
                }
            }
            files
        }
        // Its headers are among the sources of the kind.
        Language::C => Vec::new(),
        Language::Python => packaged("mortise_plugin", &[PYTHON]),
        Language::Js => packaged("mortise-plugin", &[JAVASCRIPT, TYPES]),
    }
}

/// A package as it is published: its own files, and the WIT package in it.
fn packaged(name: &str, own: &[&[TemplateFile]]) -> Vec<(String, &'static str)> {
    let wit = mortise_wit::FILES.iter();
    let wit = wit.map(|(file, text)| (format!("{name}/wit/{file}"), *text));
    let own = own.iter().copied().flatten();
    own.map(|(path, text)| ((*path).to_owned(), *text))
        .chain(wit)
        .collect()
}

fn steps(args: &PluginNewArgs) -> Vec<String> {
    match args.lang {
        Language::Rust => vec![
            "cargo build --release --target wasm32-wasip2".to_owned(),
            format!(
                "mortise plugin test target/wasm32-wasip2/release/{}.wasm",
                args.name.replace('-', "_")
            ),
        ],
        Language::C | Language::Python => vec!["make test".to_owned()],
        Language::Js => vec!["npm install".to_owned(), "npm test".to_owned()],
    }
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let failed = || format!("cannot write `{}`", path.display());
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).with_context(failed)?;
    }
    fs::write(path, text).with_context(failed)
}

/// The name is that of a folder, of a package and of a file.
fn check_name(name: &str) -> anyhow::Result<()> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let begins = name
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_lowercase());
    if begins && name.len() <= 64 && name.bytes().all(plain) && !name.ends_with('-') {
        return Ok(());
    }
    bail!(
        "`{}` is no name for a plugin; use small letters, digits and `-`, such as my-policy",
        name.escape_default()
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_fit_for_folders_and_packages() {
        for name in ["a", "my-policy", "p2"] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        for name in ["", "-a", "a-", "2a", "../a", "A", "a b", "a/b", "a\n"] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn projects_carry_the_whole_sdk() {
        let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wit/sdk");
        let mut there = BTreeSet::from(["sdk/Cargo.toml".to_owned()]);
        for folder in ["src", "src/formats", "src/stream", "wit"] {
            for entry in fs::read_dir(sdk.join(folder)).expect("a folder of the SDK") {
                let entry = entry.expect("an entry");
                if !entry.path().is_dir() {
                    let name = entry.file_name();
                    there.insert(format!("sdk/{folder}/{}", name.to_string_lossy()));
                }
            }
        }
        let carried = carried(Language::Rust).into_iter().map(|(path, _)| path);
        assert_eq!(carried.collect::<BTreeSet<_>>(), there);
    }

    #[test]
    fn projects_resolve_nothing_that_only_tests_of_the_sdk_need() {
        let manifest = carried(Language::Rust).swap_remove(0).1;
        assert!(manifest.contains("wit-bindgen") && !manifest.contains("proptest"));
    }
}
