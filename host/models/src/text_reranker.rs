//! A model that scores pairs, with what makes its input of two texts.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use mortise_tokenizer::{EncodeLimits, EncodedPair, TextSegment, Tokenizer, TokenizerError};

use crate::rerank_runtime::RerankRuntime;

/// Task of a model that is asked, where its operator says nothing: that of Qwen3-Reranker.
pub const USUAL_INSTRUCTION: &str =
    "Given a web search query, retrieve relevant passages that answer the query";

/// Text before and behind the pair, as Qwen3-Reranker was trained with it.
const BEFORE: &str = "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the \
Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n";
const AFTER: &str = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";

/// Control tokens of these texts.
const CONTROLS: [&str; 2] = ["<|im_start|>", "<|im_end|>"];

/// The tokens that such a model answers with.
const ANSWERS: [&str; 2] = ["yes", "no"];

/// A runtime that scores pairs, with its tokenizer.
#[derive(Clone)]
pub struct TextReranker {
    /// Computes scores.
    pub runtime: Arc<dyn RerankRuntime>,
    /// Text to tokens.
    pub tokenizer: Arc<Tokenizer>,
    /// Input of the model.
    pub form: PairForm,
}

/// Input of a model that scores pairs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PairForm {
    /// Both texts, joined as the tokenizer's files say.
    Joined,
    /// A question about both, which the model answers with yes or no.
    Asked {
        /// Tokens before the pair.
        before: Vec<u32>,
        /// Tokens behind it.
        after: Vec<u32>,
        /// Task of the model.
        instruction: String,
    },
}

impl PairForm {
    /// The form of an encoder.
    ///
    /// # Errors
    /// When its tokenizer does not tell how two texts are joined.
    pub(crate) fn joined(tokenizer: &Tokenizer) -> anyhow::Result<Self> {
        ensure!(
            tokenizer.joins_pairs(),
            "the model ranks, and the post-processor of its `tokenizer.json` does not say how two texts become one input"
        );
        Ok(Self::Joined)
    }

    /// The form of a decoder that is asked for a task.
    ///
    /// # Errors
    /// When its tokenizer lacks one of the tokens.
    pub(crate) fn asked(tokenizer: &Tokenizer, instruction: &str) -> anyhow::Result<Self> {
        for control in CONTROLS {
            known(tokenizer, control)?;
        }
        Ok(Self::Asked {
            before: tokenizer.encode_special(BEFORE)?,
            after: tokenizer.encode_special(AFTER)?,
            instruction: instruction.to_owned(),
        })
    }

    /// The form of a decoder with a head: that of its tokenizer's files, or, where these tell nothing of two texts, that of a
    /// decoder that is asked.
    ///
    /// # Errors
    /// When its tokenizer has neither.
    pub(crate) fn of_classifier(tokenizer: &Tokenizer) -> anyhow::Result<Self> {
        let asked = CONTROLS
            .iter()
            .all(|text| tokenizer.token_id(text).is_some());
        match tokenizer.joins_pairs() || !asked {
            true => Self::joined(tokenizer),
            false => Self::asked(tokenizer, USUAL_INSTRUCTION),
        }
    }
}

/// The tokens of the two answers of a decoder that is asked, `yes` first.
///
/// # Errors
/// When the tokenizer lacks one of them.
pub(crate) fn answers(tokenizer: &Tokenizer) -> anyhow::Result<(u32, u32)> {
    Ok((known(tokenizer, ANSWERS[0])?, known(tokenizer, ANSWERS[1])?))
}

fn known(tokenizer: &Tokenizer, text: &str) -> anyhow::Result<u32> {
    let id = tokenizer.token_id(text);
    id.with_context(|| format!("the model ranks by the token `{text}`, and has none"))
}

impl TextReranker {
    /// A text without anything around it, to be joined with others by [`pair`](Self::pair).
    ///
    /// # Errors
    /// When it cannot be encoded within the limits.
    pub fn encode(&self, text: &str, limits: EncodeLimits<'_>) -> Result<Vec<u32>, TokenizerError> {
        let plain = [TextSegment::Plain(text)];
        self.tokenizer.encode_segments_within(&plain, limits)
    }

    /// The input of a pair. With `cut`, texts that are too long lose their ends.
    ///
    /// # Errors
    /// When the texts cannot be encoded within the limits, or are too long.
    pub fn pair(
        &self,
        (query, query_tokens): (&str, &[u32]),
        text: &str,
        limits: EncodeLimits<'_>,
        cut: bool,
    ) -> Result<EncodedPair, TokenizerError> {
        let context = self.runtime.context_length();
        let PairForm::Asked {
            before,
            after,
            instruction,
        } = &self.form
        else {
            let tokens = self.encode(text, limits)?;
            let most = match cut {
                true => context,
                false => usize::MAX,
            };
            let pair = self.tokenizer.join_pair(query_tokens, &tokens, most)?;
            return fits(pair, context);
        };
        let asked = format!("<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {text}");
        let mut asked = self.encode(&asked, limits)?;
        if cut {
            asked.truncate(context.saturating_sub(before.len() + after.len()));
        }
        let tokens = [&before[..], &asked, after].concat();
        let second = tokens.len();
        fits(EncodedPair { tokens, second }, context)
    }
}

fn fits(pair: EncodedPair, context: usize) -> Result<EncodedPair, TokenizerError> {
    match pair.tokens.len() <= context {
        true => Ok(pair),
        false => Err(TokenizerError::TooLong {
            at_least: pair.tokens.len(),
        }),
    }
}
