//! Compiler of grammars for one vocabulary.

use std::sync::Arc;

use llguidance::api::{ParserLimits, TopLevelGrammar};
use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::InferenceCapabilities;
use llguidance::{Matcher as Inner, ParserFactory, TokenParser};
use serde_json::{Value, json};
use toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie};

use crate::blame;
use crate::cache::Cache;
use crate::distinct::{Distinct, Plan, Quoted};
use crate::error::{GrammarError, excerpt};
use crate::matcher::{Mask, Matcher};
use crate::pointer::shown;
use crate::rewrite::{Rewrite, Ways, circles, patterns};
use crate::source::{
    Source, check_lark, check_schema, read_schema, rewrite_lark, rewrite_schema, schema_grammar,
};

/// Tokens of a vocabulary.
const MAX_TOKENS: usize = 4_000_000;
/// Error of llguidance about a schema whose parts, put together, are more than it follows.
const TOO_LARGE: &str = "schema too large";
/// Bytes by which a lexer may grow while it is handed on. A few thousand states: a tenth of what one matcher
/// may make.
const MAX_LEXER_GROWTH_BYTES: usize = 1 << 20;

/// `vocabulary.table`
#[derive(Debug, Clone, Default)]
pub struct Vocabulary {
    /// Bytes of all tokens, back to back.
    pub bytes: Vec<u8>,
    /// Offset of each token in `bytes`, and the end of the last.
    pub offsets: Vec<u32>,
    /// Tokens that end a sequence.
    pub eos: Vec<u32>,
    /// Control tokens.
    pub control: Vec<u32>,
}

/// Grammars over one vocabulary.
pub struct Engine {
    factory: ParserFactory,
    tokens: usize,
    compiled: Cache<Compiled>,
    /// Tokens that may end a text, once a grammar asked for them.
    quoted: Option<Arc<Quoted>>,
}

/// A grammar that matchers are copied from. They share its lexer, which keeps what it finds out about texts:
/// the masks of the next are computed in a fraction of the time of the first.
struct Compiled {
    /// At the start of the text.
    start: Inner,
    /// The lexer's other handle.
    parser: TokenParser,
    /// Size of the lexer before it saw a text.
    lexer_bytes: usize,
    /// Places at which items differ.
    plan: Option<Arc<Plan>>,
}

impl Compiled {
    fn with_plan(self, schema: &Value) -> Self {
        Self {
            plan: Plan::of(schema).map(Arc::new),
            ..self
        }
    }

    /// Whether its lexer has failed, or has grown so much that the next matcher had better begin anew: its
    /// states count towards a limit, and stay in memory.
    fn is_worn(&self) -> bool {
        let stats = self.parser.parser.lexer_stats();
        stats.error || stats.num_bytes > self.lexer_bytes + MAX_LEXER_GROWTH_BYTES
    }
}

impl Engine {
    /// Prepare the vocabulary. This is the dear part, done once and kept in a snapshot.
    pub fn new(vocabulary: &Vocabulary) -> Result<Self, GrammarError> {
        let environment = token_environment(vocabulary)?;
        let mut factory = ParserFactory::new(
            &environment,
            InferenceCapabilities {
                ff_tokens: false,
                backtrack: false,
                conditional_ff_tokens: false,
                fork: false,
            },
            &SlicedBiasComputer::general_slices(),
        )
        .map_err(|error| GrammarError::Internal(format!("preparing the vocabulary: {error}")))?;
        factory.quiet();
        *factory.limits_mut() = limits();
        Ok(Self {
            factory,
            tokens: vocabulary.offsets.len() - 1,
            compiled: Cache::new(),
            quoted: None,
        })
    }

    /// A matcher at the start of the text. A grammar seen before is copied, not compiled.
    pub fn compile(&mut self, source: &Source) -> Result<Matcher, GrammarError> {
        source.check_size()?;
        let known = self.compiled.get(source).filter(|known| !known.is_worn());
        if let Some((copy, plan)) = known.map(|known| (known.start.clone(), known.plan.clone())) {
            return Ok(self.matcher(copy, plan));
        }
        let compiled = self.compile_new(source)?;
        let matcher = self.matcher(compiled.start.clone(), compiled.plan.clone());
        self.compiled.insert(source.clone(), compiled);
        Ok(matcher)
    }

    fn matcher(&mut self, inner: Inner, plan: Option<Arc<Plan>>) -> Matcher {
        let environment = self.factory.tok_env().clone();
        let distinct = plan.map(|plan| {
            let quoted = self.quoted.get_or_insert_with(|| {
                let quoted = Quoted::of(environment.tok_trie());
                Arc::new(quoted)
            });
            Distinct::new(plan, Arc::clone(quoted))
        });
        Matcher::new(inner, environment, self.tokens, distinct)
    }

    fn compile_new(&self, source: &Source) -> Result<Compiled, GrammarError> {
        let grammar = match source {
            Source::JsonObject => schema_grammar(json!({"type": "object"})),
            Source::JsonSchema(text) => return self.compile_schema(text),
            Source::Regex(text) => TopLevelGrammar::from_regex(text),
            Source::Lark(text) => {
                check_lark(text)?;
                TopLevelGrammar::from_lark(rewrite_lark(text)?)
            }
        };
        self.build(grammar).map_err(|error| {
            GrammarError::Invalid(format!("the {} cannot be used: {error}", source.kind()))
        })
    }

    fn compile_schema(&self, text: &str) -> Result<Compiled, GrammarError> {
        let schema = read_schema(text)?;
        let how = |ways| Rewrite {
            remembers: true,
            ways,
        };
        let mut built = self.build_schema(rewrite_schema(&schema, how(Ways::MANY))?);
        if built.as_ref().is_err_and(|error| error.contains(TOO_LARGE))
            && let Ok(smaller) = rewrite_schema(&schema, how(Ways::ONE))
        {
            built = self.build_schema(smaller);
        }
        built.map_err(|error| {
            let fails = |part: Value| {
                let part = rewrite_schema(&part, how(Ways::MANY));
                part.is_ok_and(|part| self.build(schema_grammar(part)).is_err())
            };
            let path = blame::find(&schema, fails);
            GrammarError::Invalid(format!(
                "the JSON schema cannot be used, at `{}`: {error}",
                shown(&path)
            ))
        })
    }

    /// A grammar of a rewritten schema.
    fn build_schema(&self, schema: Value) -> Result<Compiled, String> {
        let mut built = self.build(schema_grammar(schema.clone()));
        let changed = match &built {
            Err(error) if error.contains("circular references") => {
                circles::broken_up(&schema).into_iter().collect()
            }
            Err(error) if error.contains("not disjoint") => patterns::told_apart(&schema),
            _ => Vec::new(),
        };
        for changed in changed {
            if check_schema(&changed).is_err() {
                continue;
            }
            built = self.build(schema_grammar(changed.clone()));
            if let Ok(built) = built {
                return Ok(built.with_plan(&changed));
            }
        }
        built.map(|built| built.with_plan(&schema))
    }

    fn build(&self, grammar: TopLevelGrammar) -> Result<Compiled, String> {
        let parser = self.factory.create_parser(grammar);
        let parser = parser.map_err(|error| excerpt(&error.to_string()))?;
        let mut start = Inner::new(Ok(parser.clone()));
        if let Some(error) = start.get_error() {
            return Err(excerpt(&error));
        }
        // Rules that only refer to themselves compile, and then no token fits. The mask stays for all
        // copies.
        match start.compute_mask_or_eos() {
            Ok(_) => Ok(Compiled {
                start,
                lexer_bytes: parser.parser.lexer_stats().num_bytes,
                parser,
                plan: None,
            }),
            Err(error) => Err(format!(
                "no text that fits can begin: {}",
                excerpt(&error.to_string())
            )),
        }
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("tokens", &self.tokens)
            .finish_non_exhaustive()
    }
}

/// Budgets of llguidance: enough for the schemas of large APIs, small enough for a deadline.
fn limits() -> ParserLimits {
    ParserLimits {
        // An object with a thousand optional properties has four times as many.
        max_items_in_row: 10_000,
        initial_lexer_fuel: 1_000_000,
        step_lexer_fuel: 200_000,
        step_max_items: 50_000,
        max_lexer_states: 50_000,
        max_grammar_size: 250_000,
        precompute_large_lexemes: true,
        verbose_errors: false,
    }
}

/// The tokens as toktrie wants them: control tokens behind a byte that occurs in no text.
fn token_environment(vocabulary: &Vocabulary) -> Result<TokEnv, GrammarError> {
    let broken = |problem: String| GrammarError::Internal(format!("vocabulary: {problem}"));
    let count = vocabulary.offsets.len().saturating_sub(1);
    if count == 0 || count > MAX_TOKENS {
        return Err(broken(format!(
            "it has {count} tokens; 1 to {MAX_TOKENS} are allowed"
        )));
    }
    let mut words = Vec::with_capacity(count);
    for (token, range) in vocabulary.offsets.windows(2).enumerate() {
        let bytes = vocabulary
            .bytes
            .get(range[0] as usize..range[1] as usize)
            .ok_or_else(|| broken(format!("token {token} lies outside the bytes")))?;
        words.push(bytes.to_vec());
    }
    if vocabulary.eos.is_empty() {
        return Err(broken("it names no token that ends a sequence".to_owned()));
    }
    let mut special: Vec<u32> = [vocabulary.control.as_slice(), &vocabulary.eos].concat();
    special.sort_unstable();
    special.dedup();
    for token in special {
        let word = words
            .get_mut(token as usize)
            .ok_or_else(|| broken(format!("control token {token} does not exist")))?;
        word.insert(0, TokTrie::SPECIAL_TOKEN_MARKER);
    }
    let count = u32::try_from(count).map_err(|error| broken(error.to_string()))?;
    let info = TokRxInfo::new(count, vocabulary.eos[0]);
    let trie = TokTrie::from(&info, &words).with_eos_tokens(&vocabulary.eos);
    Ok(Arc::new(ApproximateTokEnv::new(trie)))
}

/// The masks at every position of `tokens`, the first before any: an oracle for tests of the
/// component built from this crate. Each is dense, one bit for each token.
pub fn masks_for(
    engine: &mut Engine,
    source: &Source,
    tokens: &[u32],
) -> Result<Vec<Vec<u32>>, GrammarError> {
    let mut matcher = engine.compile(source)?;
    let words = engine.tokens.div_ceil(32);
    let mut masks = Vec::with_capacity(tokens.len() + 1);
    let dense = |mask: Mask| mask.into_dense(engine.tokens, words);
    masks.push(dense(matcher.mask()?.0));
    for &token in tokens {
        matcher.accept(&[token])?;
        masks.push(dense(matcher.mask()?.0));
    }
    Ok(masks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lexer_that_has_grown_large_is_not_handed_on() {
        let mut engine = Engine::new(&Vocabulary {
            bytes: b"ab.".to_vec(),
            offsets: vec![0, 1, 2, 3],
            eos: vec![2],
            control: Vec::new(),
        })
        .unwrap();
        // Its lexer has a state for every sixteen letters.
        let source = Source::Regex("[ab]*a[ab]{16}".to_owned());
        let is_worn = |engine: &mut Engine| engine.compiled.get(&source).unwrap().is_worn();
        let mut matcher = engine.compile(&source).unwrap();
        let start = matcher.mask().unwrap();
        assert!(!is_worn(&mut engine));
        let mut random = 1u32;
        for _ in 0..30_000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            matcher.accept(&[random >> 31]).unwrap();
            matcher.mask().unwrap();
            if is_worn(&mut engine) {
                break;
            }
        }
        assert!(is_worn(&mut engine));
        let mut next = engine.compile(&source).unwrap();
        assert!(!is_worn(&mut engine));
        assert_eq!(next.mask().unwrap(), start);
        // Who has the old one goes on with it.
        assert!(matcher.mask().is_ok());
    }
}
