//! `mortise devices`: the processor and the GPUs.

use std::fmt::Write as _;
use std::thread;

use mortise_cuda::Gpu;
use serde_json::{Value, json};

/// Report of `mortise devices`.
pub(crate) fn describe(as_json: bool) -> anyhow::Result<String> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let features = processor_features();
    let gpus = mortise_cuda::find();
    if as_json {
        let (gpus, reason): (Vec<Value>, Value) = match &gpus {
            Ok(gpus) => (gpus.iter().map(gpu_json).collect(), Value::Null),
            Err(error) => (Vec::new(), json!(error.to_string())),
        };
        let report = json!({
            "cpu": { "architecture": std::env::consts::ARCH, "cores": cores, "features": features },
            "gpus": gpus,
            "no_gpu_because": reason,
        });
        return Ok(format!("{}\n", serde_json::to_string_pretty(&report)?));
    }
    let mut text = String::new();
    let names = match features.is_empty() {
        true => "none that are used".to_owned(),
        false => features.join(", "),
    };
    writeln!(
        text,
        "cpu     {}, {cores} cores; {names}",
        std::env::consts::ARCH
    )?;
    match gpus {
        Err(error) => writeln!(text, "no GPU  {error}")?,
        Ok(gpus) if gpus.is_empty() => writeln!(text, "no GPU  the driver shows none")?,
        Ok(gpus) => {
            for gpu in gpus {
                writeln!(
                    text,
                    "cuda:{}  {}, {} MiB, compute capability {}.{}, {} multiprocessors, driver for CUDA {}",
                    gpu.number,
                    gpu.name,
                    gpu.memory >> 20,
                    gpu.capability.0,
                    gpu.capability.1,
                    gpu.multiprocessors,
                    cuda_version(gpu.driver),
                )?;
            }
        }
    }
    Ok(text)
}

fn gpu_json(gpu: &Gpu) -> Value {
    json!({
        "device": format!("cuda:{}", gpu.number),
        "name": gpu.name,
        "memory_bytes": gpu.memory,
        "compute_capability": format!("{}.{}", gpu.capability.0, gpu.capability.1),
        "multiprocessors": gpu.multiprocessors,
        "driver_cuda": cuda_version(gpu.driver),
    })
}

/// 13020 is 13.2.
fn cuda_version(number: u32) -> String {
    format!("{}.{}", number / 1000, number % 1000 / 10)
}

/// Instruction sets of this processor that matter for inference.
fn processor_features() -> Vec<&'static str> {
    macro_rules! detected {
        ($detect:ident: $($name:tt),*) => {
            [$(($name, std::arch::$detect!($name))),*]
        };
    }
    #[cfg(target_arch = "x86_64")]
    let features = detected!(is_x86_feature_detected: "avx2", "fma", "f16c", "avxvnni", "avx512f",
        "avx512bw", "avx512vnni", "avx512bf16");
    #[cfg(target_arch = "aarch64")]
    let features = detected!(is_aarch64_feature_detected: "neon", "dotprod", "i8mm", "bf16", "sve");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let features: [(&str, bool); 0] = [];
    let found = features.into_iter().filter(|(_, found)| *found);
    found.map(|(name, _)| name).collect()
}
