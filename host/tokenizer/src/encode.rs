//! Text to token ids, with the library's own steps: split at added tokens, normalize, split at
//! normalized added tokens, pre-tokenize, look up. Only the splits at control tokens are done
//! here, since they depend on who wrote the text.

use std::cell::RefCell;
use std::ops::Range;

use tokenizers::normalizer::Range as Referential;
use tokenizers::{
    Encoding, Model, NormalizedString, Normalizer, OffsetType, PostProcessor, PreTokenizedString,
    PreTokenizer, Token,
};

use crate::added_tokens::{Cut, lies_in};
use crate::error::{TokenizerError, guarded};
use crate::tokenizer::Tokenizer;

/// A piece of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Segment<'a> {
    /// Text of the prompt's author: control tokens are recognised.
    Special(&'a str),
    /// Text of a caller: control tokens are not recognised.
    Plain(&'a str),
}

impl Tokenizer {
    /// Encode a prompt. Control tokens are recognised in special segments only; all other text
    /// between two control tokens is encoded as one piece, whichever segments it came from.
    pub fn encode_segments(&self, segments: &[Segment<'_>]) -> Result<Vec<u32>, TokenizerError> {
        let mut text = String::new();
        let mut special: Vec<Range<usize>> = Vec::new();
        for segment in segments {
            let from = text.len();
            match segment {
                Segment::Plain(plain) => text.push_str(plain),
                Segment::Special(piece) => {
                    text.push_str(piece);
                    match special.last_mut() {
                        Some(last) if last.end == from => last.end = text.len(),
                        _ if piece.is_empty() => {}
                        _ => special.push(from..text.len()),
                    }
                }
            }
        }
        Ok(self.encode(&text, &special)?.get_ids().to_vec())
    }

    /// Encode text in which control tokens are recognised, such as a script or a file that the
    /// operator wrote.
    pub fn encode_special(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let whole = 0..text.len();
        Ok(self
            .encode(text, std::slice::from_ref(&whole))?
            .get_ids()
            .to_vec())
    }

    /// Encode text in which control tokens are not recognised.
    pub fn encode_plain(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        Ok(self.encode(text, &[])?.get_ids().to_vec())
    }

    /// Encode a text prompt: as [`Tokenizer::encode_plain`], between the tokens that the
    /// tokenizer puts around a text, such as beginning-of-sequence.
    pub fn encode_text(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let plain = self.encode(text, &[])?;
        let length = plain.len();
        let processed = match self.inner.get_post_processor() {
            None => Ok(plain),
            Some(processor) => guarded(|| processor.process(plain, None, true))
                .and_then(|result| result.map_err(|error| error.to_string())),
        };
        let mut ids = processed
            .map_err(TokenizerError::Encode)?
            .get_ids()
            .to_vec();
        if let (Some(add), Some(bos)) = (self.config.add_bos_token, self.bos) {
            let has = ids.first() == Some(&bos);
            if add && !has {
                ids.insert(0, bos);
            } else if !add && has && ids.len() > length {
                ids.remove(0);
            }
        }
        Ok(ids)
    }

    fn encode(&self, text: &str, special: &[Range<usize>]) -> Result<Encoding, TokenizerError> {
        let fault = RefCell::new(None);
        let result = guarded(|| self.encode_steps(text, special, &fault));
        if let Some(error) = fault.into_inner() {
            return Err(error);
        }
        result
            .and_then(|encoded| encoded.map_err(|error| error.to_string()))
            .map_err(TokenizerError::Encode)
    }

    fn encode_steps(
        &self,
        text: &str,
        special: &[Range<usize>],
        fault: &RefCell<Option<TokenizerError>>,
    ) -> tokenizers::Result<Encoding> {
        let mut pieces = PreTokenizedString::from(text);
        pieces.split(|_, sentence| {
            let allowed = |range: Range<usize>| lies_in(special, &range);
            let cuts = self.matcher.verbatim.cuts(sentence.get(), special, allowed);
            split(&sentence, cuts)
        })?;
        pieces.split(|_, mut sentence| {
            if let Some(normalizer) = self.inner.get_normalizer() {
                normalizer.normalize(&mut sentence)?;
            }
            let shift = sentence.offsets_original().0;
            let whole = shift..shift + sentence.len_original();
            let allowed = |range: Range<usize>| {
                lies_in(special, &whole)
                    || sentence
                        .convert_offsets(Referential::Normalized(range))
                        .and_then(|own| visible(text, own.start + shift..own.end + shift))
                        .is_some_and(|own| lies_in(special, &own))
            };
            let cuts = self.matcher.normalized.cuts(sentence.get(), &[], allowed);
            split(&sentence, cuts)
        })?;
        if let Some(pre_tokenizer) = self.inner.get_pre_tokenizer() {
            pre_tokenizer.pre_tokenize(&mut pieces)?;
        }
        pieces.tokenize(|piece| {
            self.tokenize_plain(piece.get()).map_err(|error| {
                let text = error.to_string();
                fault.replace(Some(error));
                text.into()
            })
        })?;
        pieces.into_encoding(None, 0, OffsetType::None)
    }

    /// Look up text that is no control token. Vocabularies that are matched by text (Unigram,
    /// WordLevel, BPE that ignores merges) may hold the control tokens too; a text that would be
    /// taken for one is cut behind its first character until it is not.
    fn tokenize_plain(&self, text: &str) -> Result<Vec<Token>, TokenizerError> {
        let mut tokens = Vec::new();
        let mut work = vec![text];
        while let Some(piece) = work.pop() {
            let found = self
                .inner
                .get_model()
                .tokenize(piece)
                .map_err(|error| TokenizerError::Encode(error.to_string()))?;
            let taken = |token: &&Token| self.matcher.control.contains(&token.id);
            if !found.iter().any(|token| taken(&token)) {
                tokens.extend(found);
                continue;
            }
            let mut rest = piece;
            let mut cut = Vec::new();
            for token in found.iter().filter(taken) {
                let (from, to) = token.offsets;
                let text = piece.get(from..to).unwrap_or_default();
                let first = text.chars().next().map_or(0, char::len_utf8);
                let done = piece.len() - rest.len();
                if first == 0 || first == text.len() || from + first <= done {
                    return Err(TokenizerError::ControlToken {
                        text: if text.is_empty() {
                            piece.to_owned()
                        } else {
                            text.to_owned()
                        },
                    });
                }
                let (head, tail) = rest.split_at(from + first - done);
                cut.push(head);
                rest = tail;
            }
            work.push(rest);
            work.extend(cut.into_iter().rev());
        }
        Ok(tokens)
    }
}

fn split(
    sentence: &NormalizedString,
    cuts: Vec<Cut>,
) -> tokenizers::Result<Vec<(NormalizedString, Option<Vec<Token>>)>> {
    cuts.into_iter()
        .map(|(id, range)| {
            let slice = sentence
                .slice(Referential::Normalized(range))
                .ok_or("a token does not lie on character boundaries")?;
            let tokens = id.map(|id| {
                let value = slice.get().to_owned();
                let length = value.len();
                vec![Token::new(id, value, (0, length))]
            });
            Ok((slice, tokens))
        })
        .collect()
}

/// The part of a range that is not white space around it. A normalizer may make a token swallow
/// the space before it, and that may be anybody's.
fn visible(text: &str, range: Range<usize>) -> Option<Range<usize>> {
    let own = text.get(range.clone())?;
    let start = range.start + own.len() - own.trim_start().len();
    let end = start + own.trim().len();
    (start < end).then_some(start..end)
}
