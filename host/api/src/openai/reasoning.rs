//! Fields about reasoning: where it stands in the answer, and how many tokens it may have, under the names of
//! llama-server, vLLM, SGLang, Groq and Qwen.

use mortise_http::Problem;
use mortise_service::{ReasoningBudget, RequestFields};
use serde::Deserialize;

use super::thoughts::Thoughts;
use crate::fields::words;

/// Fields about reasoning.
#[derive(Debug, Default, Deserialize)]
#[serde(expecting = "an object")]
pub(super) struct ReasoningFields {
    reasoning_format: Option<Format>,
    /// vLLM's and Groq's.
    include_reasoning: Option<bool>,
    /// SGLang's.
    separate_reasoning: Option<bool>,
    /// vLLM's.
    thinking_token_budget: Option<i64>,
    /// llama-server's.
    thinking_budget_tokens: Option<i64>,
    /// llama-server's.
    reasoning_budget_tokens: Option<i64>,
    /// Qwen's.
    thinking_budget: Option<i64>,
}

words! {
    /// Place of reasoning: llama-server's words, then Groq's.
    Format {
        Auto = "auto",
        None = "none",
        DeepSeek = "deepseek",
        DeepSeekLegacy = "deepseek-legacy",
        Parsed = "parsed",
        Raw = "raw",
        Hidden = "hidden",
    }
}

impl ReasoningFields {
    /// Place of reasoning in the answer.
    ///
    /// # Errors
    /// When two fields contradict each other.
    pub(super) fn thoughts(&self) -> Result<Thoughts, Problem> {
        let format = self.reasoning_format.map(|format| match format {
            Format::Auto | Format::DeepSeek | Format::Parsed => Thoughts::Apart,
            Format::None | Format::Raw => Thoughts::InContent,
            Format::DeepSeekLegacy => Thoughts::Both,
            Format::Hidden => Thoughts::Hidden,
        });
        let separate = self.separate_reasoning.map(|apart| match apart {
            true => Thoughts::Apart,
            false => Thoughts::InContent,
        });
        let hidden = (self.include_reasoning == Some(false)).then_some(Thoughts::Hidden);
        let given = [
            ("reasoning_format", format),
            ("separate_reasoning", separate),
            ("include_reasoning", hidden),
        ];
        let mut given = given
            .into_iter()
            .filter_map(|(field, place)| Some((field, place?)));
        let Some((first, place)) = given.next() else {
            return Ok(Thoughts::Apart);
        };
        match given.find(|(_, other)| *other != place) {
            None => Ok(place),
            Some((field, _)) => Err(Problem::invalid(
                field,
                format!(
                    "`{field}` and `{first}` ask for reasoning in two places; give one of them"
                ),
            )),
        }
    }

    /// Set the bound on the tokens of reasoning; -1 is none.
    ///
    /// # Errors
    /// When it is negative, or two names of it differ.
    pub(super) fn write_budget(&self, request: &mut RequestFields) -> Result<(), Problem> {
        let given = [
            ("thinking_token_budget", self.thinking_token_budget),
            ("thinking_budget_tokens", self.thinking_budget_tokens),
            ("reasoning_budget_tokens", self.reasoning_budget_tokens),
            ("thinking_budget", self.thinking_budget),
        ];
        let mut given = given
            .into_iter()
            .filter_map(|(field, tokens)| Some((field, tokens?)));
        let Some((field, tokens)) = given.next() else {
            return Ok(());
        };
        if let Some((other, differs)) = given.find(|(_, other)| *other != tokens) {
            let text = format!(
                "`{field}` is {tokens} and `{other}` is {differs}; they name one bound: give one of them"
            );
            return Err(Problem::invalid(other, text));
        }
        if tokens == -1 {
            return Ok(());
        }
        let Ok(tokens) = u32::try_from(tokens) else {
            let text = format!("`{field}` must be 0 or more, or -1 for no bound; it is {tokens}");
            return Err(Problem::invalid(field, text));
        };
        request.reasoning_budget = Some(ReasoningBudget {
            field,
            tokens,
            required: true,
        });
        Ok(())
    }
}
