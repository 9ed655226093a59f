//! `mortise plugin`: what an author does with a plugin before an operator does.

mod bench;
mod cases;
mod pack;
mod profile;
mod project;
mod templates;

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use mortise_plugin::{ComponentSource, HostConfig, Kind, PluginHost};
use serde_json::{Value, json};

use crate::assembly::ModelText;
use crate::cli::{PluginCommand, PluginFileArgs, PluginListArgs, PluginRunArgs};
use crate::config::{AuthConfig, Config, Overrides, PluginConfig};
use crate::offline::{model_text, print, print_json, read};
use crate::plugins::LoadedPlugins;
use crate::workbench::Workbench;

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
    let models: Vec<&str> = config
        .models
        .iter()
        .map(|model| model.name.as_str())
        .collect();
    // Listing needs no watcher and leaves no trace in the cache.
    let plugins = LoadedPlugins::load(PluginConfig {
        cache_dir: None,
        ..config.plugins
    })?;
    plugins.describe(&config.auth, &models)
}

/// A plugin file on a bench of its own.
struct Subject {
    host: PluginHost,
    kinds: Vec<Kind>,
    text: Arc<ModelText>,
    /// The cases that the file carries, as its author wrote them.
    cases: Option<String>,
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
        Ok(Self {
            host,
            kinds: component.kinds().to_vec(),
            cases: component.cases().map(str::to_owned),
            text: Arc::new(model_text(args.model.as_deref())?),
        })
    }

    /// Bind the plugin with these settings as each of its kinds.
    fn bench(&self, file: &Path, settings: &Value) -> anyhow::Result<Workbench> {
        let plugins = LoadedPlugins::single(&self.host, file, settings)?;
        Workbench::open(plugins, &AuthConfig::default(), Arc::clone(&self.text))
    }

    /// The kind that is asked: the one that is named, or the only one.
    fn kind(&self, named: Option<Kind>) -> anyhow::Result<Kind> {
        match (named, self.kinds.as_slice()) {
            (Some(kind), kinds) if kinds.contains(&kind) => Ok(kind),
            (Some(kind), _) => bail!("the plugin is no {kind}; it is: {}", self.kinds_text()),
            (None, [kind]) => Ok(*kind),
            (None, _) => bail!("say which of its kinds is meant: {}", self.kinds_text()),
        }
    }

    fn kinds_text(&self) -> String {
        let names: Vec<&str> = self.kinds.iter().map(|kind| kind.as_str()).collect();
        names.join(", ")
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
    subject.bench(&args.file, &settings_of(args)?)?;
    let kinds: Vec<&str> = subject.kinds.iter().map(|kind| kind.as_str()).collect();
    Ok(json!({"file": args.file, "sound": true, "prepared_as": kinds}))
}

fn ask(args: &PluginRunArgs) -> anyhow::Result<Value> {
    let request = read(args.input.as_deref())?;
    let subject = Subject::load(&args.plugin)?;
    let kind = subject.kind(args.kind.map(Kind::from))?;
    let bench = subject.bench(&args.plugin.file, &settings_of(&args.plugin)?)?;
    bench.ask(kind, request)
}
