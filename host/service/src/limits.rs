//! Bounds of a request. Each bound of the service stands here once; `docs/limits.md` lists all
//! bounds of the project with their configuration keys and error codes. Those of conversations are in
//! `mortise_models`, with the types that hold them.

use std::time::Duration;

pub use mortise_models::limits::{MAX_JSON_DEPTH, MAX_MESSAGES, MAX_TOOL_NAME_BYTES, MAX_TOOLS};

/// Most tools of the server that a request opts in to.
pub const MAX_SERVER_TOOLS: usize = 128;
/// Most choices of one request. A server may be configured to allow fewer.
pub const MAX_CHOICES: u32 = 128;
/// Most stop strings.
pub const MAX_STOPS: usize = 16;
/// Longest stop string, in bytes.
pub const MAX_STOP_BYTES: usize = 1024;
/// All stop strings together, in bytes.
pub const MAX_STOPS_BYTES: usize = 4096;
/// Most alternatives of a token's log-probability.
pub const MAX_TOP_LOGPROBS: u32 = 20;
/// Most log-probabilities of a prompt's tokens in an answer, each token's own counted.
pub const MAX_PROMPT_LOGPROBS: usize = 256 * 1024;
/// Most tokens to bias.
pub const MAX_LOGIT_BIASES: usize = 1024;
/// Longest fairness key, in characters.
pub const MAX_FAIRNESS_KEY: usize = 128;
/// Most tokens that end an answer beside the model's own.
pub const MAX_STOP_TOKENS: usize = 64;
/// Most words that an answer must not have.
pub const MAX_BAD_WORDS: usize = 64;
/// Longest of these words, in bytes.
pub const MAX_BAD_WORD_BYTES: usize = 256;
/// Longest generated text to parse by itself, in bytes.
pub const MAX_PARSED_BYTES: usize = 64 * 1024;
/// Most tokens that a text is turned into by itself.
pub const MAX_LISTED_TOKENS: usize = 128 * 1024;
/// Longest source of a grammar, in bytes.
pub const MAX_GRAMMAR_BYTES: usize = 1 << 20;
/// Tokens of a prompt that a model's server may report beside those of its text: marks and instructions of its template.
pub const MAX_PROMPT_TOKENS_BESIDE_TEXT: u64 = 4096;
/// Tokens of marks that a model's server may report for each message.
pub const MAX_TOKENS_PER_MESSAGE: u64 = 16;
/// Tokens that a model's server may report for each image or recording.
pub const MAX_TOKENS_PER_MEDIUM: u64 = 32 * 1024;
/// Tokens that a model's server may report for each tool that is declared.
pub const MAX_TOKENS_PER_TOOL: u64 = 4096;
/// Tokens that a model's server may report for an answer that neither the request, a policy nor a context that is known
/// limits.
pub const MAX_UNLIMITED_ANSWER_TOKENS: u32 = 1 << 20;
/// Most questions with the same around them that one is compared with, in the cache of answers.
pub const MAX_ALIKE: usize = 1024;
/// Texts of an embedding request whose vectors are kept for when they are asked for again; those of more are not.
pub const MAX_KEPT_INPUTS: usize = 16;
/// Most inputs of one embedding request.
pub const MAX_EMBEDDING_INPUTS: usize = 2048;
/// Longest wait for another server to begin a streamed answer or to refuse it; then the stream begins without it.
pub const MAX_BEGINNING: Duration = Duration::from_secs(5);
