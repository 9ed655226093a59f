//! The life of a request up to its first token: authorize, render, encode, constrain, submit.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use mortise_engine::Share;
use mortise_models::{Entry, Ladder, Registry, RegistryError};
use mortise_plugin::{Finish, Principal};

use crate::admission::{Admission, Call, OpenAccounts, Policies, answer_facts, facts};
use crate::answer::{Answer, AnswerParts};
use crate::check::{MAX_CHOICES, Request, invalid};
use crate::constraint::MaskThreads;
use crate::error::ServiceError;
use crate::launch::{Launch, Round};
use crate::lineup::RequestPlugins;
use crate::model::ServedModel;
use crate::observer::{NoObserver, Observer};
use crate::pace::Paces;
use crate::plugins::{DecidePolicy, RunTool};
use crate::prepare;
use crate::request::RequestFields;
use crate::rounds::{Rounds, ToolRounds, Turn};
use crate::toolbox::{Chosen, DuplicateTool, Runner, ToolLimits, Toolbox};

/// How a service is set up.
#[derive(Clone)]
pub struct ServiceConfig {
    /// Which names stand for a model.
    pub ladder: Ladder,
    /// Most tokens of a choice where neither the caller nor the model says.
    pub default_max_tokens: u32,
    /// Most choices of one request, up to [`crate::MAX_CHOICES`].
    pub max_choices: u32,
    /// Threads that compute masks.
    pub mask_threads: usize,
    /// A mask that takes longer fails its sequence. A backstop: plugins have deadlines of their own.
    pub mask_deadline: Duration,
    /// Weights by which tenants share the engines; a tenant that is not named has 1.
    pub tenant_weights: BTreeMap<String, u32>,
    /// Whether tenants find what others have cached, and could tell from the time that it saves.
    pub share_prefixes: bool,
    /// What a request may make of the server's tools.
    pub tools: ToolLimits,
    /// Hears of requests as they go.
    pub observer: Arc<dyn Observer>,
}

impl Default for ServiceConfig {
    fn default() -> Self {
        Self {
            ladder: Ladder::default(),
            default_max_tokens: 2048,
            max_choices: MAX_CHOICES,
            mask_threads: 2,
            mask_deadline: Duration::from_secs(10),
            tenant_weights: BTreeMap::new(),
            share_prefixes: false,
            tools: ToolLimits::default(),
            observer: Arc::new(NoObserver),
        }
    }
}

/// Why a service cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The models do not go together.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The tools do not go together.
    #[error(transparent)]
    Tools(#[from] DuplicateTool),
    /// The threads that compute masks did not start.
    #[error("cannot start the threads that compute masks")]
    MaskThreads(#[source] std::io::Error),
}

/// Answers requests for all models of a server.
pub struct Service {
    serving: RwLock<Arc<Generation>>,
    accounts: Arc<OpenAccounts>,
    masks: Arc<MaskThreads>,
    pub(crate) paces: Arc<Paces>,
    config: ServiceConfig,
}

/// What serves together: models with their plugins, policies, and tools. It does not change. A request
/// takes one generation when it begins and keeps it to its end, so that a prompt is never rendered
/// by one version of a plugin and its answer parsed by another.
struct Generation {
    models: Registry<ServedModel>,
    policies: Policies,
    tools: Toolbox,
}

impl Service {
    /// A service of these models, guarded by these policies in turn, with these tools to offer.
    ///
    /// # Errors
    /// When the models or the tools do not go together, or threads cannot be had.
    pub fn new(
        config: ServiceConfig,
        models: Vec<ServedModel>,
        policies: Vec<Arc<dyn DecidePolicy>>,
        tools: &[Arc<dyn RunTool>],
    ) -> Result<Self, SetupError> {
        let accounts = Arc::default();
        let generation = Generation::new(models, policies, tools, &config, &accounts)?;
        Ok(Self {
            serving: RwLock::new(Arc::new(generation)),
            accounts,
            masks: MaskThreads::start(config.mask_threads, config.mask_deadline)
                .map(Arc::new)
                .map_err(SetupError::MaskThreads)?,
            paces: Arc::default(),
            config,
        })
    }

    /// Serve these models, policies and tools from the next request on. Requests under way end with
    /// those that they began with.
    ///
    /// # Errors
    /// When the models or the tools do not go together; then nothing changes.
    pub fn replace(
        &self,
        models: Vec<ServedModel>,
        policies: Vec<Arc<dyn DecidePolicy>>,
        tools: &[Arc<dyn RunTool>],
    ) -> Result<(), SetupError> {
        let generation = Generation::new(models, policies, tools, &self.config, &self.accounts)?;
        let mut serving = self.serving.write().unwrap_or_else(PoisonError::into_inner);
        let replaced = std::mem::replace(&mut *serving, Arc::new(generation));
        // Plugins may end with their last reference, which is not work for within the lock.
        drop(serving);
        drop(replaced);
        Ok(())
    }

    fn serving(&self) -> Arc<Generation> {
        let serving = self.serving.read();
        Arc::clone(&serving.unwrap_or_else(PoisonError::into_inner))
    }

    /// All models, in the order of the configuration.
    pub fn models(&self) -> Vec<Arc<Entry<ServedModel>>> {
        self.serving().models.entries().to_vec()
    }

    /// The model that a caller means by `name`.
    pub fn model(&self, name: &str) -> Result<Arc<Entry<ServedModel>>, ServiceError> {
        Ok(Arc::clone(self.serving().models.resolve(name)?))
    }

    /// Ask the policies about a request that generates nothing, such as a list of models. The
    /// policy is told when the admission is dropped.
    pub async fn authorize(
        &self,
        call: &Call,
        model: Option<&str>,
    ) -> Result<Admission, ServiceError> {
        let serving = self.serving();
        let resolved = |name| serving.models.resolve(name);
        let named = model.map(|name| resolved(name).map_or(name, |entry| &entry.name));
        let mut admission = serving
            .policies
            .admit(call, facts(call, named, false, None))
            .await?;
        admission.spent().model = named.unwrap_or_default().to_owned();
        admission.spent().finish = Finish::Stop;
        Ok(admission)
    }

    /// Ask the policies about a request to a model that generates nothing, and find the model.
    pub(crate) async fn admit(
        &self,
        call: &Call,
        model: &str,
    ) -> Result<(Admission, Arc<Entry<ServedModel>>), ServiceError> {
        self.serving().admit(call, model, None).await
    }

    /// Start to answer a request.
    pub async fn start(&self, call: Call, request: Request) -> Result<Answer, ServiceError> {
        let name = request.fields().model.clone();
        let result = self.begin(&call, request).await;
        if let Err(error) = &result {
            self.config.observer.refused(&name, error);
        }
        result
    }

    /// Wait until the policies have been told of every request that has ended.
    pub async fn settle(&self) {
        self.accounts.settle().await;
    }

    /// Whose turn a request takes.
    fn share(&self, principal: &Principal, fields: &RequestFields) -> Share {
        let weights = &self.config.tenant_weights;
        let weight = principal.tenant.as_ref().and_then(|name| weights.get(name));
        Share {
            tenant: account(principal),
            weight: weight.copied().unwrap_or(1),
            key: Arc::from(fields.fairness_key.as_deref().unwrap_or_default().trim()),
        }
    }

    async fn begin(&self, call: &Call, request: Request) -> Result<Answer, ServiceError> {
        let fields = request.fields();
        let (candidates, field) = request.candidates();
        let serving = self.serving();
        let limit = fields
            .max_tokens
            .map(|each| each.saturating_mul(candidates));
        let admitted = serving.admit(call, &fields.model, Some((fields, limit)));
        let (mut admission, entry) = admitted.await?;
        let model = &entry.value;
        self.paces
            .note(&entry.name, &model.backend.load(), Instant::now());
        if candidates > self.config.max_choices {
            let limit = self.config.max_choices;
            return Err(invalid(
                field,
                format!("{field} is {candidates}; this server allows at most {limit}"),
            ));
        }
        let asking = admission.asking(&entry.name);
        let plugins = model.plugins.choose(&asking);
        let tools = serving
            .tools
            .choose(&request.fields().server_tools, &asking)?;
        let request = request.with_tools(tools.declarations())?;
        let prepared = prepare::prepare(model, &plugins, &call.request_id, &request).await?;
        let prompt = prepared.ids.len();
        admission.spent().prompt_tokens = prompt as u32;
        let allowed = admission.allowance().max_tokens;
        let default = self.config.default_max_tokens;
        let max_tokens = prepare::max_tokens(model, &request, prompt, allowed, default)?;
        let launch = self.launch(call, &entry, plugins, &admission, request.fields());
        let launch = Arc::new(launch);
        let choices = match &request.fields().beams {
            Some(beams) => {
                let found = launch.beams(&request, &prepared, beams, max_tokens).await?;
                found
                    .into_iter()
                    .map(|choice| Rounds::new(choice, None))
                    .collect()
            }
            None => {
                let mut choices = Vec::with_capacity(candidates as usize);
                for index in 0..candidates {
                    let choice =
                        launch.choice(&request, &prepared, index, max_tokens, Round::First);
                    let choice = choice.await?;
                    let rounds = (!tools.is_empty()).then(|| ToolRounds {
                        launch: Arc::clone(&launch),
                        request: request.clone(),
                        runner: self.runner(&launch, &tools, &admission),
                        index,
                        max_tokens,
                        turn: Turn::default(),
                    });
                    choices.push(Rounds::new(choice, rounds));
                }
                choices
            }
        };
        Ok(Answer::new(AnswerParts {
            model: Arc::clone(&launch.name),
            choices,
            given: request.choices(),
            prompt_tokens: prompt as u32,
            max_tokens,
            admission,
            observer: Arc::clone(&self.config.observer),
        }))
    }

    fn launch(
        &self,
        call: &Call,
        entry: &Arc<Entry<ServedModel>>,
        plugins: RequestPlugins,
        admission: &Admission,
        fields: &RequestFields,
    ) -> Launch {
        let share = self.share(&admission.allowance().principal, fields);
        Launch {
            salt: (!self.config.share_prefixes).then(|| Arc::clone(&share.tenant)),
            share,
            name: Arc::from(entry.name.as_str()),
            entry: Arc::clone(entry),
            plugins,
            request_id: Arc::clone(&call.request_id),
            masks: Arc::clone(&self.masks),
            paces: Arc::clone(&self.paces),
            observer: Arc::clone(&self.config.observer),
            arrived: call.arrived,
            priority: admission.allowance().priority,
        }
    }

    fn runner(&self, launch: &Launch, tools: &Chosen, admission: &Admission) -> Runner {
        Runner {
            tools: tools.clone(),
            limits: self.config.tools,
            request_id: Arc::clone(&launch.request_id),
            model: Arc::clone(&launch.name),
            principal: admission.allowance().principal.clone(),
            observer: Arc::clone(&self.config.observer),
            rounds: 0,
            calls: 0,
            spent: Duration::ZERO,
        }
    }
}

/// Whom a request counts for: the tenant, or a caller who has none. A caller may be named like
/// somebody else's tenant.
fn account(principal: &Principal) -> Arc<str> {
    Arc::from(match &principal.tenant {
        Some(tenant) => format!("tenant {tenant}"),
        None => format!("caller {}", principal.subject),
    })
}

impl Generation {
    fn new(
        models: Vec<ServedModel>,
        policies: Vec<Arc<dyn DecidePolicy>>,
        tools: &[Arc<dyn RunTool>],
        config: &ServiceConfig,
        accounts: &Arc<OpenAccounts>,
    ) -> Result<Self, SetupError> {
        let entries = models.into_iter().map(|model| Entry {
            name: model.name.clone(),
            aliases: model.aliases.clone(),
            created: model.created,
            owned_by: model.owned_by.clone(),
            value: model,
        });
        Ok(Self {
            models: Registry::new(entries.collect(), config.ladder)?,
            policies: Policies::new(policies, Arc::clone(accounts)),
            tools: Toolbox::new(tools)?,
        })
    }

    /// Ask the policies about a request to a model, and find the model. They decide on the model that
    /// would answer, whatever the caller called it; a name that stands for nothing is refused only
    /// after them.
    async fn admit(
        &self,
        call: &Call,
        model: &str,
        answer: Option<(&RequestFields, Option<u32>)>,
    ) -> Result<(Admission, Arc<Entry<ServedModel>>), ServiceError> {
        let entry = self.models.resolve(model);
        let named = entry.as_ref().map_or(model, |entry| entry.name.as_str());
        let facts = match answer {
            Some((fields, max_tokens)) => answer_facts(call, named, max_tokens, fields),
            None => facts(call, Some(named), false, None),
        };
        let mut admission = self.policies.admit(call, facts).await?;
        if let Some((fields, _)) = answer {
            admission.check_tools(fields)?;
        }
        let entry = Arc::clone(entry?);
        admission.spent().model = entry.name.clone();
        Ok((admission, entry))
    }
}

#[cfg(test)]
mod tests;
