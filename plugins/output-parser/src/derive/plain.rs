//! Formats whose arguments are not one JSON object: calls of Python, and tags.

use mortise_plugin_sdk::formats::{Python, Tags, Typing, Writing};

use super::marks::{ends, only};
use super::probe::{ALFA, BETA, KEY_1, KEY_2, Seen, TEXT_1, TEXT_2};
use super::{Found, NO_JSON, kept};

/// Calls as `f(a="x")`, between marks or in brackets.
pub(super) fn python(seen: &Seen) -> Option<Found> {
    let one = &seen.one;
    let name = only(one, ALFA)?;
    let end = end_of_python(one, ALFA, KEY_1, TEXT_1)?;
    let (before, behind) = (&one[..name], &one[end..]);
    let between = match &seen.both {
        Some(both) => {
            let second = only(both, BETA)?;
            let last = end_of_python(both, BETA, KEY_2, TEXT_2)?;
            if both.get(..end)? != &one[..end] || &both[last..] != behind {
                return None;
            }
            let middle = both.get(end..second)?;
            matches!(middle.trim(), "" | "," | ";").then(|| kept(middle))
        }
        None => None,
    };
    // Calls without brackets and marks could be any text.
    if before.trim().is_empty() {
        return None;
    }
    Some(Found {
        writing: Writing::Python(Python {
            section: (kept(before), kept(behind)),
            between: between.unwrap_or("\n"),
        }),
        opens: vec![kept(before.trim_end().trim_end_matches('['))],
        call: NO_JSON,
    })
}

/// End of a call with one argument.
fn end_of_python(text: &str, name: &str, key: &str, value: &str) -> Option<usize> {
    let start = only(text, name)?;
    let rest = text[start + name.len()..].strip_prefix('(')?;
    let rest = rest.strip_prefix(key)?.strip_prefix('=')?;
    let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let rest = rest[1..].strip_prefix(value)?.strip_prefix(quote)?;
    let rest = rest.strip_prefix(')')?;
    Some(text.len() - rest.len())
}

/// Places of the words in a turn with two arguments.
struct Parts<'a> {
    /// Before the name.
    before: &'a str,
    /// Between name and first key.
    named: &'a str,
    /// Between a key and its value.
    inner: &'a str,
    /// Between a value and the next key.
    next: &'a str,
    /// Behind the last value.
    behind: &'a str,
}

fn parts(text: &str) -> Option<Parts<'_>> {
    let words = [ALFA, KEY_1, TEXT_1, KEY_2, TEXT_2];
    let mut pieces = [""; 6];
    let mut rest = text;
    for (word, piece) in words.into_iter().zip(&mut pieces) {
        only(text, word)?;
        (*piece, rest) = rest.split_once(word)?;
    }
    (pieces[2] == pieces[4]).then_some(Parts {
        before: pieces[0],
        named: pieces[1],
        inner: pieces[2],
        next: pieces[3],
        behind: rest,
    })
}

/// Arguments each between tags.
pub(super) fn tags(seen: &Seen) -> Option<Found> {
    let parts = parts(seen.longer.as_deref()?)?;
    let (close, open) = ends(parts.next, parts.behind, parts.named);
    if !parts.next[close..open].trim().is_empty() {
        return None;
    }
    let (closing, opening) = (
        parts.next[..close].trim_end(),
        parts.next[open..].trim_start(),
    );
    let named = parts.named.strip_suffix(opening)?;
    let behind = parts.behind.strip_prefix(closing)?;
    let gap = match &parts.next[closing.len()..parts.next.len() - opening.len()] {
        "" => "",
        gap if gap.contains('\n') => "\n",
        gap => kept(gap),
    };
    let (key_end, value) = split_inner(parts.inner, closing);
    let call = calls(&parts, behind, seen.both.as_deref(), closing)?;
    let texts = [opening, key_end, value.1.trim(), call.open, call.close];
    if texts.iter().any(|text| text.trim().is_empty()) {
        return None;
    }
    let tags = Tags {
        sections: match call.section {
            ("", "") => &[],
            (open, close) => vec![(kept(open), kept(close))].leak(),
        },
        call: (kept(call.open), kept(named.trim()), kept(call.close)),
        behind: "",
        key: (kept(opening), kept(key_end)),
        value: (kept(value.0), kept(value.1)),
        typing: Typing::Schema,
        gap,
        together: call.together,
    };
    Some(Found {
        opens: vec![kept(call.section.0), kept(call.open)],
        writing: Writing::Tags(tags),
        call: NO_JSON,
    })
}

/// Mark behind a key, and marks around a value with the line breaks that belong to them.
fn split_inner<'a>(inner: &'a str, closing: &'a str) -> (&'a str, (&'a str, &'a str)) {
    // Two tags: one ends the key, the other begins the value.
    let second = inner
        .rfind(['<', '['])
        .filter(|&at| at > 0 && !inner[..at].trim().is_empty());
    if let Some(at) = second {
        let own = closing.trim_start();
        return (
            inner[..at].trim(),
            (
                &inner[at..],
                if inner.ends_with('\n') { closing } else { own },
            ),
        );
    }
    let key = inner.trim_end_matches('\n');
    match inner.len() - key.len() {
        0 => (key, ("", closing.trim_start())),
        _ => (key, ("\n", closing)),
    }
}

/// Marks around a call, and around all or each.
struct Calls<'a> {
    section: (&'a str, &'a str),
    open: &'a str,
    close: &'a str,
    together: bool,
}

fn calls<'a>(
    parts: &Parts<'a>,
    behind: &'a str,
    both: Option<&str>,
    closing: &str,
) -> Option<Calls<'a>> {
    let (before, behind) = (parts.before, behind.trim());
    let inner = |section: (&'a str, &'a str), open: &'a str, close: &'a str, together| Calls {
        section: (section.0.trim(), section.1.trim()),
        open: open.trim(),
        close: close.trim(),
        together,
    };
    let (first, last) = (before.trim(), behind);
    let nested = || {
        let (outer, open) = first.rsplit_once(char::is_whitespace)?;
        let (close, end) = last.split_once(char::is_whitespace)?;
        Some(inner((outer, end), open, close, false))
    };
    let Some(both) = both else {
        return nested().or_else(|| Some(inner(("", ""), first, last, false)));
    };
    let (_, rest) = both.split_once(TEXT_1)?;
    let (middle, _) = rest.split_once(BETA)?;
    let middle = middle.strip_prefix(closing)?.trim();
    let (close, open) = ends(middle, last, first);
    if !middle[close..open].trim().is_empty() {
        return None;
    }
    let length = middle.len() - open;
    let section = (&first[..first.len() - length], &last[close..]);
    if !section.0.trim().is_empty() || !section.1.trim().is_empty() {
        return Some(inner(
            section,
            &first[first.len() - length..],
            &last[..close],
            true,
        ));
    }
    nested().or_else(|| Some(inner(("", ""), first, last, false)))
}
