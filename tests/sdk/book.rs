//! The book, made by mdBook.

use std::collections::{BTreeSet, HashMap};
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use html5gum::{Token, Tokenizer};

use crate::support::{example, have};
use crate::{environment, run};

#[test]
fn feature_z14_the_book_builds_without_a_warning() {
    if !have(&["python3"]) {
        return;
    }
    let venv = environment("sdk-mdbook", "mdbook/requirements.txt");
    let docs = example::root().join("docs");
    let out = tempfile::tempdir().expect("make a folder");
    let report = run(Command::new(venv.join("bin/mdbook"))
        .env("MDBOOK_LOG", "warn")
        .arg("build")
        .arg(&docs)
        .arg("--dest-dir")
        .arg(out.path()));
    // At this level nothing but warnings is told.
    assert!(report.trim().is_empty(), "{report}");
    let summary = std::fs::read_to_string(docs.join("SUMMARY.md")).expect("the contents");
    let links = summary.split("](").skip(1);
    let pages = links.filter_map(|rest| rest.split(')').next()?.strip_suffix(".md"));
    let mut made = 0;
    for page in pages {
        let file = match page.rsplit_once('/') {
            Some((folder, "README")) => format!("{folder}/index.html"),
            _ => format!("{page}.html"),
        };
        assert!(out.path().join(&file).is_file(), "{file}");
        made += 1;
    }
    assert!(made > 30, "{made} pages");
    no_link_is_dead(out.path());
}

/// A page of the book as it was built.
#[derive(Debug, Default)]
struct Page {
    /// Names that links may lead to.
    anchors: BTreeSet<String>,
    links: Vec<String>,
    /// Page that this one sends its reader on to.
    onwards: Option<String>,
}

impl Page {
    fn of(html: &str) -> Self {
        let mut page = Self::default();
        for token in Tokenizer::new(html) {
            let Ok(Token::StartTag(tag)) = token else {
                continue;
            };
            let of = |name: &str| {
                let value = tag.attributes.get(name.as_bytes())?;
                Some(String::from_utf8_lossy(&value.value).into_owned())
            };
            page.anchors.extend(of("id"));
            page.links.extend(of("href"));
            page.links.extend(of("src"));
            if of("http-equiv").as_deref() == Some("refresh") {
                let to = of("content").unwrap_or_default();
                page.onwards = to.split_once("URL=").map(|(_, to)| to.to_owned());
            }
        }
        page
    }
}

/// Pages below a folder.
fn built(folder: &Path, found: &mut HashMap<PathBuf, Page>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            built(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "html") {
            let html = std::fs::read_to_string(&path).expect("a page");
            found.insert(path, Page::of(&html));
        }
    }
}

/// A path without `..`; nothing, if that leads out of the book.
fn within(book: &Path, path: &Path) -> Option<PathBuf> {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain.starts_with(book).then_some(plain)
}

/// Fault of a link of a page.
fn problem(
    book: &Path,
    pages: &HashMap<PathBuf, Page>,
    from: &Path,
    link: &str,
) -> Option<&'static str> {
    let elsewhere =
        link.contains("://") || link.starts_with("mailto:") || link.starts_with("data:");
    if elsewhere {
        return None;
    }
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let path = path.split('?').next().unwrap_or_default();
    let mut target = from.to_owned();
    if !path.is_empty() {
        let Some(inside) = within(book, &from.with_file_name("").join(path)) else {
            return Some("leads out of the book");
        };
        target = inside;
    }
    if target.is_dir() {
        target.push("index.html");
    }
    if !target.is_file() {
        return Some("is not there");
    }
    // The page that sends on keeps the anchor.
    if let Some(onwards) = pages.get(&target).and_then(|page| page.onwards.as_ref()) {
        target = within(book, &target.with_file_name(onwards))?;
    }
    let page = pages.get(&target).filter(|_| !anchor.is_empty())?;
    (!page.anchors.contains(anchor)).then_some("has no such heading")
}

/// Walk all pages of the built book.
fn no_link_is_dead(book: &Path) {
    let mut pages = HashMap::new();
    built(book, &mut pages);
    let (mut dead, mut count) = (BTreeSet::new(), 0);
    for (path, page) in &pages {
        // All chapters on one page, whose links are those of the chapters; and what a server shows for any page that is not
        // there, whose links begin at the server's root.
        if path.ends_with("print.html") || path.ends_with("404.html") {
            continue;
        }
        for link in &page.links {
            count += 1;
            if let Some(problem) = problem(book, &pages, path, link) {
                let page = path.strip_prefix(book).unwrap_or(path);
                dead.insert(format!("{}: {link} {problem}", page.display()));
            }
        }
    }
    assert!(count > 1000, "{count} links");
    let dead: Vec<String> = dead.into_iter().collect();
    assert!(dead.is_empty(), "{}", dead.join("\n"));
}

#[test]
fn dead_links_of_a_built_book_are_found() {
    let folder = tempfile::tempdir().expect("make a folder");
    let write =
        |name: &str, html: &str| std::fs::write(folder.path().join(name), html).expect("write");
    write(
        "a.html",
        "<h1 id='x'></h1><a href='b.html#y'></a><a href='c.html#x'>",
    );
    write("b.html", "<h2 id=y>");
    write(
        "c.html",
        "<meta http-equiv='refresh' content='0; URL=a.html'>",
    );
    let mut pages = HashMap::new();
    built(folder.path(), &mut pages);
    let from = folder.path().join("a.html");
    let found = |link: &str| problem(folder.path(), &pages, &from, link);
    for link in [
        "b.html#y",
        "c.html#x",
        "#x",
        "a.html",
        "https://example.com/x#y",
        "b.html?highlight=x",
    ] {
        assert_eq!(found(link), None, "{link}");
    }
    for (link, told) in [
        ("d.html", "is not there"),
        ("b.html#x", "has no such heading"),
        ("c.html#y", "has no such heading"),
        ("#y", "has no such heading"),
        ("../README.html", "leads out of the book"),
    ] {
        assert_eq!(found(link), Some(told), "{link}");
    }
}
