//! Which plugin serves whom: from files and configuration to places.

use std::path::PathBuf;
use std::sync::Arc;

use mortise_plugin::{Component, HttpGrant, Kind, Limits};
use serde_json::{Map, Value};

use super::library::Library;
use super::schema;
use crate::config::{AuthConfig, BindingConfig, OnFailure, PluginBounds, PluginConfig};

/// Where the components come from that are part of the program.
pub(crate) const EMBEDDED: &str = "embedded";

/// A plugin in the place where it serves.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) kind: Kind,
    /// The model that it serves; policies and tools serve all within their scope.
    pub(crate) model: Option<String>,
    pub(crate) component: Arc<Component>,
    /// The entry of `[[plugins.bindings]]` that put it there, from 0.
    pub(crate) binding: Option<usize>,
    /// What the rate limits of a policy are kept by: the name of its binding, or else the plugin and
    /// how many bindings of it stand before. The order of different plugins means nothing.
    pub(crate) ledger: String,
    /// A JSON object.
    pub(crate) settings: String,
    /// Names and values, for policies.
    pub(crate) secrets: Vec<(String, String)>,
    pub(crate) limits: Limits,
    /// Where a policy or a tool may send HTTP requests.
    pub(crate) http: HttpGrant,
    pub(crate) on_failure: OnFailure,
    /// Which requests a policy is asked about, or may use a tool.
    pub(crate) scope: Scope,
}

/// The requests that a policy is asked about, or that may use a tool.
#[derive(Clone, PartialEq)]
pub(crate) struct Scope {
    /// Patterns; empty is all.
    pub(crate) routes: Vec<String>,
    /// Patterns; `*` includes requests that name no model.
    pub(crate) models: Vec<String>,
}

impl Scope {
    fn all() -> Self {
        Self {
            routes: Vec::new(),
            models: vec!["*".to_owned()],
        }
    }

    /// Whether a request to this route for this model is within.
    pub(crate) fn holds(&self, route: &str, model: Option<&str>) -> bool {
        let routes = || self.routes.iter().any(|p| matches_pattern(p, route));
        let named = |pattern: &String| {
            pattern == "*" || model.is_some_and(|model| matches_pattern(pattern, model))
        };
        (self.routes.is_empty() || routes()) && self.models.iter().any(named)
    }
}

impl PartialEq for Place {
    /// Equal places are served by equal plugins, down to name and origin.
    fn eq(&self, other: &Self) -> bool {
        let outside = |place: &Self| (place.kind, place.model.clone(), place.binding);
        outside(self) == outside(other)
            && self.component.digest() == other.component.digest()
            && self.component.origin() == other.component.origin()
            && self.settings == other.settings
            && self.secrets == other.secrets
            && self.limits == other.limits
            && self.ledger == other.ledger
            && self.http == other.http
            && (self.on_failure, &self.scope) == (other.on_failure, &other.scope)
    }
}

/// Why the files and the configuration make no working set of plugins.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Unfit {
    pub(crate) message: String,
    /// Files that would mend it if they were taken back.
    pub(crate) blame: Vec<PathBuf>,
}

/// What bindings choose models by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ModelKey<'a> {
    pub(crate) name: &'a str,
    /// As [`mortise_plugin::ModelDescription::architecture`]; empty if the model's files do not tell.
    pub(crate) architecture: &'a str,
}

impl ModelKey<'_> {
    fn is_served_by(&self, binding: &BindingConfig) -> bool {
        let any = |patterns: &[String], text| patterns.iter().any(|p| matches_pattern(p, text));
        any(&binding.models, self.name) && any(&binding.architectures, self.architecture)
    }
}

/// Every place, with the plugin that serves there: policies in the order in which they are asked,
/// then tools, then the plugins of each model.
pub(crate) fn places(
    config: &PluginConfig,
    auth: &AuthConfig,
    library: &Library,
    models: &[ModelKey<'_>],
) -> Result<Vec<Place>, Unfit> {
    let chooser = Chooser {
        config,
        auth,
        library,
    };
    let mut places = chooser.policies()?;
    places.extend(chooser.tools()?);
    for &model in models {
        for kind in [Kind::ChatTemplate, Kind::OutputParser, Kind::Grammar] {
            places.push(chooser.of_model(kind, model)?);
        }
    }
    for place in &places {
        check_settings(place, config)?;
    }
    Ok(places)
}

/// Settings must follow the schema that the plugin carries, if it carries one.
fn check_settings(place: &Place, config: &PluginConfig) -> Result<(), Unfit> {
    let binding = place
        .binding
        .and_then(|index| Some((index, config.bindings.get(index)?)));
    schema::check(&place.component, &place.settings, binding).map_err(|message| Unfit {
        message,
        blame: file_of(&place.component),
    })
}

/// The file to blame for a component.
pub(crate) fn file_of(component: &Component) -> Vec<PathBuf> {
    match component.origin() {
        EMBEDDED => Vec::new(),
        path => vec![path.into()],
    }
}

struct Chooser<'a> {
    config: &'a PluginConfig,
    auth: &'a AuthConfig,
    library: &'a Library,
}

impl Chooser<'_> {
    /// The bindings of a kind, with their numbers.
    fn bindings(&self, kind: Kind) -> impl DoubleEndedIterator<Item = (usize, &BindingConfig)> {
        let all = self.config.bindings.iter().enumerate();
        all.filter(move |(_, binding)| Kind::from(binding.kind) == kind)
    }

    /// The policies: those of the bindings; else that of the folder; else the embedded one.
    fn policies(&self) -> Result<Vec<Place>, Unfit> {
        let mut chain = Vec::new();
        let mut bindings: Vec<_> = self.bindings(Kind::Policy).collect();
        bindings.sort_by_key(|(_, binding)| binding.order);
        for (index, binding) in bindings {
            let component = match &binding.file {
                Some(_) => self.named(index, binding)?,
                None => self.unbound(Kind::Policy)?,
            };
            let mut place = self.policy(component, Some((index, binding)));
            place.ledger = match &binding.name {
                Some(name) => format!("name {name}"),
                None => {
                    let same = |other: &&Place| other.component.name() == place.component.name();
                    let before = chain.iter().filter(same).count();
                    format!("plugin {} {before}", place.component.name())
                }
            };
            chain.push(place);
        }
        if chain.is_empty() {
            chain.push(self.policy(self.unbound(Kind::Policy)?, None));
        }
        Ok(chain)
    }

    fn policy(&self, component: Arc<Component>, binding: Option<(usize, &BindingConfig)>) -> Place {
        let index = binding.map(|(index, _)| index);
        let binding = binding.map(|(_, binding)| binding);
        let own = binding.map(|binding| &binding.settings);
        Place {
            kind: Kind::Policy,
            model: None,
            ledger: format!("plugin {} 0", component.name()),
            component,
            binding: index,
            settings: merged(&self.auth.settings, own.unwrap_or(&Value::Null)).to_string(),
            secrets: self.auth.secrets.clone(),
            limits: self.limits(Kind::Policy, binding),
            http: binding.map(|b| b.http.clone()).unwrap_or_default(),
            on_failure: binding.map(|b| b.on_failure).unwrap_or_default(),
            scope: binding.map_or_else(Scope::all, |binding| Scope {
                routes: binding.routes.clone(),
                models: binding.models.clone(),
            }),
        }
    }

    /// The tools: those of the bindings, and those of the folder that no binding names. Unlike the
    /// other kinds, any number of them serve side by side.
    fn tools(&self) -> Result<Vec<Place>, Unfit> {
        let mut places = Vec::new();
        for (index, binding) in self.bindings(Kind::Tool) {
            let component = match &binding.file {
                Some(_) => self.named(index, binding)?,
                None => self.unbound(Kind::Tool)?,
            };
            places.push(self.tool(component, Some((index, binding))));
        }
        let files = self.library.folder.iter();
        for component in files.filter_map(|path| self.library.files.get(path)) {
            let bound = |place: &Place| place.component.origin() == component.origin();
            if component.kinds().contains(&Kind::Tool) && !places.iter().any(bound) {
                places.push(self.tool(Arc::clone(component), None));
            }
        }
        Ok(places)
    }

    fn tool(&self, component: Arc<Component>, binding: Option<(usize, &BindingConfig)>) -> Place {
        let index = binding.map(|(index, _)| index);
        let binding = binding.map(|(_, binding)| binding);
        let own = binding.map(|binding| &binding.settings);
        Place {
            kind: Kind::Tool,
            model: None,
            ledger: String::new(),
            component,
            binding: index,
            settings: merged(&Value::Null, own.unwrap_or(&Value::Null)).to_string(),
            secrets: Vec::new(),
            limits: self.limits(Kind::Tool, binding),
            http: binding.map(|b| b.http.clone()).unwrap_or_default(),
            on_failure: binding.map(|b| b.on_failure).unwrap_or_default(),
            scope: binding.map_or_else(Scope::all, |binding| Scope {
                routes: Vec::new(),
                models: binding.models.clone(),
            }),
        }
    }

    /// The plugin of this kind for this model: of the last binding that matches and names a file,
    /// of the folder, or the embedded one; with the settings of the last binding that matches.
    fn of_model(&self, kind: Kind, model: ModelKey<'_>) -> Result<Place, Unfit> {
        let bindings = self.bindings(kind);
        let bindings: Vec<_> = bindings.filter(|(_, b)| model.is_served_by(b)).collect();
        let named = bindings.iter().rev().find(|(_, b)| b.file.is_some());
        let component = match named {
            Some((index, binding)) => self.named(*index, binding)?,
            None => self.unbound(kind)?,
        };
        let last = bindings.last();
        let binding = last.map(|(_, binding)| *binding);
        let settings = binding.map(|binding| binding.settings.clone());
        Ok(Place {
            kind,
            model: Some(model.name.to_owned()),
            ledger: String::new(),
            component,
            binding: last.map(|(index, _)| *index),
            settings: settings
                .unwrap_or_else(|| Value::Object(Map::new()))
                .to_string(),
            secrets: Vec::new(),
            limits: self.limits(kind, binding),
            http: HttpGrant::default(),
            on_failure: binding.map(|b| b.on_failure).unwrap_or_default(),
            scope: Scope::all(),
        })
    }

    /// The component of the file that a binding names.
    fn named(&self, index: usize, binding: &BindingConfig) -> Result<Arc<Component>, Unfit> {
        let path = binding.file.clone().unwrap_or_default();
        match self.library.files.get(&path) {
            Some(component) => {
                let pin = binding.sha256.as_deref();
                match pin.filter(|digest| *digest != component.digest()) {
                    None => Ok(Arc::clone(component)),
                    Some(digest) => Err(Unfit {
                        message: format!(
                            "`{}` has the digest {}, and plugins.bindings[{index}].sha256 allows \
                             {digest} only",
                            path.display(),
                            component.digest()
                        ),
                        blame: vec![path],
                    }),
                }
            }
            None => Err(Unfit {
                message: format!(
                    "`{}`, which plugins.bindings[{index}] names, is not loaded",
                    path.display()
                ),
                blame: Vec::new(),
            }),
        }
    }

    /// The component of a kind that no binding names.
    fn unbound(&self, kind: Kind) -> Result<Arc<Component>, Unfit> {
        let of_kind = |component: &Arc<Component>| component.kinds().contains(&kind);
        let folder = self.library.folder.iter();
        let own: Vec<_> = folder
            .filter_map(|path| Some((path, self.library.files.get(path)?)))
            .filter(|(_, component)| of_kind(component))
            .collect();
        match own.as_slice() {
            [] => match self.library.embedded.iter().find(|c| of_kind(c)) {
                Some(component) => Ok(Arc::clone(component)),
                None => Err(Unfit {
                    message: format!(
                        "no {kind} plugin is embedded, and none is in the folder; name a file in \
                         the binding"
                    ),
                    blame: Vec::new(),
                }),
            },
            [(_, one)] => Ok(Arc::clone(one)),
            [(first, _), (second, _), ..] => Err(Unfit {
                message: format!(
                    "both `{}` and `{}` are {kind} plugins; say which serves whom in \
                     [[plugins.bindings]]",
                    first.display(),
                    second.display()
                ),
                blame: own.iter().map(|(path, _)| (*path).clone()).collect(),
            }),
        }
    }

    /// The bounds of the binding, else those of `[plugins]`, else those of the kind.
    fn limits(&self, kind: Kind, binding: Option<&BindingConfig>) -> Limits {
        let mut limits = Limits::for_kind(kind);
        set_bounds(&mut limits, &self.config.bounds);
        if let Some(binding) = binding {
            set_bounds(&mut limits, &binding.bounds);
            limits.breaker = binding.breaker.clone();
        }
        limits
    }
}

fn set_bounds(limits: &mut Limits, bounds: &PluginBounds) {
    if let Some(bytes) = bounds.memory_bytes {
        limits.memory_bytes = bytes;
    }
    if let Some(bytes) = bounds.output_bytes {
        limits.output_bytes = bytes;
    }
    if let Some(budget) = bounds.budget {
        limits.budget_ms = u64::try_from(budget.as_millis()).unwrap_or(u64::MAX);
    }
    if let Some(instances) = bounds.instances {
        limits.max_instances = instances;
        limits.max_idle = limits.max_idle.min(instances);
    }
    if let Some(deadline) = bounds.deadline {
        let ms = u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX);
        limits.deadlines.render_ms = ms;
        limits.deadlines.constraint_ms = ms;
        limits.deadlines.compile_ms = ms;
        limits.deadlines.authorize_ms = ms;
        limits.deadlines.tool_ms = ms;
    }
}

/// `*` stands for any text.
pub(crate) fn matches_pattern(pattern: &str, name: &str) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::BindingKind;

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
    fn a_binding_serves_models_of_its_names_and_architectures() {
        let serves = |name: &str, architecture: &str| {
            let binding = BindingConfig {
                models: vec!["my-*".to_owned()],
                architectures: vec!["qwen3".to_owned(), "llama*".to_owned()],
                ..BindingConfig::of_file(BindingKind::Grammar, PathBuf::new(), Value::Null)
            };
            ModelKey { name, architecture }.is_served_by(&binding)
        };
        assert!(serves("my-model", "qwen3"));
        assert!(serves("my-model", "llama4"));
        assert!(!serves("my-model", "qwen3_moe"));
        assert!(!serves("my-model", ""), "its files do not tell");
        assert!(!serves("your-model", "qwen3"));
        let all = BindingConfig::of_file(BindingKind::Grammar, PathBuf::new(), Value::Null);
        let unknown = ModelKey {
            name: "a",
            architecture: "",
        };
        assert!(unknown.is_served_by(&all));
    }

    #[test]
    fn a_scope_holds_routes_and_models() {
        let scope = |routes: &[&str], models: &[&str]| Scope {
            routes: routes.iter().map(|&text| text.to_owned()).collect(),
            models: models.iter().map(|&text| text.to_owned()).collect(),
        };
        let chat = "/v1/chat/completions";
        assert!(Scope::all().holds("/v1/models", None));
        assert!(scope(&["/v1/chat/*"], &["*"]).holds(chat, Some("m")));
        assert!(!scope(&["/v1/chat/*"], &["*"]).holds("/v1/models", None));
        assert!(scope(&[], &["qwen*"]).holds(chat, Some("qwen3")));
        assert!(!scope(&[], &["qwen*"]).holds(chat, Some("llama")));
        assert!(!scope(&[], &["qwen*"]).holds("/v1/models", None));
    }

    #[test]
    fn a_bindings_settings_win() {
        let base = serde_json::json!({"keys": [], "anonymous": {"allow": false}});
        let over = serde_json::json!({"anonymous": {"allow": true}});
        let expected = serde_json::json!({"keys": [], "anonymous": {"allow": true}});
        assert_eq!(merged(&base, &over), expected);
    }
}
