//! Puts together what serves a model: which plugin for each kind, its tokenizer, its handles.
//! Used by the server and by the offline commands, so that both run the same components.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use mortise_plugin::{
    Binding, ChatTemplate, Component, ComponentSource, Grammar, HostConfig, Kind, Limits,
    OutputParser, PluginHost, Policy,
};
use serde_json::Value;

use crate::config::{AuthConfig, BindingConfig, BindingKind, PluginConfig};
use crate::model_text::ModelText;

/// Where the components come from that are part of the program.
const EMBEDDED: &str = "embedded";

impl From<BindingKind> for Kind {
    fn from(kind: BindingKind) -> Self {
        match kind {
            BindingKind::ChatTemplate => Self::ChatTemplate,
            BindingKind::OutputParser => Self::OutputParser,
            BindingKind::Grammar => Self::Grammar,
            BindingKind::Policy => Self::Policy,
        }
    }
}

/// All plugins that were loaded, and the rules for who serves what.
pub(crate) struct Plugins {
    pub(crate) host: PluginHost,
    /// The defaults that are part of the program.
    embedded: Vec<Arc<Component>>,
    /// Those of the operator's folder, by file name.
    folder: Vec<Arc<Component>>,
    bindings: Vec<Rule>,
    config: PluginConfig,
}

/// An entry of `[[plugins.bindings]]`, with its file loaded.
struct Rule {
    config: BindingConfig,
    component: Option<Arc<Component>>,
}

/// A component chosen for a place, with its settings.
#[derive(Clone)]
struct Choice {
    component: Arc<Component>,
    settings: Value,
}

impl Plugins {
    /// Load everything. Blocks: compiling a plugin can take seconds.
    pub(crate) fn load(mut config: PluginConfig) -> anyhow::Result<Self> {
        let host = PluginHost::new(HostConfig {
            cache_dir: config.cache_dir.clone(),
            ..HostConfig::default()
        })?;
        let embedded = mortise_bundle::plugins()
            .into_iter()
            .map(|source| host.load(source))
            .collect::<Result<Vec<_>, _>>()?;
        let mut folder = Vec::new();
        if let Some(dir) = &config.dir {
            for path in wasm_files(dir)? {
                folder.push(host.load(ComponentSource::File(path))?);
            }
        }
        let mut bindings = Vec::new();
        for rule in std::mem::take(&mut config.bindings) {
            let component = match &rule.file {
                Some(path) => Some(loaded(&host, &folder, path)?),
                None => None,
            };
            bindings.push(Rule {
                config: rule,
                component,
            });
        }
        Ok(Self {
            host,
            embedded,
            folder,
            bindings,
            config,
        })
    }

    /// The component that serves this kind for this model: of the last binding that matches, of
    /// the folder, or the embedded one.
    fn choose(&self, kind: Kind, model: &str) -> anyhow::Result<Choice> {
        let matching = |rule: &&Rule| {
            Kind::from(rule.config.kind) == kind
                && rule
                    .config
                    .models
                    .iter()
                    .any(|pattern| matches_pattern(pattern, model))
        };
        let rules: Vec<&Rule> = self.bindings.iter().filter(matching).collect();
        let settings = rules.last().map(|rule| rule.config.settings.clone());
        let bound = rules.iter().rev().find_map(|rule| rule.component.clone());
        let component = match bound {
            Some(component) => component,
            None => self.unbound(kind)?,
        };
        Ok(Choice {
            component,
            settings: settings.unwrap_or_else(|| Value::Object(serde_json::Map::new())),
        })
    }

    /// The component of a kind that no binding names.
    fn unbound(&self, kind: Kind) -> anyhow::Result<Arc<Component>> {
        let of_kind = |component: &&Arc<Component>| component.kinds().contains(&kind);
        let own: Vec<&Arc<Component>> = self.folder.iter().filter(of_kind).collect();
        match own.as_slice() {
            [] => match self.embedded.iter().find(of_kind) {
                Some(component) => Ok(Arc::clone(component)),
                None => {
                    bail!("no {kind} plugin is embedded; this build of mortise is not complete")
                }
            },
            [one] => Ok(Arc::clone(one)),
            [first, second, ..] => bail!(
                "both `{}` and `{}` are {kind} plugins; say which serves whom in \
                 [[plugins.bindings]]",
                first.origin(),
                second.origin()
            ),
        }
    }

    /// The policies, in the order in which they are asked: those of the bindings; else those of
    /// the folder; else the embedded one.
    pub(crate) async fn policies(&self, auth: &AuthConfig) -> anyhow::Result<Vec<Policy>> {
        let mut chain: Vec<Choice> = Vec::new();
        for rule in self
            .bindings
            .iter()
            .filter(|rule| rule.config.kind == BindingKind::Policy)
        {
            let component = match &rule.component {
                Some(component) => Arc::clone(component),
                None => self.unbound(Kind::Policy)?,
            };
            let settings = rule.config.settings.clone();
            chain.push(Choice {
                component,
                settings,
            });
        }
        if chain.is_empty() {
            let component = self.unbound(Kind::Policy)?;
            let settings = Value::Object(serde_json::Map::new());
            chain.push(Choice {
                component,
                settings,
            });
        }
        let mut policies = Vec::with_capacity(chain.len());
        for choice in chain {
            let binding = Binding {
                settings: merged(&auth.settings, &choice.settings).to_string(),
                secrets: auth.secrets.clone(),
                limits: self.limits(Kind::Policy),
                ..Binding::default()
            };
            self.report(Kind::Policy, &choice.component, "*");
            policies.push(Policy::bind(&self.host, &choice.component, binding).await?);
        }
        Ok(policies)
    }

    /// The handles that serve one model.
    pub(crate) async fn bind(&self, model: &ModelText) -> anyhow::Result<Handles> {
        let (template, binding) = self.binding(Kind::ChatTemplate, model)?;
        // The default component renders what the model or the operator gives it; without either
        // the model has no chat format.
        let renders = model.description.chat_template.is_some()
            || template.origin() != EMBEDDED
            || binding.settings.contains("\"chat_template\"");
        let template = ChatTemplate::bind(&self.host, &template, binding).await?;
        let (parser, binding) = self.binding(Kind::OutputParser, model)?;
        let parser = OutputParser::bind(&self.host, &parser, binding).await?;
        let (grammar, binding) = self.binding(Kind::Grammar, model)?;
        let grammar = Grammar::bind(&self.host, &grammar, binding).await?;
        Ok(Handles {
            template: renders.then_some(template),
            parser,
            grammar,
        })
    }

    fn binding(&self, kind: Kind, model: &ModelText) -> anyhow::Result<(Arc<Component>, Binding)> {
        let choice = self.choose(kind, &model.description.name)?;
        self.report(kind, &choice.component, &model.description.name);
        let binding = Binding {
            model: Some(Arc::clone(&model.description)),
            vocabulary: (kind == Kind::Grammar).then(|| Arc::clone(&model.vocabulary)),
            settings: choice.settings.to_string(),
            limits: self.limits(kind),
            ..Binding::default()
        };
        Ok((choice.component, binding))
    }

    fn limits(&self, kind: Kind) -> Limits {
        let mut limits = Limits::for_kind(kind);
        let config = &self.config;
        if let Some(bytes) = config.memory_bytes {
            limits.memory_bytes = bytes;
        }
        if let Some(bytes) = config.output_bytes {
            limits.output_bytes = bytes;
        }
        if let Some(instances) = config.instances {
            limits.max_instances = instances;
            limits.max_idle = limits.max_idle.min(instances);
        }
        if let Some(deadline) = config.deadline {
            let ms = u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX);
            limits.deadlines.render_ms = ms;
            limits.deadlines.constraint_ms = ms;
            limits.deadlines.compile_ms = ms;
            limits.deadlines.authorize_ms = ms;
        }
        limits
    }

    fn report(&self, kind: Kind, component: &Component, model: &str) {
        tracing::info!(
            kind = kind.as_str(),
            plugin = component.name(),
            version = component.version(),
            origin = component.origin(),
            digest = component.digest().get(..12),
            model,
            "plugin serves"
        );
    }
}

/// The plugins in a folder, in the order of their names.
fn wasm_files(dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let unreadable = || format!("cannot read the plugin folder `{}`", dir.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).with_context(unreadable)? {
        let path = entry.with_context(unreadable)?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "wasm")
        {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// A file named in a binding; one that the folder brought already is not loaded twice.
fn loaded(
    host: &PluginHost,
    folder: &[Arc<Component>],
    path: &Path,
) -> anyhow::Result<Arc<Component>> {
    let known = folder
        .iter()
        .find(|component| Path::new(component.origin()) == path);
    match known {
        Some(component) => Ok(Arc::clone(component)),
        None => Ok(host.load(ComponentSource::File(path.to_owned()))?),
    }
}

/// `*` stands for any text.
fn matches_pattern(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(rest) = name.strip_prefix(parts.next().unwrap_or_default()) else {
        return false;
    };
    let mut rest = rest;
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    true
}

/// The tables of `[auth]` and of a binding; the binding's entries win.
fn merged(base: &Value, over: &Value) -> Value {
    let mut all = base.as_object().cloned().unwrap_or_default();
    all.extend(over.as_object().cloned().unwrap_or_default());
    Value::Object(all)
}

/// The plugins that serve one model.
#[derive(Clone)]
pub(crate) struct Handles {
    /// `None` if nothing says how the model is spoken to.
    pub(crate) template: Option<ChatTemplate>,
    pub(crate) parser: OutputParser,
    pub(crate) grammar: Grammar,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_people_expect() {
        for (pattern, name, expected) in [
            ("*", "anything", true),
            ("qwen", "qwen", true),
            ("qwen", "qwen3", false),
            ("qwen*", "qwen3", true),
            ("*-7b", "llama-7b", true),
            ("*-7b", "llama-70b", false),
            ("a*b*c", "a1b2c", true),
            ("a*b*c", "acb", false),
            ("a*a", "a", false),
            ("", "", true),
            ("", "x", false),
        ] {
            assert_eq!(matches_pattern(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn a_bindings_settings_win() {
        let base = serde_json::json!({"keys": [], "anonymous": {"allow": false}});
        let over = serde_json::json!({"anonymous": {"allow": true}});
        let expected = serde_json::json!({"keys": [], "anonymous": {"allow": true}});
        assert_eq!(merged(&base, &over), expected);
    }
}
