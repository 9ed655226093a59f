//! Block formats against the `gguf` package of Python, see `tests/gguf/make_reference.py`.

use std::path::PathBuf;

use mortise_kernels::quant::{BlockType, dequantise, quantise_q8_0};
use safetensors::SafeTensors;

fn reference() -> Vec<u8> {
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/gguf/data/blocks.safetensors");
    std::fs::read(path).expect("read the reference")
}

fn floats(tensors: &SafeTensors<'_>, name: &str) -> Vec<f32> {
    let data = tensors
        .tensor(name)
        .expect("a tensor of the reference")
        .data();
    data.chunks_exact(4)
        .map(|four| f32::from_le_bytes(four.try_into().expect("four bytes")))
        .collect()
}

#[test]
fn dequantised_blocks_equal_the_reference_bit_for_bit() {
    let bytes = reference();
    let tensors = SafeTensors::deserialize(&bytes).expect("the reference");
    for kind in BlockType::ALL {
        let name = kind.name();
        let blocks = tensors.tensor(&format!("{name}.blocks")).expect("blocks");
        assert_eq!(blocks.shape()[1], kind.bytes(), "{name}");
        let expected = floats(&tensors, &format!("{name}.values"));
        assert_eq!(expected.len(), blocks.shape()[0] * kind.weights(), "{name}");
        let mut found = vec![0.0; expected.len()];
        dequantise(kind, blocks.data(), &mut found);
        for (k, (found, expected)) in found.iter().zip(&expected).enumerate() {
            assert!(expected.is_finite(), "{name}: {expected}");
            // A weight of zero may differ in its sign.
            let same = found.to_bits() == expected.to_bits() || (*found == 0.0 && *expected == 0.0);
            assert!(same, "{name}, weight {k}: {found} is not {expected}");
        }
    }
}

#[test]
fn quantising_to_q8_0_equals_the_reference() {
    let bytes = reference();
    let tensors = SafeTensors::deserialize(&bytes).expect("the reference");
    let expected = tensors.tensor("Q8_0.quantised").expect("blocks");
    assert_eq!(quantise_q8_0(&floats(&tensors, "source")), expected.data());
}
