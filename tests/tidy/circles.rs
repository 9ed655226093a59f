//! No circle between the files of a crate. A module and its descendants may name each other: they are
//! one room. Between any others, dependencies point one way.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::source::{code_only, without_tests};

/// A module by its path below the crate's root, which is the empty path.
pub(crate) type Module = Vec<String>;

/// Modules of a crate with those that each names.
pub(crate) type Graph = BTreeMap<Module, BTreeSet<Module>>;

/// Modules that exist for tests only.
const TEST_MODULES: &[&str] = &["tests", "testing", "fakes"];

/// A name that a file mentions: an absolute path and, from a `use`, the name it goes by here.
struct Mention {
    path: Module,
    alias: Option<String>,
    public: bool,
}

/// Circles between the files below `src`: each with its modules and whom of the circle they name.
pub(crate) fn circles(src: &Path) -> Vec<String> {
    let graph = graph(src);
    let mut found = BTreeSet::new();
    for module in graph.keys() {
        let circle: BTreeSet<_> = reachable(&graph, module)
            .into_iter()
            .filter(|other| reachable(&graph, other).contains(module))
            .collect();
        if circle.len() > 1 {
            found.insert(circle);
        }
    }
    found
        .iter()
        .map(|circle| describe(&graph, circle))
        .collect()
}

fn describe(graph: &Graph, circle: &BTreeSet<Module>) -> String {
    let line = |module: &Module| {
        let named = graph[module].intersection(circle);
        let named: Vec<_> = named.map(|path| path.join("::")).collect();
        format!("{} names {}", module.join("::"), named.join(", "))
    };
    circle.iter().map(line).collect::<Vec<_>>().join("; ")
}

fn reachable(graph: &Graph, from: &Module) -> BTreeSet<Module> {
    let mut seen = BTreeSet::new();
    let mut waiting: Vec<&Module> = graph[from].iter().collect();
    while let Some(module) = waiting.pop() {
        if let Some(next) = graph.get(module)
            && seen.insert(module.clone())
        {
            waiting.extend(next);
        }
    }
    seen
}

/// All modules below `src`, each with the others that it names, kin aside.
pub(crate) fn graph(src: &Path) -> Graph {
    let mut code = BTreeMap::new();
    read(src, &Vec::new(), &mut code);
    let mentions: BTreeMap<&Module, Vec<Mention>> = code
        .iter()
        .map(|(module, text)| (module, mentions(module, text, &code)))
        .collect();
    let mut exports = BTreeMap::new();
    for (module, mentions) in &mentions {
        for mention in mentions.iter().filter(|mention| mention.public) {
            if let Some(alias) = &mention.alias {
                exports.insert(child(module, alias), mention.path.clone());
            }
        }
    }
    let of_tests = |module: &Module| {
        let mut parts = module.iter();
        parts.any(|part| TEST_MODULES.contains(&part.as_str()))
    };
    let named = mentions.into_iter().filter(|(module, _)| !of_tests(module));
    named
        .map(|(module, mentions)| {
            let targets = mentions.into_iter();
            let targets = targets.map(|mention| owner(mention.path, &code, &exports));
            let others = targets.filter(|target| !related(module, target));
            (module.clone(), others.collect())
        })
        .collect()
}

/// One is an ancestor of the other, or they are the same.
fn related(one: &Module, other: &Module) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

fn child(module: &Module, name: &str) -> Module {
    let mut path = module.clone();
    path.push(name.to_owned());
    path
}

/// Code of all files below `folder`, by module.
fn read(folder: &Path, module: &Module, code: &mut BTreeMap<Module, String>) {
    for entry in fs::read_dir(folder).expect("read a source folder") {
        let path = entry.expect("read a folder entry").path();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            read(&path, &child(module, &stem), code);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = code_only(&fs::read_to_string(&path).expect("read a source file"));
            let name = match &*stem {
                "mod" => module.clone(),
                "lib" | "main" if module.is_empty() => module.clone(),
                stem => child(module, stem),
            };
            let kept = without_tests(&text);
            code.entry(name).or_default().push_str(kept);
        }
    }
}

/// The module that a path belongs to, through what modules export of others.
fn owner(
    mut path: Module,
    code: &BTreeMap<Module, String>,
    exports: &BTreeMap<Module, Module>,
) -> Module {
    let mut followed = BTreeSet::new();
    while let Some(length) = (1..=path.len()).rev().find(|&length| {
        let start = &path[..length];
        exports.contains_key(start) && !code.contains_key(start)
    }) {
        let start = path[..length].to_vec();
        let mut target = exports[&start].clone();
        if !followed.insert(start) {
            break;
        }
        target.extend_from_slice(&path[length..]);
        path = target;
    }
    while !code.contains_key(&path) && path.pop().is_some() {}
    path
}

fn mentions(module: &Module, code: &str, files: &BTreeMap<Module, String>) -> Vec<Mention> {
    let mut found = Vec::new();
    for statement in code.split(';') {
        let Some((before, tree)) = statement.rsplit_once("use ") else {
            continue;
        };
        let before = before.rsplit(['}', '{', ']']).next().unwrap_or_default();
        if before
            .trim_end()
            .ends_with(|letter: char| letter.is_alphanumeric())
            && !before.contains("pub")
        {
            continue;
        }
        let mut leaves = Vec::new();
        expand(tree, &[], &mut leaves);
        for (path, alias) in leaves {
            if let Some(path) = absolute(module, &path, files) {
                let alias = Some(alias).filter(|alias| alias != "*");
                let public = before.contains("pub");
                found.push(Mention {
                    path,
                    alias,
                    public,
                });
            }
        }
    }
    for path in inline_paths(code) {
        if let Some(path) = absolute(module, &path, files) {
            found.push(Mention {
                path,
                alias: None,
                public: false,
            });
        }
    }
    found
}

/// Leaves of a tree of `use`, each with the name that it goes by.
fn expand(tree: &str, prefix: &[String], leaves: &mut Vec<(Module, String)>) {
    let tree = tree.trim();
    if let Some((start, group)) = tree.split_once('{') {
        let mut path = prefix.to_vec();
        path.extend(parts(start));
        let group = group.trim_end().strip_suffix('}').unwrap_or(group);
        let (mut depth, mut begun) = (0_usize, 0);
        for (at, letter) in group.char_indices() {
            match letter {
                '{' => depth += 1,
                '}' => depth = depth.saturating_sub(1),
                ',' if depth == 0 => {
                    expand(&group[begun..at], &path, leaves);
                    begun = at + 1;
                }
                _ => {}
            }
        }
        expand(&group[begun..], &path, leaves);
        return;
    }
    let (path, alias) = tree.split_once(" as ").unwrap_or((tree, ""));
    let mut full = prefix.to_vec();
    full.extend(parts(path));
    full.pop_if(|last| last == "self");
    if let Some(last) = full.last() {
        let alias = alias.trim();
        let alias = if alias.is_empty() { last } else { alias };
        leaves.push((full.clone(), alias.to_owned()));
    }
}

fn parts(path: &str) -> impl Iterator<Item = String> {
    let parts = path.split("::").map(str::trim);
    parts.filter(|part| !part.is_empty()).map(str::to_owned)
}

/// Paths in the code that begin with `crate`, `super` or `self`.
fn inline_paths(code: &str) -> Vec<Module> {
    let word = |letter: char| letter.is_alphanumeric() || letter == '_';
    let mut found = Vec::new();
    for start in ["crate::", "super::", "self::"] {
        for (at, _) in code.match_indices(start) {
            if code[..at].ends_with(|letter| word(letter) || letter == ':' || letter == '$') {
                continue;
            }
            let end = code[at..].find(|letter| !word(letter) && letter != ':');
            let path = &code[at..end.map_or(code.len(), |end| at + end)];
            found.push(parts(path).collect());
        }
    }
    found
}

/// A path from the crate's root, if it leads into the crate.
fn absolute(module: &Module, path: &[String], files: &BTreeMap<Module, String>) -> Option<Module> {
    let (first, rest) = path.split_first()?;
    let mut base = module.clone();
    match first.as_str() {
        "crate" => return Some(rest.to_vec()),
        "self" => base.extend_from_slice(rest),
        "super" => {
            base.pop()?;
            let ups = rest.iter().take_while(|part| *part == "super").count();
            for _ in 0..ups {
                base.pop()?;
            }
            base.extend_from_slice(&rest[ups..]);
        }
        _ => {
            if !files.contains_key(&child(module, first)) {
                return None;
            }
            base.extend_from_slice(path);
        }
    }
    Some(base)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crate_of(files: &[(&str, &str)]) -> Vec<String> {
        let folder = tempfile::tempdir().expect("make a folder");
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("make a folder");
            fs::write(path, text).expect("write a file");
        }
        circles(folder.path())
    }

    #[test]
    fn a_planted_circle_is_found() {
        let found = crate_of(&[
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a.rs", "use crate::{b::B, c};\npub struct A;"),
            ("b.rs", "pub struct B;\nfn b() -> crate::c::C { todo() }"),
            ("c.rs", "pub struct C;\npub use super::a::A as Other;"),
        ]);
        assert_eq!(
            found,
            ["a names b, c; b names c; c names a"],
            "all three are in it"
        );
    }

    #[test]
    fn what_the_root_exports_leads_to_where_it_is_defined() {
        let found = crate_of(&[
            ("lib.rs", "mod a; mod b;\npub use a::A;\npub use b::B;"),
            ("a.rs", "use crate::B;\npub struct A;"),
            ("b/mod.rs", "mod inner;\npub use inner::B;"),
            ("b/inner.rs", "use crate::A;\npub struct B;"),
        ]);
        assert_eq!(found, ["a names b::inner; b::inner names a"]);
    }

    #[test]
    fn modules_and_their_children_are_one_room() {
        let found = crate_of(&[
            ("lib.rs", "mod a;\npub struct Root;"),
            ("a.rs", "mod child;\nuse child::Child;\nuse crate::Root;"),
            ("a/child.rs", "use super::A;\npub struct Child;"),
        ]);
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn tests_and_comments_make_no_circle() {
        let found = crate_of(&[
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "use crate::b::B;\npub struct A;"),
            (
                "b.rs",
                "// crate::a::A\npub struct B;\n#[cfg(test)]\nmod tests {\n use crate::a::A;\n}\n",
            ),
        ]);
        assert!(found.is_empty(), "{found:?}");
    }
}
