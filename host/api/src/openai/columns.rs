//! The columns of log-probabilities in text completions.

use mortise_service::{PromptToken, TokenLogprob};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::prompt_scores::finite;

/// Columns with a row for each token.
#[derive(Default, Serialize)]
pub(super) struct Columns {
    tokens: Vec<String>,
    /// `None` for the first token of a prompt.
    token_logprobs: Vec<Option<f32>>,
    top_logprobs: Option<Vec<Option<Map<String, Value>>>>,
    text_offset: Vec<usize>,
}

impl Columns {
    /// Append generated tokens, whose text begins `offset` characters into the choice's text.
    pub(super) fn extend(&mut self, logprobs: &[TokenLogprob], offset: &mut usize) {
        for entry in logprobs {
            let top = entry.top.iter();
            let top = top.map(|(token, _, logprob)| (token.clone(), json!(finite(*logprob))));
            let own = Some((entry.logprob, top.collect()));
            let length = entry.token.chars().count();
            self.push(entry.token.clone(), own, *offset);
            *offset += length;
        }
    }

    /// Append tokens of a prompt that the choice repeats, with `most` others beside each.
    pub(super) fn prompt(&mut self, tokens: &[PromptToken], most: u32, offset: &mut usize) {
        for token in tokens {
            let own = token.scores.as_ref().map(|scores| {
                let top = scores.top.iter().take(most as usize);
                let top = top.map(|(_, token, logprob)| (token.clone(), json!(finite(*logprob))));
                (scores.logprob, top.collect())
            });
            self.push(token.token.clone(), own, *offset);
            *offset += token.text.chars().count();
        }
    }

    /// Append a token with its log-probability and the likeliest tokens.
    fn push(&mut self, token: String, own: Option<(f32, Map<String, Value>)>, offset: usize) {
        let (logprob, top) = match own {
            Some((logprob, mut top)) => {
                // As at OpenAI, the token itself is there whether or not it is among the likeliest.
                top.insert(token.clone(), json!(finite(logprob)));
                (Some(finite(logprob)), Some(top))
            }
            None => (None, None),
        };
        self.tokens.push(token);
        self.token_logprobs.push(logprob);
        self.top_logprobs.get_or_insert_default().push(top);
        self.text_offset.push(offset);
    }

    /// Append the rows of `others`, whose text begins `offset` characters into the choice's text.
    pub(super) fn append(&mut self, others: Self, offset: usize) {
        self.tokens.extend(others.tokens);
        self.token_logprobs.extend(others.token_logprobs);
        if let Some(top) = others.top_logprobs {
            self.top_logprobs.get_or_insert_default().extend(top);
        }
        let offsets = others.text_offset.into_iter().map(|at| at + offset);
        self.text_offset.extend(offsets);
    }
}
