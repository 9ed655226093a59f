//! The runtime of a model: which one its configuration and files ask for.

use std::sync::Arc;

use anyhow::Context as _;
use mortise_engine::{
    BeamRequest, Engine, EngineHandle, EngineLoad, QueueBounds, SequenceRequest, SubmitError,
    TenantLoad, TokenStream,
};
use mortise_model::{Embedder, EmbedderOptions, Reranker, RerankerKind};

use crate::config::{EngineSettings, ModelConfig};
use crate::device_choice::DeviceChoice;
use crate::embedding_runtime::EmbeddingRuntime;
use crate::files::{ModelFiles, ModelSource};
use crate::local_embedder::LocalEmbedder;
use crate::local_reranker::{LocalReranker, Way};
use crate::model_settings::{ModelEngine, RequestDefaults};
use crate::placement::{PlacedEngine, Placement, start_engine};
use crate::rerank_runtime::RerankRuntime;
use crate::script::Script;
use crate::scripted::{ScriptCodec, Scripted};
use crate::text_reranker::{PairForm, USUAL_INSTRUCTION, answers};
use crate::token_runtime::{AdapterBase, TokenRuntime};
use crate::weights::LoadedWeights;

/// Start the runtime that a model's configuration and files ask for: a script, an embedder, or an engine.
/// Blocks.
///
/// # Errors
/// When the weights cannot be loaded or do not fit the configuration.
pub(crate) fn start_runtime(
    config: &ModelConfig,
    files: &ModelFiles,
    max_context: usize,
    engine: EngineSettings,
    source: &ModelSource,
    weights: &LoadedWeights,
) -> anyhow::Result<ModelRuntime> {
    start(config, files, max_context, engine, source, weights)
        .with_context(|| format!("the model `{}` cannot be served", config.name))
}

fn start(
    config: &ModelConfig,
    files: &ModelFiles,
    max_context: usize,
    mut engine: EngineSettings,
    source: &ModelSource,
    weights: &LoadedWeights,
) -> anyhow::Result<ModelRuntime> {
    engine.engine.model = config.name.as_str().into();
    if let Some(script) = &config.script {
        return Ok(scripted(script, files));
    }
    let ranks = match (&config.rank, Reranker::describes(&files.folder)?) {
        (Some(_), Some(RerankerKind::Classifier)) => Some(RerankerKind::Classifier),
        (Some(_), _) => Some(RerankerKind::Decoder),
        (None, kind) => kind,
    };
    if let Some(kind) = ranks {
        return reranker(config, kind, files, max_context, &engine);
    }
    if Embedder::describes(&files.folder, config.embedding)? {
        return embedder(config, files, max_context, &engine);
    }
    anyhow::ensure!(
        config.prompts.is_empty() && config.default_prompt.is_none(),
        "`prompts` are set and the model makes no embeddings; set `pooling` too"
    );
    anyhow::ensure!(
        config.embedding.normalised.is_none(),
        "`normalize` is set and the model makes no embeddings; set `pooling` too"
    );
    let placement = placement(config, max_context, engine)?;
    let mut base = Err("it is computed on a GPU, and adapters on the processor only");
    let on_processor = |engine| {
        let model = weights.of(config, files, max_context)?;
        base = Ok(Arc::new(model.spec().clone()));
        Ok(match &config.draft {
            Some(draft) => {
                let draft = weights.draft(draft, source, &files.tokenizer, max_context)?;
                Engine::start_drafted(model, draft, engine)?
            }
            None => Engine::start(model, engine)?,
        })
    };
    let PlacedEngine { engine, device } = start_engine(&files.folder, placement, on_processor)?;
    tracing::info!(
        model = config.name,
        device,
        warm_up_ms = engine.warm_up_time().map(|time| time.as_secs_f64() * 1e3),
        "engine started"
    );
    Ok(ModelRuntime::Tokens(Arc::new(LocalEngine {
        engine,
        max_context,
        base,
    })))
}

/// The script in place of the weights.
fn scripted(script: &Script, files: &ModelFiles) -> ModelRuntime {
    let (encoder, decoder) = (Arc::clone(&files.tokenizer), Arc::clone(&files.tokenizer));
    let codec = ScriptCodec {
        encode: Arc::new(move |text| encoder.encode_special(text).unwrap_or_default()),
        decode: Arc::new(move |tokens| decoder.decode(tokens, true)),
    };
    ModelRuntime::Tokens(Arc::new(Scripted::new(script.clone(), codec)))
}

fn embedder(
    config: &ModelConfig,
    files: &ModelFiles,
    max_context: usize,
    engine: &EngineSettings,
) -> anyhow::Result<ModelRuntime> {
    without_text(config)?;
    let embedder = LocalEmbedder::open(
        &files.folder,
        config.precision(),
        config.embedding,
        max_context,
        places(engine),
    )?;
    Ok(ModelRuntime::Embeddings(Arc::new(embedder)))
}

/// Places of the queue of a model that generates no text.
fn places(engine: &EngineSettings) -> QueueBounds {
    QueueBounds {
        per_tenant: engine.engine.max_queue_per_tenant,
        ..QueueBounds::places(engine.engine.max_queue, engine.engine.reserve_queue)
    }
}

/// Refuse settings of models that generate text.
fn without_text(config: &ModelConfig) -> anyhow::Result<()> {
    anyhow::ensure!(
        config.draft.is_none(),
        "`draft_model` is set and the model generates no text to guess"
    );
    let engine = ModelEngine {
        max_context: config.engine.max_context,
        ..ModelEngine::default()
    };
    anyhow::ensure!(
        config.engine == engine,
        "of `[models.engine]` only `max_context` counts for a model that generates no text: it has no KV cache, and is \
         computed on the processor"
    );
    anyhow::ensure!(
        config.defaults == RequestDefaults::default(),
        "`[models.defaults]` is set and the model generates no text"
    );
    Ok(())
}

fn reranker(
    config: &ModelConfig,
    kind: RerankerKind,
    files: &ModelFiles,
    max_context: usize,
    engine: &EngineSettings,
) -> anyhow::Result<ModelRuntime> {
    without_text(config)?;
    anyhow::ensure!(
        config.loras.is_empty(),
        "`loras` are set and the model ranks; adapters of rerankers are not supported"
    );
    anyhow::ensure!(
        config.embedding == EmbedderOptions::default()
            && config.prompts.is_empty()
            && config.default_prompt.is_none(),
        "the model ranks and makes no embeddings; leave `pooling`, `normalize`, `prompts` and `default_prompt` out"
    );
    let tokenizer = &files.tokenizer;
    let task = config.rank.as_ref().map(|rank| rank.instruction.as_str());
    let usual = task.unwrap_or(USUAL_INSTRUCTION);
    let (form, way) = match kind {
        RerankerKind::Encoder => (PairForm::joined(tokenizer)?, Way::Encoder),
        RerankerKind::Decoder => {
            let way = Way::Answers(answers(tokenizer)?);
            (PairForm::asked(tokenizer, usual)?, way)
        }
        // GGUF files tell nothing of pairs for decoders.
        RerankerKind::Classifier if task.is_some() || files.folder.gguf().is_some() => {
            (PairForm::asked(tokenizer, usual)?, Way::Classifier)
        }
        RerankerKind::Classifier => (PairForm::of_classifier(tokenizer)?, Way::Classifier),
    };
    let runtime = LocalReranker::open(
        &files.folder,
        config.precision(),
        way,
        max_context,
        places(engine),
    )?;
    Ok(ModelRuntime::Reranker(Arc::new(runtime), form))
}

/// The device and the engine of a model; speculative decoding with a draft model, and adapters, need the
/// processor.
fn placement(
    config: &ModelConfig,
    max_context: usize,
    engine: EngineSettings,
) -> anyhow::Result<Placement> {
    Ok(Placement {
        device: match (&config.draft, engine.device) {
            (_, DeviceChoice::Cuda(_)) if !config.loras.is_empty() => anyhow::bail!(
                "the model has `loras`, and adapters are computed on the processor only; use \
                 device = \"cpu\" or \"auto\""
            ),
            (_, _) if !config.loras.is_empty() => DeviceChoice::Cpu,
            (Some(_), DeviceChoice::Cuda(_)) => anyhow::bail!(
                "`draft_model` is set, and models with one are computed on the processor only; \
                 use device = \"cpu\" or \"auto\""
            ),
            (Some(_), _) => DeviceChoice::Cpu,
            (None, device) => device,
        },
        precision: config.precision(),
        max_context,
        engine: match config.draft {
            Some(_) => engine.engine,
            None => engine.engine.without_draft_model(),
        },
    })
}

/// The runtime of a model with files.
#[derive(Clone)]
pub(crate) enum ModelRuntime {
    /// Tokens in, tokens out.
    Tokens(Arc<dyn TokenRuntime>),
    /// Texts in, vectors out.
    Embeddings(Arc<dyn EmbeddingRuntime>),
    /// Pairs of texts in, scores out.
    Reranker(Arc<dyn RerankRuntime>, PairForm),
}

impl std::fmt::Debug for ModelRuntime {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Tokens(_) => "ModelRuntime::Tokens",
            Self::Embeddings(_) => "ModelRuntime::Embeddings",
            Self::Reranker(..) => "ModelRuntime::Reranker",
        })
    }
}

/// An engine within the operator's limit on context.
struct LocalEngine {
    engine: EngineHandle,
    max_context: usize,
    base: AdapterBase,
}

impl TokenRuntime for LocalEngine {
    fn submit(&self, request: SequenceRequest) -> Result<TokenStream, SubmitError> {
        self.engine.submit(request)
    }

    fn submit_beams(&self, request: BeamRequest) -> Result<Vec<TokenStream>, SubmitError> {
        self.engine.submit_beams(request)
    }

    fn context_length(&self) -> usize {
        self.engine.context_length().min(self.max_context)
    }

    fn load(&self) -> EngineLoad {
        self.engine.load()
    }

    fn tenants(&self) -> Vec<TenantLoad> {
        self.engine.tenants()
    }

    fn clear_prefixes(&self) -> usize {
        self.engine.clear_prefixes()
    }

    fn adapter_base(&self) -> AdapterBase {
        self.base.clone()
    }
}
