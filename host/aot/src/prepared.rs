//! The image of an instance that has been prepared, as a core module of data.

use wasm_encoder::{Encode, MemoryType, SectionId};

use crate::keeper;
use crate::parts::{MEMORY_ITEM, PAGES_ITEM};

/// Bytes of a page of memory, which its size is counted in.
const PAGE_BYTES: u64 = 64 << 10;

/// Bytes that are looked at together: those that are all zero are left out.
const GRAIN_BYTES: usize = 4 << 10;

/// State of an instance, as it hands it over.
#[derive(Debug, Default)]
pub struct PreparedState {
    globals: Vec<u64>,
    pages: Option<u64>,
    /// Data segments, encoded, and their number.
    segments: Vec<u8>,
    count: u32,
    /// Bytes of memory so far.
    extent: u64,
    /// Bytes of memory so far that are not left out.
    data: u64,
}

impl PreparedState {
    /// Take an item that an instance hands over: a global, its number of pages, or the next piece of its memory.
    ///
    /// # Errors
    /// When it is none.
    pub fn take(&mut self, item: u32, value: u64, bytes: &[u8]) -> Result<(), &'static str> {
        match item {
            MEMORY_ITEM => self.take_memory(bytes),
            PAGES_ITEM => {
                self.pages = Some(value);
                Ok(())
            }
            item if item as usize == self.globals.len() => {
                self.globals.push(value);
                Ok(())
            }
            _ => Err("an item out of turn"),
        }
    }

    fn take_memory(&mut self, bytes: &[u8]) -> Result<(), &'static str> {
        const ZEROS: [u8; GRAIN_BYTES] = [0; GRAIN_BYTES];
        let is_zero = |grain: &[u8]| grain == &ZEROS[..grain.len()];
        let runs = bytes.chunks(GRAIN_BYTES).map(is_zero).collect::<Vec<_>>();
        let mut at = 0;
        for run in runs.chunk_by(|one, next| one == next) {
            let end = (at + run.len() * GRAIN_BYTES).min(bytes.len());
            if !run[0] {
                self.segment(at, &bytes[at..end])?;
            }
            at = end;
        }
        self.extent += bytes.len() as u64;
        Ok(())
    }

    fn segment(&mut self, at: usize, bytes: &[u8]) -> Result<(), &'static str> {
        const ACTIVE: u8 = 0;
        const I32_CONST: u8 = 0x41;
        const END: u8 = 0x0b;
        let start = self.extent + at as u64;
        let start = u32::try_from(start).map_err(|_| "a memory beyond 4 GiB")?;
        self.segments.extend([ACTIVE, I32_CONST]);
        start.cast_signed().encode(&mut self.segments);
        self.segments.push(END);
        bytes.encode(&mut self.segments);
        self.count += 1;
        self.data += bytes.len() as u64;
        Ok(())
    }

    /// Bytes of memory of the instance, once it has told.
    pub fn memory_bytes(&self) -> Option<u64> {
        self.pages?.checked_mul(PAGE_BYTES)
    }

    /// The core module, for a memory that may have at most so many pages.
    ///
    /// # Errors
    /// When something is missing, or when new instances would have to copy it.
    pub fn into_image(self, maximum: Option<u64>) -> Result<Vec<u8>, &'static str> {
        let Some(pages) = self
            .pages
            .filter(|_| self.memory_bytes() == Some(self.extent))
        else {
            return Err("the instance did not hand over all of its memory");
        };
        if self.extent > crate::MAX_SPARSE_IMAGE_BYTES && self.data < self.extent.div_ceil(2) {
            return Err("its memory is large and has more gaps than data");
        }
        let memory = MemoryType {
            minimum: pages,
            maximum,
            ..keeper::ANY_MEMORY
        };
        let mut image = keeper::image(memory, true, &self.globals).finish();
        let mut count = Vec::new();
        self.count.encode(&mut count);
        let size = u32::try_from(count.len() + self.segments.len());
        let size = size.map_err(|_| "a memory beyond 4 GiB")?;
        image.reserve(self.segments.len() + 16);
        image.push(SectionId::Data.into());
        size.encode(&mut image);
        image.extend(count);
        image.extend(self.segments);
        Ok(image)
    }
}

#[cfg(test)]
mod tests {
    use wasmparser::{DataKind, Operator, Parser, Payload};

    use super::*;

    /// The memory that an image makes, as far as it writes to it.
    fn memory(image: &[u8]) -> Vec<u8> {
        let mut memory = Vec::new();
        wasmparser::Validator::new().validate_all(image).unwrap();
        for payload in Parser::new(0).parse_all(image) {
            let Payload::DataSection(section) = payload.unwrap() else {
                continue;
            };
            for segment in section {
                let segment = segment.unwrap();
                let DataKind::Active { offset_expr, .. } = segment.kind else {
                    panic!("an active segment");
                };
                let first = offset_expr.get_operators_reader().read().unwrap();
                let Operator::I32Const { value } = first else {
                    panic!("a constant");
                };
                memory.resize(value.cast_unsigned() as usize, 0);
                memory.extend(segment.data);
            }
        }
        memory
    }

    #[test]
    fn an_image_has_the_memory_and_the_globals() {
        let mut bytes = vec![0; 2 * 65_536];
        for at in [0, 4095, 4096, 30_000, 70_000, 131_071] {
            bytes[at] = u8::try_from(at % 251).unwrap() + 1;
        }
        for piece in [4096, 10_000, 131_072] {
            let mut state = PreparedState::default();
            state.take(0, 7, &[]).unwrap();
            state.take(1, u64::MAX, &[]).unwrap();
            state.take(PAGES_ITEM, 2, &[]).unwrap();
            for piece in bytes.chunks(piece) {
                state.take(MEMORY_ITEM, 0, piece).unwrap();
            }
            assert_eq!(state.memory_bytes(), Some(131_072));
            let image = state.into_image(Some(9)).unwrap();
            assert_eq!(memory(&image), bytes, "pieces of {piece}");
            assert!(image.len() < 40_000, "zeros are left out");
        }
    }

    #[test]
    fn what_is_incomplete_makes_no_image() {
        let mut state = PreparedState::default();
        assert!(state.take(1, 0, &[]).is_err(), "out of turn");
        state.take(PAGES_ITEM, 1, &[]).unwrap();
        state.take(MEMORY_ITEM, 0, &[1; 100]).unwrap();
        assert!(state.into_image(None).is_err());
        assert!(PreparedState::default().into_image(None).is_err());
    }
}
