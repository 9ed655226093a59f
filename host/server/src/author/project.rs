//! `mortise plugin new`: a project from templates that are part of the program. It holds the WIT
//! package of this release, so that it builds without the server's sources.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail};

use crate::cli::{Language, PluginNewArgs};
use crate::config::BindingKind;

/// Stands for the plugin's name in the templates.
const NAME: &str = "plugin-name";

/// A file of a project: its path and its text.
type File = (&'static str, &'static str);

macro_rules! template {
    ($path:literal) => {
        include_str!(concat!("../../templates/", $path))
    };
}

macro_rules! wit {
    ($file:literal) => {
        (
            concat!("wit/", $file),
            include_str!(concat!("../../../../wit/v0.1/", $file)),
        )
    };
}

/// The files of every Rust project.
const RUST: [File; 6] = [
    ("Cargo.toml", template!("rust/Cargo.toml.in")),
    (".gitignore", "/target\n"),
    wit!("types.wit"),
    wit!("capabilities.wit"),
    wit!("kinds.wit"),
    wit!("worlds.wit"),
];

/// The files of a kind.
fn files_of(kind: BindingKind) -> &'static [File] {
    match kind {
        BindingKind::Policy => &[
            ("src/lib.rs", template!("rust/policy/lib.rs.in")),
            (
                "settings.schema.json",
                template!("rust/policy/settings.schema.json"),
            ),
            (
                "cases/allowed.json",
                template!("rust/policy/cases/allowed.json"),
            ),
            (
                "cases/blocked.json",
                template!("rust/policy/cases/blocked.json"),
            ),
            (
                "cases/wrong-settings.json",
                template!("rust/policy/cases/wrong-settings.json"),
            ),
        ],
        BindingKind::ChatTemplate => &[
            ("src/lib.rs", template!("rust/chat-template/lib.rs.in")),
            (
                "settings.schema.json",
                template!("rust/chat-template/settings.schema.json"),
            ),
            (
                "cases/two-turns.json",
                template!("rust/chat-template/cases/two-turns.json"),
            ),
            (
                "cases/injection.json",
                template!("rust/chat-template/cases/injection.json"),
            ),
            (
                "cases/no-text.json",
                template!("rust/chat-template/cases/no-text.json"),
            ),
        ],
        BindingKind::OutputParser => &[
            ("src/lib.rs", template!("rust/output-parser/lib.rs.in")),
            (
                "settings.schema.json",
                template!("rust/output-parser/settings.schema.json"),
            ),
            (
                "cases/call.json",
                template!("rust/output-parser/cases/call.json"),
            ),
            (
                "cases/plain.json",
                template!("rust/output-parser/cases/plain.json"),
            ),
            (
                "cases/undeclared.json",
                template!("rust/output-parser/cases/undeclared.json"),
            ),
        ],
        BindingKind::Tool => &[
            ("src/lib.rs", template!("rust/tool/lib.rs.in")),
            (
                "settings.schema.json",
                template!("rust/tool/settings.schema.json"),
            ),
            (
                "cases/declared.json",
                template!("rust/tool/cases/declared.json"),
            ),
            (
                "cases/counted.json",
                template!("rust/tool/cases/counted.json"),
            ),
            (
                "cases/too-long.json",
                template!("rust/tool/cases/too-long.json"),
            ),
            (
                "cases/wrong-arguments.json",
                template!("rust/tool/cases/wrong-arguments.json"),
            ),
        ],
        BindingKind::Grammar => &[
            ("src/lib.rs", template!("rust/grammar/lib.rs.in")),
            (
                "settings.schema.json",
                template!("rust/grammar/settings.schema.json"),
            ),
            (
                "cases/one-of.json",
                template!("rust/grammar/cases/one-of.json"),
            ),
            (
                "cases/unsupported.json",
                template!("rust/grammar/cases/unsupported.json"),
            ),
        ],
    }
}

/// Make the project; returns what to do next.
pub(crate) fn make(args: &PluginNewArgs) -> anyhow::Result<String> {
    check_name(&args.name)?;
    let folder = Path::new(&args.name);
    if folder.exists() {
        bail!("`{}` is there already; choose another name", args.name);
    }
    let common = match args.lang {
        Language::Rust => &RUST,
    };
    for (path, text) in common.iter().chain(files_of(args.kind)) {
        let path = folder.join(path);
        let failed = || format!("cannot write `{}`", path.display());
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).with_context(failed)?;
        }
        fs::write(&path, text.replace(NAME, &args.name)).with_context(failed)?;
    }
    let mut text = String::new();
    let file = args.name.replace('-', "_");
    let _ = writeln!(text, "made `{}`; next:", args.name);
    let _ = writeln!(text, "  cd {}", args.name);
    let _ = writeln!(text, "  cargo build --release --target wasm32-wasip2");
    let _ = writeln!(
        text,
        "  mortise plugin test target/wasm32-wasip2/release/{file}.wasm"
    );
    Ok(text)
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
}
