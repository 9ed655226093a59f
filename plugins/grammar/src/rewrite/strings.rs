//! Regular expressions over strings: whether two have a string in common, and which strings one leaves.

use llguidance::derivre::{Regex, RegexAst, RegexBuilder};
use llguidance::regex_to_lark;
use regex_syntax::hir::{Class, Hir, HirKind};

/// Work that is spent on a question about expressions, as derivre counts it.
const FUEL: u64 = 20_000;
/// States of an automaton that is written as a pattern.
const MAX_STATES: usize = 24;
/// Classes of letters that such a pattern tells apart.
const MAX_LETTERS: usize = 24;
/// Bytes of such a pattern.
const MAX_WRITTEN_BYTES: usize = 32 * 1024;

/// Whether no string has both patterns in it. False where that cannot be found out.
pub(super) fn disjoint(a: &str, b: &str) -> bool {
    let decide = || -> anyhow::Result<bool> {
        let mut builder = RegexBuilder::new();
        let a = builder.mk_regex_for_serach(&regex_to_lark(a, "dw"))?;
        let b = builder.mk_regex_for_serach(&regex_to_lark(b, "dw"))?;
        let both = builder.mk(&RegexAst::And(vec![
            RegexAst::ExprRef(a),
            RegexAst::ExprRef(b),
        ]))?;
        Ok(builder.to_regex_limited(both, FUEL)?.always_empty())
    };
    decide().unwrap_or(false)
}

/// Whether the text has the pattern in it, if that can be found out.
pub(super) fn matches(pattern: &str, text: &str) -> Option<bool> {
    Some(compiled(pattern)?.is_match(text))
}

fn compiled(pattern: &str) -> Option<Regex> {
    let mut builder = RegexBuilder::new();
    let expression = builder.mk_regex_for_serach(&regex_to_lark(pattern, "dw"));
    builder.into_regex_limited(expression.ok()?, FUEL).ok()
}

/// The strings that have all of some patterns in them, and none of others.
fn compiled_among(all: &[&str], none: &[&str]) -> Option<Regex> {
    let mut builder = RegexBuilder::new();
    let mut parts = Vec::new();
    for (pattern, has) in all
        .iter()
        .map(|p| (p, true))
        .chain(none.iter().map(|p| (p, false)))
    {
        let expression = builder.mk_regex_for_serach(&regex_to_lark(pattern, "dw"));
        let expression = RegexAst::ExprRef(expression.ok()?);
        parts.push(match has {
            true => expression,
            false => RegexAst::Not(Box::new(expression)),
        });
    }
    let both = builder.mk(&RegexAst::And(parts)).ok()?;
    builder.to_regex_limited(both, FUEL).ok()
}

/// A pattern of all strings but these.
pub(super) fn all_but(words: &[&str]) -> String {
    let words: Vec<Vec<char>> = words.iter().map(|word| word.chars().collect()).collect();
    let words: Vec<&[char]> = words.iter().map(Vec::as_slice).collect();
    format!("^(?:{})$", rest_of(&words))
}

/// The strings that complete no word, where all of these words are left to complete.
fn rest_of(words: &[&[char]]) -> String {
    let mut firsts: Vec<char> = words
        .iter()
        .filter_map(|word| word.first().copied())
        .collect();
    firsts.sort_unstable();
    firsts.dedup();
    let mut ways = Vec::new();
    if words.iter().all(|word| !word.is_empty()) {
        ways.push(String::new());
    }
    match firsts.is_empty() {
        true => ways.push(r"[\s\S]+".to_owned()),
        false => {
            let class: String = firsts.iter().copied().map(escaped).collect();
            ways.push(format!(r"[^{class}][\s\S]*"));
        }
    }
    for first in firsts {
        let rests: Vec<&[char]> = words
            .iter()
            .filter(|word| word.first() == Some(&first))
            .map(|word| &word[1..])
            .collect();
        ways.push(format!("{}(?:{})", escaped(first), rest_of(&rests)));
    }
    ways.join("|")
}

/// A pattern that no text of a format has, and many others do.
pub(super) fn without_format(format: &str) -> Option<&'static str> {
    Some(match format {
        "date-time" | "date" | "time" => r"^(?:[^0-9][\s\S]*)?$",
        "duration" => r"^(?:[^P][\s\S]*)?$",
        "email" => "^[^@]*$",
        "hostname" => "[ :/@]",
        "ipv4" => "[^0-9.]",
        "ipv6" | "uri" => "^[^:]*$",
        "uuid" => "[^0-9A-Fa-f-]",
        _ => return None,
    })
}

fn escaped(letter: char) -> String {
    format!("\\x{{{:x}}}", u32::from(letter))
}

/// Strings that are written as a pattern.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Complement {
    /// No string at all.
    Empty,
    /// The strings that have this one in them.
    Pattern(String),
    /// A pattern for them would be large, or cannot be told.
    Unknown,
}

/// The strings that do not have this pattern in them.
pub(super) fn complement(pattern: &str) -> Complement {
    among(&[], &[pattern])
}

/// Patterns of which a string has at least one if it has this one in it, where that is an alternation.
pub(super) fn alternatives(pattern: &str) -> Option<Vec<String>> {
    let text = regex_to_lark(pattern, "dw");
    let hir = regex_syntax::Parser::new().parse(&text).ok()?;
    match hir.into_kind() {
        HirKind::Alternation(parts) => Some(parts.iter().map(Hir::to_string).collect()),
        _ => None,
    }
}

/// The strings that have all of some patterns in them, and none of others.
pub(super) fn among(all: &[&str], none: &[&str]) -> Complement {
    match Machine::of(all, none) {
        Some(machine) => machine.written(),
        None => Complement::Unknown,
    }
}

/// Deterministic automaton over classes of letters.
struct Machine {
    /// Transitions: the next state for each state and class of letters.
    next: Vec<Vec<usize>>,
    accepts: Vec<bool>,
    /// The letters of a class, as within brackets.
    classes: Vec<String>,
}

impl Machine {
    /// Automaton of the strings that have all of some patterns in them, and none of others.
    fn of(all: &[&str], none: &[&str]) -> Option<Self> {
        let mut bounds = vec![0, 0xd800, 0xe000, 0x11_0000];
        for pattern in all.iter().chain(none) {
            let text = regex_to_lark(pattern, "dw");
            let hir = regex_syntax::Parser::new().parse(&text).ok()?;
            push_bounds(&hir, &mut bounds)?;
        }
        bounds.sort_unstable();
        bounds.dedup();
        let ranges: Vec<(u32, u32)> = bounds
            .windows(2)
            .map(|pair| (pair[0], pair[1] - 1))
            .filter(|(low, _)| *low != 0xd800)
            .collect();
        let mut regex = compiled_among(all, none)?;
        let mut states = vec![regex.initial_state()];
        let mut next: Vec<Vec<usize>> = Vec::new();
        while next.len() < states.len() {
            let mut row = Vec::new();
            for (low, _) in &ranges {
                let mut letter = [0; 4];
                let letter = char::from_u32(*low)?.encode_utf8(&mut letter);
                let to = regex.transition_bytes(states[next.len()], letter.as_bytes());
                row.push(
                    states
                        .iter()
                        .position(|state| *state == to)
                        .unwrap_or_else(|| {
                            states.push(to);
                            states.len() - 1
                        }),
                );
            }
            if states.len() > MAX_STATES {
                return None;
            }
            next.push(row);
        }
        let accepts = states
            .iter()
            .map(|state| regex.is_accepting(*state))
            .collect();
        Some(Self::merged(next, accepts, &ranges))
            .filter(|machine| machine.classes.len() <= MAX_LETTERS)
    }

    /// The automaton with the ranges of letters that it does not tell apart as one class.
    fn merged(next: Vec<Vec<usize>>, accepts: Vec<bool>, ranges: &[(u32, u32)]) -> Self {
        let mut columns: Vec<Vec<usize>> = Vec::new();
        let mut classes: Vec<String> = Vec::new();
        for (index, (low, high)) in ranges.iter().enumerate() {
            let column: Vec<usize> = next.iter().map(|row| row[index]).collect();
            let range = match low == high {
                true => format!("\\x{{{low:x}}}"),
                false => format!("\\x{{{low:x}}}-\\x{{{high:x}}}"),
            };
            match columns.iter().position(|known| *known == column) {
                Some(known) => classes[known].push_str(&range),
                None => {
                    columns.push(column);
                    classes.push(range);
                }
            }
        }
        let next = (0..next.len())
            .map(|state| columns.iter().map(|column| column[state]).collect())
            .collect();
        Self {
            next,
            accepts,
            classes,
        }
    }

    /// The strings that it accepts: its states are eliminated one by one.
    fn written(&self) -> Complement {
        let count = self.next.len();
        // Edges between states, and from those that accept to an end behind all of them.
        let mut edges: Vec<Vec<Option<String>>> = vec![vec![None; count + 1]; count];
        for (state, row) in self.next.iter().enumerate() {
            for (class, &to) in self.classes.iter().zip(row) {
                let way = format!("[{class}]");
                edges[state][to] = either(edges[state][to].take(), Some(way));
            }
            if self.accepts[state] {
                edges[state][count] = Some(String::new());
            }
        }
        for gone in (1..count).rev() {
            let again = repeated(edges[gone][gone].take());
            let leaving: Vec<(usize, String)> = (0..=count)
                .filter(|to| *to < gone || *to == count)
                .filter_map(|to| Some((to, edges[gone][to].clone()?)))
                .collect();
            for row in edges.iter_mut().take(gone) {
                let Some(entering) = row[gone].take() else {
                    continue;
                };
                for (to, way) in &leaving {
                    let way = format!("{entering}{again}{way}");
                    row[*to] = either(row[*to].take(), Some(way));
                }
                let bytes: usize = row.iter().flatten().map(String::len).sum();
                if bytes > MAX_WRITTEN_BYTES {
                    return Complement::Unknown;
                }
            }
        }
        let again = repeated(edges[0][0].take());
        match edges[0][count].take() {
            Some(end) => Complement::Pattern(format!("^(?:{again}(?:{end}))$")),
            None => Complement::Empty,
        }
    }
}

fn either(a: Option<String>, b: Option<String>) -> Option<String> {
    match (a, b) {
        (Some(a), Some(b)) => Some(format!("(?:{a}|{b})")),
        (a, b) => a.or(b),
    }
}

fn repeated(way: Option<String>) -> String {
    way.map_or(String::new(), |way| format!("(?:{way})*"))
}

/// The letters at which the classes of an expression begin and end.
fn push_bounds(hir: &Hir, bounds: &mut Vec<u32>) -> Option<()> {
    match hir.kind() {
        HirKind::Empty => {}
        HirKind::Look(look) => {
            use regex_syntax::hir::Look;
            if !matches!(look, Look::Start | Look::End) {
                return None;
            }
        }
        HirKind::Literal(literal) => {
            for letter in std::str::from_utf8(&literal.0).ok()?.chars() {
                bounds.extend([u32::from(letter), u32::from(letter) + 1]);
            }
        }
        HirKind::Class(Class::Unicode(class)) => {
            for range in class.ranges() {
                bounds.extend([u32::from(range.start()), u32::from(range.end()) + 1]);
            }
        }
        HirKind::Class(Class::Bytes(_)) => return None,
        HirKind::Repetition(repetition) => push_bounds(&repetition.sub, bounds)?,
        HirKind::Capture(capture) => push_bounds(&capture.sub, bounds)?,
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            for part in parts {
                push_bounds(part, bounds)?;
            }
        }
    }
    (bounds.len() <= 512).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complements_are_what_a_pattern_leaves() {
        let patterns = [
            "^a",
            "foo",
            "^$",
            "^[a-z]+$",
            "^(ab|c)*$",
            "b.?d",
            "^.{0,3}$",
            "[^0-9]",
            "",
        ];
        let texts = [
            "", "a", "ab", "abc", "foo", "xfoo", "fo", "foofo", "bd", "bxd", "b\nd", "0", "abcd",
            "é",
        ];
        for pattern in patterns {
            for text in texts {
                let has = matches(pattern, text).unwrap();
                match complement(pattern) {
                    Complement::Pattern(rest) => {
                        assert_eq!(
                            matches(&rest, text),
                            Some(!has),
                            "{pattern}: {rest}: {text}"
                        );
                    }
                    other => assert!(pattern.is_empty() && other == Complement::Empty),
                }
            }
        }
    }

    #[test]
    fn what_an_alternation_leaves_each_of_its_parts_leaves() {
        let pattern = r"^ *(?i:content)/|\.xnb *$|\.[a-zA-Z][a-zA-Z]-[a-zA-Z][a-zA-Z](?:.xnb)? *$";
        let parts = alternatives(pattern).unwrap();
        let rests = parts.iter().map(|part| match complement(part) {
            Complement::Pattern(rest) => rest,
            other => panic!("{part}: {other:?}"),
        });
        let rests: Vec<String> = rests.collect();
        for text in [
            "",
            "a",
            " Content/x",
            "xContent/",
            "a.xnb ",
            "a.xnb x",
            "a.en-GB",
            "a.en-GB.xnb",
            ".en-G",
            ".en-GBx ",
        ] {
            let left = rests.iter().all(|rest| matches(rest, text) == Some(true));
            assert_eq!(matches(pattern, text), Some(!left), "{text}");
        }
        assert_eq!(alternatives("^(a|b)$"), None);
    }

    #[test]
    fn all_strings_but_some_words() {
        let words = ["", "a", "ab", "b]c", "é", "a-"];
        let rest = all_but(&words);
        for word in words {
            assert_eq!(matches(&rest, word), Some(false), "{rest}: {word}");
        }
        for word in ["b", "abc", "b]", "b]cd", "ée", "-", "\n", "a\n"] {
            assert_eq!(matches(&rest, word), Some(true), "{rest}: {word}");
        }
        assert_eq!(matches(&all_but(&["x"]), ""), Some(true));
    }
}
