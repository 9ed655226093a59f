//! The text of every token, computed when the tokenizer is loaded. What a decoder makes of a token
//! depends only on the token and on whether it is the first of the text.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;
use tokenizers::AddedToken;

use crate::bytes::{bytes_of, fallback_byte};
use crate::error::{TokenizerError, malformed};

/// Ids above this are refused: the table has an entry for each id below the highest.
pub const MAX_TOKEN_ID: u32 = 1 << 22;
/// Bytes of all tokens at most; the largest vocabularies in use have some 5 MB.
const MAX_TABLE_BYTES: u32 = 256 << 20;
/// Growth of one token by the decoder at most: a factor, and bytes in addition.
const GROWTH_MAX: usize = 64;
const GROWTH_FREE: usize = 4096;

/// The bytes of every token.
#[derive(Debug)]
pub struct TokenTable {
    bytes: Vec<u8>,
    /// Token `i` is `bytes[offsets[i]..offsets[i + 1]]`.
    offsets: Vec<u32>,
    kinds: Vec<Kind>,
    /// Bytes of tokens that are written otherwise at the start of a text.
    first: HashMap<u32, Box<[u8]>>,
    start: TextStart,
    /// Whether broken bytes become one U+FFFD each, or one for each broken character.
    each_byte: bool,
}

/// Characters dropped at the start of a text: up to `count` times `character`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TextStart {
    pub(crate) character: char,
    pub(crate) count: usize,
}

/// A token's contribution to a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TokenPiece<'a> {
    pub(crate) bytes: &'a [u8],
    /// The bytes need not be whole characters.
    pub(crate) raw: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// No token has this id.
    Unknown,
    /// Whole characters.
    Text,
    /// Bytes that may be parts of characters.
    Raw,
    /// Left out of texts.
    Special,
}

impl TokenTable {
    pub(crate) fn build(
        tokenizer: &tokenizers::Tokenizer,
        added: &BTreeMap<u32, AddedToken>,
    ) -> Result<Self, TokenizerError> {
        let decoder = serde_json::to_value(tokenizer.get_decoder())
            .map_err(|error| malformed("tokenizer.json", error))?;
        let rules = Rules::read(&decoder)?;
        let highest = tokenizer.get_vocab(true).into_values().max().unwrap_or(0);
        if highest > MAX_TOKEN_ID {
            let reason = format!("token id {highest} is beyond the limit of {MAX_TOKEN_ID}");
            return Err(malformed("tokenizer.json", reason));
        }
        let mut table = Self {
            bytes: Vec::new(),
            offsets: vec![0],
            kinds: Vec::new(),
            first: HashMap::new(),
            start: rules.start,
            each_byte: !rules.byte_level,
        };
        for id in 0..=highest {
            table.add(id, tokenizer.id_to_token(id), added.get(&id), &rules)?;
        }
        Ok(table)
    }

    fn add(
        &mut self,
        id: u32,
        text: Option<String>,
        added: Option<&AddedToken>,
        rules: &Rules,
    ) -> Result<(), TokenizerError> {
        let kind = match text {
            None => Kind::Unknown,
            Some(text) => {
                // An added token is text as it stands where others are written in the alphabet.
                let verbatim = added
                    .filter(|_| rules.byte_level)
                    .map(|token| &token.content);
                let (bytes, raw) = match verbatim {
                    Some(content) => (content.as_bytes().to_vec(), true),
                    None => rules.apply(&text, false)?,
                };
                if verbatim.is_none() {
                    let (first, _) = rules.apply(&text, true)?;
                    if first != bytes {
                        self.first.insert(id, first.into());
                    }
                }
                self.bytes.extend_from_slice(&bytes);
                match (added.is_some_and(|token| token.special), raw) {
                    (true, _) => Kind::Special,
                    (false, true) => Kind::Raw,
                    (false, false) => Kind::Text,
                }
            }
        };
        self.kinds.push(kind);
        let end = u32::try_from(self.bytes.len()).ok();
        let end = end.filter(|&end| end <= MAX_TABLE_BYTES).ok_or_else(|| {
            let reason = format!("its tokens have more than {MAX_TABLE_BYTES} bytes of text");
            malformed("tokenizer.json", reason)
        })?;
        self.offsets.push(end);
        Ok(())
    }

    /// One more than the highest id.
    pub fn len(&self) -> usize {
        self.kinds.len()
    }

    /// Whether there is no token.
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// The bytes of a token in the middle of a text; none for an id that no token has.
    pub fn bytes(&self, id: u32) -> &[u8] {
        let bound = |at: usize| self.offsets.get(at).map(|&offset| offset as usize);
        match (bound(id as usize), bound(id as usize + 1)) {
            (Some(from), Some(to)) => self.bytes.get(from..to).unwrap_or_default(),
            _ => &[],
        }
    }

    /// Whether a token is left out of texts.
    pub fn is_special(&self, id: u32) -> bool {
        self.kind(id) == Kind::Special
    }

    /// Whether a token has this id.
    pub fn contains(&self, id: u32) -> bool {
        self.kind(id) != Kind::Unknown
    }

    pub(crate) fn piece(&self, id: u32, first: bool) -> TokenPiece<'_> {
        let bytes = match self.first.get(&id) {
            Some(bytes) if first => bytes,
            _ => self.bytes(id),
        };
        let raw = match self.kind(id) {
            Kind::Raw => true,
            Kind::Special => !self.each_byte,
            Kind::Text | Kind::Unknown => false,
        };
        TokenPiece { bytes, raw }
    }

    pub(crate) fn start(&self) -> TextStart {
        self.start
    }

    pub(crate) fn each_byte(&self) -> bool {
        self.each_byte
    }

    fn kind(&self, id: u32) -> Kind {
        self.kinds
            .get(id as usize)
            .copied()
            .unwrap_or(Kind::Unknown)
    }
}

/// One step of a decoder, applied to each token by itself.
#[derive(Debug, PartialEq)]
enum Step {
    Replace {
        from: String,
        to: String,
    },
    ByteFallback,
    Metaspace {
        replacement: char,
        strip_first: bool,
    },
    WordPiece {
        prefix: String,
        cleanup: bool,
    },
    Strip {
        character: char,
        count: usize,
    },
    ByteLevel,
    /// Without a decoder, tokens are joined by spaces.
    Join,
}

/// A decoder, understood.
struct Rules {
    steps: Vec<Step>,
    start: TextStart,
    byte_level: bool,
}

impl Rules {
    fn read(decoder: &Value) -> Result<Self, TokenizerError> {
        let mut rules = Self {
            steps: Vec::new(),
            start: TextStart {
                character: ' ',
                count: 0,
            },
            byte_level: false,
        };
        let single = std::slice::from_ref(decoder);
        let list = match decoder.get("type").and_then(Value::as_str) {
            None => {
                rules.steps.push(Step::Join);
                return Ok(rules);
            }
            Some("Sequence") => decoder
                .get("decoders")
                .and_then(Value::as_array)
                .map_or(single, Vec::as_slice),
            Some(_) => single,
        };
        // After `Fuse` the text is one piece, and a step can no longer be done token by token.
        let mut fused = false;
        for entry in list {
            match (Parsed::read(entry)?, fused) {
                (Parsed::Fuse, _) => fused = true,
                (Parsed::Step(Step::Strip { character, count }), true)
                    if rules.start.count == 0 =>
                {
                    rules.start = TextStart { character, count };
                }
                (Parsed::Step(_), true) => {
                    return Err(unsupported(entry, " after another that joins the tokens"));
                }
                (Parsed::Step(step), false) => {
                    fused = step == Step::ByteLevel;
                    rules.byte_level |= fused;
                    rules.steps.push(step);
                }
            }
        }
        Ok(rules)
    }

    /// The bytes of a token, and whether they may be parts of characters.
    fn apply(&self, text: &str, first: bool) -> Result<(Vec<u8>, bool), TokenizerError> {
        let before = text.len();
        let mut text = text.to_owned();
        for step in &self.steps {
            match step {
                Step::Replace { from, to } => text = text.replace(from.as_str(), to),
                Step::ByteFallback => {
                    if let Some(byte) = fallback_byte(&text) {
                        return Ok((vec![byte], true));
                    }
                }
                Step::Metaspace {
                    replacement,
                    strip_first,
                } => {
                    let space = if first && *strip_first { "" } else { " " };
                    text = text.replace(*replacement, space);
                }
                Step::WordPiece { prefix, cleanup } => {
                    if !first {
                        text = match text.strip_prefix(prefix.as_str()) {
                            Some(rest) => rest.to_owned(),
                            None => format!(" {text}"),
                        };
                    }
                    if *cleanup {
                        text = tokenizers::decoders::wordpiece::cleanup(&text);
                    }
                }
                Step::Strip { character, count } => {
                    let mut rest = text.as_str();
                    for _ in 0..*count {
                        match rest.strip_prefix(*character) {
                            Some(shorter) => rest = shorter,
                            None => break,
                        }
                    }
                    text = rest.to_owned();
                }
                Step::ByteLevel => {
                    return Ok((bytes_of(&text).unwrap_or_else(|| text.into_bytes()), true));
                }
                Step::Join if !first => text.insert(0, ' '),
                Step::Join => {}
            }
            if text.len() > before.saturating_mul(GROWTH_MAX) + GROWTH_FREE {
                let reason = format!(
                    "its decoder makes {} bytes of a token of {before}",
                    text.len()
                );
                return Err(malformed("tokenizer.json", reason));
            }
        }
        Ok((text.into_bytes(), false))
    }
}

enum Parsed {
    Step(Step),
    Fuse,
}

impl Parsed {
    fn read(entry: &Value) -> Result<Self, TokenizerError> {
        let text = |key| entry.get(key).and_then(Value::as_str).map(str::to_owned);
        let character = |key| text(key).and_then(|t: String| t.chars().next());
        let number = |key| entry.get(key).and_then(Value::as_u64).unwrap_or(0);
        let step = match entry
            .get("type")
            .and_then(Value::as_str)
            .unwrap_or_default()
        {
            "Fuse" => return Ok(Self::Fuse),
            "ByteFallback" => Some(Step::ByteFallback),
            "ByteLevel" => Some(Step::ByteLevel),
            "Replace" => {
                let from = entry.pointer("/pattern/String").and_then(Value::as_str);
                from.filter(|from| !from.is_empty())
                    .zip(text("content"))
                    .map(|(from, to)| {
                        let from = from.to_owned();
                        Step::Replace { from, to }
                    })
            }
            "Metaspace" => character("replacement").map(|replacement| Step::Metaspace {
                replacement,
                strip_first: text("prepend_scheme").as_deref() != Some("never"),
            }),
            "WordPiece" => text("prefix").map(|prefix| Step::WordPiece {
                prefix,
                cleanup: entry
                    .get("cleanup")
                    .and_then(Value::as_bool)
                    .unwrap_or(false),
            }),
            "Strip" if number("stop") == 0 => character("content").map(|character| Step::Strip {
                character,
                count: number("start") as usize,
            }),
            _ => None,
        };
        step.map(Self::Step).ok_or_else(|| unsupported(entry, ""))
    }
}

fn unsupported(entry: &Value, place: &str) -> TokenizerError {
    TokenizerError::Unsupported(format!("the decoder {entry}{place}"))
}
