//! Which plugin serves whom: from files and configuration to places.

use std::path::PathBuf;
use std::sync::Arc;

use mortise_plugin::{Component, HttpGrant, Kind, Limits};
use serde_json::{Map, Value, json};

use crate::config::{AuthConfig, BindingConfig, OnFailure, PluginBounds, PluginConfig};
use crate::declared::Declared;
use crate::library::Library;
use crate::model::ModelKey;
use crate::precedence::{Claim, claims};
use crate::schema;
use crate::scope::{Scope, Turn};
use crate::unfit::Unfit;

/// Where the components come from that are part of the program.
pub(crate) const EMBEDDED: &str = "embedded";

/// A plugin in the place where it serves.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) kind: Kind,
    /// The model that it serves; policies and tools serve all within their scope.
    pub(crate) model: Option<String>,
    /// Which requests to its model it serves; empty for policies and tools.
    pub(crate) turns: Vec<Turn>,
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
    /// The requests that it is for.
    pub(crate) scope: Scope,
}

impl Place {
    /// Who serves whom, as operators are told.
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "kind": self.kind.as_str(),
            "model": self.model,
            "models": self.scope.models,
            "tenants": self.scope.tenants,
            "routes": self.scope.routes,
            "binding": self.binding,
            "plugin": self.component.name(),
            "version": self.component.version(),
            "digest": self.component.digest(),
            "origin": self.component.origin(),
        })
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
            && self.turns == other.turns
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
            places.extend(chooser.of_model(kind, model)?);
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
        all.filter(move |(_, binding)| binding.kind == kind)
    }

    /// The policies: those of the bindings, and where none of them is for callers of any tenant, that
    /// of the folder or else the embedded one before them, which says whose tenant a caller is.
    fn policies(&self) -> Result<Vec<Place>, Unfit> {
        let mut chain = Vec::new();
        let mut bindings: Vec<_> = self.bindings(Kind::Policy).collect();
        bindings.sort_by_key(|(_, binding)| (binding.is_by_tenant(), binding.order));
        if bindings.iter().all(|(_, binding)| binding.is_by_tenant()) {
            chain.push(self.policy(self.unbound(Kind::Policy, None)?, None));
        }
        for (index, binding) in bindings {
            let component = match &binding.file {
                Some(_) => self.named(index, binding)?,
                None => self.unbound(Kind::Policy, None)?,
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
        self.check_auth(&chain)?;
        Ok(chain)
    }

    /// Keys that no policy looks at would guard nothing.
    fn check_auth(&self, chain: &[Place]) -> Result<(), Unfit> {
        let entries = self.auth.settings.as_object().into_iter().flatten();
        for (name, _) in entries {
            if !chain.iter().any(|place| takes(&place.component, name)) {
                let policies = chain
                    .iter()
                    .map(|place| format!("`{}`", place.component.name()));
                return Err(Unfit {
                    message: format!(
                        "`[auth]` gives `{name}` to the policies, and none takes it by its settings \
                         schema ({}); bind the default policy beside them ([[plugins.bindings]] with \
                         kind = \"policy\" and no file), or leave it out",
                        policies.collect::<Vec<_>>().join(", ")
                    ),
                    blame: chain
                        .iter()
                        .flat_map(|place| file_of(&place.component))
                        .collect(),
                });
            }
        }
        Ok(())
    }

    fn policy(&self, component: Arc<Component>, binding: Option<(usize, &BindingConfig)>) -> Place {
        let index = binding.map(|(index, _)| index);
        let binding = binding.map(|(_, binding)| binding);
        let own = binding.map(|binding| &binding.settings);
        let mut auth = self.auth.settings.clone();
        if let Some(entries) = auth.as_object_mut() {
            entries.retain(|name, _| takes(&component, name));
        }
        Place {
            kind: Kind::Policy,
            model: None,
            turns: Vec::new(),
            ledger: format!("plugin {} 0", component.name()),
            component,
            binding: index,
            settings: merged(&auth, own.unwrap_or(&Value::Null)).to_string(),
            secrets: self.auth.secrets.clone(),
            limits: self.limits(Kind::Policy, binding),
            http: binding.map(|b| b.http.clone()).unwrap_or_default(),
            on_failure: binding.map(|b| b.on_failure).unwrap_or_default(),
            scope: Scope::of(binding),
        }
    }

    /// The tools: those of the bindings, and those of the folder that no binding names. Unlike the
    /// other kinds, any number of them serve side by side.
    fn tools(&self) -> Result<Vec<Place>, Unfit> {
        let mut places = Vec::new();
        for (index, binding) in self.bindings(Kind::Tool) {
            let component = match &binding.file {
                Some(_) => self.named(index, binding)?,
                None => self.unbound(Kind::Tool, None)?,
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
            turns: Vec::new(),
            ledger: String::new(),
            component,
            binding: index,
            settings: merged(&Value::Null, own.unwrap_or(&Value::Null)).to_string(),
            secrets: Vec::new(),
            limits: self.limits(Kind::Tool, binding),
            http: binding.map(|b| b.http.clone()).unwrap_or_default(),
            on_failure: binding.map(|b| b.on_failure).unwrap_or_default(),
            scope: Scope::of(binding),
        }
    }

    /// The plugins of this kind for this model, each with its turns. A binding that names no file has
    /// that of the most specific one for all that does, or else the plugin that no binding names.
    fn of_model(&self, kind: Kind, model: ModelKey<'_>) -> Result<Vec<Place>, Unfit> {
        let (claims, rest) = claims(kind, self.bindings(kind), model)?;
        let for_all = claims
            .iter()
            .chain(&rest)
            .filter(|claim| claim.is_for_all());
        let named = for_all.clone().find(|claim| claim.binding.file.is_some());
        let shared = match named {
            Some(claim) => self.named(claim.index, claim.binding)?,
            None => self.unbound(kind, Some(model))?,
        };
        let mut places: Vec<Place> = Vec::new();
        for (number, claim) in claims.iter().enumerate() {
            let turn = Turn::of(number, claim);
            let same = |place: &&mut Place| place.binding == Some(claim.index);
            if let Some(place) = places.iter_mut().find(same) {
                place.turns.push(turn);
                continue;
            }
            let component = match &claim.binding.file {
                Some(_) => self.named(claim.index, claim.binding)?,
                None => Arc::clone(&shared),
            };
            let binding = Some((claim.index, claim.binding));
            places.push(self.for_model(kind, model, component, binding, turn));
        }
        if !claims.last().is_some_and(Claim::is_for_all) {
            places.push(self.for_model(kind, model, shared, None, Turn::last()));
        }
        Ok(places)
    }

    fn for_model(
        &self,
        kind: Kind,
        model: ModelKey<'_>,
        component: Arc<Component>,
        binding: Option<(usize, &BindingConfig)>,
        turn: Turn,
    ) -> Place {
        let index = binding.map(|(index, _)| index);
        let binding = binding.map(|(_, binding)| binding);
        let settings = binding.map(|binding| binding.settings.clone());
        Place {
            kind,
            model: Some(model.name.to_owned()),
            turns: vec![turn],
            ledger: String::new(),
            component,
            binding: index,
            settings: settings
                .unwrap_or_else(|| Value::Object(Map::new()))
                .to_string(),
            secrets: Vec::new(),
            limits: self.limits(kind, binding),
            http: HttpGrant::default(),
            on_failure: binding.map(|b| b.on_failure).unwrap_or_default(),
            scope: Scope::of(binding),
        }
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

    /// The component of a kind that no binding names: that of the folder, or else the embedded one. For a
    /// model, of several in the folder the one that is the most specific about which it serves.
    fn unbound(&self, kind: Kind, model: Option<ModelKey<'_>>) -> Result<Arc<Component>, Unfit> {
        let of_kind = |component: &Arc<Component>| component.kinds().contains(&kind);
        let mut own = Vec::new();
        for path in &self.library.folder {
            let bound = self
                .bindings(kind)
                .any(|(_, binding)| binding.file.as_ref() == Some(path));
            let Some(component) = self
                .library
                .files
                .get(path)
                .filter(|c| of_kind(c) && !bound)
            else {
                continue;
            };
            let declared = Declared::of(component).map_err(|message| Unfit {
                message: format!("`{}`: {message}", path.display()),
                blame: vec![path.clone()],
            })?;
            // Less than any rank: it serves what no other says that it serves.
            let mut rank = None;
            if let (Some(declared), Some(model)) = (declared, model) {
                rank = declared.rank(model);
                if rank.is_none() {
                    continue;
                }
            }
            own.push((rank, path, component));
        }
        let highest = own.iter().map(|(rank, ..)| *rank).max().flatten();
        own.retain(|(rank, ..)| *rank == highest);
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
            [(_, _, one)] => Ok(Arc::clone(one)),
            [(_, first, _), (_, second, _), ..] => {
                let whom =
                    model.map(|model| format!(" and would serve the model `{}`", model.name));
                Err(Unfit {
                    message: format!(
                        "both `{}` and `{}` are {kind} plugins{}; say which serves whom in \
                         [[plugins.bindings]]",
                        first.display(),
                        second.display(),
                        whom.unwrap_or_default()
                    ),
                    blame: own.iter().map(|(_, path, _)| (*path).clone()).collect(),
                })
            }
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
        // The many short steps of an answer: whoever grants much time grants them some of it.
        let deadlines = &mut limits.deadlines;
        for step in [
            &mut deadlines.feed_ms,
            &mut deadlines.close_ms,
            &mut deadlines.mask_ms,
        ] {
            *step = ms.div_euclid(10).max(*step);
        }
    }
}

/// Whether a plugin takes a setting of this name: its schema names it, or refuses no other names.
fn takes(component: &Component, name: &str) -> bool {
    let schema = component.settings_schema();
    // One that is no JSON is told of when the settings are checked.
    let schema: Value = schema
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    schema["additionalProperties"] != false || !schema["properties"][name].is_null()
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

    #[test]
    fn a_bindings_settings_win() {
        let base = serde_json::json!({"keys": [], "anonymous": {"allow": false}});
        let over = serde_json::json!({"anonymous": {"allow": true}});
        let expected = serde_json::json!({"keys": [], "anonymous": {"allow": true}});
        assert_eq!(merged(&base, &over), expected);
    }
}
