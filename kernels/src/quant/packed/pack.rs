//! From rows of blocks to panels. Four weights at a time, as the bytes of a word.

use super::super::layout::{iq4_xs_multiple, k_multiples};
use super::super::{BlockType, GROUP};
use super::shape::{Format, PANEL_ROWS, Parameters, REGISTERS, Shape, with_format};

/// Pack eight rows, fewer at the end of a matrix, into a panel of zeros. Each row is whole blocks of the
/// format, as many as the panel has.
pub(super) fn pack_panel(kind: BlockType, rows: &[&[u8]], panel: &mut [u8]) {
    with_format!(kind, F => pack_blocks::<F>(rows, panel));
}

#[inline(always)]
fn pack_blocks<F: Format>(rows: &[&[u8]], panel: &mut [u8]) {
    let shape = &const { F::SHAPE };
    let kind = shape.kind;
    for (number, block) in panel.chunks_exact_mut(shape.block_bytes()).enumerate() {
        let (parameters, codes) = block.split_at_mut(shape.parameter_bytes());
        for (row, source) in rows.iter().enumerate() {
            let source = &source[number * kind.bytes()..][..kind.bytes()];
            pack_parameters(shape, source, row, parameters);
            for (group, codes) in codes.chunks_exact_mut(shape.group_bytes()).enumerate() {
                let word = |register| word(kind, source, group, register);
                pack_codes(shape, word, row, codes);
            }
        }
    }
}

#[inline(always)]
fn pack_parameters(shape: &Shape, block: &[u8], row: usize, out: &mut [u8]) {
    let (scale, min) = match shape.kind {
        BlockType::Q2K => (80, 82),
        BlockType::Q3K => (108, 0),
        BlockType::Q6K => (208, 0),
        _ => (0, 2),
    };
    if shape.parameters == Parameters::Power {
        out[row] = block[0];
        return;
    }
    let mut halves = out[..shape.multiples()].chunks_exact_mut(2 * PANEL_ROWS);
    for (at, halves) in [scale, min].into_iter().zip(&mut halves) {
        halves[2 * row..][..2].copy_from_slice(&block[at..at + 2]);
    }
    let mut place = |part: usize, value: u8| {
        out[shape.multiples() + part * PANEL_ROWS + row] = value;
    };
    let groups = shape.groups();
    match shape.kind {
        BlockType::Q2K => (0..2 * groups).for_each(|half| place(half, block[half])),
        BlockType::Q3K => {
            (0..2 * groups).for_each(|half| place(half, q3_k_multiple(block, half)));
        }
        BlockType::Q6K => (0..2 * groups).for_each(|half| place(half, block[192 + half])),
        BlockType::Q4K | BlockType::Q5K => {
            for group in 0..groups {
                let [scale, min] = k_multiples(block, group);
                place(group, scale);
                place(groups + group, min);
            }
        }
        BlockType::Iq4Xs => {
            (0..groups).for_each(|group| place(group, iq4_xs_multiple(block, group) as u8));
        }
        _ => {}
    }
}

fn q3_k_multiple(block: &[u8], half: usize) -> u8 {
    let packed = &block[96..108];
    let low = packed[half % 8] >> (half / 8 * 4) & 15;
    let high = packed[8 + half % 4] >> (half / 4 * 2) & 3;
    ((low | high << 4) as i8 - 32) as u8
}

/// Put the codes of a row, four in a word, into the planes of a group.
#[inline(always)]
fn pack_codes(shape: &Shape, word: impl Fn(usize) -> u32, row: usize, out: &mut [u8]) {
    let mut put = |at: usize, word: u32| {
        out[at + 4 * row..][..4].copy_from_slice(&word.to_le_bytes());
    };
    let words: [u32; REGISTERS] = std::array::from_fn(word);
    let bits = |register: usize, first: u32, count: u32| {
        words[register] >> first & (0x0101_0101 * ((1 << count) - 1))
    };
    if shape.bytes {
        for (register, word) in words.into_iter().enumerate() {
            put(register * Shape::REGISTER, word);
        }
        return;
    }
    if shape.nibbles {
        for pair in 0..REGISTERS / 2 {
            let both = bits(2 * pair, 0, 4) | bits(2 * pair + 1, 0, 4) << 4;
            put(pair * Shape::REGISTER, both);
        }
    }
    if shape.pairs {
        for half in 0..2 {
            let four =
                (0..4).map(|place| bits(4 * half + place, shape.pair_bit(), 2) << (2 * place));
            put(shape.pairs_at() + half * Shape::REGISTER, four.sum());
        }
    }
    if shape.singles {
        let all = (0..REGISTERS).map(|register| bits(register, shape.single_bit(), 1) << register);
        put(shape.singles_at(), all.sum());
    }
}

/// The codes of weights `4 * register..` of a group, a byte each.
#[inline(always)]
fn word(kind: BlockType, block: &[u8], group: usize, register: usize) -> u32 {
    let low = |word: u32| word & 0x0f0f_0f0f;
    match kind {
        BlockType::Q4_0 | BlockType::Iq4Nl => nibble_word(&block[2..], register),
        BlockType::Q4_1 => nibble_word(&block[4..], register),
        BlockType::Mxfp4 => nibble_word(&block[1..], register),
        BlockType::Iq4Xs => nibble_word(&block[8 + 16 * group..], register),
        BlockType::Q5_0 => nibble_word(&block[6..], register) | sixteens(&block[2..], register),
        BlockType::Q5_1 => nibble_word(&block[8..], register) | sixteens(&block[4..], register),
        BlockType::Q8_0 => word_at(block, 2 + 4 * register),
        BlockType::Q2K => {
            let bytes = word_at(block, 16 + group / 4 * GROUP + 4 * register);
            bytes >> (group % 4 * 2) & 0x0303_0303
        }
        BlockType::Q3K => {
            let bytes = word_at(block, 32 + group / 4 * GROUP + 4 * register);
            let high = word_at(block, 4 * register) >> group & 0x0101_0101;
            bytes >> (group % 4 * 2) & 0x0303_0303 | high << 2
        }
        BlockType::Q4K => {
            let bytes = word_at(block, 16 + group / 2 * GROUP + 4 * register);
            low(bytes >> (group % 2 * 4))
        }
        BlockType::Q5K => {
            let bytes = word_at(block, 48 + group / 2 * GROUP + 4 * register);
            let high = word_at(block, 16 + 4 * register) >> group & 0x0101_0101;
            low(bytes >> (group % 2 * 4)) | high << 4
        }
        BlockType::Q6K => {
            let (part, place) = (group / 4, group % 4);
            let bytes = word_at(block, part * 64 + place % 2 * GROUP + 4 * register);
            let high = word_at(block, 128 + part * GROUP + 4 * register);
            low(bytes >> (place / 2 * 4)) | (high >> (2 * place) & 0x0303_0303) << 4
        }
    }
}

#[inline(always)]
fn word_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Four of 32 nibbles in sixteen bytes, the first half in the low ones.
#[inline(always)]
fn nibble_word(bytes: &[u8], register: usize) -> u32 {
    word_at(bytes, register % 4 * 4) >> (register / 4 * 4) & 0x0f0f_0f0f
}

/// The value 16 in each of four bytes whose bit of 32 is set.
#[inline(always)]
fn sixteens(bits: &[u8], register: usize) -> u32 {
    let four = u32::from(bits[register / 2] >> (register % 2 * 4)) & 15;
    // Bit `i` to bit 4 of byte `i`.
    (four & 1) << 4 | (four & 2) << 11 | (four & 4) << 18 | (four & 8) << 25
}
