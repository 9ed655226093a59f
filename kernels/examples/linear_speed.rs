//! Speed of products with matrices of each weight type. Weights are larger than any cache.
//!
//!     cargo run --release -p mortise-kernels --example linear_speed [THREADS [ISA [TYPE]]]
//!
//! For one row of activations, bytes of weights a second, beside the rate at which the same bytes are
//! merely read; for more rows, multiply-adds a second, counted twice as is usual. Each figure is the
//! best of several runs: on a busy machine others tell how busy it was.

use std::time::Instant;

use half::f16;
use mortise_kernels::floats::{FloatMatrix, FloatType};
use mortise_kernels::isa::{Isa, isa, limit};
use mortise_kernels::linear::{Matrix, RowOrder, linear};
use mortise_kernels::pool::{self, ThreadPool};
use mortise_kernels::quant::{BlockType, PackedMatrix};

const INPUTS: usize = 4096;
/// Rows of the matrix.
const OUTPUTS: usize = 16_384;
const RUNS: usize = 7;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let threads = arguments.next().and_then(|text| text.parse().ok());
    if let Some(name) = arguments.next() {
        let named = Isa::ALL.into_iter().find(|isa| isa.name() == name);
        limit(named.expect("a name of `Isa`: portable, avx2, neon-dotprod ..."));
    }
    let only = arguments.next();
    let wanted = |name: &str| only.as_deref().is_none_or(|only| only == name);
    let available = std::thread::available_parallelism().map_or(1, usize::from);
    let pool = ThreadPool::new(threads.unwrap_or(available)).expect("start threads");
    pool.install(|| {
        println!(
            "{} threads, {}, {OUTPUTS} x {INPUTS}; read alone {:.1} GB/s",
            pool::threads(),
            isa().name(),
            read_rate()
        );
        println!(
            "{:8} {:>10} {:>12} {:>12} {:>12} {:>12}",
            "type", "1 row GB/s", "1 row GOP/s", "4 rows", "8 rows", "128 rows"
        );
        let count = INPUTS * OUTPUTS;
        let bytes = noise(count * 2);
        for kind in FloatType::ALL
            .into_iter()
            .filter(|kind| wanted(kind.name()))
        {
            let mut numbers: Vec<u8> = bytes
                .iter()
                .copied()
                .cycle()
                .take(count * kind.bytes())
                .collect();
            // With the highest byte of every number that of 0.5 or thereabouts.
            let top = if kind == FloatType::F16 { 0x38 } else { 0x3f };
            for number in numbers.chunks_exact_mut(kind.bytes()) {
                number[kind.bytes() - 1] = top;
            }
            let matrix = FloatMatrix::new(kind, &numbers, RowOrder::Plain, OUTPUTS, INPUTS);
            let matrix = matrix.expect("memory for the matrix");
            report(kind.name(), numbers.len(), Matrix::Floats(&matrix));
        }
        for kind in BlockType::ALL
            .into_iter()
            .filter(|kind| wanted(kind.name()))
        {
            let length = count / kind.weights() * kind.bytes();
            let mut blocks = bytes[..length].to_vec();
            calm(kind, &mut blocks);
            let packed = PackedMatrix::new(kind, &blocks, RowOrder::Plain, OUTPUTS, INPUTS);
            let packed = packed.expect("memory for the matrix");
            report(kind.name(), length, Matrix::Quantised(&packed));
        }
    });
}

/// Reproducible bytes.
fn noise(count: usize) -> Vec<u8> {
    let mut state = 88_172_645_463_325_252_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    std::iter::repeat_with(next).take(count).collect()
}

/// Make every half-precision scale 0.01: arithmetic with subnormal numbers would be slow.
fn calm(kind: BlockType, blocks: &mut [u8]) {
    let places: &[usize] = match kind {
        BlockType::Q4_1 | BlockType::Q5_1 | BlockType::Q4K | BlockType::Q5K => &[0, 2],
        BlockType::Q2K => &[80, 82],
        BlockType::Q3K => &[108],
        BlockType::Q6K => &[208],
        BlockType::Mxfp4 => &[],
        _ => &[0],
    };
    for block in blocks.chunks_exact_mut(kind.bytes()) {
        for &place in places {
            block[place..place + 2].copy_from_slice(&f16::from_f32(0.01).to_le_bytes());
        }
        if kind == BlockType::Mxfp4 {
            block[0] = 120;
        }
    }
}

/// Seconds of the fastest of several runs.
fn fastest(mut run: impl FnMut()) -> f64 {
    let times = (0..RUNS).map(|_| {
        let begun = Instant::now();
        run();
        begun.elapsed().as_secs_f64()
    });
    times.fold(f64::INFINITY, f64::min)
}

/// Bytes a second of a loop that only reads, in gigabytes.
fn read_rate() -> f64 {
    let words = vec![1_u64; INPUTS * OUTPUTS / 4];
    let piece = words.len() / pool::threads();
    let seconds = fastest(|| {
        pool::for_each(pool::threads(), |task| {
            let words = &words[task * piece..][..piece];
            let sums = words.chunks_exact(8).fold([0_u64; 8], |mut sums, words| {
                for (sum, word) in sums.iter_mut().zip(words) {
                    *sum = sum.wrapping_add(*word);
                }
                sums
            });
            std::hint::black_box(sums);
        });
    });
    words.len() as f64 * 8.0 / seconds / 1e9
}

fn report(name: &str, bytes: usize, matrix: Matrix<'_>) {
    let rate = |rows: usize| {
        let x: Vec<f32> = (0..rows * INPUTS).map(|k| (k % 17) as f32 - 8.0).collect();
        let mut out = vec![0.0; rows * OUTPUTS];
        fastest(|| linear(&x, matrix, None, std::hint::black_box(&mut out)))
    };
    let operations = 2.0 * (INPUTS * OUTPUTS) as f64 / 1e9;
    let (one, four, eight, many) = (rate(1), rate(4), rate(8), rate(128));
    println!(
        "{name:8} {:10.1} {:12.1} {:12.1} {:12.1} {:12.1}",
        bytes as f64 / one / 1e9,
        operations / one,
        4.0 * operations / four,
        8.0 * operations / eight,
        128.0 * operations / many,
    );
}
