//! Weights of eight bits (Open Compute Project, 8-bit Floating Point Specification 1.0, E4M3), which
//! lie in safetensors files with their scales beside them: one for a tensor, one for each row, or one
//! for each block of rows and columns. A weight is its number times its scale.

use std::ops::Range;

use crate::error::ModelError;
use crate::fields::ObjectFields;
use crate::limits::SCALE_BLOCK_MAX;

/// Names of the scales, in the place of `weight`: those of DeepSeek, which are factors whatever the name
/// says, and those of compressed-tensors.
pub(crate) const SCALES: [&str; 2] = ["weight_scale_inv", "weight_scale"];

/// The scales of a matrix.
#[derive(Debug)]
pub(crate) struct Scales {
    /// Row by row.
    values: Vec<f32>,
    /// Columns of the matrix.
    columns: usize,
    /// Rows and columns of the matrix that share a scale.
    block: [usize; 2],
}

impl Scales {
    /// The scales of a matrix of `[rows, columns]`, stored in some shape; `block` is what the
    /// configuration says of blocks. `None` if the shape fits none of them.
    pub(crate) fn new(
        values: Vec<f32>,
        shape: &[usize],
        [rows, columns]: [usize; 2],
        block: Option<[usize; 2]>,
    ) -> Option<Self> {
        let in_blocks =
            |[high, wide]: [usize; 2]| shape == [rows.div_ceil(high), columns.div_ceil(wide)];
        let block = match (shape, block) {
            ([] | [1] | [1, 1], _) => [rows, columns],
            (_, Some(block)) if in_blocks(block) => block,
            ([each] | [each, 1], _) if *each == rows => [1, columns],
            _ => return None,
        };
        Some(Self {
            values,
            columns,
            block,
        })
    }

    /// The scales of a row, and the columns of each.
    fn of_row(&self, row: usize) -> impl Iterator<Item = (Range<usize>, f32)> {
        let [high, wide] = self.block;
        let count = self.columns.div_ceil(wide);
        let scales = &self.values[row / high * count..][..count];
        scales.iter().enumerate().map(move |(index, scale)| {
            let first = index * wide;
            (first..(first + wide).min(self.columns), *scale)
        })
    }

    /// The weights of a matrix from its numbers.
    pub(crate) fn apply(&self, numbers: &[u8]) -> Vec<f32> {
        let mut weights: Vec<f32> = numbers.iter().map(|bits| widen(*bits)).collect();
        for (row, weights) in weights.chunks_exact_mut(self.columns).enumerate() {
            for (columns, scale) in self.of_row(row) {
                for weight in &mut weights[columns] {
                    *weight *= scale;
                }
            }
        }
        weights
    }

    /// For each of `rows` rows a scale for every `each` columns and what is left of them. `None` where
    /// that many have different ones.
    pub(crate) fn spread(&self, rows: usize, each: usize) -> Option<Vec<f32>> {
        let [_, wide] = self.block;
        if wide < self.columns && !wide.is_multiple_of(each) {
            return None;
        }
        let of_row = |row| self.of_row(row);
        let spread = (0..rows).flat_map(of_row);
        let spread = spread
            .flat_map(|(columns, scale)| std::iter::repeat_n(scale, columns.len().div_ceil(each)));
        Some(spread.collect())
    }
}

/// A number of eight bits: a sign, four bits of exponent and three of mantissa.
pub(crate) fn widen(bits: u8) -> f32 {
    let (exponent, mantissa) = (bits >> 3 & 15, f32::from(bits & 7));
    let size = match (exponent, bits & 7) {
        (15, 7) => f32::NAN,
        (0, _) => mantissa * 2.0f32.powi(-9),
        _ => (8.0 + mantissa) * 2.0f32.powi(i32::from(exponent) - 10),
    };
    if bits >> 7 == 1 { -size } else { size }
}

/// Whether `quantization_config` describes such weights. What it says of activations and of the cache
/// is about kernels that round those too: here both stay as precise as they are elsewhere.
pub(crate) fn is_described_by(quantization: &ObjectFields) -> Result<bool, ModelError> {
    match quantization.text("quant_method")? {
        Some("fp8") => {
            let format = quantization.text("fmt")?;
            Ok(matches!(format, None | Some("e4m3" | "float8_e4m3fn")))
        }
        Some("compressed-tensors") => are_eight_bit_floats(quantization),
        _ => Ok(false),
    }
}

/// Whether all groups of a compressed-tensors checkpoint have such weights, stored as they are.
fn are_eight_bit_floats(quantization: &ObjectFields) -> Result<bool, ModelError> {
    let format = quantization.text("format")?;
    if !matches!(format, Some("float-quantized" | "naive-quantized")) {
        return Ok(false);
    }
    let sparse = quantization.object("sparsity_config")?;
    if let Some(sparse) = sparse
        && !matches!(sparse.text("format")?, None | Some("dense"))
    {
        return Ok(false);
    }
    let groups = compressed_groups(quantization)?;
    for weights in &groups {
        let floats = weights.text("type")? == Some("float");
        if !floats || weights.count("num_bits", 1..=64)? != Some(8) {
            return Ok(false);
        }
    }
    Ok(!groups.is_empty())
}

/// The `weights` object of each group of a compressed-tensors checkpoint.
fn compressed_groups(quantization: &ObjectFields) -> Result<Vec<ObjectFields>, ModelError> {
    let mut found = Vec::new();
    if let Some(groups) = quantization.object("config_groups")? {
        for name in groups.names() {
            if let Some(group) = groups.object(name)?
                && let Some(weights) = group.object("weights")?
            {
                found.push(weights);
            }
        }
    }
    Ok(found)
}

/// Rows and columns of the blocks that share a scale, as a configuration file says.
pub(crate) fn read_block(config: &ObjectFields) -> Result<Option<[usize; 2]>, ModelError> {
    let Some(quantization) = config.object("quantization_config")? else {
        return Ok(None);
    };
    if let Some(block) = read_sides(&quantization, "weight_block_size")? {
        return Ok(Some(block));
    }
    for weights in compressed_groups(&quantization)? {
        if let Some(block) = read_sides(&weights, "block_structure")? {
            return Ok(Some(block));
        }
    }
    Ok(None)
}

fn read_sides(fields: &ObjectFields, field: &str) -> Result<Option<[usize; 2]>, ModelError> {
    let Some(list) = fields.list(field)? else {
        return Ok(None);
    };
    let side = |value: &serde_json::Value| {
        let side = value.as_u64().and_then(|side| usize::try_from(side).ok());
        side.filter(|side| (1..=SCALE_BLOCK_MAX).contains(side))
    };
    match list.iter().map(side).collect::<Option<Vec<_>>>().as_deref() {
        Some([rows, columns]) => Ok(Some([*rows, *columns])),
        _ => Err(fields.wrong(
            field,
            format!("must hold two sizes of a block from 1 to {SCALE_BLOCK_MAX}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_specification() {
        // Zero, the least, the largest below the normal ones, the least normal one, one, the largest.
        let known = [
            (0x00, 0.0),
            (0x01, 2.0f32.powi(-9)),
            (0x07, 0.875 * 2.0f32.powi(-6)),
            (0x08, 2.0f32.powi(-6)),
            (0x38, 1.0),
            (0x7e, 448.0),
        ];
        for (bits, value) in known {
            assert_eq!(widen(bits), value);
            assert_eq!(widen(bits | 0x80), -value);
        }
        assert!(widen(0x7f).is_nan() && widen(0xff).is_nan());
    }

    #[test]
    fn scales_belong_to_tensors_rows_or_blocks() {
        let ones = [0x38; 15];
        let scales = |count: usize| (1..=count).map(|n| n as f32).collect::<Vec<f32>>();
        let apply = |count, shape: &[usize], block| {
            let scales = Scales::new(scales(count), shape, [3, 5], block)?;
            Some((scales.apply(&ones), scales.spread(3, 2)))
        };
        let whole = apply(1, &[], None).unwrap();
        assert_eq!(whole, (vec![1.0; 15], Some(vec![1.0; 9])));
        let rows = apply(3, &[3, 1], Some([2, 4])).unwrap();
        let expected = [[1.0; 5], [2.0; 5], [3.0; 5]].concat();
        assert_eq!(rows.0, expected);
        assert_eq!(rows.1.unwrap(), [[1.0; 3], [2.0; 3], [3.0; 3]].concat());
        let (weights, spread) = apply(4, &[2, 2], Some([2, 4])).unwrap();
        let upper = [1.0, 1.0, 1.0, 1.0, 2.0];
        assert_eq!(weights, [upper, upper, [3.0, 3.0, 3.0, 3.0, 4.0]].concat());
        let upper = [1.0, 1.0, 2.0];
        assert_eq!(spread.unwrap(), [upper, upper, [3.0, 3.0, 4.0]].concat());
        // Two columns of such blocks have different scales.
        assert_eq!(apply(6, &[3, 2], Some([1, 3])).unwrap().1, None);
        for (count, shape, block) in [
            (2, &[2][..], None),
            (4, &[2, 2], None),
            (6, &[3, 2], Some([2, 4])),
        ] {
            assert!(apply(count, shape, block).is_none(), "{shape:?}");
        }
    }
}
