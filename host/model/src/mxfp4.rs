//! MXFP4 (Open Compute Project, Microscaling Formats 1.0): blocks of 32 numbers of four bits, E2M1,
//! with a power of two for each block.

use half::bf16;

use crate::weights::Numbers;

/// Numbers of a block.
pub(crate) const BLOCK: usize = 32;
/// Bytes of a block, without its scale.
pub(crate) const BLOCK_BYTES: usize = BLOCK / 2;
/// What is subtracted from the byte of a scale to give its exponent.
const BIAS: i32 = 127;
/// The eight magnitudes; bit 3 is the sign.
const MAGNITUDES: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];

/// Widen blocks to bf16, which holds all their numbers exactly (but for scales above 2^125, which no
/// weights have). The low half of byte `i` is number `2 i`, the high half number `2 i + 1`. `blocks`
/// has [`BLOCK_BYTES`] for each of `scales`.
pub(crate) fn widen(blocks: &[u8], scales: &[u8]) -> Numbers {
    let mut numbers = Vec::with_capacity(scales.len() * BLOCK);
    for (block, scale) in blocks.chunks_exact(BLOCK_BYTES).zip(scales) {
        let factor = 2f64.powi(i32::from(*scale) - BIAS);
        let number = |half: u8| {
            let magnitude = f64::from(MAGNITUDES[usize::from(half & 7)]) * factor;
            let signed = if half & 8 == 0 { magnitude } else { -magnitude };
            bf16::from_f64(signed)
        };
        numbers.extend(
            block
                .iter()
                .flat_map(|byte| [number(byte & 15), number(byte >> 4)]),
        );
    }
    Numbers::Bf16(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_widen_as_the_format_says() {
        let mut block = [0u8; BLOCK_BYTES];
        block[0] = 0x10;
        block[1] = 0x72;
        block[15] = 0xf9;
        let Numbers::Bf16(numbers) = widen(&block, &[128]) else {
            panic!("not bf16");
        };
        let numbers: Vec<f32> = numbers.into_iter().map(bf16::to_f32).collect();
        assert_eq!(numbers.len(), BLOCK);
        assert_eq!(numbers[..4], [0.0, 1.0, 2.0, 12.0]);
        assert_eq!(numbers[30..], [-1.0, -12.0]);
        let Numbers::Bf16(smallest) = widen(&[0x21; BLOCK_BYTES], &[0]) else {
            panic!("not bf16");
        };
        assert_eq!(smallest[0].to_f64(), 2f64.powi(-128));
        assert_eq!(smallest[1].to_f64(), 2f64.powi(-127));
    }
}
