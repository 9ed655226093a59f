//! The program `mortise`: the command line, and the wiring of all crates to a server.

mod admin_args;
mod admin_client;
mod admin_tls;
mod advice;
mod aliases;
mod app;
mod audit;
mod bench;
mod caller;
mod callers;
mod chat;
mod cli;
mod commands;
mod configured;
mod counters;
mod discovery;
mod documents;
mod doors;
mod hand_over;
mod health;
mod interrupt;
mod keep;
mod kept;
mod key_args;
mod library;
mod limits;
mod local_socket;
mod logins;
mod measure;
mod memory;
mod notify;
mod open;
mod operator;
mod progress;
mod reload;
mod remote;
mod running;
mod serving;
mod sharing;
mod spending;
mod start;
mod start_times;
mod tasks;
mod top;
mod traces;
mod watch;

use std::process::ExitCode;

use clap::Parser as _;
use mortise_child::{run_guard, run_guarded};
use mortise_config::{ConfigSource, Overrides, UpstreamOverride, config_files};
use mortise_harness::{print, print_as, print_json};
use mortise_models::lifecycle::LoadProgress;
use serde_json::json;

use crate::cli::{
    ChildProcessCommand, Cli, Command, ConfigCommand, GrammarCommand, PluginCommand,
    TemplateCommand,
};
use crate::commands::{
    audit as audit_log, check, devices, health as health_of, inspect, keys, loras, models, plugins,
    shell, store, text,
};

/// Wrong usage or configuration, as opposed to a failure.
const USAGE: u8 = 2;

/// Do what the command line says.
pub fn main() -> ExitCode {
    let ended = match Cli::parse().command {
        Command::ChildProcess(command) => child_process(&command),
        command => run(command).map(|()| ExitCode::SUCCESS),
    };
    match ended {
        Ok(code) => code,
        // Who reads the output has seen enough, as `head` has.
        Err(error) if advice::is_closed_output(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // One line: the error and what caused it.
            mortise_telemetry::print_last(format!("mortise: {}", advice::told(&error)));
            if advice::is_usage(&error) {
                return ExitCode::from(USAGE);
            }
            ExitCode::FAILURE
        }
    }
}

/// Stand between a server and a process of its, and end as that says.
fn child_process(command: &ChildProcessCommand) -> anyhow::Result<ExitCode> {
    match command {
        ChildProcessCommand::Guard { command } => Ok(run_guard(command)?),
        ChildProcessCommand::Guarded { guard, command } => Ok(run_guarded(*guard, command)),
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::ChildProcess(command) => child_process(&command).map(drop),
        Command::Serve(args) => {
            memory::tune();
            let overrides = Overrides {
                host: args.host,
                port: args.port,
                plaintext: args.plaintext,
                model: args.model,
                hf: args.hf,
                models_dirs: args.models_dir,
                upstream: (!args.upstream.is_empty()).then_some(UpstreamOverride {
                    urls: args.upstream,
                    key_env: args.upstream_key_env,
                }),
                served_model_name: args.served_model_name,
                plugins: args.plugins,
                api_keys: args.api_keys,
                strict: args.strict,
                max_context: args.max_context,
                device: args.device,
                store: args.store,
                log_format: args.log_format,
                log_level: args.log_level,
            };
            let files = config_files(args.config);
            app::serve(ConfigSource { files, overrides }, args.take_over)
        }
        Command::Config(ConfigCommand::PrintDefault) => print(mortise_config::DEFAULT_FILE),
        Command::Config(ConfigCommand::Check { files, against }) => check::run(&files, &against),
        Command::Config(ConfigCommand::ImportRouter { file }) => check::import_router(&file),
        Command::Template(TemplateCommand::Render(input)) => text::template(&input),
        Command::Parse(input) => text::parse(&input),
        Command::Grammar(GrammarCommand::Check(input)) => text::grammar(&input),
        Command::Tokenize(input) => text::tokenize(&input),
        Command::Pull { reference, json } => {
            let hub = mortise_config::hub_config()?;
            let path = mortise_models::download(&hub, &reference, &LoadProgress::default())?;
            let pulled = json!({"model": reference.to_string(), "path": path});
            print_as(json, &pulled, |_| format!("{}\n", path.display()))
        }
        Command::Loras(command) => loras::run(command),
        Command::Models(command) => models::run(command),
        Command::Keys(command) => keys::run(command),
        Command::Store(command) => store::run(command),
        Command::Audit(command) => audit_log::run(command),
        Command::Devices { json } => print(&devices::describe(json)?),
        Command::Bench(args) => bench::run(&args),
        Command::Chat(args) => chat::run(args),
        Command::Top(args) => top::run(&args),
        Command::Health(args) => health_of::run(&args),
        Command::Completions { shell } => shell::completions(shell),
        Command::Man { folder } => shell::man(folder.as_deref()),
        Command::Inspect(args) => print_json(&inspect::inspect(&args.path)?),
        Command::Plugin(PluginCommand::List(args)) => print_json(&plugins::list(args)?),
        Command::Plugin(PluginCommand::Inspect { file }) => print_json(&inspect::plugin(&file)?),
        Command::Plugin(PluginCommand::Author(command)) => {
            let credentials = mortise_config::registry_credentials();
            mortise_author::run(*command, &credentials, progress::show_steps)
        }
    }
}
