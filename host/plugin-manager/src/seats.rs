//! Plugins bound in their places: what requests are served by.

use std::collections::HashMap;
use std::sync::Arc;

use mortise_plugin::{
    Binding, ChatTemplate, Component, Grammar, Kind, Ledger, Limits, LoadError, Outbound,
    OutputParser, PluginHost, Policy, Tools,
};
use mortise_service::{
    CompileGrammar, DecidePolicy, Fallback, ModelPlugins, ParseOutput, PluginRoutes, RawOnFailure,
    RenderChat, RunTool, Scope, ScopedPolicy, ScopedTools,
};

use crate::config::OnFailure;
use crate::model::ModelFacts;
use crate::places::{EMBEDDED, Place, file_of};
use crate::scope::Turn;
use crate::unfit::Unfit;

/// A handle of any kind, with its failure policy laid around it.
#[derive(Clone)]
enum Handle {
    Template(Arc<dyn RenderChat>),
    Parser(Arc<dyn ParseOutput>),
    Grammar(Arc<dyn CompileGrammar>),
    Policy(Arc<dyn DecidePolicy>),
    Tools(Arc<dyn RunTool>),
}

/// A place with the handle that serves there.
#[derive(Clone)]
pub(crate) struct Seat {
    pub(crate) place: Place,
    handle: Handle,
}

/// All places with their handles.
#[derive(Clone, Default)]
pub(crate) struct Seats(pub(crate) Vec<Seat>);

/// The ledgers of policies by [`Place::ledger`]. They outlive the policies, so that a replaced one
/// forgets no debt.
#[derive(Default)]
pub(crate) struct Ledgers(HashMap<String, Arc<Ledger>>);

impl Ledgers {
    fn of(&mut self, place: &Place) -> Arc<Ledger> {
        Arc::clone(self.0.entry(place.ledger.clone()).or_default())
    }
}

impl Seats {
    /// Bind a plugin in each place. Where `before` has the same place, its handle stays with its
    /// warm instances.
    ///
    /// # Errors
    /// When a plugin fails to bind; its file takes the blame.
    pub(crate) async fn bind(
        shop: &Workshop<'_>,
        places: Vec<Place>,
        ledgers: &mut Ledgers,
        before: &Self,
    ) -> Result<Self, Unfit> {
        let mut seats = Vec::with_capacity(places.len());
        for place in places {
            let same = before.0.iter().find(|seat| seat.place == place);
            let handle = match same {
                Some(seat) => seat.handle.clone(),
                None => {
                    let bound = shop.bind(&place, ledgers).await;
                    bound.map_err(|error| unfit(&place, error))?
                }
            };
            seats.push(Seat { place, handle });
        }
        let seats = Self(seats);
        seats.check_tools()?;
        Ok(seats)
    }

    /// Requests name tools by their names alone, so no two plugins may have one of the same name.
    fn check_tools(&self) -> Result<(), Unfit> {
        let mut known: HashMap<String, &Place> = HashMap::new();
        for seat in &self.0 {
            let Handle::Tools(tools) = &seat.handle else {
                continue;
            };
            for tool in tools.declarations() {
                let Some(other) = known.insert(tool.name.clone(), &seat.place) else {
                    continue;
                };
                let (first, second) = (&other.component, &seat.place.component);
                return Err(Unfit {
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

    /// Whether these are the same places, served by the same handles, as those.
    pub(crate) fn same_as(&self, other: &Self) -> bool {
        let places = |seats: &Self| seats.0.len();
        let mut pairs = self.0.iter().zip(&other.0);
        places(self) == places(other) && pairs.all(|(one, two)| one.place == two.place)
    }

    /// The policies in the order in which they are asked.
    pub(crate) fn policies(&self) -> Vec<Arc<dyn DecidePolicy>> {
        let policies = self.0.iter().filter_map(|seat| match &seat.handle {
            Handle::Policy(policy) => Some(Arc::clone(policy)),
            _ => None,
        });
        policies.collect()
    }

    /// The plugins that bring tools, in the order of the configuration.
    pub(crate) fn tools(&self) -> Vec<Arc<dyn RunTool>> {
        let tools = self.0.iter().filter_map(|seat| match &seat.handle {
            Handle::Tools(tools) => Some(Arc::clone(tools)),
            _ => None,
        });
        tools.collect()
    }

    /// The plugins of a model, each with its failure policy laid around it; `None` for a model that the
    /// seats were not made for.
    pub(crate) fn plugins_of(&self, model: &ModelFacts) -> Option<ModelPlugins> {
        let (mut templates, mut parsers, mut grammars) = (Vec::new(), Vec::new(), Vec::new());
        let seats = self.0.iter();
        for seat in seats.filter(|seat| seat.place.model.as_deref() == Some(model.name())) {
            for turn in &seat.place.turns {
                match &seat.handle {
                    Handle::Template(handle) => {
                        // Nothing may say how the model is spoken to.
                        let renders = renders(&seat.place, model);
                        templates.push((turn.clone(), renders.then(|| Arc::clone(handle))));
                    }
                    Handle::Parser(handle) => parsers.push((turn.clone(), Some(handle.clone()))),
                    Handle::Grammar(handle) => grammars.push((turn.clone(), Some(handle.clone()))),
                    Handle::Policy(_) | Handle::Tools(_) => {}
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

    /// Write who serves where to the log.
    pub(crate) fn report(&self, before: &Self) {
        let new = |seat: &&Seat| !before.0.iter().any(|old| old.place == seat.place);
        for Seat { place, .. } in self.0.iter().filter(new) {
            tracing::info!(
                kind = place.kind.as_str(),
                plugin = place.component.name(),
                version = place.component.version(),
                origin = place.component.origin(),
                digest = place.component.digest().get(..12),
                model = place.model.as_deref().unwrap_or("*"),
                tenants = place.scope.tenants.join(", "),
                routes = place.scope.routes.join(", "),
                "plugin serves"
            );
        }
    }
}

/// Plugins in the order of their turns.
fn routes<T: ?Sized>(mut plugins: Vec<(Turn, Option<Arc<T>>)>) -> PluginRoutes<T> {
    plugins.sort_by_key(|(turn, _)| turn.number);
    PluginRoutes::new(plugins.into_iter().map(|(turn, plugin)| {
        let scope: Scope = Arc::new(move |key| turn.holds(key));
        (scope, plugin)
    }))
}

/// The default component renders what the model or the operator gives it; without either the
/// model has no chat format.
fn renders(place: &Place, model: &ModelFacts) -> bool {
    model.description.chat_template.is_some()
        || place.component.origin() != EMBEDDED
        || place.settings.contains("\"chat_template\"")
}

/// What handles are made from.
pub(crate) struct Workshop<'a> {
    pub(crate) host: &'a PluginHost,
    pub(crate) embedded: &'a [Arc<Component>],
    pub(crate) models: &'a [ModelFacts],
    /// Where the clock stands still that plugins see; without it, it is the system's.
    pub(crate) now_ms: Option<u64>,
}

impl Workshop<'_> {
    /// Bind the plugin of a place, with the failure policy of its binding.
    async fn bind(&self, place: &Place, ledgers: &mut Ledgers) -> Result<Handle, LoadError> {
        let facts = self
            .models
            .iter()
            .find(|facts| Some(facts.name()) == place.model.as_deref());
        let (host, component) = (self.host, &place.component);
        let binding = self.binding(place, facts, ledgers);
        Ok(match place.kind {
            Kind::ChatTemplate => {
                let first = ChatTemplate::bind(host, component, binding).await?;
                let first: Arc<dyn RenderChat> = Arc::new(first);
                match self.stand_in(place, facts) {
                    None => Handle::Template(first),
                    Some((component, binding)) => {
                        let second = ChatTemplate::bind(host, component, binding).await?;
                        let second: Arc<dyn RenderChat> = Arc::new(second);
                        Handle::Template(Arc::new(Fallback { first, second }))
                    }
                }
            }
            Kind::Grammar => {
                let first = Grammar::bind(host, component, binding).await?;
                let first: Arc<dyn CompileGrammar> = Arc::new(first);
                match self.stand_in(place, facts) {
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
                Handle::Parser(match place.on_failure {
                    OnFailure::Open => Arc::new(RawOnFailure(parser)),
                    OnFailure::Closed | OnFailure::Fallback => parser,
                })
            }
            Kind::Policy => {
                let policy = Policy::bind(host, component, binding).await?;
                let scope = place.scope.clone();
                Handle::Policy(Arc::new(ScopedPolicy {
                    policy: Arc::new(policy),
                    by_tenant: scope.is_by_tenant(),
                    scope: Arc::new(move |key| scope.holds(key)),
                    required: place.on_failure != OnFailure::Open,
                }))
            }
            Kind::Tool => {
                let tools = Tools::bind(host, component, binding).await?;
                let scope = place.scope.clone();
                Handle::Tools(Arc::new(ScopedTools {
                    tools: Arc::new(tools),
                    scope: Arc::new(move |key| scope.holds(key)),
                    required: place.on_failure != OnFailure::Open,
                }))
            }
        })
    }

    /// The embedded plugin of the kind, with its own settings, where the binding falls back to it.
    fn stand_in(
        &self,
        place: &Place,
        facts: Option<&ModelFacts>,
    ) -> Option<(&Arc<Component>, Binding)> {
        if place.on_failure != OnFailure::Fallback {
            return None;
        }
        let component = self
            .embedded
            .iter()
            .find(|component| component.kinds().contains(&place.kind))?;
        let place = Place {
            component: Arc::clone(component),
            settings: "{}".to_owned(),
            limits: Limits::for_kind(place.kind),
            ..place.clone()
        };
        let binding = self.binding(&place, facts, &mut Ledgers::default());
        Some((component, binding))
    }

    fn binding(&self, place: &Place, model: Option<&ModelFacts>, ledgers: &mut Ledgers) -> Binding {
        let vocabulary = model.filter(|_| place.kind == Kind::Grammar);
        Binding {
            model: model.map(|facts| Arc::clone(&facts.description)),
            vocabulary: vocabulary.map(|facts| Arc::clone(&facts.vocabulary)),
            settings: place.settings.clone(),
            secrets: place.secrets.clone(),
            limits: place.limits.clone(),
            http: Outbound::new(place.http.clone()),
            now_ms: self.now_ms,
            ledger: match place.kind {
                Kind::Policy => ledgers.of(place),
                _ => Arc::default(),
            },
        }
    }
}

fn unfit(place: &Place, error: LoadError) -> Unfit {
    Unfit {
        message: format!("{:#}", anyhow::Error::new(error)),
        blame: file_of(&place.component),
    }
}
