//! Rounding of activations with NEON.
#![allow(unsafe_code, reason = "vector loads through pointers")]

use std::arch::aarch64::{
    vabsq_f32, vaddlvq_s8, vcombine_s8, vcombine_s16, vcvtnq_s32_f32, vld1q_f32, vmaxnmq_f32,
    vmaxnmvq_f32, vmulq_n_f32, vqmovn_s16, vqmovn_s32, vst1q_s8,
};

use super::{GROUP, QuantisedGroup};

/// # Safety
/// The processor has NEON; `x` holds a group.
#[target_feature(enable = "neon")]
pub(super) unsafe fn round_group(x: &[f32], out: &mut QuantisedGroup) {
    debug_assert!(x.len() == GROUP);
    let x = x.as_ptr();
    // SAFETY: the caller promises 32 values, so that four are at each of these places.
    let load = |part: usize| unsafe { vld1q_f32(x.add(4 * part)) };
    let parts: [_; GROUP / 4] = std::array::from_fn(load);
    let most = parts.map(|part| vabsq_f32(part));
    let most = most.into_iter().reduce(|a, b| vmaxnmq_f32(a, b));
    let largest = most.map_or(0.0, |most| vmaxnmvq_f32(most));
    let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
    let rounded = parts.map(|part| vcvtnq_s32_f32(vmulq_n_f32(part, inverse)));
    let mut sums = [0; 2];
    for (half, sum) in sums.iter_mut().enumerate() {
        let four = |part: usize| vqmovn_s32(rounded[4 * half + part]);
        let eight = |first: usize| vqmovn_s16(vcombine_s16(four(first), four(first + 1)));
        let sixteen = vcombine_s8(eight(0), eight(2));
        // SAFETY: a half of a group has sixteen places.
        unsafe {
            vst1q_s8(out.quants.as_mut_ptr().add(half * GROUP / 2), sixteen);
        }
        *sum = i32::from(vaddlvq_s8(sixteen));
    }
    out.scale = largest / 127.0;
    out.set_sums(sums[0], sums[1]);
}
