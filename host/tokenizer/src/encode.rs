//! Text to token ids: split at added tokens, normalize, split at normalized added tokens,
//! pre-tokenize, look up.
//!
//! Splits at control tokens depend on who wrote the text. A text is worked through piece by piece, so
//! that an encoding can be stopped at any time, and keeps little more than the text and its ids.

use std::ops::Range;

use tokenizers::normalizer::Range as Referential;
use tokenizers::{Model, NormalizedString, Token};

use crate::added_tokens::lies_in;
use crate::error::{TokenizerError, failed_on_text, guarded};
use crate::limits::{EncodeLimits, Meter};
use crate::tokenizer::Tokenizer;

/// Work of one split at an added token, in bytes of text.
const CUT_COST: usize = 16;

/// A piece of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextSegment<'a> {
    /// Text of the prompt's author: control tokens are recognised.
    Special(&'a str),
    /// Text of a caller: control tokens are not recognised.
    Plain(&'a str),
}

/// A text to encode: where control tokens are recognised, and what it was so far encoded to.
struct Encoder<'e, 'm> {
    tokenizer: &'e Tokenizer,
    text: &'e str,
    special: &'e [Range<usize>],
    ids: Vec<u32>,
    meter: Meter<'m>,
}

impl Tokenizer {
    /// Encode a prompt. Control tokens are recognised in special segments only; all other text
    /// between two control tokens is encoded as one piece, whichever segments it came from.
    pub fn encode_segments(
        &self,
        segments: &[TextSegment<'_>],
    ) -> Result<Vec<u32>, TokenizerError> {
        self.encode_segments_within(segments, EncodeLimits::NONE)
    }

    /// [`Tokenizer::encode_segments`] within bounds.
    pub fn encode_segments_within(
        &self,
        segments: &[TextSegment<'_>],
        limits: EncodeLimits<'_>,
    ) -> Result<Vec<u32>, TokenizerError> {
        let mut text = String::new();
        let mut special: Vec<Range<usize>> = Vec::new();
        for segment in segments {
            let from = text.len();
            match segment {
                TextSegment::Plain(plain) => text.push_str(plain),
                TextSegment::Special(piece) => {
                    text.push_str(piece);
                    match special.last_mut() {
                        Some(last) if last.end == from => last.end = text.len(),
                        _ if piece.is_empty() => {}
                        _ => special.push(from..text.len()),
                    }
                }
            }
        }
        self.encode(&text, &special, limits)
    }

    /// Encode text in which control tokens are recognised, such as a script or a file that the
    /// operator wrote.
    pub fn encode_special(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let whole = 0..text.len();
        self.encode(text, std::slice::from_ref(&whole), EncodeLimits::NONE)
    }

    /// Encode text in which control tokens are not recognised.
    pub fn encode_plain(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        self.encode(text, &[], EncodeLimits::NONE)
    }

    /// Encode a text prompt: as [`Tokenizer::encode_plain`], between the tokens that the
    /// tokenizer puts around a text, such as beginning-of-sequence.
    pub fn encode_text(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        self.encode_text_within(text, EncodeLimits::NONE)
    }

    /// [`Tokenizer::encode_text`] within bounds.
    pub fn encode_text_within(
        &self,
        text: &str,
        limits: EncodeLimits<'_>,
    ) -> Result<Vec<u32>, TokenizerError> {
        let plain = self.encode(text, &[], limits)?;
        let (before, after) = &self.pipeline.around;
        let mut ids = Vec::with_capacity(before.len() + plain.len() + after.len() + 1);
        ids.extend_from_slice(before);
        ids.extend_from_slice(&plain);
        ids.extend_from_slice(after);
        if let (Some(add), Some(bos)) = (self.config.add_bos_token, self.bos) {
            let has = ids.first() == Some(&bos);
            if add && !has {
                ids.insert(0, bos);
            } else if !add && has && ids.len() > plain.len() {
                ids.remove(0);
            }
        }
        Ok(ids)
    }

    fn encode(
        &self,
        text: &str,
        special: &[Range<usize>],
        limits: EncodeLimits<'_>,
    ) -> Result<Vec<u32>, TokenizerError> {
        let mut encoder = Encoder {
            tokenizer: self,
            text,
            special,
            ids: Vec::new(),
            meter: Meter::new(limits),
        };
        encoder
            .meter
            .check_tokens(self.pipeline.bound.tokens(text))?;
        // The library panics on some malformed files.
        guarded(|| encoder.run()).map_err(|reason| failed_on_text("a step", &reason))??;
        Ok(encoder.ids)
    }
}

impl Encoder<'_, '_> {
    fn run(&mut self) -> Result<(), TokenizerError> {
        let special = self.special;
        let matcher = &self.tokenizer.matcher.verbatim;
        let allowed = |range: Range<usize>| lies_in(special, &range);
        let cuts = matcher.cuts(self.text, special, allowed);
        self.meter.spend(self.text.len() / 8)?;
        for (id, range) in cuts {
            self.meter.spend(CUT_COST)?;
            match id {
                Some(id) => self.ids.push(id),
                None => self.sentence(range)?,
            }
        }
        self.meter.check_tokens(self.ids.len())
    }

    /// Encode text between two added tokens.
    fn sentence(&mut self, range: Range<usize>) -> Result<(), TokenizerError> {
        let tokenizer = self.tokenizer;
        let normalizer = &tokenizer.pipeline.normalizer;
        let at_start = range.start == 0;
        let sentence = self.text.get(range.clone()).unwrap_or_default();
        if sentence.is_empty() {
            return Ok(());
        }
        let normalized = match normalizer.is_empty() {
            true => None,
            false => Some(normalizer.apply(sentence, &mut self.meter)?),
        };
        let normalized = normalized.as_deref().unwrap_or(sentence);
        match tokenizer.matcher.normalized.occur_in(normalized) {
            true => self.aligned(range),
            false => self.words(normalized, at_start),
        }
    }

    /// Encode text between two added tokens that has normalized ones in it. Where those may be
    /// depends on which characters of the text they came from.
    fn aligned(&mut self, range: Range<usize>) -> Result<(), TokenizerError> {
        let tokenizer = self.tokenizer;
        let (text, special) = (self.text, self.special);
        let shift = range.start;
        let mut sentence = NormalizedString::from(text.get(range.clone()).unwrap_or_default());
        let normalizer = &tokenizer.pipeline.normalizer;
        normalizer.apply_aligned(&mut sentence, &mut self.meter)?;
        let allowed = |found: Range<usize>| {
            lies_in(special, &range)
                || sentence
                    .convert_offsets(Referential::Normalized(found))
                    .and_then(|own| visible(text, own.start + shift..own.end + shift))
                    .is_some_and(|own| lies_in(special, &own))
        };
        let matcher = &tokenizer.matcher.normalized;
        for (id, found) in matcher.cuts(sentence.get(), &[], allowed) {
            let words = sentence.get().get(found.clone());
            let words = words.ok_or_else(|| {
                let reason = "a token does not lie on character boundaries";
                TokenizerError::Encode(reason.to_owned())
            })?;
            match id {
                Some(id) => self.ids.push(id),
                None => self.words(words, shift == 0 && found.start == 0)?,
            }
        }
        Ok(())
    }

    /// Encode normalized text without added tokens.
    fn words(&mut self, text: &str, at_start: bool) -> Result<(), TokenizerError> {
        let (tokenizer, ids) = (self.tokenizer, &mut self.ids);
        let pre_tokenizer = &tokenizer.pipeline.pre_tokenizer;
        pre_tokenizer.cut(text, at_start, &mut self.meter, &mut |word, meter| {
            meter.spend(word.len())?;
            tokenizer.encode_word(word, ids, meter)?;
            meter.check_tokens(ids.len())
        })
    }
}

impl Tokenizer {
    fn encode_word(
        &self,
        word: &str,
        ids: &mut Vec<u32>,
        meter: &mut Meter<'_>,
    ) -> Result<(), TokenizerError> {
        let Some(long) = self.pipeline.long_words.as_ref().filter(|l| l.serves(word)) else {
            return self.look_up(word, ids, meter);
        };
        let before = ids.len();
        long.encode(
            word,
            &|text| self.inner.get_model().token_to_id(text),
            ids,
            meter,
        )?;
        let is_control = |id: &u32| self.matcher.control.contains(id);
        if ids[before..].iter().any(is_control) {
            ids.truncate(before);
            return self.look_up(word, ids, meter);
        }
        Ok(())
    }

    /// Look up text that is no control token. Vocabularies that are matched by text (Unigram,
    /// WordLevel, BPE that ignores merges) may hold the control tokens too; a text that would be
    /// taken for one is cut behind its first character until it is not.
    fn look_up(
        &self,
        text: &str,
        ids: &mut Vec<u32>,
        meter: &mut Meter<'_>,
    ) -> Result<(), TokenizerError> {
        let mut work = vec![text];
        while let Some(piece) = work.pop() {
            meter.spend(piece.len())?;
            let model = self.inner.get_model();
            let found = model
                .tokenize(piece)
                .map_err(|error| failed_on_text("the model", &error.to_string()))?;
            let taken = |token: &&Token| self.matcher.control.contains(&token.id);
            if !found.iter().any(|token| taken(&token)) {
                ids.extend(found.iter().map(|token| token.id));
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
        Ok(())
    }
}

/// The part of a range that is not white space around it. A normalizer may make a token swallow
/// the space before it, and that may be anybody's.
fn visible(text: &str, range: Range<usize>) -> Option<Range<usize>> {
    let own = text.get(range.clone())?;
    let start = range.start + own.len() - own.trim_start().len();
    let end = start + own.trim().len();
    (start < end).then_some(start..end)
}
