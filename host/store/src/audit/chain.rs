//! The chain: lines of JSON, of which each has a number, the hash of the one before it, and its own.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// Hex digits of a hash.
const HASH_DIGITS: usize = 64;

/// Text between an entry and its hash.
const SEAL: &str = ",\"hash\":\"";
const END: &str = "\"}";

/// The last entry of a chain: its number, from 1, and its hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditHead {
    /// Number of the entry; 0 in an empty chain.
    pub number: u64,
    /// SHA-256 of the entry's line up to the hash, in hex.
    pub hash: String,
}

impl Default for AuditHead {
    /// The head of an empty chain.
    fn default() -> Self {
        Self {
            number: 0,
            hash: "0".repeat(HASH_DIGITS),
        }
    }
}

impl std::fmt::Display for AuditHead {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}:{}", self.number, self.hash)
    }
}

impl std::str::FromStr for AuditHead {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no head of an audit log, such as 12:5e88…");
        let (number, hash) = text.split_once(':').ok_or_else(wrong)?;
        let is_hash =
            hash.len() == HASH_DIGITS && hash.bytes().all(|digit| digit.is_ascii_hexdigit());
        match (number.parse(), is_hash) {
            (Ok(number), true) => Ok(Self {
                number,
                hash: hash.to_owned(),
            }),
            _ => Err(wrong()),
        }
    }
}

/// The line of the entry behind `head`, without its line break, and the head that it makes. `entry` is JSON.
pub(super) fn seal(head: &AuditHead, entry: &str) -> (String, AuditHead) {
    let number = head.number + 1;
    let previous = &head.hash;
    // A line break would end the entry before its hash; JSON needs none.
    let entry = entry.replace(['\n', '\r'], " ");
    let mut line = format!("{{\"number\":{number},\"previous\":\"{previous}\",\"entry\":{entry}");
    let hash = hash_of(&line);
    line.push_str(SEAL);
    line.push_str(&hash);
    line.push_str(END);
    (line, AuditHead { number, hash })
}

fn hash_of(sealed: &str) -> String {
    Sha256::digest(sealed)
        .iter()
        .fold(String::with_capacity(HASH_DIGITS), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        })
}

/// A chain that does not hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BrokenChain {
    /// The line has another form.
    #[error("line {line} is no entry of an audit log")]
    Malformed {
        /// Number of the line in the log, from 1.
        line: u64,
    },
    /// The hash is not that of the line.
    #[error("entry {number} (line {line}) was changed: its hash is not that of what it says")]
    Changed {
        /// Line of the entry in the log, from 1.
        line: u64,
        /// Number that the entry has.
        number: u64,
    },
    /// The entry is not the one that comes next.
    #[error(
        "line {line} has entry {number} where entry {expected} belongs: entries were taken out, put in or put elsewhere"
    )]
    OutOfOrder {
        /// Line of the entry in the log, from 1.
        line: u64,
        /// Number that the entry has.
        number: u64,
        /// Number that the entry should have.
        expected: u64,
    },
    /// The entry has the hash of another entry than the one before it.
    #[error(
        "entry {number} (line {line}) does not follow the entry before it: one of them was replaced"
    )]
    Unlinked {
        /// Line of the entry in the log, from 1.
        line: u64,
        /// Number that the entry has.
        number: u64,
    },
    /// The log ends before an entry that was there.
    #[error("the log ends at entry {last}, and entry {known} was there: its end was cut off")]
    Cut {
        /// The last entry.
        last: u64,
        /// The entry that was there.
        known: u64,
    },
    /// An entry is not the one that was there.
    #[error("entry {known} is not the one that was there: the log was written anew")]
    Replaced {
        /// The entry.
        known: u64,
    },
}

/// Checks a chain line by line.
#[derive(Debug, Default)]
pub struct Checker {
    head: AuditHead,
    /// A head that must be met.
    known: Option<AuditHead>,
}

impl Checker {
    /// `known` is an entry that must be in the chain.
    pub fn new(known: Option<AuditHead>) -> Self {
        Self {
            head: AuditHead::default(),
            known,
        }
    }

    /// Look at the next line, without its line break. Returns the entry.
    ///
    /// # Errors
    /// When it is not the next entry of the chain.
    pub fn line<'a>(&mut self, text: &'a str) -> Result<&'a str, BrokenChain> {
        let line = self.head.number + 1;
        let (number, previous, entry, sealed, hash) =
            parts(text).ok_or(BrokenChain::Malformed { line })?;
        if hash_of(sealed) != hash {
            return Err(BrokenChain::Changed { line, number });
        }
        if number != line {
            return Err(BrokenChain::OutOfOrder {
                line,
                number,
                expected: line,
            });
        }
        if previous != self.head.hash {
            return Err(BrokenChain::Unlinked { line, number });
        }
        self.head = AuditHead {
            number,
            hash: hash.to_owned(),
        };
        let known = self.known.as_ref();
        if known.is_some_and(|known| known.number == number && known.hash != hash) {
            return Err(BrokenChain::Replaced { known: number });
        }
        Ok(entry)
    }

    /// The chain has ended.
    ///
    /// # Errors
    /// When an entry that was there did not come.
    pub fn end(self) -> Result<AuditHead, BrokenChain> {
        let last = self.head.number;
        match self.known {
            Some(known) if known.number > last => Err(BrokenChain::Cut {
                last,
                known: known.number,
            }),
            _ => Ok(self.head),
        }
    }
}

/// Number, previous hash, entry, what is sealed, and hash of a line.
fn parts(text: &str) -> Option<(u64, &str, &str, &str, &str)> {
    let at = text
        .len()
        .checked_sub(SEAL.len() + HASH_DIGITS + END.len())?;
    let (sealed, seal) = (text.get(..at)?, text.get(at..)?);
    let hash = seal.strip_prefix(SEAL)?.strip_suffix(END)?;
    let rest = sealed.strip_prefix("{\"number\":")?;
    let (number, rest) = rest.split_once(",\"previous\":\"")?;
    let (previous, entry) = rest.split_once("\",\"entry\":")?;
    Some((number.parse().ok()?, previous, entry, sealed, hash))
}
