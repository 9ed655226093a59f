//! Mixture of experts: selection of the experts of each row, their products, and the sum of their outputs.
//!
//! The output of one expert for one row is a part; part `row * chosen + rank` is that of a row's `rank`th
//! best expert. Parts are put in tiles by expert, so that a weight is read once for a tile; a part's
//! bits do not depend on the others, up to as many rows as [`FEW_PARTS`] says.

use std::sync::Arc;

use zerocopy::{Immutable, IntoBytes};

use crate::buffer::{Buffer, Slice, address_of};
use crate::device::{Address, Device, DeviceError, Launch, Scalars};
use crate::linear::{MANY_ROWS, MANY_THREADS, Rows, many};
use crate::matrix::{Format, Matrix, MatrixParams};

/// Parts of an expert, on average, up to which weights are read as they come: above, tiles of many
/// parts cost less. No batch of [`linear::FEW_ROWS`](crate::linear::FEW_ROWS) rows has more.
pub const FEW_PARTS: usize = 8;
/// Outputs of a block of the kernel for few parts.
const FEW_OUTPUTS: usize = 4;
const WARP: usize = 32;
const WARPS_MAX: usize = 8;
const THREADS: usize = 256;
const GROUPING_THREADS_MAX: usize = 1024;

/// Routing parameters.
#[derive(Debug, Clone, Copy)]
pub struct Router<'a> {
    /// Number of experts.
    pub experts: usize,
    /// Experts of a row.
    pub chosen: usize,
    /// Whether scores are sigmoids of the logits rather than their softmax.
    pub sigmoid: bool,
    /// Selection bias, added to the scores but not to the weights: a number for each expert.
    pub correction: Option<Slice<'a, f32>>,
    /// Whether the shares of a row are divided by their sum.
    pub normalised: bool,
    /// Factor of the shares at last.
    pub scale: f32,
}

/// Routes of a batch: expert and weight of each pair of row and rank.
#[derive(Debug)]
pub struct Routes {
    experts: Buffer<i32>,
    shares: Buffer<f32>,
    order: Buffer<i32>,
    tiles: Buffer<i32>,
    rows: usize,
    count: usize,
    chosen: usize,
}

/// Tiling of the routed rows of a batch.
#[derive(Debug, Clone, Copy)]
struct Tiling {
    /// Parts of a tile at most.
    parts: usize,
    /// Tiles at most.
    tiles: usize,
}

impl Routes {
    /// Room for `rows` rows of `chosen` parts each, by `experts` experts.
    pub fn new(
        device: &Arc<dyn Device>,
        experts: usize,
        chosen: usize,
        rows: usize,
    ) -> Result<Self, DeviceError> {
        assert!(chosen > 0 && chosen <= experts);
        let parts = rows * chosen;
        Ok(Self {
            experts: Buffer::zeros(device, parts)?,
            shares: Buffer::zeros(device, parts)?,
            order: Buffer::zeros(device, parts)?,
            tiles: Buffer::zeros(device, 3 * parts)?,
            rows,
            count: experts,
            chosen,
        })
    }

    /// The expert and the share of each part, row by row and best first, when what was queued is done.
    pub fn to_vecs(&self) -> Result<(Vec<i32>, Vec<f32>), DeviceError> {
        Ok((self.experts.to_vec()?, self.shares.to_vec()?))
    }

    fn tiling(&self, rows: usize) -> Tiling {
        let parts = rows * self.chosen;
        // Experts differ in how many parts they get: room for twice the average.
        let tile = match parts.div_ceil(self.count) {
            0..=FEW_PARTS => (2 * parts / self.count).next_power_of_two().min(FEW_PARTS),
            _ => MANY_ROWS,
        };
        Tiling {
            parts: tile,
            tiles: parts.min(self.count + parts / tile),
        }
    }
}

#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct RouteParams {
    logits: Address,
    correction: Address,
    experts: Address,
    shares: Address,
    count: i32,
    chosen: i32,
    sigmoid: i32,
    normalised: i32,
    scale: f32,
    padding: u32,
}

#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct GroupParams {
    experts: Address,
    order: Address,
    tiles: Address,
    parts: i32,
    count: i32,
    tile: i32,
    tiles_max: i32,
}

/// Select the experts of rows by logits that lie without gaps, and tile the routed rows.
#[allow(unsafe_code, reason = "shapes are checked first")]
pub fn route(
    device: &dyn Device,
    router: &Router<'_>,
    logits: Slice<'_, f32>,
    rows: usize,
    routes: &Routes,
) -> Result<(), DeviceError> {
    let Router {
        experts, chosen, ..
    } = *router;
    assert!(experts == routes.count && chosen == routes.chosen && rows <= routes.rows);
    assert!(logits.len() >= rows * experts);
    assert!(
        router
            .correction
            .is_none_or(|correction| correction.len() == experts)
    );
    if rows == 0 {
        return Ok(());
    }
    let params = RouteParams {
        logits: logits.address(),
        correction: address_of(router.correction),
        experts: routes.experts.all().address(),
        shares: routes.shares.all().address(),
        count: experts as i32,
        chosen: chosen as i32,
        sigmoid: i32::from(router.sigmoid),
        normalised: i32::from(router.normalised),
        scale: router.scale,
        padding: 0,
    };
    let launch = Launch {
        kernel: "route_rows",
        grid: [rows as u32, 1, 1],
        threads: WARP as u32,
        shared: ((2 * experts + chosen) * size_of::<f32>()) as u32,
        params: params.as_bytes(),
    };
    // SAFETY: there are logits for each row, and room for its parts.
    unsafe { device.launch(&launch)? };
    let tiling = routes.tiling(rows);
    let params = GroupParams {
        experts: routes.experts.all().address(),
        order: routes.order.all().address(),
        tiles: routes.tiles.all().address(),
        parts: (rows * chosen) as i32,
        count: experts as i32,
        tile: tiling.parts as i32,
        tiles_max: tiling.tiles as i32,
    };
    let launch = Launch {
        kernel: "group_parts",
        grid: [1, 1, 1],
        // Few parts are counted soonest by few threads.
        threads: (rows * chosen / 4)
            .next_multiple_of(WARP)
            .clamp(WARP, GROUPING_THREADS_MAX) as u32,
        shared: (experts * size_of::<u32>()) as u32,
        params: params.as_bytes(),
    };
    // SAFETY: experts of parts are below `experts`; no more tiles come of them than `tiling` says, for
    // which there is room.
    unsafe { device.launch(&launch) }
}

/// The matrices of all experts.
#[derive(Debug, Clone, Copy)]
pub struct ExpertLinear<'a> {
    /// Experts one below the other, each with as many rows.
    pub matrix: &'a Matrix,
    /// A number for each row of the matrix.
    pub bias: Option<Slice<'a, f32>>,
}

/// Rows that experts multiply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inputs {
    /// Parts of a row share it.
    OfRows,
    /// Each part has one of its own.
    OfParts,
}

#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct ExpertProductParams {
    matrix: MatrixParams,
    x: Address,
    bias: Address,
    out: Address,
    order: Address,
    tiles: Address,
    outputs: i32,
    shared_by: i32,
}

/// Let the experts of `rows` rows multiply: a row of results for each part. Rows of `x` and `out` lie
/// without gaps; `x` begins at a multiple of 16 bytes.
#[allow(unsafe_code, reason = "shapes are checked first")]
pub fn products(
    device: &dyn Device,
    linear: &ExpertLinear<'_>,
    routes: &Routes,
    rows: usize,
    (x, inputs): (Slice<'_, f32>, Inputs),
    out: Slice<'_, f32>,
) -> Result<(), DeviceError> {
    let matrix = linear.matrix;
    let (outputs, parts) = (matrix.rows() / routes.count, rows * routes.chosen);
    assert!(rows <= routes.rows && matrix.rows() == outputs * routes.count);
    let shared_by = match inputs {
        Inputs::OfRows => routes.chosen,
        Inputs::OfParts => 1,
    };
    assert!(x.len() >= parts / shared_by * matrix.columns() && out.len() >= parts * outputs);
    assert!(matrix.columns().is_multiple_of(4) && x.address().0.is_multiple_of(16));
    assert!(linear.bias.is_none_or(|bias| bias.len() >= matrix.rows()));
    if rows == 0 {
        return Ok(());
    }
    let params = ExpertProductParams {
        matrix: matrix.params(),
        x: x.address(),
        bias: address_of(linear.bias),
        out: out.address(),
        order: routes.order.all().address(),
        tiles: routes.tiles.all().address(),
        outputs: outputs as i32,
        shared_by: shared_by as i32,
    };
    let tiling = routes.tiling(rows);
    let (blocks, threads, shared) = if tiling.parts > FEW_PARTS {
        let (tile, shared) = many(matrix.format());
        (outputs.div_ceil(tile), MANY_THREADS, shared)
    } else {
        let pieces = matrix.columns() / matrix.format().piece();
        let warps = pieces.div_ceil(WARP).clamp(1, WARPS_MAX);
        let blocks = outputs.div_ceil(FEW_OUTPUTS);
        let floats = warps * FEW_OUTPUTS * tiling.parts;
        (blocks, warps * WARP, floats * size_of::<f32>())
    };
    let launch = Launch {
        kernel: kernel(matrix.format(), tiling.parts),
        grid: [blocks as u32, tiling.tiles as u32, 1],
        threads: threads as u32,
        shared: shared as u32,
        params: params.as_bytes(),
    };
    // SAFETY: tiles and order are those of as many rows, whose inputs and results have room.
    unsafe { device.launch(&launch) }
}

/// An expert for all rows.
#[derive(Debug, Clone, Copy)]
pub struct Common<'a> {
    /// Output rows, without gaps.
    pub results: Slice<'a, f32>,
    /// Numbers whose sigmoids are its share in each row; `None` is a share of 1.
    pub gates: Option<Slice<'a, f32>>,
}

#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct CombineParams {
    parts: Address,
    shares: Address,
    common: Address,
    common_gates: Address,
    out: Address,
    chosen: i32,
    width: i32,
    accumulate: i32,
    scale: f32,
}

/// Add the parts of each row by their shares, best first and what is common last, into rows of `out`
/// without gaps.
#[allow(unsafe_code, reason = "shapes are checked first")]
pub fn combine(
    device: &dyn Device,
    routes: &Routes,
    parts: Slice<'_, f32>,
    common: Option<Common<'_>>,
    scalars: Scalars,
    out: Rows<'_>,
) -> Result<(), DeviceError> {
    let (rows, width) = (out.count, out.stride);
    assert!(rows <= routes.rows && out.hold(width) && width > 0);
    assert!(parts.len() >= rows * routes.chosen * width);
    assert!(common.is_none_or(|common| common.results.len() >= rows * width));
    let gates = common.and_then(|common| common.gates);
    assert!(gates.is_none_or(|gates| gates.len() >= rows));
    if rows == 0 {
        return Ok(());
    }
    let params = CombineParams {
        parts: parts.address(),
        shares: routes.shares.all().address(),
        common: address_of(common.map(|common| common.results)),
        common_gates: address_of(gates),
        out: out.slice.address(),
        chosen: routes.chosen as i32,
        width: width as i32,
        accumulate: i32::from(scalars.accumulate),
        scale: scalars.scale,
    };
    let launch = Launch {
        kernel: "combine_rows",
        grid: [rows as u32, width.div_ceil(THREADS) as u32, 1],
        threads: width.next_multiple_of(WARP).min(THREADS) as u32,
        shared: 0,
        params: params.as_bytes(),
    };
    // SAFETY: there are parts and shares for each row of `out`.
    unsafe { device.launch(&launch) }
}

/// Names of the kernels of one format, by the parts of a tile.
macro_rules! kernels {
    ($format:expr, $parts:expr, $($case:ident => $name:literal),*) => {
        match ($format, $parts) {
            $(
                (Format::$case, 1) => concat!("experts_", $name, "_1"),
                (Format::$case, 2) => concat!("experts_", $name, "_2"),
                (Format::$case, 4) => concat!("experts_", $name, "_4"),
                (Format::$case, FEW_PARTS) => concat!("experts_", $name, "_8"),
                (Format::$case, _) => concat!("experts_", $name, "_many"),
            )*
        }
    };
}

fn kernel(format: Format, parts: usize) -> &'static str {
    kernels!(format, parts, F32 => "f32", Bf16 => "bf16", F16 => "f16", Q8_0 => "q8_0",
        Q4K => "q4_k", Fp8 => "fp8", Mxfp4 => "mxfp4")
}
