//! `mortise plugin`: what an author does with a plugin before an operator does.

mod abuse;
mod args;
mod bench;
mod cases;
mod compose;
mod conformance;
mod cosign;
mod dev;
mod guest_log;
mod like;
mod outcomes;
mod pack;
mod plugin;
mod profile;
mod project;
mod registries;
mod registry_args;
mod rounds;
mod sign;
mod sources;
mod steps;

mod templates;

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use mortise_harness::{PluginUnderTest, print, print_json, prove, read};
use mortise_plugin_manager::{DeclaredModels, PluginConfig};
use serde_json::{Value, json};

pub use crate::args::AuthorCommand;
use crate::args::{PluginFileArgs, PluginRunArgs};
use crate::guest_log::GuestLog;
use crate::plugin::LoadPlugin as _;
use crate::rounds::Rounds;
pub use crate::sources::install_sources;
pub use crate::steps::{OpenSteps, ShowSteps};

/// Run one of the commands; `credentials` are files in the form of Docker's `config.json`, and `steps` shows how far long
/// ones are.
///
/// # Errors
/// Errors of the plugin, its cases or the arguments.
pub fn run(
    command: AuthorCommand,
    credentials: &[PathBuf],
    steps: OpenSteps,
) -> anyhow::Result<()> {
    let log = GuestLog::start();
    let ran = perform(command, credentials, &Rounds::new(steps, &log));
    log.finish();
    ran
}

fn perform(
    command: AuthorCommand,
    credentials: &[PathBuf],
    rounds: &Rounds<'_>,
) -> anyhow::Result<()> {
    match command {
        AuthorCommand::Verify(args) => print_json(&verify(&args)?),
        AuthorCommand::Run(args) => print_json(&ask(&args)?),
        AuthorCommand::Test(args) => cases::test(&args),
        AuthorCommand::Bench(args) => print_json(&bench::bench(&args, rounds)?),
        AuthorCommand::Profile(args) => print_json(&profile::profile(&args, rounds)?),
        AuthorCommand::New(args) => project::make(&args),
        AuthorCommand::Pack(args) => print_json(&pack::pack(&args)?),
        AuthorCommand::Compose(args) => print_json(&compose::compose(&args)?),
        AuthorCommand::Conformance(args) => conformance::conformance(&args),
        AuthorCommand::Dev(args) => dev::dev(&args),
        AuthorCommand::Sign(args) => print_json(&sign::sign(&args)?),
        AuthorCommand::Push(args) => print_json(&registries::push_plugin(&args, credentials)?),
        AuthorCommand::Pull(args) => print_json(&registries::pull_plugins(&args, credentials)?),
        AuthorCommand::Search(args) => print_json(&registries::search(&args, credentials)?),
        AuthorCommand::Reference => print(&mortise_wit::reference()?),
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
    let subject = PluginUnderTest::load(args)?;
    DeclaredModels::of(&subject.component).map_err(anyhow::Error::msg)?;
    subject.harness(&settings_of(args)?)?;
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
    let subject = PluginUnderTest::load(&args.plugin)?.granted(&args.grants)?;
    let request = read(args.input.as_deref())?;
    let kind = subject.kind(args.kind)?;
    let bench = subject.harness(&settings_of(&args.plugin)?)?;
    bench.ask(kind, request)
}
