//! Advice for an error: the next command, or the key to change.

use std::fmt;
use std::path::Path;

use mortise_config::ConfigError;
use mortise_harness::golden_cases;
use mortise_hub::HubError;
use mortise_plugin_manager::{LoadedPlugins, PluginConfig};

/// An error with what to do about it, at its end.
#[derive(Debug)]
struct Advised {
    error: anyhow::Error,
    advice: String,
}

impl fmt::Display for Advised {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:#}; {}", self.error, self.advice)
    }
}

// Its text has the causes, so that the advice comes last: it has no source.
impl std::error::Error for Advised {}

/// Wrong usage of the command line that only the command itself can tell.
#[derive(Debug)]
pub(crate) struct UsageError(pub(crate) String);

impl fmt::Display for UsageError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

/// Adds what to do to the error of a result.
pub(crate) trait Advise<T> {
    /// The error, and what to do about it.
    fn advise(self, advice: impl FnOnce() -> String) -> anyhow::Result<T>;
}

impl<T, E: Into<anyhow::Error>> Advise<T> for Result<T, E> {
    fn advise(self, advice: impl FnOnce() -> String) -> anyhow::Result<T> {
        self.map_err(|error| {
            let error = error.into();
            let advice = advice();
            anyhow::Error::new(Advised { error, advice })
        })
    }
}

/// Whether the command line or the configuration is wrong, as opposed to a failure.
pub(crate) fn is_usage(error: &anyhow::Error) -> bool {
    match error.downcast_ref::<Advised>() {
        Some(advised) => is_usage(&advised.error),
        None => error.is::<ConfigError>() || error.is::<UsageError>(),
    }
}

/// Whether the reader of standard output went away. A connection that broke is another matter.
pub(crate) fn is_closed_output(error: &anyhow::Error) -> bool {
    let broken = |cause: &(dyn std::error::Error + 'static)| {
        let io = cause.downcast_ref::<std::io::Error>();
        io.is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
    };
    error.chain().any(broken) && !error.chain().any(|cause| cause.is::<ureq::Error>())
}

/// The error on one line: what caused it, and what to do.
pub(crate) fn told(error: &anyhow::Error) -> String {
    match general(error) {
        Some(advice) => format!("{error:#}; {advice}"),
        None => format!("{error:#}"),
    }
}

/// Advice about errors that any command can meet.
fn general(error: &anyhow::Error) -> Option<&'static str> {
    let file = error.chain().find_map(|cause| cause.downcast_ref());
    let hub = error.chain().find_map(|cause| cause.downcast_ref());
    match (file, hub) {
        (Some(ConfigError::Unreadable { .. }), _) => {
            Some("`mortise config print-default > FILE` writes a file with every key")
        }
        // One that is nearly right is told in the message.
        (Some(ConfigError::Malformed { message, .. }), _) => (!message.contains("did you mean"))
            .then_some("`mortise config print-default` shows every key"),
        (_, Some(error)) => of_hub(error),
        _ => None,
    }
}

/// Advice about errors of the hub that do not have their own.
fn of_hub(error: &HubError) -> Option<&'static str> {
    match error {
        HubError::Network { .. } => Some(
            "check the network, or name a mirror with HF_ENDPOINT; `mortise serve --model PATH` serves files that are here",
        ),
        HubError::Offline { .. } => Some(
            "unset HF_HUB_OFFLINE and run `mortise pull` once; `mortise serve --model PATH` serves files that are here",
        ),
        _ => None,
    }
}

/// Load plugins, with advice where their folder is not there.
pub(crate) fn load_plugins(config: PluginConfig) -> anyhow::Result<LoadedPlugins> {
    let folder = config.dir.clone().filter(|folder| !folder.is_dir());
    let loaded = LoadedPlugins::load(config, golden_cases());
    match folder {
        None => Ok(loaded?),
        Some(folder) => loaded.advise(|| {
            let folder = folder.display();
            format!(
                "make it with `mkdir -p {folder}`, or name another with --plugins or `plugins.dir`"
            )
        }),
    }
}

/// Advice about a model that cannot be loaded from a path.
pub(crate) fn model_path(path: &Path) -> Option<String> {
    let is_folder = ["config.json", "tokenizer.json"];
    let is_folder = is_folder.iter().all(|file| path.join(file).is_file());
    let is_gguf = path.extension().is_some_and(|ending| ending == "gguf") && path.is_file();
    match is_folder || is_gguf {
        // It is a model, and the error says what is wrong with it.
        true => None,
        false => Some(
            "a model is a folder with config.json, tokenizer.json and *.safetensors, or a .gguf file; \
             `mortise serve --hf ORG/NAME` downloads one, `mortise serve` serves the demo model"
                .to_owned(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn advice_is_the_end_of_an_error_and_keeps_its_kind() {
        let wrong = ConfigError::Invalid {
            key: "a".to_owned(),
            line: None,
            message: "no".to_owned(),
        };
        let error = Err::<(), _>(wrong).advise(|| "do this".to_owned());
        let error = error.expect_err("an error");
        assert!(is_usage(&error));
        assert_eq!(told(&error), "the setting `a` is wrong: no; do this");
        let failed = std::fs::read("/nowhere/at/all").context("cannot read it");
        let error = failed.advise(|| "look".to_owned()).expect_err("an error");
        let text = told(&error);
        assert!(!is_usage(&error) && text.ends_with("; look"), "{text}");
        assert!(text.starts_with("cannot read it: No such file"), "{text}");
    }
}
