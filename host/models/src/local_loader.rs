//! Loader of local models: from configuration and files to a model with its runtime.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Instant;

use anyhow::Context as _;
use mortise_engine::{KvType, Speculation};
use mortise_hub::ModelReference;
use mortise_model::{
    ADAPTER_SCALE_MAX, Embedder, EmbeddingPrompts, ModelFolder, ModelSpec, Reranker,
};
use mortise_tokenizer::Tokenizer;

use crate::adapters::{AdapterConfig, Adapters, check_adapter_name};
use crate::config::{EngineSettings, ModelConfig};
use crate::conversation::TemplateArguments;
use crate::files::{ModelFiles, ModelSource};
use crate::lifecycle::{
    KvTypeName, LifecycleError, LoadModel, LoadOverrides, LoadProgress, Override,
};
use crate::limits::MAX_ADAPTERS;
use crate::model::{EmbeddingBackend, Generator, Model, TextEmbedder, TokenGenerator};
use crate::model_settings::RequestDefaults;
use crate::replicas::Replicas;
use crate::script::{Script, ScriptKind};
use crate::scripted_conversation::ScriptedConversation;
use crate::start::{ModelRuntime, start_runtime};
use crate::text_reranker::TextReranker;
use crate::token_runtime::AdapterBase;
use crate::weights::LoadedWeights;

/// Opens model files and starts engines, embedders and scripts.
pub struct LocalLoader {
    source: ModelSource,
    engine: EngineSettings,
    /// Tokens of prompt and answer together, where a load does not say.
    max_context: usize,
    /// All configured models, among which draft models are found by name.
    models: RwLock<Vec<ModelConfig>>,
    weights: LoadedWeights,
    /// Places of models of the hub, by their references.
    fetched: Mutex<BTreeMap<String, PathBuf>>,
}

impl std::fmt::Debug for LocalLoader {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("LocalLoader")
    }
}

impl LocalLoader {
    /// A loader for these models. `max_context` bounds prompt and answer together.
    pub fn new(
        source: ModelSource,
        engine: EngineSettings,
        max_context: usize,
        models: Vec<ModelConfig>,
    ) -> Self {
        Self {
            source,
            engine,
            max_context,
            models: RwLock::new(models),
            weights: LoadedWeights::default(),
            fetched: Mutex::default(),
        }
    }

    /// Tokenizer, template and end tokens of a model, without its weights. Blocks.
    ///
    /// # Errors
    /// When a file is missing or cannot be read.
    pub fn text_files(
        &self,
        config: &ModelConfig,
        progress: &LoadProgress,
    ) -> anyhow::Result<ModelFiles> {
        self.source.open_telling(config, progress)
    }

    /// Values for requests to a model that say nothing.
    fn defaults(&self, config: &ModelConfig) -> RequestDefaults {
        config.defaults.or(&self.engine.defaults)
    }

    /// Arguments of a model's chat template where the caller gives none of their names.
    pub fn template_arguments(&self, config: &ModelConfig) -> Arc<TemplateArguments> {
        Arc::new(self.defaults(config).template_arguments)
    }

    fn fetched(&self) -> MutexGuard<'_, BTreeMap<String, PathBuf>> {
        self.fetched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A model with the place of its files, if they were fetched from the hub.
    fn located(&self, config: &ModelConfig) -> ModelConfig {
        let place =
            |reference: &ModelReference| self.fetched().get(&reference.to_string()).cloned();
        match config.hf.as_ref().and_then(place) {
            Some(path) => ModelConfig {
                path: Some(path),
                hf: None,
                ..config.clone()
            },
            None => config.clone(),
        }
    }

    /// Bytes of the KV caches of all replicas and of the weights of the draft model; `None` where the files do not tell, or
    /// the model generates no text.
    fn bytes_beside_weights(&self, settled: &Settled) -> Option<u64> {
        let config = &settled.config;
        let spec = self.spec(config, settled.max_context)?;
        let draft = config.draft.as_deref();
        let draft_spec = draft.map(|draft| self.spec(draft, settled.max_context));
        let engine = match draft {
            Some(_) => settled.engine.engine.clone(),
            None => settled.engine.engine.clone().without_draft_model(),
        };
        let cache = engine
            .cache_bytes(&spec, draft_spec.flatten().as_ref())
            .ok()?;
        let weights = draft.and_then(|draft| self.artifact_bytes(draft));
        let caches = cache.saturating_mul(settled.replicas as u64);
        Some(caches.saturating_add(weights.unwrap_or(0)))
    }

    /// Shape of a model that generates text.
    fn spec(&self, config: &ModelConfig, max_context: usize) -> Option<ModelSpec> {
        let located = self.located(config);
        let folder = match (&located.path, &located.hf) {
            (Some(path), _) => ModelFolder::open(path).ok()?,
            (None, Some(_)) => return None,
            (None, None) => ModelFolder::embedded(self.source.demo),
        };
        let ranks = config.rank.is_some() || Reranker::describes(&folder).ok()?.is_some();
        if config.script.is_some()
            || ranks
            || Embedder::describes(&folder, config.embedding).ok()?
        {
            return None;
        }
        let mut spec = ModelSpec::read(&folder).ok()?;
        spec.context = spec.context.min(max_context);
        Some(spec)
    }

    fn draft(&self, name: &str) -> Option<ModelConfig> {
        let models = self.models.read().unwrap_or_else(PoisonError::into_inner);
        models.iter().find(|model| model.name == name).cloned()
    }

    /// The configuration and the settings of the engine with a load's own.
    fn settled(&self, config: &ModelConfig, overrides: &LoadOverrides) -> anyhow::Result<Settled> {
        let own = &config.engine;
        let mut engine = EngineSettings {
            device: own.device.unwrap_or(self.engine.device),
            engine: own.over(&self.engine.engine),
            ..self.engine.clone()
        };
        match overrides.kv_type {
            Override::Keep => {}
            Override::Default => engine.engine.kv_type = KvType::default(),
            Override::Set(kv_type) => engine.engine.kv_type = KvTypeName::into(kv_type),
        }
        match overrides.device {
            Override::Keep => {}
            Override::Default => engine.device = Default::default(),
            Override::Set(device) => engine.device = device,
        }
        let draft = match &overrides.draft_model {
            Override::Keep => config.draft.clone(),
            Override::Default => None,
            Override::Set(name) => {
                let draft = self
                    .draft(name)
                    .context("the draft model is not configured")?;
                Some(Box::new(draft))
            }
        };
        Ok(Settled {
            config: ModelConfig {
                quantize: overrides.quantize.over(config.quantize),
                draft,
                loras: loras(config, overrides).map_err(anyhow::Error::msg)?,
                ..config.clone()
            },
            engine,
            max_context: match overrides.max_context {
                Override::Set(tokens) => tokens,
                Override::Keep => own.max_context.unwrap_or(self.max_context),
                Override::Default => self.max_context,
            },
            replicas: match overrides.replicas {
                Override::Set(replicas) => replicas,
                Override::Keep => config.lifecycle.replicas,
                Override::Default => 1,
            },
        })
    }
}

/// Name of a setting that needs weights, if one is set.
fn of_weights(overrides: &LoadOverrides) -> Option<&'static str> {
    let set = [
        ("quantize", matches!(overrides.quantize, Override::Set(_))),
        ("kv_type", matches!(overrides.kv_type, Override::Set(_))),
        ("device", matches!(overrides.device, Override::Set(_))),
        (
            "draft_model",
            matches!(overrides.draft_model, Override::Set(_)),
        ),
        ("loras", matches!(overrides.loras, Override::Set(_))),
        (
            "max_context",
            matches!(overrides.max_context, Override::Set(_)),
        ),
    ];
    let first = set.into_iter().find(|(_, set)| *set);
    first.map(|(name, _)| name)
}

/// Adapters that are loaded with a model; the error says which setting of the load is wrong.
fn loras(config: &ModelConfig, overrides: &LoadOverrides) -> Result<Vec<AdapterConfig>, String> {
    let wanted = match &overrides.loras {
        Override::Keep => return Ok(config.loras.clone()),
        Override::Default => return Ok(Vec::new()),
        Override::Set(wanted) => wanted,
    };
    let mut loras: Vec<AdapterConfig> = Vec::with_capacity(wanted.len());
    for lora in wanted {
        let name = &lora.name;
        check_adapter_name(name)
            .map_err(|problem| format!("the name `{name}` is wrong: {problem}"))?;
        let lora = lora.over(&config.loras).ok_or_else(|| {
            format!("`{name}` has no `path`, and no adapter of this name is configured")
        })?;
        if lora.scale.abs() > f32::from(ADAPTER_SCALE_MAX) {
            return Err(format!(
                "`{name}` has the scale {}; it must be from -{ADAPTER_SCALE_MAX} to {ADAPTER_SCALE_MAX}",
                lora.scale
            ));
        }
        if loras.iter().any(|other| other.name == lora.name) {
            return Err(format!("it lists `{name}` twice"));
        }
        loras.push(lora);
    }
    match loras.len() > MAX_ADAPTERS {
        true => Err(format!(
            "it lists {} adapters; a model can have {MAX_ADAPTERS} at most",
            loras.len()
        )),
        false => Ok(loras),
    }
}

/// The adapters of a model, with those that the configuration names loaded.
fn adapters(config: &ModelConfig, base: AdapterBase) -> anyhow::Result<Arc<Adapters>> {
    let adapters = Adapters::new(&config.name, base);
    for lora in &config.loras {
        let (status, _) = adapters.load(lora.clone())?;
        tracing::info!(
            model = config.name,
            adapter = lora.name,
            path = %lora.path.display(),
            bytes = status.loaded.map(|adapter| adapter.bytes()),
            "adapter loaded"
        );
    }
    Ok(Arc::new(adapters))
}

/// A model whose conversations a script answers.
fn scripted_conversation(config: &ModelConfig, script: &Script) -> Model {
    let runtime = Arc::new(ScriptedConversation::new(script.clone()));
    tracing::info!(model = config.name, scripted = true, "model loaded");
    Model {
        name: config.name.clone(),
        architecture: String::new(),
        generator: Some(Generator::Conversation(runtime)),
        embedder: None,
        reranker: None,
        loaded_at: Instant::now(),
    }
}

/// Give a model a runtime that generates no text.
fn add_runtime(
    model: &mut Model,
    runtime: ModelRuntime,
    tokenizer: Arc<Tokenizer>,
    config: &ModelConfig,
    folder: &ModelFolder,
) -> anyhow::Result<()> {
    match runtime {
        ModelRuntime::Tokens(_) => {}
        ModelRuntime::Embeddings(runtime) => {
            model.embedder = Some(EmbeddingBackend::Local(TextEmbedder {
                adapters: adapters(config, runtime.adapter_base())?,
                adapter: None,
                runtime,
                tokenizer,
                prompts: prompts(config, folder)?,
                cache: Arc::default(),
            }));
        }
        ModelRuntime::Reranker(runtime, form) => {
            model.reranker = Some(TextReranker {
                runtime,
                tokenizer,
                form,
            });
        }
    }
    Ok(())
}

/// Instructions of an embedding model: those of its files, and the operator's before them.
fn prompts(config: &ModelConfig, folder: &ModelFolder) -> anyhow::Result<Arc<EmbeddingPrompts>> {
    let read = EmbeddingPrompts::read(folder)?;
    let all = read.with(&config.prompts, config.default_prompt.as_deref());
    Ok(Arc::new(all.context("`default_prompt` cannot be used")?))
}

/// Settings in force for one load.
struct Settled {
    config: ModelConfig,
    engine: EngineSettings,
    max_context: usize,
    replicas: usize,
}

impl LoadModel for LocalLoader {
    fn load(
        &self,
        config: &ModelConfig,
        overrides: &LoadOverrides,
        progress: &LoadProgress,
    ) -> anyhow::Result<Model> {
        if let Some(script) = &config.script
            && script.kind == ScriptKind::Conversation
        {
            return Ok(scripted_conversation(config, script));
        }
        let settled = self.settled(config, overrides)?;
        let files = self
            .source
            .open_telling(&self.located(&settled.config), progress)?;
        let start = || {
            let (context, engine) = (settled.max_context, settled.engine.clone());
            let (source, weights) = (&self.source, &self.weights);
            start_runtime(&settled.config, &files, context, engine, source, weights)
        };
        let mut model = Model {
            name: config.name.clone(),
            architecture: files.architecture.clone(),
            generator: None,
            embedder: None,
            reranker: None,
            loaded_at: Instant::now(),
        };
        let first = start()?;
        anyhow::ensure!(
            matches!(first, ModelRuntime::Tokens(_))
                || settled.replicas == 1 && overrides.kv_type == Override::Keep,
            "the model generates no text: it has one runtime and no KV cache; leave \
             `replicas` and `kv_type` out"
        );
        let tokenizer = Arc::clone(&files.tokenizer);
        match first {
            ModelRuntime::Tokens(first) => {
                let further = || match start()? {
                    ModelRuntime::Tokens(runtime) => Ok(runtime),
                    other => anyhow::bail!("its files have changed: {other:?} is no engine"),
                };
                let runtime = Replicas::start(first, settled.replicas, further)?;
                let generator = TokenGenerator {
                    adapters: adapters(&settled.config, runtime.adapter_base())?,
                    runtime,
                    tokenizer,
                    vocabulary_size: files.vocabulary_size,
                    generation: self.defaults(config).over(files.defaults),
                    template_arguments: self.template_arguments(config),
                };
                model.generator = Some(Generator::Tokens(generator));
            }
            other => add_runtime(&mut model, other, tokenizer, &settled.config, &files.folder)?,
        }
        model.loaded_at = Instant::now();
        tracing::info!(
            model = model.name,
            folder = files.folder.name(),
            architecture = model.architecture,
            context = model.context_length(),
            replicas = settled.replicas,
            scripted = config.script.is_some(),
            "model loaded"
        );
        Ok(model)
    }

    fn check(&self, config: &ModelConfig, overrides: &LoadOverrides) -> Result<(), LifecycleError> {
        let wrong = |field, message: String| Err(LifecycleError::BadOverride { field, message });
        let most = config.lifecycle.replica_max;
        if let Override::Set(replicas) = overrides.replicas
            && !(1..=most).contains(&replicas)
        {
            let message = format!("it must be from 1 to {most}; it is {replicas}");
            return wrong("replicas", message);
        }
        if overrides.max_context == Override::Set(0) {
            return wrong("max_context", "it must be at least 1; it is 0".to_owned());
        }
        if config.script.is_some() {
            return match of_weights(overrides) {
                Some(field) => wrong(field, "a scripted model has no weights".to_owned()),
                None => Ok(()),
            };
        }
        if let Err(message) = loras(config, overrides) {
            return wrong("loras", message);
        }
        if let Override::Set(name) = &overrides.draft_model {
            let drafts = matches!(
                self.engine.engine.speculation,
                Speculation::DraftModel { .. }
            );
            if !drafts {
                let message = "it needs `engine.speculation = \"draft-model\"`";
                return wrong("draft_model", message.to_owned());
            }
            if self.draft(name).is_none() {
                return wrong("draft_model", format!("no model is called `{name}`"));
            }
        }
        Ok(())
    }

    fn prepare(&self, config: &ModelConfig, progress: &LoadProgress) -> anyhow::Result<()> {
        match (&config.path, &config.hf) {
            (Some(path), _) => std::fs::metadata(path)
                .map(drop)
                .with_context(|| format!("cannot open model folder `{}`", path.display())),
            (None, Some(reference)) => {
                let path = (self.source.fetch)(reference, progress)?;
                self.fetched().insert(reference.to_string(), path);
                Ok(())
            }
            (None, None) => Ok(()),
        }
    }

    fn redefine(&self, models: &[ModelConfig]) {
        let mut known = self.models.write().unwrap_or_else(PoisonError::into_inner);
        *known = models.to_vec();
    }

    fn artifact_bytes(&self, config: &ModelConfig) -> Option<u64> {
        if config.script.is_some() {
            return Some(0);
        }
        let located = self.located(config);
        match (&located.path, &located.hf) {
            (Some(path), _) => {
                let loras = config.loras.iter();
                let loras = loras.filter_map(|lora| weight_bytes(&lora.path)).sum();
                weight_bytes(path).map(|bytes| bytes.saturating_add(loras))
            }
            (None, Some(_)) => None,
            (None, None) => {
                let files = self.source.demo.iter().filter(|(name, _)| is_weights(name));
                Some(files.map(|(_, bytes)| bytes.len() as u64).sum())
            }
        }
    }

    fn expected_bytes(&self, config: &ModelConfig, overrides: &LoadOverrides) -> Option<u64> {
        // What cannot be read now fails the load, which tells why.
        let settled = self.settled(config, overrides).ok();
        let files = settled.as_ref().map_or(config, |settled| &settled.config);
        let files = self.artifact_bytes(files)?;
        let further = settled.and_then(|settled| self.bytes_beside_weights(&settled));
        Some(files.saturating_add(further.unwrap_or(0)))
    }
}

/// Bytes of the weight files of a folder, or of a file and the parts that it was split into.
fn weight_bytes(path: &Path) -> Option<u64> {
    let metadata = std::fs::metadata(path).ok()?;
    if metadata.is_file() {
        let name = path.file_name()?.to_str()?;
        // `NAME-00001-of-00003.gguf`
        let Some((stem, _)) = name.rsplit_once("-of-") else {
            return Some(metadata.len());
        };
        let stem = stem.trim_end_matches(|c: char| c.is_ascii_digit());
        return bytes_in(path.parent()?, |file| {
            file.starts_with(stem) && is_weights(file)
        });
    }
    bytes_in(path, is_weights)
}

fn bytes_in(folder: &Path, counts: impl Fn(&str) -> bool) -> Option<u64> {
    let mut bytes = 0u64;
    for entry in std::fs::read_dir(folder).ok()?.flatten() {
        if entry.file_name().to_str().is_some_and(&counts) {
            // Through links: the hub's cache has links to the files.
            bytes += std::fs::metadata(entry.path()).map_or(0, |metadata| metadata.len());
        }
    }
    Some(bytes)
}

fn is_weights(name: &str) -> bool {
    let extension = name.rsplit_once('.').map(|(_, extension)| extension);
    matches!(extension, Some("safetensors" | "gguf"))
}
