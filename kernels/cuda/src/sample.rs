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
    vocabulary: i32,
    words: i32,
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

/// For each of `rows` rows of logits write the allowed token with the highest, the lowest token
/// among equals; -1 where none is above minus infinity.
#[allow(unsafe_code, reason = "shapes are checked first")]
pub fn choose_best(
    device: &dyn Device,
    logits: Slice<'_, f32>,
    [rows, vocabulary]: [usize; 2],
    masks: Option<Masks<'_>>,
    tokens: Slice<'_, i32>,
) -> Result<(), DeviceError> {
    const WARPS: usize = 32;
    assert!(vocabulary > 0 && logits.len() >= rows * vocabulary && tokens.len() >= rows);
    assert!(masks.is_none_or(|masks| masks.words.len() >= rows * masks.row));
    if rows == 0 {
        return Ok(());
    }
    let params = ChooseParams {
        logits: logits.address(),
        masks: address_of(masks.map(|masks| masks.words)),
        tokens: tokens.address(),
        vocabulary: vocabulary as i32,
        words: masks.map_or(0, |masks| masks.row as i32),
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
