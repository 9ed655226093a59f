//! Products of rows of activations with matrices.
//!
//! Up to [`FEW_ROWS`] rows go through a kernel that reads every weight once. More rows go to cuBLASLt where the device
//! has it, quantised matrices by way of bf16, and else through a kernel in tiles. For more than [`FEW_ROWS`] rows,
//! activations and quantised weights are rounded to 16 bits, except those of matrices in f32.

use std::sync::Arc;

use zerocopy::{Immutable, IntoBytes};

use crate::buffer::{Buffer, Slice, address_of};
use crate::device::{Address, Device, DeviceError, HalfType, Launch, Product, Scalars};
use crate::matrix::{Format, Matrix, MatrixParams};

/// Rows whose products do not depend on one another, and are computed at the speed of the memory.
pub const FEW_ROWS: usize = 8;
/// Quantised matrices are read once for each [`FEW_ROWS`] up to so many rows: above, making them
/// bf16 costs less.
const QUANTISED_ROWS: usize = 32;
/// Outputs of a block of the kernel for few rows.
const FEW_OUTPUTS: usize = 4;
/// Rows of a tile of that for many.
pub(crate) const MANY_ROWS: usize = 64;
pub(crate) const MANY_THREADS: usize = 256;
const WARP: usize = 32;
const WARPS_MAX: usize = 8;

/// Room that products of many rows need.
#[derive(Debug)]
pub struct Workspace {
    activations: Buffer<u16>,
    weights: Buffer<u16>,
}

impl Workspace {
    /// For activations of `activations` numbers, and quantised matrices of up to `weights`.
    pub fn new(
        device: &Arc<dyn Device>,
        activations: usize,
        weights: usize,
    ) -> Result<Self, DeviceError> {
        Ok(Self {
            activations: Buffer::zeros(device, activations)?,
            weights: Buffer::zeros(device, weights)?,
        })
    }
}

/// Rows of a slice.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a> {
    /// Start of the first row.
    pub slice: Slice<'a, f32>,
    /// Numbers from one to the next.
    pub stride: usize,
    /// Number of rows.
    pub count: usize,
}

impl Rows<'_> {
    /// Whether there is room for `width` numbers in each.
    pub(crate) fn hold(&self, width: usize) -> bool {
        let last = self.count.saturating_sub(1) * self.stride;
        self.count == 0 || (width <= self.stride && last + width <= self.slice.len())
    }
}

/// A matrix and what becomes of its product: `out = scale * (x * transpose(matrix) + bias)`, perhaps
/// added to what was there.
#[derive(Debug, Clone, Copy)]
pub struct Linear<'a> {
    /// The matrix.
    pub matrix: &'a Matrix,
    /// A number for each output.
    pub bias: Option<Slice<'a, f32>>,
    /// Factor, and what becomes of what was there.
    pub scalars: Scalars,
}

#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct LinearParams {
    matrix: MatrixParams,
    x: Address,
    bias: Address,
    out: Address,
    x_stride: i32,
    out_stride: i32,
    rows: i32,
    accumulate: i32,
    scale: f32,
    padding: u32,
}

#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct NarrowParams {
    x: Address,
    out: Address,
    length: u64,
}

#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct WidenParams {
    matrix: MatrixParams,
    out: Address,
}

#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct AddBiasParams {
    bias: Address,
    out: Address,
    outputs: i32,
    out_stride: i32,
    scale: f32,
    padding: u32,
}

/// Multiply rows of `x` into rows of `out`. Rows of `x` begin at multiples of 16 bytes.
pub fn linear(
    device: &dyn Device,
    linear: &Linear<'_>,
    x: Rows<'_>,
    out: Rows<'_>,
    workspace: &Workspace,
) -> Result<(), DeviceError> {
    let matrix = linear.matrix;
    assert!(x.count == out.count && x.hold(matrix.columns()) && out.hold(matrix.rows()));
    assert!(x.stride.is_multiple_of(4) && x.slice.address().0.is_multiple_of(16));
    assert!(linear.bias.is_none_or(|bias| bias.len() >= matrix.rows()));
    if x.count == 0 {
        return Ok(());
    }
    if x.count > FEW_ROWS {
        if by_library(device, linear, x, out, workspace)? {
            return Ok(());
        }
        let few_at_a_time = x.count <= QUANTISED_ROWS && halves(matrix.format()).is_none();
        if !few_at_a_time {
            return launch_linear(device, linear, x, out, x.count, "many");
        }
    }
    for first in (0..x.count).step_by(FEW_ROWS) {
        let rows = FEW_ROWS.min(x.count - first);
        let part = |rows: Rows<'_>| first * rows.stride * size_of::<f32>();
        launch_linear_at(
            device,
            linear,
            [offset(x.slice, part(x)), offset(out.slice, part(out))],
            [x.stride, out.stride],
            rows,
            few(rows),
        )?;
    }
    Ok(())
}

/// Outputs of a block of the kernel for many rows, and its bytes of shared memory. Numbers in f32 are
/// multiplied as they are, others by tensor cores.
pub(crate) fn many(format: Format) -> (usize, usize) {
    match format {
        Format::F32 => (32, 2 * 32 * 65 * size_of::<f32>()),
        _ => (64, 2 * 64 * 72 * size_of::<u16>()),
    }
}

fn offset(slice: Slice<'_, f32>, bytes: usize) -> Address {
    Address(slice.address().0 + bytes as u64)
}

/// For how many rows the kernel is compiled that takes these.
fn few(rows: usize) -> &'static str {
    match rows {
        0..=1 => "1",
        2 => "2",
        3..=4 => "4",
        _ => "8",
    }
}

fn launch_linear(
    device: &dyn Device,
    linear: &Linear<'_>,
    x: Rows<'_>,
    out: Rows<'_>,
    rows: usize,
    kind: &'static str,
) -> Result<(), DeviceError> {
    let addresses = [x.slice.address(), out.slice.address()];
    launch_linear_at(
        device,
        linear,
        addresses,
        [x.stride, out.stride],
        rows,
        kind,
    )
}

#[allow(unsafe_code, reason = "`linear` checked what the addresses hold")]
fn launch_linear_at(
    device: &dyn Device,
    linear: &Linear<'_>,
    [x, out]: [Address; 2],
    [x_stride, out_stride]: [usize; 2],
    rows: usize,
    kind: &'static str,
) -> Result<(), DeviceError> {
    let matrix = linear.matrix;
    let params = LinearParams {
        matrix: matrix.params(),
        x,
        bias: address_of(linear.bias),
        out,
        x_stride: x_stride as i32,
        out_stride: out_stride as i32,
        rows: rows as i32,
        accumulate: i32::from(linear.scalars.accumulate),
        scale: linear.scalars.scale,
        padding: 0,
    };
    let outputs = matrix.rows();
    let (grid, threads, shared) = if kind == "many" {
        let (tile, shared) = many(matrix.format());
        let grid = [outputs.div_ceil(tile), rows.div_ceil(MANY_ROWS), 1];
        (grid, MANY_THREADS, shared)
    } else {
        let pieces = matrix.columns() / matrix.format().piece();
        let warps = pieces.div_ceil(WARP).clamp(1, WARPS_MAX);
        let columns = rows.next_power_of_two();
        let grid = [outputs.div_ceil(FEW_OUTPUTS), 1, 1];
        let floats = warps * FEW_OUTPUTS * columns;
        (grid, warps * WARP, floats * size_of::<f32>())
    };
    let launch = Launch {
        kernel: kernel(matrix.format(), kind),
        grid: grid.map(|blocks| blocks as u32),
        threads: threads as u32,
        shared: shared as u32,
        params: params.as_bytes(),
    };
    // SAFETY: `linear` checked that the matrix's columns and rows fit those of `x` and `out`, and
    // slices borrow the buffers that they lie in.
    unsafe { device.launch(&launch) }
}

/// The half type of formats that cuBLASLt takes as they are.
fn halves(format: Format) -> Option<HalfType> {
    match format {
        Format::Bf16 => Some(HalfType::Bf16),
        Format::F16 => Some(HalfType::F16),
        _ => None,
    }
}

/// The product by cuBLASLt; false where it cannot be had.
#[allow(
    unsafe_code,
    reason = "`linear` checked shapes, and the workspace is checked here"
)]
fn by_library(
    device: &dyn Device,
    linear: &Linear<'_>,
    x: Rows<'_>,
    out: Rows<'_>,
    workspace: &Workspace,
) -> Result<bool, DeviceError> {
    let matrix = linear.matrix;
    let (outputs, inputs) = (matrix.rows(), matrix.columns());
    let numbers = x.count * inputs;
    let whole = x.stride == inputs && numbers <= workspace.activations.len();
    let widened = widening(matrix.format());
    let halves = halves(matrix.format()).or(widened.map(|_| HalfType::Bf16));
    let fits = outputs * inputs <= workspace.weights.len() && x.count > QUANTISED_ROWS;
    let Some(halves) = halves.filter(|_| whole && (widened.is_none() || fits)) else {
        return Ok(false);
    };
    let mut product = Product {
        halves,
        weights: match widened {
            Some(_) => workspace.weights.all().address(),
            None => matrix.params().numbers(),
        },
        x: workspace.activations.all().address(),
        out: out.slice.address(),
        rows: 0,
        inputs,
        outputs,
        out_stride: out.stride,
        scalars: linear.scalars,
    };
    // A product of no rows asks whether there is a library.
    // SAFETY: nothing is read or written.
    if !unsafe { device.multiply(&product)? } {
        return Ok(false);
    }
    product.rows = x.count;
    narrow(device, x, numbers, product)?;
    if let Some(kernel) = widened {
        widen(device, matrix, kernel, product.weights)?;
    }
    // SAFETY: `x` was narrowed to the workspace, and `out` holds the rows.
    let multiplied = unsafe { device.multiply(&product)? };
    if multiplied && let Some(bias) = linear.bias {
        add_bias(device, bias, product)?;
    }
    Ok(multiplied)
}

#[allow(unsafe_code, reason = "`by_library` checked the workspace")]
fn widen(
    device: &dyn Device,
    matrix: &Matrix,
    kernel: &'static str,
    out: Address,
) -> Result<(), DeviceError> {
    let params = WidenParams {
        matrix: matrix.params(),
        out,
    };
    let launch = Launch {
        kernel,
        grid: [matrix.rows() as u32, 1, 1],
        threads: 128,
        shared: 0,
        params: params.as_bytes(),
    };
    // SAFETY: the workspace holds as many halves as the matrix has numbers.
    unsafe { device.launch(&launch) }
}

#[allow(unsafe_code, reason = "`linear` checked shapes")]
fn add_bias(
    device: &dyn Device,
    bias: Slice<'_, f32>,
    product: Product,
) -> Result<(), DeviceError> {
    let params = AddBiasParams {
        bias: bias.address(),
        out: product.out,
        outputs: product.outputs as i32,
        out_stride: product.out_stride as i32,
        scale: product.scalars.scale,
        padding: 0,
    };
    let launch = Launch {
        kernel: "add_bias_rows",
        grid: [product.rows as u32, 1, 1],
        threads: 256,
        shared: 0,
        params: params.as_bytes(),
    };
    // SAFETY: the bias has a number for each output, and `out` holds the rows.
    unsafe { device.launch(&launch) }
}

#[allow(unsafe_code, reason = "`by_library` checked the workspace")]
fn narrow(
    device: &dyn Device,
    x: Rows<'_>,
    numbers: usize,
    product: Product,
) -> Result<(), DeviceError> {
    let params = NarrowParams {
        x: x.slice.address(),
        out: product.x,
        length: numbers as u64,
    };
    let launch = Launch {
        kernel: match product.halves {
            HalfType::Bf16 => "narrow_bf16",
            HalfType::F16 => "narrow_f16",
        },
        grid: [numbers.div_ceil(1024).min(4096) as u32, 1, 1],
        threads: 256,
        shared: 0,
        params: params.as_bytes(),
    };
    // SAFETY: `x` has no gaps and as many numbers, for which the workspace has room.
    unsafe { device.launch(&launch) }
}

/// Names of the kernels of one format.
macro_rules! kernels {
    ($format:expr, $kind:expr, $($case:ident => $name:literal),*) => {
        match ($format, $kind) {
            $(
                (Format::$case, "1") => concat!("linear_", $name, "_1"),
                (Format::$case, "2") => concat!("linear_", $name, "_2"),
                (Format::$case, "4") => concat!("linear_", $name, "_4"),
                (Format::$case, "8") => concat!("linear_", $name, "_8"),
                (Format::$case, _) => concat!("linear_", $name, "_many"),
            )*
        }
    };
}

fn kernel(format: Format, kind: &'static str) -> &'static str {
    kernels!(format, kind, F32 => "f32", Bf16 => "bf16", F16 => "f16", Q8_0 => "q8_0",
        Q4K => "q4_k", Fp8 => "fp8", Mxfp4 => "mxfp4")
}

/// The kernel that makes a quantised matrix bf16.
fn widening(format: Format) -> Option<&'static str> {
    match format {
        Format::F32 | Format::Bf16 | Format::F16 => None,
        Format::Q8_0 => Some("widen_q8_0"),
        Format::Q4K => Some("widen_q4_k"),
        Format::Fp8 => Some("widen_fp8"),
        Format::Mxfp4 => Some("widen_mxfp4"),
    }
}
