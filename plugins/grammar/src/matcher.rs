//! Matcher of one sequence that is being constrained.

use llguidance::Matcher as Inner;
use toktrie::{SimpleVob, TokEnv};

use crate::distinct::Distinct;
use crate::error::{GrammarError, excerpt};

/// Tokens that are still listed; beyond, a bit for each is smaller.
const MAX_LISTED: usize = 64;

/// State of a matcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// More text is needed.
    Active,
    /// The text may go on or end here.
    Accepting,
    /// Only an end-of-sequence token may follow.
    Finished,
}

/// Tokens that may come next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mask {
    /// A bit for each token.
    Dense(Vec<u32>),
    /// Only these tokens.
    Only(Vec<u32>),
    /// All tokens but these.
    AllBut(Vec<u32>),
}

impl Mask {
    /// Smallest of the three forms for `allowed`, which may be longer than `tokens`.
    fn smallest(allowed: SimpleVob, tokens: usize) -> Self {
        let mut words = Vec::from(allowed);
        words.truncate(tokens.div_ceil(32));
        if let (Some(last), 1..) = (words.last_mut(), tokens % 32) {
            *last &= (1 << (tokens % 32)) - 1;
        }
        if let Some(listed) = few(&words, tokens, true) {
            Self::Only(listed)
        } else if let Some(listed) = few(&words, tokens, false) {
            Self::AllBut(listed)
        } else {
            Self::Dense(words)
        }
    }

    /// A bit for each of `tokens` tokens.
    pub fn into_dense(self, tokens: usize, words: usize) -> Vec<u32> {
        let flip = |mut mask: Vec<u32>, listed: Vec<u32>| {
            for token in listed {
                mask[token as usize / 32] ^= 1 << (token % 32);
            }
            mask
        };
        match self {
            Self::Dense(mask) => mask,
            Self::Only(listed) => flip(vec![0; words], listed),
            Self::AllBut(listed) => {
                let mut mask = vec![u32::MAX; words];
                if let (Some(last), 1..) = (mask.last_mut(), tokens % 32) {
                    *last = (1 << (tokens % 32)) - 1;
                }
                flip(mask, listed)
            }
        }
    }
}

/// Words that are looked at together: most have none of the bits that are listed.
const STRETCH: usize = 32;

/// The tokens that are allowed, or those that are not, if they are few enough to be listed.
fn few(words: &[u32], tokens: usize, allowed: bool) -> Option<Vec<u32>> {
    let flip = if allowed { 0 } else { u32::MAX };
    let mut listed = Vec::new();
    for (stretch, words) in words.chunks(STRETCH).enumerate() {
        if words.iter().fold(0, |any, word| any | (word ^ flip)) == 0 {
            continue;
        }
        for (index, word) in words.iter().enumerate() {
            let mut bits = word ^ flip;
            while bits != 0 {
                let token = (stretch * STRETCH + index) * 32 + bits.trailing_zeros() as usize;
                if token >= tokens {
                    return Some(listed);
                }
                if listed.len() == MAX_LISTED {
                    return None;
                }
                listed.push(token as u32);
                bits &= bits - 1;
            }
        }
    }
    Some(listed)
}

/// Matcher of one sequence.
pub struct Matcher {
    inner: Inner,
    environment: TokEnv,
    tokens: usize,
    /// End-of-sequence tokens that were accepted. llguidance is not told of them.
    ended: usize,
    /// Tokens that llguidance has taken.
    taken: usize,
    /// Items that must differ.
    distinct: Option<Distinct>,
}

impl Matcher {
    pub(crate) fn new(
        inner: Inner,
        environment: TokEnv,
        tokens: usize,
        distinct: Option<Distinct>,
    ) -> Self {
        Self {
            inner,
            environment,
            tokens,
            ended: 0,
            taken: 0,
            distinct,
        }
    }

    /// The tokens that may come next, and where the matcher stands.
    pub fn mask(&mut self) -> Result<(Mask, Status), GrammarError> {
        let status = self.status()?;
        let mut allowed = if status == Status::Finished {
            self.environment.tok_trie().eos_token_set()
        } else {
            self.inner
                .compute_mask_or_eos()
                .map_err(|error| failed("computing a mask", &error))?
        };
        if let Some(distinct) = self
            .distinct
            .as_ref()
            .filter(|_| status != Status::Finished)
        {
            distinct.narrow(&mut allowed, self.environment.tok_trie());
            if allowed.is_zero() {
                return Err(classify("", DEAD_END));
            }
        }
        Ok((Mask::smallest(allowed, self.tokens), status))
    }

    /// State of the matcher.
    pub fn status(&mut self) -> Result<Status, GrammarError> {
        if self.ended > 0 {
            return Ok(Status::Finished);
        }
        if self.inner.is_stopped() {
            return match self.inner.get_error() {
                None if self.inner.stop_reason().is_ok() => Ok(Status::Finished),
                None => Err(classify("", &self.inner.stop_reason().to_string())),
                Some(error) => Err(classify("", &error)),
            };
        }
        let accepting = self
            .inner
            .is_accepting()
            .map_err(|error| failed("looking at the state", &error))?;
        Ok(if accepting {
            Status::Accepting
        } else {
            Status::Active
        })
    }

    /// Take these tokens.
    pub fn accept(&mut self, tokens: &[u32]) -> Result<(), GrammarError> {
        for &token in tokens {
            if token as usize >= self.tokens {
                return Err(refused(token));
            }
            if self.is_eos(token) && self.status()? != Status::Active {
                self.ended += 1;
                continue;
            }
            let bytes = self.environment.tok_trie().token(token);
            let repeats = self.distinct.as_ref().is_some_and(|it| it.repeats(bytes));
            let fits = self.ended == 0
                && !repeats
                && self
                    .inner
                    .try_consume_tokens(&[token])
                    .map_err(|error| failed("taking a token", &error))?
                    == 1;
            if !fits {
                return Err(refused(token));
            }
            if let Some(distinct) = &mut self.distinct {
                distinct.take(token, self.environment.tok_trie().token(token));
            }
            self.taken += 1;
        }
        Ok(())
    }

    /// Number of these tokens, from the first, that would be accepted.
    pub fn probe(&mut self, tokens: &[u32]) -> Result<usize, GrammarError> {
        if tokens.iter().any(|&token| token as usize >= self.tokens) {
            let known = tokens
                .iter()
                .take_while(|&&token| (token as usize) < self.tokens)
                .count();
            return self.probe(&tokens[..known]);
        }
        if self.ended > 0 {
            return Ok(tokens
                .iter()
                .take_while(|token| self.is_eos(**token))
                .count());
        }
        // Forked, since what may follow an end-of-sequence token is ours to say.
        let mut copy = self.fork();
        for (index, &token) in tokens.iter().enumerate() {
            if copy.accept(&[token]).is_err() {
                return Ok(index);
            }
        }
        Ok(tokens.len())
    }

    /// Take back the last `count` tokens.
    pub fn rollback(&mut self, count: usize) -> Result<(), GrammarError> {
        if count > self.taken + self.ended {
            return Err(GrammarError::Internal(format!(
                "cannot take back {count} tokens of {}",
                self.taken + self.ended
            )));
        }
        let ended = count.min(self.ended);
        let taken = count - ended;
        self.ended -= ended;
        self.taken -= taken;
        // It goes by where the parser stands, not by how it came there.
        self.inner.invalidate_bias_cache();
        if let Some(distinct) = &mut self.distinct {
            distinct.rollback(taken, self.environment.tok_trie());
        }
        self.inner
            .rollback(taken)
            .map_err(|error| failed("taking tokens back", &error))
    }

    /// An independent copy in the present state.
    pub fn fork(&self) -> Self {
        Self {
            inner: self.inner.deep_clone(),
            environment: self.environment.clone(),
            tokens: self.tokens,
            ended: self.ended,
            taken: self.taken,
            distinct: self.distinct.clone(),
        }
    }

    fn is_eos(&self, token: u32) -> bool {
        self.environment.tok_trie().eos_tokens().contains(&token)
    }
}

/// The one token that may come next, if there is but one and the text is not complete.
pub fn forced(mask: &Mask, status: Status) -> Vec<u32> {
    match mask {
        Mask::Only(tokens) if tokens.len() == 1 && status == Status::Active => tokens.clone(),
        _ => Vec::new(),
    }
}

impl std::fmt::Debug for Matcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Matcher")
            .field("tokens", &self.tokens)
            .field("taken", &self.taken)
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

fn failed(doing: &str, error: &anyhow::Error) -> GrammarError {
    classify(&format!("{doing}: "), &error.to_string())
}

/// Prefixes of the errors of llguidance that spent its budgets of lexer states and parser items. Its reason
/// for stopping says so too, but is lost when a matcher fails.
const SPENT: [&str; 3] = ["lexer error: ", "parser error: ", "Parser Error: "];

/// Error of llguidance where the text is not complete and no token may follow.
const DEAD_END: &str = "NoExtensionBias";

fn classify(doing: &str, error: &str) -> GrammarError {
    if error.starts_with(DEAD_END) {
        return GrammarError::Invalid(
            "the grammar leads to a dead end: the text is not complete, and no token may follow"
                .to_owned(),
        );
    }
    let text = format!("{doing}{}", excerpt(error));
    match SPENT.iter().any(|start| error.starts_with(start)) {
        true => GrammarError::TooComplex(text),
        false => GrammarError::Internal(text),
    }
}

fn refused(token: u32) -> GrammarError {
    GrammarError::Internal(format!("token {token} does not fit the grammar here"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Engine, Vocabulary};
    use crate::source::Source;

    #[test]
    fn a_mask_is_not_that_of_a_text_that_was_taken_back() {
        let tokens = ["{", "[", "x", "x}", "x]", "<eos>"];
        let mut vocabulary = Vocabulary {
            offsets: vec![0],
            eos: vec![5],
            ..Vocabulary::default()
        };
        for token in tokens {
            vocabulary.bytes.extend(token.as_bytes());
            vocabulary.offsets.push(vocabulary.bytes.len() as u32);
        }
        let grammar = "start: \"{\" X \"}\" | \"[\" X \"]\"\nX: /x+/".to_owned();
        let mut engine = Engine::new(&vocabulary).unwrap();
        let mut matcher = engine.compile(&Source::Lark(grammar)).unwrap();
        for (opening, closed) in [(0, 3), (1, 4), (0, 3)] {
            matcher.accept(&[opening]).unwrap();
            assert_eq!(matcher.mask().unwrap().0, Mask::Only(vec![2, closed]));
            matcher.rollback(1).unwrap();
        }
    }

    #[test]
    fn the_smallest_mask_says_the_same() {
        // Several stretches, and a last word that is not full.
        let tokens = 3 * STRETCH * 32 + 37;
        for (count, listed) in [(1, true), (64, true), (65, false), (2000, false)] {
            for allowed in [true, false] {
                let mut vob = SimpleVob::alloc(tokens + 40);
                for token in 0..tokens {
                    // Spread over all of them, the last included.
                    let among = (token + 1) * count / tokens > token * count / tokens;
                    vob.set(token, among == allowed);
                }
                // What lies beyond the vocabulary is no token.
                vob.set(tokens + 1, true);
                let expected: Vec<bool> = (0..tokens).map(|token| vob.get(token)).collect();
                let mask = Mask::smallest(vob, tokens);
                match (&mask, allowed) {
                    (Mask::Only(tokens), true) | (Mask::AllBut(tokens), false) => {
                        assert_eq!((tokens.len(), listed), (count, true));
                    }
                    (mask, _) => assert!(!listed && matches!(mask, Mask::Dense(_))),
                }
                let words = mask.into_dense(tokens, tokens.div_ceil(32));
                let found: Vec<bool> = (0..words.len() * 32)
                    .map(|token| words[token / 32] >> (token % 32) & 1 == 1)
                    .collect();
                assert_eq!(found[..tokens], expected);
                assert!(!found[tokens..].contains(&true));
            }
        }
    }
}
