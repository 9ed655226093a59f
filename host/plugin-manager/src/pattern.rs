//! Patterns of names, in which `*` stands for any text and everything else for itself.
//!
//! The crate `wildmatch` matches them, here and in the default policy, so that both mean the same. Precedence and
//! overlap of two patterns are ours: no crate has them, and richer syntaxes (`glob`, `globset`) would make
//! overlap undecided.

use wildmatch::WildMatchPattern;

/// Pattern that matches everything.
pub(crate) const ANY: &str = "*";

/// Character for one character: there is none, so one that no name has.
const NO_WILDCARD: char = '\0';

/// Whether a name matches a pattern.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    WildMatchPattern::<'*', NO_WILDCARD>::new(pattern).matches(name)
}

/// Specificity of a pattern: names above patterns, and patterns by their characters other than `*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Specificity {
    is_name: bool,
    characters: usize,
}

impl Specificity {
    pub(crate) fn of(pattern: &str) -> Self {
        let characters = pattern.chars().filter(|&character| character != '*');
        Self {
            is_name: !pattern.contains('*'),
            characters: characters.count(),
        }
    }
}

/// Specificity of the most specific pattern that a name matches; `None` if it matches none.
pub(crate) fn most_specific(patterns: &[String], name: &str) -> Option<Specificity> {
    let matching = patterns.iter().filter(|p| matches(p, name));
    matching.map(|pattern| Specificity::of(pattern)).max()
}

/// Whether some name matches both patterns.
pub(crate) fn overlap(one: &str, other: &str) -> bool {
    let one: Vec<char> = one.chars().collect();
    let other: Vec<char> = other.chars().collect();
    // For the rest of `one` from a place on, by the place in `other`: whether the rests overlap. It is
    // filled from the ends, where nothing is left of either.
    let mut after: Vec<bool> = Vec::new();
    for at in (0..=one.len()).rev() {
        let mut row = vec![false; other.len() + 1];
        for to in (0..=other.len()).rev() {
            row[to] = match (one.get(at), other.get(to)) {
                (None, None) => true,
                // `*` stands for nothing, or for what comes next on the other side.
                (Some('*'), next) => after[to] || (next.is_some() && row[to + 1]),
                (next, Some('*')) => row[to + 1] || (next.is_some() && after[to]),
                (Some(a), Some(b)) => a == b && after[to + 1],
                (None, Some(_)) | (Some(_), None) => false,
            };
        }
        after = row;
    }
    after[0]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn patterns_match_as_people_expect() {
        for (pattern, name, expected) in [
            ("*", "anything", true),
            ("qwen", "qwen", true),
            ("qwen", "qwen3", false),
            ("qwen*", "qwen3", true),
            ("*-7b", "llama-7b", true),
            ("*-7b", "llama-70b", false),
            ("a*b*c", "a1b2c", true),
            ("a*b*c", "acb", false),
            ("a*a", "a", false),
            ("", "", true),
            ("", "x", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn names_and_long_patterns_are_the_most_specific() {
        let rising = ["*", "a*", "*bc", "a*bc", "", "a", "ab"];
        for pair in rising.windows(2) {
            let [less, more] = [pair[0], pair[1]].map(Specificity::of);
            assert!(less < more, "{pair:?}");
        }
        assert_eq!(Specificity::of("ab*"), Specificity::of("*ab"));
    }

    #[test]
    fn patterns_overlap_where_a_name_is_of_both() {
        for (one, other, expected) in [
            ("*", "*", true),
            ("a*", "*b", true),
            ("a*", "b*", false),
            ("a*c", "ab*", true),
            ("acme-*", "acme", false),
            ("acme*", "acme", true),
            ("*x*", "abc", false),
            ("", "*", true),
        ] {
            assert_eq!(overlap(one, other), expected, "{one} {other}");
            assert_eq!(overlap(other, one), expected, "{other} {one}");
        }
    }

    proptest! {
        /// A name that matches two patterns needs no more characters than both have beside `*`.
        #[test]
        fn overlap_agrees_with_trying_all_names(one in "[ab*]{0,4}", other in "[ab*]{0,4}") {
            let mut names = vec![String::new()];
            let mut from = 0;
            while names[from].len() < 6 {
                let longer = ["a", "b"].map(|letter| format!("{}{letter}", names[from]));
                names.extend(longer);
                from += 1;
            }
            let both = |name: &String| matches(&one, name) && matches(&other, name);
            prop_assert_eq!(overlap(&one, &other), names.iter().any(both));
        }
    }
}
