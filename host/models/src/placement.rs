//! An engine on the processor or on a GPU.

use mortise_cuda::DeviceError;
use mortise_engine::{Engine, EngineConfig, EngineHandle};
use mortise_model::{
    DeviceModel, DeviceSettings, ModelError, ModelFolder, ModelSpec, WeightPrecision,
};

use crate::device_choice::DeviceChoice;

/// A model as it is to be computed.
#[derive(Debug, Clone)]
pub struct Placement {
    /// The device.
    pub device: DeviceChoice,
    /// Precision of the weights.
    pub precision: WeightPrecision,
    /// Tokens of a sequence at most.
    pub max_context: usize,
    /// Settings of the engine.
    pub engine: EngineConfig,
}

/// An engine, and the name of what it computes on.
#[derive(Debug)]
pub struct PlacedEngine {
    /// The engine.
    pub engine: EngineHandle,
    /// `cpu`, or the name of a GPU.
    pub device: String,
}

/// Load a model to where it is to be computed, and start an engine there; `on_processor` does it
/// where that is no GPU.
pub fn start_engine(
    folder: &ModelFolder,
    placement: Placement,
    on_processor: impl FnOnce(EngineConfig) -> anyhow::Result<EngineHandle>,
) -> anyhow::Result<PlacedEngine> {
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
    Ok(PlacedEngine {
        engine: on_processor(placement.engine)?,
        device: "cpu".to_owned(),
    })
}

/// Reasons against a GPU.
#[derive(Debug, thiserror::Error)]
enum NotOnGpu {
    /// There is no GPU to use: the binary is built without CUDA, or driver or GPU are missing.
    #[error(transparent)]
    Missing(DeviceError),
    /// The GPU cannot compute this model, or no model at all.
    #[error("{0:#}")]
    Unfit(anyhow::Error),
    /// The model cannot be loaded anywhere.
    #[error("{0:#}")]
    Failed(anyhow::Error),
}

fn on_gpu(
    folder: &ModelFolder,
    number: usize,
    placement: &Placement,
) -> Result<PlacedEngine, NotOnGpu> {
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
    Ok(PlacedEngine {
        engine: engine.map_err(|error| NotOnGpu::Failed(error.into()))?,
        device: name,
    })
}
