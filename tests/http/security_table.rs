//! `docs/security.md` says what the code does: its constants and the defaults of its keys.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut ancestors = folder.ancestors();
    let found = ancestors.find(|folder| folder.join("docs/security.md").exists());
    found.expect("the repository").to_owned()
}

fn page() -> String {
    fs::read_to_string(root().join("docs/security.md")).expect("read the page")
}

/// All Rust files of the server.
fn sources(folder: &Path, into: &mut String) {
    for entry in fs::read_dir(folder).expect("read a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir()
            && path
                .file_name()
                .is_some_and(|name| name != "target" && name != "tests")
        {
            sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push_str(&fs::read_to_string(&path).expect("read a source"));
        }
    }
}

/// Values of a constant's definitions, as the page writes them.
fn values(code: &str, name: &str) -> Vec<String> {
    let begin = format!("const {name}: ");
    let definitions = code.match_indices(&begin).filter_map(|(at, _)| {
        let definition = &code[at..];
        let (_, value) = definition.split_once(" = ")?;
        let (value, _) = value.split_once(';')?;
        Some(evaluated(value))
    });
    definitions.collect()
}

/// A product, a shift or a duration, as a number with its unit.
fn evaluated(value: &str) -> String {
    let number = |text: &str| -> u64 {
        let text = text.trim().replace('_', "");
        text.parse()
            .unwrap_or_else(|_| panic!("{text:?} of {value:?} is no number"))
    };
    for (begin, unit) in [
        ("Duration::from_secs(", "s"),
        ("Duration::from_millis(", "ms"),
    ] {
        if let Some(inner) = value.strip_prefix(begin) {
            return format!("{} {unit}", evaluated(inner.trim_end_matches(')')));
        }
    }
    if let Some((left, right)) = value.split_once("<<") {
        return (number(left) << number(right)).to_string();
    }
    value.split('*').map(number).product::<u64>().to_string()
}

#[test]
fn constants_of_the_page_are_those_of_the_code() {
    let mut code = String::new();
    sources(&root().join("host"), &mut code);
    let page = page();
    let (_, table) = page.split_once("## Constants").expect("the table");
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `"));
    let mut checked = 0;
    for row in rows {
        let (name, rest) = row.split_once("` | ").expect("a name");
        let (value, _) = rest.split_once(" | ").expect("a value");
        let found = values(&code, name);
        assert!(
            found.iter().any(|found| found == value),
            "`{name}` is {value} on the page and {found:?} in the code"
        );
        checked += 1;
    }
    assert!(checked >= 15, "{checked} rows");
}

#[test]
fn defaults_of_the_page_are_those_of_the_configuration() {
    let output = std::process::Command::new(crate::support::binary())
        .args(["config", "print-default"])
        .output()
        .expect("run mortise");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let mut defaults = BTreeMap::new();
    let mut table = "";
    for line in text.lines() {
        if let Some(name) = line
            .strip_prefix('[')
            .and_then(|line| line.strip_suffix(']'))
        {
            table = name;
        } else if let Some((key, value)) = line.split_once(" = ")
            && !line.starts_with('#')
        {
            defaults.insert(format!("{table}.{key}"), value.to_owned());
        }
    }
    let page = page();
    let (_, table) = page
        .split_once("## What a caller can hold")
        .expect("the table");
    let (table, _) = table
        .split_once("## Constants")
        .expect("the end of the table");
    let mut checked = 0;
    for row in table.lines().filter(|line| line.starts_with("| ")).skip(1) {
        let keys = row
            .trim_end_matches(" |")
            .rsplit(" | ")
            .next()
            .expect("a cell");
        for entry in keys.split(", ").filter(|entry| entry.starts_with('`')) {
            let (key, value) = entry.split_once("` (").expect("a default");
            let (key, value) = (key.trim_start_matches('`'), value.trim_end_matches(')'));
            assert_eq!(defaults.get(key).map(String::as_str), Some(value), "{key}");
            checked += 1;
        }
    }
    assert!(checked >= 10, "{checked} keys");
}
