//! Money that requests cost: reserved before their prompts are submitted, and settled when they have ended.

use mortise_models::Usage;
use mortise_plugin::Principal;

use crate::error::ServiceError;
use crate::observer::Outcome;
use crate::plugins::PluginFuture;
use crate::request::Prompt;
use crate::told_length;

/// Bytes of a request that are estimated as one token of its prompt.
const BYTES_PER_TOKEN: u64 = 3;

/// Length of a request that does not tell it.
const UNKNOWN_LENGTH: u64 = 1 << 20;

/// Keeps account of what requests cost.
pub trait Spend: Send + Sync {
    /// Reserve what a request may cost at most. `None` if it costs nothing.
    ///
    /// # Errors
    /// When a budget does not have it, or its cost cannot be told although there is a budget.
    fn reserve<'a>(
        &'a self,
        purchase: Purchase<'a>,
    ) -> PluginFuture<'a, Result<Option<Box<dyn Reserved>>, ServiceError>>;
}

/// Request that costs something.
#[derive(Debug, Clone, Copy)]
pub struct Purchase<'a> {
    /// Server's id of the request.
    pub request_id: &'a str,
    /// Caller.
    pub principal: &'a Principal,
    /// Public name of the model.
    pub model: &'a str,
    /// Tokens of the prompt: counted, or estimated by its bytes where the model runs elsewhere.
    pub prompt_tokens: u64,
    /// Most tokens that all choices together may have.
    pub answer_tokens: u64,
    /// The tokens are counted elsewhere, and may stay unknown.
    pub counted_elsewhere: bool,
}

/// Amount that is reserved for a request.
pub trait Reserved: Send + Sync {
    /// Millionths that what was used costs.
    fn cost_micros(&self, usage: Usage, outcome: Outcome) -> u64;

    /// Settle it by what was used. Must not block.
    fn settle(self: Box<Self>, usage: Usage, outcome: Outcome);
}

/// Tokens of a prompt that its model's server counts, by the length of the request, or of the prompt where that is more.
pub(crate) fn estimate(headers: &[(String, String)], prompt: &Prompt) -> u64 {
    let bytes = told_length::told(headers).unwrap_or(UNKNOWN_LENGTH);
    tokens_of_bytes(bytes.max(told_length::of_prompt(prompt)))
}

/// Tokens that a length of text is taken for.
pub(crate) fn tokens_of_bytes(bytes: u64) -> u64 {
    bytes.div_ceil(BYTES_PER_TOKEN)
}

/// Keeps no account.
pub(crate) struct SpendNothing;

impl Spend for SpendNothing {
    fn reserve<'a>(
        &'a self,
        _: Purchase<'a>,
    ) -> PluginFuture<'a, Result<Option<Box<dyn Reserved>>, ServiceError>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}
