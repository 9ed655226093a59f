//! Products with panels on any processor, and single rows of them: the definition of the layout.

use half::f16;

use super::super::layout::half_power;
use super::super::{GROUP, Group, QuantisedGroup};
use super::shape::{Codes, PANEL_ROWS, Parameters, Shape};

/// Products of the rows of a tile with the rows of a panel: `out[tile row][panel row]`.
pub(super) fn tile(
    shape: &Shape,
    panel: &[u8],
    x: &[QuantisedGroup],
    rows: usize,
    out: &mut [[f32; PANEL_ROWS]],
) {
    let groups = shape.groups();
    for out in &mut *out {
        out.fill(0.0);
    }
    for (number, x) in x.chunks_exact(rows).enumerate() {
        let block = &panel[number / groups * shape.block_bytes()..][..shape.block_bytes()];
        for lane in 0..PANEL_ROWS {
            let weights = unpack(shape, block, number % groups, lane);
            for (x, out) in x.iter().zip(&mut *out) {
                out[lane] += product(&weights, x);
            }
        }
    }
}

fn product(weights: &Group, x: &QuantisedGroup) -> f32 {
    (0..2)
        .map(|half| {
            let part = half * GROUP / 2..(half + 1) * GROUP / 2;
            let (quants, x_quants) = (&weights.quants[part.clone()], &x.quants[part]);
            let products = quants.iter().zip(x_quants);
            let products: i32 = products.map(|(w, x)| i32::from(*w) * i32::from(*x)).sum();
            let sum: i32 = x_quants.iter().map(|x| i32::from(*x)).sum();
            weights.scales[half] * x.scale * products as f32
                - weights.mins[half] * (x.scale * sum as f32)
        })
        .sum()
}

/// One group of one row of a panel.
pub(super) fn unpack(shape: &Shape, block: &[u8], group: usize, lane: usize) -> Group {
    let codes = &block[shape.parameter_bytes() + group * shape.group_bytes()..];
    let (scales, mins) = parameters(shape, block, group, lane);
    Group {
        quants: std::array::from_fn(|k| weight(shape, codes, k, lane)),
        scales,
        mins,
    }
}

fn weight(shape: &Shape, codes: &[u8], k: usize, lane: usize) -> i8 {
    const { assert!(GROUP == 32) };
    let register = k / 4;
    let byte = |plane: usize| codes[plane * Shape::REGISTER + 4 * lane + k % 4];
    if shape.bytes {
        return byte(register) as i8;
    }
    let mut code = 0;
    if shape.nibbles {
        code |= byte(register / 2) >> (register % 2 * 4) & 15;
    }
    if shape.pairs {
        let plane = shape.pairs_at() / Shape::REGISTER + register / 4;
        code |= (byte(plane) >> (register % 4 * 2) & 3) << shape.pair_bit();
    }
    if shape.singles {
        let plane = shape.singles_at() / Shape::REGISTER;
        code |= (byte(plane) >> register & 1) << shape.single_bit();
    }
    let value = shape
        .table
        .map_or(code as i8, |table| table[usize::from(code)]);
    match shape.codes {
        Codes::Signed => value,
        Codes::Unsigned { offset, .. } => value - offset as i8,
    }
}

/// Scales and minima of the halves of a group.
fn parameters(shape: &Shape, block: &[u8], group: usize, lane: usize) -> ([f32; 2], [f32; 2]) {
    let half_at = |at: usize| f16::from_le_bytes([block[at], block[at + 1]]).to_f32();
    if shape.parameters == Parameters::Power {
        return ([half_power(block[lane]); 2], [0.0; 2]);
    }
    let scale = half_at(2 * lane);
    let min = || half_at(2 * (PANEL_ROWS + lane));
    let multiple = |part: usize| block[shape.multiples() + part * PANEL_ROWS + lane];
    let halves = [2 * group, 2 * group + 1].map(multiple);
    match shape.parameters {
        Parameters::Power | Parameters::Half => ([scale; 2], [0.0; 2]),
        // The format adds its minimum, a group takes it off.
        Parameters::HalfMin => ([scale; 2], [-min(); 2]),
        Parameters::Group => {
            let scale = scale * f32::from(multiple(group) as i8);
            ([scale; 2], [0.0; 2])
        }
        Parameters::GroupMin => {
            let scale = scale * f32::from(multiple(group));
            let min = min() * f32::from(multiple(shape.groups() + group));
            ([scale; 2], [min; 2])
        }
        Parameters::Halves => (
            halves.map(|multiple| scale * f32::from(multiple as i8)),
            [0.0; 2],
        ),
        Parameters::HalvesMin => (
            halves.map(|both| scale * f32::from(both & 15)),
            halves.map(|both| min() * f32::from(both >> 4)),
        ),
    }
}
