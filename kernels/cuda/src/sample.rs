//! From rows of logits to tokens.

use zerocopy::{Immutable, IntoBytes};

use crate::buffer::{Slice, address_of};
use crate::device::{Address, Device, DeviceError, Launch};

#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct ChooseParams {
    logits: Address,
    masks: Address,
    tokens: Address,
    history: Address,
    step: Address,
    history_stride: i32,
    vocabulary: i32,
    words: i32,
    padding: u32,
}

/// Bits of the tokens that may be chosen: bit `i % 32` of word `i / 32` of a row is token `i`'s.
/// Tokens beyond the words are not allowed.
#[derive(Debug, Clone, Copy)]
pub struct Masks<'a> {
    /// Rows of words.
    pub words: Slice<'a, u32>,
    /// Words of a row.
    pub row: usize,
}

/// Where the tokens of many steps are kept, so that the host need not ask after each.
#[derive(Debug, Clone, Copy)]
pub struct History<'a> {
    /// Places, `stride` for each row.
    pub tokens: Slice<'a, i32>,
    /// The place of this step, which must be below `stride`: it is not looked at here.
    pub step: Slice<'a, i32>,
    /// Places of a row.
    pub stride: usize,
}

/// For each of `rows` rows of logits write the allowed token with the highest, the lowest token
/// among equals; -1 where none is above minus infinity.
#[allow(unsafe_code, reason = "shapes are checked first")]
pub fn choose_best(
    device: &dyn Device,
    logits: Slice<'_, f32>,
    [rows, vocabulary]: [usize; 2],
    masks: Option<Masks<'_>>,
    tokens: Slice<'_, i32>,
    history: Option<History<'_>>,
) -> Result<(), DeviceError> {
    const WARPS: usize = 32;
    assert!(vocabulary > 0 && logits.len() >= rows * vocabulary && tokens.len() >= rows);
    assert!(masks.is_none_or(|masks| masks.words.len() >= rows * masks.row));
    assert!(history.is_none_or(|history| {
        !history.step.is_empty() && history.tokens.len() >= rows * history.stride
    }));
    if rows == 0 {
        return Ok(());
    }
    let params = ChooseParams {
        logits: logits.address(),
        masks: address_of(masks.map(|masks| masks.words)),
        tokens: tokens.address(),
        history: address_of(history.map(|history| history.tokens)),
        step: address_of(history.map(|history| history.step)),
        history_stride: history.map_or(0, |history| history.stride as i32),
        vocabulary: vocabulary as i32,
        words: masks.map_or(0, |masks| masks.row as i32),
        padding: 0,
    };
    let launch = Launch {
        kernel: "choose_best_rows",
        grid: [rows as u32, 1, 1],
        threads: 32 * WARPS as u32,
        shared: (WARPS * 8) as u32,
        params: params.as_bytes(),
    };
    // SAFETY: there are so many rows of logits, of masks and places for tokens.
    unsafe { device.launch(&launch) }
}
