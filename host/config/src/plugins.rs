//! The `[plugins]` table, checked.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use mortise_plugin::{BreakerLimits, HttpAuthorities, HttpAuthoritiesError, HttpGrant, Kind};
use mortise_plugin_manager::{BindingConfig, OnFailure, PluginBounds, PluginConfig, nearest_line};

use super::guardrails::check_watch;
use super::hex::hex_32;
use super::policy_grants::{check_headers, check_rewrite, check_secrets};
use super::raw::{RawBinding, RawHttp, RawPlugins};
use super::templates::check_templates;
use super::variables::read;
use super::{ConfigError, invalid, milliseconds, within};

pub(super) fn check_plugins(
    raw: &RawPlugins,
    bindings: Vec<RawBinding>,
    base: &Path,
    dir: Option<PathBuf>,
) -> Result<PluginConfig, ConfigError> {
    let dir = dir.or_else(|| raw.dir.as_ref().map(|dir| base.join(dir)));
    let bindings = bindings.into_iter().enumerate();
    let bindings = bindings.map(|(index, binding)| {
        let lines = binding.lines.clone();
        check_binding(index, binding, base, dir.as_deref())
            .map_err(|error| with_line(error, index, &lines))
    });
    let keys = raw.trusted_keys.iter().enumerate();
    let keys = keys.map(|(index, key)| {
        hex_32(key).ok_or_else(|| {
            invalid(
                &format!("plugins.trusted_keys[{index}]"),
                "it must be an ed25519 public key: 32 bytes in 64 hexadecimal digits",
            )
        })
    });
    let trusted_keys: Vec<[u8; 32]> = keys.collect::<Result<_, _>>()?;
    if raw.require_signed && trusted_keys.is_empty() {
        return Err(invalid(
            "plugins.require_signed",
            "it needs a key in plugins.trusted_keys, or no file could ever be taken",
        ));
    }
    let bindings: Vec<BindingConfig> = bindings.collect::<Result<_, _>>()?;
    check_names(&bindings)?;
    let dir = dir.or_else(|| raw.dir.as_ref().map(|dir| base.join(dir)));
    if raw.upload && dir.is_none() {
        return Err(invalid(
            "plugins.upload",
            "it needs a folder for the files; give `plugins.dir`",
        ));
    }
    Ok(PluginConfig {
        dir,
        cache_dir: raw.cache_dir.as_ref().map(|dir| base.join(dir)),
        watch: match raw.watch_ms {
            0 => None,
            every => Some(milliseconds("plugins.watch_ms", every)?),
        },
        bounds: PluginBounds {
            memory_bytes: mebibytes("plugins.memory_mib", raw.memory_mib)?,
            output_bytes: mebibytes("plugins.output_mib", raw.output_mib)?,
            deadline: deadline("plugins.deadline_ms", raw.deadline_ms)?,
            budget: deadline("plugins.budget_ms", raw.budget_ms)?,
            instances: instances("plugins.instances", raw.instances)?,
        },
        fault: None,
        quarantine: !raw.strict,
        upload: raw.upload,
        require_signed: raw.require_signed,
        trusted_keys,
        registry_origins: each("plugins.registry_origins", &raw.registry_origins)?,
        bindings,
    })
}

/// Two bindings of one name would draw from the same rate limits.
fn check_names(bindings: &[BindingConfig]) -> Result<(), ConfigError> {
    let mut known = BTreeMap::new();
    for (index, binding) in bindings.iter().enumerate() {
        let Some(name) = &binding.name else {
            continue;
        };
        if let Some(first) = known.insert(name, index) {
            let error = invalid(
                &format!("plugins.bindings[{index}].name"),
                format!("plugins.bindings[{first}] has this name as well"),
            );
            return Err(with_line(error, index, &binding.lines));
        }
    }
    Ok(())
}

/// An error about a key of a binding, with the line of the key.
fn with_line(error: ConfigError, index: usize, lines: &BTreeMap<String, usize>) -> ConfigError {
    let ConfigError::Invalid { key, message, .. } = error else {
        return error;
    };
    let within = key.strip_prefix(&format!("plugins.bindings[{index}]"));
    let pointer = within.map(|key| key.replace(['.', '['], "/").replace(']', ""));
    ConfigError::Invalid {
        line: pointer.and_then(|pointer| nearest_line(lines, &pointer)),
        key,
        message,
    }
}

fn mebibytes(key: &str, value: Option<usize>) -> Result<Option<usize>, ConfigError> {
    let bounded = |value| within(key, value, 4096).map(|value| value << 20);
    value.map(bounded).transpose()
}

fn deadline(key: &str, value: Option<u64>) -> Result<Option<Duration>, ConfigError> {
    value.map(|value| milliseconds(key, value)).transpose()
}

fn instances(key: &str, value: Option<usize>) -> Result<Option<usize>, ConfigError> {
    value.map(|value| within(key, value, 1000)).transpose()
}

fn check_binding(
    index: usize,
    raw: RawBinding,
    base: &Path,
    dir: Option<&Path>,
) -> Result<BindingConfig, ConfigError> {
    let key = |name: &str| format!("plugins.bindings[{index}].{name}");
    let settings = serde_json::to_value(&raw.settings)
        .map_err(|error| invalid(&key("settings"), error.to_string()))?;
    check_on_failure(&key("on_failure"), raw.kind, raw.on_failure)?;
    if !matches!(raw.kind, Kind::Policy | Kind::Guardrail) && raw.order != 0 {
        let problem =
            "only a policy or a guardrail has it; of other kinds the most specific binding serves";
        return Err(invalid(&key("order"), problem));
    }
    check_retriever(&key, &raw)?;
    check_patterns(&key("models"), &raw.models)?;
    check_patterns(&key("tenants"), &raw.tenants)?;
    check_patterns(&key("routes"), &raw.routes)?;
    check_routes(key, &raw.routes)?;
    check_architectures(&key("architectures"), raw.kind, &raw.architectures)?;
    check_pin(&key("sha256"), &raw)?;
    let file = match &raw.source {
        None => raw.file.as_ref().map(|file| base.join(file)),
        Some(source) => Some(pulled_file(&key("source"), source, &raw, dir)?),
    };
    let watch = check_watch(
        &key,
        raw.kind,
        (raw.mode, raw.hold_tokens, raw.every_tokens),
    )?;
    let breaker = raw.breaker;
    let breaker = BreakerLimits {
        failures: breaker.failures,
        window_ms: duration_ms(&key("breaker.window_ms"), breaker.window_ms)?,
        pause_ms: duration_ms(&key("breaker.pause_ms"), breaker.pause_ms)?,
        ..BreakerLimits::default()
    };
    Ok(BindingConfig {
        kind: raw.kind,
        name: raw.name,
        file,
        source: raw.source,
        sha256: raw.sha256.map(|digest| digest.to_ascii_lowercase()),
        models: raw.models,
        architectures: raw.architectures,
        tenants: raw.tenants,
        routes: raw.routes,
        order: raw.order,
        on_failure: raw.on_failure,
        bounds: PluginBounds {
            memory_bytes: mebibytes(&key("memory_mib"), raw.memory_mib)?,
            output_bytes: mebibytes(&key("output_mib"), raw.output_mib)?,
            deadline: deadline(&key("deadline_ms"), raw.deadline_ms)?,
            budget: deadline(&key("budget_ms"), raw.budget_ms)?,
            instances: instances(&key("instances"), raw.instances)?,
        },
        breaker,
        http: check_http(&key("http"), raw.kind, raw.http, base)?,
        secrets: check_secrets(&key("secrets"), raw.kind, raw.secrets)?,
        headers: check_headers(&key("headers"), raw.kind, raw.headers)?,
        rewrites: check_rewrite(&key("rewrite"), raw.kind, raw.rewrite)?,
        watch,
        templates: check_templates(&key("templates"), raw.kind, raw.templates, base)?,
        settings,
        lines: raw.lines,
    })
}

/// A retriever is chosen by its name, and not by what is asked.
fn check_retriever(key: &impl Fn(&str) -> String, raw: &RawBinding) -> Result<(), ConfigError> {
    if raw.kind != Kind::Retriever {
        return Ok(());
    }
    let any = |patterns: &[String]| patterns == ["*"];
    for (name, patterns) in [("models", &raw.models), ("routes", &raw.routes)] {
        if !any(patterns) {
            let message = "a retriever is chosen by its name; `tenants` says who may choose it";
            return Err(invalid(&key(name), message));
        }
    }
    Ok(())
}

/// Patterns of routes.
fn check_routes(key: impl Fn(&str) -> String, routes: &[String]) -> Result<(), ConfigError> {
    match routes
        .iter()
        .position(|route| !route.starts_with(['/', '*']))
    {
        None => Ok(()),
        Some(index) => {
            let route = &routes[index];
            let problem =
                format!("a route begins with `/`, such as \"/v1/chat/*\"; it is `{route}`");
            Err(invalid(&key(&format!("routes[{index}]")), problem))
        }
    }
}

/// The digest of a binding's file.
fn check_pin(key: &str, raw: &RawBinding) -> Result<(), ConfigError> {
    let Some(digest) = &raw.sha256 else {
        return Ok(());
    };
    if raw.file.is_none() && raw.source.is_none() {
        return Err(invalid(key, "it pins a `file`, and none is named"));
    }
    match digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        true => Ok(()),
        false => Err(invalid(key, "it must have 64 hexadecimal digits")),
    }
}

/// Scheme of the plugins of registries.
const OCI: &str = "oci://";

/// The file that a plugin from a registry is in the folder: the last part of its name, with `.wasm`.
fn pulled_file(
    key: &str,
    source: &str,
    raw: &RawBinding,
    dir: Option<&Path>,
) -> Result<PathBuf, ConfigError> {
    if raw.file.is_some() {
        return Err(invalid(key, "the binding has a `file` as well"));
    }
    let Some(dir) = dir else {
        return Err(invalid(key, "it needs plugins.dir, where it is kept"));
    };
    let example = "write oci://registry.example/team/my-policy:1.0, or with @sha256:… behind it";
    let Some((_, path)) = source
        .strip_prefix(OCI)
        .and_then(|rest| rest.split_once('/'))
    else {
        return Err(invalid(key, example));
    };
    let name = path.split('@').next().unwrap_or_default();
    let name = name.rsplit('/').next().unwrap_or_default();
    let name = name.split(':').next().unwrap_or_default();
    let plain =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte);
    match !name.is_empty() && !name.starts_with('.') && name.bytes().all(plain) {
        true => Ok(dir.join(format!("{name}.wasm"))),
        false => Err(invalid(key, example)),
    }
}

/// Patterns of architectures, for the kinds that are bound to a model.
fn check_architectures(key: &str, kind: Kind, architectures: &[String]) -> Result<(), ConfigError> {
    let of_all = [Kind::Policy, Kind::Tool, Kind::Guardrail, Kind::Retriever].contains(&kind);
    if of_all && architectures != ["*"] {
        return Err(invalid(
            key,
            "a policy, a tool, a guardrail or a retriever serves all models at once; choose them by `models`",
        ));
    }
    check_patterns(key, architectures)?;
    for (index, pattern) in architectures.iter().enumerate() {
        if pattern.ends_with("ForCausalLM") {
            return Err(invalid(
                &format!("{key}[{index}]"),
                format!(
                    "`{pattern}` is the name of a class; an architecture is the `model_type` of \
                     config.json, such as \"qwen3\", or a GGUF file's `general.architecture`"
                ),
            ));
        }
    }
    Ok(())
}

/// A list of patterns that something could match.
fn check_patterns(key: &str, patterns: &[String]) -> Result<(), ConfigError> {
    if patterns.is_empty() {
        return Err(invalid(
            key,
            "it is empty, so the binding would serve nobody; leave it out to serve all",
        ));
    }
    match patterns.iter().position(String::is_empty) {
        Some(index) => Err(invalid(&format!("{key}[{index}]"), "it is empty")),
        None => Ok(()),
    }
}

fn check_http(
    key: &str,
    kind: Kind,
    raw: Option<RawHttp>,
    base: &Path,
) -> Result<HttpGrant, ConfigError> {
    let default = HttpGrant::default();
    let Some(raw) = raw else {
        return Ok(default);
    };
    if ![Kind::Policy, Kind::Tool, Kind::Guardrail, Kind::Retriever].contains(&kind) {
        return Err(invalid(
            key,
            "only a policy, a tool, a guardrail or a retriever has it",
        ));
    }
    let kibibytes = |value| within(&format!("{key}.max_response_kib"), value, 1 << 20);
    let max_response_bytes = match raw.max_response_kib {
        Some(value) => kibibytes(usize::try_from(value).unwrap_or(usize::MAX))? as u64 * 1024,
        None => default.max_response_bytes,
    };
    Ok(HttpGrant {
        origins: each(&format!("{key}.origins"), &raw.origins)?,
        networks: each(&format!("{key}.networks"), &raw.networks)?,
        authorities: match raw.ca_file {
            Some(file) => Some(authorities(&format!("{key}.ca_file"), &base.join(file))?),
            None => None,
        },
        max_response_bytes,
        timeout: match raw.timeout_ms {
            Some(value) => milliseconds(&format!("{key}.timeout_ms"), value)?,
            None => default.timeout,
        },
        at_once: match raw.at_once {
            Some(value) => within(&format!("{key}.at_once"), value, 256)?,
            None => default.at_once,
        },
        requests_per_call: raw.requests_per_call.unwrap_or(default.requests_per_call),
    })
}

/// The certificates of a file.
fn authorities(key: &str, path: &Path) -> Result<HttpAuthorities, ConfigError> {
    let wrong = |error: &dyn Display| invalid(key, format!("`{}`: {error}", path.display()));
    let text = read(key, path)?;
    text.parse()
        .map_err(|error: HttpAuthoritiesError| wrong(&error))
}

/// Every text of a list as what it stands for.
fn each<T: FromStr<Err: Display>>(key: &str, texts: &[String]) -> Result<Vec<T>, ConfigError> {
    let texts = texts.iter().enumerate();
    let read = texts.map(|(index, text)| {
        let wrong = |error: T::Err| invalid(&format!("{key}[{index}]"), error.to_string());
        text.parse().map_err(wrong)
    });
    read.collect()
}

fn duration_ms(key: &str, value: u64) -> Result<u64, ConfigError> {
    milliseconds(key, value).map(|_| value)
}

/// Without a prompt there is no answer, and without its grammar an answer breaks a promise; a
/// parser of another format would make things up; and a policy or a tool that stands in is another
/// one.
fn check_on_failure(key: &str, kind: Kind, chosen: OnFailure) -> Result<(), ConfigError> {
    let (sound, choices) = match kind {
        Kind::ChatTemplate | Kind::Grammar => (OnFailure::Fallback, "\"closed\" or \"fallback\""),
        Kind::OutputParser | Kind::Policy | Kind::Tool | Kind::Guardrail | Kind::Retriever => {
            (OnFailure::Open, "\"closed\" or \"open\"")
        }
    };
    if chosen == OnFailure::Closed || chosen == sound {
        return Ok(());
    }
    Err(invalid(key, format!("for this kind it must be {choices}")))
}
