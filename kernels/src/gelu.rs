//! The Gaussian error linear unit, exact: `x · Φ(x)`.

use crate::exp::exp;

/// Values that one task computes.
const VALUES_A_TASK: usize = 16 * 1024;

/// Apply it to every value.
pub fn gelu_in_place(x: &mut [f32]) {
    // A value costs about as much as forty multiply-adds.
    if crate::worth_sharing(x.len().saturating_mul(40)) {
        crate::pool::for_each_piece(x, VALUES_A_TASK, |_, x| some(x));
    } else {
        some(x);
    }
}

/// Apply it to the first half of each row of `gate_up`, of `2 * width` values, and multiply it with the second: rows of `width`.
///
/// # Panics
/// If the rows differ in number.
pub fn gelu_mul(gate_up: &[f32], width: usize, out: &mut [f32]) {
    assert!(width > 0 && out.len().is_multiple_of(width) && gate_up.len() == 2 * out.len());
    crate::pool::for_each_piece(out, width, |row, out| {
        let (gates, ups) = gate_up[2 * row * width..][..2 * width].split_at(width);
        out.copy_from_slice(gates);
        some(out);
        for (out, up) in out.iter_mut().zip(ups) {
            *out *= up;
        }
    });
}

/// Apply it on the calling thread.
fn some(x: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    if crate::has_avx2_fma() {
        // SAFETY: the processor has the features that the function is compiled for.
        #[allow(unsafe_code, reason = "calls a function compiled for checked features")]
        unsafe {
            some_avx2(x);
        }
        return;
    }
    each(x);
}

/// Eight values at a time.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn some_avx2(x: &mut [f32]) {
    each(x);
}

#[inline(always)]
fn each(x: &mut [f32]) {
    for value in x {
        *value = gelu(*value);
    }
}

#[inline(always)]
fn gelu(x: f32) -> f32 {
    let half = 0.5 * erfc_of_magnitude(x.abs() * std::f32::consts::FRAC_1_SQRT_2);
    x * if x < 0.0 { half } else { 1.0 - half }
}

/// The complementary error function of a number from 0, by a rational Chebyshev fit with a relative error below 1.2e-7
/// (W. H. Press et al., Numerical Recipes, section 6.2).
#[inline(always)]
fn erfc_of_magnitude(x: f32) -> f32 {
    const FIT: [f32; 9] = [
        1.000_023_7,
        0.374_091_96,
        0.096_784_18,
        -0.186_288_06,
        0.278_868_07,
        -1.135_204,
        1.488_515_9,
        -0.822_152_23,
        0.170_872_77,
    ];
    const FIRST: f32 = -1.265_512_2;
    let t = 1.0 / (1.0 + 0.5 * x);
    let mut sum = FIT[8];
    let mut term = 8;
    while term > 0 {
        term -= 1;
        sum = sum * t + FIT[term];
    }
    t * exp(-x * x + (sum * t + FIRST))
}

#[cfg(test)]
mod tests {
    use super::gelu_in_place;

    /// Values of `math.erf` of Python, at as many places as single precision has.
    #[test]
    fn values_agree_however_many_there_are() {
        let few = [-3.0f32, -1.5, -0.25, 0.0, 0.25, 1.5, 3.0];
        let expected: [f32; 7] = [
            -0.004_049_694,
            -0.100_210_8,
            -0.100_323_42,
            0.0,
            0.149_676_58,
            1.399_789_2,
            2.995_950_2,
        ];
        let mut many: Vec<f32> = few.iter().copied().cycle().take(100_003).collect();
        gelu_in_place(&mut many);
        for (at, found) in many.iter().enumerate() {
            let expected = expected[at % few.len()];
            assert!(
                (found - expected).abs() < 4e-7 * expected.abs().max(1.0),
                "{}: {found} is not {expected}",
                few[at % few.len()]
            );
        }
        let mut ends = [f32::INFINITY, f32::NAN, -40.0, 40.0];
        gelu_in_place(&mut ends);
        assert_eq!(ends[0], f32::INFINITY);
        assert!(ends[1].is_nan());
        assert!(ends[2].abs() < 1e-30);
        assert_eq!(ends[3], 40.0);
    }
}
