//! Bounds of the fields that say where an answer may end, and which words it must not have.

use crate::error::ServiceError;
use crate::limits::{MAX_BAD_WORD_BYTES, MAX_BAD_WORDS, MAX_STOP_TOKENS};
use crate::refusal::invalid;
use crate::request::{RequestFields, Truncation};

/// Check end tokens, the least length, forbidden words, and the cut of the prompt.
pub(super) fn check_endings(fields: &RequestFields) -> Result<(), ServiceError> {
    let count = fields.stop_tokens.len();
    if count > MAX_STOP_TOKENS {
        return Err(invalid(
            "stop_token_ids",
            format!("stop_token_ids has {count} tokens; at most {MAX_STOP_TOKENS} are allowed"),
        ));
    }
    if let Some(most) = fields.max_tokens
        && fields.min_tokens > most
    {
        let least = fields.min_tokens;
        return Err(invalid(
            "min_tokens",
            format!("min_tokens is {least}; it must be at most max_tokens, which is {most}"),
        ));
    }
    if fields.ignore_end && fields.constraint.is_some() {
        let message = "an answer that follows a grammar ends where the grammar ends; leave \
                       ignore_eos out";
        return Err(invalid("ignore_eos", message));
    }
    if fields.truncate_prompt == Some(Truncation::Last(0)) {
        let message =
            "truncate_prompt_tokens is 0; it must be at least 1, or -1 for as many as fit";
        return Err(invalid("truncate_prompt_tokens", message));
    }
    check_bad_words(&fields.bad_words)
}

fn check_bad_words(words: &[String]) -> Result<(), ServiceError> {
    if words.len() > MAX_BAD_WORDS {
        let count = words.len();
        return Err(invalid(
            "bad_words",
            format!("bad_words has {count} words; at most {MAX_BAD_WORDS} are allowed"),
        ));
    }
    for (at, word) in words.iter().enumerate() {
        if word.trim().is_empty() || word.len() > MAX_BAD_WORD_BYTES {
            let size = word.len();
            return Err(invalid(
                format!("bad_words[{at}]"),
                format!(
                    "a word has {size} bytes; 1 to {MAX_BAD_WORD_BYTES} that are not all blank \
                     are allowed"
                ),
            ));
        }
    }
    Ok(())
}
