//! Byte-pair encoding of long words: the same tokens as the library's, in steps that can be stopped, and
//! with memory for one part of the word at a time.
//!
//! Two characters that stand side by side in no token are never joined, so a word falls apart between
//! them: merges on one side do not depend on the other.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

use crate::error::{TokenizerError, malformed};
use crate::files::BpeOutline;
use crate::limits::Meter;

/// Words up to this many bytes are the library's, which remembers those that it saw.
const SHORT: usize = 1024;
/// Work of one merge, in bytes of text.
const MERGE_COST: usize = 16;

/// Looks up the id of a token of the model.
type TokenId<'m> = &'m dyn Fn(&str) -> Option<u32>;

/// The merges of a vocabulary.
pub(crate) struct LongWords {
    /// Ids of tokens of one character.
    characters: HashMap<char, u32>,
    /// Ids of the tokens for single bytes, where characters that have no token become those.
    bytes: Option<Box<[u32; 256]>>,
    unknown: Option<u32>,
    fuse_unknown: bool,
    ignore_merges: bool,
    /// Rank and result of merging two tokens.
    merges: HashMap<(u32, u32), (u32, u32)>,
    /// Characters that stand side by side in some token.
    neighbours: HashSet<(char, char)>,
}

/// A token of a word, in a linked list. `id` is `NONE` once the symbol was merged into the one before.
struct Symbol {
    id: u32,
    /// Indices of the neighbours; `NONE` at the ends.
    previous: u32,
    next: u32,
}

const NONE: u32 = u32::MAX;

impl LongWords {
    /// The merges of a model; none if it does something besides merging.
    pub(crate) fn new(
        outline: &BpeOutline,
        vocabulary: &HashMap<String, u32>,
        token_id: TokenId<'_>,
    ) -> Result<Option<Self>, TokenizerError> {
        if outline.has_affixes {
            return Ok(None);
        }
        let mut characters = HashMap::new();
        let mut neighbours = HashSet::new();
        for (token, &id) in vocabulary {
            let mut previous = None;
            for character in token.chars() {
                if let Some(previous) = previous {
                    neighbours.insert((previous, character));
                }
                previous = Some(character);
            }
            let mut all = token.chars();
            if let (Some(character), None) = (all.next(), all.next()) {
                characters.insert(character, id);
            }
        }
        let mut merges = HashMap::with_capacity(outline.merges.len());
        for (rank, (left, right)) in (0..).zip(&outline.merges) {
            let known = |text: &str| {
                let missing = || {
                    malformed(
                        "tokenizer.json",
                        format!("the merged token `{text}` is not in the vocabulary"),
                    )
                };
                token_id(text).ok_or_else(missing)
            };
            let result = known(&format!("{left}{right}"))?;
            merges.insert((known(left)?, known(right)?), (rank, result));
        }
        let unknown = outline.unknown_token.as_deref();
        let byte = |byte: u8| token_id(&format!("<0x{byte:02X}>"));
        let bytes: Option<Vec<u32>> = match outline.byte_fallback {
            true => (0..=255).map(byte).collect(),
            false => None,
        };
        let lacks_bytes = outline.byte_fallback && bytes.is_none();
        if lacks_bytes || unknown.is_some_and(|text| token_id(text).is_none()) {
            return Ok(None);
        }
        Ok(Some(Self {
            characters,
            bytes: bytes.and_then(|bytes| bytes.try_into().ok()).map(Box::new),
            unknown: unknown.and_then(token_id),
            fuse_unknown: outline.fuse_unknown,
            ignore_merges: outline.ignore_merges,
            merges,
            neighbours,
        }))
    }

    /// Whether a word is long enough for this.
    pub(crate) fn serves(&self, word: &str) -> bool {
        word.len() > SHORT
    }

    /// Append the tokens of a long word.
    pub(crate) fn encode(
        &self,
        word: &str,
        token_id: TokenId<'_>,
        ids: &mut Vec<u32>,
        meter: &mut Meter<'_>,
    ) -> Result<(), TokenizerError> {
        if self.ignore_merges
            && let Some(id) = token_id(word)
        {
            ids.push(id);
            return Ok(());
        }
        let mut part: Vec<Symbol> = Vec::new();
        let mut previous = None;
        // An unknown token that grows while unknown characters follow.
        let mut open_unknown = false;
        for character in word.chars() {
            let known = self.characters.get(&character).copied();
            let apart = match (previous, known) {
                (Some((before, true)), Some(_)) => !self.neighbours.contains(&(before, character)),
                _ => false,
            };
            if apart {
                self.merge(&mut part, ids, meter)?;
                meter.check_tokens(ids.len())?;
            }
            previous = Some((character, known.is_some()));
            match (known, &self.bytes, self.unknown) {
                (Some(id), ..) => {
                    push(&mut part, id);
                    open_unknown = false;
                }
                (None, Some(bytes), _) => {
                    let mut encoded = [0; 4];
                    for byte in character.encode_utf8(&mut encoded).bytes() {
                        push(&mut part, bytes[usize::from(byte)]);
                    }
                }
                (None, None, Some(unknown)) => {
                    if !(open_unknown && self.fuse_unknown) {
                        push(&mut part, unknown);
                    }
                    open_unknown = true;
                }
                (None, None, None) => {}
            }
            meter.spend(1)?;
        }
        self.merge(&mut part, ids, meter)
    }

    /// Merge the best pair until there is none, and append what is left.
    fn merge(
        &self,
        part: &mut Vec<Symbol>,
        ids: &mut Vec<u32>,
        meter: &mut Meter<'_>,
    ) -> Result<(), TokenizerError> {
        let pair = |part: &[Symbol], at: u32| {
            let left = part.get(at as usize)?;
            let right = part.get(left.next as usize)?;
            let &(rank, result) = self.merges.get(&(left.id, right.id))?;
            Some(Reverse((rank, at, result)))
        };
        let starts = 0..u32::try_from(part.len()).unwrap_or(NONE);
        let mut queue: BinaryHeap<_> = starts.filter_map(|at| pair(part, at)).collect();
        while let Some(Reverse((_, at, result))) = queue.pop() {
            meter.spend(MERGE_COST)?;
            let left = &part[at as usize];
            if left.id == NONE || left.next == NONE {
                continue;
            }
            let (previous, taken) = (left.previous, left.next);
            let right = &part[taken as usize];
            let current = self.merges.get(&(left.id, right.id));
            if current.is_none_or(|&(_, now)| now != result) {
                continue;
            }
            let next = right.next;
            part[taken as usize].id = NONE;
            let left = &mut part[at as usize];
            (left.id, left.next) = (result, next);
            if let Some(after) = part.get_mut(next as usize) {
                after.previous = at;
            }
            queue.extend(pair(part, previous));
            queue.extend(pair(part, at));
        }
        ids.extend(part.iter().map(|symbol| symbol.id).filter(|&id| id != NONE));
        part.clear();
        Ok(())
    }
}

fn push(part: &mut Vec<Symbol>, id: u32) {
    let at = u32::try_from(part.len()).unwrap_or(NONE);
    if let Some(last) = part.last_mut() {
        last.next = at;
    }
    part.push(Symbol {
        id,
        previous: at.checked_sub(1).unwrap_or(NONE),
        next: NONE,
    });
}
