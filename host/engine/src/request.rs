//! Requests to the engine: prompt tokens, limits, and sampling parameters.

use std::sync::Arc;

use mortise_model::Adapter;

use crate::beam_params::BeamParams;
use crate::constraint::Constraint;
use crate::fair_queue::Share;

/// One sequence to generate. Several choices of one API request are several sequences.
pub struct SequenceRequest {
    /// The prompt; at least one token, each below the vocabulary size.
    pub prompt: Vec<u32>,
    /// Most tokens to generate, at least 1, or at least 0 with `prompt_logprobs`. The context length bounds it further.
    pub max_tokens: u32,
    /// Tokens that end the sequence. They are not emitted.
    pub stop_tokens: Vec<u32>,
    /// Sampling parameters.
    pub sampling: SamplingParams,
    /// Log-probabilities to report with each token.
    pub logprobs: Option<LogprobParams>,
    /// Log-probabilities to report of the prompt's own tokens. The prompt is then computed whole: of a prefix that is
    /// cached, no logits are known.
    pub prompt_logprobs: Option<LogprobParams>,
    /// Higher priorities are admitted first, and preempt lower ones where room is short. 0 is normal.
    pub priority: i32,
    /// Tenant, weight and key for fair queuing among equal priorities.
    pub share: Share,
    /// Sequences share cached prefixes only if their salts are equal. A salt of its own keeps a tenant
    /// from learning, by prefill times, what others have asked.
    pub salt: Option<Arc<str>>,
    /// Added to what the model computes. Sequences share cached prefixes only with those of the same adapter.
    pub adapter: Option<Arc<Adapter>>,
    /// Restricts which tokens may follow.
    pub constraint: Option<Box<dyn Constraint>>,
}

/// A beam search for the likeliest continuations of a prompt.
#[derive(Debug, Clone)]
pub struct BeamRequest {
    /// The prompt; at least one token, each below the vocabulary size.
    pub prompt: Vec<u32>,
    /// Most tokens to generate, at least 1. The context length bounds it further.
    pub max_tokens: u32,
    /// Tokens that end a continuation. They are not emitted.
    pub stop_tokens: Vec<u32>,
    /// Parameters of the search.
    pub beams: BeamParams,
    /// As in [`SequenceRequest`].
    pub priority: i32,
    /// As in [`SequenceRequest`].
    pub share: Share,
    /// As in [`SequenceRequest`].
    pub salt: Option<Arc<str>>,
    /// As in [`SequenceRequest`].
    pub adapter: Option<Arc<Adapter>>,
}

/// Sampling parameters. Order of application: `logit_bias`, penalties, constraint
/// mask, temperature, top-k, min-p, top-p.
#[derive(Debug, Clone, PartialEq)]
pub struct SamplingParams {
    /// 0 samples greedily.
    pub temperature: f32,
    /// Nucleus sampling: the smallest set of tokens whose probabilities reach this; 1 is off.
    pub top_p: f32,
    /// Keep this many tokens; 0 is off.
    pub top_k: u32,
    /// Keep tokens at least this likely relative to the most likely; 0 is off.
    pub min_p: f32,
    /// Seed of the sequence's random stream; `None` draws one at submission.
    pub seed: Option<u64>,
    /// Divides positive and multiplies negative logits of tokens in prompt and output; 1 is off.
    pub repetition_penalty: f32,
    /// Subtracted once for each occurrence in the output.
    pub frequency_penalty: f32,
    /// Subtracted once if the token occurred in the output.
    pub presence_penalty: f32,
    /// Added to the logits of these tokens.
    pub logit_bias: Vec<(u32, f32)>,
    /// Tokens to commit before one of `held_back` may be sampled, unless a constraint leaves nothing else.
    pub min_tokens: u32,
    /// Tokens that end the sequence, for `min_tokens`.
    pub held_back: Vec<u32>,
    /// Words that must not be sampled, as tokens, unless a constraint leaves nothing else.
    pub bad_words: Vec<Vec<u32>>,
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
            min_tokens: 0,
            held_back: Vec::new(),
            bad_words: Vec::new(),
        }
    }
}

/// Reported log-probabilities.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogprobParams {
    /// Number of likeliest tokens to report beside the token itself, at most 20.
    pub top: u8,
}

/// Most log-probabilities reported beside that of the token itself.
const LOGPROBS_MAX: u8 = 20;

impl SequenceRequest {
    /// Check the bounds above; the error names the one that is broken.
    pub(crate) fn check(&self, vocabulary: usize) -> Result<(), String> {
        check_prompt(&self.prompt, vocabulary)?;
        if self.prompt_logprobs.is_none() {
            check_max_tokens(self.max_tokens)?;
        }
        for logprobs in [self.logprobs, self.prompt_logprobs].into_iter().flatten() {
            if logprobs.top > LOGPROBS_MAX {
                return Err(format!(
                    "`top` is {}; it may be at most {LOGPROBS_MAX}",
                    logprobs.top
                ));
            }
        }
        self.sampling.check(vocabulary)
    }
}

impl BeamRequest {
    /// Check the bounds above, for steps of at most `sequences` sequences.
    pub(crate) fn check(&self, vocabulary: usize, sequences: usize) -> Result<(), String> {
        check_prompt(&self.prompt, vocabulary)?;
        check_max_tokens(self.max_tokens)?;
        self.beams
            .check(self.stop_tokens.len(), vocabulary, sequences)
    }
}

fn check_prompt(prompt: &[u32], vocabulary: usize) -> Result<(), String> {
    if prompt.is_empty() {
        return Err("the prompt has no tokens".to_owned());
    }
    if let Some(token) = prompt.iter().find(|token| **token as usize >= vocabulary) {
        return Err(format!(
            "prompt token {token} is not below the vocabulary size {vocabulary}"
        ));
    }
    Ok(())
}

fn check_max_tokens(max_tokens: u32) -> Result<(), String> {
    match max_tokens {
        0 => Err("`max_tokens` is 0; it must be at least 1".to_owned()),
        _ => Ok(()),
    }
}

impl SamplingParams {
    fn check(&self, vocabulary: usize) -> Result<(), String> {
        let within = |field, value: f32, least: f32, most: f32| {
            if (least..=most).contains(&value) {
                return Ok(());
            }
            Err(format!("`{field}` is {value}; expected {least} to {most}"))
        };
        within("temperature", self.temperature, 0.0, f32::MAX)?;
        within("top_p", self.top_p, 0.0, 1.0)?;
        within("min_p", self.min_p, 0.0, 1.0)?;
        within(
            "repetition_penalty",
            self.repetition_penalty,
            f32::MIN_POSITIVE,
            f32::MAX,
        )?;
        within("frequency_penalty", self.frequency_penalty, -1000.0, 1000.0)?;
        within("presence_penalty", self.presence_penalty, -1000.0, 1000.0)?;
        for (token, bias) in &self.logit_bias {
            if *token as usize >= vocabulary {
                return Err(format!(
                    "`logit_bias` names token {token}, which is not below the vocabulary size {vocabulary}"
                ));
            }
            within("logit_bias", *bias, -1000.0, 1000.0)?;
        }
        Ok(())
    }
}
