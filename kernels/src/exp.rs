//! The exponential function and its kin in a form that the compiler vectorises.

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

/// The hyperbolic tangent within 4e-7, relative for small `x`. NaN gives NaN.
#[inline(always)]
pub(crate) fn tanh(x: f32) -> f32 {
    // Near zero the quotient below would lose the small difference; the series ends in time.
    const SERIES_BELOW: f32 = 0.25;
    let square = x * x;
    let mut series = -17.0 / 315.0;
    series = series * square + 2.0 / 15.0;
    series = series * square - 1.0 / 3.0;
    let series = series * square * x + x;
    let shrunk = exp(-2.0 * x.abs());
    let quotient = ((1.0 - shrunk) / (1.0 + shrunk)).copysign(x);
    if x.abs() < SERIES_BELOW {
        series
    } else {
        quotient
    }
}

#[cfg(test)]
mod tests {
    use super::{exp, tanh};

    #[test]
    fn tanh_agrees_with_double_precision() {
        for step in -30_000..30_000 {
            let x = step as f32 / 1000.0;
            let expected = f64::from(x).tanh();
            let error = (f64::from(tanh(x)) - expected).abs();
            assert!(
                error <= 4e-7 * expected.abs(),
                "tanh({x}) is off by {error}"
            );
        }
        assert!(tanh(f32::NAN).is_nan());
        assert_eq!(tanh(f32::INFINITY), 1.0);
        assert_eq!(tanh(f32::NEG_INFINITY), -1.0);
    }

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
