//! `docs/security.md` says what the code does: its constants, the defaults of its keys, and every bound of something that
//! callers share.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Bounds of shared things that are no resource of a caller's, each with the reason.
const EXEMPT: [(&str, &str); 4] = [
    (
        "MAX_LISTED_REQUESTS",
        "entries of an answer, which is made anew for each",
    ),
    (
        "MAX_LISTED_QUEUES",
        "entries of an answer, which is made anew for each",
    ),
    (
        "MAX_LISTED_COLLECTIONS",
        "entries of an answer, which is made anew for each",
    ),
    (
        "FORCED_MAX",
        "tokens ahead of one sequence, which holds them anyway",
    ),
];

/// Crates whose bounds hold nothing of callers: what reads files of operators, and command lines.
const WITHOUT_CALLERS: [&str; 13] = [
    "host/aot",
    "host/author",
    "host/child",
    "host/cli",
    "host/config",
    "host/harness",
    "host/hub",
    "host/model",
    "host/object-store",
    "host/registry",
    "host/tokenizer",
    "host/wit",
    "plugins/",
];

/// Words of [`limits.md`](../../docs/limits.md) for what happens when many hold something together. Where a bound is of
/// one request, that is refused with 400, 413, 414 or 431, or cut, before it holds anything.
const SHARED: [&str; 20] = [
    "429 ",
    "503 ",
    "507 ",
    "`too_many",
    "_full`",
    "wait",
    "forgotten",
    "evicted",
    "given up",
    "not kept",
    "missed",
    "dropped",
    "closed",
    "counted as",
    "begins anew",
    "lost",
    "make room",
    "number is told",
    "follows in the next",
    "written next",
];

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

fn code() -> String {
    let mut code = String::new();
    sources(&root().join("host"), &mut code);
    code
}

/// Values of a constant's definitions, as the page writes them.
fn values(code: &str, name: &str) -> Vec<String> {
    let begin = format!("const {name}: ");
    let definitions = code.match_indices(&begin).filter_map(|(at, _)| {
        let definition = &code[at..];
        let (_, value) = definition.split_once(" =")?;
        let (value, _) = value.split_once(';')?;
        Some(evaluated(value.trim()))
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

/// Constants of the second table, with their values.
fn constants(page: &str) -> Vec<(String, String)> {
    let (_, table) = page.split_once("## Constants").expect("the table");
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `"));
    let rows = rows.map(|row| {
        let (name, rest) = row.split_once("` | ").expect("a name");
        let (value, _) = rest.split_once(" | ").expect("a value");
        (name.to_owned(), value.to_owned())
    });
    rows.collect()
}

/// A row of the first table.
struct Resource {
    name: String,
    unauthenticated: String,
    bound: String,
    share: String,
    keys: String,
}

fn resources(page: &str) -> Vec<Resource> {
    let (_, table) = page
        .split_once("## What a caller can hold")
        .expect("the table");
    let (table, _) = table
        .split_once("## Constants")
        .expect("the end of the table");
    let rows = table.lines().filter(|line| line.starts_with("| ")).skip(1);
    let rows = rows.map(|row| {
        let row = row.trim_start_matches("| ").trim_end_matches(" |");
        let cells: Vec<String> = row.split(" | ").map(str::to_owned).collect();
        let [name, unauthenticated, _, _, bound, share, keys] =
            cells.try_into().unwrap_or_else(|cells: Vec<String>| {
                panic!("{row:?} has {} cells, not seven", cells.len())
            });
        Resource {
            name,
            unauthenticated,
            bound,
            share,
            keys,
        }
    });
    rows.collect()
}

/// Texts between backticks, each with the value in brackets behind it, if there is one.
fn named(cell: &str) -> Vec<(String, Option<String>)> {
    let mut parts = cell.split('`');
    parts.next();
    let mut named = Vec::new();
    while let (Some(name), Some(after)) = (parts.next(), parts.next()) {
        let value = after
            .strip_prefix(" (")
            .and_then(|rest| rest.split_once(')'));
        named.push((name.to_owned(), value.map(|(value, _)| value.to_owned())));
    }
    named
}

fn is_constant(name: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    name.bytes().all(known)
}

/// A key of the configuration, such as `limits.max_queue`.
fn is_key(name: &str) -> bool {
    name.split_once('.').is_some_and(|(table, key)| {
        let known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        !table.is_empty() && !key.is_empty() && (table.to_owned() + key).bytes().all(known)
    })
}

/// Defaults of the keys, and the keys that have none.
fn defaults() -> (BTreeMap<String, String>, BTreeSet<String>) {
    let output = std::process::Command::new(crate::support::binary())
        .args(["config", "print-default"])
        .output()
        .expect("run mortise");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let (mut defaults, mut without) = (BTreeMap::new(), BTreeSet::new());
    let mut table = "";
    for line in text.lines() {
        if let Some(name) = line
            .strip_prefix('[')
            .and_then(|line| line.strip_suffix(']'))
        {
            table = name;
        } else if let Some((key, value)) = line.split_once(" = ") {
            let value = value.split(" #").next().unwrap_or(value).trim();
            match key.strip_prefix("# ") {
                Some(key) => drop(without.insert(format!("{table}.{key}"))),
                None => drop(defaults.insert(format!("{table}.{key}"), value.to_owned())),
            }
        }
    }
    (defaults, without)
}

#[test]
fn constants_of_the_page_are_those_of_the_code() {
    let (code, page) = (code(), page());
    let mut claimed = constants(&page);
    assert!(claimed.len() >= 15, "{} rows", claimed.len());
    for resource in resources(&page) {
        for (name, value) in named(&(resource.bound + " " + &resource.share)) {
            if is_constant(&name) {
                let value =
                    value.unwrap_or_else(|| panic!("{}: `{name}` has no value", resource.name));
                claimed.push((name, value));
            }
        }
    }
    for (name, value) in claimed {
        let found = values(&code, &name);
        assert!(
            found.contains(&value),
            "`{name}` is {value} on the page and {found:?} in the code"
        );
    }
}

#[test]
fn defaults_of_the_page_are_those_of_the_configuration() {
    let (defaults, without) = defaults();
    let mut checked = 0;
    for resource in resources(&page()) {
        let mut of_row = BTreeSet::new();
        for (key, value) in named(&resource.keys) {
            assert_eq!(
                defaults.get(&key),
                value.as_ref(),
                "{}: {key}",
                resource.name
            );
            of_row.insert(key);
            checked += 1;
        }
        // A key that is named as the bound stands with its default behind, if it has one.
        for (key, _) in named(&resource.bound) {
            if is_key(&key) && !of_row.contains(&key) {
                assert!(
                    without.contains(&key) || defaults.contains_key(&key),
                    "{key}"
                );
                assert!(
                    without.contains(&key) || resource.keys != "–" || is_elsewhere(&key),
                    "{}: the default of `{key}` is missing",
                    resource.name
                );
            }
        }
    }
    assert!(checked >= 40, "{checked} keys");
}

/// Whether another row has the default of a key.
fn is_elsewhere(key: &str) -> bool {
    let resources = resources(&page());
    let mut keys = resources.iter().flat_map(|resource| named(&resource.keys));
    keys.any(|(known, _)| known == key)
}

/// Resources that a caller can hold have a bound by name, and a share: keyless callers most of all, who are anybody.
#[test]
fn every_resource_has_a_bound_and_a_share() {
    let resources = resources(&page());
    assert!(resources.len() >= 50, "{} resources", resources.len());
    let mut keyless = 0;
    for resource in &resources {
        let name = &resource.name;
        let bounds = named(&resource.bound);
        let bounded = bounds
            .iter()
            .any(|(bound, _)| is_constant(bound) || is_key(bound));
        // The only one that nothing is held of.
        assert!(
            bounded || resource.unauthenticated == "none of its own",
            "{name}: nothing that the code has bounds it"
        );
        let share = resource.share.trim();
        assert!(!share.is_empty() && share != "–", "{name}: it has no share");
        if resource.unauthenticated != "none" {
            keyless += 1;
        }
    }
    assert!(
        keyless >= 15,
        "{keyless} resources of callers without a key"
    );
}

#[test]
fn every_bound_of_what_callers_share_is_on_the_page() {
    let limits = fs::read_to_string(root().join("docs/limits.md")).expect("read the limits");
    let page = page();
    let mut known: BTreeSet<(String, String)> = constants(&page).into_iter().collect();
    let mut keys = BTreeSet::new();
    for resource in resources(&page) {
        for (name, value) in named(&format!(
            "{} {} {}",
            resource.bound, resource.share, resource.keys
        )) {
            keys.insert(name.clone());
            known.extend(value.map(|value| (name, value)));
        }
    }
    let (mut room, mut seen, mut missing) = (String::new(), 0, Vec::new());
    let mut unused: BTreeSet<&str> = EXEMPT.iter().map(|(name, _)| *name).collect();
    for line in limits.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            heading.clone_into(&mut room);
        }
        let Some(row) = line.strip_prefix("| `") else {
            continue;
        };
        let mut cells = row.split(" | ");
        let name = cells.next().unwrap_or_default().trim_end_matches('`');
        let (value, excess) = (
            cells.next().unwrap_or_default(),
            cells.next().unwrap_or_default(),
        );
        let of_callers = !WITHOUT_CALLERS.iter().any(|known| room.starts_with(known));
        if !of_callers
            || !SHARED
                .iter()
                .any(|word| format!("{excess} ").contains(word))
        {
            continue;
        }
        seen += 1;
        let pair = (name.to_owned(), value.to_owned());
        if known.contains(&pair) || is_key(name) && keys.contains(name) {
            continue;
        }
        match EXEMPT.iter().find(|(exempt, _)| *exempt == name) {
            Some((exempt, _)) => drop(unused.remove(exempt)),
            None => missing.push(format!("{room}: `{name}` ({value}), on excess: {excess}")),
        }
    }
    assert!(seen >= 70, "{seen} bounds");
    assert!(
        missing.is_empty(),
        "docs/security.md has no resource with these bounds; add a row, or an exemption with its reason:\n{}",
        missing.join("\n")
    );
    assert!(unused.is_empty(), "exempt and not needed: {unused:?}");
}
