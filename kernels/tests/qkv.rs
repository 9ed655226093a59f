//! The stage of queries, keys and values against its steps, one after the other.

use half::f16;
use mortise_kernels::kv_page::{BLOCK_TOKENS, BlockPages, KvPages, KvShape};
use mortise_kernels::kv_q8::{Q8Pages, groups};
use mortise_kernels::pool::ThreadPool;
use mortise_kernels::qkv::QkvStage;
use mortise_kernels::rms_norm::{RmsNorm, rms_norm_in_place};
use mortise_kernels::rope::{RopeHeads, RopePairs, RopeTable};
use proptest::prelude::*;

const BLOCKS: usize = 7;

fn noise(count: usize, step: f32) -> Vec<f32> {
    (0..count).map(|k| (k as f32 * step).sin() * 3.0).collect()
}

/// A cache of either kind, as what it holds.
#[derive(Debug, Clone, PartialEq)]
struct Cache {
    keys: Vec<f16>,
    values: Vec<f16>,
    numbers: [Vec<i8>; 2],
    scales: [Vec<u16>; 2],
    shape: KvShape,
}

impl Cache {
    fn new(shape: KvShape) -> Self {
        let count = |dim| BLOCKS * shape.kv_heads * BLOCK_TOKENS * dim;
        let dims = [shape.key_dim, shape.value_dim];
        Self {
            keys: vec![f16::ZERO; count(shape.key_dim)],
            values: vec![f16::ZERO; count(shape.value_dim)],
            numbers: dims.map(|dim| vec![0; count(dim)]),
            scales: dims.map(|dim| vec![0; count(groups(dim))]),
            shape,
        }
    }

    fn plain(&mut self) -> KvPages<'_, f16> {
        KvPages {
            keys: &mut self.keys,
            values: &mut self.values,
            shape: self.shape,
        }
    }

    fn eight_bits(&mut self) -> Q8Pages<'_> {
        let ([keys, values], [key_scales, value_scales]) = (&mut self.numbers, &mut self.scales);
        Q8Pages {
            keys,
            key_scales,
            values,
            value_scales,
            shape: self.shape,
        }
    }
}

proptest! {
    #[test]
    fn the_stage_is_as_its_steps(
        places in prop::collection::btree_set((0usize..BLOCKS, 0usize..BLOCK_TOKENS), 1..60),
        backwards in any::<bool>(), threads in 1usize..4, kv_heads in 1usize..4, group in 1usize..4,
        pairs in 1usize..70, with_norm in any::<bool>(), over_all in any::<bool>(),
        with_rope in any::<bool>(), with_factors in any::<bool>(),
    ) {
        let (dim, heads) = (2 * pairs, kv_heads * group);
        let shape = KvShape { kv_heads, key_dim: dim, value_dim: dim + 1 };
        let mut slots: Vec<(usize, usize)> = places.into_iter().collect();
        if backwards {
            slots.reverse();
        }
        let rows = slots.len();
        let weights = noise(heads * dim + kv_heads * dim, 0.3);
        let (query, key) = match over_all {
            true => weights.split_at(heads * dim),
            false => (&weights[..dim], &weights[1..=dim]),
        };
        let norms = [query, key].map(|weight| RmsNorm { weight, epsilon: 1e-6 });
        let positions: Vec<u32> = (0..rows as u32).map(|row| row * 7).collect();
        let frequencies: Vec<f32> = (0..pairs).map(|pair| 0.8f32.powi(pair as i32)).collect();
        let table = RopeTable::new(&positions, &frequencies, 1.0);
        let turned = RopeHeads {
            heads: heads + kv_heads, head_dim: dim, first: 0, pairs: RopePairs::Halves,
        };
        let factors = noise(rows, 0.9);
        let stage = QkvStage {
            heads,
            norms: with_norm.then_some(norms),
            rope: with_rope.then_some((&table, turned)),
            query_factors: with_factors.then_some(&factors[..]),
        };
        let stride = stage.stride(shape);
        let given = noise(rows * stride, 0.017);

        let mut expected = given.clone();
        let mut cache = Cache::new(shape);
        let (queries, keys) = (heads * dim, kv_heads * dim);
        for row in expected.chunks_exact_mut(stride) {
            if with_norm {
                rms_norm_in_place(&mut row[..queries], norms[0]);
                rms_norm_in_place(&mut row[queries..queries + keys], norms[1]);
            }
        }
        if with_rope {
            table.apply(&mut expected, stride, turned);
        }
        for ((row, &(block, slot)), factor) in
            expected.chunks_exact_mut(stride).zip(&slots).zip(&factors)
        {
            if with_factors {
                row[..queries].iter_mut().for_each(|query| *query *= factor);
            }
            let (key, value) = row[queries..].split_at(keys);
            cache.plain().store(block, slot, key, value);
            cache.eight_bits().store(block, slot, key, value);
        }

        let mut found = Cache::new(shape);
        ThreadPool::new(threads).unwrap().install(|| {
            let mut qkv = given.clone();
            stage.run(&mut qkv, &slots, found.plain());
            assert_eq!(&qkv, &expected);
            let mut qkv = given.clone();
            stage.run(&mut qkv, &slots, found.eight_bits());
            assert_eq!(&qkv, &expected);
        });
        prop_assert_eq!(found, cache);
    }
}
