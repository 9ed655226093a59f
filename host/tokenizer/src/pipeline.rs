//! The steps from text to ids, read from the library's tokenizer: normalizer, pre-tokenizer, model, and
//! the tokens around a text.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;
use serde_json::Value;
use tokenizers::{AddedToken, Encoding, Model, PostProcessor, Token};

use crate::around_pair::AroundPair;
use crate::around_size::{AROUND_MAX, is_too_large};
use crate::bound::{LowerBound, TokenizerFacts};
use crate::error::{TokenizerError, guarded, malformed};
use crate::files::Outline;
use crate::limits::{EncodeLimits, Meter};
use crate::long_words::LongWords;
use crate::normalize::{Normalizer, flatten};
use crate::pre_tokenize::PreTokenizer;

/// Most steps that are looked at for the bound.
const STEPS_MAX: usize = 64;
/// Characters of one kind in a row: more than any pattern can try all ways to divide.
const RUN: usize = 200;
/// A character of each kind that patterns tell apart.
const KINDS: [char; 8] = ['a', 'A', 'é', '日', '1', ' ', '\n', '.'];

/// The steps from text to ids.
pub(crate) struct Pipeline {
    pub(crate) normalizer: Normalizer,
    pub(crate) pre_tokenizer: PreTokenizer,
    pub(crate) long_words: Option<LongWords>,
    pub(crate) bound: LowerBound,
    /// Tokens before and after a text.
    pub(crate) around: (Vec<u32>, Vec<u32>),
    /// Tokens around and between two texts; `None` where the files do not tell, or tell of more than tokens.
    pub(crate) around_pair: Option<AroundPair>,
}

impl Pipeline {
    /// Read the steps, and try them with small texts.
    pub(crate) fn new(
        tokenizer: &tokenizers::Tokenizer,
        outline: &Outline,
        added: &BTreeMap<u32, AddedToken>,
    ) -> Result<Self, TokenizerError> {
        let normalizer = Normalizer::read(&written(tokenizer.get_normalizer())?)?;
        let entry = written(tokenizer.get_pre_tokenizer())?;
        let pre_tokenizer = PreTokenizer::read(&entry)?;
        let mut pre_tokenizer_steps = Vec::new();
        flatten(&entry, "pretokenizers", STEPS_MAX, &mut pre_tokenizer_steps)?;
        let vocabulary: HashMap<String, u32> = tokenizer.get_model().get_vocab();
        let bound = LowerBound::new(&TokenizerFacts {
            normalizer: normalizer.entries().collect(),
            pre_tokenizer: pre_tokenizer_steps.into_iter().cloned().collect(),
            model: &outline.model,
            byte_fallback: outline.byte_fallback,
            vocabulary: &vocabulary,
            added: added.values().collect(),
        });
        let token_id = |text: &str| vocabulary.get(text).copied();
        let long_words = match &outline.bpe {
            Some(bpe) => LongWords::new(bpe, &vocabulary, &token_id)?,
            None => None,
        };
        let post_processor = written(tokenizer.get_post_processor())?;
        let pipeline = Self {
            normalizer,
            pre_tokenizer,
            long_words,
            bound,
            around: around(tokenizer, &post_processor)?,
            around_pair: AroundPair::of(tokenizer, &post_processor),
        };
        pipeline.try_out()?;
        Ok(pipeline)
    }

    /// Refuse steps that fail on plain text: patterns that take for ever or match nothing, and
    /// replacements that make a text grow beyond reason.
    fn try_out(&self) -> Result<(), TokenizerError> {
        let replaced = self.normalizer.literals().map(|text| text.repeat(RUN));
        let runs = KINDS.iter().flat_map(|kind| {
            let run: String = std::iter::repeat_n(*kind, RUN).collect();
            ['!', 'b', ' '].map(|end| format!("{run}{end}"))
        });
        for text in replaced.chain(runs) {
            let mut meter = Meter::new(EncodeLimits::NONE);
            self.normalizer
                .apply(&text, &mut meter)
                .and_then(|text| {
                    let mut ignore = |_: &str, _: &mut Meter<'_>| Ok(());
                    self.pre_tokenizer.cut(&text, true, &mut meter, &mut ignore)
                })
                .map_err(|error| {
                    let reason = format!("its patterns cannot be matched with plain text: {error}");
                    malformed("tokenizer.json", reason)
                })?;
        }
        Ok(())
    }
}

/// A step as the library writes it.
fn written(step: Option<&impl Serialize>) -> Result<Value, TokenizerError> {
    serde_json::to_value(step).map_err(|error| malformed("tokenizer.json", error))
}

/// The tokens that the post-processor puts around a text; `entry` is its own in the files.
fn around(
    tokenizer: &tokenizers::Tokenizer,
    entry: &Value,
) -> Result<(Vec<u32>, Vec<u32>), TokenizerError> {
    let Some(processor) = tokenizer.get_post_processor() else {
        return Ok((Vec::new(), Vec::new()));
    };
    let unsupported = || {
        TokenizerError::Unsupported(
            "a post-processor that does anything but put a few tokens around a text".to_owned(),
        )
    };
    if is_too_large(entry, 1) {
        return Err(unsupported());
    }
    // Ids that no token has.
    let text = [u32::MAX - 1, u32::MAX];
    let token = |id| Token::new(id, String::new(), (0, 0));
    let encoding = Encoding::from_tokens(text.map(token).into(), 0);
    let processed = guarded(|| processor.process(encoding, None, true))
        .and_then(|done| done.map_err(|error| error.to_string()))
        .map_err(|reason| malformed("tokenizer.json", format!("its post-processor: {reason}")))?;
    let ids = processed.get_ids();
    let found = ids.windows(2).position(|pair| pair == text);
    let once = ids.iter().filter(|id| text.contains(id)).count() == text.len();
    let Some(at) = found.filter(|_| once && ids.len() <= AROUND_MAX) else {
        return Err(unsupported());
    };
    Ok((ids[..at].to_vec(), ids[at + text.len()..].to_vec()))
}
