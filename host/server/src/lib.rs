//! The front door: command line, configuration, HTTP, the OpenAI dialect, metrics and logs. It
//! knows wire shapes; it does not know tensors, tokens or WebAssembly.
//!
//! The program is [`main`] and nothing else. It is a library so that `fuzz/` can link what reads files.

mod admin;
mod app;
mod assembly;
mod author;
mod bench;
mod cli;
mod config;
mod devices;
mod drafts;
mod embedder;
pub mod fuzzing;
mod golden;
mod hub;
mod inspect;
mod offline;
mod surroundings;
mod workbench;

use std::process::ExitCode;

use clap::Parser as _;

use crate::cli::{Cli, Command, ConfigCommand, GrammarCommand, TemplateCommand};
use crate::config::{Config, ConfigError, ConfigSource, Overrides};

/// Wrong usage or configuration, as opposed to a failure.
const USAGE: u8 = 2;

/// Do what the command line says.
pub fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // One line: the error and what caused it.
            eprintln!("mortise: {error:#}");
            if error.is::<ConfigError>() {
                return ExitCode::from(USAGE);
            }
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Serve(args) => {
            let overrides = Overrides {
                host: args.host,
                port: args.port,
                model: args.model,
                hf: args.hf,
                served_model_name: args.served_model_name,
                plugins: args.plugins,
                api_keys: args.api_keys,
                max_context: args.max_context,
                device: args.device,
                log_format: args.log_format,
                log_level: args.log_level,
            };
            app::serve(ConfigSource {
                file: args.config,
                overrides,
            })
        }
        Command::Config(ConfigCommand::PrintDefault) => offline::print(config::DEFAULT_FILE),
        Command::Config(ConfigCommand::Check { file }) => {
            Config::load(Some(&file), Overrides::default())?;
            offline::print(
                "the configuration is right; `mortise plugin list --config` also loads its plugins and \
                 checks their settings\n",
            )
        }
        Command::Template(TemplateCommand::Render(input)) => offline::template(&input),
        Command::Parse(input) => offline::parse(&input),
        Command::Grammar(GrammarCommand::Check(input)) => offline::grammar(&input),
        Command::Tokenize(input) => offline::tokenize(&input),
        Command::Pull { reference } => {
            let path = hub::fetch(&config::hub_config()?, &reference)?;
            offline::print(&format!("{}\n", path.display()))
        }
        Command::Devices { json } => offline::print(&devices::describe(json)?),
        Command::Bench(args) => bench::run(&args),
        Command::Inspect(args) => offline::inspect(&args.path),
        Command::Plugin(command) => author::run(command),
    }
}
