//! Reasoning where a caller wants it: in fields of its own, in the content between marks, in both, or nowhere.

use mortise_service::{Delta, FinishReason, TokenLogprob};

/// Text before reasoning in the content.
const OPEN: &str = "<think>\n";
/// Text behind it.
const CLOSE: &str = "\n</think>\n\n";

/// Place of reasoning in an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Thoughts {
    /// In fields of its own.
    #[default]
    Apart,
    /// In the content, between `<think>` and `</think>` whatever the model's own marks are.
    InContent,
    /// In both.
    Both,
    /// Left out.
    Hidden,
}

/// Part of an answer, with the log-probabilities and ids of its tokens.
pub(super) type AnswerPiece = (Delta, Vec<TokenLogprob>, Vec<u32>);

/// Deltas of the choices of one answer, with reasoning where it is wanted.
#[derive(Debug)]
pub(super) struct PlacedDeltas {
    thoughts: Thoughts,
    /// Ids of tokens are reported.
    token_ids: bool,
    /// Choices whose content is within reasoning.
    open: Vec<bool>,
}

impl PlacedDeltas {
    pub(super) fn new(thoughts: Thoughts, token_ids: bool, choices: u32) -> Self {
        Self {
            thoughts,
            token_ids,
            open: vec![false; choices as usize],
        }
    }

    /// The deltas that are written for one that came.
    pub(super) fn delta(&mut self, choice: u32, piece: AnswerPiece) -> Vec<AnswerPiece> {
        let (delta, logprobs, tokens) = piece;
        let Some(open) = self.open.get_mut(choice as usize) else {
            return Vec::new();
        };
        let Delta::Reasoning(text) = delta else {
            let closes = std::mem::take(open);
            return match (closes, delta) {
                (true, Delta::Content(text)) => {
                    vec![(Delta::Content(format!("{CLOSE}{text}")), logprobs, tokens)]
                }
                (true, delta) => vec![closing(), (delta, logprobs, tokens)],
                (false, delta) => vec![(delta, logprobs, tokens)],
            };
        };
        let opens = match *open {
            true => "",
            false => OPEN,
        };
        match self.thoughts {
            Thoughts::Apart => vec![(Delta::Reasoning(text), logprobs, tokens)],
            Thoughts::InContent => {
                *open = true;
                vec![(Delta::Content(format!("{opens}{text}")), logprobs, tokens)]
            }
            Thoughts::Both => {
                *open = true;
                let content = Delta::Content(format!("{opens}{text}"));
                let apart = (Delta::Reasoning(text), Vec::new(), Vec::new());
                vec![apart, (content, logprobs, tokens)]
            }
            // Ids are those of all tokens, of the prompt and generated.
            Thoughts::Hidden if self.token_ids => {
                vec![(Delta::Content(String::new()), Vec::new(), tokens)]
            }
            Thoughts::Hidden => Vec::new(),
        }
    }

    /// Text that is written before the end of a choice. Reasoning that was cut off stays open, as the model left it.
    pub(super) fn finished(&mut self, choice: u32, reason: FinishReason) -> Option<AnswerPiece> {
        let open = self.open.get_mut(choice as usize)?;
        (std::mem::take(open) && reason != FinishReason::Length).then(closing)
    }
}

fn closing() -> AnswerPiece {
    let text = CLOSE.trim_end().to_owned();
    (Delta::Content(text), Vec::new(), Vec::new())
}
