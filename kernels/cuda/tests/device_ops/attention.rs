//! Attention and what goes before it, against their definitions in double precision.

use std::sync::Arc;

use half::{bf16, f16};
use mortise_cuda::attention::{
    BLOCK_TOKENS, BatchPlaces, FinishQkv, Heads, KvBlocks, KvNumbers, Rope, Scoring, Splits,
    TILE_ROWS, decode, finish_qkv, prefill,
};
use mortise_cuda::linear::Rows;
use mortise_cuda::{Buffer, Device};
use proptest::prelude::*;

use crate::{check_close, devices, numbers};

/// Tokens of a sequence: those computed before, and the rows computed in the tested batch.
#[derive(Debug, Clone, Copy)]
struct Span {
    before: usize,
    rows: usize,
}

#[derive(Debug, Clone)]
struct Case {
    heads: Heads,
    numbers: KvNumbers,
    spans: Vec<Span>,
    window: Option<usize>,
    soft_cap: Option<f32>,
    sinks: bool,
    rope: Option<(usize, bool)>,
    norms: bool,
    /// Padding rows at the end, which belong to no sequence.
    padding: usize,
}

impl Case {
    fn width(&self) -> usize {
        (self.heads.heads + 2 * self.heads.kv_heads) * self.heads.dim
    }

    /// Tokens of the longest sequence.
    fn tokens(&self) -> usize {
        let tokens = self.spans.iter().map(|span| span.before + span.rows);
        tokens.max().unwrap_or(0)
    }
}

/// A head of keys or values as the cache has it.
fn stored(numbers: KvNumbers, head: Vec<f64>) -> Vec<f64> {
    let each = |function: fn(f32) -> f64| head.iter().map(|x| function(*x as f32)).collect();
    match numbers {
        KvNumbers::F32 => each(f64::from),
        KvNumbers::F16 => each(|x| f16::from_f32(x).to_f64()),
        KvNumbers::Bf16 => each(|x| bf16::from_f32(x).to_f64()),
        KvNumbers::Q8_0 => head.chunks(32).flat_map(in_eight_bits).collect(),
    }
}

/// Numbers rounded to whole multiples of a scale in f16, of which the largest is 127 at most.
fn in_eight_bits(numbers: &[f64]) -> Vec<f64> {
    let largest = numbers.iter().fold(0f64, |most, x| most.max(x.abs()));
    let nearest = f16::from_f64(largest / 127.0);
    let scale = match nearest.to_f64() * 127.0 < largest {
        true => f16::from_bits(nearest.to_bits() + 1).to_f64(),
        false => nearest.to_f64(),
    };
    let steps = |x: &f64| {
        if scale == 0.0 {
            0.0
        } else {
            (x / scale).round()
        }
    };
    numbers.iter().map(|x| steps(x) * scale).collect()
}

const EPSILON: f32 = 1e-5;
const THETA: f64 = 100.0;

fn angle(turned: usize, position: usize, pair: usize) -> f64 {
    position as f64 * THETA.powf(-2.0 * pair as f64 / turned as f64)
}

/// A head of queries or keys, finished.
fn finished(case: &Case, head: &[f32], norm: &[f32], position: usize) -> Vec<f64> {
    let mut head: Vec<f64> = head.iter().map(|x| f64::from(*x)).collect();
    if case.norms {
        let mean = head.iter().map(|x| x * x).sum::<f64>() / head.len() as f64;
        let factor = 1.0 / (mean + f64::from(EPSILON)).sqrt();
        for (x, w) in head.iter_mut().zip(norm) {
            *x *= factor * f64::from(*w);
        }
    }
    if let Some((turned, neighbours)) = case.rope {
        for pair in 0..turned / 2 {
            let (low, high) = match neighbours {
                true => (2 * pair, 2 * pair + 1),
                false => (pair, pair + turned / 2),
            };
            let (sin, cos) = angle(turned, position, pair).sin_cos();
            let (a, b) = (head[low], head[high]);
            head[low] = a * cos - b * sin;
            head[high] = b * cos + a * sin;
        }
    }
    head
}

/// Attention by definition: of each row of every span, all tokens of which come from `rows`, the
/// rows of queries, keys and values of one sequence after the other.
fn expected(case: &Case, rows: &[f32], norms: [&[f32]; 2], sinks: &[f32]) -> Vec<f64> {
    let Heads {
        heads,
        kv_heads,
        dim,
    } = case.heads;
    let width = case.width();
    let scale = 1.0 / (dim as f64).sqrt();
    let mut out = Vec::new();
    let mut first_row = 0;
    for span in &case.spans {
        let tokens = span.before + span.rows;
        let row = |token: usize| &rows[(first_row + token) * width..][..width];
        let key = |token: usize, kv_head: usize| -> Vec<f64> {
            let head = &row(token)[(heads + kv_head) * dim..][..dim];
            stored(case.numbers, finished(case, head, norms[1], token))
        };
        let value = |token: usize, kv_head: usize| -> Vec<f64> {
            let head = &row(token)[(heads + kv_heads + kv_head) * dim..][..dim];
            stored(case.numbers, head.iter().map(|x| f64::from(*x)).collect())
        };
        for position in span.before..tokens {
            let first = case
                .window
                .map_or(0, |window| (position + 1).saturating_sub(window));
            for (head, sink) in sinks.iter().enumerate().take(heads) {
                let kv_head = head / (heads / kv_heads);
                let query = finished(
                    case,
                    &row(position)[head * dim..][..dim],
                    norms[0],
                    position,
                );
                let scores: Vec<f64> = (first..=position)
                    .map(|token| {
                        let key = key(token, kv_head);
                        let score = scale * query.iter().zip(key).map(|(q, k)| q * k).sum::<f64>();
                        case.soft_cap.map_or(score, |cap| {
                            f64::from(cap) * (score / f64::from(cap)).tanh()
                        })
                    })
                    .collect();
                let sink = case.sinks.then(|| f64::from(*sink));
                let most = scores.iter().copied().chain(sink).fold(f64::MIN, f64::max);
                let total: f64 = scores
                    .iter()
                    .copied()
                    .chain(sink)
                    .map(|s| (s - most).exp())
                    .sum();
                let values: Vec<Vec<f64>> = (first..=position).map(|t| value(t, kv_head)).collect();
                for d in 0..dim {
                    let weighted = values.iter().zip(&scores);
                    let weighted = weighted.map(|(value, score)| (score - most).exp() * value[d]);
                    out.push(weighted.sum::<f64>() / total);
                }
            }
        }
        first_row += tokens;
    }
    out
}

/// Compute on the device in two batches: what was before, then the rest.
struct Run<'a> {
    device: &'a Arc<dyn Device>,
    case: &'a Case,
    cache: KvBlocks,
    splits: Splits,
    blocks: usize,
}

impl Run<'_> {
    /// Blocks of a sequence, interleaved so that neighbours belong to others.
    fn block(&self, sequence: usize, index: usize) -> i32 {
        (index * self.case.spans.len() + sequence) as i32
    }

    fn batch(
        &self,
        parts: &[(usize, std::ops::Range<usize>)],
        rows: &[f32],
        norms: [&Buffer<f32>; 2],
        sinks: &Buffer<f32>,
        tiled: bool,
    ) -> Vec<f32> {
        let case = self.case;
        let (width, device) = (case.width(), self.device);
        let firsts: Vec<usize> = case
            .spans
            .iter()
            .scan(0, |first, span| {
                let this = *first;
                *first += span.before + span.rows;
                Some(this)
            })
            .collect();
        let (mut qkv, mut positions, mut slots, mut tables) = (vec![], vec![], vec![], vec![]);
        let mut tiles = Vec::new();
        for (sequence, range) in parts {
            for from in range.clone().step_by(TILE_ROWS) {
                tiles.extend([
                    (positions.len() + from - range.start) as i32,
                    TILE_ROWS.min(range.end - from) as i32,
                ]);
            }
            for position in range.clone() {
                qkv.extend_from_slice(&rows[(firsts[*sequence] + position) * width..][..width]);
                let block = self.block(*sequence, position / BLOCK_TOKENS);
                positions.push(position as i32);
                slots.push(block * BLOCK_TOKENS as i32 + (position % BLOCK_TOKENS) as i32);
                tables.push((sequence * self.blocks) as i32);
            }
        }
        let real = positions.len();
        let padding = if tiled { 0 } else { case.padding };
        qkv.resize((real + padding) * width, 0.5);
        positions.resize(real + padding, -1);
        slots.resize(real + padding, -1);
        tables.resize(real + padding, 0);
        let blocks: Vec<i32> = (0..case.spans.len())
            .flat_map(|sequence| (0..self.blocks).map(move |index| (sequence, index)))
            .map(|(sequence, index)| self.block(sequence, index))
            .collect();
        let [positions, slots, tables, blocks, tiles] =
            [positions, slots, tables, blocks, tiles].map(|n| Buffer::of(device, &n).unwrap());
        let qkv = Buffer::of(device, &qkv).unwrap();
        let places = BatchPlaces {
            positions: positions.all(),
            slots: slots.all(),
            tables: tables.all(),
            blocks: blocks.all(),
        };
        let queries = Rows {
            slice: qkv.all(),
            stride: width,
            count: real + padding,
        };
        let angles = |function: fn(f64) -> f64| -> Vec<f32> {
            let turned = case.rope.map_or(2, |rope| rope.0);
            (0..case.tokens())
                .flat_map(|p| {
                    (0..turned / 2).map(move |pair| function(angle(turned, p, pair)) as f32)
                })
                .collect()
        };
        let cosines = Buffer::of(device, &angles(f64::cos)).unwrap();
        let sines = Buffer::of(device, &angles(f64::sin)).unwrap();
        let finish = FinishQkv {
            norms: case.norms.then(|| norms.map(Buffer::all)),
            epsilon: EPSILON,
            rope: case.rope.map(|(turned, neighbours)| Rope {
                cosines: cosines.all(),
                sines: sines.all(),
                turned,
                neighbours,
            }),
        };
        finish_qkv(&**device, &finish, queries, &places, &self.cache).unwrap();
        let Heads { heads, dim, .. } = case.heads;
        let out = Buffer::zeros(device, (real + padding) * heads * dim).unwrap();
        let scoring = Scoring {
            scale: 1.0 / (dim as f32).sqrt(),
            window: case.window,
            soft_cap: case.soft_cap,
            sinks: case.sinks.then(|| sinks.all()),
        };
        if tiled {
            let tiles = (tiles.all(), tiles.len() / 2);
            prefill(
                &**device,
                &scoring,
                queries,
                &places,
                &self.cache,
                tiles,
                out.all(),
            )
            .unwrap();
        } else {
            let splits = (&self.splits, self.splits.needed(case.tokens()));
            decode(
                &**device,
                &scoring,
                queries,
                &places,
                &self.cache,
                splits,
                out.all(),
            )
            .unwrap();
        }
        let mut out = out.to_vec().unwrap();
        out.truncate(real * heads * dim);
        out
    }
}

fn check(case: &Case) {
    let tokens: usize = case.spans.iter().map(|span| span.before + span.rows).sum();
    let rows = numbers(21, tokens * case.width());
    let norms = [numbers(22, case.heads.dim), numbers(23, case.heads.dim)];
    let sinks = numbers(24, case.heads.heads);
    let exact = expected(case, &rows, [&norms[0], &norms[1]], &sinks);
    for device in devices() {
        let blocks = case.tokens().div_ceil(BLOCK_TOKENS);
        let batch = case
            .spans
            .iter()
            .map(|span| span.rows.max(span.before))
            .sum::<usize>();
        let all = blocks * case.spans.len();
        let run = Run {
            device: &device,
            case,
            cache: KvBlocks::new(&device, all, case.heads, case.numbers).unwrap(),
            splits: Splits::new(&device, case.heads, batch + case.padding, case.tokens()).unwrap(),
            blocks,
        };
        let norms = norms
            .clone()
            .map(|norm| Buffer::of(&device, &norm).unwrap());
        let (norms, sinks) = ([&norms[0], &norms[1]], Buffer::of(&device, &sinks).unwrap());
        let spans = || case.spans.iter().enumerate();
        let before: Vec<_> = spans()
            .filter(|(_, span)| span.before > 0)
            .map(|(i, span)| (i, 0..span.before))
            .collect();
        let now: Vec<_> = spans()
            .map(|(i, span)| (i, span.before..span.before + span.rows))
            .collect();
        run.batch(&before, &rows, norms, &sinks, true);
        for tiled in [true, false] {
            let found = run.batch(&now, &rows, norms, &sinks, tiled);
            let what = format!("{case:?}, tiled: {tiled}, on {}", device.name());
            // Keys that are rounded may fall to the other side of a half; tensor cores round queries and
            // weights too.
            let tolerance = match (case.numbers, tiled) {
                (KvNumbers::F32, _) => 2e-5,
                (KvNumbers::F16, false) => 2e-3,
                (KvNumbers::F16, true) => 3e-3,
                (KvNumbers::Bf16, true) => 2e-2,
                (KvNumbers::Bf16 | KvNumbers::Q8_0, _) => 1e-2,
            };
            check_close(&what, &found, &exact, tolerance);
        }
    }
}

fn plain(heads: Heads, spans: Vec<Span>) -> Case {
    Case {
        heads,
        numbers: KvNumbers::F32,
        spans,
        window: None,
        soft_cap: None,
        sinks: false,
        rope: None,
        norms: false,
        padding: 0,
    }
}

/// Sequences with more tokens than one split, so that splits are merged; and padding rows.
#[test]
fn long_sequences_are_split_and_merged() {
    let heads = Heads {
        heads: 6,
        kv_heads: 2,
        dim: 8,
    };
    let spans = vec![
        Span {
            before: 300,
            rows: 1,
        },
        Span {
            before: 127,
            rows: 1,
        },
        Span {
            before: 128,
            rows: 2,
        },
    ];
    let case = Case {
        padding: 2,
        ..plain(heads, spans)
    };
    check(&case);
    check(&Case {
        sinks: true,
        soft_cap: Some(2.0),
        window: Some(140),
        numbers: KvNumbers::Bf16,
        ..case.clone()
    });
    // Two groups of numbers that share a scale, the second not whole.
    check(&Case {
        heads: Heads { dim: 45, ..heads },
        numbers: KvNumbers::Q8_0,
        ..case
    });
}

/// More rows than one tile has, heads of each size that is compiled, windows that end within a tile.
#[test]
fn long_parts_are_tiled() {
    for (dim, numbers) in [
        (24, KvNumbers::F32),
        (64, KvNumbers::F16),
        (70, KvNumbers::Q8_0),
        (96, KvNumbers::Bf16),
        (136, KvNumbers::F16),
    ] {
        let heads = Heads {
            heads: 2,
            kv_heads: 1,
            dim,
        };
        let before = |before, rows| Span { before, rows };
        let spans = vec![before(0, 90), before(37, 66)];
        for window in [None, Some(41)] {
            check(&Case {
                numbers,
                window,
                sinks: true,
                ..plain(heads, spans.clone())
            });
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn attention_is_that_of_double_precision(
        (kv_heads, group) in (1usize..3, 1usize..6),
        dim in 1usize..24,
        spans in prop::collection::vec((0usize..40, 1usize..20), 1..3),
        window in prop::option::of(1usize..50),
        soft_cap in prop::option::of(0.5f32..20.0),
        sinks in any::<bool>(),
        rope in prop::option::of((0usize..12, any::<bool>())),
        norms in any::<bool>(),
        numbers in prop::sample::select(vec![
            KvNumbers::F32, KvNumbers::F16, KvNumbers::Bf16, KvNumbers::Q8_0,
        ]),
        padding in 0usize..2,
    ) {
        let rope = rope.map(|(half, neighbours)| (2 * half.min(dim / 2), neighbours));
        let spans = spans.into_iter().map(|(before, rows)| Span { before, rows }).collect();
        check(&Case {
            heads: Heads { heads: kv_heads * group, kv_heads, dim },
            numbers,
            spans,
            window,
            soft_cap,
            sinks,
            rope,
            norms,
            padding,
        });
    }
}
