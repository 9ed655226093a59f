//! Marks between what is known.

/// Place of a word that a text has once.
pub(super) fn only(text: &str, word: &str) -> Option<usize> {
    let mut places = text.match_indices(word);
    let (at, _) = places.next()?;
    places.next().is_none().then_some(at)
}

/// Bytes that two texts begin with.
pub(super) fn common_prefix(a: &str, b: &str) -> usize {
    let pairs = a.chars().zip(b.chars());
    let same = pairs.take_while(|(a, b)| a == b);
    same.map(|(c, _)| c.len_utf8()).sum()
}

/// Bytes that two texts end in.
pub(super) fn common_suffix(a: &str, b: &str) -> usize {
    let pairs = a.chars().rev().zip(b.chars().rev());
    let same = pairs.take_while(|(a, b)| a == b);
    same.map(|(c, _)| c.len_utf8()).sum()
}

fn opens(c: char) -> bool {
    matches!(c, '<' | '[' | '{' | '(')
}

fn closes(c: char) -> bool {
    matches!(c, '>' | ']' | '}' | ')')
}

/// Marks of a call, and those of all.
pub(super) struct Around<'a> {
    /// Before the first call and behind the last.
    pub(super) section: (&'a str, &'a str),
    pub(super) open: &'a str,
    pub(super) close: &'a str,
    /// `None` where there is one call at most.
    pub(super) between: Option<&'a str>,
}

/// Marks by what stands before a call, behind it, and between two.
pub(super) fn around<'a>(before: &'a str, behind: &'a str, middle: Option<&'a str>) -> Around<'a> {
    let Some(middle) = middle else {
        return Around {
            section: ("", ""),
            open: before,
            close: behind,
            between: None,
        };
    };
    let listed = before.trim_end().ends_with('[') && behind.trim_start().starts_with(']');
    if listed && middle.trim() == "," {
        return Around {
            section: (before, behind),
            open: "",
            close: "",
            between: Some(middle),
        };
    }
    let (close, open) = ends(middle, behind, before);
    Around {
        section: (
            &before[..before.len() - (middle.len() - open)],
            &behind[close..],
        ),
        open: &middle[open..],
        close: &middle[..close],
        between: Some(&middle[close..open]),
    }
}

/// End of the mark that `middle` begins with, as `behind` does, and start of the one that it ends in, as
/// `before` does. Neither is cut within a tag.
pub(super) fn ends(middle: &str, behind: &str, before: &str) -> (usize, usize) {
    let (prefix, suffix) = (
        common_prefix(middle, behind),
        middle.len() - common_suffix(middle, before),
    );
    let cuts = |from: usize, to: usize| (from..=to).filter(|at| middle.is_char_boundary(*at));
    if prefix > suffix {
        let at_tags = |at: &usize| {
            let (left, right) = middle.split_at(*at);
            left.ends_with(|c: char| closes(c) || c.is_whitespace())
                && right.starts_with(|c: char| opens(c) || c.is_whitespace())
        };
        let cut = cuts(suffix, prefix).find(at_tags);
        let cut = cut.unwrap_or(suffix);
        return (cut, cut);
    }
    let whole = |at: &usize| *at == behind.len() || middle[..*at].ends_with(closes);
    let close = cuts(0, prefix).rev().find(whole).unwrap_or(0);
    let length = middle.len();
    let begins = |at: &usize| length - at == before.len() || middle[*at..].starts_with(opens);
    let open = cuts(suffix, length).find(begins).unwrap_or(length);
    (close, open)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_cut_at_tags() {
        for (before, behind, middle, expected) in [
            (
                "<call>\n",
                "\n</call>",
                "\n</call>\n<call>\n",
                (("", ""), "<call>\n", "\n</call>", "\n"),
            ),
            (
                "<a><c>",
                "</c></a>",
                "</c><c>",
                (("<a>", "</a>"), "<c>", "</c>", ""),
            ),
            ("<a>[", "]</a>", ", ", (("<a>[", "]</a>"), "", "", ", ")),
            (
                "<a>\n<c>",
                "</c>\n</a>",
                "</c>\n<c>",
                (("<a>", "\n</a>"), "\n<c>", "</c>", ""),
            ),
            ("[X]", "", "[X]", (("", ""), "[X]", "", "")),
            ("", "", "; ", (("", ""), "", "", "; ")),
        ] {
            let found = around(before, behind, Some(middle));
            let (section, open, close, between) = expected;
            assert_eq!(
                (found.section, found.open, found.close, found.between),
                (section, open, close, Some(between)),
                "{before:?} {behind:?} {middle:?}"
            );
        }
    }
}
