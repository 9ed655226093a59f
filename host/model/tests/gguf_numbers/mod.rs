//! Replaces numbers in the metadata of a GGUF file. It reads right files only.

use serde_json::Value;

const ALIGNMENT: usize = 32;
const TEXT: u32 = 8;
const ARRAY: u32 = 9;

/// The parts of a file.
pub(crate) struct Header<'a> {
    file: &'a [u8],
    entries: Vec<Entry>,
    end: usize,
}

/// A number in the metadata.
pub(crate) struct Entry {
    pub(crate) key: String,
    /// Range of the file that holds the type and the value of the number.
    place: std::ops::Range<usize>,
}

struct Reader<'a>(&'a [u8], usize);

impl Reader<'_> {
    fn take(&mut self, length: usize) -> &[u8] {
        let start = self.1;
        self.1 += length;
        &self.0[start..self.1]
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take(4).try_into().unwrap())
    }

    fn u64(&mut self) -> usize {
        u64::from_le_bytes(self.take(8).try_into().unwrap()) as usize
    }

    fn text(&mut self) -> String {
        let length = self.u64();
        String::from_utf8(self.take(length).to_vec()).unwrap()
    }

    fn skip_value(&mut self, kind: u32) {
        match kind {
            0 | 1 | 7 => self.1 += 1,
            2 | 3 => self.1 += 2,
            4..=6 => self.1 += 4,
            10..=12 => self.1 += 8,
            TEXT => {
                let length = self.u64();
                self.1 += length;
            }
            ARRAY => {
                let (kind, count) = (self.u32(), self.u64());
                (0..count).for_each(|_| self.skip_value(kind));
            }
            other => panic!("type {other}"),
        }
    }
}

impl<'a> Header<'a> {
    pub(crate) fn read(file: &'a [u8]) -> Self {
        let mut reader = Reader(file, 8);
        let (tensors, count) = (reader.u64(), reader.u64());
        let mut entries = Vec::new();
        for _ in 0..count {
            let key = reader.text();
            let start = reader.1;
            let kind = reader.u32();
            reader.skip_value(kind);
            if !matches!(kind, 7 | TEXT | ARRAY) {
                let place = start..reader.1;
                entries.push(Entry { key, place });
            }
        }
        for _ in 0..tensors {
            reader.text();
            let dimensions = reader.u32() as usize;
            reader.take(8 * dimensions + 12);
        }
        Self {
            file,
            entries,
            end: reader.1,
        }
    }

    /// All numbers that are no arrays.
    pub(crate) fn numbers(&self) -> &[Entry] {
        &self.entries
    }

    /// The file with another number, in the widest type that has it.
    pub(crate) fn with(&self, entry: &Entry, value: &Value) -> Vec<u8> {
        let (kind, bytes) = match (value.as_u64(), value.as_i64()) {
            (Some(number), _) => (10_u32, number.to_le_bytes()),
            (None, Some(number)) => (11, number.to_le_bytes()),
            (None, None) => (12, value.as_f64().unwrap().to_le_bytes()),
        };
        let mut file = self.file[..entry.place.start].to_vec();
        file.extend(kind.to_le_bytes());
        file.extend(bytes);
        file.extend(&self.file[entry.place.end..self.end]);
        file.resize(file.len().next_multiple_of(ALIGNMENT), 0);
        file.extend(&self.file[self.end.next_multiple_of(ALIGNMENT)..]);
        file
    }
}
