//! Character classes as tables, filled on demand by asking Oniguruma about single characters.

use std::sync::OnceLock;

/// Code points of a page.
const PAGE: u32 = 256;
/// Pages of all code points.
const PAGES: usize = 0x11_0000 / PAGE as usize;

/// The characters that a class matches.
pub(super) struct Class {
    regex: onig::Regex,
    ascii: [bool; 128],
    /// One bit for each code point of a page.
    pages: Box<[OnceLock<[u64; 4]>]>,
}

impl Class {
    /// Compile the source of a class; `None` if Oniguruma refuses it.
    pub(super) fn new(source: &str) -> Option<Self> {
        let regex = onig::Regex::new(source).ok()?;
        let mut class = Self {
            regex,
            ascii: [false; 128],
            pages: (0..PAGES).map(|_| OnceLock::new()).collect(),
        };
        for code in 0..128u8 {
            class.ascii[usize::from(code)] = class.matches(char::from(code));
        }
        Some(class)
    }

    /// Whether the class has this character.
    pub(super) fn contains(&self, character: char) -> bool {
        let code = u32::from(character);
        if let Some(known) = self.ascii.get(code as usize) {
            return *known;
        }
        let page = self.pages[(code / PAGE) as usize].get_or_init(|| self.page(code / PAGE));
        let bit = code % PAGE;
        page[(bit / 64) as usize] >> (bit % 64) & 1 == 1
    }

    fn page(&self, page: u32) -> [u64; 4] {
        let mut bits = [0; 4];
        for bit in 0..PAGE {
            let character = char::from_u32(page * PAGE + bit);
            if character.is_some_and(|character| self.matches(character)) {
                bits[(bit / 64) as usize] |= 1 << (bit % 64);
            }
        }
        bits
    }

    fn matches(&self, character: char) -> bool {
        let mut encoded = [0; 4];
        self.regex.is_match(character.encode_utf8(&mut encoded))
    }
}
