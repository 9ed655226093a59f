//! Arg-max under masks.

use mortise_cuda::Buffer;
use mortise_cuda::sample::{History, Masks, choose_best};
use mortise_kernels::mask::apply_mask;
use mortise_kernels::select::argmax;
use proptest::prelude::*;

use crate::{devices, numbers};

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    /// The host's op is the oracle, ties included: logits are of few values.
    #[test]
    fn the_best_token_is_the_hosts(
        vocabulary in 1usize..5000,
        seed in 0u64..1000,
        levels in 1u32..40,
        short in 0usize..3,
        masked in any::<bool>(),
    ) {
        const ROWS: usize = 3;
        let logits: Vec<f32> = numbers(seed, ROWS * vocabulary)
            .iter()
            .map(|x| (x * levels as f32).round())
            .collect();
        let words = vocabulary.div_ceil(32).saturating_sub(short).max(1);
        let masks: Vec<u32> = numbers(seed + 1, ROWS * words)
            .iter()
            .map(|x| if *x < -0.5 { 0 } else { x.to_bits().wrapping_mul(0x9e37_79b9) })
            .collect();
        let expected: Vec<i32> = (0..ROWS)
            .map(|row| {
                let mut logits = logits[row * vocabulary..][..vocabulary].to_vec();
                if masked {
                    apply_mask(&mut logits, &masks[row * words..][..words]);
                }
                argmax(&logits).map_or(-1, |token| token as i32)
            })
            .collect();
        for device in devices() {
            let given = Buffer::of(&device, &logits).unwrap();
            let bits = Buffer::of(&device, &masks).unwrap();
            let tokens = Buffer::zeros(&device, ROWS).unwrap();
            let masks = masked.then(|| Masks { words: bits.all(), row: words });
            let (kept, step) = (Buffer::zeros(&device, 2 * ROWS).unwrap(), Buffer::of(&device, &[1]).unwrap());
            let history = History { tokens: kept.all(), step: step.all(), stride: 2 };
            let shape = [ROWS, vocabulary];
            choose_best(&*device, given.all(), shape, masks, tokens.all(), Some(history)).unwrap();
            let kept = kept.to_vec().unwrap();
            prop_assert!(kept.chunks(2).map(|row| row[1]).eq(expected.iter().copied()));
            prop_assert_eq!(tokens.to_vec().unwrap(), expected.clone());
        }
    }
}
