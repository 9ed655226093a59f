//! One name, one type: a type that other files can name has a name of its own in the whole host.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::source::code_only;
use crate::{is_test, root, rust_files};

/// Names of the types at the top of a file that other files can name.
fn visible_types(text: &str) -> Vec<String> {
    code_only(text).lines().filter_map(visible_type).collect()
}

fn visible_type(line: &str) -> Option<String> {
    let rest = line.strip_prefix("pub")?;
    let rest = match rest.strip_prefix('(') {
        Some(scoped) => scoped.split_once(')')?.1,
        None => rest,
    };
    let mut words = rest.split_whitespace().skip_while(|word| *word == "unsafe");
    let kind = words.next()?;
    if !["struct", "enum", "trait", "type", "union"].contains(&kind) {
        return None;
    }
    let name = words.next()?;
    let end = name.find(|letter: char| !letter.is_alphanumeric() && letter != '_');
    Some(name[..end.unwrap_or(name.len())].to_owned())
}

fn is_of_the_program(path: &Path) -> bool {
    let beside = |part: &Path| {
        ["examples", "benches"]
            .iter()
            .any(|folder| part.ends_with(folder))
    };
    !is_test(path) && !path.ancestors().any(beside)
}

#[test]
fn one_name_is_one_type() {
    let mut files = Vec::new();
    rust_files(&root().join("host"), &mut files);
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in files.iter().filter(|path| is_of_the_program(path)) {
        let text = fs::read_to_string(path).expect("read a source");
        for name in visible_types(&text) {
            places
                .entry(name)
                .or_default()
                .push(path.display().to_string());
        }
    }
    assert!(places.len() > 500, "only {} types were found", places.len());
    places.retain(|_, places| places.len() > 1);
    assert!(places.is_empty(), "names of several types: {places:#?}");
}

#[test]
fn types_that_other_files_can_name_are_found() {
    let text = "pub struct One<'a> {\n    pub(crate) inner: Two,\n}\npub(in crate::a) enum Two {}\nstruct Own;\n\
        pub(super) type Three = u8;\npub fn four() {}\npub unsafe trait Five: Send {}\n// pub struct Six;\nmod inside {\n    pub struct Seven;\n}\n";
    assert_eq!(visible_types(text), ["One", "Two", "Three", "Five"]);
}
