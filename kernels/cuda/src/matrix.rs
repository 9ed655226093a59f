//! Matrices in a device's memory, in the formats that the kernels read.

use std::sync::Arc;

use zerocopy::{Immutable, IntoBytes};

use crate::buffer::{Buffer, address_of};
use crate::device::{Address, Device, DeviceError};

/// How the numbers of a matrix are stored. `kernels/weights.cuh` says how each is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// f32.
    F32,
    /// bf16.
    Bf16,
    /// f16.
    F16,
    /// Eight bits, and a scale in f16 for each 32.
    Q8_0,
    /// Four bits with a scale and a minimum for each 32, six bits each.
    Q4K,
    /// Eight bits with an exponent of four (e4m3), and a scale for each row.
    Fp8,
    /// Four bits with an exponent of two, and a power of two for each 32.
    Mxfp4,
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::F32,
        Self::Bf16,
        Self::F16,
        Self::Q8_0,
        Self::Q4K,
        Self::Fp8,
        Self::Mxfp4,
    ];

    /// Of what number the columns of a matrix must be a multiple.
    pub fn columns(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 | Self::F16 => 8,
            Self::Fp8 => 16,
            Self::Q8_0 | Self::Mxfp4 => 32,
            Self::Q4K => 256,
        }
    }

    /// Weights that a thread reads at once.
    pub(crate) fn piece(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 | Self::F16 => 8,
            Self::Q8_0 | Self::Fp8 => 16,
            Self::Q4K | Self::Mxfp4 => 32,
        }
    }

    /// Bytes of a row, its scales apart.
    fn row_bytes(self, columns: usize) -> usize {
        match self {
            Self::F32 => 4 * columns,
            Self::Bf16 | Self::F16 => 2 * columns,
            Self::Q8_0 | Self::Fp8 => columns,
            Self::Mxfp4 => columns / 2,
            Self::Q4K => columns / 256 * 144,
        }
    }

    /// Bytes of a row's scales that lie apart.
    fn scale_bytes(self, columns: usize) -> usize {
        match self {
            Self::F32 | Self::Bf16 | Self::F16 | Self::Q4K => 0,
            Self::Q8_0 => columns / 32 * 2,
            Self::Mxfp4 => columns / 32,
            Self::Fp8 => 4,
        }
    }

    /// In a file's blocks of 32, bytes of the scale, which stands before the numbers.
    fn scale_before(self) -> usize {
        match self {
            Self::Q8_0 => 2,
            Self::Mxfp4 => 1,
            _ => 0,
        }
    }
}

/// A matrix, a row an output.
#[derive(Debug)]
pub struct Matrix {
    format: Format,
    rows: usize,
    columns: usize,
    numbers: Buffer<u8>,
    scales: Option<Buffer<u8>>,
}

/// `Matrix` of `kernels/weights.cuh`.
#[derive(Debug, Clone, Copy, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct MatrixParams {
    numbers: Address,
    scales: Address,
    rows: i32,
    columns: i32,
}

impl MatrixParams {
    /// Where the numbers lie.
    pub(crate) fn numbers(self) -> Address {
        self.numbers
    }
}

impl Matrix {
    /// Copy a matrix as it lies in files: little-endian numbers, or GGUF's blocks. Of FP8, numbers
    /// without the scales of rows, which are `row_scales`; other formats have none of those.
    ///
    /// Panics where the bytes are not those of `rows` rows, or the columns are no multiple of
    /// [`Format::columns`].
    pub fn upload(
        device: &Arc<dyn Device>,
        format: Format,
        [rows, columns]: [usize; 2],
        bytes: &[u8],
        row_scales: &[f32],
    ) -> Result<Self, DeviceError> {
        assert!(columns > 0 && columns.is_multiple_of(format.columns()));
        assert!(i32::try_from(rows).is_ok() && i32::try_from(columns).is_ok());
        let fp8 = format == Format::Fp8;
        assert!(row_scales.len() == if fp8 { rows } else { 0 });
        let (row, scales) = (format.row_bytes(columns), format.scale_bytes(columns));
        let before = format.scale_before();
        assert!(bytes.len() == rows * (row + if fp8 { 0 } else { scales }));
        let (numbers, scales) = if fp8 {
            let scales = Buffer::of(device, row_scales.as_bytes())?;
            (Buffer::of(device, bytes)?, Some(scales))
        } else if before > 0 {
            // Blocks of odd sizes come apart, so that pieces of 16 bytes are aligned.
            let blocks = bytes.chunks_exact(before + 32 * row / columns);
            let apart = |part: std::ops::Range<usize>| -> Vec<u8> {
                blocks
                    .clone()
                    .flat_map(|block| &block[part.clone()])
                    .copied()
                    .collect()
            };
            let numbers = apart(before..before + 32 * row / columns);
            let numbers = Buffer::of(device, &numbers)?;
            (numbers, Some(Buffer::of(device, &apart(0..before))?))
        } else {
            (Buffer::of(device, bytes)?, None)
        };
        Ok(Self {
            format,
            rows,
            columns,
            numbers,
            scales,
        })
    }

    /// How the numbers are stored.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Rows: outputs.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns: inputs.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.numbers.len() + self.scales.as_ref().map_or(0, Buffer::len)
    }

    pub(crate) fn params(&self) -> MatrixParams {
        MatrixParams {
            numbers: self.numbers.all().address(),
            scales: address_of(self.scales.as_ref().map(Buffer::all)),
            rows: self.rows as i32,
            columns: self.columns as i32,
        }
    }
}
