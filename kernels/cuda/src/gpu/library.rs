//! Products by cuBLASLt, loaded when a device is opened, if it is there.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::Arc;

use cudarc::cublaslt::result::{self, CublasError};
use cudarc::cublaslt::sys;

use super::Driver;
use crate::device::{DeviceError, HalfType, Product};

/// Bytes that the library may compute in.
const WORKSPACE: usize = 32 << 20;

/// Results begin at multiples of so many bytes; weights and activations at those that `allocate` promises,
/// which the library takes for granted.
pub(super) const OUT_ALIGNMENT: u64 = 16;

/// The library, and how it computes products that it has seen.
#[derive(Debug)]
pub(super) struct Library {
    driver: Arc<Driver>,
    handle: sys::cublasLtHandle_t,
    workspace: u64,
    plans: HashMap<Shape, Plan>,
}

// SAFETY: the library's handles may be used by one thread after another.
unsafe impl Send for Library {}

/// Key of a cuBLASLt plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Shape {
    bf16: bool,
    rows: usize,
    inputs: usize,
    outputs: usize,
    out_stride: usize,
}

/// A product, planned.
#[derive(Debug)]
struct Plan {
    description: sys::cublasLtMatmulDesc_t,
    weights: sys::cublasLtMatrixLayout_t,
    x: sys::cublasLtMatrixLayout_t,
    out: sys::cublasLtMatrixLayout_t,
    algorithm: sys::cublasLtMatmulAlgo_t,
}

fn failed(call: &'static str) -> impl Fn(CublasError) -> DeviceError {
    move |error| DeviceError::Call {
        call,
        problem: format!("{:?}", error.0),
    }
}

impl Library {
    /// `None` where the library is not there.
    pub(super) fn open(driver: &Arc<Driver>) -> Result<Option<Self>, DeviceError> {
        // SAFETY: loads the library, whose initialisation is sound to run.
        if !unsafe { sys::is_culib_present() } {
            return Ok(None);
        }
        let handle = result::create_handle().map_err(failed("cublasLtCreate"))?;
        let mut library = Self {
            driver: Arc::clone(driver),
            handle,
            workspace: 0,
            plans: HashMap::new(),
        };
        // SAFETY: the context is current; the library writes before it reads.
        library.workspace = unsafe { cudarc::driver::result::malloc_sync(WORKSPACE) }
            .map_err(super::failed("cuMemAlloc"))?;
        Ok(Some(library))
    }

    /// Queue a product.
    ///
    /// # Safety
    /// The product's addresses have room for its rows.
    pub(super) unsafe fn multiply(&mut self, product: &Product) -> Result<(), DeviceError> {
        let shape = Shape {
            bf16: product.halves == HalfType::Bf16,
            rows: product.rows,
            inputs: product.inputs,
            outputs: product.outputs,
            out_stride: product.out_stride,
        };
        if !self.plans.contains_key(&shape) {
            let plan = self.plan(shape)?;
            self.plans.insert(shape, plan);
        }
        let Some(plan) = self.plans.get(&shape) else {
            return Ok(());
        };
        let scale = product.scalars.scale;
        let before: f32 = if product.scalars.accumulate { 1.0 } else { 0.0 };
        // SAFETY: the plan is of this shape; the caller vouches for the addresses; the factors are
        // read before this returns.
        unsafe {
            result::matmul(
                self.handle,
                plan.description,
                (&raw const scale).cast::<c_void>(),
                (&raw const before).cast::<c_void>(),
                product.weights.0 as *const c_void,
                plan.weights,
                product.x.0 as *const c_void,
                plan.x,
                product.out.0 as *const c_void,
                plan.out,
                product.out.0 as *mut c_void,
                plan.out,
                &raw const plan.algorithm,
                self.workspace as *mut c_void,
                WORKSPACE,
                self.driver.stream.cast(),
            )
        }
        .map_err(failed("cublasLtMatmul"))
    }

    /// The library counts columns first: to it, rows of `out` are columns, and weights lie
    /// transposed.
    fn plan(&self, shape: Shape) -> Result<Plan, DeviceError> {
        use sys::cudaDataType_t as Type;
        let half = if shape.bf16 {
            Type::CUDA_R_16BF
        } else {
            Type::CUDA_R_16F
        };
        let [rows, inputs, outputs] = [shape.rows, shape.inputs, shape.outputs].map(|n| n as u64);
        let layout = |kind, rows, columns, stride| {
            result::create_matrix_layout(kind, rows, columns, stride)
                .map_err(failed("cublasLtMatrixLayoutCreate"))
        };
        let compute = sys::cublasComputeType_t::CUBLAS_COMPUTE_32F;
        let description = result::create_matmul_desc(compute, Type::CUDA_R_32F)
            .map_err(failed("cublasLtMatmulDescCreate"))?;
        let preference = set_up(description)?;
        let weights = layout(half, inputs, outputs, shape.inputs as i64)?;
        let x = layout(half, inputs, rows, shape.inputs as i64)?;
        let out = layout(Type::CUDA_R_32F, outputs, rows, shape.out_stride as i64)?;
        // SAFETY: all were made above; the preference is used no more after this.
        let heuristic = unsafe {
            let found = result::get_matmul_algo_heuristic(
                self.handle,
                description,
                weights,
                x,
                out,
                out,
                preference,
            );
            let _ = result::destroy_matmul_pref(preference);
            found.map_err(failed("cublasLtMatmulAlgoGetHeuristic"))?
        };
        Ok(Plan {
            description,
            weights,
            x,
            out,
            algorithm: heuristic.algo,
        })
    }
}

/// Describe the product on `description`, and make a preference for algorithms of our bounds.
fn set_up(
    description: sys::cublasLtMatmulDesc_t,
) -> Result<sys::cublasLtMatmulPreference_t, DeviceError> {
    use sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_TRANSA;
    use sys::cublasLtMatmulPreferenceAttributes_t as Wanted;
    // `CUBLAS_OP_T`.
    let transposed: i32 = 1;
    let preference =
        result::create_matmul_pref().map_err(failed("cublasLtMatmulPreferenceCreate"))?;
    let prefer = |attribute, value: *const c_void, bytes| {
        // SAFETY: the preference was made above, and the value has so many bytes.
        unsafe { result::set_matmul_pref_attribute(preference, attribute, value, bytes) }
    };
    let (workspace, alignment) = (WORKSPACE as u64, OUT_ALIGNMENT as u32);
    let alignments = [
        Wanted::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
        Wanted::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
    ];
    // SAFETY: the description was made above; the attribute is a number of 4 bytes.
    unsafe {
        result::set_matmul_desc_attribute(
            description,
            CUBLASLT_MATMUL_DESC_TRANSA,
            (&raw const transposed).cast(),
            size_of_val(&transposed),
        )
        .and_then(|()| {
            prefer(
                Wanted::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                (&raw const workspace).cast(),
                size_of_val(&workspace),
            )
        })
        .and_then(|()| {
            alignments.into_iter().try_for_each(|attribute| {
                prefer(
                    attribute,
                    (&raw const alignment).cast(),
                    size_of_val(&alignment),
                )
            })
        })
        .map_err(failed("cublasLtMatmulDescSetAttribute"))?;
    }
    Ok(preference)
}

impl Drop for Plan {
    fn drop(&mut self) {
        // SAFETY: `plan` made them, and nothing uses them any more.
        unsafe {
            let _ = result::destroy_matmul_desc(self.description);
            for layout in [self.weights, self.x, self.out] {
                let _ = result::destroy_matrix_layout(layout);
            }
        }
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        self.plans.clear();
        let _ = self.driver.make_current();
        let _ = self.driver.synchronize();
        // SAFETY: what was queued is done, and nothing uses these any more.
        unsafe {
            if self.workspace != 0 {
                let _ = cudarc::driver::result::free_sync(self.workspace);
            }
            let _ = result::destroy_handle(self.handle);
        }
    }
}
