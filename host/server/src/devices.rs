//! The processor and the GPUs: what there is, and an engine on one of them.

use std::fmt::Write as _;
use std::thread;

use mortise_cuda::{DeviceError, Gpu};
use mortise_engine::{Engine, EngineConfig, EngineHandle};
use mortise_model::{
    DeviceModel, DeviceSettings, ModelError, ModelFolder, ModelSpec, WeightPrecision,
};
use serde_json::{Value, json};

use crate::config::DeviceChoice;

/// A model as it is to be computed.
pub(crate) struct Placement {
    pub(crate) device: DeviceChoice,
    pub(crate) precision: WeightPrecision,
    /// Tokens of a sequence at most.
    pub(crate) max_context: usize,
    pub(crate) engine: EngineConfig,
}

/// An engine, and the name of what it computes on.
pub(crate) struct Placed {
    pub(crate) engine: EngineHandle,
    pub(crate) device: String,
}

/// Load a model to where it is to be computed, and start an engine there; `on_processor` does it
/// where that is no GPU.
pub(crate) fn start_engine(
    folder: &ModelFolder,
    placement: Placement,
    on_processor: impl FnOnce(EngineConfig) -> anyhow::Result<EngineHandle>,
) -> anyhow::Result<Placed> {
    match placement.device {
        DeviceChoice::Cpu => {}
        DeviceChoice::Cuda(number) => return Ok(on_gpu(folder, number, &placement)?),
        DeviceChoice::Auto => match on_gpu(folder, 0, &placement) {
            Ok(placed) => return Ok(placed),
            Err(NotOnGpu::Missing(reason)) => {
                tracing::debug!(%reason, "computing on the processor")
            }
            Err(NotOnGpu::Unfit(reason)) => tracing::warn!(%reason, "computing on the processor"),
            Err(NotOnGpu::Failed(error)) => return Err(error),
        },
    }
    Ok(Placed {
        engine: on_processor(placement.engine)?,
        device: "cpu".to_owned(),
    })
}

/// Why a model is not computed on a GPU.
#[derive(Debug, thiserror::Error)]
enum NotOnGpu {
    /// There is none.
    #[error(transparent)]
    Missing(DeviceError),
    /// It cannot compute this model, or not at all.
    #[error("{0:#}")]
    Unfit(anyhow::Error),
    /// The model cannot be loaded anywhere.
    #[error("{0:#}")]
    Failed(anyhow::Error),
}

fn on_gpu(folder: &ModelFolder, number: usize, placement: &Placement) -> Result<Placed, NotOnGpu> {
    let device = mortise_cuda::open(number).map_err(|error| match error {
        DeviceError::NotBuilt | DeviceError::NoDriver | DeviceError::NoGpu { .. } => {
            NotOnGpu::Missing(error)
        }
        other => NotOnGpu::Unfit(other.into()),
    })?;
    let name = device.name().to_owned();
    let failed = |error: ModelError| match error {
        ModelError::NotOnDevice { .. } | ModelError::Device(_) => NotOnGpu::Unfit(error.into()),
        other => NotOnGpu::Failed(other.into()),
    };
    let mut spec = ModelSpec::read(folder).map_err(failed)?;
    spec.context = spec.context.min(placement.max_context);
    let blocks = placement.engine.cache_blocks(&spec, None);
    let settings = DeviceSettings {
        precision: placement.precision,
        context: placement.max_context,
        blocks: blocks.map_err(|error| NotOnGpu::Failed(error.into()))?,
        kv_type: placement.engine.kv_type,
    };
    let model = DeviceModel::load(folder, device, settings).map_err(failed)?;
    let engine = Engine::start_with(Box::new(model), placement.engine.clone());
    Ok(Placed {
        engine: engine.map_err(|error| NotOnGpu::Failed(error.into()))?,
        device: name,
    })
}

/// What `mortise devices` prints.
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
