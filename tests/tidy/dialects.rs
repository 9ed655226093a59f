//! Dialects do not know each other.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::{circles, root};

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
