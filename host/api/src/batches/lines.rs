//! Lines of a file, read where they stand. Of the file one piece is held at most, and of a long line what may be used.

use std::sync::Arc;

use mortise_store::limits::MAX_PIECE_BYTES;
use mortise_store::{Key, Store, StoreError};

use crate::contents::piece;

/// A line that is not blank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BatchLine {
    /// Its place among those that are not blank, from 1.
    pub(super) place: u64,
    /// Its number among all lines of the file, from 1.
    pub(super) number: u64,
    /// The byte at which it begins.
    pub(super) at: u64,
    /// Its bytes; `None` if they are more than may be used.
    pub(super) text: Option<Vec<u8>>,
}

/// The lines of a file.
pub(super) struct Lines {
    store: Arc<dyn Store>,
    key: Key,
    /// Bytes of a line that may be used.
    most: usize,
    /// The byte at which the next line begins.
    next: u64,
    /// Lines so far, and those that were not blank.
    lines: u64,
    pub(super) places: u64,
    held: Option<(u64, Vec<u8>)>,
}

impl Lines {
    pub(super) fn of(store: Arc<dyn Store>, key: Key, most: usize) -> Self {
        Self {
            store,
            key,
            most,
            next: 0,
            lines: 0,
            places: 0,
            held: None,
        }
    }

    /// The next line that is not blank; `None` at the end.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub(super) async fn next(&mut self) -> Result<Option<BatchLine>, StoreError> {
        loop {
            let at = self.next;
            let Some((text, next)) = self.read(at).await? else {
                return Ok(None);
            };
            self.next = next;
            self.lines += 1;
            let blank = |text: &Vec<u8>| text.iter().all(u8::is_ascii_whitespace);
            if text.as_ref().is_some_and(blank) {
                continue;
            }
            self.places += 1;
            return Ok(Some(BatchLine {
                place: self.places,
                number: self.lines,
                at,
                text,
            }));
        }
    }

    /// The bytes of a line again.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub(super) async fn again(&mut self, at: u64) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.read(at).await?.and_then(|(text, _)| text))
    }

    /// Hold nothing of the file.
    pub(super) fn forget(&mut self) {
        self.held = None;
    }

    /// The line that begins at a byte, and the byte behind its end.
    async fn read(&mut self, at: u64) -> Result<Option<(Option<Vec<u8>>, u64)>, StoreError> {
        let (mut line, mut to, mut long) = (Vec::new(), at, false);
        loop {
            let most = self.most;
            let rest = self.rest(to).await?;
            if rest.is_empty() {
                // The end of the file, with a line or without one.
                let found = to > at;
                return Ok(found.then_some(((!long).then_some(line), to)));
            }
            let end = rest.iter().position(|byte| *byte == b'\n');
            let part = rest.get(..end.unwrap_or(rest.len())).unwrap_or_default();
            long |= line.len() + part.len() > most;
            if !long {
                line.extend_from_slice(part);
            }
            to += part.len() as u64;
            if end.is_some() {
                return Ok(Some(((!long).then_some(line), to + 1)));
            }
        }
    }

    /// Bytes from a place to the end of its piece; none at the end of the file.
    async fn rest(&mut self, at: u64) -> Result<&[u8], StoreError> {
        let size = MAX_PIECE_BYTES as u64;
        let (place, within) = (at / size, at % size);
        if self.held.as_ref().is_none_or(|(held, _)| *held != place) {
            let read = piece(&*self.store, &self.key, place).await?;
            self.held = Some((place, read.unwrap_or_default()));
        }
        let piece = self.held.as_ref().map(|(_, piece)| piece.as_slice());
        let within = usize::try_from(within).unwrap_or(usize::MAX);
        Ok(piece
            .and_then(|piece| piece.get(within..))
            .unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use mortise_store::{Change, Item, Record, RecordKind, SqliteStore, StoreConfig};

    use super::*;

    async fn lines_of(content: &[u8], most: usize) -> Lines {
        let store = SqliteStore::open(&StoreConfig {
            path: None,
            max_bytes: 64 << 20,
            owner_max_bytes: 64 << 20,
            owner_max_records: 10,
            sync_answers: false,
        });
        let store = Arc::new(store.expect("a store"));
        let key = Key::new(&Arc::from("tenant a"), RecordKind::File, "file-1");
        let pieces = content.chunks(MAX_PIECE_BYTES).enumerate();
        let items = pieces.map(|(place, piece)| Item {
            id: format!("{place:08}"),
            body: piece.to_vec(),
        });
        let record = Record {
            key: key.clone(),
            created: 1,
            expires: None,
            open: false,
            body: Vec::new(),
        };
        let append = Change::Append {
            parent: key.clone(),
            items: items.collect(),
        };
        let changes = vec![Change::Put(record), append];
        store.commit(changes).await.expect("written");
        Lines::of(store, key, most)
    }

    #[tokio::test]
    async fn feature_e29_lines_are_found_wherever_pieces_end() {
        for shift in 0..4 {
            let first = "x".repeat(MAX_PIECE_BYTES - shift);
            let long = "y".repeat(2 * MAX_PIECE_BYTES + 1);
            let content = format!("{first}\n\n  \r\nab\n{long}\ncd\r\n\nlast");
            let mut lines = lines_of(content.as_bytes(), MAX_PIECE_BYTES + 5).await;
            let mut found = Vec::new();
            while let Some(line) = lines.next().await.expect("read") {
                if let Some(text) = &line.text {
                    let again = lines.again(line.at).await.expect("read");
                    assert_eq!(again.as_ref(), Some(text));
                }
                found.push((line.place, line.number, line.text));
            }
            let text = |text: &str| Some(text.as_bytes().to_vec());
            let expected = [
                (1, 1, text(&first)),
                (2, 4, text("ab")),
                (3, 5, None),
                (4, 6, text("cd\r")),
                (5, 8, text("last")),
            ];
            assert_eq!(found, expected);
        }
    }

    #[tokio::test]
    async fn files_without_lines_have_none() {
        for content in ["", "\n", " \n\r\n\t"] {
            let mut lines = lines_of(content.as_bytes(), 100).await;
            assert_eq!(lines.next().await, Ok(None), "{content:?}");
        }
    }
}
