//! Bounds of the usage that a model's server reports: what its request can have come to. Servers elsewhere are not
//! trusted with the quotas and the money of callers.

use mortise_models::Usage;
use mortise_models::conversation::ContentPart;

use crate::check::Request;
use crate::conversation_prompt::TokenLimit;
use crate::limits::{
    MAX_PROMPT_TOKENS_BESIDE_TEXT, MAX_TOKENS_PER_MEDIUM, MAX_TOKENS_PER_MESSAGE,
    MAX_TOKENS_PER_TOOL, MAX_UNLIMITED_ANSWER_TOKENS,
};
use crate::request::Prompt;
use crate::told_length;

/// Most tokens that a request can have come to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UsageBounds {
    pub(crate) prompt: u32,
    pub(crate) completion: u32,
}

impl UsageBounds {
    /// Bounds of a conversation that its server renders and encodes: a token has a byte at least.
    pub(crate) fn of_conversation(
        request: &Request,
        limit: TokenLimit,
        context: Option<usize>,
    ) -> Self {
        let prompt = &request.fields().prompt;
        let (messages, media) = match prompt {
            Prompt::Chat(chat) => {
                let messages = chat.conversation.messages();
                let parts = messages.iter().flat_map(|message| &message.content);
                let is_medium = |part: &&ContentPart| {
                    matches!(part, ContentPart::Image(_) | ContentPart::Audio(_))
                };
                (messages.len(), parts.filter(is_medium).count())
            }
            Prompt::Text(_) | Prompt::Tokens(_) => (1, 0),
        };
        let tokens = told_length::of_prompt(prompt)
            .saturating_add(messages as u64 * MAX_TOKENS_PER_MESSAGE)
            .saturating_add(media as u64 * MAX_TOKENS_PER_MEDIUM)
            .saturating_add(request.tools().count() as u64 * MAX_TOKENS_PER_TOOL)
            .saturating_add(MAX_PROMPT_TOKENS_BESIDE_TEXT);
        Self {
            prompt: within(tokens),
            completion: match limit.given {
                true => limit.max_tokens,
                false => {
                    context.map_or(MAX_UNLIMITED_ANSWER_TOKENS, |tokens| within(tokens as u64))
                }
            },
        }
    }

    /// Bounds of a prompt that was encoded here.
    pub(crate) fn of_encoded(prompt: usize, max_tokens: u32) -> Self {
        Self {
            prompt: within((prompt as u64).saturating_add(MAX_PROMPT_TOKENS_BESIDE_TEXT)),
            completion: max_tokens,
        }
    }

    /// The part of a reported usage that can be so, and whether that is less than all of it.
    pub(crate) fn clamp(self, reported: Usage) -> (Usage, bool) {
        let prompt_tokens = reported.prompt_tokens.min(self.prompt);
        let completion_tokens = reported.completion_tokens.min(self.completion);
        let usage = Usage {
            prompt_tokens,
            cached_tokens: reported.cached_tokens.min(prompt_tokens),
            completion_tokens,
            reasoning_tokens: reported.reasoning_tokens.min(completion_tokens),
        };
        (usage, usage != reported)
    }
}

fn within(tokens: u64) -> u32 {
    u32::try_from(tokens).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reported_is_believed_as_far_as_it_can_be_so() {
        let bounds = UsageBounds::of_encoded(10, 7);
        let usage = |prompt, cached, completion, reasoning| Usage {
            prompt_tokens: prompt,
            cached_tokens: cached,
            completion_tokens: completion,
            reasoning_tokens: reasoning,
        };
        let sound = usage(11, 4, 7, 2);
        assert_eq!(bounds.clamp(sound), (sound, false));
        let most = 10 + MAX_PROMPT_TOKENS_BESIDE_TEXT as u32;
        assert_eq!(
            bounds.clamp(usage(u32::MAX, u32::MAX, u32::MAX, u32::MAX)),
            (usage(most, most, 7, 7), true)
        );
    }
}
