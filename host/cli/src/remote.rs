//! Models that other servers answer for.

use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use mortise_child::Children;
use mortise_config::Config;
use mortise_models::conversation::TemplateArguments;
use mortise_models::lifecycle::LoadProgress;
use mortise_models::{
    BaseUrl, Capability, ChildConfig, ConversationRuntime, EmbeddingBackend, EmbeddingPrompts,
    Generator, LocalLoader, Model, ModelConfig, ModelFiles, RemoteEmbedder, RemoteEmbeddingRuntime,
    RenderedGenerator, Rendering, UpstreamConfig,
};
use mortise_upstream::{UpstreamRuntime, discover};
use tokio::runtime::Handle;

/// Serve the models that the upstream of the command line lists, if there is one, each under its name there.
pub(crate) async fn find(config: &mut Config) -> anyhow::Result<()> {
    let Some(upstream) = &config.upstream else {
        return Ok(());
    };
    let found = discover(upstream, None).await?;
    let models = found.into_iter().map(|upstream| ModelConfig {
        name: upstream.model.clone(),
        upstream: Some(upstream),
        ..ModelConfig::of_path(None)
    });
    config.models = models.collect();
    Ok(())
}

/// A remote model. It asks nothing before the first request, but for health checks. What is rendered here needs the
/// text files of the model, which `local` reads.
pub(crate) fn load(
    config: &ModelConfig,
    upstream: &UpstreamConfig,
    local: &LocalLoader,
    progress: &LoadProgress,
) -> anyhow::Result<Model> {
    let files = text_files(config, upstream, local, progress)?;
    let runtime = start(&config.name, upstream)?;
    model_of(config, upstream.capability, runtime, files)
}

/// A model of a process of this server, once the process serves. Blocks.
pub(crate) fn load_child(
    config: &ModelConfig,
    child: &ChildConfig,
    children: &Children,
    local: &LocalLoader,
    progress: &LoadProgress,
) -> anyhow::Result<Model> {
    let files = text_files(config, &child.upstream, local, progress)?;
    let starting = children.start(config, child, progress);
    let runtime = Handle::current().block_on(starting)?;
    model_of(config, child.upstream.capability, Arc::new(runtime), files)
}

/// Files of a model that is rendered here, and arguments of its chat template.
type TextFiles = (ModelFiles, Arc<TemplateArguments>);

/// The files of a model that is rendered here.
fn text_files(
    config: &ModelConfig,
    upstream: &UpstreamConfig,
    local: &LocalLoader,
    progress: &LoadProgress,
) -> anyhow::Result<Option<TextFiles>> {
    match upstream.rendering {
        Rendering::Upstream => Ok(None),
        Rendering::Here => {
            let files = local.text_files(config, progress)?;
            Ok(Some((files, local.template_arguments(config))))
        }
    }
}

fn model_of<R>(
    config: &ModelConfig,
    capability: Capability,
    runtime: Arc<R>,
    files: Option<TextFiles>,
) -> anyhow::Result<Model>
where
    R: ConversationRuntime + RemoteEmbeddingRuntime + 'static,
{
    if capability == Capability::Embed {
        return embedding_model(config, runtime);
    }
    let (architecture, generator) = match files {
        None => (String::new(), Generator::Conversation(runtime)),
        Some((files, template_arguments)) => {
            let rendered = RenderedGenerator {
                runtime: runtime as _,
                tokenizer: files.tokenizer,
                vocabulary_size: files.vocabulary_size,
                eos_tokens: files.defaults.eos_tokens,
                template_arguments,
            };
            (files.architecture, Generator::Rendered(rendered))
        }
    };
    Ok(Model {
        name: config.name.clone(),
        architecture,
        generator: Some(generator),
        embedder: None,
        reranker: None,
        loaded_at: Instant::now(),
    })
}

/// A model that makes embeddings elsewhere, with the instructions that the operator lays before its texts.
fn embedding_model(
    config: &ModelConfig,
    runtime: Arc<dyn RemoteEmbeddingRuntime>,
) -> anyhow::Result<Model> {
    let prompts = EmbeddingPrompts::default();
    let prompts = prompts.with(&config.prompts, config.default_prompt.as_deref());
    let embedder = RemoteEmbedder {
        runtime,
        prompts: Arc::new(prompts.context("`default_prompt` cannot be used")?),
    };
    Ok(Model {
        name: config.name.clone(),
        architecture: String::new(),
        generator: None,
        embedder: Some(EmbeddingBackend::Remote(embedder)),
        reranker: None,
        loaded_at: Instant::now(),
    })
}

fn start(name: &str, upstream: &UpstreamConfig) -> anyhow::Result<Arc<UpstreamRuntime>> {
    let runtime = UpstreamRuntime::start(name, upstream.clone())
        .with_context(|| format!("the model `{name}` cannot be served"))?;
    let joined = |urls: &[BaseUrl]| {
        let urls = urls.iter().map(|url| url.as_str());
        urls.collect::<Vec<_>>().join(" ")
    };
    tracing::info!(
        model = name,
        upstreams = joined(&upstream.urls),
        standby = joined(&upstream.standby),
        upstream_model = upstream.model,
        api = upstream.api.name(),
        capability = upstream.capability.name(),
        rendered_here = upstream.rendering == Rendering::Here,
        "model of another server"
    );
    Ok(Arc::new(runtime))
}
