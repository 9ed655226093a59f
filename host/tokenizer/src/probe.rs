//! A try with a tokenizer before it serves: patterns whose matching takes a time that grows
//! exponentially would stop every request that comes upon them.

use tokenizers::{NormalizedString, Normalizer as _, PreTokenizedString, PreTokenizer as _};

use crate::error::{TokenizerError, guarded, malformed};

/// Characters of one kind in a row: more than any pattern can try all ways to divide.
const RUN: usize = 200;
/// A character of each kind that patterns tell apart.
const KINDS: [char; 8] = ['a', 'A', 'é', '日', '1', ' ', '\n', '.'];

/// Refuse a tokenizer whose patterns cannot be matched with plain text in bounded time. The library
/// of regular expressions gives up after ten million steps, and so does the caller with a request;
/// here it is found before there are any.
pub(crate) fn check(tokenizer: &tokenizers::Tokenizer) -> Result<(), TokenizerError> {
    for kind in KINDS {
        for end in ['!', 'b', ' '] {
            let mut text: String = std::iter::repeat_n(kind, RUN).collect();
            text.push(end);
            guarded(|| run(tokenizer, &text)).map_err(|reason| {
                let reason = format!("its patterns cannot be matched with plain text: {reason}");
                malformed("tokenizer.json", reason)
            })?;
        }
    }
    Ok(())
}

/// What happens to a text before it becomes tokens. Errors of the steps are those of a text, and tell
/// nothing of others.
fn run(tokenizer: &tokenizers::Tokenizer, text: &str) {
    if let Some(normalizer) = tokenizer.get_normalizer() {
        let _ = normalizer.normalize(&mut NormalizedString::from(text));
    }
    if let Some(pre_tokenizer) = tokenizer.get_pre_tokenizer() {
        let _ = pre_tokenizer.pre_tokenize(&mut PreTokenizedString::from(text));
    }
}
