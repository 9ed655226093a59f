//! What a caller asks of the engine: token ids in, limits, and how to choose the next token.

use std::sync::Arc;

use crate::beam_search::offered;
use crate::constraint::Constraint;
use crate::shares::Share;

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
    /// Higher ones come first, and displace lower ones where room is short. 0 is normal.
    pub priority: i32,
    /// Among equal priorities, who has had least comes first.
    pub share: Share,
    /// Sequences share cached tokens only if their salts are equal. Whoever must not learn, by how
    /// fast a prompt is taken in, what others have asked gets a salt of their own.
    pub salt: Option<Arc<str>>,
    /// Restricts which tokens may follow.
    pub constraint: Option<Box<dyn Constraint>>,
}

/// A beam search: the likeliest of the continuations of a prompt, not sampled.
#[derive(Debug, Clone)]
pub struct BeamRequest {
    /// The prompt; at least one token, each below the vocabulary size.
    pub prompt: Vec<u32>,
    /// Most tokens to generate, at least 1. The context length bounds it further.
    pub max_tokens: u32,
    /// Tokens that end a continuation. They are not emitted.
    pub stop_tokens: Vec<u32>,
    /// How to search.
    pub beams: BeamParams,
    /// As in [`SequenceRequest`].
    pub priority: i32,
    /// As in [`SequenceRequest`].
    pub share: Share,
    /// As in [`SequenceRequest`].
    pub salt: Option<Arc<str>>,
}

/// How to search with beams, in the terms of `transformers`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BeamParams {
    /// Continuations that are followed at once, 1 to 16 and no more than sequences fit in a step.
    pub size: u32,
    /// Continuations that are returned, the best ones; 1 to `size`.
    pub results: u32,
    /// Scores are log-probabilities divided by the length to this power: above 0 favours long
    /// continuations, below 0 short ones. -10 to 10.
    pub length_penalty: f32,
    /// When to stop.
    pub early_stopping: EarlyStopping,
}

/// When a beam search stops, once as many continuations are complete as there are beams.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EarlyStopping {
    /// When the best beam is worse than all that are complete, if it ended now.
    #[default]
    Unlikely,
    /// At once.
    Full,
    /// When no beam can come to be better, however long it becomes.
    Never,
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

/// Most beams of a search.
pub const BEAMS_MAX: u32 = 16;

/// Most log-probabilities reported beside the chosen one.
const LOGPROBS_MAX: u8 = 20;

impl SequenceRequest {
    /// Whether the request keeps the rules above, or which it breaks.
    pub(crate) fn check(&self, vocabulary: usize) -> Result<(), String> {
        check_extent(&self.prompt, self.max_tokens, vocabulary)?;
        if let Some(logprobs) = self.logprobs
            && logprobs.top > LOGPROBS_MAX
        {
            return Err(format!(
                "`top` is {}; it may be at most {LOGPROBS_MAX}",
                logprobs.top
            ));
        }
        self.sampling.check(vocabulary)
    }
}

impl BeamRequest {
    /// Whether the request keeps the rules above, or which it breaks; `sequences` fit in a step.
    pub(crate) fn check(&self, vocabulary: usize, sequences: usize) -> Result<(), String> {
        check_extent(&self.prompt, self.max_tokens, vocabulary)?;
        let BeamParams {
            size,
            results,
            length_penalty,
            ..
        } = self.beams;
        let most = sequences.min(BEAMS_MAX as usize);
        if !(1..=most).contains(&(size as usize)) {
            return Err(format!(
                "a search with {size} beams; 1 to {most} are possible"
            ));
        }
        if !(1..=size).contains(&results) {
            return Err(format!(
                "{results} results of {size} beams; expected 1 to {size}"
            ));
        }
        if !(-10.0..=10.0).contains(&length_penalty) {
            return Err(format!(
                "`length_penalty` is {length_penalty}; expected -10 to 10"
            ));
        }
        let offered = offered(size, self.stop_tokens.len());
        if offered > vocabulary {
            return Err(format!(
                "{size} beams look at {offered} tokens; the model knows {vocabulary}"
            ));
        }
        Ok(())
    }
}

fn check_extent(prompt: &[u32], max_tokens: u32, vocabulary: usize) -> Result<(), String> {
    if prompt.is_empty() {
        return Err("the prompt has no tokens".to_owned());
    }
    if let Some(token) = prompt.iter().find(|token| **token as usize >= vocabulary) {
        return Err(format!(
            "prompt token {token} is not below the vocabulary size {vocabulary}"
        ));
    }
    if max_tokens == 0 {
        return Err("`max_tokens` is 0; it must be at least 1".to_owned());
    }
    Ok(())
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
