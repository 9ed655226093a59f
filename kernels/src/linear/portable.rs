//! Dot products for any processor, in the order of additions of the vector path but without fused
//! multiply-adds.

use super::{LANES, Weight};

pub(super) fn dot_tile<W: Weight, const R: usize, const C: usize>(
    x: [&[f32]; R],
    weights: [&[W]; C],
) -> [[f32; C]; R] {
    x.map(|x| weights.map(|weights| dot(x, weights)))
}

fn dot<W: Weight>(x: &[f32], weights: &[W]) -> f32 {
    let mut sums = [0.0f32; LANES];
    let (x, weights) = (x.chunks_exact(LANES), weights.chunks_exact(LANES));
    let tail = x.remainder().iter().zip(weights.remainder());
    for (x, weights) in x.zip(weights) {
        for ((sum, x), weight) in sums.iter_mut().zip(x).zip(weights) {
            let weight: f32 = (*weight).into();
            *sum += x * weight;
        }
    }
    let four: [f32; 4] = std::array::from_fn(|lane| sums[lane] + sums[lane + 4]);
    let mut total = (four[0] + four[2]) + (four[1] + four[3]);
    for (x, weight) in tail {
        let weight: f32 = (*weight).into();
        total += x * weight;
    }
    total
}
