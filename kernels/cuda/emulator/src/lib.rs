//! A device for tests: it runs the kernels of `kernels/cuda` on the processor, thread by thread, so
//! that their logic is checked on machines without a GPU. Slow; never part of a server.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use half::{bf16, f16};
use mortise_cuda::{Address, Device, DeviceError, Download, HalfType, Launch, Product, Recording};

/// Errors of [`mortise_emulator_launch`], from 1 on; 0 is success.
const PROBLEMS: [&str; 7] = [
    "there is no such kernel",
    "its parameter has another size",
    "its threads are no whole warps, or more than it is compiled for",
    "no block has so much shared memory",
    "threads wait at a barrier that others of their block never reach",
    "no GPU takes a grid of so many blocks, or of none",
    "a block writes behind its shared memory",
];

/// One launch at a time: the kernels' shared memory and indices are the program's.
static RUNNING: Mutex<()> = Mutex::new(());

#[allow(unsafe_code, reason = "the emulator is C++, as the kernels are")]
unsafe extern "C" {
    fn mortise_emulator_launch(
        name: *const c_char,
        grid: *const u32,
        threads: u32,
        shared: usize,
        params: *const c_void,
        params_size: usize,
    ) -> c_int;
}

/// The processor, as a device.
#[derive(Debug, Default)]
pub struct Emulator {
    library: bool,
    /// Work of the recording in progress.
    recording: Mutex<Option<Vec<Work>>>,
}

impl Emulator {
    /// A device that has kernels only.
    pub fn new() -> Self {
        Self::default()
    }

    /// One that also multiplies, as a GPU does by cuBLASLt.
    pub fn with_library() -> Self {
        Self {
            library: true,
            ..Self::default()
        }
    }

    fn recording(&self) -> MutexGuard<'_, Option<Vec<Work>>> {
        self.recording
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuse calls that a GPU refuses while it records.
    fn outside_of_recordings(&self, call: &'static str) -> Result<(), DeviceError> {
        match *self.recording() {
            None => Ok(()),
            Some(_) => Err(DeviceError::Call {
                call,
                problem: "the device is recording".to_owned(),
            }),
        }
    }

    /// Do work now, or with the recording that is under way.
    fn queue(&self, work: Work) -> Result<(), DeviceError> {
        match &mut *self.recording() {
            Some(recorded) => {
                recorded.push(work);
                Ok(())
            }
            None => work.run(),
        }
    }
}

/// The first GPU, for tests that run on every device: with the feature `cuda`, where there is one.
///
/// # Panics
/// If there is no GPU and the environment variable `MORTISE_REQUIRE_GPU` is set.
pub fn gpu() -> Option<Arc<dyn Device>> {
    let opened = mortise_cuda::open(0);
    if let Err(problem) = &opened {
        let required = std::env::var_os("MORTISE_REQUIRE_GPU").is_some();
        assert!(!required, "MORTISE_REQUIRE_GPU is set: {problem}");
    }
    opened.ok()
}

/// Queued work, with a copy of its parameters.
#[derive(Debug)]
enum Work {
    Kernel {
        kernel: &'static str,
        grid: [u32; 3],
        threads: u32,
        shared: u32,
        params: Vec<u8>,
    },
    Product(Product),
}

/// Work for later. Its addresses are those of its time, as in a GPU's graphs.
#[derive(Debug)]
struct Recorded(Vec<Work>);

impl Recording for Recorded {
    fn replay(&self) -> Result<(), DeviceError> {
        self.0.iter().try_for_each(Work::run)
    }
}

fn layout(bytes: usize) -> Result<Layout, DeviceError> {
    Layout::from_size_align(bytes.max(1), 256).map_err(|_| DeviceError::OutOfMemory { bytes })
}

#[allow(unsafe_code, reason = "addresses are this process's")]
impl Device for Emulator {
    fn name(&self) -> &str {
        if self.library {
            "emulator with a library"
        } else {
            "emulator"
        }
    }

    fn allocate(&self, bytes: usize) -> Result<Address, DeviceError> {
        self.outside_of_recordings("allocating")?;
        let layout = layout(bytes)?;
        // SAFETY: the layout is not empty.
        let memory = unsafe { alloc_zeroed(layout) };
        if memory.is_null() {
            return Err(DeviceError::OutOfMemory { bytes });
        }
        Ok(Address(memory as u64))
    }

    unsafe fn release(&self, address: Address, bytes: usize) {
        if let Ok(layout) = layout(bytes) {
            // SAFETY: the caller vouches that `allocate` gave this for as many bytes.
            unsafe { dealloc(address.0 as *mut u8, layout) };
        }
    }

    unsafe fn upload(&self, to: Address, bytes: &[u8]) -> Result<(), DeviceError> {
        self.outside_of_recordings("copying to the device")?;
        // SAFETY: the caller vouches for the room.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.0 as *mut u8, bytes.len()) };
        Ok(())
    }

    unsafe fn download(&self, from: Address, bytes: &mut [u8]) -> Result<(), DeviceError> {
        self.outside_of_recordings("copying from the device")?;
        let from = from.0 as *const u8;
        // SAFETY: the caller vouches for what lies there.
        unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    unsafe fn begin_download(
        &self,
        from: Address,
        bytes: usize,
    ) -> Result<Box<dyn Download>, DeviceError> {
        let mut copied = vec![0; bytes];
        // SAFETY: the caller vouches for what lies there.
        unsafe { self.download(from, &mut copied) }?;
        Ok(Box::new(Copied(copied)))
    }

    unsafe fn launch(&self, launch: &Launch<'_>) -> Result<(), DeviceError> {
        self.queue(Work::Kernel {
            kernel: launch.kernel,
            grid: launch.grid,
            threads: launch.threads,
            shared: launch.shared,
            params: launch.params.to_vec(),
        })
    }

    unsafe fn multiply(&self, product: &Product) -> Result<bool, DeviceError> {
        if self.library {
            self.queue(Work::Product(*product))?;
        }
        Ok(self.library)
    }

    fn record(
        &self,
        work: &mut dyn FnMut() -> Result<(), DeviceError>,
    ) -> Result<Option<Box<dyn Recording>>, DeviceError> {
        self.outside_of_recordings("recording")?;
        *self.recording() = Some(Vec::new());
        let worked = work();
        let recorded = self.recording().take().unwrap_or_default();
        worked?;
        Ok(Some(Box::new(Recorded(recorded))))
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        self.outside_of_recordings("waiting")
    }
}

#[allow(
    unsafe_code,
    reason = "whoever queued work vouched for it, and goes on to while it is recorded"
)]
impl Work {
    fn run(&self) -> Result<(), DeviceError> {
        match self {
            Self::Kernel {
                kernel,
                grid,
                threads,
                shared,
                params,
            } => {
                let launch = Launch {
                    kernel,
                    grid: *grid,
                    threads: *threads,
                    shared: *shared,
                    params,
                };
                // SAFETY: see above.
                unsafe { run_kernel(&launch) }
            }
            Self::Product(product) => {
                // SAFETY: see above.
                unsafe { run_product(product) };
                Ok(())
            }
        }
    }
}

/// Run a kernel, block by block.
///
/// # Safety
/// The parameter is the kernel's, and its addresses are as [`Device`] says.
#[allow(unsafe_code, reason = "the emulator is C++, as the kernels are")]
unsafe fn run_kernel(launch: &Launch<'_>) -> Result<(), DeviceError> {
    let refused = |problem: &str| DeviceError::Kernel {
        kernel: launch.kernel,
        problem: problem.to_owned(),
    };
    let name = CString::new(launch.kernel).map_err(|_| refused(PROBLEMS[0]))?;
    let _running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the size of the parameter is compared with the kernel's; the caller vouches for
    // what it says, and launches come one at a time.
    let outcome = unsafe {
        mortise_emulator_launch(
            name.as_ptr(),
            launch.grid.as_ptr(),
            launch.threads,
            launch.shared as usize,
            launch.params.as_ptr().cast(),
            launch.params.len(),
        )
    };
    match usize::try_from(outcome) {
        Ok(0) => Ok(()),
        Ok(problem) if problem <= PROBLEMS.len() => Err(refused(PROBLEMS[problem - 1])),
        _ => Err(refused("the emulator gave an outcome that nobody knows")),
    }
}

/// Multiply as the library does.
///
/// # Safety
/// The addresses are as [`Device`] says.
#[allow(unsafe_code, reason = "addresses are this process's")]
unsafe fn run_product(product: &Product) {
    let widen = |bits: u16| match product.halves {
        HalfType::Bf16 => bf16::from_bits(bits).to_f32(),
        HalfType::F16 => f16::from_bits(bits).to_f32(),
    };
    let half = |from: Address, index: usize| {
        // SAFETY: the caller vouches for what lies there.
        widen(unsafe { *(from.0 as *const u16).add(index) })
    };
    for row in 0..product.rows {
        for output in 0..product.outputs {
            let sum: f32 = (0..product.inputs)
                .map(|k| {
                    half(product.x, row * product.inputs + k)
                        * half(product.weights, output * product.inputs + k)
                })
                .sum();
            // SAFETY: the caller vouches for the room.
            unsafe {
                let out = (product.out.0 as *mut f32).add(row * product.out_stride + output);
                let before = if product.scalars.accumulate {
                    *out
                } else {
                    0.0
                };
                *out = before + product.scalars.scale * sum;
            }
        }
    }
}

/// All that was queued is done already.
#[derive(Debug)]
struct Copied(Vec<u8>);

impl Download for Copied {
    fn wait(self: Box<Self>, bytes: &mut [u8]) -> Result<(), DeviceError> {
        bytes.copy_from_slice(&self.0);
        Ok(())
    }
}
