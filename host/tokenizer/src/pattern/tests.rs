use std::cell::Cell;
use std::ops::Range;

use proptest::prelude::*;

use super::{Pattern, parse};
use crate::error::TokenizerError;
use crate::limits::{EncodeLimits, Meter};

/// Patterns of models in use, of the demo model, and of every construct that this crate matches.
const PATTERNS: &[&str] = &[
    // GPT-2, Llama 3, Qwen 2, o200k, DeepSeek, the demo model.
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##,
    r#"\p{L}+|\p{N}|["{}\[\]:,]+ ?["{}\[\]]*| ["{}\[\]]+|[^\s\p{L}\p{N}"{}\[\]:,]|\s*[\r\n]+|\s"#,
    r"[\p{L}&&[^a-c]]+|.",
    r"\s+?\S|(?:ab|a)+(?=b)|\d{2,}",
    r"\A +| +\z",
    " {2,}",
    r"(a|ab)(c|bcd)|x?y??z",
    r"'(?i:[sdmt]|ll|ve|re)",
    r"\w+|[^\w\s]+",
    r"(\p{L}+)*\d\d|\W",
];

fn found_by_us(source: &str, text: &str) -> Vec<Range<usize>> {
    let pattern = Pattern::regex(source).expect("a good pattern");
    assert!(
        matches!(pattern, Pattern::Linear(_)),
        "{source} is not matched here"
    );
    let mut meter = Meter::new(EncodeLimits::NONE);
    let mut matches = pattern.find_in(text);
    std::iter::from_fn(|| matches.next(&mut meter).expect("a match or none")).collect()
}

fn found_by_oniguruma(source: &str, text: &str) -> Vec<Range<usize>> {
    let regex = onig::Regex::new(source).expect("a good pattern");
    regex.find_iter(text).map(|(from, to)| from..to).collect()
}

/// The work of finding all matches.
fn work(source: &str, text: &str) -> usize {
    let done = Cell::new(0);
    let proceed = |work| {
        done.set(done.get() + work);
        true
    };
    let mut meter = Meter::new(EncodeLimits {
        max_tokens: usize::MAX,
        proceed: &proceed,
    });
    let pattern = Pattern::regex(source).expect("a good pattern");
    let mut matches = pattern.find_in(text);
    while matches.next(&mut meter).expect("a match or none").is_some() {}
    done.get()
}

#[test]
fn hard_texts_match_as_oniguruma_matches_them() {
    let texts = [
        "I'll SAY 'Re it’s 'ſ 'S  \n\n  x\r\n\ty 1234567 ١٢٣ ½",
        "naïve é e\u{301} 😀 の 漢字かな ǅ ʰ ßẞ \u{a0}\u{3000}\u{2028}",
        "abcd abbcd aab aaab xyz yz z 12 123",
        "{\"a\": [1, 2], \"b\": {}}  ",
        "   ",
        "",
        "\u{0}\u{7f}\u{85}\u{feff}\u{e000}\u{10ffff}",
    ];
    for source in PATTERNS {
        for text in texts {
            let expected = found_by_oniguruma(source, text);
            assert_eq!(found_by_us(source, text), expected, "{source} in {text:?}");
        }
    }
}

#[test]
fn what_is_not_understood_is_left_to_oniguruma() {
    for source in [
        "a++",
        "(?>a+)b",
        r"\bword",
        "^a",
        "a$",
        r"(a)\1",
        "(?<=a)b",
        "(?<name>a)",
        "x*",
        "(?i:straße)",
        "(?i:ss)",
        "(?i:(s)t)",
        "a{,3}",
        "a{2}{3}",
        "(a*)*b",
        "[]a]",
        "(?=ab)c",
        "(?#note)a",
        r"\Ra",
        "(?i:[^s])",
        "a{1,1000}",
    ] {
        let matched_here = parse::parse(source).is_some_and(|node| !node.is_nullable());
        assert!(!matched_here, "{source}");
    }
}

#[test]
fn long_runs_take_time_in_proportion_to_their_length() {
    let runs = [
        " ", "\t", "a", "A", "'", "1", "\r\n", " \t", "a ", ".\n", "aA", "é", "漢",
    ];
    for source in PATTERNS {
        for run in runs {
            for end in ["", "x", "!"] {
                let text = |bytes: usize| run.repeat(bytes / run.len()) + end;
                let (short, long) = (
                    work(source, &text(64 << 10)),
                    work(source, &text(256 << 10)),
                );
                // A slice of work is not reported until it is done.
                assert!(
                    long <= 5 * (short + (16 << 10)),
                    "{source}: {run:?}: {short}, {long}"
                );
            }
        }
    }
}

#[test]
fn patterns_of_oniguruma_can_be_stopped_and_end() {
    // Time in the square of the length: a minute without a stop.
    let text = " ".repeat(200_000);
    let pattern = Pattern::regex(r"\s*$x|\s*\n").expect("a good pattern");
    assert!(matches!(pattern, Pattern::Foreign(_)));
    let proceed = |_| false;
    let mut meter = Meter::new(EncodeLimits {
        max_tokens: usize::MAX,
        proceed: &proceed,
    });
    let stopped = pattern.find_in(&text).next(&mut meter);
    assert_eq!(stopped, Err(TokenizerError::Cancelled));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn random_texts_match_as_oniguruma_matches_them(
        text in "([a-dA-Dstlrevm' \t\r\n0-9{}\\[\\]\":,.!/é\u{301}ßſ漢かー😀\u{a0}]|\\PC){0,40}",
        which in any::<prop::sample::Index>(),
    ) {
        let source = PATTERNS[which.index(PATTERNS.len())];
        prop_assert_eq!(found_by_us(source, &text), found_by_oniguruma(source, &text), "{}", source);
    }

    #[test]
    fn random_patterns_match_as_oniguruma_matches_them(
        pieces in proptest::collection::vec(prop::sample::select(vec![
            "a", "b", "ab", "[ab]", ".", r"\s", "(a|b)", "(a|ab)", "(?:b|a b)", "(?i:a)", "(?!b)", "(?=a)",
            "a*", "b+", "a?", "[^a]*?", "b{1,2}", "(ab|b)+", "(a|b)*?", "|", "(a+b)*", r"\A", r"\z",
        ]), 1..8),
        text in "[abAB .]{0,16}",
    ) {
        let source = pieces.concat();
        let node = parse::parse(&source).filter(|node| !node.is_nullable());
        if node.is_some() && onig::Regex::new(&source).is_ok() {
            prop_assert_eq!(found_by_us(&source, &text), found_by_oniguruma(&source, &text), "{}", source);
        }
    }
}
