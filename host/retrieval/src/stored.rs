//! A chunk as it is stored.

/// A chunk of a document.
#[derive(Debug, Clone, PartialEq)]
pub struct Chunk {
    /// First byte in the document's text.
    pub start: u32,
    /// Byte behind its last.
    pub end: u32,
    /// Page on which it begins, from 1; none of a document that has no pages.
    pub page: Option<u16>,
    /// Its vector, of length 1.
    pub vector: Vec<f32>,
    /// Its text.
    pub text: String,
}

impl Chunk {
    /// Bytes to store: start and end as 32-bit integers, the number of dimensions and the page, or 0, as 16-bit ones, the vector,
    /// the text; all numbers with their least byte first.
    pub fn encode(&self) -> Vec<u8> {
        let dimensions = u16::try_from(self.vector.len()).unwrap_or(u16::MAX);
        let mut bytes = Vec::with_capacity(12 + 4 * self.vector.len() + self.text.len());
        for number in [self.start, self.end] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        for number in [dimensions, self.page.unwrap_or(0)] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        for number in &self.vector {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(self.text.as_bytes());
        bytes
    }

    /// The chunk of stored bytes; `None` if they are none.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (start, rest) = bytes.split_first_chunk::<4>()?;
        let (end, rest) = rest.split_first_chunk::<4>()?;
        let (dimensions, rest) = rest.split_first_chunk::<2>()?;
        let dimensions = usize::from(u16::from_le_bytes(*dimensions));
        let (page, rest) = rest.split_first_chunk::<2>()?;
        let page = u16::from_le_bytes(*page);
        let (vector, text) = rest.split_at_checked(dimensions.checked_mul(4)?)?;
        let (numbers, _) = vector.as_chunks::<4>();
        Some(Self {
            start: u32::from_le_bytes(*start),
            end: u32::from_le_bytes(*end),
            page: (page > 0).then_some(page),
            vector: numbers.iter().copied().map(f32::from_le_bytes).collect(),
            text: String::from_utf8(text.to_vec()).ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_read_again() {
        let chunk = Chunk {
            start: 7,
            end: 12,
            page: Some(300),
            vector: vec![0.5, -0.25, f32::MIN_POSITIVE],
            text: "wörld".to_owned(),
        };
        let bytes = chunk.encode();
        assert_eq!(Chunk::decode(&bytes), Some(chunk));
        for cut in 0..24 {
            assert_eq!(Chunk::decode(&bytes[..cut]), None, "{cut}");
        }
    }
}
