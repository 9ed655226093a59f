//! Models that other servers answer for.

use std::sync::Arc;

use anyhow::Context as _;
use mortise_models::{Generator, ModelConfig, UpstreamConfig};
use mortise_upstream::{UpstreamRuntime, discover};

/// The models that an upstream of the command line lists, each under its name there.
pub(crate) async fn found(upstream: &UpstreamConfig) -> anyhow::Result<Vec<ModelConfig>> {
    let found = discover(upstream, None).await?;
    let models = found.into_iter().map(|upstream| ModelConfig {
        name: upstream.model.clone(),
        upstream: Some(upstream),
        ..ModelConfig::of_path(None)
    });
    Ok(models.collect())
}

/// Generator of a remote model. It asks nothing before the first request, but for health checks.
pub(crate) fn start(name: &str, upstream: &UpstreamConfig) -> anyhow::Result<Generator> {
    let runtime = UpstreamRuntime::start(name, upstream.clone())
        .with_context(|| format!("the model `{name}` cannot be served"))?;
    let urls: Vec<&str> = upstream.urls.iter().map(|url| url.as_str()).collect();
    tracing::info!(
        model = name,
        upstreams = urls.join(" "),
        upstream_model = upstream.model,
        api = upstream.api.name(),
        "model of another server"
    );
    Ok(Generator::Conversation(Arc::new(runtime)))
}
