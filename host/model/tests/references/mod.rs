//! Files of tensors that other programs wrote, to compare with.

#![allow(unreachable_pub, reason = "each test crate has it as a module")]

use std::path::Path;

use safetensors::SafeTensors;

/// A file, `tests/*/make_reference.py` says with what.
pub struct References(Vec<u8>);

impl References {
    pub fn read(path: &Path) -> Self {
        Self(std::fs::read(path).unwrap())
    }

    /// Token ids.
    pub fn tokens(&self, name: &str) -> Vec<u32> {
        let ids = self.values(name);
        ids.map(|id| i64::from_le_bytes(id) as u32).collect()
    }

    pub fn floats(&self, name: &str) -> Vec<f32> {
        self.values(name).map(f32::from_le_bytes).collect()
    }

    fn values<const N: usize>(&self, name: &str) -> impl Iterator<Item = [u8; N]> {
        let tensors = SafeTensors::deserialize(&self.0).unwrap();
        let (values, rest) = tensors.tensor(name).unwrap().data().as_chunks::<N>();
        assert!(rest.is_empty(), "{name}");
        values.iter().copied()
    }
}
