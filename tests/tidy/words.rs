//! First words of docs: the noun or the verb of the field, and no pronoun whose noun stands elsewhere.

use std::fs;

use crate::{root, rust_files};

/// Beginnings that leave their subject to be guessed.
const RIDDLES: [&str; 22] = [
    "What",
    "Whatever",
    "Which",
    "Who",
    "Whose",
    "Whom",
    "Where",
    "Those",
    "That",
    "It",
    "They",
    "The same",
    "All of them",
    "One of them",
    "Each of them",
    "Some of them",
    "So many",
    "So much",
    "As much",
    "As many",
    "Nobody",
    "Such",
];

/// First lines of doc comments that begin with one of [`RIDDLES`].
fn riddles(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut inside = false;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let doc = line
            .strip_prefix("///")
            .or_else(|| line.strip_prefix("//!"));
        if let Some(doc) = doc.filter(|_| !inside)
            && begins_with_a_riddle(doc.trim_start())
        {
            found.push((number + 1, line));
        }
        inside = doc.is_some();
    }
    found
}

fn begins_with_a_riddle(doc: &str) -> bool {
    RIDDLES.iter().any(|riddle| {
        let rest = doc.strip_prefix(riddle);
        rest.is_some_and(|rest| !rest.starts_with(|letter: char| letter.is_alphanumeric()))
    })
}

#[test]
fn docs_begin_with_their_subject() {
    let mut files = Vec::new();
    for folder in ["host", "kernels", "plugins", "wit", "fuzz", "tests"] {
        rust_files(&root().join(folder), &mut files);
    }
    let mut all = Vec::new();
    for path in files {
        let text = fs::read_to_string(&path).expect("read a source");
        let of_file = riddles(&text).into_iter();
        all.extend(of_file.map(|(line, doc)| format!("{}:{line}: {doc}", path.display())));
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

#[test]
fn a_riddle_is_found_in_the_first_line_of_a_doc_alone() {
    let text = "@! What requests cost.\n@! It is money.\n\n@/ Size of a block\n@/ that is free.\nstruct A;\n\
        @/ It is full.\nstruct B;\n@/ Items of a list.\nstruct C;\n    @/ The same again.\n";
    let text = text.replace('@', "//");
    let lines: Vec<usize> = riddles(&text).into_iter().map(|(line, _)| line).collect();
    assert_eq!(lines, [1, 7, 11]);
}
