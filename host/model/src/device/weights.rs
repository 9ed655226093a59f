//! Matrices from files to a device's memory.

use std::borrow::Cow;
use std::sync::Arc;

use half::{bf16, f16};
use mortise_cuda::linear::{Linear, Rows, Workspace, linear};
use mortise_cuda::{Buffer, Device, DeviceError, FP8_SCALED, Format, Matrix, Scalars};
use mortise_kernels::quant::{BlockType, quantise_q4_k, quantise_q8_0};
use zerocopy::IntoBytes;

use crate::error::ModelError;
use crate::loader::Loader;
use crate::names::StackNames;
use crate::stored_tensor::StoredTensor;
use crate::weights::{NumberType, WeightPrecision, widen};

/// Matrices of the same inputs that are multiplied as one, with an optional bias.
#[derive(Debug)]
pub(super) struct Stack {
    /// Neighbours of one format are one matrix.
    matrices: Vec<Matrix>,
    bias: Option<Buffer<f32>>,
    outputs: usize,
    inputs: usize,
}

/// A matrix on its way to the device.
pub(super) struct Encoded<'a> {
    pub(super) format: Format,
    pub(super) rows: usize,
    pub(super) bytes: Cow<'a, [u8]>,
    /// Scales of [`Format::Fp8`].
    pub(super) scales: Vec<f32>,
}

impl Stack {
    /// One matrix of `[outputs, inputs]`.
    pub(super) fn single(
        loader: &Loader<'_>,
        device: &Arc<dyn Device>,
        name: String,
        shape: [usize; 2],
        biased: bool,
    ) -> Result<Self, ModelError> {
        Self::load(loader, device, &[(name, shape[0])], shape[1], biased)
    }

    /// The matrices of a layer that may be stacked on disk already.
    pub(super) fn of_names<const PARTS: usize>(
        loader: &Loader<'_>,
        device: &Arc<dyn Device>,
        names: &StackNames<PARTS>,
        name: impl Fn(&str) -> String,
        (outputs, inputs): ([usize; PARTS], usize),
        biased: bool,
    ) -> Result<Self, ModelError> {
        let parts: Vec<(String, usize)> = match names {
            StackNames::Stacked(whole) => vec![(name(whole), outputs.iter().sum())],
            StackNames::Apart(names) => names.iter().map(|part| name(part)).zip(outputs).collect(),
        };
        Self::load(loader, device, &parts, inputs, biased)
    }

    fn load(
        loader: &Loader<'_>,
        device: &Arc<dyn Device>,
        parts: &[(String, usize)],
        inputs: usize,
        biased: bool,
    ) -> Result<Self, ModelError> {
        let mut merged: Vec<Encoded<'_>> = Vec::new();
        let mut bias = Vec::new();
        // Tensors borrow the files, which the checkpoint keeps open.
        let tensors = parts
            .iter()
            .map(|(name, rows)| {
                let weight = format!("{name}.weight");
                loader.checkpoint.find(&weight, &[*rows, inputs])
            })
            .collect::<Result<Vec<_>, _>>()?;
        for ((name, rows), tensor) in parts.iter().zip(&tensors) {
            let weight = format!("{name}.weight");
            let order = loader.checkpoint.row_order(&weight, loader.spec);
            let mut encoded = encode(tensor, loader, &weight, [*rows, inputs])?;
            encoded.put_in_order(|row| order.output(row));
            match merged.last_mut() {
                Some(last) if last.format == encoded.format => {
                    last.rows += encoded.rows;
                    last.bytes.to_mut().extend_from_slice(&encoded.bytes);
                    last.scales.extend(encoded.scales);
                }
                _ => merged.push(encoded),
            }
            if biased {
                let name = format!("{name}.bias");
                let order = loader.checkpoint.row_order(&name, loader.spec);
                let first = bias.len();
                bias.resize(first + rows, 0.0);
                for (row, value) in loader.vector(&name, *rows)?.into_iter().enumerate() {
                    bias[first + order.output(row)] = value;
                }
            }
        }
        let matrices = merged.iter().map(|part| {
            let shape = [part.rows, inputs];
            Matrix::upload(device, part.format, shape, &part.bytes, &part.scales)
        });
        Ok(Self {
            matrices: matrices.collect::<Result<_, DeviceError>>()?,
            bias: match biased {
                true => Some(Buffer::of(device, &bias)?),
                false => None,
            },
            outputs: parts.iter().map(|(_, rows)| rows).sum(),
            inputs,
        })
    }

    /// Values of a row of results.
    pub(super) fn outputs(&self) -> usize {
        self.outputs
    }

    /// Bytes of the matrices.
    pub(super) fn bytes(&self) -> usize {
        self.matrices.iter().map(Matrix::bytes).sum()
    }

    /// Numbers of the largest quantised matrix.
    pub(super) fn largest_quantised(&self) -> usize {
        let halves = [Format::F32, Format::Bf16, Format::F16];
        let quantised = self
            .matrices
            .iter()
            .filter(|m| !halves.contains(&m.format()));
        quantised.map(|m| m.rows() * m.columns()).max().unwrap_or(0)
    }

    /// The whole, where it is one matrix: the embedding of tokens.
    pub(super) fn first(&self) -> &Matrix {
        &self.matrices[0]
    }

    /// Multiply rows without gaps, of the inputs, into rows of the outputs.
    pub(super) fn apply(
        &self,
        device: &dyn Device,
        x: &Buffer<f32>,
        out: &Buffer<f32>,
        rows: usize,
        scalars: Scalars,
        workspace: &Workspace,
    ) -> Result<(), DeviceError> {
        let x = Rows {
            slice: x.all(),
            stride: self.inputs,
            count: rows,
        };
        let mut first = 0;
        for matrix in &self.matrices {
            let part = Linear {
                matrix,
                bias: self.bias.as_ref().map(|bias| bias.from(first)),
                scalars,
            };
            let out = Rows {
                slice: out.from(first),
                stride: self.outputs,
                count: rows,
            };
            linear(device, &part, x, out, workspace)?;
            first += matrix.rows();
        }
        Ok(())
    }
}

impl Encoded<'_> {
    fn into_owned(self) -> Encoded<'static> {
        Encoded {
            bytes: Cow::Owned(self.bytes.into_owned()),
            ..self
        }
    }

    /// Move every row to the place that `output` gives it.
    fn put_in_order(&mut self, output: impl Fn(usize) -> usize) {
        if (0..self.rows).all(|row| output(row) == row) {
            return;
        }
        self.bytes = Cow::Owned(ordered(&self.bytes, self.rows, &output));
        self.scales = ordered(&self.scales, self.rows, &output);
    }
}

/// Numbers of rows of one length, each row where `output` puts it.
fn ordered<T: Copy + Default>(
    numbers: &[T],
    rows: usize,
    output: impl Fn(usize) -> usize,
) -> Vec<T> {
    let length = numbers.len() / rows;
    let mut ordered = vec![T::default(); numbers.len()];
    for (row, numbers) in numbers.chunks_exact(length.max(1)).enumerate() {
        ordered[output(row) * length..][..length].copy_from_slice(numbers);
    }
    ordered
}

/// A tensor in a format that the kernels read: what the precision asks for, where the columns allow it.
/// Block types without a kernel become f16.
pub(super) fn encode<'a>(
    tensor: &'a StoredTensor,
    loader: &Loader<'_>,
    name: &str,
    shape: [usize; 2],
) -> Result<Encoded<'a>, ModelError> {
    let bytes = tensor.place.bytes();
    let Some(scales) = &tensor.scales else {
        return encode_numbers((tensor.numbers, bytes), loader, name, shape);
    };
    let [rows, columns] = shape;
    if loader.precision == WeightPrecision::AsStored
        && columns.is_multiple_of(Format::Fp8.columns())
        && let Some(scales) = scales.spread(rows, FP8_SCALED)
    {
        return Ok(Encoded {
            format: Format::Fp8,
            rows,
            bytes: Cow::Borrowed(bytes),
            scales,
        });
    }
    let narrowed = Loader {
        precision: match loader.precision {
            WeightPrecision::AsStored => WeightPrecision::Bf16,
            other => other,
        },
        ..*loader
    };
    let weights = scales.apply(bytes);
    let numbers = (NumberType::F32, weights.as_bytes());
    encode_numbers(numbers, &narrowed, name, shape).map(Encoded::into_owned)
}

/// Encode numbers without scales.
pub(super) fn encode_numbers<'a>(
    (stored, bytes): (NumberType, &'a [u8]),
    loader: &Loader<'_>,
    name: &str,
    [rows, columns]: [usize; 2],
) -> Result<Encoded<'a>, ModelError> {
    let fits = |format: Format| columns.is_multiple_of(format.columns());
    let as_stored = match stored {
        NumberType::F32 => Some(Format::F32),
        NumberType::F16 => Some(Format::F16),
        NumberType::Bf16 => Some(Format::Bf16),
        NumberType::Blocks(BlockType::Q8_0) => Some(Format::Q8_0),
        NumberType::Blocks(BlockType::Q4K) => Some(Format::Q4K),
        NumberType::Blocks(BlockType::Mxfp4) => Some(Format::Mxfp4),
        NumberType::Blocks(_) | NumberType::Fp8 => None,
    };
    let quantised = matches!(stored, NumberType::Blocks(_));
    let wanted = match loader.precision {
        WeightPrecision::F32 => Format::F32,
        WeightPrecision::Bf16 => Format::Bf16,
        WeightPrecision::Q4K if !quantised && fits(Format::Q4K) => Format::Q4K,
        WeightPrecision::Q4K | WeightPrecision::Q8_0 if !quantised && fits(Format::Q8_0) => {
            Format::Q8_0
        }
        WeightPrecision::AsStored | WeightPrecision::Q8_0 | WeightPrecision::Q4K => {
            as_stored.unwrap_or(Format::F16)
        }
    };
    let format = [wanted, Format::F32]
        .into_iter()
        .find(|format| fits(*format))
        .ok_or_else(|| ModelError::NotOnDevice {
            architecture: loader.spec.architecture.name(),
            feature: format!("{columns} inputs, which are no multiple of 4 (`{name}`),"),
        })?;
    let bytes = if as_stored == Some(format) {
        Cow::Borrowed(bytes)
    } else {
        let wide = widen(bytes, stored);
        Cow::Owned(match format {
            Format::Bf16 => wide
                .into_iter()
                .flat_map(|x| bf16::from_f32(x).to_le_bytes())
                .collect(),
            Format::F16 => wide
                .into_iter()
                .flat_map(|x| f16::from_f32(x).to_le_bytes())
                .collect(),
            Format::Q8_0 => quantise_q8_0(&wide),
            Format::Q4K => quantise_q4_k(&wide),
            // Nothing is converted to the others.
            _ => wide.as_bytes().to_vec(),
        })
    };
    Ok(Encoded {
        format,
        rows,
        bytes,
        scales: Vec::new(),
    })
}
