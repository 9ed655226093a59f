//! The life of a request until its sequences are submitted: authorize, render, encode, constrain,
//! submit.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use mortise_engine::Share;
use mortise_models::lifecycle::{LifecycleError, ModelLease};
use mortise_models::{AliasTable, Catalogue, CatalogueError, FinishReason};
use mortise_plugin::Principal;
use mortise_trace::Span;

use self::cached::Ready;
pub(crate) use crate::admission::account;
use crate::admission::{Admission, ApiCall, OpenAccounts, Policies, answer_facts, facts};
use crate::answer::{Answer, StartedPart};
use crate::beginning::answer_of;
use crate::check::Request;
use crate::config::ServiceConfig;
use crate::constraint::MaskThreads;
use crate::error::ServiceError;
use crate::latency::Latency;
use crate::meant::Meant;
use crate::model::{LoadedModel, ServedModel};
use crate::observer::{ModelObserver, NoObserver, Outcome};
use crate::plugin_routing::RequestPlugins;
use crate::plugins::{DecidePolicy, GuardAnswer, RunTool};
use crate::prompt_scores;
use crate::request::RequestFields;
use crate::response_cache::ResponseCache;
use crate::retrievers::Retrievers;
use crate::rewrites;
use crate::routed::Routed;
use crate::server_tools::{EnabledTools, ServerTools, ServerToolsError, ToolExecutor, ToolLimits};
use crate::spans;
use crate::submit::{ChoiceSlot, ReadyPrompt, SubmitTarget, Submitter};
use crate::tally::RoundKind;
use crate::throughput::Throughputs;
use crate::tool_loop::{AssistantTurn, ToolLoop, ToolLoopState};
use crate::under_way::{RequestUnderWay, UnderWay};

/// Failure to set up a service.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The models do not go together.
    #[error(transparent)]
    Names(#[from] CatalogueError),
    /// The tools do not go together.
    #[error(transparent)]
    Tools(#[from] ServerToolsError),
    /// The threads that compute masks did not start.
    #[error("cannot start the threads that compute masks")]
    MaskThreads(#[source] std::io::Error),
}

/// Answers requests for all models of a server.
pub struct Service {
    serving: RwLock<Arc<Generation>>,
    accounts: Arc<OpenAccounts>,
    masks: Arc<MaskThreads>,
    pub(crate) throughputs: Arc<Throughputs>,
    under_way: UnderWay,
    responses: Arc<ResponseCache>,
    /// Retrievers by name; see there.
    pub retrievers: Retrievers,
    /// Number of the next generation.
    generations: AtomicU64,
    pub(crate) config: ServiceConfig,
}

/// Immutable set of models with their plugins, policies, and tools that serve together. A request
/// takes one generation when it begins and keeps it to its end, so that a prompt is never rendered
/// by one version of a plugin and its answer parsed by another.
pub(crate) struct Generation {
    models: Catalogue<ServedModel>,
    /// Listeners by the models' public names.
    observers: BTreeMap<String, Arc<dyn ModelObserver>>,
    pub(crate) policies: Policies,
    tools: ServerTools,
    /// In the order in which they look.
    guardrails: Vec<Arc<dyn GuardAnswer>>,
    /// Unique among the generations of a service.
    number: u64,
}

impl Service {
    /// A service of these models, guarded by these policies in turn, with these tools to offer, and these
    /// guardrails to look at what is asked and answered.
    ///
    /// # Errors
    /// When the models or the tools do not go together, or threads cannot be had.
    pub fn new(
        config: ServiceConfig,
        models: Vec<ServedModel>,
        policies: Vec<Arc<dyn DecidePolicy>>,
        tools: &[Arc<dyn RunTool>],
        guardrails: Vec<Arc<dyn GuardAnswer>>,
    ) -> Result<Self, SetupError> {
        let accounts = Arc::default();
        let mut generation = Generation::new(models, policies, tools, &config, &accounts)?;
        generation.guardrails = guardrails;
        Ok(Self {
            serving: RwLock::new(Arc::new(generation)),
            accounts,
            masks: MaskThreads::start(config.mask_threads, config.mask_deadline)
                .map(Arc::new)
                .map_err(SetupError::MaskThreads)?,
            throughputs: Arc::default(),
            under_way: UnderWay::default(),
            responses: Arc::new(ResponseCache::new(config.response_cache.clone())),
            retrievers: Retrievers::default(),
            generations: AtomicU64::new(1),
            config,
        })
    }

    /// Serve these models, policies, tools and guardrails from the next request on. Requests under way end with
    /// those that they began with.
    ///
    /// # Errors
    /// When the models or the tools do not go together; then nothing changes.
    pub fn replace(
        &self,
        models: Vec<ServedModel>,
        policies: Vec<Arc<dyn DecidePolicy>>,
        tools: &[Arc<dyn RunTool>],
        guardrails: Vec<Arc<dyn GuardAnswer>>,
    ) -> Result<(), SetupError> {
        let mut generation =
            Generation::new(models, policies, tools, &self.config, &self.accounts)?;
        generation.guardrails = guardrails;
        generation.number = self.generations.fetch_add(1, Relaxed);
        let mut serving = self.serving.write().unwrap_or_else(PoisonError::into_inner);
        let replaced = std::mem::replace(&mut *serving, Arc::new(generation));
        // Plugins may end with their last reference, which is not work for within the lock.
        drop(serving);
        drop(replaced);
        // Their keys have the number of the generation, and nobody asks for them again.
        self.responses.clear();
        Ok(())
    }

    pub(crate) fn serving(&self) -> Arc<Generation> {
        let serving = self.serving.read();
        Arc::clone(&serving.unwrap_or_else(PoisonError::into_inner))
    }

    /// All models, in the order of the configuration.
    pub fn models(&self) -> Vec<Arc<ServedModel>> {
        self.serving().models.models().to_vec()
    }

    /// The model that a caller means by `name`.
    pub fn model(&self, name: &str) -> Result<Arc<ServedModel>, ServiceError> {
        let serving = self.serving();
        let meant = self.meant(&serving, name);
        Ok(serving.find_routed(&meant, None)?.entry)
    }

    /// Ask the policies about a request that generates nothing, such as a list of models. The
    /// policy is told when the admission is dropped.
    pub async fn authorize(
        &self,
        call: &ApiCall,
        model: Option<&str>,
    ) -> Result<Admission, ServiceError> {
        let serving = self.serving();
        let meant = model.map(|name| self.meant(&serving, name));
        let named = meant.map(|meant| match serving.find_routed(&meant, None) {
            Ok(found) => found.name(),
            Err(_) => meant.model,
        });
        let named = named.as_deref();
        let mut admission = serving
            .policies
            .admit(call, facts(call, named, false, None))
            .await?;
        admission.spent().model = named.unwrap_or_default().to_owned();
        admission.spent().outcome = Outcome::Finished(FinishReason::Stop);
        Ok(admission)
    }

    /// Ask the policies about a request to a model that generates nothing, and find the model.
    pub(crate) async fn admit(
        &self,
        call: &ApiCall,
        model: &str,
    ) -> Result<(Admission, UsedModel), ServiceError> {
        let serving = self.serving();
        let routed = self.route(&serving, call, model, None).await;
        let admitted = serving.admit(call, &routed, None).await;
        let (admission, meant) = match admitted {
            Ok(admitted) => admitted,
            Err(error) => return Err(self.discreet(call, error).await),
        };
        let mut used = self.hold(&serving, &meant.entry).await?;
        used.observer = routed.observe(used.observer);
        used.loaded.model = meant.embedding(&used.loaded.model)?;
        Ok((admission, used))
    }

    /// Hold a model for an admitted request, which may wait until it is loaded. The request keeps the
    /// generation that it began with, unless the model was loaded since.
    async fn hold(
        &self,
        begun: &Arc<Generation>,
        entry: &ServedModel,
    ) -> Result<UsedModel, ServiceError> {
        let name = &entry.listing.name;
        let held = async { Ok(self.config.holder.hold(name).await?) };
        let lease = spans::part("model", held).await?;
        let now = self.serving();
        let loaded = now.models.get(name).and_then(|entry| entry.loaded.clone());
        let Some(loaded) = loaded else {
            return Err(LifecycleError::Unloaded(name.clone()).into());
        };
        let same = |before: &&LoadedModel| Arc::ptr_eq(&before.model, &loaded.model);
        let (serving, loaded) = match entry.loaded.as_ref().filter(same) {
            Some(before) => (Arc::clone(begun), before.clone()),
            None => (now, loaded),
        };
        Ok(UsedModel {
            observer: serving.observer(name),
            loaded,
            serving,
            lease: lease.map(Arc::new),
        })
    }

    /// Start to answer a request of one prompt.
    ///
    /// # Errors
    /// When the request is refused or cannot be submitted.
    pub async fn start(&self, call: ApiCall, request: Request) -> Result<Answer, ServiceError> {
        self.start_all(call, vec![request]).await
    }

    /// Start to answer a request of several prompts, each with its own choices: those of the first
    /// are numbered from 0, and those of the others go on from there. Each prompt is admitted by
    /// itself. If one is refused, those before it are cancelled.
    ///
    /// # Errors
    /// When one of the prompts is refused or cannot be submitted.
    pub async fn start_all(
        &self,
        call: ApiCall,
        requests: Vec<Request>,
    ) -> Result<Answer, ServiceError> {
        let serving = self.serving();
        let mut started = Vec::with_capacity(requests.len());
        let mut numbers = Numbers::default();
        let streams = requests.iter().any(|request| request.fields().stream);
        for request in requests {
            let name = request.fields().model.clone();
            let result = self.begin(&serving, &call, request, &mut numbers).await;
            match result {
                Ok(part) => started.push(part),
                Err(error) => {
                    self.refused(&serving, &name, &error);
                    return Err(self.discreet(&call, error).await);
                }
            }
        }
        Ok(answer_of(started, streams).await)
    }

    /// Report a refusal, under the name of the model that the caller meant.
    pub(crate) fn refused(&self, serving: &Generation, name: &str, error: &ServiceError) {
        let meant = self.meant(serving, name);
        let meant = serving.find_routed(&meant, None).ok();
        let model = meant
            .as_ref()
            .map(|meant| meant.entry.listing.name.as_str());
        self.config.observer.refused(model, error);
    }

    pub(crate) fn aliases(&self) -> &AliasTable {
        &self.config.aliases
    }

    /// The first `most` requests that models are answering, and how many there are. Those that wait for a policy or
    /// for the load of their model are not among them.
    pub fn under_way(&self, most: usize) -> (Vec<RequestUnderWay>, usize) {
        self.under_way.list(most)
    }

    /// Visit each request that models are answering: its caller, and whether it runs.
    pub fn each_under_way(&self, visit: impl FnMut(&Principal, bool)) {
        self.under_way.each(visit);
    }

    /// Cancel a request by its id: its caller gets an error, and what it held is free. False if none has this id.
    pub fn cancel(&self, id: &str) -> bool {
        self.under_way.cancel(id)
    }

    /// Wait until the policies have been told of every request that has ended.
    pub async fn settle(&self) {
        self.accounts.settle().await;
    }

    /// Share of the engine that a request counts against.
    pub(crate) fn share(&self, principal: &Principal, key: Option<&str>) -> Share {
        let weights = &self.config.tenant_weights;
        let weight = principal.tenant.as_ref().and_then(|name| weights.get(name));
        Share {
            tenant: account(principal),
            weight: weight.copied().unwrap_or(1),
            key: Arc::from(key.unwrap_or_default().trim()),
        }
    }

    async fn begin(
        &self,
        serving: &Arc<Generation>,
        call: &ApiCall,
        request: Request,
        numbers: &mut Numbers,
    ) -> Result<StartedPart, ServiceError> {
        let fields = request.fields();
        let session = fields.fairness_key.as_deref();
        let routed = self.route(serving, call, &fields.model, session).await;
        let span = spans::of_prompt(fields);
        // In a box: the span, the time limits and the layers of the router move what they are laid around.
        let begun = Box::pin(self.begin_at(&routed, serving, call, request, numbers));
        let begun = span.run(begun).await;
        if let Err(error) = &begun {
            routed.failed(call, error);
            span.fail(error.kind());
        }
        begun
    }

    async fn begin_at(
        &self,
        routed: &Routed,
        serving: &Arc<Generation>,
        call: &ApiCall,
        request: Request,
        numbers: &mut Numbers,
    ) -> Result<StartedPart, ServiceError> {
        let fields = request.fields();
        let (candidates, field) = request.candidates();
        let limit = fields
            .max_tokens
            .map(|each| each.saturating_mul(candidates));
        let admitted = serving.admit(call, routed, Some((fields, limit)));
        let (mut admission, meant) = admitted.await?;
        let request = rewrites::rewritten(request, &admission.allowance().rewrites)?;
        let mut used = self.hold(serving, &meant.entry).await?;
        used.observer = routed.observe(used.observer);
        let model = &used.loaded.model;
        let (name, generator) = meant.generator(&used.loaded)?;
        self.throughputs
            .sample(&name, &generator.load(), Instant::now());
        self.check_choices(candidates, field)?;
        let key = admission.routing_key(&model.name);
        let guards = used.guards(&name, &admission);
        guards.check_input(request.fields()).await?;
        let plugins = used.loaded.plugins.select(&key);
        let tools = used.tools(request.fields(), &key)?;
        let request = request.with_server_tools(tools.declarations())?;
        let submitter = self.submitter(
            call,
            SubmitTarget::of(&name, &generator),
            plugins,
            &used,
            &admission,
            &request,
        );
        let prompt = submitter.prepare(&request).await?;
        numbers.scored = prompt_scores::check(&request, prompt.tokens(), numbers.scored)?;
        let tokens = u32::try_from(prompt.tokens()).unwrap_or(u32::MAX);
        admission.spent().usage.prompt_tokens = tokens;
        let allowed = admission.allowance().max_tokens;
        let default = self.config.default_max_tokens;
        let max_tokens = submitter.max_tokens(&request, &prompt, allowed, default)?;
        let ready = Ready {
            call,
            request: &request,
            prompt: &prompt,
            submitter: &submitter,
            used: &used,
            max_tokens,
            candidates,
            numbers,
        };
        let (choices, setup) = self.choose(&ready, admission, tools).await?;
        let watched = setup.watched(choices.len());
        let watchers = guards.watchers(watched).await?;
        numbers.candidates += candidates;
        numbers.choices += request.choices();
        Ok(self.started(&submitter, choices, watchers, setup))
    }

    /// Submit the choices of a prompt, numbered from `first`.
    async fn submit(
        &self,
        submitter: &Arc<Submitter>,
        request: &Request,
        prompt: &ReadyPrompt,
        tools: EnabledTools,
        max_tokens: u32,
        first: u32,
    ) -> Result<Vec<ToolLoop>, ServiceError> {
        if let Some(beams) = &request.fields().beams {
            let found = submitter.beams(request, prompt, beams, max_tokens, first);
            let found = found.await?.into_iter();
            let choices = found.map(|(choice, tally)| ToolLoop::new(choice, tally, None));
            return Ok(choices.collect());
        }
        let candidates = request.candidates().0;
        let mut choices = Vec::with_capacity(candidates as usize);
        for index in 0..candidates {
            let number = first + index;
            let slot = ChoiceSlot {
                number,
                index,
                round: RoundKind::First,
                tally: Arc::default(),
            };
            let tally = Arc::clone(&slot.tally);
            let choice = submitter.choice(request, prompt, slot, max_tokens);
            let choice = choice.await?;
            let state = (!tools.is_empty()).then(|| ToolLoopState {
                submitter: Arc::clone(submitter),
                request: request.clone(),
                executor: self.executor(submitter, &tools, request.fields()),
                number,
                index,
                max_tokens,
                turn: AssistantTurn::default(),
            });
            choices.push(ToolLoop::new(choice, tally, state));
        }
        Ok(choices)
    }

    fn submitter(
        &self,
        call: &ApiCall,
        target: SubmitTarget,
        plugins: RequestPlugins,
        used: &UsedModel,
        admission: &Admission,
        request: &Request,
    ) -> Arc<Submitter> {
        let principal = admission.allowance().principal.clone();
        let share = self.share(&principal, request.fields().fairness_key.as_deref());
        Arc::new(Submitter {
            salt: (!self.config.share_prefixes).then(|| Arc::clone(&share.tenant)),
            share,
            principal,
            name: Arc::clone(target.name()),
            target,
            plugins,
            request_id: admission.request_id().clone(),
            masks: Arc::clone(&self.masks),
            throughputs: Arc::clone(&self.throughputs),
            observer: Arc::clone(&used.observer),
            lease: used.lease.clone(),
            latency: Arc::<Latency>::default(),
            arrived: call.arrived,
            priority: admission.allowance().priority,
            limited: admission.allowance().max_tokens.is_some(),
            span: Span::current(),
        })
    }

    fn executor(
        &self,
        submitter: &Submitter,
        tools: &EnabledTools,
        fields: &RequestFields,
    ) -> ToolExecutor {
        let configured = self.config.tools;
        let calls = fields.max_server_tool_calls.unwrap_or(configured.calls);
        ToolExecutor {
            tools: tools.clone(),
            limits: ToolLimits {
                calls: calls.min(configured.calls),
                ..configured
            },
            request_id: submitter.request_id.clone(),
            model: Arc::clone(&submitter.name),
            principal: submitter.principal.clone(),
            observer: Arc::clone(&submitter.observer),
            span: submitter.span.clone(),
            rounds: 0,
            calls: 0,
            spent: Duration::ZERO,
        }
    }
}

/// A loaded model that a request uses, with the generation that it was found in.
pub(crate) struct UsedModel {
    pub(crate) loaded: LoadedModel,
    pub(crate) observer: Arc<dyn ModelObserver>,
    serving: Arc<Generation>,
    /// Keeps it loaded. Shared by the choices of the answer.
    pub(crate) lease: Option<Arc<ModelLease>>,
}

/// Numbers of the next prompt's choices.
#[derive(Default)]
struct Numbers {
    /// While they are generated.
    candidates: u32,
    /// In the answer, where only the best of them are given.
    choices: u32,
    /// Log-probabilities of prompts.
    scored: usize,
}

impl Generation {
    fn new(
        models: Vec<ServedModel>,
        policies: Vec<Arc<dyn DecidePolicy>>,
        tools: &[Arc<dyn RunTool>],
        config: &ServiceConfig,
        accounts: &Arc<OpenAccounts>,
    ) -> Result<Self, SetupError> {
        let observers = models.iter().map(|model| {
            let observer = config.observer.model(&model.listing.name);
            (model.listing.name.clone(), observer)
        });
        let observers = observers.collect();
        Ok(Self {
            models: Catalogue::new(models, config.name_matching)?,
            observers,
            policies: Policies::new(
                policies,
                Arc::clone(&config.recognise),
                Arc::clone(accounts),
            ),
            tools: ServerTools::new(&[&config.built_in_tools, tools].concat())?,
            guardrails: Vec::new(),
            number: 0,
        })
    }

    /// All models.
    pub(crate) fn models(&self) -> &Catalogue<ServedModel> {
        &self.models
    }

    /// Whether a model has this public name.
    pub(crate) fn is_public(&self, name: &str) -> bool {
        self.models.get(name).is_some()
    }

    /// Listener for the model of this public name.
    fn observer(&self, name: &str) -> Arc<dyn ModelObserver> {
        match self.observers.get(name) {
            Some(observer) => Arc::clone(observer),
            None => Arc::new(NoObserver),
        }
    }

    /// Ask the policies about a request to a model, and find the model. They decide on the model that
    /// would answer, whatever the caller called it; a name that stands for nothing is refused only
    /// after them.
    async fn admit(
        &self,
        call: &ApiCall,
        routed: &Routed,
        answer: Option<(&RequestFields, Option<u32>)>,
    ) -> Result<(Admission, Meant), ServiceError> {
        let adapter = answer.and_then(|(fields, _)| fields.lora_adapter.as_deref());
        let mut meant = self.find_routed(routed, adapter);
        let named = meant.as_ref().map(Meant::name);
        let named = named.as_deref().unwrap_or(&routed.model);
        let mut admission = match answer {
            Some((fields, max_tokens)) => {
                let facts = answer_facts(call, named, max_tokens, fields);
                let admission = self.policies.admit_answer(call, facts).await?;
                admission.check_tools(fields)?;
                admission
            }
            None => {
                let facts = facts(call, Some(named), false, None);
                self.policies.admit(call, facts).await?
            }
        };
        if let Some(name) = rewrites::model(&admission.allowance().rewrites) {
            meant = self.chosen(name);
        }
        let meant = meant?;
        admission.spent().model = meant.name();
        Ok((admission, meant))
    }
}

mod cached;
#[cfg(test)]
mod tests;
