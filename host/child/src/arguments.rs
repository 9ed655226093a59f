//! Command line of a child process: its words, with places for what is known only when it starts.

use std::net::Ipv4Addr;
use std::path::Path;

use mortise_models::{ChildConfig, ModelConfig};

/// Address on which a process listens: the loopback address, which only this machine reaches.
pub(crate) const HOST: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// A command that cannot be started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadCommand {
    /// The command has no words.
    #[error("the command is empty; it begins with a program, such as \"llama-server\"")]
    Empty,
    /// The program of the command is named with a path, and is not there.
    #[error("there is no program `{0}`")]
    NoProgram(String),
    /// The command names the model's files, and the model has none.
    #[error("the command has `{{model}}`, and the model has neither `path` nor `hf`")]
    NoModel,
}

/// Values of the places in a command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlaceholderValues<'a> {
    /// Path of the model's files, or its name on the hub.
    pub(crate) model: Option<&'a str>,
    /// Name by which the process is asked for the model.
    pub(crate) name: &'a str,
    /// Port on which the process listens.
    pub(crate) port: u16,
}

impl PlaceholderValues<'_> {
    /// The command with everything in place. What the command does not name is appended as `--model`, `--port`
    /// and `--host`.
    ///
    /// # Errors
    /// When the command is empty, or names a model that is not there.
    pub(crate) fn fill(&self, command: &[String]) -> Result<Vec<String>, BadCommand> {
        if command.is_empty() {
            return Err(BadCommand::Empty);
        }
        let (port, host) = (self.port.to_string(), HOST.to_string());
        let names = |place: &str| command.iter().any(|word| word.contains(place));
        if names("{model}") && self.model.is_none() {
            return Err(BadCommand::NoModel);
        }
        let fill = |word: &String| {
            word.replace("{port}", &port)
                .replace("{host}", &host)
                .replace("{name}", self.name)
                .replace("{model}", self.model.unwrap_or_default())
        };
        let mut words: Vec<String> = command.iter().map(fill).collect();
        let appended = [
            ("--model", "{model}", self.model),
            ("--port", "{port}", Some(port.as_str())),
            ("--host", "{host}", Some(host.as_str())),
        ];
        for (option, place, value) in appended {
            if let Some(value) = value.filter(|_| !names(place)) {
                words.extend([option.to_owned(), value.to_owned()]);
            }
        }
        Ok(words)
    }
}

/// The files of a model as a command names them.
pub(crate) fn model_of(config: &ModelConfig) -> Option<String> {
    let path = config.path.as_ref();
    let path = path.map(|path| path.to_string_lossy().into_owned());
    path.or_else(|| config.hf.as_ref().map(ToString::to_string))
}

/// Check that a command could be started. A program without a slash is looked up in `PATH` at the start.
pub(crate) fn check(config: &ChildConfig) -> Result<(), BadCommand> {
    let program = config.command.first().ok_or(BadCommand::Empty)?;
    let named = program.contains('/') && !program.contains('{');
    let path = match &config.directory {
        Some(directory) => directory.join(program),
        None => Path::new(program).to_owned(),
    };
    match !named || path.is_file() {
        true => Ok(()),
        false => Err(BadCommand::NoProgram(program.clone())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(command: &[&str], model: Option<&str>) -> Result<Vec<String>, BadCommand> {
        let place = PlaceholderValues {
            model,
            name: "qwen",
            port: 50_001,
        };
        let command: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
        place.fill(&command)
    }

    #[test]
    fn feature_b1_model_port_and_host_are_appended_or_put_in_their_places() {
        let joined = |command: &[&str], model| words(command, model).expect("words").join(" ");
        assert_eq!(
            joined(&["llama-server", "-c", "4096"], Some("/m/a.gguf")),
            "llama-server -c 4096 --model /m/a.gguf --port 50001 --host 127.0.0.1"
        );
        assert_eq!(
            joined(
                &[
                    "serve",
                    "{model}",
                    "--as={name}",
                    "--listen",
                    "{host}:{port}"
                ],
                Some("m")
            ),
            "serve m --as=qwen --listen 127.0.0.1:50001"
        );
        assert_eq!(joined(&["run"], None), "run --port 50001 --host 127.0.0.1");
        assert_eq!(words(&["run", "{model}"], None), Err(BadCommand::NoModel));
        assert_eq!(words(&[], None), Err(BadCommand::Empty));
        // What stands in a value is no place.
        assert_eq!(
            joined(
                &["run", "{model}", "-p", "{port}", "-h", "{host}"],
                Some("{name}")
            ),
            "run {name} -p 50001 -h 127.0.0.1"
        );
    }
}
