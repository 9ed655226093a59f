//! Assignment of plugins: from files and configuration to the plugin that serves each request.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use mortise_plugin::{Component, HeaderGrant, HttpGrant, Kind, Limits, Secret};
use serde_json::{Map, Value, json};

use crate::config::{
    AuthConfig, BindingConfig, OnFailure, PluginBounds, PluginConfig, TemplateSource, VerdictTiming,
};
use crate::declared::DeclaredModels;
use crate::error::PluginSetError;
use crate::granted_secrets::{granted_secrets, with_ids};
use crate::library::PluginLibrary;
use crate::model::ModelKey;
use crate::precedence::{Claim, claims};
use crate::schema;
use crate::scope::{PluginScope, RoutingRule};

/// Origin of the components that are part of the program.
pub(crate) const EMBEDDED: &str = "embedded";

/// A plugin, the model and the requests that it serves, and its limits there.
#[derive(Clone)]
pub(crate) struct Assignment {
    pub(crate) kind: Kind,
    /// The model that it serves; policies, tools, guardrails and retrievers serve all within their scope.
    pub(crate) model: Option<String>,
    /// Routing rules among the requests to its model; empty for policies, tools, guardrails and retrievers.
    pub(crate) rules: Vec<RoutingRule>,
    pub(crate) component: Arc<Component>,
    /// Index in `[[plugins.bindings]]`, from 0, if a binding made the assignment.
    pub(crate) binding: Option<usize>,
    /// Key of the rate-limit ledger of a policy: the name of its binding, or else the plugin and the number
    /// of its bindings before this one. The order of different plugins does not matter.
    pub(crate) ledger: String,
    /// A JSON object.
    pub(crate) settings: String,
    /// Secrets that a policy may be told by.
    pub(crate) secrets: Vec<Secret>,
    /// Request headers that a policy sees.
    pub(crate) headers: HeaderGrant,
    /// Changes that a policy may make of requests.
    pub(crate) rewrites: Vec<String>,
    /// Time of a guardrail's verdicts.
    pub(crate) watch: VerdictTiming,
    /// Chat templates that requests may choose, by name.
    pub(crate) templates: BTreeMap<String, TemplateSource>,
    pub(crate) limits: Limits,
    /// Name by which a retriever is chosen; of other kinds nobody asks for it.
    pub(crate) name: Option<String>,
    /// Hosts to which a policy, a tool, a guardrail or a retriever may send HTTP requests.
    pub(crate) http: HttpGrant,
    pub(crate) on_failure: OnFailure,
    /// The requests that it is for.
    pub(crate) scope: PluginScope,
}

impl Assignment {
    /// The assignment as the admin API shows it.
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

impl PartialEq for Assignment {
    /// Equality includes the plugin, by digest and origin.
    fn eq(&self, other: &Self) -> bool {
        let outside = |assignment: &Self| {
            (
                assignment.kind,
                assignment.model.clone(),
                assignment.binding,
            )
        };
        outside(self) == outside(other)
            && self.component.digest() == other.component.digest()
            && self.component.origin() == other.component.origin()
            && self.settings == other.settings
            && self.secrets == other.secrets
            && self.headers == other.headers
            && (&self.rewrites, self.watch) == (&other.rewrites, other.watch)
            && self.templates == other.templates
            && self.limits == other.limits
            && (&self.ledger, &self.name) == (&other.ledger, &other.name)
            && self.http == other.http
            && (self.on_failure, &self.scope) == (other.on_failure, &other.scope)
            && self.rules == other.rules
    }
}

/// Assignments of a server: policies in the order in which they are asked,
/// then tools, then guardrails in the order in which they look, then retrievers, then the plugins of each model.
pub(crate) fn assign(
    config: &PluginConfig,
    auth: &AuthConfig,
    library: &PluginLibrary,
    models: &[ModelKey<'_>],
) -> Result<Vec<Assignment>, PluginSetError> {
    let chooser = Chooser {
        config,
        auth,
        library,
    };
    let mut assignments = chooser.policies()?;
    for kind in [Kind::Tool, Kind::Guardrail, Kind::Retriever] {
        assignments.extend(chooser.side_by_side(kind)?);
    }
    for &model in models {
        for kind in [Kind::ChatTemplate, Kind::OutputParser, Kind::Grammar] {
            assignments.extend(chooser.of_model(kind, model)?);
        }
    }
    for assignment in &assignments {
        check_settings(assignment, config)?;
    }
    Ok(assignments)
}

/// Check the settings of an assignment against the schema of its plugin, if it has one.
fn check_settings(assignment: &Assignment, config: &PluginConfig) -> Result<(), PluginSetError> {
    let binding = assignment
        .binding
        .and_then(|index| Some((index, config.bindings.get(index)?)));
    schema::check(&assignment.component, &assignment.settings, binding).map_err(|message| {
        PluginSetError {
            message,
            blame: file_of(&assignment.component),
        }
    })
}

/// Path of a component, unless it is embedded.
pub(crate) fn file_of(component: &Component) -> Vec<PathBuf> {
    match component.origin() {
        EMBEDDED => Vec::new(),
        path => vec![path.into()],
    }
}

struct Chooser<'a> {
    config: &'a PluginConfig,
    auth: &'a AuthConfig,
    library: &'a PluginLibrary,
}

impl Chooser<'_> {
    /// Bindings of a kind, with their indices.
    fn bindings(&self, kind: Kind) -> impl DoubleEndedIterator<Item = (usize, &BindingConfig)> {
        let all = self.config.bindings.iter().enumerate();
        all.filter(move |(_, binding)| binding.kind == kind)
    }

    /// Policies in order. Where every bound policy is for certain tenants only, the policy of the folder or else
    /// the embedded one comes first: it names the tenant of a caller.
    fn policies(&self) -> Result<Vec<Assignment>, PluginSetError> {
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
            let mut assignment = self.policy(component, Some((index, binding)));
            assignment.secrets = granted_secrets(&self.auth.secrets, index, binding)?;
            assignment.ledger = match &binding.name {
                Some(name) => format!("name {name}"),
                None => {
                    let same =
                        |other: &&Assignment| other.component.name() == assignment.component.name();
                    let before = chain.iter().filter(same).count();
                    format!("plugin {} {before}", assignment.component.name())
                }
            };
            chain.push(assignment);
        }
        self.check_auth(&chain)?;
        Ok(chain)
    }

    /// Refuse an `[auth]` entry that no policy reads: its keys would guard nothing.
    fn check_auth(&self, chain: &[Assignment]) -> Result<(), PluginSetError> {
        let entries = self.auth.settings.as_object().into_iter().flatten();
        for (name, _) in entries {
            if !chain
                .iter()
                .any(|assignment| takes(&assignment.component, name))
            {
                let policies = chain
                    .iter()
                    .map(|assignment| format!("`{}`", assignment.component.name()));
                return Err(PluginSetError {
                    message: format!(
                        "`[auth]` gives `{name}` to the policies, and none takes it by its settings \
                         schema ({}); bind the default policy beside them ([[plugins.bindings]] with \
                         kind = \"policy\" and no file), or leave it out",
                        policies.collect::<Vec<_>>().join(", ")
                    ),
                    blame: chain
                        .iter()
                        .flat_map(|assignment| file_of(&assignment.component))
                        .collect(),
                });
            }
        }
        Ok(())
    }

    fn policy(
        &self,
        component: Arc<Component>,
        binding: Option<(usize, &BindingConfig)>,
    ) -> Assignment {
        let index = binding.map(|(index, _)| index);
        let binding = binding.map(|(_, binding)| binding);
        let own = binding.map(|binding| with_ids(&binding.settings, &self.auth.secrets));
        let mut auth = self.auth.settings.clone();
        if let Some(entries) = auth.as_object_mut() {
            entries.retain(|name, _| takes(&component, name));
        }
        Assignment {
            kind: Kind::Policy,
            model: None,
            rules: Vec::new(),
            ledger: format!("plugin {} 0", component.name()),
            component,
            binding: index,
            settings: merged(&auth, &own.unwrap_or_default()).to_string(),
            secrets: self.auth.secrets.clone(),
            headers: binding.map(|b| b.headers.clone()).unwrap_or_default(),
            rewrites: binding.map(|b| b.rewrites.clone()).unwrap_or_default(),
            watch: VerdictTiming::default(),
            templates: BTreeMap::new(),
            limits: self.limits(Kind::Policy, binding),
            name: binding.and_then(|b| b.name.clone()),
            http: binding.map(|b| b.http.clone()).unwrap_or_default(),
            on_failure: binding.map(|b| b.on_failure).unwrap_or_default(),
            scope: PluginScope::of(binding),
        }
    }

    /// Plugins of a kind of which any number serve side by side: those of the bindings by their order, which only
    /// guardrails have, and then those of the folder that no binding names.
    fn side_by_side(&self, kind: Kind) -> Result<Vec<Assignment>, PluginSetError> {
        let mut assignments = Vec::new();
        let mut bindings: Vec<_> = self.bindings(kind).collect();
        bindings.sort_by_key(|(_, binding)| binding.order);
        for (index, binding) in bindings {
            let component = match &binding.file {
                Some(_) => self.named(index, binding)?,
                None => self.unbound(kind, None)?,
            };
            assignments.push(self.beside(kind, component, Some((index, binding))));
        }
        self.others_of_folder(kind, &mut assignments);
        Ok(assignments)
    }

    /// Add the plugins of the folder that no binding names.
    fn others_of_folder(&self, kind: Kind, assignments: &mut Vec<Assignment>) {
        let files = self.library.folder.iter();
        for component in files.filter_map(|path| self.library.files.get(path)) {
            let bound =
                |assignment: &Assignment| assignment.component.origin() == component.origin();
            if component.kinds().contains(&kind) && !assignments.iter().any(bound) {
                assignments.push(self.beside(kind, Arc::clone(component), None));
            }
        }
    }

    /// Assignment of a plugin that serves beside others of its kind.
    fn beside(
        &self,
        kind: Kind,
        component: Arc<Component>,
        binding: Option<(usize, &BindingConfig)>,
    ) -> Assignment {
        let index = binding.map(|(index, _)| index);
        let binding = binding.map(|(_, binding)| binding);
        let own = binding.map(|binding| &binding.settings);
        Assignment {
            kind,
            model: None,
            rules: Vec::new(),
            ledger: String::new(),
            component,
            binding: index,
            settings: merged(&Value::Null, own.unwrap_or(&Value::Null)).to_string(),
            secrets: Vec::new(),
            headers: HeaderGrant::default(),
            rewrites: Vec::new(),
            watch: binding.map(|b| b.watch).unwrap_or_default(),
            templates: BTreeMap::new(),
            limits: self.limits(kind, binding),
            name: binding.and_then(|b| b.name.clone()),
            http: binding.map(|b| b.http.clone()).unwrap_or_default(),
            on_failure: binding.map(|b| b.on_failure).unwrap_or_default(),
            scope: PluginScope::of(binding),
        }
    }

    /// Assignments of a kind to a model, with their routing rules. A binding without a file takes the file of the
    /// most specific binding that has one and serves all requests, or else the unbound plugin.
    fn of_model(&self, kind: Kind, model: ModelKey<'_>) -> Result<Vec<Assignment>, PluginSetError> {
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
        let mut assignments: Vec<Assignment> = Vec::new();
        for (number, claim) in claims.iter().enumerate() {
            let rule = RoutingRule::of(number, claim);
            let same = |assignment: &&mut Assignment| assignment.binding == Some(claim.index);
            if let Some(assignment) = assignments.iter_mut().find(same) {
                assignment.rules.push(rule);
                continue;
            }
            let component = match &claim.binding.file {
                Some(_) => self.named(claim.index, claim.binding)?,
                None => Arc::clone(&shared),
            };
            let binding = Some((claim.index, claim.binding));
            assignments.push(self.for_model(kind, model, component, binding, rule));
        }
        if !claims.last().is_some_and(Claim::is_for_all) {
            assignments.push(self.for_model(kind, model, shared, None, RoutingRule::last()));
        }
        Ok(assignments)
    }

    fn for_model(
        &self,
        kind: Kind,
        model: ModelKey<'_>,
        component: Arc<Component>,
        binding: Option<(usize, &BindingConfig)>,
        rule: RoutingRule,
    ) -> Assignment {
        let index = binding.map(|(index, _)| index);
        let binding = binding.map(|(_, binding)| binding);
        let settings = binding.map(|binding| binding.settings.clone());
        Assignment {
            kind,
            model: Some(model.name.to_owned()),
            rules: vec![rule],
            ledger: String::new(),
            component,
            binding: index,
            settings: settings
                .unwrap_or_else(|| Value::Object(Map::new()))
                .to_string(),
            secrets: Vec::new(),
            headers: HeaderGrant::default(),
            rewrites: Vec::new(),
            watch: VerdictTiming::default(),
            templates: binding.map(|b| b.templates.clone()).unwrap_or_default(),
            limits: self.limits(kind, binding),
            name: None,
            http: HttpGrant::default(),
            on_failure: binding.map(|b| b.on_failure).unwrap_or_default(),
            scope: PluginScope::of(binding),
        }
    }

    /// Component of the file that a binding names.
    fn named(
        &self,
        index: usize,
        binding: &BindingConfig,
    ) -> Result<Arc<Component>, PluginSetError> {
        let path = binding.file.clone().unwrap_or_default();
        match self.library.files.get(&path) {
            Some(component) => {
                let pin = binding.sha256.as_deref();
                match pin.filter(|digest| *digest != component.digest()) {
                    None => Ok(Arc::clone(component)),
                    Some(digest) => Err(PluginSetError {
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
            None => Err(PluginSetError {
                message: format!(
                    "`{}`, which plugins.bindings[{index}] names, is not loaded",
                    path.display()
                ),
                blame: Vec::new(),
            }),
        }
    }

    /// Component of a kind that no binding names: from the folder, or else the embedded one. Of several in the
    /// folder, a model gets the one whose declaration is the most specific.
    fn unbound(
        &self,
        kind: Kind,
        model: Option<ModelKey<'_>>,
    ) -> Result<Arc<Component>, PluginSetError> {
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
            let declared = DeclaredModels::of(component).map_err(|message| PluginSetError {
                message: format!("`{}`: {message}", path.display()),
                blame: vec![path.clone()],
            })?;
            // `None` sorts last: a plugin that declares no models is the default for models that nobody else claims.
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
                None => Err(PluginSetError {
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
                Err(PluginSetError {
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

    /// Limits of the binding, else of `[plugins]`, else of the kind.
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
        limits.deadlines.check_ms = ms;
        limits.deadlines.chunk_ms = ms;
        limits.deadlines.retrieve_ms = ms;
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

/// Whether a plugin accepts a setting of this name: its schema names it, or allows additional properties.
fn takes(component: &Component, name: &str) -> bool {
    let schema = component.settings_schema();
    // One that is no JSON is told of when the settings are checked.
    let schema: Value = schema
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    schema["additionalProperties"] != false || !schema["properties"][name].is_null()
}

/// Settings of `[auth]` overlaid with those of a binding.
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
