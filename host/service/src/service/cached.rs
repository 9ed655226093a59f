//! Choices that answer a request: made before and looked up, or made now.

use std::sync::Arc;
use std::time::Instant;

use mortise_models::{EmbeddingInput, PromptUse};

use super::{Generation, Numbers, Service, UsedModel};
use crate::admission::{Admission, ApiCall, Granted, account};
use crate::answer::StartedPart;
use crate::check::Request;
use crate::content::Transcript;
use crate::embedding::EmbeddingRequest;
use crate::error::ServiceError;
use crate::guard::{Guards, Watchers};
use crate::meant::Meant;
use crate::part::{PartSetup, PromptAnswer};
use crate::prepare;
use crate::refusal::invalid;
use crate::request::RequestFields;
use crate::response_cache::{
    AnswerRecording, CacheAttributes, CacheFigures, CacheScope, CacheUse, Likeness, OF_CALLERS,
    OF_POLICIES, Recorded, RequestDigest, Semantic, Wish, likeness,
};
use crate::routing_key::RoutingKey;
use crate::server_tools::EnabledTools;
use crate::source::{ChoiceSource, replayed};
use crate::submit::{ReadyPrompt, SubmitTarget, Submitter};
use crate::tally::TokenTally;
use crate::tool_loop::ToolLoop;

/// A request that is ready to be submitted.
pub(super) struct Ready<'a> {
    pub(super) call: &'a ApiCall,
    pub(super) request: &'a Request,
    pub(super) prompt: &'a ReadyPrompt,
    pub(super) submitter: &'a Arc<Submitter>,
    pub(super) used: &'a UsedModel,
    pub(super) max_tokens: u32,
    /// Choices that are generated, of which the best are given.
    pub(super) candidates: u32,
    pub(super) numbers: &'a Numbers,
}

/// Outcome of a look-up.
pub(super) enum LookedUp {
    /// No lookup: no rule asks for one, or the request does not allow it.
    Off,
    /// Hit: the answer was made before.
    Hit(Arc<Recorded>),
    /// Miss: the answer is made now, and recorded if it may be kept.
    Miss(Option<AnswerRecording>),
}

impl LookedUp {
    pub(super) fn came(&self) -> Option<CacheUse> {
        match self {
            Self::Off => None,
            Self::Hit(_) => Some(CacheUse::Hit),
            Self::Miss(_) => Some(CacheUse::Miss),
        }
    }

    pub(super) fn recording(self) -> Option<AnswerRecording> {
        match self {
            Self::Miss(recording) => recording,
            Self::Off | Self::Hit(_) => None,
        }
    }
}

impl Service {
    /// Figures of the cache of answers.
    pub fn response_cache(&self) -> CacheFigures {
        self.responses.figures()
    }

    /// Forget all answers that are kept. Returns their number and their bytes.
    pub fn clear_responses(&self) -> (usize, usize) {
        self.responses.clear()
    }

    /// Choices that answer a request: made before, or made now.
    pub(super) async fn choose(
        &self,
        ready: &Ready<'_>,
        mut admission: Admission,
        tools: EnabledTools,
    ) -> Result<(Vec<ChoiceSource>, PartSetup), ServiceError> {
        let Ready {
            request,
            prompt,
            submitter,
            numbers,
            ..
        } = ready;
        let looked_up = self.look_up(ready, &admission).await;
        let (choices, tallies) = match &looked_up {
            LookedUp::Hit(answer) => replayed(answer, numbers.choices),
            LookedUp::Miss(_) | LookedUp::Off => {
                let (max_tokens, first) = (ready.max_tokens, numbers.candidates);
                let most = (max_tokens, ready.candidates);
                let asked = (ready.call, &request.fields().prompt);
                let purchase = submitter.purchase(asked, prompt, most);
                admission.hold(self.config.spend.reserve(purchase).await?);
                let submitted = self.submit(submitter, request, prompt, tools, max_tokens, first);
                live(submitted.await?)
            }
        };
        let tenant = admission.allowance().principal.tenant.as_deref();
        let log = &self.config.content;
        let transcript = Transcript::begin(log, &submitter.name, tenant, request.fields());
        let setup = PartSetup {
            model: Arc::clone(&submitter.name),
            first_candidate: numbers.candidates,
            first_choice: numbers.choices,
            prompt: prompt.reported(request.fields()),
            given: request.choices(),
            tallies,
            latency: Arc::clone(&submitter.latency),
            cache: looked_up.came(),
            recording: looked_up.recording(),
            transcript,
            observer: Arc::clone(&submitter.observer),
            admission,
            span: submitter.span.clone(),
        };
        Ok((choices, setup))
    }

    /// The answer to the same request, or to one that is like it, where a rule asks for that.
    async fn look_up(&self, ready: &Ready<'_>, admission: &Admission) -> LookedUp {
        let cache = &self.responses;
        let model = ready.used.loaded.model.name.as_str();
        let fields = ready.request.fields();
        let principal = &admission.allowance().principal;
        let identity = CacheAttributes {
            model,
            tenant: principal.tenant.as_deref(),
            route: ready.call.route,
        };
        // An adapter may be another one tomorrow, under the same name.
        let adapted = *ready.submitter.name != *model;
        let Some(rule) = cache.rule(&identity).filter(|_| !adapted) else {
            return LookedUp::Off;
        };
        let told = fields.runs_tools() || fields.prompt_logprobs.is_some();
        if told || !(rule.sampled || repeats(ready)) {
            return LookedUp::Off;
        }
        let wish = wish(ready.call, admission);
        let account = account(principal);
        let scope = CacheScope {
            account: &account,
            model,
            route: ready.call.route,
            generation: ready.used.serving.number,
            max_tokens: ready.max_tokens,
        };
        let key = scope.key(fields, ready.prompt.ids());
        let mut found = None;
        if !wish.fresh {
            found = cache.find(&key);
        }
        let mut like = None;
        if let (None, Some(semantic), false) = (&found, &rule.semantic, wish.unkept) {
            like = self.likeness_of(&scope, fields, semantic, admission).await;
            if let (Some(like), false) = (&like, wish.fresh) {
                found = cache.find_like(like, semantic.threshold);
            }
        }
        let kept = |key: RequestDigest| {
            let (cache, account) = (Arc::clone(cache), Arc::clone(&account));
            AnswerRecording::new(cache, key, account, like, ready.numbers.choices)
        };
        let looked_up = match found {
            Some(answer) => LookedUp::Hit(answer),
            None => LookedUp::Miss((!wish.unkept).then(|| kept(key))),
        };
        if let Some(came) = looked_up.came() {
            cache.count(came);
        }
        looked_up
    }

    /// The question of a request with its vector; `None` where it has none, or the vector cannot be made.
    async fn likeness_of(
        &self,
        scope: &CacheScope<'_>,
        fields: &RequestFields,
        semantic: &Semantic,
        admission: &Admission,
    ) -> Option<Likeness> {
        let (around, text) = likeness(scope, fields)?;
        let call = ApiCall {
            request_id: admission.request_id().clone(),
            route: "/v1/embeddings",
            method: "POST",
            peer: String::new(),
            headers: Vec::new(),
            arrived: Instant::now(),
            granted: Some(Granted {
                principal: admission.allowance().principal.clone(),
                ..Granted::default()
            }),
            waived_priority: 0,
        };
        let request = EmbeddingRequest {
            model: semantic.model.clone(),
            inputs: vec![EmbeddingInput::Text(text)],
            // Questions are compared with questions.
            prompt: PromptUse::Query,
            ..EmbeddingRequest::default()
        };
        match self.embed(&call, request).await {
            Ok(made) => {
                let vector = made.vectors.into_iter().next()?;
                Some(Likeness { around, vector })
            }
            Err(error) => {
                tracing::warn!(%error, "the vector of a question could not be made");
                None
            }
        }
    }
}

impl Service {
    /// A prompt that is submitted, and listed from now on.
    pub(super) fn started(
        &self,
        submitter: &Submitter,
        choices: Vec<ChoiceSource>,
        watchers: Vec<Watchers>,
        setup: PartSetup,
    ) -> StartedPart {
        let registration = self.under_way.add(submitter.watched(&setup.tallies));
        StartedPart {
            choices,
            watchers,
            part: PromptAnswer::new(setup),
            registration,
        }
    }

    pub(super) fn check_choices(&self, candidates: u32, field: &str) -> Result<(), ServiceError> {
        let limit = self.config.max_choices;
        if candidates <= limit {
            return Ok(());
        }
        let message = format!("{field} is {candidates}; this server allows at most {limit}");
        Err(invalid(field, message))
    }
}

impl UsedModel {
    /// Tools that the server runs for a request.
    ///
    /// # Errors
    /// When it may use no tool of some name.
    pub(crate) fn tools(
        &self,
        fields: &RequestFields,
        key: &RoutingKey<'_>,
    ) -> Result<EnabledTools, ServiceError> {
        let selected = self.serving.tools.select(&fields.server_tools, key)?;
        selected.with(&fields.own_tools)
    }

    /// Guardrails that look at a request.
    pub(super) fn guards(&self, name: &str, admission: &Admission) -> Guards {
        let key = admission.routing_key(&self.loaded.model.name);
        let all = self.serving.guardrails.iter();
        Guards {
            list: all.filter(|guard| guard.serves(&key)).cloned().collect(),
            request: admission.request_id().clone(),
            observer: Arc::clone(&self.observer),
            model: Arc::from(name),
            principal: admission.allowance().principal.clone(),
        }
    }
}

impl Generation {
    /// The model that a policy chose: by its name, not by one that stands for it, since the policies were asked about
    /// that.
    ///
    /// # Errors
    /// When there is none of this name.
    pub(super) fn chosen(&self, name: &str) -> Result<Meant, ServiceError> {
        let found = self.find(name, None).ok();
        let found = found.filter(|meant| meant.name() == name);
        found.ok_or_else(|| ServiceError::ModelNotFound {
            model: name.to_owned(),
            alias: None,
            available: Vec::new(),
        })
    }
}

/// Choices that are generated, with what they take.
fn live(choices: Vec<ToolLoop>) -> (Vec<ChoiceSource>, Vec<Arc<TokenTally>>) {
    let tallies = choices.iter().map(|choice| Arc::clone(choice.tally()));
    let tallies = tallies.collect();
    let live = choices
        .into_iter()
        .map(|choice| ChoiceSource::Live(Box::new(choice)));
    (live.collect(), tallies)
}

/// Wish of the caller and of the policies.
fn wish(call: &ApiCall, admission: &Admission) -> Wish {
    let caller = Wish::of(OF_CALLERS, &call.headers);
    caller.and(Wish::of(OF_POLICIES, &admission.allowance().headers))
}

/// True if the same request has the same answer.
fn repeats(ready: &Ready<'_>) -> bool {
    let fields = ready.request.fields();
    if fields.seed.is_some() || fields.temperature == Some(0.0) || fields.beams.is_some() {
        return true;
    }
    match &ready.submitter.target {
        SubmitTarget::Tokens(model) => {
            let sampling = prepare::sampling(model, fields, 0);
            sampling.is_ok_and(|sampling| sampling.temperature == 0.0)
        }
        SubmitTarget::Conversation(_) | SubmitTarget::Rendered(_) => false,
    }
}
