//! Words of a document's chunks as they are stored in a database.

use std::collections::BTreeMap;

use mortise_retrieval::limits::MAX_DOCUMENT_CHUNKS;
use mortise_retrieval::{Chunk, counted};
use mortise_store::Word;
use sha2::{Digest as _, Sha256};

use crate::limits::MAX_WORD_BYTES;

/// A chunk that has a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Posting {
    /// Number of the chunk.
    pub(crate) chunk: u32,
    /// Times that it has the word.
    pub(crate) count: u32,
    /// Words that it has.
    pub(crate) length: u32,
}

/// The word under which a word is stored: long ones are no use in an index of a database.
pub(crate) fn stored(word: &str) -> String {
    match word.len() > MAX_WORD_BYTES {
        false => word.to_owned(),
        // No word has blanks.
        true => format!("sha256 {:x}", Sha256::digest(word)),
    }
}

/// Words of chunks with their numbers, with the chunks that have them; and the number of words of each chunk.
pub(crate) fn words(chunks: &[(u32, Chunk)]) -> (Vec<Word>, Vec<u32>) {
    let (mut postings, mut lengths) = (BTreeMap::<String, Vec<Posting>>::new(), Vec::new());
    for (number, chunk) in chunks {
        let (counts, length) = counted(&chunk.text);
        for (word, count) in counts {
            postings.entry(stored(&word)).or_default().push(Posting {
                chunk: *number,
                count,
                length,
            });
        }
        lengths.push(length);
    }
    let words = postings.into_iter().map(|(word, postings)| Word {
        word,
        items: u32::try_from(postings.len()).unwrap_or(u32::MAX),
        postings: encode(&postings),
    });
    (words.collect(), lengths)
}

/// Bytes of postings in the order of their chunks: for each the distance from the chunk before, the count and the length, in
/// groups of seven bits with the least first.
fn encode(postings: &[Posting]) -> Vec<u8> {
    let (mut bytes, mut before) = (Vec::new(), 0);
    for posting in postings {
        for mut number in [posting.chunk - before, posting.count, posting.length] {
            while number >= 0x80 {
                bytes.push((number & 0x7f) as u8 | 0x80);
                number >>= 7;
            }
            bytes.push(number as u8);
        }
        before = posting.chunk;
    }
    bytes
}

/// The postings of bytes; what is broken ends them.
pub(crate) fn decode(bytes: &[u8]) -> Vec<Posting> {
    let mut rest = bytes.iter();
    let mut number = || {
        let (mut number, mut shift) = (0u32, 0);
        loop {
            let byte = *rest.next()?;
            number |= u32::from(byte & 0x7f).checked_shl(shift)?;
            shift += 7;
            if byte < 0x80 {
                return Some(number);
            }
        }
    };
    let (mut postings, mut before) = (Vec::new(), 0u32);
    while let (Some(step), Some(count), Some(length)) = (number(), number(), number()) {
        let chunk = before.saturating_add(step);
        if chunk as usize >= MAX_DOCUMENT_CHUNKS {
            break;
        }
        postings.push(Posting {
            chunk,
            count,
            length,
        });
        before = chunk;
    }
    postings
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(
            numbers in prop::collection::btree_map(0u32..50_000, (1u32..300, 1u32..40_000), 0..50),
            noise in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let of = |(chunk, (count, length))| Posting { chunk, count, length };
            let postings: Vec<Posting> = numbers.into_iter().map(of).collect();
            prop_assert_eq!(decode(&encode(&postings)), postings);
            decode(&noise);
        }
    }

    #[test]
    fn long_words_stay_different() {
        let long = |end: &str| stored(&("x".repeat(5000) + end));
        assert_ne!(long("a"), long("b"));
        assert!(long("a").len() < MAX_WORD_BYTES);
        assert_eq!(stored("word"), "word");
    }
}
