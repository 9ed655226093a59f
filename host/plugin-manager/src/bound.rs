//! Bound plugins: assignments with the handles that serve requests.

use std::collections::HashMap;
use std::sync::Arc;

use mortise_plugin::{
    Binding, ChatTemplate, Component, ComponentTools, Grammar, Guardrail, Kind, Ledger, Limits,
    LoadError, Outbound, OutputParser, PluginHost, Policy, RateCounters, Retriever,
};
use mortise_service::{
    CompileGrammar, DecidePolicy, Fallback, GuardAnswer, ModelPlugins, NamedTemplates, ParseOutput,
    PluginRoutes, RawOnFailure, RenderChat, Retrieve, RunTool, ScopePredicate, ScopedGuardrail,
    ScopedPolicy, ScopedRetriever, ScopedTools, TemplateChoice,
};

use serde_json::json;

use crate::assignments::{Assignment, EMBEDDED, file_of};
use crate::config::{OnFailure, TemplateSource};
use crate::error::PluginSetError;
use crate::model::ModelFacts;
use crate::scope::RoutingRule;

/// Name of the server's own way to put passages together, as requests choose it.
const OWN_ASSEMBLY: &str = "concat";
/// Template of a model's files for requests with tools, as `transformers` calls it.
const TOOL_USE: &str = "tool_use";

/// Handle of any kind, wrapped in its failure policy.
#[derive(Clone)]
enum Handle {
    Template(Arc<dyn RenderChat>),
    Parser(Arc<dyn ParseOutput>),
    Grammar(Arc<dyn CompileGrammar>),
    Policy(Arc<dyn DecidePolicy>),
    Tools(Arc<dyn RunTool>),
    Guardrail(Arc<dyn GuardAnswer>),
    Retriever(Arc<dyn Retrieve>),
}

/// An assignment with its handle.
#[derive(Clone)]
pub(crate) struct BoundPlugin {
    pub(crate) assignment: Assignment,
    handle: Handle,
}

/// All assignments of a server with their handles.
#[derive(Clone, Default)]
pub(crate) struct BoundPlugins(pub(crate) Vec<BoundPlugin>);

/// Opens the counters of a policy by the name of its ledger.
pub type OpenCounters = Arc<dyn Fn(&str) -> Arc<dyn RateCounters> + Send + Sync>;

/// Counters of policies by [`Assignment::ledger`]. They outlive the policies: a replaced policy forgets no debt.
pub(crate) struct Ledgers {
    open: OpenCounters,
    ledgers: HashMap<String, Arc<dyn RateCounters>>,
}

impl Ledgers {
    pub(crate) fn new(open: OpenCounters) -> Self {
        Self {
            open,
            ledgers: HashMap::new(),
        }
    }

    fn of(&mut self, assignment: &Assignment) -> Arc<dyn RateCounters> {
        let name = &assignment.ledger;
        let known = self.ledgers.entry(name.clone());
        Arc::clone(known.or_insert_with(|| (self.open)(name)))
    }
}

impl BoundPlugins {
    /// Bind the plugin of each assignment. Where `before` has an equal one, its handle is kept with its warm
    /// instances.
    ///
    /// # Errors
    /// When a plugin fails to bind; the error names its file.
    pub(crate) async fn bind(
        binder: &Binder<'_>,
        assignments: Vec<Assignment>,
        ledgers: &mut Ledgers,
        before: &Self,
    ) -> Result<Self, PluginSetError> {
        let mut bound = Vec::with_capacity(assignments.len());
        for assignment in assignments {
            let same = before.0.iter().find(|bound| bound.assignment == assignment);
            let handle = match same {
                Some(bound) => bound.handle.clone(),
                None => {
                    let bound = binder.bind(&assignment, ledgers).await;
                    bound.map_err(|error| unfit(&assignment, error))?
                }
            };
            bound.push(BoundPlugin { assignment, handle });
        }
        let bound = Self(bound);
        bound.check_tools()?;
        bound.check_retrievers()?;
        Ok(bound)
    }

    /// Refuse two tools of one name: requests name tools by their names alone.
    fn check_tools(&self) -> Result<(), PluginSetError> {
        let mut known: HashMap<String, &Assignment> = HashMap::new();
        for bound in &self.0 {
            let Handle::Tools(tools) = &bound.handle else {
                continue;
            };
            for tool in tools.declarations() {
                let Some(other) = known.insert(tool.name.clone(), &bound.assignment) else {
                    continue;
                };
                let (first, second) = (&other.component, &bound.assignment.component);
                return Err(PluginSetError {
                    message: format!(
                        "both `{}` and `{}` declare the tool `{}`; leave one of them out",
                        first.origin(),
                        second.origin(),
                        tool.name
                    ),
                    blame: [file_of(second), file_of(first)].concat(),
                });
            }
        }
        Ok(())
    }

    /// Refuse two retrievers of one name, and one that has the name of the server's own way.
    fn check_retrievers(&self) -> Result<(), PluginSetError> {
        let mut known: HashMap<&str, &Assignment> = HashMap::new();
        for bound in &self.0 {
            let Handle::Retriever(retriever) = &bound.handle else {
                continue;
            };
            let (name, assignment) = (retriever.name(), &bound.assignment);
            let origin = assignment.component.origin();
            let other = known.insert(name, assignment);
            let message = match other {
                Some(other) => format!(
                    "both `{}` and `{origin}` are retrievers of the name `{name}`; give their bindings names",
                    other.component.origin(),
                ),
                None if name == OWN_ASSEMBLY => format!(
                    "the retriever `{origin}` has the name `{name}`, which is the server's own; give its binding \
                     another name"
                ),
                None => continue,
            };
            let files = other.into_iter().chain([assignment]);
            let blame = files.flat_map(|of| file_of(&of.component)).collect();
            return Err(PluginSetError { message, blame });
        }
        Ok(())
    }

    /// Whether both have the same assignments, and so the same handles.
    pub(crate) fn same_as(&self, other: &Self) -> bool {
        let count = |plugins: &Self| plugins.0.len();
        let mut pairs = self.0.iter().zip(&other.0);
        count(self) == count(other) && pairs.all(|(one, two)| one.assignment == two.assignment)
    }

    /// Policies in the order in which they are asked.
    pub(crate) fn policies(&self) -> Vec<Arc<dyn DecidePolicy>> {
        let policies = self.0.iter().filter_map(|bound| match &bound.handle {
            Handle::Policy(policy) => Some(Arc::clone(policy)),
            _ => None,
        });
        policies.collect()
    }

    /// Tool plugins in the order of the configuration.
    pub(crate) fn tools(&self) -> Vec<Arc<dyn RunTool>> {
        let tools = self.0.iter().filter_map(|bound| match &bound.handle {
            Handle::Tools(tools) => Some(Arc::clone(tools)),
            _ => None,
        });
        tools.collect()
    }

    /// Guardrails in the order in which they look.
    pub(crate) fn guardrails(&self) -> Vec<Arc<dyn GuardAnswer>> {
        let guardrails = self.0.iter().filter_map(|bound| match &bound.handle {
            Handle::Guardrail(guardrail) => Some(Arc::clone(guardrail)),
            _ => None,
        });
        guardrails.collect()
    }

    /// Retrievers in the order of the configuration.
    pub(crate) fn retrievers(&self) -> Vec<Arc<dyn Retrieve>> {
        let retrievers = self.0.iter().filter_map(|bound| match &bound.handle {
            Handle::Retriever(retriever) => Some(Arc::clone(retriever)),
            _ => None,
        });
        retrievers.collect()
    }

    /// Plugins of a model; `None` for a model that nothing was bound for.
    pub(crate) fn plugins_of(&self, model: &ModelFacts) -> Option<ModelPlugins> {
        let (mut templates, mut parsers, mut grammars) = (Vec::new(), Vec::new(), Vec::new());
        let bound = self.0.iter();
        for bound in bound.filter(|bound| bound.assignment.model.as_deref() == Some(model.name())) {
            for rule in &bound.assignment.rules {
                match &bound.handle {
                    Handle::Template(handle) => {
                        // Nothing may say how the model is spoken to.
                        let renders = renders(&bound.assignment, model);
                        templates.push((rule.clone(), renders.then(|| Arc::clone(handle))));
                    }
                    Handle::Parser(handle) => parsers.push((rule.clone(), Some(handle.clone()))),
                    Handle::Grammar(handle) => grammars.push((rule.clone(), Some(handle.clone()))),
                    Handle::Policy(_)
                    | Handle::Tools(_)
                    | Handle::Guardrail(_)
                    | Handle::Retriever(_) => {}
                }
            }
        }
        let complete = !templates.is_empty() && !parsers.is_empty() && !grammars.is_empty();
        complete.then(|| ModelPlugins {
            chat_template: routes(templates),
            parser: routes(parsers),
            grammar: routes(grammars),
        })
    }

    /// Log the assignments that `before` lacks.
    pub(crate) fn report(&self, before: &Self) {
        let new = |bound: &&BoundPlugin| {
            !before
                .0
                .iter()
                .any(|old| old.assignment == bound.assignment)
        };
        for BoundPlugin { assignment, .. } in self.0.iter().filter(new) {
            tracing::info!(
                kind = assignment.kind.as_str(),
                plugin = assignment.component.name(),
                version = assignment.component.version(),
                origin = assignment.component.origin(),
                digest = assignment.component.digest().get(..12),
                model = assignment.model.as_deref().unwrap_or("*"),
                tenants = assignment.scope.tenants.join(", "),
                routes = assignment.scope.routes.join(", "),
                "plugin serves"
            );
        }
    }
}

/// Routes to plugins in the order of their rules.
fn routes<T: ?Sized>(mut plugins: Vec<(RoutingRule, Option<Arc<T>>)>) -> PluginRoutes<T> {
    plugins.sort_by_key(|(rule, _)| rule.number);
    PluginRoutes::new(plugins.into_iter().map(|(rule, plugin)| {
        let scope: ScopePredicate = Arc::new(move |key| rule.holds(key));
        (scope, plugin)
    }))
}

/// Whether a template plugin has a chat format to render: its own, the model's or the operator's.
fn renders(assignment: &Assignment, model: &ModelFacts) -> bool {
    model.description.chat_template.is_some()
        || assignment.component.origin() != EMBEDDED
        || has_template(assignment)
}

/// Whether the operator put a template in the place of the model's.
fn has_template(assignment: &Assignment) -> bool {
    assignment.settings.contains("\"chat_template\"")
}

/// Makes handles of assignments.
pub(crate) struct Binder<'a> {
    pub(crate) host: &'a PluginHost,
    pub(crate) embedded: &'a [Arc<Component>],
    pub(crate) models: &'a [ModelFacts],
    /// Fixed time that plugins see, in milliseconds since 1970; the system's clock without it.
    pub(crate) now_ms: Option<u64>,
}

impl Binder<'_> {
    /// Bind the plugin of an assignment, with the failure policy of its binding.
    async fn bind(
        &self,
        assignment: &Assignment,
        ledgers: &mut Ledgers,
    ) -> Result<Handle, LoadError> {
        let facts = self
            .models
            .iter()
            .find(|facts| Some(facts.name()) == assignment.model.as_deref());
        let (host, component) = (self.host, &assignment.component);
        let binding = self.binding(assignment, facts, ledgers);
        Ok(match assignment.kind {
            Kind::ChatTemplate => {
                Handle::Template(self.template(assignment, facts, binding).await?)
            }
            Kind::Grammar => {
                let first = Grammar::bind(host, component, binding).await?;
                let first: Arc<dyn CompileGrammar> = Arc::new(first);
                match self.stand_in(assignment, facts) {
                    None => Handle::Grammar(first),
                    Some((component, binding)) => {
                        let second = Grammar::bind(host, component, binding).await?;
                        let second: Arc<dyn CompileGrammar> = Arc::new(second);
                        Handle::Grammar(Arc::new(Fallback { first, second }))
                    }
                }
            }
            Kind::OutputParser => {
                let parser = OutputParser::bind(host, component, binding).await?;
                let parser: Arc<dyn ParseOutput> = Arc::new(parser);
                Handle::Parser(match assignment.on_failure {
                    OnFailure::Open => Arc::new(RawOnFailure(parser)),
                    OnFailure::Closed | OnFailure::Fallback => parser,
                })
            }
            Kind::Policy => {
                let policy = Policy::bind(host, component, binding).await?;
                let (scope, tenants) = (assignment.scope.clone(), assignment.scope.clone());
                Handle::Policy(Arc::new(ScopedPolicy {
                    policy: Arc::new(policy),
                    tenants: Arc::new(move |tenant| tenants.holds_tenant(tenant)),
                    by_tenant: scope.is_by_tenant(),
                    scope: Arc::new(move |key| scope.holds(key)),
                    required: assignment.on_failure != OnFailure::Open,
                }))
            }
            Kind::Tool => {
                let tools = ComponentTools::bind(host, component, binding).await?;
                let scope = assignment.scope.clone();
                Handle::Tools(Arc::new(ScopedTools {
                    tools: Arc::new(tools),
                    scope: Arc::new(move |key| scope.holds(key)),
                    required: assignment.on_failure != OnFailure::Open,
                }))
            }
            Kind::Guardrail => {
                let guardrail = Guardrail::bind(host, component, binding).await?;
                guarding(assignment, guardrail)
            }
            Kind::Retriever => retrieving(host, assignment, binding).await?,
        })
    }

    /// The template of an assignment, with its fallback and those beside it.
    async fn template(
        &self,
        assignment: &Assignment,
        facts: Option<&ModelFacts>,
        binding: Binding,
    ) -> Result<Arc<dyn RenderChat>, LoadError> {
        let first = ChatTemplate::bind(self.host, &assignment.component, binding).await?;
        let first: Arc<dyn RenderChat> = Arc::new(first);
        let first = match self.stand_in(assignment, facts) {
            None => first,
            Some((component, binding)) => {
                let second = ChatTemplate::bind(self.host, component, binding).await?;
                let second: Arc<dyn RenderChat> = Arc::new(second);
                Arc::new(Fallback { first, second })
            }
        };
        let own = assignment.component.origin() == EMBEDDED && !has_template(assignment);
        let with_tools = match facts
            .filter(|_| own)
            .and_then(|facts| facts.template(TOOL_USE))
        {
            Some(source) => self.rendering(assignment, facts, source).await?,
            None => None,
        };
        let mut named = NamedTemplates::new();
        for (name, source) in &assignment.templates {
            let text = match source {
                TemplateSource::Text(text) => Some(text.as_str()),
                TemplateSource::Own(own) => facts.and_then(|facts| facts.template(own)),
            };
            let Some(text) = text else {
                tracing::warn!(
                    template = name,
                    model = assignment.model,
                    "requests cannot choose this chat template: the model's files have none of that name"
                );
                continue;
            };
            let template = self.rendering(assignment, facts, text).await?;
            named.extend(template.map(|template| (name.clone(), template)));
        }
        if with_tools.is_none() && named.is_empty() {
            return Ok(first);
        }
        Ok(Arc::new(TemplateChoice {
            first,
            with_tools,
            named,
        }))
    }

    /// The embedded plugin with this template.
    async fn rendering(
        &self,
        assignment: &Assignment,
        facts: Option<&ModelFacts>,
        source: &str,
    ) -> Result<Option<Arc<dyn RenderChat>>, LoadError> {
        let settings = json!({"chat_template": source}).to_string();
        let Some((component, binding)) = self.embedded(assignment, facts, settings) else {
            return Ok(None);
        };
        let bound = ChatTemplate::bind(self.host, component, binding).await?;
        Ok(Some(Arc::new(bound)))
    }

    /// Fallback of an assignment: the embedded plugin of the kind with default settings.
    fn stand_in(
        &self,
        assignment: &Assignment,
        facts: Option<&ModelFacts>,
    ) -> Option<(&Arc<Component>, Binding)> {
        match assignment.on_failure {
            OnFailure::Fallback => self.embedded(assignment, facts, "{}".to_owned()),
            OnFailure::Closed | OnFailure::Open => None,
        }
    }

    /// The embedded plugin of an assignment's kind, with these settings.
    pub(crate) fn embedded(
        &self,
        assignment: &Assignment,
        facts: Option<&ModelFacts>,
        settings: String,
    ) -> Option<(&Arc<Component>, Binding)> {
        let component = self
            .embedded
            .iter()
            .find(|component| component.kinds().contains(&assignment.kind))?;
        let assignment = Assignment {
            component: Arc::clone(component),
            settings,
            limits: Limits::for_kind(assignment.kind),
            ..assignment.clone()
        };
        let mut ledgers = Ledgers::new(Arc::new(|_| Arc::new(Ledger::new())));
        let binding = self.binding(&assignment, facts, &mut ledgers);
        Some((component, binding))
    }

    fn binding(
        &self,
        assignment: &Assignment,
        model: Option<&ModelFacts>,
        ledgers: &mut Ledgers,
    ) -> Binding {
        let vocabulary = model.filter(|_| assignment.kind == Kind::Grammar);
        Binding {
            model: model.map(|facts| Arc::clone(&facts.description)),
            vocabulary: vocabulary.map(|facts| Arc::clone(&facts.vocabulary)),
            settings: assignment.settings.clone(),
            secrets: assignment.secrets.clone(),
            headers: assignment.headers.clone(),
            rewrites: assignment.rewrites.clone(),
            limits: assignment.limits.clone(),
            http: Outbound::new(assignment.http.clone()),
            now_ms: self.now_ms,
            ledger: match assignment.kind {
                Kind::Policy => ledgers.of(assignment),
                _ => Arc::new(Ledger::new()),
            },
        }
    }
}

/// Handle of a guardrail with its scope, its failure policy and the time of its verdicts.
fn guarding(assignment: &Assignment, guardrail: Guardrail) -> Handle {
    let scope = assignment.scope.clone();
    Handle::Guardrail(Arc::new(ScopedGuardrail {
        guardrail: Arc::new(guardrail),
        scope: Arc::new(move |key| scope.holds(key)),
        required: assignment.on_failure != OnFailure::Open,
        mode: assignment.watch.mode,
        every: assignment.watch.every,
    }))
}

/// Handle of a retriever with its name, its scope and its failure policy.
async fn retrieving(
    host: &PluginHost,
    assignment: &Assignment,
    binding: Binding,
) -> Result<Handle, LoadError> {
    let retriever = Retriever::bind(host, &assignment.component, binding).await?;
    let scope = assignment.scope.clone();
    let name = assignment.name.as_deref();
    let name = name.unwrap_or(assignment.component.name()).to_owned();
    Ok(Handle::Retriever(Arc::new(ScopedRetriever {
        retriever: Arc::new(retriever),
        name,
        scope: Arc::new(move |key| scope.holds(key)),
        required: assignment.on_failure != OnFailure::Open,
    })))
}

fn unfit(assignment: &Assignment, error: LoadError) -> PluginSetError {
    PluginSetError {
        message: format!("{:#}", anyhow::Error::new(error)),
        blame: file_of(&assignment.component),
    }
}
