//! Every op on every device that is there, against arithmetic in double precision: on the emulator
//! always, and on a GPU where this is built with the feature `cuda` and finds one.

mod attention;
mod experts;
mod linear;
mod rows;
mod sample;

use std::sync::Arc;

use mortise_cuda::{Buffer, Device, DeviceError, memory};
use mortise_cuda_emulator::{Emulator, gpu};

/// All devices.
fn devices() -> Vec<Arc<dyn Device>> {
    let mut devices: Vec<Arc<dyn Device>> = vec![
        Arc::new(Emulator::new()),
        Arc::new(Emulator::with_library()),
    ];
    devices.extend(gpu());
    devices
}

/// Numbers that look random, between -1 and 1: the same for the same seed.
fn numbers(seed: u64, count: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u32 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// Every number within `tolerance` of the expected, relative to the largest of them.
fn check_close(what: &str, found: &[f32], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let largest = expected
        .iter()
        .fold(1e-3f64, |most, value| most.max(value.abs()));
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (f64::from(*found) - expected).abs() / largest;
        assert!(
            error <= tolerance,
            "{what}, number {index}: {found} is not {expected} (error {error:e} of {largest})"
        );
    }
}

#[test]
fn a_gpu_is_found_or_the_reason_is_said() {
    match mortise_cuda::find() {
        Ok(gpus) => assert!(
            gpus.iter()
                .all(|gpu| gpu.memory > 0 && !gpu.name.is_empty())
        ),
        Err(problem) => assert_eq!(
            problem == DeviceError::NotBuilt,
            !cfg!(feature = "cuda"),
            "{problem}"
        ),
    }
}

#[test]
#[allow(unsafe_code, reason = "a launch that is refused before anything runs")]
fn launches_that_cannot_run_are_refused() {
    use mortise_cuda::Launch;
    for device in devices() {
        let launch = Launch {
            kernel: "no_such_kernel",
            grid: [1, 1, 1],
            threads: 32,
            shared: 0,
            params: &[0; 8],
        };
        // SAFETY: there is no such kernel.
        let refused = unsafe { device.launch(&launch) }.unwrap_err().to_string();
        assert!(refused.contains("no_such_kernel"), "{refused}");
    }
    let emulator = Emulator::new();
    let whole = Launch {
        kernel: "copy_16_bytes",
        grid: [1, 1, 1],
        threads: 32,
        shared: 0,
        params: &[0; 24],
    };
    let wrong = [
        Launch {
            threads: 31,
            ..whole
        },
        Launch {
            threads: 288,
            ..whole
        },
        Launch {
            params: &[0; 4],
            ..whole
        },
        Launch {
            grid: [1, 65536, 1],
            ..whole
        },
        Launch {
            grid: [1, 1, 0],
            ..whole
        },
        Launch {
            shared: 100 << 10,
            ..whole
        },
    ];
    for launch in wrong {
        // SAFETY: what is wrong is found before anything runs.
        assert!(unsafe { emulator.launch(&launch) }.is_err(), "{launch:?}");
    }
}

#[test]
fn what_is_recorded_is_done_by_each_replay() {
    for device in devices() {
        let [from, to] = [[7u8; 32], [0; 32]].map(|bytes| Buffer::of(&device, &bytes).unwrap());
        let recording = device.record(&mut || memory::copy(&*device, from.all(), to.all()));
        let recording = recording.unwrap().unwrap();
        assert_eq!(to.to_vec().unwrap(), [0; 32], "{}", device.name());
        for byte in [7, 8] {
            from.upload(0, &[byte; 32]).unwrap();
            recording.replay().unwrap();
            assert_eq!(to.to_vec().unwrap(), [byte; 32], "{}", device.name());
        }
        // Work that fails leaves the device as it was.
        let broken = DeviceError::OutOfMemory { bytes: 1 };
        let failed = device.record(&mut || Err(broken.clone()));
        assert_eq!(failed.unwrap_err(), broken);
        recording.replay().unwrap();
        device.synchronize().unwrap();
    }
}

/// A GPU would copy at each replay what lay there once.
#[test]
fn the_emulator_records_no_copies() {
    let emulator: Arc<dyn Device> = Arc::new(Emulator::new());
    let buffer = Buffer::of(&emulator, &[1u8]).unwrap();
    let mut works: [Box<dyn FnMut() -> Result<(), DeviceError> + '_>; 4] = [
        Box::new(|| buffer.upload(0, &[2])),
        Box::new(|| buffer.download(0, &mut [0])),
        Box::new(|| emulator.synchronize()),
        Box::new(|| Buffer::<u8>::zeros(&emulator, 1).map(drop)),
    ];
    for work in &mut works {
        let refused = emulator.record(work).unwrap_err().to_string();
        assert!(refused.contains("recording"), "{refused}");
    }
}
