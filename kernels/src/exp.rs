//! The exponential function in a form that the compiler vectorises.

/// `e^x` within two units in the last place for `x` in [-87, 88]; beyond that it saturates at the
/// values of the ends, so that it never gives an infinity. NaN gives NaN.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    // Adding 1.5 * 2^23 rounds to an integer in the low bits of the mantissa.
    const ROUND: f32 = 12_582_912.0;
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    let clamped = if x > 88.0 { 88.0 } else { x };
    let clamped = if clamped < -87.0 { -87.0 } else { clamped };
    let shifted = clamped * std::f32::consts::LOG2_E + ROUND;
    let power = shifted - ROUND;
    let rest = clamped - power * LN_2_HIGH - power * LN_2_LOW;
    let mut series = 1.987_569_1e-4;
    series = series * rest + 1.398_199_9e-3;
    series = series * rest + 8.333_452e-3;
    series = series * rest + 4.166_579_6e-2;
    series = series * rest + 1.666_666_5e-1;
    series = series * rest + 5e-1;
    let value = series * rest * rest + rest + 1.0;
    let exponent = shifted.to_bits().wrapping_sub(ROUND.to_bits());
    let scale = f32::from_bits(exponent.wrapping_add(127) << 23);
    value * scale
}

#[cfg(test)]
mod tests {
    use super::exp;

    #[test]
    fn agrees_with_double_precision() {
        for step in -87_000..88_000 {
            let x = step as f32 / 1000.0;
            let expected = f64::from(x).exp();
            let error = (f64::from(exp(x)) - expected).abs() / expected;
            assert!(error < 2.5e-7, "exp({x}) is off by {error}");
        }
    }

    #[test]
    fn saturates_and_keeps_nan() {
        assert_eq!(exp(f32::NEG_INFINITY), exp(-87.0));
        assert_eq!(exp(f32::INFINITY), exp(88.0));
        assert_eq!(exp(0.0), 1.0);
        assert!(exp(f32::NAN).is_nan());
    }
}
