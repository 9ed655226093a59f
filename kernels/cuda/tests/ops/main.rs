//! Every op on every device that is there, against arithmetic in double precision: on the emulator
//! always, and on a GPU where this is built with the feature `cuda` and finds one.

mod attention;
mod experts;
mod linear;
mod rows;
mod sample;

use std::sync::Arc;

use mortise_cuda::Device;
use mortise_cuda_emulator::Emulator;

/// All devices.
fn devices() -> Vec<Arc<dyn Device>> {
    let mut devices: Vec<Arc<dyn Device>> = vec![
        Arc::new(Emulator::new()),
        Arc::new(Emulator::with_library()),
    ];
    match mortise_cuda::open(0) {
        Ok(gpu) => devices.push(gpu),
        Err(problem) => println!("no GPU: {problem}"),
    }
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
        Err(problem) => assert!(!problem.to_string().is_empty()),
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
    for (threads, params) in [(31, 32), (32, 4)] {
        let launch = Launch {
            kernel: "choose_best_rows",
            grid: [1, 1, 1],
            threads,
            shared: 0,
            params: &vec![0; params],
        };
        // SAFETY: whole warps and parameters of the right size are asked for first.
        assert!(unsafe { emulator.launch(&launch) }.is_err());
    }
}
