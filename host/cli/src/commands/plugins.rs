//! `mortise plugin list`: the plugins that a server would have, and who would serve whom.

use mortise_config::{Config, Overrides, config_files};
use mortise_plugin_manager::{ModelKey, PluginConfig};
use serde_json::Value;

use crate::advice;
use crate::cli::PluginListArgs;
use crate::start::model_source;

/// The report, as JSON.
pub(crate) fn list(args: PluginListArgs) -> anyhow::Result<Value> {
    let overrides = Overrides {
        plugins: args.plugins,
        ..Overrides::default()
    };
    let config = Config::load(&config_files(args.config), overrides)?;
    // Listing needs no watcher and leaves no trace in the cache.
    let plugins = PluginConfig {
        cache_dir: None,
        // A bad file is told here, not left out.
        quarantine: false,
        ..config.plugins
    };
    let plugins = advice::load_plugins(plugins)?;
    let source = model_source();
    let by_architecture = plugins.are_chosen_by_architecture();
    let mut architectures = Vec::with_capacity(config.models.len());
    for model in &config.models {
        // Only where it matters: a model's files may have to be fetched first.
        architectures.push(match by_architecture {
            true if model.upstream.is_none() && model.child.is_none() => {
                source.open(model)?.architecture
            }
            _ => String::new(),
        });
    }
    let models = config.models.iter().zip(&architectures);
    let models = models.map(|(model, architecture)| ModelKey {
        name: &model.name,
        architecture,
    });
    let models: Vec<ModelKey<'_>> = models.collect();
    plugins.describe(&config.auth, &models)
}
