//! Patterns of normalizers and pre-tokenizers: the matches that Oniguruma would find, in time linear in
//! the text where the pattern allows it.

mod class;
mod parse;
mod program;

use std::ops::Range;

use onig::{MatchParam, SearchOptions};

use crate::error::TokenizerError;
use crate::limits::Meter;
use program::{MatchSearch, Program};

/// Backtracking steps of one attempt by Oniguruma, which handles the patterns that `Program` does not.
const RETRIES_MAX: u32 = 1_000_000;
/// Work of one attempt, in bytes of text.
const ATTEMPT_COST: usize = 16;

/// A pattern that texts are searched for.
pub(crate) enum Pattern {
    /// A text that stands for itself.
    Literal(String),
    /// Matched by this crate.
    Linear(Program),
    /// Matched by Oniguruma.
    Foreign(onig::Regex),
}

impl Pattern {
    /// A regular expression in Oniguruma's syntax.
    pub(crate) fn regex(source: &str) -> Result<Self, String> {
        let foreign = onig::Regex::new(source).map_err(|error| error.to_string())?;
        let linear = parse::parse(source).and_then(|node| Program::new(&node));
        Ok(linear.map_or(Self::Foreign(foreign), Self::Linear))
    }

    /// A text that stands for itself; it must not be empty.
    pub(crate) fn literal(text: &str) -> Self {
        Self::Literal(text.to_owned())
    }

    /// The search for all matches in a text.
    pub(crate) fn find_in<'p, 't>(&'p self, text: &'t str) -> Matches<'p, 't> {
        Matches {
            text,
            position: 0,
            engine: match self {
                Self::Literal(literal) => Engine::Literal(literal),
                Self::Linear(program) => Engine::Linear(MatchSearch::new(program, text)),
                Self::Foreign(regex) => Engine::Foreign(regex),
            },
        }
    }
}

/// The matches of a pattern in a text, from left to right.
pub(crate) struct Matches<'p, 't> {
    text: &'t str,
    position: usize,
    engine: Engine<'p, 't>,
}

enum Engine<'p, 't> {
    Literal(&'p str),
    Linear(MatchSearch<'p, 't>),
    Foreign(&'p onig::Regex),
}

impl Matches<'_, '_> {
    /// The next match.
    ///
    /// # Errors
    /// When the work is cancelled, when the pattern matches nothing at all (such as `x*`), and when it
    /// takes too long.
    pub(crate) fn next(
        &mut self,
        meter: &mut Meter<'_>,
    ) -> Result<Option<Range<usize>>, TokenizerError> {
        let found = match &mut self.engine {
            Engine::Literal(literal) => {
                let rest = self.text.get(self.position..).unwrap_or_default();
                let found = rest.find(*literal);
                meter.spend(found.map_or(rest.len(), |at| at + literal.len()))?;
                found.map(|at| (self.position + at, self.position + at + literal.len()))
            }
            Engine::Linear(search) => search.next(self.position, meter)?,
            Engine::Foreign(regex) => search_foreign(regex, self.text, self.position, meter)?,
        };
        let Some((start, end)) = found else {
            return Ok(None);
        };
        if start == end {
            return Err(TokenizerError::Encode(
                "a pattern of the tokenizer matches the empty text".to_owned(),
            ));
        }
        self.position = end;
        Ok(Some(start..end))
    }
}

/// One match by Oniguruma, tried position by position: its own search cannot be stopped.
fn search_foreign(
    regex: &onig::Regex,
    text: &str,
    from: usize,
    meter: &mut Meter<'_>,
) -> Result<Option<(usize, usize)>, TokenizerError> {
    let rest = text.get(from..).unwrap_or_default();
    for (offset, _) in rest.char_indices() {
        meter.spend(ATTEMPT_COST)?;
        let mut bound = MatchParam::default();
        bound.set_retry_limit_in_match(RETRIES_MAX);
        let options = SearchOptions::SEARCH_OPTION_NONE;
        let start = from + offset;
        let found = regex.match_with_param(text, start, options, None, bound);
        let found = found.map_err(|error| {
            TokenizerError::Encode(format!(
                "a pattern of the tokenizer cannot be matched with this text: {error}"
            ))
        })?;
        if let Some(length) = found {
            return Ok(Some((start, start + length)));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests;
