//! Dot products for any processor, straight from the definition of a group.

use super::layout::unpack;
use super::{BlockType, GROUP, QuantisedRow};

/// The dot product of a row of activations with a row of weights of as many groups.
pub(super) fn dot(kind: BlockType, x: QuantisedRow<'_>, weights: &[u8]) -> f32 {
    let groups = kind.weights() / GROUP;
    let mut total = 0.0;
    for (number, block) in weights.chunks_exact(kind.bytes()).enumerate() {
        for index in 0..groups {
            let group = unpack(kind, block, index);
            let at = number * groups + index;
            let quants = &x.quants[at * GROUP..][..GROUP];
            for half in 0..2 {
                let part = half * 16..(half + 1) * 16;
                let sum: i32 = group.quants[part.clone()]
                    .iter()
                    .zip(&quants[part])
                    .map(|(weight, x)| i32::from(*weight) * i32::from(*x))
                    .sum();
                total += group.scales[half] * x.scales[at] * sum as f32;
                total -= group.mins[half] * x.sums[2 * at + half];
            }
        }
    }
    total
}
