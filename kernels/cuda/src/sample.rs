//! Sampling on the device: rows of logits to tokens, with the same bits as the sampler of the host.
//!
//! The kernel is in `sample.cu`. Transfers are small: parameters, masks and adjustments to the device,
//! [`SAMPLED_WORDS`] words a row back.

use std::sync::Arc;

use zerocopy::{Immutable, IntoBytes};

use crate::buffer::Slice;
use crate::device::{Address, Device, DeviceError, Launch};

/// Most top logprobs of a row.
pub const REPORTED_MAX: usize = 20;
/// Words of a [`SampledToken`] on the device.
pub const SAMPLED_WORDS: usize = 46;
/// Words of [`SampleParams`] and of an [`Adjustment`] on the device.
const PARAMS_WORDS: usize = 12;
const ADJUSTMENT_WORDS: usize = 4;
/// Unit of `top_p` on the device: 2^-32.
const SHARES: f64 = (1u64 << 32) as f64;
/// Shared memory of a block: `Shared` of the kernel.
const SHARED_BYTES: u32 = 12_696;

/// Bias and penalties of one token. The bias is added to its logit; the sum is divided by `repetition`
/// if it is positive and multiplied by it otherwise; `penalty` is subtracted.
#[derive(Debug, Clone, Copy, PartialEq, IntoBytes, Immutable)]
#[repr(C)]
pub struct Adjustment {
    /// The token.
    pub token: u32,
    /// Logit bias; 0 is none.
    pub bias: f32,
    /// Repetition penalty; 1 is none.
    pub repetition: f32,
    /// Sum of frequency and presence penalty; 0 is none.
    pub penalty: f32,
}

impl Adjustment {
    /// The adjusted logit.
    pub fn apply(&self, logit: f32) -> f32 {
        let biased = logit + self.bias;
        let repeated = if biased > 0.0 {
            biased / self.repetition
        } else {
            biased * self.repetition
        };
        repeated - self.penalty
    }
}

/// Sampling parameters of one row, applied in this order: adjustments, logprobs, mask, temperature,
/// top-k, min-p, top-p.
#[derive(Debug, Clone, PartialEq)]
pub struct SampleParams {
    /// Row of logits. No two samples of a batch use the same row: adjustments are made in place.
    pub row: usize,
    /// Adjustments of distinct tokens below the vocabulary size.
    pub adjustments: Vec<Adjustment>,
    /// Token mask: bit `i % 32` of word `i / 32` is 1 where token `i` is allowed. Tokens beyond the mask
    /// are not allowed; `None` allows all. Masks of one batch have equally many words.
    pub mask: Option<Arc<Vec<u32>>>,
    /// Temperature, not negative. 0 is greedy; of equal logits the lowest token is taken.
    pub temperature: f32,
    /// Number of candidates; 0 is all.
    pub top_k: u32,
    /// Least probability relative to the most likely token, 0 to 1.
    pub min_p: f32,
    /// Cumulative probability of the candidates, 0 to 1; 1 is all.
    pub top_p: f32,
    /// Random number of the draw, as a fraction of 2^64.
    pub random: u64,
    /// Number of top logprobs, at most [`REPORTED_MAX`]; `None` computes no logprobs.
    pub reported: Option<usize>,
}

/// Result of sampling a row.
#[derive(Debug, Clone, PartialEq)]
pub struct SampledToken {
    /// The token and its adjusted logit.
    pub token: Result<(u32, f32), SampleError>,
    /// Logprobs, if they were asked for.
    pub report: Option<LogprobReport>,
}

/// Logprobs of a row, after adjustments and before the mask.
#[derive(Debug, Clone, PartialEq)]
pub struct LogprobReport {
    /// Highest logit.
    pub highest: f32,
    /// Sum of the weights `exp(logit - highest)`, in units of 2^-40.
    pub weights: u64,
    /// Most likely tokens with their logits, highest first, equals by token; fewer than asked for where
    /// there are no more.
    pub likeliest: Vec<(u32, f32)>,
}

/// Reason why a row gives no token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SampleError {
    /// A logit is NaN or infinity.
    NotNumbers,
    /// Every token that the mask allows has probability 0.
    Impossible,
}

/// Parameters, adjustments and masks of a batch in one buffer, as the device reads them.
#[derive(Debug, Default)]
pub struct SampleBatch {
    words: Vec<u32>,
    samples: usize,
    rows: usize,
    adjustments_at: usize,
    masks_at: usize,
    masks: usize,
    mask_words: usize,
}

#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct DeviceParams {
    random: u64,
    top_p: u64,
    temperature: f32,
    min_p: f32,
    top_k: u32,
    row: i32,
    first_adjustment: i32,
    adjustments: i32,
    mask: i32,
    reported: i32,
}

impl SampleBatch {
    /// Encode the parameters of all rows that are sampled.
    pub fn new(params: &[SampleParams], vocabulary: usize) -> Self {
        let all = params.iter().flat_map(|row| &row.adjustments);
        assert!(all.clone().all(|one| (one.token as usize) < vocabulary));
        let adjustments_at = params.len() * PARAMS_WORDS;
        let masks_at = adjustments_at + all.clone().count() * ADJUSTMENT_WORDS;
        let masks = || params.iter().filter_map(|row| row.mask.as_ref());
        let mask_words = masks().next().map_or(0, |mask| mask.len());
        assert!(masks().all(|mask| mask.len() == mask_words));
        let mut batch = Self {
            words: Vec::with_capacity(masks_at + masks().count() * mask_words),
            samples: params.len(),
            rows: params.iter().map(|row| row.row + 1).max().unwrap_or(0),
            adjustments_at,
            masks_at,
            masks: masks().count(),
            mask_words,
        };
        let (mut adjustments, mut masked) = (0, 0);
        for params in params {
            assert!(params.reported.is_none_or(|count| count <= REPORTED_MAX));
            let own = DeviceParams {
                random: params.random,
                top_p: (f64::from(params.top_p.clamp(0.0, 1.0)) * SHARES) as u64,
                temperature: params.temperature,
                // Compared by its bits: no negative zero.
                min_p: params.min_p.abs(),
                top_k: params.top_k,
                row: params.row as i32,
                first_adjustment: adjustments,
                adjustments: params.adjustments.len() as i32,
                mask: params.mask.as_ref().map_or(-1, |_| masked),
                reported: params.reported.map_or(-1, |count| count as i32),
            };
            adjustments += own.adjustments;
            masked += i32::from(params.mask.is_some());
            batch.add(own.as_bytes());
        }
        for adjustment in all {
            batch.add(adjustment.as_bytes());
        }
        for mask in masks() {
            batch.words.extend(mask.iter());
        }
        batch
    }

    fn add(&mut self, bytes: &[u8]) {
        let (words, _) = bytes.as_chunks::<4>();
        self.words
            .extend(words.iter().map(|word| u32::from_ne_bytes(*word)));
    }

    /// Words to copy to the device.
    pub fn words(&self) -> &[u32] {
        &self.words
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.samples
    }

    /// Whether there is nothing to sample.
    pub fn is_empty(&self) -> bool {
        self.samples == 0
    }
}

#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct SampleRowsParams {
    logits: Address,
    params: Address,
    adjustments: Address,
    masks: Address,
    sampled: Address,
    vocabulary: i32,
    words: i32,
}

/// Sample rows of `vocabulary` logits, which are overwritten. `copied` begins with the words of
/// `batch`; `sampled` has [`SAMPLED_WORDS`] for each of its samples. Both are aligned to 8 bytes.
#[allow(unsafe_code, reason = "shapes are checked first")]
pub fn sample(
    device: &dyn Device,
    logits: Slice<'_, f32>,
    vocabulary: usize,
    batch: &SampleBatch,
    copied: Slice<'_, u32>,
    sampled: Slice<'_, u32>,
) -> Result<(), DeviceError> {
    assert!(vocabulary > 0 && logits.len() >= batch.rows * vocabulary);
    assert!(copied.len() >= batch.words.len());
    assert!(sampled.len() >= batch.samples * SAMPLED_WORDS);
    assert!((copied.address().0 | sampled.address().0).is_multiple_of(8));
    if batch.is_empty() {
        return Ok(());
    }
    let at = |word: usize| Address(copied.address().0 + 4 * word as u64);
    let params = SampleRowsParams {
        logits: logits.address(),
        params: at(0),
        adjustments: at(batch.adjustments_at),
        masks: match batch.masks {
            0 => Address::NULL,
            _ => at(batch.masks_at),
        },
        sampled: sampled.address(),
        vocabulary: vocabulary as i32,
        words: batch.mask_words as i32,
    };
    // Sums are of integers: the number of threads does not change the result.
    let warps = vocabulary.div_ceil(128).clamp(1, 32);
    let launch = Launch {
        kernel: "sample_rows",
        grid: [batch.samples as u32, 1, 1],
        threads: 32 * warps as u32,
        shared: SHARED_BYTES,
        params: params.as_bytes(),
    };
    // SAFETY: rows, adjusted tokens, masks and the size of the output were checked.
    unsafe { device.launch(&launch) }
}

#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct TakeParams {
    sampled: Address,
    sources: Address,
    tokens: Address,
    rows: i32,
    padding: u32,
}

/// Copy tokens that were sampled last into the `tokens` of a batch. `sources` has, for each row, the
/// number of a sample that was made, or a negative number for a row that keeps its token.
#[allow(unsafe_code, reason = "shapes are checked first")]
pub fn take_tokens(
    device: &dyn Device,
    sampled: Slice<'_, u32>,
    sources: Slice<'_, i32>,
    tokens: Slice<'_, i32>,
    rows: usize,
) -> Result<(), DeviceError> {
    assert!(sources.len() >= rows && tokens.len() >= rows);
    if rows == 0 {
        return Ok(());
    }
    let params = TakeParams {
        sampled: sampled.address(),
        sources: sources.address(),
        tokens: tokens.address(),
        rows: rows as i32,
        padding: 0,
    };
    let launch = Launch {
        kernel: "take_tokens",
        grid: [rows.div_ceil(128) as u32, 1, 1],
        threads: 128,
        shared: 0,
        params: params.as_bytes(),
    };
    // SAFETY: the lengths of sources and tokens were checked; the caller vouches for the values of the
    // sources, as for all that places rows.
    unsafe { device.launch(&launch) }
}

impl SampledToken {
    /// Decode the words that the device wrote for these parameters.
    pub fn read(words: &[u32; SAMPLED_WORDS], params: &SampleParams) -> Self {
        let [low, high, highest, logit, token, _, rest @ ..] = words;
        let token = match *token as i32 {
            -2 => Err(SampleError::NotNumbers),
            -1 => Err(SampleError::Impossible),
            _ => Ok((*token, f32::from_bits(*logit))),
        };
        let report = params.reported.filter(|_| token.is_ok()).map(|count| {
            let (tokens, logits) = rest.split_at(REPORTED_MAX);
            let likeliest = tokens.iter().zip(logits).take(count);
            LogprobReport {
                highest: f32::from_bits(*highest),
                weights: (u64::from(*high) << 32) | u64::from(*low),
                likeliest: likeliest
                    .filter(|(token, _)| **token as i32 >= 0)
                    .map(|(token, logit)| (*token, f32::from_bits(*logit)))
                    .collect(),
            }
        });
        Self { token, report }
    }
}
