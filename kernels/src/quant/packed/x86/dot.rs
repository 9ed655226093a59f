//! Integer dot products of a group on x86-64, by instruction set.

use std::arch::asm;
use std::arch::x86_64::{
    __m256, __m256i, _mm_cvtsi32_si128, _mm_loadu_si128, _mm256_abs_epi8, _mm256_add_epi16,
    _mm256_add_epi32, _mm256_and_si256, _mm256_broadcastsi128_si256, _mm256_castps_si256,
    _mm256_castsi256_ps, _mm256_cvtepi32_ps, _mm256_dpbusd_avx_epi32, _mm256_dpbusd_epi32,
    _mm256_loadu_si256, _mm256_madd_epi16, _mm256_maddubs_epi16, _mm256_or_si256, _mm256_set1_epi8,
    _mm256_set1_epi16, _mm256_set1_epi32, _mm256_set1_ps, _mm256_setzero_si256,
    _mm256_shuffle_epi8, _mm256_sign_epi8, _mm256_sll_epi16, _mm256_slli_epi32, _mm256_srl_epi16,
    _mm256_sub_epi32, _mm256_sub_ps, _mm256_xor_si256,
};

use super::super::shape::{Codes, Format, REGISTERS, Shape};
use super::Groups;

/// Integer products of registers of codes with activations.
pub(super) trait Dot {
    /// The sums of registers `FIRST..LAST` of a group for the groups of `R` rows, in the floating point
    /// that holds them exactly.
    ///
    /// # Safety
    /// All pointers are to whole groups; the processor has what the implementation is named for.
    unsafe fn dot<F: Format, const R: usize, const FIRST: usize, const LAST: usize>(
        codes: *const u8,
        x: Groups,
    ) -> [__m256; R];
}

/// Bias of integer sums: with it, their bits are those of a float, since floats from 2^23 on are 1
/// apart. A subtraction converts them, on ports that products do not need. Sums of a group are
/// below 2^21 in size, half of the range.
const RAISED: f32 = 12_582_912.0;

/// Initial value of integer sums.
#[inline]
#[target_feature(enable = "avx")]
fn raised() -> __m256i {
    _mm256_castps_si256(_mm256_set1_ps(RAISED))
}

/// Integer sums that began with [`raised`], in floating point.
#[inline]
#[target_feature(enable = "avx")]
fn lowered(sum: __m256i) -> __m256 {
    _mm256_sub_ps(_mm256_castsi256_ps(sum), _mm256_set1_ps(RAISED))
}

/// Register `register` of the codes of a group, a byte each.
///
/// # Safety
/// `codes` points at a whole group, in which the planes lie, and the processor has AVX2.
#[inline(always)]
unsafe fn code<F: Format>(codes: *const u8, register: usize) -> __m256i {
    let shape = const { F::SHAPE };
    // SAFETY: the caller promises a whole group, in which the planes lie, and AVX2.
    unsafe {
        let plane = |at: usize| _mm256_loadu_si256(codes.add(at).cast());
        // Bits from `from` on, as many as `mask` has, to bit `to` on.
        let field = |bytes: __m256i, from: u32, to: u32, mask: u8| {
            let moved = match from.cmp(&to) {
                std::cmp::Ordering::Less => {
                    _mm256_sll_epi16(bytes, _mm_cvtsi32_si128((to - from) as i32))
                }
                std::cmp::Ordering::Equal => bytes,
                std::cmp::Ordering::Greater => {
                    _mm256_srl_epi16(bytes, _mm_cvtsi32_si128((from - to) as i32))
                }
            };
            _mm256_and_si256(moved, _mm256_set1_epi8((mask << to) as i8))
        };
        if shape.bytes {
            return plane(register * Shape::REGISTER);
        }
        let mut code = _mm256_setzero_si256();
        if shape.nibbles {
            let both = plane(register / 2 * Shape::REGISTER);
            code = field(both, register as u32 % 2 * 4, 0, 15);
        }
        if shape.pairs {
            let four = plane(shape.pairs_at() + register / 4 * Shape::REGISTER);
            let pair = field(four, register as u32 % 4 * 2, shape.pair_bit(), 3);
            code = _mm256_or_si256(code, pair);
        }
        if shape.singles {
            let all = plane(shape.singles_at());
            let single = field(all, register as u32, shape.single_bit(), 1);
            code = _mm256_or_si256(code, single);
        }
        match shape.table {
            None => code,
            Some(table) => {
                let table = _mm_loadu_si128(table.as_ptr().cast());
                _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), code)
            }
        }
    }
}

/// Four activations of row `r` in all lanes.
///
/// # Safety
/// `x` has more than `r` rows, `register` is below [`REGISTERS`], and the processor has AVX2.
#[inline(always)]
unsafe fn four(x: Groups, r: usize, register: usize) -> __m256i {
    // SAFETY: the caller promises so many rows, and a register is within a group.
    unsafe {
        let quants = (&raw const (*x.row(r)).quants).cast::<i32>();
        _mm256_set1_epi32(quants.add(register).read_unaligned())
    }
}

/// Keep a sum in its register, and what is done for a row before what is done for the next: the compiler
/// would otherwise make trees of additions and run out of registers.
#[inline]
#[target_feature(enable = "avx")]
fn fence(sum: __m256i) -> __m256i {
    let mut sum = sum;
    // SAFETY: no instruction is executed.
    unsafe {
        asm!("/* {0} */", inout(ymm_reg) sum, options(nomem, nostack, preserves_flags));
    }
    sum
}

/// A body for each of the registers `$first..$last`, whose number it gets as a constant: the compiler
/// unrolls no loop of that length, and shifts by a number that it does not know are slow.
macro_rules! for_registers {
    ($register:ident in $first:ident..$last:ident $body:block) => {
        for_registers!(@ $register $first $last $body 0 1 2 3 4 5 6 7)
    };
    (@ $register:ident $first:ident $last:ident $body:block $($number:literal)*) => {
        const { assert!($last <= REGISTERS) };
        $(if $first <= $number && $number < $last {
            const $register: usize = $number;
            $body
        })*
    };
}

/// Bytes to pairs to fours, in three instructions.
pub(super) struct Avx2;

impl Dot for Avx2 {
    #[inline(always)]
    unsafe fn dot<F: Format, const R: usize, const FIRST: usize, const LAST: usize>(
        codes: *const u8,
        x: Groups,
    ) -> [__m256; R] {
        // SAFETY: as the caller promises.
        unsafe {
            let ones = _mm256_set1_epi16(1);
            let Codes::Unsigned { max, .. } = (const { F::SHAPE.codes }) else {
                // The sign goes to the activation: products of bytes take an unsigned one.
                let mut sums = [raised(); R];
                for_registers!(REGISTER in FIRST..LAST {
                    let code = code::<F>(codes, REGISTER);
                    let size = _mm256_abs_epi8(code);
                    for r in 0..R {
                        let x = _mm256_sign_epi8(four(x, r, REGISTER), code);
                        let pairs = _mm256_maddubs_epi16(size, x);
                        let fours = _mm256_madd_epi16(pairs, ones);
                        sums[r] = fence(_mm256_add_epi32(sums[r], fours));
                    }
                });
                return sums.map(|sum| lowered(sum));
            };
            // As many pairs of products as sixteen bits hold.
            let together = (i16::MAX as i32 / (2 * 127 * max)) as usize;
            let mut pairs = [_mm256_setzero_si256(); R];
            let mut sums = [_mm256_setzero_si256(); R];
            for_registers!(REGISTER in FIRST..LAST {
                let code = code::<F>(codes, REGISTER);
                let place = (REGISTER - FIRST) % together;
                for r in 0..R {
                    let product = _mm256_maddubs_epi16(code, four(x, r, REGISTER));
                    pairs[r] = match place {
                        0 => product,
                        _ => fence(_mm256_add_epi16(pairs[r], product)),
                    };
                }
                if place + 1 == together || REGISTER + 1 == LAST {
                    for r in 0..R {
                        let fours = _mm256_madd_epi16(pairs[r], ones);
                        sums[r] = _mm256_add_epi32(sums[r], fours);
                    }
                }
            });
            sums.map(|sum| _mm256_cvtepi32_ps(sum))
        }
    }
}

macro_rules! vnni {
    ($name:ident, $product:ident) => {
        /// Bytes to fours in one instruction.
        pub(super) struct $name;

        impl Dot for $name {
            #[inline(always)]
            unsafe fn dot<F: Format, const R: usize, const FIRST: usize, const LAST: usize>(
                codes: *const u8,
                x: Groups,
            ) -> [__m256; R] {
                // SAFETY: as the caller promises.
                unsafe {
                    let mut sums = [raised(); R];
                    if matches!(const { F::SHAPE.codes }, Codes::Signed) {
                        // Raised by 128, signed bytes are unsigned.
                        for r in 0..R {
                            let sum = _mm256_set1_epi32((*x.row(r)).sum);
                            let raised = _mm256_slli_epi32::<7>(sum);
                            sums[r] = _mm256_sub_epi32(sums[r], raised);
                        }
                    }
                    for_registers!(REGISTER in FIRST..LAST {
                        let mut code = code::<F>(codes, REGISTER);
                        if matches!(const { F::SHAPE.codes }, Codes::Signed) {
                            code = _mm256_xor_si256(code, _mm256_set1_epi8(-128));
                        }
                        for r in 0..R {
                            sums[r] = $product(sums[r], code, four(x, r, REGISTER));
                        }
                    });
                    sums.map(|sum| lowered(sum))
                }
            }
        }
    };
}

vnni!(AvxVnni, _mm256_dpbusd_avx_epi32);
vnni!(Avx512Vnni, _mm256_dpbusd_epi32);
