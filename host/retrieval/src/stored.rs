//! A chunk as it is stored.

/// A chunk of a document.
#[derive(Debug, Clone, PartialEq)]
pub struct Chunk {
    /// First byte in the document's text.
    pub start: u32,
    /// Byte behind its last.
    pub end: u32,
    /// Its vector, of length 1.
    pub vector: Vec<f32>,
    /// Its text.
    pub text: String,
}

impl Chunk {
    /// Bytes to store: start, end and number of dimensions as 32-bit integers, the vector, the text; all numbers with
    /// their least byte first.
    pub fn encode(&self) -> Vec<u8> {
        let dimensions = u32::try_from(self.vector.len()).unwrap_or(u32::MAX);
        let mut bytes = Vec::with_capacity(12 + 4 * self.vector.len() + self.text.len());
        for number in [self.start, self.end, dimensions] {
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
        let (dimensions, rest) = rest.split_first_chunk::<4>()?;
        let dimensions = usize::try_from(u32::from_le_bytes(*dimensions)).ok()?;
        let (vector, text) = rest.split_at_checked(dimensions.checked_mul(4)?)?;
        let (numbers, _) = vector.as_chunks::<4>();
        Some(Self {
            start: u32::from_le_bytes(*start),
            end: u32::from_le_bytes(*end),
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
