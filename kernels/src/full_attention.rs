//! Attention of every token of a text to every other, before and behind: that of encoders.

use crate::exp::exp;

/// Texts one after the other: rows of `qkv` have `heads * head_dim` queries, as many keys and as many
/// values; rows of `out` the outputs of all heads. Scores are divided by the root of `head_dim`.
///
/// # Panics
/// If the rows of all `lengths` together are not those of `qkv` and `out`.
pub fn full_attention(
    qkv: &[f32],
    lengths: &[usize],
    heads: usize,
    head_dim: usize,
    out: &mut [f32],
) {
    let width = heads * head_dim;
    let rows: usize = lengths.iter().sum();
    assert!(width > 0 && qkv.len() == rows * 3 * width && out.len() == rows * width);
    // The first row of the text that each row is of, and its length.
    let mut texts = Vec::with_capacity(rows);
    for &length in lengths {
        texts.extend(std::iter::repeat_n((texts.len(), length), length));
    }
    crate::pool::for_each_piece(out, width, |row, out| {
        let (first, length) = texts[row];
        let part = |row: usize, kind: usize, head: usize| {
            &qkv[row * 3 * width + kind * width + head * head_dim..][..head_dim]
        };
        let mut scores = vec![0.0; length];
        for (head, out) in out.chunks_exact_mut(head_dim).enumerate() {
            attend(
                part(row, 0, head),
                |other| part(first + other, 1, head),
                |other| part(first + other, 2, head),
                &mut scores,
                out,
            );
        }
    });
}

/// One query against all keys.
fn attend<'a>(
    query: &[f32],
    key: impl Fn(usize) -> &'a [f32],
    value: impl Fn(usize) -> &'a [f32],
    scores: &mut [f32],
    out: &mut [f32],
) {
    let scale = 1.0 / (query.len() as f32).sqrt();
    let mut largest = f32::NEG_INFINITY;
    for (row, score) in scores.iter_mut().enumerate() {
        let products = query.iter().zip(key(row)).map(|(query, key)| query * key);
        *score = products.sum::<f32>() * scale;
        largest = largest.max(*score);
    }
    let mut total = 0.0;
    for score in scores.iter_mut() {
        *score = exp(*score - largest);
        total += *score;
    }
    out.fill(0.0);
    for (row, score) in scores.iter().enumerate() {
        let share = score / total;
        for (out, value) in out.iter_mut().zip(value(row)) {
            *out += share * value;
        }
    }
}
