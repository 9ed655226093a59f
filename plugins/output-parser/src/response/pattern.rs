//! Regular expressions that are matched against text while it comes: all alternatives are followed at once, so the work is
//! linear in the text, and it is known at any time from where on text may still become a match.

use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, Hir, HirKind, Look};

/// States of one expression.
const MAX_STATES: usize = 2048;
/// Nesting of groups.
const MAX_NESTING: u32 = 32;

#[derive(Debug)]
enum State {
    /// One character of these ranges.
    One(Vec<(char, char)>),
    /// Both, the first rather than the second.
    Either(usize, usize),
    GoTo(usize),
    /// Beginning or end of a named group.
    Save(usize),
    /// The beginning of the text.
    First,
    /// The end of the text.
    Last,
    Found,
}

/// A compiled expression.
#[derive(Debug)]
pub(super) struct Pattern {
    states: Vec<State>,
    /// Names of groups.
    names: Vec<String>,
}

impl Pattern {
    /// An expression in Python's dialect, as far as that is a regular language. A dot is any character.
    pub(super) fn new(source: &str) -> Result<Self, String> {
        let mut parser = ParserBuilder::new()
            .dot_matches_new_line(true)
            .nest_limit(MAX_NESTING)
            .build();
        let parsed = parser.parse(&source.replace(r"\Z", r"\z"));
        let hir =
            parsed.map_err(|error| format!("`{source}` is not a regular language: {error}"))?;
        let mut pattern = Self {
            states: Vec::new(),
            names: Vec::new(),
        };
        pattern
            .add(&hir)
            .and_then(|()| pattern.push(State::Found))
            .map_err(|problem| format!("`{source}`: {problem}"))?;
        Ok(pattern)
    }

    /// Any of these texts, the longest that is there.
    pub(super) fn any_of(texts: &[String]) -> Result<Self, String> {
        let mut longest: Vec<&String> = texts.iter().collect();
        longest.sort_by_key(|text| std::cmp::Reverse(text.len()));
        let each = longest.into_iter().map(|text| regex_syntax::escape(text));
        Self::new(&each.collect::<Vec<String>>().join("|"))
    }

    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// First match in a text from an offset on.
    pub(super) fn find(&self, text: &str, from: usize) -> Option<Found> {
        let mut search = Search::new(self, from, usize::MAX, false);
        for (at, c) in text.get(from..)?.char_indices() {
            if search.decided().is_some() {
                break;
            }
            search.step(from + at, c);
        }
        search.finish(text.len());
        search.found
    }

    fn push(&mut self, state: State) -> Result<(), String> {
        self.states.push(state);
        match self.states.len() > MAX_STATES {
            true => Err(format!("it has more than {MAX_STATES} states")),
            false => Ok(()),
        }
    }

    fn add(&mut self, hir: &Hir) -> Result<(), String> {
        match hir.kind() {
            HirKind::Empty => Ok(()),
            HirKind::Literal(literal) => {
                let text = std::str::from_utf8(&literal.0).map_err(|error| error.to_string())?;
                text.chars()
                    .try_for_each(|c| self.push(State::One(vec![(c, c)])))
            }
            HirKind::Class(Class::Unicode(class)) => {
                let ranges = class.iter().map(|range| (range.start(), range.end()));
                self.push(State::One(ranges.collect()))
            }
            HirKind::Class(Class::Bytes(class)) => {
                let ranges = class.iter();
                let ranges =
                    ranges.map(|range| (char::from(range.start()), char::from(range.end())));
                self.push(State::One(ranges.collect()))
            }
            HirKind::Look(Look::Start) => self.push(State::First),
            HirKind::Look(Look::End) => self.push(State::Last),
            HirKind::Look(_) => Err("boundaries of words and lines are not supported".to_owned()),
            HirKind::Capture(group) => match &group.name {
                None => self.add(&group.sub),
                Some(name) => {
                    let slot = 2 * self.names.len();
                    self.names.push(name.to_string());
                    self.push(State::Save(slot))?;
                    self.add(&group.sub)?;
                    self.push(State::Save(slot + 1))
                }
            },
            HirKind::Concat(parts) => parts.iter().try_for_each(|part| self.add(part)),
            HirKind::Alternation(parts) => self.alternatives(parts),
            HirKind::Repetition(repeated) => {
                (0..repeated.min).try_for_each(|_| self.add(&repeated.sub))?;
                match repeated.max {
                    None => self.any_number(&repeated.sub, repeated.greedy),
                    Some(max) => self.at_most(
                        &repeated.sub,
                        max.saturating_sub(repeated.min),
                        repeated.greedy,
                    ),
                }
            }
        }
    }

    fn alternatives(&mut self, parts: &[Hir]) -> Result<(), String> {
        let mut ends = Vec::new();
        for (index, part) in parts.iter().enumerate() {
            let fork = self.states.len();
            let is_last = index + 1 == parts.len();
            if !is_last {
                self.push(State::Either(fork + 1, 0))?;
            }
            self.add(part)?;
            if !is_last {
                ends.push(self.states.len());
                self.push(State::GoTo(0))?;
                self.states[fork] = State::Either(fork + 1, self.states.len());
            }
        }
        let end = self.states.len();
        for at in ends {
            self.states[at] = State::GoTo(end);
        }
        Ok(())
    }

    fn fork(greedy: bool, inside: usize, behind: usize) -> State {
        match greedy {
            true => State::Either(inside, behind),
            false => State::Either(behind, inside),
        }
    }

    fn any_number(&mut self, sub: &Hir, greedy: bool) -> Result<(), String> {
        let fork = self.states.len();
        self.push(State::Either(0, 0))?;
        self.add(sub)?;
        self.push(State::GoTo(fork))?;
        self.states[fork] = Self::fork(greedy, fork + 1, self.states.len());
        Ok(())
    }

    fn at_most(&mut self, sub: &Hir, times: u32, greedy: bool) -> Result<(), String> {
        let mut forks = Vec::new();
        for _ in 0..times {
            forks.push(self.states.len());
            self.push(State::Either(0, 0))?;
            self.add(sub)?;
        }
        let end = self.states.len();
        for fork in forks {
            self.states[fork] = Self::fork(greedy, fork + 1, end);
        }
        Ok(())
    }
}

/// A match, in bytes from the beginning of the text.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) start: usize,
    pub(super) end: usize,
    saved: Vec<usize>,
}

impl Found {
    /// Place of the named group of this number; `None` if it took no part.
    pub(super) fn group(&self, index: usize) -> Option<(usize, usize)> {
        let place = |slot: usize| self.saved.get(slot).copied().filter(|at| *at != UNSET);
        Some((place(2 * index)?, place(2 * index + 1)?))
    }
}

/// Place of a group that has not been passed.
const UNSET: usize = usize::MAX;

#[derive(Debug, Clone)]
struct Thread {
    state: usize,
    start: usize,
    saved: Vec<usize>,
}

/// A search that goes on while text comes: for the first match, as Python's `search` finds it.
#[derive(Debug)]
pub(super) struct Search<'p> {
    pattern: &'p Pattern,
    /// Alternatives that may still become a match, the preferred first.
    threads: Vec<Thread>,
    /// States that an alternative has reached in this step.
    reached: Vec<bool>,
    found: Option<Found>,
    /// Bytes of a match at most.
    longest: usize,
    /// Place at which nothing empty is a match.
    not_empty_at: Option<usize>,
}

impl<'p> Search<'p> {
    /// A search from a place on. `moving`: a match there must not be empty.
    pub(super) fn new(pattern: &'p Pattern, from: usize, longest: usize, moving: bool) -> Self {
        let mut search = Self {
            pattern,
            threads: Vec::new(),
            reached: vec![false; pattern.states.len()],
            found: None,
            longest,
            not_empty_at: moving.then_some(from),
        };
        search.begin(from);
        search
    }

    /// The match, if no other can be preferred to it any more.
    pub(super) fn decided(&self) -> Option<&Found> {
        self.found.as_ref().filter(|_| self.threads.is_empty())
    }

    /// Place from which on text may become part of a match.
    pub(super) fn pending_from(&self, at: usize) -> usize {
        let found = self.found.iter().map(|found| found.start);
        let threads = self.threads.iter().map(|thread| thread.start);
        found.chain(threads).min().unwrap_or(at)
    }

    /// Take a character that stands at a place.
    pub(super) fn step(&mut self, at: usize, c: char) {
        if self.decided().is_some() {
            return;
        }
        let next = at + c.len_utf8();
        self.advance(next, false, |state| match state {
            State::One(ranges) => ranges.iter().any(|(from, to)| (*from..=*to).contains(&c)),
            _ => false,
        });
        if self.found.is_none() {
            self.begin(next);
        }
    }

    /// The text ends at a place: the match, if there is one.
    pub(super) fn finish(&mut self, at: usize) {
        self.advance(at, true, |state| matches!(state, State::Last));
        self.threads.clear();
    }

    fn begin(&mut self, at: usize) {
        let thread = Thread {
            state: 0,
            start: at,
            saved: Vec::new(),
        };
        // Preferred alternatives have reached theirs already.
        if self.threads.is_empty() {
            self.reached.fill(false);
        }
        self.follow(thread, at, false);
    }

    /// Move those alternatives on whose state takes what comes.
    fn advance(&mut self, at: usize, ended: bool, takes: impl Fn(&State) -> bool) {
        self.reached.fill(false);
        for mut thread in std::mem::take(&mut self.threads) {
            if at.saturating_sub(thread.start) > self.longest
                || !takes(&self.pattern.states[thread.state])
            {
                continue;
            }
            thread.state += 1;
            if self.follow(thread, at, ended) {
                // What comes behind is not preferred to this match.
                break;
            }
        }
    }

    /// Follow an alternative to the characters that it needs next. `true` if it is a match.
    fn follow(&mut self, thread: Thread, at: usize, ended: bool) -> bool {
        let mut open = vec![thread];
        while let Some(mut thread) = open.pop() {
            if std::mem::replace(&mut self.reached[thread.state], true) {
                continue;
            }
            match &self.pattern.states[thread.state] {
                State::One(_) => self.threads.push(thread),
                State::Last if ended => {
                    thread.state += 1;
                    open.push(thread);
                }
                State::Last => self.threads.push(thread),
                State::First => {
                    thread.state += 1;
                    open.extend((at == 0).then_some(thread));
                }
                State::GoTo(to) => {
                    thread.state = *to;
                    open.push(thread);
                }
                State::Either(first, second) => {
                    let mut other = thread.clone();
                    other.state = *second;
                    thread.state = *first;
                    open.push(other);
                    open.push(thread);
                }
                State::Save(slot) => {
                    let slots = 2 * self.pattern.names.len();
                    thread.saved.resize(slots, UNSET);
                    thread.saved[*slot] = at;
                    thread.state += 1;
                    open.push(thread);
                }
                State::Found if thread.start == at && self.not_empty_at == Some(at) => {}
                State::Found => {
                    let Thread { start, saved, .. } = thread;
                    let end = at;
                    self.found = Some(Found { start, end, saved });
                    return true;
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::{Pattern, Search};

    fn find(pattern: &str, text: &str) -> Option<(usize, usize, Vec<Option<String>>)> {
        let pattern = Pattern::new(pattern).unwrap();
        let found = pattern.find(text, 0)?;
        let group = |index| {
            let (from, to) = found.group(index)?;
            Some(text[from..to].to_owned())
        };
        let groups = (0..pattern.names().len()).map(group).collect();
        Some((found.start, found.end, groups))
    }

    /// Another engine, the crate `regex`, finds the same.
    #[test]
    fn matches_are_those_of_regex() {
        let patterns = [
            r"a",
            r"ab|a",
            r"a|ab",
            r"a*",
            r"a*?b",
            r"(?P<x>a+)(?P<y>a*)b",
            r"\s*<b>",
            r"(?:^|<b>\s*)",
            r"x{2,3}y",
            r"(?P<x>[^<]*)<b>",
            r"<(?P<k>\w+)>\s*(?P<v>.*?)\s*</",
            r"b$",
            r"(a|b)*?c",
            r"(?P<x>a)?b",
        ];
        let texts = [
            "",
            "a",
            "b",
            "ab",
            "aab",
            "  <b>",
            "<b>  a",
            "xxy",
            "xxxxy",
            "ü<b>",
            "zz <k> v w </k>",
            "a\nb",
            "bb",
            "ababc",
            "aaaaab",
            "<b",
            "  ",
            "caab",
        ];
        for pattern in patterns {
            let other = regex::RegexBuilder::new(pattern)
                .dot_matches_new_line(true)
                .build()
                .unwrap();
            for text in texts {
                let meant = other.captures(text).map(|found| {
                    let whole = found.get(0).unwrap();
                    let names = other.capture_names().flatten();
                    let groups =
                        names.map(|name| found.name(name).map(|at| at.as_str().to_owned()));
                    (whole.start(), whole.end(), groups.collect::<Vec<_>>())
                });
                assert_eq!(find(pattern, text), meant, "{pattern} in {text:?}");
            }
        }
    }

    #[test]
    fn what_may_become_a_match_is_told() {
        let pattern = Pattern::new(r"\s*<tool>").unwrap();
        let mut search = Search::new(&pattern, 0, 1024, false);
        for (at, c) in "ab  <to".char_indices() {
            search.step(at, c);
        }
        assert!(search.decided().is_none());
        assert_eq!(search.pending_from(7), 2);
        search.step(7, 'x');
        assert_eq!(search.pending_from(8), 8);
        for (at, c) in "<tool>".char_indices() {
            search.step(8 + at, c);
        }
        assert_eq!(
            search.decided().map(|found| (found.start, found.end)),
            Some((8, 14))
        );
    }

    #[test]
    fn what_is_no_regular_language_or_too_large_is_refused() {
        for pattern in [r"(?<=a)b", r"(a)\1", r"\bword", r"(", r"(?:a{1000}){1000}"] {
            assert!(Pattern::new(pattern).is_err(), "{pattern}");
        }
    }
}
