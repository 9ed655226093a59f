//! The documentation as a whole: links lead somewhere, and the book has every page.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Component, Path, PathBuf};

use super::root;

/// Folders and files whose links are followed.
const PLACES: [&str; 8] = [
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "docs",
    "examples",
    "tests/README.md",
    "fuzz/README.md",
    "kernels",
];

/// Pages below a place.
fn pages(path: &Path, found: &mut Vec<PathBuf>) {
    if path.is_dir() {
        let entries = fs::read_dir(path).expect("read a folder");
        let paths = entries.map(|entry| entry.expect("read an entry").path());
        for path in paths.collect::<BTreeSet<_>>() {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if !name.starts_with('.') && name != "target" && name != "node_modules" {
                pages(&path, found);
            }
        }
    } else if path.extension().is_some_and(|extension| extension == "md") {
        found.push(path.to_owned());
    }
}

/// The text without blocks and spans of code.
fn prose(text: &str) -> String {
    let mut inside = false;
    let mut prose = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            inside = !inside;
        } else if !inside {
            // Every second part lies between two backquotes.
            let parts = line.split('`').step_by(2);
            prose.push_str(&parts.collect::<Vec<_>>().join("\u{1}"));
            prose.push('\n');
        }
    }
    prose
}

/// Targets of the links of a page, but those to elsewhere.
fn links(text: &str) -> Vec<String> {
    let prose = prose(text);
    let targets = prose.split("](").skip(1);
    let targets = targets.filter_map(|rest| rest.split(')').next());
    let here = targets.filter(|target| !target.contains("://") && !target.starts_with("mailto:"));
    here.map(str::to_owned).collect()
}

/// Anchors of a page, as GitHub and mdbook make them of its headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut inside = false;
    let mut anchors = BTreeSet::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            inside = !inside;
        }
        let title = line.trim_start_matches('#');
        if inside || title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let letters = title.trim().to_lowercase();
        let letters = letters.chars().filter_map(|letter| match letter {
            ' ' => Some('-'),
            '-' | '_' => Some(letter),
            _ => letter.is_alphanumeric().then_some(letter),
        });
        anchors.insert(letters.collect());
    }
    anchors
}

/// A path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

#[test]
fn links_of_the_documentation_lead_somewhere() {
    let root = fs::canonicalize(root()).expect("the repository");
    let mut all = Vec::new();
    for place in PLACES {
        pages(&root.join(place), &mut all);
    }
    assert!(all.len() > 40, "the walk found {} pages", all.len());
    let text = |path: &Path| fs::read_to_string(path).expect("a page");
    let known: HashMap<PathBuf, BTreeSet<String>> = all
        .iter()
        .map(|path| (path.clone(), anchors(&text(path))))
        .collect();
    let mut wrong = Vec::new();
    for page in &all {
        let folder = page.parent().expect("a folder");
        for link in links(&text(page)) {
            let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = match path {
                "" => page.clone(),
                path => plain(&folder.join(path)),
            };
            if !target.exists() {
                wrong.push(format!("{}: {link} is not there", page.display()));
            } else if let Some(anchors) = known.get(&target).filter(|_| !anchor.is_empty())
                && !anchors.contains(anchor)
            {
                wrong.push(format!("{}: {link} has no such heading", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Folders of the repository that pages name in code.
const FOLDERS: [&str; 7] = [
    "examples/",
    "fuzz/",
    "host/",
    "kernels/",
    "packaging/",
    "tests/",
    "wit/",
];

/// Paths of a project of `mortise plugin new`, which has folders of the same names.
const OF_PROJECTS: [&str; 2] = ["wit/quotas/", "wit/reasoning/"];

/// Paths of the repository that a page names in spans of code: those that stand by themselves.
fn paths(text: &str) -> Vec<&str> {
    let spans = text
        .lines()
        .flat_map(|line| line.split('`').skip(1).step_by(2));
    let plain = |span: &&str| {
        let letters = |letter: char| letter.is_ascii_alphanumeric() || "/._-".contains(letter);
        FOLDERS.iter().any(|folder| span.starts_with(folder))
            && !OF_PROJECTS.iter().any(|of| span.starts_with(of))
            && span.chars().all(letters)
    };
    spans.filter(plain).collect()
}

#[test]
fn no_link_leaves_the_book_and_paths_that_it_names_are_there() {
    let root = fs::canonicalize(root()).expect("the repository");
    let docs = root.join("docs");
    let mut all = Vec::new();
    pages(&docs, &mut all);
    let (mut wrong, mut count) = (Vec::new(), 0);
    for page in &all {
        let text = fs::read_to_string(page).expect("a page");
        let folder = page.parent().expect("a folder");
        for link in links(&text) {
            let path = link.split('#').next().unwrap_or_default();
            if !plain(&folder.join(path)).starts_with(&docs) {
                wrong.push(format!(
                    "{}: {link} leaves the book, where it would be dead; name the path in code",
                    page.display()
                ));
            }
        }
        for path in paths(&text) {
            count += 1;
            if !root.join(path).exists() {
                wrong.push(format!("{}: `{path}` is not there", page.display()));
            }
        }
    }
    assert!(count > 20, "{count} paths");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_book_has_every_page_once() {
    let docs = fs::canonicalize(root().join("docs")).expect("docs");
    let mut all = Vec::new();
    pages(&docs, &mut all);
    let summary = fs::read_to_string(docs.join("SUMMARY.md")).expect("the summary");
    let listed = links(&summary);
    let names: BTreeSet<PathBuf> = listed.iter().map(|link| docs.join(link)).collect();
    assert_eq!(names.len(), listed.len(), "a page is listed twice");
    let all: BTreeSet<PathBuf> = all
        .into_iter()
        .filter(|page| !page.ends_with("SUMMARY.md"))
        .collect();
    assert_eq!(names, all);
}

#[test]
fn what_is_no_link_is_left_alone() {
    let text = "[a](b.md#c), `[x](y)` and [d](https://e/f)\n```sh\n[g](h)\n```\n![i](j.png)\n";
    assert_eq!(links(text), ["b.md#c", "j.png"]);
    let anchors = anchors("# A `title`, twice\n```\n# none\n```\n## Keys & more\n");
    let expected = ["a-title-twice", "keys--more"].map(str::to_owned);
    assert_eq!(anchors, BTreeSet::from(expected));
}
