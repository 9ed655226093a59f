//! Each op against its definition in double precision, on odd shapes.

use half::bf16;
use mortise_kernels::attention::{self, AttentionInput, AttentionRow, attention};
use mortise_kernels::kv_page::{BLOCK_TOKENS, KvElement, KvPages, KvShape};
use mortise_kernels::log_softmax::{log_softmax, log_sum_exp};
use mortise_kernels::mask::apply_mask;
use mortise_kernels::rms_norm::{rms_norm, rms_norm_in_place};
use mortise_kernels::rope::RopeTable;
use mortise_kernels::select::{Candidate, argmax, keep_min_p, keep_top_k, keep_top_p, top};
use mortise_kernels::silu_mul::silu_mul;
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

/// A cache of `lengths.len()` sequences whose blocks are scattered over the arena.
struct Cache<T> {
    keys: Vec<T>,
    values: Vec<T>,
    shape: KvShape,
    tables: Vec<u32>,
    firsts: Vec<usize>,
}

fn fill_cache<T: KvElement>(lengths: &[usize], shape: KvShape, noise: &[f32]) -> Cache<T> {
    let blocks: Vec<usize> = lengths
        .iter()
        .map(|length| length.div_ceil(BLOCK_TOKENS))
        .collect();
    let total: usize = blocks.iter().sum();
    // Whatever is not written must not be read.
    let empty = vec![T::from_f32(f32::NAN); (total + 1) * shape.block_len()];
    let mut cache = Cache {
        keys: empty.clone(),
        values: empty,
        shape,
        tables: Vec::new(),
        firsts: Vec::new(),
    };
    let mut pages = KvPages {
        keys: &mut cache.keys,
        values: &mut cache.values,
        shape,
    };
    let mut numbers = noise.iter().copied().cycle();
    let width = shape.kv_heads * shape.head_dim;
    for (sequence, &length) in lengths.iter().enumerate() {
        let first = cache.tables.len();
        cache.firsts.push(first);
        // From the end of the arena to its start, leaving block 0 unused.
        cache
            .tables
            .extend((0..blocks[sequence]).map(|block| (total - first - block) as u32));
        for position in 0..length {
            let key: Vec<f32> = numbers.by_ref().take(width).collect();
            let value: Vec<f32> = numbers.by_ref().take(width).collect();
            let block = cache.tables[first + position / BLOCK_TOKENS] as usize;
            pages.store(block, position % BLOCK_TOKENS, &key, &value);
        }
    }
    cache
}

fn check_attention<T: KvElement>(
    lengths: &[usize],
    kv_heads: usize,
    group: usize,
    head_dim: usize,
    noise: &[f32],
) {
    let shape = KvShape { kv_heads, head_dim };
    let cache = fill_cache::<T>(lengths, shape, noise);
    let heads = kv_heads * group;
    // Of each sequence its last token, and of the first one a chunk before that.
    let mut rows: Vec<AttentionRow> = (lengths[0] / 2..lengths[0] - 1)
        .map(|position| AttentionRow {
            first_block: 0,
            position,
        })
        .collect();
    rows.extend(
        lengths
            .iter()
            .zip(&cache.firsts)
            .map(|(length, &first_block)| AttentionRow {
                first_block,
                position: length - 1,
            }),
    );
    let stride = heads * head_dim + 3;
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
        keys: &cache.keys,
        values: &cache.values,
        shape: cache.shape,
        block_tables: &cache.tables,
        rows: &rows,
        scale: 1.0 / (head_dim as f32).sqrt(),
    };
    let width = heads * head_dim;
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

fn candidates(values: &[f32]) -> Vec<Candidate> {
    (0u32..)
        .zip(values)
        .map(|(id, &value)| Candidate { id, value })
        .collect()
}

fn sorted(values: &[f32]) -> Vec<Candidate> {
    let mut all = candidates(values);
    all.sort_by(|a, b| b.value.total_cmp(&a.value).then(a.id.cmp(&b.id)));
    all
}

fn by_id(mut kept: Vec<Candidate>) -> Vec<Candidate> {
    kept.sort_by_key(|candidate| candidate.id);
    kept
}

proptest! {
    #[test]
    fn attention_agrees_with_its_definition(
        lengths in vec(1usize..70, 1..4), kv_heads in 1usize..4, group in 1usize..7,
        head_dim in 1usize..35, noise in vec(-2f32..2.0, 997),
    ) {
        check_attention::<f32>(&lengths, kv_heads, group, head_dim, &noise);
        check_attention::<bf16>(&lengths, kv_heads, group, head_dim, &noise);
    }

    #[test]
    fn rms_norm_agrees_with_its_definition(
        width in 1usize..40, rows in 0usize..4, noise in vec(-3f32..3.0, 200),
    ) {
        let (x, weight) = (&noise[..width * rows], &noise[160..160 + width]);
        let mut out = vec![0.0; x.len()];
        rms_norm(x, weight, 1e-5, &mut out);
        close(&out, x.chunks(width).flat_map(|row| {
            let squares: f64 = row.iter().map(|x| f64::from(*x).powi(2)).sum();
            let scale = 1.0 / (squares / width as f64 + 1e-5).sqrt();
            row.iter().zip(weight).map(move |(x, w)| f64::from(*x) * scale * f64::from(*w))
        }), 1e-5);
        let mut in_place = x.to_vec();
        rms_norm_in_place(&mut in_place, weight, 1e-5);
        prop_assert_eq!(in_place, out);
    }

    #[test]
    fn silu_mul_agrees_with_its_definition(width in 1usize..20, noise in vec(-90f32..90.0, 80)) {
        let rows = noise.len() / (2 * width);
        let x = &noise[..rows * 2 * width];
        let mut out = vec![0.0; rows * width];
        silu_mul(x, width, &mut out);
        close(&out, x.chunks(2 * width).flat_map(|row| (0..width).map(move |i| {
            let gate = f64::from(row[i]);
            gate / (1.0 + (-gate).exp()) * f64::from(row[width + i])
        })), 1e-5);
    }

    #[test]
    fn rope_turns_halves(half in 1usize..9, heads in 1usize..4, position in 0u32..5000) {
        let frequencies: Vec<f32> = (0..half).map(|i| 0.7f32.powi(i as i32 + 1)).collect();
        let stride = heads * 2 * half + 1;
        let mut x: Vec<f32> = (0..2 * stride).map(|i| (i as f32 * 0.37).sin()).collect();
        let before = x.clone();
        RopeTable::new(&[position, 0], &frequencies).apply(&mut x, stride, heads);
        prop_assert_eq!(&x[stride..], &before[stride..], "position 0 does not turn");
        prop_assert_eq!(x[stride - 1], before[stride - 1], "what follows the heads stays");
        for head in 0..heads {
            let expected = (0..2 * half).map(|i| {
                let angle = f64::from(position as f32 * frequencies[i % half]);
                let at = |i: usize| f64::from(before[head * 2 * half + i]);
                if i < half {
                    at(i) * angle.cos() - at(i + half) * angle.sin()
                } else {
                    at(i) * angle.cos() + at(i - half) * angle.sin()
                }
            });
            close(&x[head * 2 * half..][..2 * half], expected, 1e-5);
        }
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
    }

    #[test]
    fn selection_agrees_with_sorting(
        values in vec((0u8..40).prop_map(|v| f32::from(v) / 40.0), 1..80),
        k in 0usize..90, p in 0.01f32..1.0,
    ) {
        let order = sorted(&values);
        prop_assert_eq!(top(&values, k), order[..k.min(values.len())].to_vec());

        let mut kept = candidates(&values);
        keep_top_k(&mut kept, k);
        prop_assert_eq!(by_id(kept), by_id(order[..k.min(values.len())].to_vec()));

        let total: f64 = values.iter().map(|v| f64::from(*v)).sum();
        let mut mass = 0.0;
        let needed = order.iter().position(|candidate| {
            mass += f64::from(candidate.value);
            mass >= total * f64::from(p)
        });
        let mut kept = candidates(&values);
        keep_top_p(&mut kept, p);
        prop_assert_eq!(by_id(kept), by_id(order[..=needed.unwrap_or(values.len() - 1)].to_vec()));

        let mut kept = candidates(&values);
        keep_min_p(&mut kept, p);
        let limit = p * order[0].value;
        let expected = candidates(&values).into_iter().filter(|c| c.value >= limit);
        prop_assert_eq!(kept, expected.collect::<Vec<_>>());

        prop_assert_eq!(argmax(&values), Some(order[0].id as usize));
    }
}

#[test]
fn nothing_likely_gives_no_maximum() {
    assert_eq!(argmax(&[f32::NEG_INFINITY, f32::NAN]), None);
    assert_eq!(log_sum_exp(&[f32::NEG_INFINITY; 3]), f32::NEG_INFINITY);
}
