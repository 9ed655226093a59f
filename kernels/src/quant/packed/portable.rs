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
                add_products(shape, &weights, x, &mut out[lane]);
            }
        }
    }
}

/// Add the products of a group to a sum, in the steps of the vector paths and with their bits: what is
/// taken off codes is taken off as a minimum is, and products are fused with additions.
fn add_products(shape: &Shape, weights: &Group, x: &QuantisedGroup, sum: &mut f32) {
    let parts = if shape.halves() { 2 } else { 1 };
    let length = GROUP / parts;
    let offset = shape.offset();
    for part in 0..parts {
        let range = part * length..(part + 1) * length;
        let codes = weights.quants[range.clone()].iter();
        let codes = codes.map(|quant| i32::from(*quant) + offset);
        let products = codes.zip(&x.quants[range]);
        let products: i32 = products.map(|(code, x)| code * i32::from(*x)).sum();
        let scale = weights.scales[part];
        *sum = (products as f32).mul_add(scale * x.scale, *sum);
        if shape.takes_off() {
            let min = if offset > 0 {
                scale * offset as f32
            } else {
                weights.mins[part]
            };
            *sum = (-min).mul_add(x.scaled_part(shape.halves(), part), *sum);
        }
    }
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
