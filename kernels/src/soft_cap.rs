//! Bend numbers towards a bound that they never pass.

use crate::exp::tanh;

/// Replace each `x` by `cap * tanh(x / cap)`.
pub fn soft_cap(values: &mut [f32], cap: f32) {
    for value in values {
        *value = cap * tanh(*value / cap);
    }
}
