//! Service of all models, from the configuration and the plugins.

use std::sync::Arc;

use anyhow::Context as _;
use mortise_api::{ApiState, SearchTool};
use mortise_config::{LimitConfig, MetricsConfig};
use mortise_models::{EngineSettings, NameMatching};
use mortise_plugin::{DocumentReader, PluginHost};
use mortise_plugin_manager::{ManagedModel, PluginSet};
use mortise_service::{CacheConfig, RunTool, ServedModel, Service, ServiceConfig};
use mortise_telemetry::RedactedContent;

/// The service of all models, with the plugins that are bound to them.
pub(crate) fn serving(
    config: ServiceConfig,
    plugins: &PluginSet,
    managed: &[ManagedModel],
) -> anyhow::Result<Arc<Service>> {
    let served = |model: &ManagedModel| model.served(|facts| plugins.plugins_of(facts));
    let served: Result<Vec<ServedModel>, String> = managed.iter().map(served).collect();
    let served = served.map_err(anyhow::Error::msg)?;
    let service = Service::new(
        config,
        served,
        plugins.policies(),
        &plugins.tools(),
        plugins.guardrails(),
    )?;
    service.retrievers.replace(plugins.retrievers());
    Ok(Arc::new(service))
}

/// Settings of the service that stand in the configuration.
pub(crate) fn service_config(
    limits: LimitConfig,
    engine: EngineSettings,
    names: NameMatching,
    response_cache: CacheConfig,
) -> ServiceConfig {
    ServiceConfig {
        name_matching: names,
        default_max_tokens: limits.default_max_tokens,
        max_choices: limits.n_max,
        tenant_weights: engine.tenant_weights,
        share_prefixes: engine.share_prefixes,
        tools: limits.tools,
        response_cache,
        ..ServiceConfig::default()
    }
}

/// Add the log of contents, redacted, if the configuration asks for one.
pub(crate) fn logged(service: ServiceConfig, logs: &MetricsConfig) -> ServiceConfig {
    let Some(config) = &logs.content else {
        return service;
    };
    tracing::warn!("prompts and answers are logged, redacted: log.content is set");
    ServiceConfig {
        content: Arc::new(RedactedContent::new(config)),
        ..service
    }
}

/// Tools that the server has without a plugin.
pub(crate) fn built_in(searches: bool, search: &Arc<SearchTool>) -> Vec<Arc<dyn RunTool>> {
    let search = searches.then(|| Arc::clone(search) as _);
    search.into_iter().collect()
}

/// Set up the reader of files and the search in collections. The component that reads files is loaded with the first
/// file.
pub(crate) fn set_retrieval(
    state: &Arc<ApiState>,
    search: &SearchTool,
    retriever: Option<String>,
    host: PluginHost,
) -> anyhow::Result<()> {
    search.serve(state);
    let reader = DocumentReader::new(host, mortise_bundle::document_reader);
    // Only the first call counts, and there is one.
    let _ = state.reader.set(reader);
    set_retriever(state, retriever)
}

/// Set the default retriever, for vector stores that name none. The retriever must be bound at the start.
fn set_retriever(state: &ApiState, name: Option<String>) -> anyhow::Result<()> {
    let Some(name) = name else {
        return Ok(());
    };
    let found = state.service.retrievers.get(&name);
    found.with_context(|| {
        format!("retrieval.retriever: there is no retriever `{name}`; bind one ([[plugins.bindings]]) or put its file into plugins.dir")
    })?;
    // Only the first call counts, and there is one.
    let _ = state.retriever.set(name);
    Ok(())
}
