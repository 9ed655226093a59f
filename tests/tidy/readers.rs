//! The page of the SDK's readers has every one of them with its signature and its doc comment.
//!
//! `MORTISE_WRITE_PAGES=1` writes the page anew.

use std::fmt::Write as _;
use std::fs;

use super::root;

const PAGE: &str = "docs/plugins/readers.md";
const SOURCES: &str = "wit/sdk/src/stream";

/// Files with methods of `Text`, in the order of the page, with the heading of each.
const FILES: [(&str, &str); 5] = [
    ("text.rs", "Text and content"),
    ("arguments.rs", "Calls in JSON and in tags"),
    ("python.rs", "Calls as Python writes them"),
    ("calls.rs", "Calls that were read otherwise"),
    ("reasoning.rs", "Reasoning"),
];

const HEAD: &str = "\
# Readers of the parser SDK

The methods of `mortise_plugin_sdk::stream::Text`, which an [output parser](output-parser.md) in Rust reads an answer with, made of their
doc comments. `None` and `false` say that the text is not what was asked for; with `?` the call is given up, and what was held stays content.
`cargo doc --open` in a project's `sdk/` shows the rest of the SDK.
";

#[test]
fn the_page_of_readers_has_every_one_with_its_signature() {
    let mut page = HEAD.to_owned();
    let mut count = 0;
    for (file, heading) in FILES {
        let source = root().join(SOURCES).join(file);
        let source = fs::read_to_string(source).expect("a source of the SDK");
        let _ = writeln!(page, "\n## {heading}");
        let (_, methods) = source.split_once("\nimpl Text {").expect("methods of Text");
        let methods = methods.split("\n}\n").next().unwrap_or_default();
        for (docs, signature) in public(methods) {
            count += 1;
            let _ = writeln!(page, "\n```rust,ignore\n{signature}\n```\n\n{docs}");
        }
    }
    assert!(count > 20, "{count} readers");
    let path = root().join(PAGE);
    if std::env::var_os("MORTISE_WRITE_PAGES").is_some_and(|value| value == "1") {
        fs::write(&path, &page).expect("write the page");
    }
    assert!(
        fs::read_to_string(&path).is_ok_and(|committed| committed == page),
        "{PAGE} is out of date; run this test with MORTISE_WRITE_PAGES=1"
    );
}

/// Public methods of an `impl` block: the doc comment, without links between items, and the signature in one line.
fn public(methods: &str) -> Vec<(String, String)> {
    let (mut found, mut docs) = (Vec::new(), String::new());
    let mut lines = methods.lines();
    while let Some(line) = lines.next() {
        if let Some(doc) = line.strip_prefix("    ///") {
            docs.push_str(doc.strip_prefix(' ').unwrap_or(doc));
            docs.push('\n');
        } else if line.starts_with("    pub fn") || line.starts_with("    pub async fn") {
            let mut signature = line.trim().to_owned();
            while !signature.ends_with('{') {
                let more = lines.next().expect("the rest of a signature").trim();
                signature.push_str(if signature.ends_with('(') { "" } else { " " });
                signature.push_str(more);
            }
            let signature = signature.trim_end_matches(['{', ' ']).replace(", )", ")");
            found.push((plain(&docs), signature));
            docs.clear();
        } else {
            docs.clear();
        }
    }
    found
}

/// Doc comments as a page has them: names in place of links to items, and no lines that only `rustdoc` needs.
fn plain(docs: &str) -> String {
    let mut text = docs.trim().replace("[`", "`").replace("`]", "`");
    while let Some((before, rest)) = text.split_once("`(Self::") {
        let after = rest.split_once(')').map_or("", |(_, after)| after);
        text = format!("{before}`{after}");
    }
    let lines = text.lines().filter(|line| !line.starts_with("# "));
    let lines: Vec<&str> = lines.collect();
    lines.join("\n").replace("```\n#", "```rust,ignore\n#")
}
