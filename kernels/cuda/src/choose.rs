//! From rows of logits to tokens by the rules of the host's sampler, to the bit: `choose.cu` says how.
//! What crosses the bus is some bytes of parameters a row, masks and adjustments where there are any,
//! and [`CHOSEN_WORDS`] words that come back.

use std::sync::Arc;

use zerocopy::{Immutable, IntoBytes};

use crate::buffer::Slice;
use crate::device::{Address, Device, DeviceError, Launch};

/// Likeliest tokens that can be reported of a row.
pub const REPORTED_MAX: usize = 20;
/// Words of what comes back of a choice.
pub const CHOSEN_WORDS: usize = 46;
/// Words of a [`Choice`] and of an [`Adjustment`] on the device.
const CHOICE_WORDS: usize = 12;
const ADJUSTMENT_WORDS: usize = 4;
/// `top_p` is counted in this part of the whole.
const SHARES: f64 = (1u64 << 32) as f64;
/// What a block shares: `Shared` of the kernel.
const SHARED_BYTES: u32 = 12_696;

/// What is done to the logit of a token before all else: the bias is added, what is above 0 is then
/// divided and what is not multiplied by `repetition`, and the penalty is subtracted.
#[derive(Debug, Clone, Copy, PartialEq, IntoBytes, Immutable)]
#[repr(C)]
pub struct Adjustment {
    /// The token.
    pub token: u32,
    /// Added first; 0 changes nothing.
    pub bias: f32,
    /// Factor towards improbable; 1 changes nothing.
    pub repetition: f32,
    /// Subtracted last; 0 changes nothing.
    pub penalty: f32,
}

impl Adjustment {
    /// The logit, adjusted.
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

/// How a token is chosen from a row of logits. In this order: adjustments, report, mask, temperature,
/// top-k, min-p, top-p.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// Which row. No two choices are of one row, since logits are adjusted where they lie.
    pub row: usize,
    /// Of tokens that are below the vocabulary and differ.
    pub adjustments: Vec<Adjustment>,
    /// Bit `i % 32` of word `i / 32` is 1 where token `i` may be chosen, those beyond may not; `None`
    /// is all tokens. Masks of one call have equally many words.
    pub mask: Option<Arc<Vec<u32>>>,
    /// 0 takes the highest, the lowest token of such. Not below 0.
    pub temperature: f32,
    /// Keep so many; 0 keeps all.
    pub top_k: u32,
    /// Keep what weighs at least this part of the heaviest, 0 to 1.
    pub min_p: f32,
    /// Keep the fewest of the heaviest that have this part of all weight, 0 to 1; 1 keeps all.
    pub top_p: f32,
    /// Where the draw falls, of 2^64.
    pub random: u64,
    /// How many of the likeliest to report, at most [`REPORTED_MAX`]; `None` reports nothing.
    pub reported: Option<usize>,
}

/// What was chosen.
#[derive(Debug, Clone, PartialEq)]
pub struct Chosen {
    /// The token, and its logit after adjustments.
    pub token: Result<(u32, f32), NoChoice>,
    /// Present where it was asked for.
    pub report: Option<Report>,
}

/// What is reported of a row, after adjustments and before the mask.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// The highest logit.
    pub highest: f32,
    /// Sum of the weights `exp(logit - highest)`, in units of 2^-40.
    pub weights: u64,
    /// The likeliest tokens with their logits, highest first, equals by token; fewer than asked for
    /// where there are no more.
    pub likeliest: Vec<(u32, f32)>,
}

/// Why there is no token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoChoice {
    /// A logit is NaN or infinity.
    NotNumbers,
    /// Every token that the mask allows has probability 0.
    Impossible,
}

/// Choices as the device reads them, in one piece.
#[derive(Debug, Default)]
pub struct Requests {
    words: Vec<u32>,
    choices: usize,
    rows: usize,
    adjustments_at: usize,
    masks_at: usize,
    masks: usize,
    mask_words: usize,
}

#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct DeviceChoice {
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

impl Requests {
    /// Lay choices out for a vocabulary of so many tokens.
    pub fn new(choices: &[Choice], vocabulary: usize) -> Self {
        let all = choices.iter().flat_map(|choice| &choice.adjustments);
        assert!(all.clone().all(|one| (one.token as usize) < vocabulary));
        let adjustments_at = choices.len() * CHOICE_WORDS;
        let masks_at = adjustments_at + all.clone().count() * ADJUSTMENT_WORDS;
        let masks = || choices.iter().filter_map(|choice| choice.mask.as_ref());
        let mask_words = masks().next().map_or(0, |mask| mask.len());
        assert!(masks().all(|mask| mask.len() == mask_words));
        let mut requests = Self {
            words: Vec::with_capacity(masks_at + masks().count() * mask_words),
            choices: choices.len(),
            rows: choices.iter().map(|one| one.row + 1).max().unwrap_or(0),
            adjustments_at,
            masks_at,
            masks: masks().count(),
            mask_words,
        };
        let (mut adjustments, mut masked) = (0, 0);
        for choice in choices {
            assert!(choice.reported.is_none_or(|count| count <= REPORTED_MAX));
            let own = DeviceChoice {
                random: choice.random,
                top_p: (f64::from(choice.top_p.clamp(0.0, 1.0)) * SHARES) as u64,
                temperature: choice.temperature,
                // Its bits order numbers: there is no negative zero.
                min_p: choice.min_p.abs(),
                top_k: choice.top_k,
                row: choice.row as i32,
                first_adjustment: adjustments,
                adjustments: choice.adjustments.len() as i32,
                mask: choice.mask.as_ref().map_or(-1, |_| masked),
                reported: choice.reported.map_or(-1, |count| count as i32),
            };
            adjustments += own.adjustments;
            masked += i32::from(choice.mask.is_some());
            requests.add(own.as_bytes());
        }
        for adjustment in all {
            requests.add(adjustment.as_bytes());
        }
        for mask in masks() {
            requests.words.extend(mask.iter());
        }
        requests
    }

    fn add(&mut self, bytes: &[u8]) {
        let (words, _) = bytes.as_chunks::<4>();
        self.words
            .extend(words.iter().map(|word| u32::from_ne_bytes(*word)));
    }

    /// What is to be copied to the device.
    pub fn words(&self) -> &[u32] {
        &self.words
    }

    /// How many choices.
    pub fn len(&self) -> usize {
        self.choices
    }

    /// Whether there is nothing to choose.
    pub fn is_empty(&self) -> bool {
        self.choices == 0
    }
}

#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct ChooseParams {
    logits: Address,
    choices: Address,
    adjustments: Address,
    masks: Address,
    chosen: Address,
    vocabulary: i32,
    words: i32,
}

/// Choose from rows of `vocabulary` logits, which are used up. `copied` begins with the words of
/// `requests`; `chosen` has [`CHOSEN_WORDS`] for each of them. Both lie at multiples of 8 bytes.
#[allow(unsafe_code, reason = "shapes are checked first")]
pub fn choose(
    device: &dyn Device,
    logits: Slice<'_, f32>,
    vocabulary: usize,
    requests: &Requests,
    copied: Slice<'_, u32>,
    chosen: Slice<'_, u32>,
) -> Result<(), DeviceError> {
    assert!(vocabulary > 0 && logits.len() >= requests.rows * vocabulary);
    assert!(copied.len() >= requests.words.len());
    assert!(chosen.len() >= requests.choices * CHOSEN_WORDS);
    assert!((copied.address().0 | chosen.address().0).is_multiple_of(8));
    if requests.is_empty() {
        return Ok(());
    }
    let at = |word: usize| Address(copied.address().0 + 4 * word as u64);
    let params = ChooseParams {
        logits: logits.address(),
        choices: at(0),
        adjustments: at(requests.adjustments_at),
        masks: match requests.masks {
            0 => Address::NULL,
            _ => at(requests.masks_at),
        },
        chosen: chosen.address(),
        vocabulary: vocabulary as i32,
        words: requests.mask_words as i32,
    };
    // Whole numbers are summed, so that the number of threads decides nothing.
    let warps = vocabulary.div_ceil(128).clamp(1, 32);
    let launch = Launch {
        kernel: "choose_rows",
        grid: [requests.choices as u32, 1, 1],
        threads: 32 * warps as u32,
        shared: SHARED_BYTES,
        params: params.as_bytes(),
    };
    // SAFETY: rows, adjusted tokens, masks and places for what is chosen were checked.
    unsafe { device.launch(&launch) }
}

#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct TakeParams {
    chosen: Address,
    sources: Address,
    tokens: Address,
    rows: i32,
    padding: u32,
}

/// Put what was chosen last into the `tokens` of a batch: for each row, `sources` has the number of
/// the choice that gives it, which must be one that was made, or a negative number, which leaves the
/// token as it is.
#[allow(unsafe_code, reason = "shapes are checked first")]
pub fn take_tokens(
    device: &dyn Device,
    chosen: Slice<'_, u32>,
    sources: Slice<'_, i32>,
    tokens: Slice<'_, i32>,
    rows: usize,
) -> Result<(), DeviceError> {
    assert!(sources.len() >= rows && tokens.len() >= rows);
    if rows == 0 {
        return Ok(());
    }
    let params = TakeParams {
        chosen: chosen.address(),
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
    // SAFETY: there are so many sources and tokens; the caller vouches for the sources, as for all
    // that tells rows where they belong.
    unsafe { device.launch(&launch) }
}

impl Chosen {
    /// What came back of one of the choices.
    pub fn read(words: &[u32; CHOSEN_WORDS], choice: &Choice) -> Self {
        let [low, high, highest, logit, token, _, rest @ ..] = words;
        let token = match *token as i32 {
            -2 => Err(NoChoice::NotNumbers),
            -1 => Err(NoChoice::Impossible),
            _ => Ok((*token, f32::from_bits(*logit))),
        };
        let report = choice.reported.filter(|_| token.is_ok()).map(|count| {
            let (tokens, logits) = rest.split_at(REPORTED_MAX);
            let likeliest = tokens.iter().zip(logits).take(count);
            Report {
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
