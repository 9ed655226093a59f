//! GPUs, by NVIDIA's driver, which is loaded when it is first asked for.

#![allow(
    unsafe_code,
    reason = "the driver is C: each call says why its arguments are right"
)]

mod download;
mod library;
mod staging;

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys;

use crate::device::{Address, Device, DeviceError, Download, Launch, Product, Recording};
use crate::gpu_info::Gpu;
use download::Downloads;
use library::{Library, OUT_ALIGNMENT};
use staging::Staging;

/// The kernels: machine code of some architectures, and PTX.
#[repr(align(16))]
struct Image<T: ?Sized>(T);
static KERNELS: &Image<[u8]> = &Image(*include_bytes!(concat!(env!("OUT_DIR"), "/kernels.fatbin")));

/// Shared memory that a kernel may have without being asked for more.
const SHARED_PLAIN: u32 = 48 << 10;
/// The oldest compute capability that the kernels run on, and the first that lets a kernel begin
/// before the last one has ended.
const CAPABILITY_LEAST: (u32, u32) = (8, 0);
const CAPABILITY_OVERLAP: (u32, u32) = (9, 0);
/// The oldest CUDA version that a driver may be for: that of the compiler.
const DRIVER_LEAST: u32 = 13_000;

/// A GPU with its kernels, and a queue of work. What needs the driver's handles is dropped before them.
#[derive(Debug)]
pub struct CudaDevice {
    gpu: Gpu,
    staging: Mutex<Staging>,
    library: Option<Mutex<Library>>,
    kernels: Mutex<HashMap<&'static str, Function>>,
    downloads: Downloads,
    driver: Arc<Driver>,
}

impl Drop for CudaDevice {
    fn drop(&mut self) {
        // What is dropped after this asks the driver in the name of the current context. Nobody is
        // left to hear of errors.
        let _ = self.driver.make_current();
    }
}

/// Resources of the driver, released on drop.
#[derive(Debug)]
struct Driver {
    device: sys::CUdevice,
    context: sys::CUcontext,
    stream: sys::CUstream,
    module: sys::CUmodule,
}

// SAFETY: handles of the driver may be used by any thread in whose name the context was made
// current, which every method here does first.
unsafe impl Send for Driver {}
// SAFETY: the driver's calls are thread-safe.
unsafe impl Sync for Driver {}

#[derive(Debug, Clone, Copy)]
struct Function {
    handle: sys::CUfunction,
    /// Shared memory that it was allowed.
    shared: u32,
}

// SAFETY: as for `Driver`.
unsafe impl Send for Function {}

fn failed(call: &'static str) -> impl Fn(DriverError) -> DeviceError {
    move |error| DeviceError::Call {
        call,
        problem: error.to_string(),
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Load the driver and ask how many GPUs it shows.
fn count() -> Result<usize, DeviceError> {
    // SAFETY: loads the driver's library, whose initialisation is sound to run.
    if !unsafe { sys::is_culib_present() } {
        return Err(DeviceError::NoDriver);
    }
    // Asked before anything else: the bindings panic where a driver lacks a function, and all have
    // this one.
    let found = driver_version()?;
    if found < DRIVER_LEAST {
        return Err(DeviceError::OldDriver { found });
    }
    result::init().map_err(failed("cuInit"))?;
    let count = result::device::get_count().map_err(failed("cuDeviceGetCount"))?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// The CUDA version that the driver is for.
fn driver_version() -> Result<u32, DeviceError> {
    let mut version = 0;
    // SAFETY: writes one number.
    unsafe { sys::cuDriverGetVersion(&mut version) }
        .result()
        .map_err(failed("cuDriverGetVersion"))?;
    Ok(u32::try_from(version).unwrap_or(0))
}

/// All GPUs.
pub(crate) fn find() -> Result<Vec<Gpu>, DeviceError> {
    (0..count()?).map(describe).collect()
}

fn describe(number: usize) -> Result<Gpu, DeviceError> {
    use sys::CUdevice_attribute as Attribute;
    let device = result::device::get(number as i32).map_err(failed("cuDeviceGet"))?;
    let attribute = |attribute| {
        // SAFETY: the device is one that the driver gave.
        let value = unsafe { result::device::get_attribute(device, attribute) };
        value
            .map(|value| u32::try_from(value).unwrap_or(0))
            .map_err(failed("cuDeviceGetAttribute"))
    };
    Ok(Gpu {
        number,
        name: result::device::get_name(device).map_err(failed("cuDeviceGetName"))?,
        // SAFETY: the device is one that the driver gave.
        memory: unsafe { result::device::total_mem(device) }.map_err(failed("cuDeviceTotalMem"))?
            as u64,
        capability: (
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        driver: driver_version()?,
    })
}

impl CudaDevice {
    /// Open a GPU by its number.
    pub fn open(number: usize) -> Result<Self, DeviceError> {
        let found = count()?;
        if number >= found {
            let wanted = number;
            return Err(DeviceError::NoGpu { wanted, found });
        }
        let gpu = describe(number)?;
        if gpu.capability < CAPABILITY_LEAST {
            let (major, minor) = gpu.capability;
            return Err(DeviceError::Call {
                call: "opening the GPU",
                problem: format!(
                    "`{}` has compute capability {major}.{minor}; 8.0 or later is needed",
                    gpu.name
                ),
            });
        }
        let driver = Arc::new(Driver::open(number)?);
        let staging = Staging::new(driver.stream)?;
        let library = Library::open(&driver)?.map(Mutex::new);
        Ok(Self {
            gpu,
            driver,
            kernels: Mutex::new(HashMap::new()),
            downloads: Downloads::default(),
            staging: Mutex::new(staging),
            library,
        })
    }

    /// Properties that the driver reports.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    fn function(&self, launch: &Launch<'_>) -> Result<Function, DeviceError> {
        let refused = |problem: String| DeviceError::Kernel {
            kernel: launch.kernel,
            problem,
        };
        let mut kernels = locked(&self.kernels);
        let known = kernels.get(launch.kernel).copied();
        let mut function = match known {
            Some(function) => function,
            None => {
                let name =
                    CString::new(launch.kernel).map_err(|error| refused(error.to_string()))?;
                // SAFETY: the module is loaded as long as the device is there.
                let handle = unsafe { result::module::get_function(self.driver.module, name) };
                Function {
                    handle: handle.map_err(|error| refused(error.to_string()))?,
                    shared: SHARED_PLAIN,
                }
            }
        };
        if launch.shared > function.shared {
            // SAFETY: the function belongs to the loaded module.
            unsafe {
                result::function::set_function_attribute(
                    function.handle,
                    sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                    launch.shared as i32,
                )
            }
            .map_err(|error| {
                refused(format!("{} bytes of shared memory: {error}", launch.shared))
            })?;
            function.shared = launch.shared;
        }
        kernels.insert(launch.kernel, function);
        Ok(function)
    }
}

impl Driver {
    fn open(number: usize) -> Result<Self, DeviceError> {
        let device = result::device::get(number as i32).map_err(failed("cuDeviceGet"))?;
        // SAFETY: the device is one that the driver gave.
        let context = unsafe { result::primary_ctx::retain(device) }
            .map_err(failed("cuDevicePrimaryCtxRetain"))?;
        let mut driver = Self {
            device,
            context,
            stream: null_mut(),
            module: null_mut(),
        };
        // From here on, dropping it releases the handles.
        driver.make_current()?;
        driver.stream = result::stream::create(result::stream::StreamKind::NonBlocking)
            .map_err(failed("cuStreamCreate"))?;
        // SAFETY: the image is what nvcc wrote, and aligned.
        driver.module = unsafe { result::module::load_data(KERNELS.0.as_ptr().cast()) }
            .map_err(failed("cuModuleLoadData"))?;
        Ok(driver)
    }

    fn make_current(&self) -> Result<(), DeviceError> {
        // SAFETY: the context was retained.
        unsafe { result::ctx::set_current(self.context) }.map_err(failed("cuCtxSetCurrent"))
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        // SAFETY: the stream is there as long as this is.
        unsafe { result::stream::synchronize(self.stream) }.map_err(failed("cuStreamSynchronize"))
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // Errors on drop have no receiver.
        let _ = self.make_current();
        // SAFETY: nothing of these is used any more; the primary context was retained once.
        unsafe {
            if !self.module.is_null() {
                let _ = result::module::unload(self.module);
            }
            if !self.stream.is_null() {
                let _ = result::stream::destroy(self.stream);
            }
            let _ = result::primary_ctx::release(self.device);
        }
    }
}

impl Device for CudaDevice {
    fn name(&self) -> &str {
        &self.gpu.name
    }

    fn allocate(&self, bytes: usize) -> Result<Address, DeviceError> {
        let bytes = bytes.max(1);
        self.driver.make_current()?;
        // SAFETY: the memory is set to zeros before anyone reads it.
        let address = unsafe { result::malloc_sync(bytes) }.map_err(|error| match error.0 {
            sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => DeviceError::OutOfMemory { bytes },
            _ => failed("cuMemAlloc")(error),
        })?;
        // SAFETY: the memory has so many bytes.
        unsafe { result::memset_d8_async(address, 0, bytes, self.driver.stream) }
            .map_err(failed("cuMemsetD8Async"))?;
        Ok(Address(address))
    }

    unsafe fn release(&self, address: Address, _bytes: usize) {
        let _ = self.driver.make_current();
        let _ = self.driver.synchronize();
        // SAFETY: the caller vouches for the address; what was queued is done.
        let _ = unsafe { result::free_sync(address.0) };
    }

    unsafe fn upload(&self, to: Address, bytes: &[u8]) -> Result<(), DeviceError> {
        self.driver.make_current()?;
        // SAFETY: the caller vouches for the room.
        unsafe { locked(&self.staging).upload(to, bytes) }
    }

    unsafe fn download(&self, from: Address, bytes: &mut [u8]) -> Result<(), DeviceError> {
        self.driver.make_current()?;
        // SAFETY: the caller vouches for what lies there.
        unsafe { locked(&self.staging).download(from, bytes) }
    }

    unsafe fn begin_download(
        &self,
        from: Address,
        bytes: usize,
    ) -> Result<Box<dyn Download>, DeviceError> {
        self.driver.make_current()?;
        // SAFETY: the caller vouches for what lies there.
        unsafe { self.downloads.begin(&self.driver, from, bytes) }
    }

    unsafe fn launch(&self, launch: &Launch<'_>) -> Result<(), DeviceError> {
        self.driver.make_current()?;
        let function = self.function(launch)?;
        let mut overlap = sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: sys::CUlaunchAttributeValue {
                programmaticStreamSerializationAllowed: 1,
            },
        };
        let config = sys::CUlaunchConfig {
            gridDimX: launch.grid[0],
            gridDimY: launch.grid[1],
            gridDimZ: launch.grid[2],
            blockDimX: launch.threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: launch.shared,
            hStream: self.driver.stream,
            attrs: &mut overlap,
            // Every kernel waits for the last one before it reads what that wrote.
            numAttrs: u32::from(self.gpu.capability >= CAPABILITY_OVERLAP),
        };
        let mut params = [launch.params.as_ptr() as *mut c_void];
        // SAFETY: the caller vouches for the parameter, which is copied before this returns.
        unsafe { sys::cuLaunchKernelEx(&config, function.handle, params.as_mut_ptr(), null_mut()) }
            .result()
            .map_err(|error| DeviceError::Kernel {
                kernel: launch.kernel,
                problem: error.to_string(),
            })
    }

    unsafe fn multiply(&self, product: &Product) -> Result<bool, DeviceError> {
        let Some(library) = &self.library else {
            return Ok(false);
        };
        if !product.out.0.is_multiple_of(OUT_ALIGNMENT) {
            return Ok(false);
        }
        if product.rows > 0 {
            self.driver.make_current()?;
            // SAFETY: the caller vouches for the addresses.
            unsafe { locked(library).multiply(product)? };
        }
        Ok(true)
    }

    fn record(
        &self,
        work: &mut dyn FnMut() -> Result<(), DeviceError>,
    ) -> Result<Option<Box<dyn Recording>>, DeviceError> {
        self.driver.make_current()?;
        let stream = self.driver.stream;
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the stream is there; what it is given until the end is recorded.
        unsafe { result::stream::begin_capture(stream, mode) }
            .map_err(failed("cuStreamBeginCapture"))?;
        let worked = work();
        // Whatever came of the work, the stream must do again what it is given.
        // SAFETY: the capture was begun above.
        let graph =
            unsafe { result::stream::end_capture(stream) }.map_err(failed("cuStreamEndCapture"));
        // SAFETY: the graph is what was captured; what is instantiated does not need it.
        let executable = graph.and_then(|graph| unsafe {
            let executable = result::graph::instantiate(graph, sys::CUgraphInstantiate_flags(0));
            let _ = result::graph::destroy(graph);
            executable.map_err(failed("cuGraphInstantiate"))
        });
        // What failed in the work says more than what became of the recording.
        worked?;
        Ok(Some(Box::new(Graph {
            driver: Arc::clone(&self.driver),
            executable: executable?,
        })))
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        self.driver.make_current()?;
        self.driver.synchronize()
    }
}

/// Recorded work.
#[derive(Debug)]
struct Graph {
    driver: Arc<Driver>,
    executable: sys::CUgraphExec,
}

// SAFETY: a graph may be used by one thread after another.
unsafe impl Send for Graph {}

impl Recording for Graph {
    fn replay(&self) -> Result<(), DeviceError> {
        self.driver.make_current()?;
        // SAFETY: both are there as long as this is.
        unsafe { result::graph::launch(self.executable, self.driver.stream) }
            .map_err(failed("cuGraphLaunch"))
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let _ = self.driver.make_current();
        // SAFETY: it is used no more.
        let _ = unsafe { result::graph::exec_destroy(self.executable) };
    }
}
