//! Redaction of secrets and personal data in texts that are logged: keys and tokens, mail addresses, numbers of payment
//! cards. Forms are recognised, not meanings: a name or a password without a label stays.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

/// Digits of the numbers of payment cards.
const CARD_DIGITS: std::ops::RangeInclusive<usize> = 13..=19;

/// Runs of more digits are redacted unseen.
const MAX_RUN: usize = 64;

/// Keys and tokens by the forms that issuers give them, and credentials of HTTP.
const KEYS: &str = r"(?x)
    \b(?:sk|pk|rk|ak)[-_][A-Za-z0-9_\-]{6,}
  | \b(?:gh[a-z]|github_pat|glpat|hf|npm|pypi|xox[a-z]|xapp|dop_v1|shpat|whsec)[-_][A-Za-z0-9_\-]{6,}
  | \b(?:AKIA|ASIA|AGPA|AIDA|AROA)[A-Z0-9]{8,}
  | \bAIza[A-Za-z0-9_\-]{10,}
  | \bya29\.[A-Za-z0-9_\-]{6,}
  | \beyJ[A-Za-z0-9_\-]{5,}(?:\.[A-Za-z0-9_\-]*){0,4}
  | -----BEGIN\ [A-Z0-9\ ]*PRIVATE\ KEY-----(?s:.*?)(?:-----END\ [A-Z0-9\ ]*PRIVATE\ KEY-----|\z)
  | (?i:\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=\-]{6,}
";

/// Names of secrets with what stands between them and the values, which follow. The values are no part of it: one may
/// look like another name.
const LABELS: &str = r#"(?xi)
    (?:api[_\-\ ]?key|access[_\-\ ]?key|secret|password|passwd|passphrase|pwd|token|credentials?)
      [\\"']*\s*(?::|=|\bis\b)\s*[\\"']*
  | authorization[\\"']*\s*(?::|=|\bis\b)\s*[\\"']*(?:[a-z]+\s+)?
"#;

/// Ends of a value behind a label.
const VALUE_ENDS: &[char] = &['"', '\'', '\\', ',', ';', ' ', '\t', '\r', '\n'];

/// Words that are long enough to be keys of a form that nobody has told.
const LONG: &str = r"[A-Za-z0-9+/_\-]{32,}={0,2}";

const MAIL: &str = r"[\p{L}\p{N}._%+'\-]+@[\p{L}\p{N}\-]+(?:\.[\p{L}\p{N}\-]+)*";

/// A digit, and at least twelve more with at most one sign between two of them.
const DIGITS: &str = r"[0-9](?:[\ .\-\u{a0}]?[0-9]){12,}";

struct Forms {
    keys: Regex,
    labels: Regex,
    long: Regex,
    mail: Regex,
    digits: Regex,
}

/// `None` would be a defect of the constants above, which a test compiles; then everything is redacted.
static FORMS: LazyLock<Option<Forms>> = LazyLock::new(|| {
    Some(Forms {
        keys: Regex::new(KEYS).ok()?,
        labels: Regex::new(LABELS).ok()?,
        long: Regex::new(LONG).ok()?,
        mail: Regex::new(MAIL).ok()?,
        digits: Regex::new(DIGITS).ok()?,
    })
});

/// Append the first `keep` bytes of a text to `out`, with a mark in place of each secret that begins there. The text
/// behind them is looked at, so that a secret that stands across the end is found. Returns how many marks there are.
pub(crate) fn redact(text: &str, keep: usize, out: &mut String) -> usize {
    let keep = text.floor_char_boundary(keep.min(text.len()));
    let Some(forms) = FORMS.as_ref() else {
        out.push_str("[redacted]");
        return 1;
    };
    let (mut at, mut marks) = (0, 0);
    for (range, mark) in found(forms, text) {
        if range.start >= keep {
            break;
        }
        out.push_str(text.get(at..range.start).unwrap_or_default());
        out.push_str(mark);
        marks += 1;
        at = range.end;
    }
    out.push_str(text.get(at..keep).unwrap_or_default());
    marks
}

/// Secrets of a text in order, without overlaps.
fn found(forms: &Forms, text: &str) -> Vec<(Range<usize>, &'static str)> {
    let keys = forms.keys.find_iter(text).map(|key| key.range());
    let long = forms
        .long
        .find_iter(text)
        .filter(|word| mixed(word.as_str()));
    let keys = keys.chain(long.map(|word| word.range()));
    let keys = keys.chain(labelled(forms, text));
    let mail = forms.mail.find_iter(text).map(|address| address.range());
    let cards = forms.digits.find_iter(text);
    let cards = cards.filter(|run| is_card(run.as_str()));
    let mut all: Vec<(Range<usize>, &'static str)> = keys
        .map(|range| (range, "[redacted key]"))
        .chain(mail.map(|range| (range, "[redacted email]")))
        .chain(cards.map(|run| (run.range(), "[redacted card]")))
        .collect();
    all.sort_by_key(|(range, _)| (range.start, range.end));
    let mut merged: Vec<(Range<usize>, &'static str)> = Vec::with_capacity(all.len());
    for (range, mark) in all {
        match merged.last_mut() {
            Some((last, _)) if range.start < last.end => last.end = last.end.max(range.end),
            _ => merged.push((range, mark)),
        }
    }
    merged
}

/// Labels with their values.
fn labelled(forms: &Forms, text: &str) -> Vec<Range<usize>> {
    let mut ends = 0;
    let mut all = Vec::new();
    for label in forms.labels.find_iter(text) {
        // A label within a value ends with it: no text is looked through twice.
        if label.end() >= ends {
            let value = text.get(label.end()..).unwrap_or_default();
            let length = value.find(VALUE_ENDS).unwrap_or(value.len());
            if length == 0 {
                continue;
            }
            ends = label.end() + length;
        }
        all.push(label.start()..ends);
    }
    all
}

/// Letters and digits both: neither a long word nor a rule of dashes.
fn mixed(word: &str) -> bool {
    let has = |kind: fn(&u8) -> bool| word.bytes().any(|byte| kind(&byte));
    has(u8::is_ascii_digit) && has(u8::is_ascii_alphabetic)
}

/// True if some digits in a row may be the number of a card, by the check digit of Luhn.
fn is_card(run: &str) -> bool {
    let digits: Vec<u32> = run.chars().filter_map(|one| one.to_digit(10)).collect();
    if digits.len() > MAX_RUN {
        return true;
    }
    CARD_DIGITS
        .into_iter()
        .any(|length| digits.windows(length).any(passes_luhn))
}

fn passes_luhn(digits: &[u32]) -> bool {
    let weighted = digits.iter().rev().zip([1, 2].into_iter().cycle());
    let sum: u32 = weighted
        .map(|(digit, weight)| digit * weight)
        .map(|product| product / 10 + product % 10)
        .sum();
    sum.is_multiple_of(10)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn redacted(text: &str) -> String {
        let mut out = String::new();
        redact(text, text.len(), &mut out);
        out
    }

    /// Number with its check digit.
    fn card(mut digits: Vec<u32>) -> String {
        digits.push(0);
        let check = (0..10).find(|last| {
            *digits.last_mut().expect("digits") = *last;
            passes_luhn(&digits)
        });
        assert!(check.is_some());
        digits.iter().map(u32::to_string).collect()
    }

    #[test]
    fn known_forms_are_marked_and_plain_text_is_left() {
        for (text, expected) in [
            ("the risk-assessment of 2024-11-23, 10:30", None),
            ("call +49 30 123456 or see /v1/chat/completions", None),
            (
                "my key is sk-mortise-abcDEF123456.",
                Some("my key is [redacted key]."),
            ),
            ("Authorization: Bearer abc.def-123", Some("[redacted key]")),
            (
                "secret: password: hunter2, token=token=abc",
                Some("[redacted key], [redacted key]"),
            ),
            ("authorization: token abcdef", Some("[redacted key]")),
            ("{\"password\": \"hunter2\"}", Some("{\"[redacted key]\"}")),
            ("AKIAIOSFODNN7EXAMPLE", Some("[redacted key]")),
            (
                "mail jörg.o'neil+x@mail.example.com now",
                Some("mail [redacted email] now"),
            ),
            (
                "pay 4111 1111 1111 1111 today",
                Some("pay [redacted card] today"),
            ),
            ("pay 378282246310005", Some("pay [redacted card]")),
            ("order 4111 1111 1111 0000", None),
            (
                "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nab==\n-----END RSA PRIVATE KEY-----\nx",
                Some("[redacted key]\nx"),
            ),
        ] {
            assert_eq!(redacted(text), expected.unwrap_or(text), "{text}");
        }
    }

    #[test]
    fn a_secret_across_the_end_is_marked_whole() {
        let text = format!("{} sk-abcdefghijkl rest", "x".repeat(20));
        for keep in 21..36 {
            let mut out = String::new();
            assert_eq!(redact(&text, keep.max(22), &mut out), 1);
            assert_eq!(out, format!("{} [redacted key]", "x".repeat(20)), "{keep}");
        }
    }

    fn secret() -> impl Strategy<Value = String> {
        let digits = proptest::collection::vec(0u32..10, 12..=18);
        let spaced = (digits, proptest::sample::select(vec!["", " ", "-"]));
        prop_oneof![
            "(sk|pk|ghp|hf|glpat|xoxb)[-_][A-Za-z0-9]{8,40}",
            "AKIA[A-Z0-9]{16}",
            "eyJ[A-Za-z0-9]{10,40}\\.[A-Za-z0-9]{10,40}\\.[A-Za-z0-9_-]{10,40}",
            "[a-z]{1,12}[0-9]{0,3}@[a-z]{2,10}\\.(com|org|example)",
            "[0-9a-f]{31}[a-f0-9]{9}a7",
            spaced.prop_map(|(digits, sign)| {
                let number: Vec<char> = card(digits).chars().collect();
                let parts = number.chunks(4).map(|part| part.iter().collect::<String>());
                parts.collect::<Vec<_>>().join(sign)
            }),
        ]
    }

    proptest! {
        #[test]
        fn feature_z6_a_secret_never_comes_out(
            before in "(.{0,40}[ \n\"(,])?",
            secret in secret(),
            after in "([ \n\"),;].{0,40})?",
            keep in 0usize..200,
        ) {
            let text = format!("{before}{secret}{after}");
            let whole = redacted(&text);
            prop_assert!(!whole.contains(&secret), "{whole}");
            let mut cut = String::new();
            redact(&text, keep, &mut cut);
            prop_assert!(!cut.contains(&secret), "{cut}");
            // Nor does the beginning of one that the end cuts.
            let shown = secret.chars().take(10).collect::<String>();
            if !before.contains(&shown) && !after.contains(&shown) {
                prop_assert!(!cut.contains(&shown), "{cut}");
            }
        }

        #[test]
        fn feature_z6_values_behind_names_never_come_out(
            before in "(.{0,40}[ \n\"])?",
            label in "(password|Api-Key|SECRET|token|authorization|passwd)[\"']?( ?: ?| ?= ?| is )[\"']?",
            scheme in "(Bearer )?",
            value in "[a-zA-Z0-9!#$%&*.-]{8,20}",
            after in "([ \n\"),;].{0,40})?",
        ) {
            let scheme = if label.starts_with("auth") { scheme } else { String::new() };
            let whole = redacted(&format!("{before}{label}{scheme}{value}{after}"));
            prop_assert!(before.contains(&value) || !whole.contains(&value), "{whole}");
        }

        #[test]
        fn any_text_is_taken(text in ".{0,300}", keep in 0usize..400) {
            let mut out = String::new();
            redact(&text, keep, &mut out);
        }
    }
}
