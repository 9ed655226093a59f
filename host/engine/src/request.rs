//! What a caller asks of the engine: token ids in, limits, and how to choose the next token.

use crate::constraint::Constraint;

/// One sequence to generate. Several choices of one API request are several sequences.
pub struct SequenceRequest {
    /// The prompt; at least one token, each below the vocabulary size.
    pub prompt: Vec<u32>,
    /// Most tokens to generate, at least 1. The context length bounds it further.
    pub max_tokens: u32,
    /// Tokens that end the sequence. They are not emitted.
    pub stop_tokens: Vec<u32>,
    /// How the next token is chosen.
    pub sampling: SamplingParams,
    /// Log-probabilities to report with each token.
    pub logprobs: Option<LogprobParams>,
    /// Restricts which tokens may follow.
    pub constraint: Option<Box<dyn Constraint>>,
}

/// How to choose a token from logits. Order of application: `logit_bias`, penalties, constraint
/// mask, temperature, top-k, min-p, top-p.
#[derive(Debug, Clone, PartialEq)]
pub struct SamplingParams {
    /// 0 takes the most likely token.
    pub temperature: f32,
    /// Nucleus: the smallest set of tokens whose probabilities reach this; 1 is off.
    pub top_p: f32,
    /// Keep this many tokens; 0 is off.
    pub top_k: u32,
    /// Keep tokens at least this likely relative to the most likely; 0 is off.
    pub min_p: f32,
    /// Seed of this sequence's own random stream; drawn at submission when absent.
    pub seed: Option<u64>,
    /// Divides positive and multiplies negative logits of tokens in prompt and output; 1 is off.
    pub repetition_penalty: f32,
    /// Subtracted once for each occurrence in the output.
    pub frequency_penalty: f32,
    /// Subtracted once if the token occurred in the output.
    pub presence_penalty: f32,
    /// Added to the logits of these tokens.
    pub logit_bias: Vec<(u32, f32)>,
}

impl Default for SamplingParams {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            seed: None,
            repetition_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            logit_bias: Vec::new(),
        }
    }
}

/// Which log-probabilities to report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogprobParams {
    /// How many of the most likely tokens to report beside the chosen one, at most 20.
    pub top: u8,
}
