//! Matrices in a device's memory, in the formats that the kernels read.

use std::ops::Range;
use std::sync::Arc;

use zerocopy::{Immutable, IntoBytes};

use crate::buffer::{Buffer, address_of};
use crate::device::{Address, Device, DeviceError};

/// Numbers of a row that share a scale in [`Format::Fp8`].
pub const FP8_SCALED: usize = 128;

/// Number format of a matrix. `kernels/weights.cuh` says how each is read.
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
    /// Eight bits with an exponent of four (e4m3), and a scale in f32 for each [`FP8_SCALED`] of a row
    /// and for what is left of it.
    Fp8,
    /// Four bits with an exponent of two, and a power of two for each 32.
    Mxfp4,
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 7] = [
        Self::F32,
        Self::Bf16,
        Self::F16,
        Self::Q8_0,
        Self::Q4K,
        Self::Fp8,
        Self::Mxfp4,
    ];

    /// Number that divides the columns of a matrix of the format.
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

    /// Bytes of a row without scales that lie apart.
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
            Self::Fp8 => columns.div_ceil(FP8_SCALED) * size_of::<f32>(),
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
    /// Address of the numbers.
    pub(crate) fn numbers(self) -> Address {
        self.numbers
    }
}

impl Matrix {
    /// A matrix of zeros, to be written.
    ///
    /// Panics where the columns are no multiple of [`Format::columns`].
    pub fn zeros(
        device: &Arc<dyn Device>,
        format: Format,
        [rows, columns]: [usize; 2],
    ) -> Result<Self, DeviceError> {
        assert!(columns > 0 && columns.is_multiple_of(format.columns()));
        assert!(i32::try_from(rows).is_ok() && i32::try_from(columns).is_ok());
        let scales = rows.saturating_mul(format.scale_bytes(columns));
        Ok(Self {
            format,
            rows,
            columns,
            numbers: Buffer::zeros(device, rows.saturating_mul(format.row_bytes(columns)))?,
            scales: match scales {
                0 => None,
                _ => Some(Buffer::zeros(device, scales)?),
            },
        })
    }

    /// Copy a matrix: see [`Self::write`].
    pub fn upload(
        device: &Arc<dyn Device>,
        format: Format,
        [rows, columns]: [usize; 2],
        bytes: &[u8],
        scales: &[f32],
    ) -> Result<Self, DeviceError> {
        let mut matrix = Self::zeros(device, format, [rows, columns])?;
        matrix.write(0..rows, bytes, scales)?;
        Ok(matrix)
    }

    /// Copy rows as they lie in files: little-endian numbers, or GGUF's blocks. Of FP8, numbers
    /// without their scales, which are `scales`, row by row; other formats have none of those.
    ///
    /// Panics where the bytes or scales are not those of such rows of this matrix.
    pub fn write(
        &mut self,
        rows: Range<usize>,
        bytes: &[u8],
        scales: &[f32],
    ) -> Result<(), DeviceError> {
        assert!(rows.start <= rows.end && rows.end <= self.rows);
        let (format, columns) = (self.format, self.columns);
        let (row, row_scales) = (format.row_bytes(columns), format.scale_bytes(columns));
        let fp8 = format == Format::Fp8;
        let [scale_bytes, block_scales] = if fp8 {
            [row_scales, 0]
        } else {
            [0, row_scales]
        };
        assert!(size_of_val(scales) == rows.len() * scale_bytes);
        assert!(bytes.len() == rows.len() * (row + block_scales));
        let first = rows.start * row;
        let Some(to_scales) = &self.scales else {
            return self.numbers.upload(first, bytes);
        };
        let first_scale = rows.start * row_scales;
        if fp8 {
            self.numbers.upload(first, bytes)?;
            return to_scales.upload(first_scale, scales.as_bytes());
        }
        // Blocks of odd sizes come apart, so that pieces of 16 bytes are aligned.
        let before = format.scale_before();
        let blocks = bytes.chunks_exact(before + 32 * row / columns);
        let apart = |part: Range<usize>| -> Vec<u8> {
            blocks
                .clone()
                .flat_map(|block| &block[part.clone()])
                .copied()
                .collect()
        };
        self.numbers
            .upload(first, &apart(before..before + 32 * row / columns))?;
        to_scales.upload(first_scale, &apart(0..before))
    }

    /// Number format.
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

    /// Bytes that the matrix takes on the device.
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
