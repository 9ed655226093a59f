//! Layer normalisation: mean and variance of a row to 0 and 1, then a weight and a bias.

/// Sums that go on side by side, so that the compiler can use vector instructions. Their order is the same wherever a row
/// is computed.
const LANES: usize = 8;

/// Rows that one task computes.
const ROWS_A_TASK: usize = 16;

/// Normalise each row of `x` (rows of `weight.len()` values) where it stands.
pub fn layer_norm_in_place(x: &mut [f32], weight: &[f32], bias: &[f32], epsilon: f32) {
    let width = weight.len();
    assert!(width > 0 && bias.len() == width && x.len().is_multiple_of(width));
    // A value costs about as much as eight multiply-adds.
    if crate::worth_sharing(x.len().saturating_mul(8)) {
        crate::pool::for_each_piece(x, ROWS_A_TASK * width, |_, x| {
            some(x, weight, bias, epsilon)
        });
    } else {
        some(x, weight, bias, epsilon);
    }
}

/// Normalise rows on the calling thread.
fn some(x: &mut [f32], weight: &[f32], bias: &[f32], epsilon: f32) {
    #[cfg(target_arch = "x86_64")]
    if crate::has_avx2_fma() {
        // SAFETY: the processor has the features that the function is compiled for.
        #[allow(unsafe_code, reason = "calls a function compiled for checked features")]
        unsafe {
            some_avx2(x, weight, bias, epsilon);
        }
        return;
    }
    rows(x, weight, bias, epsilon);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn some_avx2(x: &mut [f32], weight: &[f32], bias: &[f32], epsilon: f32) {
    rows(x, weight, bias, epsilon);
}

#[inline(always)]
fn rows(x: &mut [f32], weight: &[f32], bias: &[f32], epsilon: f32) {
    let width = weight.len();
    for row in x.chunks_exact_mut(width) {
        // In double precision: a variance is a small difference of large sums otherwise.
        let mean = sum(row, |value| value) / width as f64;
        let variance = sum(row, |value| (value - mean) * (value - mean)) / width as f64;
        let scale = 1.0 / (variance + f64::from(epsilon)).sqrt();
        for ((value, weight), bias) in row.iter_mut().zip(weight).zip(bias) {
            *value = ((f64::from(*value) - mean) * scale) as f32 * weight + bias;
        }
    }
}

#[inline(always)]
fn sum(row: &[f32], of: impl Fn(f64) -> f64) -> f64 {
    let mut sums = [0.0; LANES];
    let (some, rest) = row.as_chunks::<LANES>();
    for values in some {
        for (sum, value) in sums.iter_mut().zip(values) {
            *sum += of(f64::from(*value));
        }
    }
    for (sum, value) in sums.iter_mut().zip(rest) {
        *sum += of(f64::from(*value));
    }
    sums.iter().sum()
}
