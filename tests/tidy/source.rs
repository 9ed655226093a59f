//! Rust source as text without comments and literals, so that rules about code read code only.

/// Blank out comments and the contents of string and character literals. Line breaks stay, so line
/// numbers do too.
pub(crate) fn code_only(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let skipped = skipped_length(rest);
        if skipped == 0 {
            out.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let (gone, after) = rest.split_at(skipped);
        out.extend(gone.chars().filter(|&letter| letter == '\n'));
        out.push(' ');
        rest = after;
    }
    out
}

/// Bytes of the comment or literal that `text` begins with; 0 if it begins with code.
fn skipped_length(text: &str) -> usize {
    if text.starts_with("//") {
        return text.find('\n').unwrap_or(text.len());
    }
    if text.starts_with("/*") {
        return block_comment(text);
    }
    let raw = text.strip_prefix('b').unwrap_or(text);
    if let Some(hashes) = raw.strip_prefix('r') {
        let count = hashes.len() - hashes.trim_start_matches('#').len();
        if hashes[count..].starts_with('"') {
            let end = format!("\"{}", "#".repeat(count));
            let begun = text.len() - hashes.len() + count + 1;
            return text[begun..]
                .find(&end)
                .map_or(text.len(), |at| begun + at + end.len());
        }
    }
    if text.starts_with('"') {
        return quoted(text, '"');
    }
    if text.starts_with('\'') {
        return character(text);
    }
    0
}

fn block_comment(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < text.len() {
        if text[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if text[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, letter) in text.char_indices().skip(1) {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if letter == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// A character literal; lifetimes and labels are code.
fn character(text: &str) -> usize {
    let mut letters = text.chars().skip(1);
    match (letters.next(), letters.next()) {
        (Some('\\'), _) => quoted(text, '\''),
        (Some(one), Some('\'')) => 2 + one.len_utf8(),
        _ => 0,
    }
}

/// Code without its test modules, which stand at the end of a file.
pub(crate) fn without_tests(code: &str) -> &str {
    let marker = code.match_indices("#[cfg(test)]").find(|(at, found)| {
        let after = code[at + found.len()..].trim_start();
        let item = after.lines().next().unwrap_or_default();
        item.contains("mod ") && item.trim_end().ends_with('{')
    });
    marker.map_or(code, |(at, _)| &code[..at])
}

#[test]
fn comments_and_literals_are_blank() {
    let source = concat!(
        "let a = \"crate::b\"; // crate::c\n",
        "/* crate::d /* nested */ crate::e */ let f = r#\"\"crate::g\"\"#;\n",
        "let h = '\"'; let i: &'static str = \"\\\"crate::j\"; use crate::k;",
    );
    let code = code_only(source);
    assert_eq!(code.matches("crate::").count(), 1, "{code}");
    assert!(
        code.contains("use crate::k;") && code.contains("'static"),
        "{code}"
    );
    assert_eq!(code.lines().count(), 3);
}
