//! Row-wise ops: token embedding, norms, gates, soft caps.

use zerocopy::{Immutable, IntoBytes};

use crate::buffer::{Slice, address_of};
use crate::device::{Address, Device, DeviceError, Launch};
use crate::linear::Rows;
use crate::matrix::{Format, Matrix, MatrixParams};

/// Threads of a block where nothing asks for another number.
const THREADS: u32 = 256;
const WARP: usize = 32;

#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct EmbedParams {
    matrix: MatrixParams,
    tokens: Address,
    out: Address,
    scale: f32,
    padding: u32,
}

/// Write the row of each token, times `scale`, to `out`, which has as many rows without gaps.
/// Tokens must be below the matrix's rows: they are not looked at here.
#[allow(unsafe_code, reason = "shapes are checked first")]
pub fn embed(
    device: &dyn Device,
    matrix: &Matrix,
    tokens: Slice<'_, i32>,
    scale: f32,
    out: Rows<'_>,
) -> Result<(), DeviceError> {
    assert!(tokens.len() >= out.count && out.stride == matrix.columns());
    assert!(out.hold(matrix.columns()));
    if out.count == 0 {
        return Ok(());
    }
    let params = EmbedParams {
        matrix: matrix.params(),
        tokens: tokens.address(),
        out: out.slice.address(),
        scale,
        padding: 0,
    };
    let launch = Launch {
        kernel: match matrix.format() {
            Format::F32 => "embed_f32",
            Format::Bf16 => "embed_bf16",
            Format::F16 => "embed_f16",
            Format::Q8_0 => "embed_q8_0",
            Format::Q4K => "embed_q4_k",
            Format::Fp8 => "embed_fp8",
            Format::Mxfp4 => "embed_mxfp4",
        },
        grid: [out.count as u32, 1, 1],
        threads: 128,
        shared: 0,
        params: params.as_bytes(),
    };
    // SAFETY: there is a token for each row of `out`, which has the matrix's width.
    unsafe { device.launch(&launch) }
}

/// Root-mean-square normalisation (arXiv 1910.07467).
#[derive(Debug, Clone, Copy)]
pub struct RmsNorm<'a> {
    /// A weight for each number of a row.
    pub weight: Slice<'a, f32>,
    /// Added to the mean square.
    pub epsilon: f32,
    /// The row of `x` from which each row comes; `None` is its own. They must be rows of `x`: they
    /// are not looked at here.
    pub sources: Option<Slice<'a, i32>>,
    /// `None` writes the normalised rows; else they are added, times this, to what was there.
    pub added: Option<f32>,
}

#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct RmsNormParams {
    x: Address,
    weight: Address,
    sources: Address,
    out: Address,
    width: i32,
    x_stride: i32,
    out_stride: i32,
    accumulate: i32,
    epsilon: f32,
    scale: f32,
}

/// Normalise rows of `x` into those of `out`, which may be the same.
#[allow(unsafe_code, reason = "shapes are checked first")]
pub fn rms_norm(
    device: &dyn Device,
    norm: &RmsNorm<'_>,
    x: Rows<'_>,
    out: Rows<'_>,
) -> Result<(), DeviceError> {
    let width = norm.weight.len();
    assert!(width > 0 && x.hold(width) && out.hold(width));
    match norm.sources {
        None => assert!(x.count == out.count),
        Some(sources) => assert!(sources.len() >= out.count),
    }
    if out.count == 0 {
        return Ok(());
    }
    let params = RmsNormParams {
        x: x.slice.address(),
        weight: norm.weight.address(),
        sources: address_of(norm.sources),
        out: out.slice.address(),
        width: width as i32,
        x_stride: x.stride as i32,
        out_stride: out.stride as i32,
        accumulate: i32::from(norm.added.is_some()),
        epsilon: norm.epsilon,
        scale: norm.added.unwrap_or(1.0),
    };
    let warps = width.div_ceil(4 * WARP).clamp(1, 32);
    let launch = Launch {
        kernel: "rms_norm_rows",
        grid: [out.count as u32, 1, 1],
        threads: (warps * WARP) as u32,
        shared: (warps * size_of::<f32>()) as u32,
        params: params.as_bytes(),
    };
    // SAFETY: both hold rows of the weight's width.
    unsafe { device.launch(&launch) }
}

/// Activation of a gate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Activation {
    /// `gate * sigmoid(gate)`.
    Silu,
    /// The Gaussian error linear unit, as approximated with a hyperbolic tangent.
    GeluTanh,
    /// `gate * sigmoid(alpha * gate)` of a gate of at most `limit`; ups are clamped to
    /// `[-limit, limit]` and raised by 1.
    ClampedSwish {
        /// Steepness.
        alpha: f32,
        /// Bound.
        limit: f32,
    },
}

#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct GateMulParams {
    gate_up: Address,
    out: Address,
    width: i32,
    activation: i32,
    alpha: f32,
    limit: f32,
}

/// For each of `rows` rows of `gate_up` (`width` gates, then as many ups) write `width` products.
#[allow(unsafe_code, reason = "shapes are checked first")]
pub fn gate_mul(
    device: &dyn Device,
    activation: Activation,
    gate_up: Slice<'_, f32>,
    width: usize,
    rows: usize,
    out: Slice<'_, f32>,
) -> Result<(), DeviceError> {
    assert!(width > 0 && gate_up.len() >= 2 * width * rows && out.len() >= width * rows);
    if rows == 0 {
        return Ok(());
    }
    let (activation, alpha, limit) = match activation {
        Activation::Silu => (0, 0.0, 0.0),
        Activation::GeluTanh => (1, 0.0, 0.0),
        Activation::ClampedSwish { alpha, limit } => (2, alpha, limit),
    };
    let params = GateMulParams {
        gate_up: gate_up.address(),
        out: out.address(),
        width: width as i32,
        activation,
        alpha,
        limit,
    };
    let launch = Launch {
        kernel: "gate_mul_rows",
        grid: [rows as u32, width.div_ceil(THREADS as usize) as u32, 1],
        threads: width.next_multiple_of(WARP).min(THREADS as usize) as u32,
        shared: 0,
        params: params.as_bytes(),
    };
    // SAFETY: both hold so many rows.
    unsafe { device.launch(&launch) }
}

#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct SoftCapParams {
    x: Address,
    length: u64,
    cap: f32,
    padding: u32,
}

/// Bend the first `length` numbers towards `cap`: `cap * tanh(x / cap)`.
#[allow(unsafe_code, reason = "shapes are checked first")]
pub fn soft_cap(
    device: &dyn Device,
    x: Slice<'_, f32>,
    length: usize,
    cap: f32,
) -> Result<(), DeviceError> {
    assert!(length <= x.len() && cap > 0.0);
    if length == 0 {
        return Ok(());
    }
    let params = SoftCapParams {
        x: x.address(),
        length: length as u64,
        cap,
        padding: 0,
    };
    let launch = Launch {
        kernel: "soft_cap_all",
        grid: [length.div_ceil(1024).min(4096) as u32, 1, 1],
        threads: THREADS,
        shared: 0,
        params: params.as_bytes(),
    };
    // SAFETY: there are so many numbers.
    unsafe { device.launch(&launch) }
}
