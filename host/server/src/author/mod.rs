//! `mortise plugin`: what an author does with a plugin before an operator does.

mod abuse;
mod bench;
mod cases;
mod pack;
mod profile;
mod project;
mod templates;

use anyhow::{Context as _, bail};
use mortise_plugin::{ComponentSource, HostConfig, PluginHost};
use mortise_plugin_manager::{Declared, LoadedPlugins, ModelKey, PluginConfig};
use serde_json::{Value, json};

use crate::app::golden_cases;
use crate::assembly::ModelText;
use crate::cli::{GrantArgs, PluginCommand, PluginFileArgs, PluginListArgs, PluginRunArgs};
use crate::config::{Config, ModelConfig, Overrides, hub_config};
use crate::golden::{Subject, prove};
use crate::offline::{model_text, print, print_json, read};
use crate::surroundings::Surroundings;

/// Run one of the commands.
pub(crate) fn run(command: PluginCommand) -> anyhow::Result<()> {
    match command {
        PluginCommand::List(args) => print_json(&list(args)?),
        PluginCommand::Inspect { file } => print_json(&crate::inspect::plugin(&file)?),
        PluginCommand::Verify(args) => print_json(&verify(&args)?),
        PluginCommand::Run(args) => print_json(&ask(&args)?),
        PluginCommand::Test(args) => cases::test(&args),
        PluginCommand::Bench(args) => print_json(&bench::bench(&args)?),
        PluginCommand::Profile(args) => print_json(&profile::profile(&args)?),
        PluginCommand::New(args) => print(&project::make(&args)?),
        PluginCommand::Pack(args) => print_json(&pack::pack(&args)?),
        PluginCommand::Reference => print(&mortise_wit::reference()?),
    }
}

fn list(args: PluginListArgs) -> anyhow::Result<Value> {
    let overrides = Overrides {
        plugins: args.plugins,
        ..Overrides::default()
    };
    let config = Config::load(args.config.as_deref(), overrides)?;
    // Listing needs no watcher and leaves no trace in the cache.
    let plugins = PluginConfig {
        cache_dir: None,
        ..config.plugins
    };
    let plugins = LoadedPlugins::load(plugins, golden_cases())?;
    let by_architecture = plugins.are_chosen_by_architecture();
    let mut architectures = Vec::with_capacity(config.models.len());
    for model in &config.models {
        // Only where it matters: a model's files may have to be fetched first.
        architectures.push(match by_architecture {
            true => architecture(model)?,
            false => String::new(),
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

/// What a server would take for the architecture of a model.
fn architecture(model: &ModelConfig) -> anyhow::Result<String> {
    let mut model = model.clone();
    if let Some(reference) = &model.hf {
        model.path = Some(crate::hub::fetch(&hub_config()?, reference)?);
    }
    Ok(ModelText::open(&model)?.description.architecture.clone())
}

impl Subject {
    fn load(args: &PluginFileArgs) -> anyhow::Result<Self> {
        let config = HostConfig {
            cache_dir: args.cache.clone(),
            ..HostConfig::default()
        };
        Self::load_into(PluginHost::new(config)?, args)
    }

    /// On a host that notes where plugins spend their time.
    fn profiled(args: &PluginFileArgs) -> anyhow::Result<Self> {
        let config = HostConfig {
            profile: true,
            ..HostConfig::default()
        };
        Self::load_into(PluginHost::new(config)?, args)
    }

    fn load_into(host: PluginHost, args: &PluginFileArgs) -> anyhow::Result<Self> {
        let component = host.load(ComponentSource::File(args.file.clone()))?;
        let text = model_text(args.model.as_deref())?;
        Ok(Self::new(host, component, text, PluginConfig::default()))
    }

    /// With what the command line grants.
    fn granted(mut self, grants: &GrantArgs) -> anyhow::Result<Self> {
        let surroundings = Surroundings {
            origins: grants.origins.clone(),
            secrets: grants.secrets.clone(),
            now: grants.now,
        };
        surroundings.check(&self.component)?;
        self.surroundings = surroundings;
        Ok(self)
    }
}

fn settings_of(args: &PluginFileArgs) -> anyhow::Result<Value> {
    let settings: Value = serde_json::from_str(&args.settings).context("--settings is not JSON")?;
    match settings.is_object() {
        true => Ok(settings),
        false => bail!("--settings must be a JSON object"),
    }
}

fn verify(args: &PluginFileArgs) -> anyhow::Result<Value> {
    let subject = Subject::load(args)?;
    Declared::of(&subject.component).map_err(anyhow::Error::msg)?;
    subject.bench(&settings_of(args)?)?;
    let cases = prove(&subject.host, &subject.component, &PluginConfig::default())?;
    let kinds = subject.component.kinds().iter().map(|kind| kind.as_str());
    Ok(json!({
        "file": args.file,
        "sound": true,
        "prepared_as": kinds.collect::<Vec<_>>(),
        "cases_passed": cases,
    }))
}

fn ask(args: &PluginRunArgs) -> anyhow::Result<Value> {
    let subject = Subject::load(&args.plugin)?.granted(&args.grants)?;
    let request = read(args.input.as_deref())?;
    let kind = subject.kind(args.kind)?;
    let bench = subject.bench(&settings_of(&args.plugin)?)?;
    bench.ask(kind, request)
}
