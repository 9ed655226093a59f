//! Each op against its definition in double precision, on odd shapes.

use half::{bf16, f16};
use mortise_kernels::attention::{self, AttentionInput, AttentionRow, Scoring, attention};
use mortise_kernels::gate_mul::{Activation, gate_mul};
use mortise_kernels::kv_page::{BLOCK_TOKENS, BlockPages, KvArena, KvElement, KvPages, KvShape};
use mortise_kernels::kv_q8::{Q8Arena, Q8Pages, groups};
use mortise_kernels::log_softmax::{log_softmax, log_sum_exp};
use mortise_kernels::mask::{allows_any, apply_mask};
use mortise_kernels::pool::ThreadPool;
use mortise_kernels::rms_norm::{RmsNorm, rms_norm, rms_norm_in_place};
use mortise_kernels::rope::{RopeHeads, RopePairs, RopeTable};
use mortise_kernels::route::{ExpertGroups, GroupRank, Route, RouterScores, Routing, route};
use mortise_kernels::soft_cap::soft_cap;
use proptest::collection::vec;
use proptest::prelude::*;

fn close(found: &[f32], expected: impl IntoIterator<Item = f64>, tolerance: f64) {
    let expected: Vec<f64> = expected.into_iter().collect();
    assert_eq!(found.len(), expected.len());
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (f64::from(*found) - expected).abs();
        assert!(
            error <= tolerance * (1.0 + expected.abs()),
            "{index}: {found} is not {expected}"
        );
    }
}

/// Layout of `lengths.len()` sequences in the KV cache, whose blocks are scattered over the arena.
struct Layout {
    lengths: Vec<usize>,
    shape: KvShape,
    tables: Vec<u32>,
    firsts: Vec<usize>,
    blocks: usize,
}

impl Layout {
    fn new(lengths: &[usize], shape: KvShape) -> Self {
        let blocks = |length: &usize| length.div_ceil(BLOCK_TOKENS);
        let total: usize = lengths.iter().map(blocks).sum();
        let starts = lengths.iter().map(blocks).scan(0, |next, blocks| {
            *next += blocks;
            Some(*next - blocks)
        });
        Self {
            lengths: lengths.to_vec(),
            shape,
            firsts: starts.collect(),
            // From the end of the arena to its start, leaving block 0 unused.
            tables: (1..=total as u32).rev().collect(),
            blocks: total + 1,
        }
    }

    /// Hand block, slot, key and value of every token to `store`.
    fn fill(&self, noise: &[f32], mut store: impl FnMut(usize, usize, &[f32], &[f32])) {
        let mut numbers = noise.iter().copied().cycle();
        for (&first, &length) in self.firsts.iter().zip(&self.lengths) {
            for position in 0..length {
                let width = self.shape.kv_heads * self.shape.key_dim;
                let key: Vec<f32> = numbers.by_ref().take(width).collect();
                let width = self.shape.kv_heads * self.shape.value_dim;
                let value: Vec<f32> = numbers.by_ref().take(width).collect();
                let block = self.tables[first + position / BLOCK_TOKENS] as usize;
                store(block, position % BLOCK_TOKENS, &key, &value);
            }
        }
    }
}

/// Attention over plain numbers of a type.
fn check_plain<T: KvElement>(layout: &Layout, group: usize, scoring: Scoring<'_>, noise: &[f32]) {
    let shape = layout.shape;
    // Whatever is not written must not be read.
    let nothing = T::from_f32(f32::NAN);
    let mut keys = vec![nothing; layout.blocks * shape.key_block_len()];
    let mut values = vec![nothing; layout.blocks * shape.value_block_len()];
    let mut pages = KvPages {
        keys: &mut keys,
        values: &mut values,
        shape,
    };
    layout.fill(noise, |block, slot, key, value| {
        pages.store(block, slot, key, value);
    });
    check_attention(&keys[..], &values[..], layout, group, scoring, noise);
}

/// Attention over numbers of eight bits, and how far those are from what was stored.
fn check_q8(layout: &Layout, group: usize, scoring: Scoring<'_>, noise: &[f32]) {
    let shape = layout.shape;
    let numbers = layout.blocks * shape.kv_heads * BLOCK_TOKENS;
    let (key_dim, value_dim) = (shape.key_dim, shape.value_dim);
    // Scales that are no numbers where nothing is written.
    let mut keys = vec![77; numbers * key_dim];
    let mut key_scales = vec![0x7E00; numbers * groups(key_dim)];
    let mut values = vec![77; numbers * value_dim];
    let mut value_scales = vec![0x7E00; numbers * groups(value_dim)];
    let mut pages = Q8Pages {
        keys: &mut keys,
        key_scales: &mut key_scales,
        values: &mut values,
        value_scales: &mut value_scales,
        shape,
    };
    layout.fill(noise, |block, slot, key, value| {
        pages.store(block, slot, key, value);
    });
    let keys = Q8Arena {
        numbers: &keys,
        scales: &key_scales,
    };
    let values = Q8Arena {
        numbers: &values,
        scales: &value_scales,
    };
    layout.fill(noise, |block, slot, key, value| {
        for head in 0..shape.kv_heads {
            let index = block * shape.kv_heads + head;
            let mut buffer = vec![0.0; key_dim * BLOCK_TOKENS];
            let wide = keys.keys(index, key_dim, &mut buffer);
            let stored = wide.iter().skip(slot).step_by(BLOCK_TOKENS);
            check_rounding(stored, &key[head * key_dim..][..key_dim]);
            let mut buffer = vec![0.0; value_dim * BLOCK_TOKENS];
            let wide = values.values(index, value_dim, &mut buffer);
            let stored = wide[slot * value_dim..][..value_dim].iter();
            check_rounding(stored, &value[head * value_dim..][..value_dim]);
        }
    });
    check_attention(keys, values, layout, group, scoring, noise);
}

/// Check rounding errors: each number is off by half a scale at most, and the scale is 1/127 of the largest of its 32,
/// rounded up to a number of f16, whose places are 2^-24 apart near nought.
fn check_rounding<'a>(stored: impl Iterator<Item = &'a f32>, given: &[f32]) {
    let stored: Vec<f32> = stored.copied().collect();
    for (stored, given) in stored.chunks(32).zip(given.chunks(32)) {
        let largest = given
            .iter()
            .fold(0f32, |most, number| most.max(number.abs()));
        let scale = largest / 127.0 * (1.0 + 1.0 / 1024.0) + 2f32.powi(-24);
        let bound = scale / 2.0 * (1.0 + 1e-5);
        for (stored, given) in stored.iter().zip(given) {
            assert!((stored - given).abs() <= bound, "{given} became {stored}");
        }
    }
}

fn check_attention<A: KvArena>(
    keys: A,
    values: A,
    layout: &Layout,
    group: usize,
    scoring: Scoring<'_>,
    noise: &[f32],
) {
    let Layout {
        lengths,
        shape,
        firsts,
        ..
    } = layout;
    let heads = shape.kv_heads * group;
    // Of each sequence its last token, and of the first one a chunk before that.
    let mut rows: Vec<AttentionRow> = (lengths[0] / 2..lengths[0] - 1)
        .map(|position| AttentionRow {
            first_block: 0,
            position,
            ahead: 0,
        })
        .collect();
    rows.extend(
        lengths
            .iter()
            .zip(firsts)
            .map(|(length, &first_block)| AttentionRow {
                first_block,
                position: length - 1,
                ahead: 0,
            }),
    );
    let stride = heads * shape.key_dim + 3;
    let queries: Vec<f32> = noise
        .iter()
        .rev()
        .copied()
        .cycle()
        .take(rows.len() * stride)
        .collect();
    let input = AttentionInput {
        queries: &queries,
        query_stride: stride,
        heads,
        keys,
        values,
        shape: *shape,
        block_tables: &layout.tables,
        rows: &rows,
        scoring,
    };
    let width = heads * shape.value_dim;
    let (mut found, mut expected) = (vec![0.0; rows.len() * width], vec![0.0; rows.len() * width]);
    attention(&input, &mut found);
    attention::reference(&input, &mut expected);
    close(&found, expected.iter().map(|value| f64::from(*value)), 1e-5);
    for (index, row) in rows.iter().enumerate() {
        let mut alone = vec![0.0; width];
        let queries = &queries[index * stride..][..stride];
        attention(
            &AttentionInput {
                queries,
                rows: &[*row],
                ..input
            },
            &mut alone,
        );
        assert_eq!(
            alone,
            found[index * width..][..width],
            "row {index} alone differs"
        );
    }
}

/// A gate and an up to their product.
type Product<'a> = &'a dyn Fn(f64, f64) -> f64;

proptest! {
    #[test]
    fn attention_agrees_with_its_definition(
        lengths in vec(1usize..70, 1..4), kv_heads in 1usize..4, group in 1usize..7,
        key_dim in 1usize..70, value_dim in 1usize..70, noise in vec(-2f32..2.0, 997),
        window in prop::option::of(1usize..60), soft_cap in prop::option::of(0.5f32..9.0),
        sinks in prop::option::of(vec(-3f32..3.0, 24)),
    ) {
        let shape = KvShape { kv_heads, key_dim, value_dim };
        let sinks = sinks.as_deref().map(|sinks| &sinks[..kv_heads * group]);
        let scoring = Scoring { scale: 1.0 / (key_dim as f32).sqrt(), window, soft_cap, sinks };
        let layout = Layout::new(&lengths, shape);
        check_plain::<f32>(&layout, group, scoring, &noise);
        check_plain::<f16>(&layout, group, scoring, &noise);
        check_plain::<bf16>(&layout, group, scoring, &noise);
        check_q8(&layout, group, scoring, &noise);
    }

    #[test]
    fn eight_bits_keep_numbers_of_every_size(
        noise in vec(-2f32..2.0, 64), exponent in -40i32..22,
    ) {
        let noise: Vec<f32> = noise.iter().map(|number| number * 2f32.powi(exponent)).collect();
        let shape = KvShape { kv_heads: 1, key_dim: 64, value_dim: 64 };
        let (mut keys, mut values) = (vec![0; 64 * BLOCK_TOKENS], vec![0; 64 * BLOCK_TOKENS]);
        let mut key_scales = vec![0; groups(64) * BLOCK_TOKENS];
        let mut value_scales = key_scales.clone();
        let mut pages = Q8Pages {
            keys: &mut keys,
            key_scales: &mut key_scales,
            values: &mut values,
            value_scales: &mut value_scales,
            shape,
        };
        pages.store(0, 3, &noise, &noise);
        let keys = Q8Arena { numbers: &keys, scales: &key_scales };
        let values = Q8Arena { numbers: &values, scales: &value_scales };
        let mut buffer = vec![0.0; 64 * BLOCK_TOKENS];
        check_rounding(keys.keys(0, 64, &mut buffer).iter().skip(3).step_by(BLOCK_TOKENS), &noise);
        check_rounding(values.values(0, 64, &mut buffer)[3 * 64..][..64].iter(), &noise);
    }

    #[test]
    fn rms_norm_agrees_with_its_definition(
        width in 1usize..40, rows in 0usize..4, noise in vec(-3f32..3.0, 200),
    ) {
        let (x, weight) = (&noise[..width * rows], &noise[160..160 + width]);
        let mut out = vec![0.0; x.len()];
        let norm = RmsNorm { weight, epsilon: 1e-5 };
        rms_norm(x, norm, &mut out);
        close(&out, x.chunks(width).flat_map(|row| {
            let squares: f64 = row.iter().map(|x| f64::from(*x).powi(2)).sum();
            let scale = 1.0 / (squares / width as f64 + 1e-5).sqrt();
            row.iter().zip(weight).map(move |(x, w)| f64::from(*x) * scale * f64::from(*w))
        }), 1e-5);
        let mut in_place = x.to_vec();
        rms_norm_in_place(&mut in_place, norm);
        prop_assert_eq!(in_place, out);
    }

    #[test]
    fn gate_mul_agrees_with_its_definition(
        width in 1usize..20, noise in vec(-90f32..90.0, 80), alpha in 0.5f32..2.0, limit in 0.5f32..9.0,
    ) {
        let rows = noise.len() / (2 * width);
        let x = &noise[..rows * 2 * width];
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        let gelu = |x: f64| {
            let bend = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
            0.5 * x * (1.0 + bend.tanh())
        };
        let (a, bound) = (f64::from(alpha), f64::from(limit));
        let clamped = |gate: f64, up: f64| {
            let gate = gate.min(bound);
            gate * sigmoid(a * gate) * (up.clamp(-bound, bound) + 1.0)
        };
        let definitions: [(Activation, Product<'_>); 3] = [
            (Activation::Silu, &|gate, up| gate * sigmoid(gate) * up),
            (Activation::GeluTanh, &|gate, up| gelu(gate) * up),
            (Activation::ClampedSwish { alpha, limit }, &clamped),
        ];
        for (activation, definition) in definitions {
            let mut out = vec![0.0; rows * width];
            gate_mul(activation, x, width, &mut out);
            close(&out, x.chunks(2 * width).flat_map(|row| (0..width).map(move |i| {
                definition(f64::from(row[i]), f64::from(row[width + i]))
            })), 1e-4);
        }
    }

    #[test]
    fn soft_cap_agrees_with_its_definition(values in vec(-200f32..200.0, 0..40), cap in 0.5f32..60.0) {
        let mut found = values.clone();
        soft_cap(&mut found, cap);
        let cap = f64::from(cap);
        close(&found, values.iter().map(|x| cap * (f64::from(*x) / cap).tanh()), 1e-6);
    }

    #[test]
    fn rope_turns_pairs(
        half in 1usize..9, heads in 1usize..4, before in 0usize..3, after in 0usize..3,
        position in 0u32..5000, magnitude in 0.5f32..2.0, neighbours in any::<bool>(),
    ) {
        let frequencies: Vec<f32> = (0..half).map(|i| 0.7f32.powi(i as i32 + 1)).collect();
        let head_dim = before + 2 * half + after;
        let stride = heads * head_dim + 1;
        let mut x: Vec<f32> = (0..2 * stride).map(|i| (i as f32 * 0.37).sin()).collect();
        let original = x.clone();
        let pairs = if neighbours { RopePairs::Neighbours } else { RopePairs::Halves };
        let turned = RopeHeads { heads, head_dim, first: before, pairs };
        RopeTable::new(&[position, 0], &frequencies, magnitude).apply(&mut x, stride, turned);
        let at = |i: usize| f64::from(original[i]);
        let mut expected: Vec<f64> = (0..2 * stride).map(at).collect();
        for (row, position) in [position, 0].into_iter().enumerate() {
            for head in 0..heads {
                for (i, frequency) in frequencies.iter().enumerate() {
                    let (low, high) = if neighbours { (2 * i, 2 * i + 1) } else { (i, i + half) };
                    let first = row * stride + head * head_dim + before;
                    let (low, high) = (first + low, first + high);
                    let angle = f64::from(position as f32 * frequency);
                    let magnitude = f64::from(magnitude);
                    expected[low] = (at(low) * angle.cos() - at(high) * angle.sin()) * magnitude;
                    expected[high] = (at(high) * angle.cos() + at(low) * angle.sin()) * magnitude;
                }
            }
        }
        close(&x, expected, 1e-5);
    }

    #[test]
    fn routing_agrees_with_its_definition(
        logits in vec(-4f32..4.0, 12), correction in prop::option::of(vec(-1f32..1.0, 12)),
        chosen in 1usize..4, kept in prop::option::of(1usize..4), best_two in any::<bool>(),
        sigmoid in any::<bool>(), normalised in any::<bool>(), scale in 0.5f32..3.0,
    ) {
        let rank = if best_two { GroupRank::BestTwo } else { GroupRank::Best };
        let scores = if sigmoid { RouterScores::Sigmoid } else { RouterScores::Softmax };
        let groups = kept.map(|kept| ExpertGroups { groups: 4, kept, rank });
        let routing = Routing { scores, chosen, groups, normalised, scale };
        let mut routes = Vec::new();
        route(&routing, &logits, correction.as_deref(), &mut routes);

        let exponential = |logit: &f32| f64::from(*logit).exp();
        let total: f64 = logits.iter().map(exponential).sum();
        let score = |logit| match scores {
            RouterScores::Softmax => exponential(logit) / total,
            RouterScores::Sigmoid => exponential(logit) / (1.0 + exponential(logit)),
        };
        let scores: Vec<f64> = logits.iter().map(score).collect();
        let corrected = |expert: usize| {
            scores[expert] + correction.as_ref().map_or(0.0, |c| f64::from(c[expert]))
        };
        let group_score = |group: usize| {
            let mut ranks: Vec<f64> = (0..3).map(|i| corrected(3 * group + i)).collect();
            ranks.sort_by(|a, b| b.total_cmp(a));
            ranks[..if best_two { 2 } else { 1 }].iter().sum::<f64>()
        };
        let better = |group: usize| (0..4).filter(|&g| group_score(g) > group_score(group)).count();
        let open = |expert: &usize| kept.is_none_or(|kept| better(expert / 3) < kept);
        let mut order: Vec<usize> = (0..12).filter(open).collect();
        order.sort_by(|a, b| corrected(*b).total_cmp(&corrected(*a)));
        let found: Vec<usize> = routes.iter().map(|route| route.expert).collect();
        prop_assert_eq!(&found, &order[..chosen]);
        let sum: f64 = found.iter().map(|expert| scores[*expert]).sum();
        let divisor = if normalised { sum } else { 1.0 };
        let shares: Vec<f32> = routes.iter().map(|Route { share, .. }| *share).collect();
        close(&shares, found.iter().map(|e| scores[*e] / divisor * f64::from(scale)), 1e-5);
    }

    #[test]
    fn log_softmax_agrees_with_its_definition(logits in vec(-60f32..60.0, 1..50)) {
        let mut out = vec![0.0; logits.len()];
        log_softmax(&logits, &mut out);
        let total: f64 = logits.iter().map(|x| f64::from(*x).exp()).sum();
        close(&out, logits.iter().map(|x| f64::from(*x) - total.ln()), 1e-5);
    }

    #[test]
    fn masks_forbid_exactly_the_zero_bits(
        count in 1usize..100, words in vec(any::<u32>(), 0..5),
    ) {
        let mut logits = vec![1.5; count];
        let allowed = apply_mask(&mut logits, &words);
        let is_allowed = |i: usize| words.get(i / 32).is_some_and(|word| word >> (i % 32) & 1 == 1);
        for (index, logit) in logits.iter().enumerate() {
            prop_assert_eq!(*logit, if is_allowed(index) { 1.5 } else { f32::NEG_INFINITY });
        }
        prop_assert_eq!(allowed, (0..count).filter(|&i| is_allowed(i)).count());
        prop_assert_eq!(allows_any(&words, count), allowed > 0);
    }
}

/// A long sequence is attended to in parts, by one thread or by several, to the same bits.
#[test]
fn parts_of_long_sequences_are_merged() {
    let noise: Vec<f32> = (0..9973).map(|k| (k as f32 * 0.7).sin() * 2.0).collect();
    let shape = KvShape {
        kv_heads: 2,
        key_dim: 40,
        value_dim: 40,
    };
    let sinks: Vec<f32> = (0..16).map(|head| head as f32 / 4.0 - 2.0).collect();
    for (window, sinks) in [
        (None, None),
        (Some(700), Some(&sinks[..])),
        (Some(20), None),
    ] {
        let scoring = Scoring {
            scale: 0.2,
            window,
            soft_cap: None,
            sinks,
        };
        let layout = Layout::new(&[3, 511, 512, 513, 1100, 1801], shape);
        check_plain::<f16>(&layout, 8, scoring, &noise);
        ThreadPool::new(3)
            .unwrap()
            .install(|| check_plain::<f16>(&layout, 8, scoring, &noise));
        let alone = Layout::new(&[2, 1801], shape);
        ThreadPool::new(4)
            .unwrap()
            .install(|| check_q8(&alone, 8, scoring, &noise));
    }
}

#[test]
fn nothing_likely_has_no_weight() {
    assert_eq!(log_sum_exp(&[f32::NEG_INFINITY; 3]), f32::NEG_INFINITY);
}

/// Every f16 widens as the `half` crate says.
#[test]
fn f16_widens_exactly() {
    for bits in 0..=u16::MAX {
        let number = f16::from_bits(bits);
        let (wide, expected) = (KvElement::to_f32(number), number.to_f32());
        assert!(
            wide.to_bits() == expected.to_bits() || wide.is_nan() && expected.is_nan(),
            "{bits:#x}: {wide} is not {expected}"
        );
    }
    assert_eq!(<f16 as KvElement>::from_f32(1e9), f16::MAX);
    assert_eq!(<f16 as KvElement>::from_f32(-1e9), f16::MIN);
}
