//! Lines to text: paragraphs, and headings by the size of their font.

use std::collections::BTreeMap;

use crate::layout::Line;

/// Sizes of headings to that of the text, and their marks.
const HEADINGS: [(f64, &str); 3] = [(1.7, "# "), (1.35, "## "), (1.15, "### ")];

/// Characters of a heading's line at most: large type of whole paragraphs makes no headings.
const HEADING_CHARACTERS: usize = 120;

/// The text of each page.
pub(crate) fn written(pages: &[Vec<Line>]) -> Vec<String> {
    let body = body_size(pages);
    pages.iter().map(|lines| page(lines, body)).collect()
}

/// The size that most characters have.
fn body_size(pages: &[Vec<Line>]) -> f64 {
    let mut counts = BTreeMap::<u64, usize>::new();
    for line in pages.iter().flatten() {
        // In quarters, which suffice to tell a heading. Numbers that are out of range are cut.
        *counts.entry((line.size * 4.0).round() as u64).or_default() += line.text.len();
    }
    let most = counts.into_iter().max_by_key(|(_, count)| *count);
    most.map_or(0.0, |(size, _)| size as f64 / 4.0)
}

fn page(lines: &[Line], body: f64) -> String {
    let mut text = String::new();
    let mut above = "";
    for line in lines {
        let mark = mark(line, body);
        match (mark == above, mark.is_empty()) {
            // A heading of several lines is one.
            (true, false) if !text.is_empty() && !line.apart => text.push(' '),
            (_, false) => {
                separate(&mut text, "\n\n");
                text.push_str(mark);
            }
            (true, true) if line.apart => separate(&mut text, "\n\n"),
            (true, true) if joins(&text, &line.text) => {
                text.pop();
            }
            (_, true) => separate(&mut text, "\n"),
        }
        text.push_str(&line.text);
        above = mark;
    }
    text
}

fn separate(text: &mut String, by: &str) {
    if !text.is_empty() {
        text.push_str(by);
    }
}

/// The mark of a heading; empty for other lines.
fn mark(line: &Line, body: f64) -> &'static str {
    let is_short = line.text.chars().nth(HEADING_CHARACTERS).is_none();
    if !is_short || !line.text.chars().any(char::is_alphabetic) {
        return "";
    }
    let found = HEADINGS.iter().find(|(share, _)| line.size >= share * body);
    found.map_or("", |(_, mark)| mark)
}

/// True if a word was divided between two lines.
fn joins(text: &str, next: &str) -> bool {
    let Some(word) = text.strip_suffix('-') else {
        return false;
    };
    word.ends_with(char::is_alphabetic) && next.starts_with(char::is_lowercase)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(size: f64, apart: bool, text: &str) -> Line {
        Line {
            text: text.to_owned(),
            size,
            apart,
        }
    }

    #[test]
    fn large_lines_are_headings_and_divided_words_are_joined() {
        let lines = vec![
            line(20.0, true, "A long title"),
            line(20.0, false, "of two lines"),
            line(10.0, true, "The text of a para-"),
            line(10.0, false, "graph of four lines"),
            line(10.0, false, "and A-"),
            line(10.0, false, "Z as it is."),
            line(10.0, true, "Another paragraph, which is as long."),
            line(14.0, true, "Below"),
            line(14.0, false, "12"),
        ];
        let text = "# A long title of two lines\nThe text of a paragraph of four lines\nand A-\nZ as it is.\n\n\
                    Another paragraph, which is as long.\n\n## Below\n12";
        assert_eq!(written(&[lines, Vec::new()]), [text, ""]);
    }
}
