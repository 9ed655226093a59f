//! The `child` table of a model: a process that this server starts and asks.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use mortise_models::{ChildConfig, RestartPolicy, UpstreamConfig};
use serde::Deserialize;

use super::upstream::{
    RawApi, RawCapability, RawHealthCheck, RawMaxTokensField, RawRender, RawThinking, RawUpstream,
};
use super::{ConfigError, invalid, milliseconds};

/// Words of a command, and environment variables, at most.
const WORDS_MAX: usize = 256;
/// Bytes of a word of a command at most.
const WORD_BYTES_MAX: usize = 16 << 10;
/// Restarts in a row at most.
const RESTARTS_MAX: u32 = 1000;
/// Least port that needs no privilege.
const FIRST_PORT: u16 = 1024;

/// The table as it is written.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawChild {
    pub(crate) command: Vec<String>,
    pub(crate) directory: Option<PathBuf>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) health_path: Option<String>,
    pub(crate) base_path: String,
    pub(crate) ready_timeout_ms: u64,
    pub(crate) stop_timeout_ms: u64,
    pub(crate) base_port: u16,
    pub(crate) group: Option<String>,
    pub(crate) restart: u32,
    pub(crate) restart_pause_ms: u64,
    pub(crate) model: Option<String>,
    pub(crate) api_key_env: Option<String>,
    pub(crate) api_key_file: Option<PathBuf>,
    pub(crate) api: RawApi,
    pub(crate) capability: RawCapability,
    pub(crate) embedding_batch: Option<usize>,
    pub(crate) render: RawRender,
    pub(crate) max_tokens_field: RawMaxTokensField,
    pub(crate) thinking: Option<RawThinking>,
    pub(crate) forward_image_urls: bool,
    pub(crate) context_length: Option<usize>,
    pub(crate) max_requests: usize,
    pub(crate) first_byte_timeout_ms: u64,
    pub(crate) chunk_timeout_ms: u64,
}

impl Default for RawChild {
    fn default() -> Self {
        let upstream = RawUpstream::default();
        Self {
            command: Vec::new(),
            directory: None,
            env: BTreeMap::new(),
            health_path: None,
            base_path: "/v1".to_owned(),
            ready_timeout_ms: 60_000,
            stop_timeout_ms: 2_000,
            base_port: 50_000,
            group: None,
            restart: 0,
            restart_pause_ms: 1_000,
            model: None,
            api_key_env: None,
            api_key_file: None,
            api: upstream.api,
            capability: upstream.capability,
            embedding_batch: None,
            render: upstream.render,
            max_tokens_field: upstream.max_tokens_field,
            thinking: None,
            forward_image_urls: false,
            context_length: None,
            max_requests: upstream.max_requests,
            first_byte_timeout_ms: upstream.first_byte_timeout_ms,
            chunk_timeout_ms: upstream.chunk_timeout_ms,
        }
    }
}

impl RawChild {
    /// The checked table. `key` is the path of a key for messages; the model is called `name` there if nothing
    /// else is said.
    pub(super) fn check(
        self,
        key: &dyn Fn(&str) -> String,
        name: &str,
        base: &Path,
    ) -> Result<ChildConfig, ConfigError> {
        let time = |name: &str, value| milliseconds(&key(name), value);
        self.check_words(key)?;
        if self.base_port < FIRST_PORT {
            let problem = format!(
                "it must be from {FIRST_PORT} to 65535; it is {}",
                self.base_port
            );
            return Err(invalid(&key("base_port"), problem));
        }
        if self.restart > RESTARTS_MAX {
            let problem = format!("it must be at most {RESTARTS_MAX}; it is {}", self.restart);
            return Err(invalid(&key("restart"), problem));
        }
        for (name, path) in [
            ("base_path", Some(&self.base_path)),
            ("health_path", self.health_path.as_ref()),
        ] {
            let plain = |byte: u8| byte.is_ascii_graphic() && !b"\"<>\\^`{|}#?".contains(&byte);
            let from_root = |path: &String| path.starts_with('/') && !path.starts_with("//");
            if path.is_some_and(|path| !from_root(path) || !path.bytes().all(plain)) {
                let problem = "it must be a path from the root, such as `/health`";
                return Err(invalid(&key(name), problem));
            }
        }
        let group = self.group.clone();
        if group.as_ref().is_some_and(|group| group.trim().is_empty()) {
            return Err(invalid(&key("group"), "it is empty; leave it out"));
        }
        Ok(ChildConfig {
            directory: self.directory.as_ref().map(|path| base.join(path)),
            health_path: self.health_path.clone().unwrap_or(match self.api {
                // Its `/health` answers while it loads.
                RawApi::Mortise => "/ready".to_owned(),
                _ => "/health".to_owned(),
            }),
            ready_timeout: time("ready_timeout_ms", self.ready_timeout_ms)?,
            stop_timeout: time("stop_timeout_ms", self.stop_timeout_ms)?,
            restart: RestartPolicy {
                attempts: self.restart,
                pause: time("restart_pause_ms", self.restart_pause_ms)?,
            },
            base_port: self.base_port,
            base_path: self.base_path.trim_end_matches('/').to_owned(),
            group,
            command: beside_the_file(&self.command, self.directory.is_some(), base),
            variables: self.env.clone(),
            upstream: self.upstream(key, name, base)?,
        })
    }

    fn check_words(&self, key: &dyn Fn(&str) -> String) -> Result<(), ConfigError> {
        if self.command.is_empty() || self.command.len() > WORDS_MAX {
            let problem = format!(
                "it must have 1 to {WORDS_MAX} words, such as [\"llama-server\", \"-c\", \"8192\"]; it \
                 has {}",
                self.command.len()
            );
            return Err(invalid(&key("command"), problem));
        }
        let bad = |word: &String| word.len() > WORD_BYTES_MAX || word.contains('\0');
        if self.command.iter().any(bad) || self.command[0].is_empty() {
            let problem = format!("a word is empty, or has more than {WORD_BYTES_MAX} bytes");
            return Err(invalid(&key("command"), problem));
        }
        let no_name = |name: &String| name.is_empty() || name.contains(['=', '\0']) || bad(name);
        let wrong = self
            .env
            .iter()
            .any(|(name, value)| no_name(name) || bad(value));
        match wrong || self.env.len() > WORDS_MAX {
            true => Err(invalid(
                &key("env"),
                "it holds names of variables, without `=`, and their values",
            )),
            false => Ok(()),
        }
    }

    /// API of the process; it has no address yet.
    fn upstream(
        &self,
        key: &dyn Fn(&str) -> String,
        name: &str,
        base: &Path,
    ) -> Result<UpstreamConfig, ConfigError> {
        let raw = RawUpstream {
            urls: vec!["http://127.0.0.1".to_owned()],
            model: self.model.clone(),
            api_key_env: self.api_key_env.clone(),
            api_key_file: self.api_key_file.clone(),
            api: self.api,
            capability: self.capability,
            embedding_batch: self.embedding_batch,
            render: self.render,
            max_tokens_field: self.max_tokens_field,
            thinking: self.thinking,
            forward_image_urls: self.forward_image_urls,
            context_length: self.context_length,
            max_requests: self.max_requests,
            first_byte_timeout_ms: self.first_byte_timeout_ms,
            chunk_timeout_ms: self.chunk_timeout_ms,
            // The end of the process is seen as it comes.
            health_check: RawHealthCheck::ConfigOnly,
            ..RawUpstream::default()
        };
        let checked = raw.check(key, &key("command"), name, base)?;
        Ok(UpstreamConfig {
            urls: Vec::new(),
            ..checked
        })
    }
}

/// The command; a program that is named with a relative path lies beside the file, unless the process has a
/// directory of its own.
fn beside_the_file(command: &[String], has_directory: bool, base: &Path) -> Vec<String> {
    let mut command = command.to_vec();
    if let Some(program) = command.first_mut()
        && program.contains('/')
        && !has_directory
    {
        let path = base.join(&*program);
        let path = std::path::absolute(&path).unwrap_or(path);
        *program = path.to_string_lossy().into_owned();
    }
    command
}
