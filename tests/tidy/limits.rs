//! `docs/limits.md` lists every bound of the project with the value that it has in the code.
//!
//! `MORTISE_UPDATE_LIMITS=1` writes changed values and missing rows into the page.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::{is_test, root, rust_files};

/// Page of all bounds: a heading and a table for each crate.
const PAGE: &str = "docs/limits.md";
/// Configuration keys with their defaults.
const DEFAULTS: &str = "host/config/src/default.toml";

/// A constant that bounds something: its value as the page writes it, and its doc comment.
struct Bound {
    value: String,
    doc: String,
}

/// Bounds by folder of the crate and name. Names may occur more than once in a crate.
type Bounds = BTreeMap<String, Vec<(String, Bound)>>;

#[test]
fn the_page_of_limits_lists_every_bound_with_its_value() {
    let page = fs::read_to_string(root().join(PAGE)).expect("the page");
    let bounds = bounds();
    assert!(
        bounds.len() > 5,
        "the walk found bounds in {} crates",
        bounds.len()
    );
    if std::env::var_os("MORTISE_UPDATE_LIMITS").is_some() {
        fs::write(root().join(PAGE), updated(&page, &bounds)).expect("write the page");
        return;
    }
    let listed = listed(&page);
    let mut wrong = Vec::new();
    for (room, bounds) in &bounds {
        for (name, bound) in bounds {
            let row = (room.clone(), name.clone(), bound.value.clone());
            if !listed.contains(&row) {
                wrong.push(format!(
                    "{room} lacks `{name}` with the value {}",
                    bound.value
                ));
            }
        }
    }
    for (room, name, value) in &listed {
        let known = bounds.get(room).into_iter().flatten();
        if !known
            .clone()
            .any(|(known, bound)| known == name && bound.value == *value)
        {
            wrong.push(format!("{room} has no `{name}` with the value {value}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{PAGE} differs from the code; `MORTISE_UPDATE_LIMITS=1 cargo test --test tidy limits` \
         mends it:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn the_page_of_limits_lists_keys_with_their_defaults() {
    let page = fs::read_to_string(root().join(PAGE)).expect("the page");
    let defaults = fs::read_to_string(root().join(DEFAULTS)).expect("the defaults");
    let (_, section) = page
        .split_once("## Configuration")
        .expect("a section of keys");
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows: BTreeMap<String, String> = section.lines().filter_map(row).collect();
    let keys = numbers_of(&defaults);
    for (key, value) in &rows {
        assert_eq!(keys.get(key), Some(value), "the default of {key} in {PAGE}");
    }
    for (key, value) in keys {
        let bounds = key.starts_with("limits.") || key.starts_with("server.max_");
        assert!(
            !bounds || rows.contains_key(&key),
            "{PAGE} lacks `{key}` = {value}"
        );
    }
}

/// Keys of the default file whose values are numbers.
fn numbers_of(defaults: &str) -> BTreeMap<String, String> {
    let mut section = String::new();
    let mut keys = BTreeMap::new();
    for line in defaults.lines() {
        if let Some(name) = line
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            name.clone_into(&mut section);
        } else if let Some((key, value)) = line.split_once(" = ")
            && !key.starts_with('#')
            && value.bytes().all(|byte| byte.is_ascii_digit())
        {
            keys.insert(format!("{section}.{key}"), value.to_owned());
        }
    }
    keys
}

/// Name and value of a row of a table.
fn row(line: &str) -> Option<(String, String)> {
    let mut cells = line.strip_prefix("| `")?.split(" | ");
    let name = cells.next()?.trim_end_matches('`').to_owned();
    Some((name, cells.next()?.to_owned()))
}

fn listed(page: &str) -> BTreeSet<(String, String, String)> {
    let mut room = None;
    let mut rows = BTreeSet::new();
    for line in page.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            room = heading.contains('/').then(|| heading.to_owned());
        } else if let (Some(room), Some((name, value))) = (&room, row(line)) {
            rows.insert((room.clone(), name, value));
        }
    }
    rows
}

/// The page with the values of the code; rows keep the rest of their text.
fn updated(page: &str, bounds: &Bounds) -> String {
    let (head, _) = page.split_once("\n## host/").expect("the first crate");
    let mut old: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    let mut room = String::new();
    for line in page.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            heading.clone_into(&mut room);
        } else if let Some((name, _)) = row(line) {
            let rest: Vec<&str> = line.splitn(4, " | ").skip(2).collect();
            let rows = old.entry((room.clone(), name)).or_default();
            rows.push(rest.join(" | "));
        }
    }
    let mut text = head.to_owned();
    for (room, bounds) in bounds {
        text += &format!(
            "\n## {room}\n\n| constant | value | on excess | meaning |\n|---|---|---|---|\n"
        );
        for (name, Bound { value, doc }) in bounds {
            let rows = old.get_mut(&(room.clone(), name.clone()));
            let kept = rows
                .filter(|rows| !rows.is_empty())
                .map(|rows| rows.remove(0));
            let rest = kept.unwrap_or_else(|| format!("refused | {doc} |"));
            text += &format!("| `{name}` | {value} | {rest}\n");
        }
    }
    text
}

/// All constants that are named as bounds, tests apart.
fn bounds() -> Bounds {
    let mut bounds = Bounds::new();
    for parent in ["host", "plugins"] {
        let folders = fs::read_dir(root().join(parent)).expect("a folder of crates");
        for folder in folders {
            let folder = folder.expect("a folder entry").path();
            let source = folder.join("src");
            if !source.is_dir() {
                continue;
            }
            let name = folder.file_name().and_then(|name| name.to_str());
            let room = format!("{parent}/{}", name.expect("a name"));
            let mut files = Vec::new();
            rust_files(&source, &mut files);
            files.sort();
            for file in files.iter().filter(|file| !is_test(file)) {
                bounds
                    .entry(room.clone())
                    .or_default()
                    .extend(bounds_in(file));
            }
        }
    }
    bounds.retain(|_, bounds| !bounds.is_empty());
    bounds
}

fn bounds_in(file: &Path) -> Vec<(String, Bound)> {
    let text = fs::read_to_string(file).expect("a source file");
    let mut doc = Vec::new();
    let mut found = Vec::new();
    for line in text.lines() {
        let line = line.trim_start();
        if line.starts_with("mod tests") {
            break;
        }
        if let Some(words) = line.strip_prefix("///") {
            doc.push(words.trim().to_owned());
            continue;
        }
        let doc = std::mem::take(&mut doc).join(" ");
        let Some((_, declared)) = line.split_once("const ") else {
            continue;
        };
        let Some((name, rest)) = declared.split_once(": ") else {
            continue;
        };
        let default = name.starts_with("DEFAULT_");
        let named = name.starts_with("MAX_") || name.ends_with("_MAX") || name.contains("_MAX_");
        let plain = name
            .bytes()
            .all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_');
        let Some((_, expression)) = rest
            .split_once(" = ")
            .filter(|_| named && plain && !default)
        else {
            continue;
        };
        let value = shown(expression.trim_end_matches(';'));
        let value = value.unwrap_or_else(|| panic!("{}: cannot read `{line}`", file.display()));
        found.push((name.to_owned(), Bound { value, doc }));
    }
    found
}

/// The value of a constant expression as the page writes it.
fn shown(expression: &str) -> Option<String> {
    for (call, unit) in [
        ("Duration::from_secs(", " s"),
        ("Duration::from_millis(", " ms"),
    ] {
        if let Some(number) = expression.strip_prefix(call) {
            return Some(format!("{}{unit}", sum(number.strip_suffix(')')?)?));
        }
    }
    sum(expression).map(|value| value.to_string())
}

/// Shifts and differences of products, which is all that bounds are made of.
fn sum(expression: &str) -> Option<u128> {
    if let Some((left, right)) = expression.rsplit_once(" - ") {
        return sum(left)?.checked_sub(sum(right)?);
    }
    let expression = expression.trim_start_matches('(').trim_end_matches(')');
    if let Some((left, right)) = expression.split_once(" << ") {
        return sum(left)?.checked_shl(u32::try_from(sum(right)?).ok()?);
    }
    let factors = expression
        .split(" * ")
        .map(|factor| factor.replace('_', "").parse::<u128>());
    factors
        .map(Result::ok)
        .try_fold(1_u128, |product, factor| product.checked_mul(factor?))
}

#[test]
fn expressions_of_bounds_are_understood() {
    for (expression, value) in [
        ("4096", "4096"),
        ("1 << 20", "1048576"),
        ("(1 << 16) - 1", "65535"),
        ("100 * 365 * 24 * 3_600_000", "3153600000000"),
        ("Duration::from_secs(60)", "60 s"),
        ("Duration::from_millis(5)", "5 ms"),
    ] {
        assert_eq!(shown(expression).as_deref(), Some(value), "{expression}");
    }
    assert_eq!(shown("OTHER"), None);
}
