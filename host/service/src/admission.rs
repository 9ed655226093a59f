//! Admission: policies decide whether a request may go on, and are told afterwards what the request came to.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use mortise_models::{FinishReason, Usage};
use mortise_plugin::{
    Allowance, Decision, Denial, Facts, Finish, Principal, ToolGrant, UsageReport,
};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::error::ServiceError;
use crate::observer::Outcome;
use crate::plugins::{DecidePolicy, RequestId};
use crate::recognition::{IDENTITY_HEADER, METADATA_HEADER, RecogniseCaller, recognised};
use crate::request::RequestFields;
use crate::rewrites;
use crate::routing_key::RoutingKey;
use crate::spans;
use crate::spending::Reserved;
use crate::told_length;

/// Facts of a request that are known before its body.
#[derive(Debug, Clone)]
pub struct ApiCall {
    /// The server's id of the request.
    pub request_id: RequestId,
    /// Route pattern.
    pub route: &'static str,
    /// HTTP method in capitals.
    pub method: &'static str,
    /// IP address of the peer.
    pub peer: String,
    /// Request headers.
    pub headers: Vec<(String, String)>,
    /// Time at which the request arrived.
    pub arrived: Instant,
    /// Work that was admitted before, as part of a batch or before a restart; its policies are not asked again.
    pub granted: Option<Granted>,
    /// Steps of priority that are left to others, whatever the policies say; a line of a batch leaves all.
    pub waived_priority: i32,
}

impl ApiCall {
    /// The call with a length of at least so many bytes.
    pub(crate) fn of_length(&self, least: u64) -> Self {
        let mut call = self.clone();
        told_length::raise(&mut call.headers, least);
        call
    }
}

/// Caller whose work was admitted before.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Granted {
    /// Caller.
    pub principal: Principal,
    /// Priority; a higher one is served first.
    pub priority: i32,
    /// A tighter limit on generated tokens.
    pub max_tokens: Option<u32>,
    /// Functions that the caller may declare.
    pub tools: ToolGrant,
    /// Tools of the server that the request may opt in to.
    pub server_tools: ToolGrant,
}

impl Granted {
    /// Allowance of the policies.
    pub fn of(allowance: &Allowance) -> Self {
        Self {
            principal: allowance.principal.clone(),
            priority: allowance.priority,
            max_tokens: allowance.max_tokens,
            tools: allowance.tools.clone(),
            server_tools: allowance.server_tools.clone(),
        }
    }

    fn allowance(&self) -> Allowance {
        Allowance {
            principal: self.principal.clone(),
            priority: self.priority,
            max_tokens: self.max_tokens,
            tools: self.tools.clone(),
            server_tools: self.server_tools.clone(),
            ..Allowance::default()
        }
    }
}

/// The policies of a server, in the order in which they are asked.
pub(crate) struct Policies {
    pub(crate) chain: Vec<Arc<dyn DecidePolicy>>,
    recognise: Arc<dyn RecogniseCaller>,
    open: Arc<OpenAccounts>,
}

impl Policies {
    /// `open` counts the requests of which a policy must still be told, over all generations.
    pub(crate) fn new(
        chain: Vec<Arc<dyn DecidePolicy>>,
        recognise: Arc<dyn RecogniseCaller>,
        open: Arc<OpenAccounts>,
    ) -> Self {
        Self {
            chain,
            recognise,
            open,
        }
    }

    /// Add to the facts what is known of the caller. For work that was admitted before, nothing is asked.
    pub(crate) async fn recognised(
        &self,
        call: &ApiCall,
        facts: Facts,
    ) -> Result<Facts, ServiceError> {
        match call.granted {
            Some(_) => Ok(facts),
            None => recognised(&*self.recognise, facts).await,
        }
    }

    /// Whether a request may go on. First the policies that are bound to no tenant say who asks; then
    /// those that are bound to that tenant may refuse, or narrow what was allowed.
    ///
    /// For requests without an answer, which nobody changes.
    pub(crate) async fn admit(
        &self,
        call: &ApiCall,
        facts: Facts,
    ) -> Result<Admission, ServiceError> {
        self.ask(call, facts, false).await
    }

    /// Ask the policies whether a request for an answer may go on; policies may change such a request.
    pub(crate) async fn admit_answer(
        &self,
        call: &ApiCall,
        facts: Facts,
    ) -> Result<Admission, ServiceError> {
        self.ask(call, facts, true).await
    }

    async fn ask(
        &self,
        call: &ApiCall,
        facts: Facts,
        rewrites: bool,
    ) -> Result<Admission, ServiceError> {
        let decided = spans::part("policy", self.decided(call, facts, rewrites));
        let mut admission = decided.await?;
        let own = &mut admission.allowance;
        own.priority = own.priority.saturating_sub(call.waived_priority);
        Ok(admission)
    }

    async fn decided(
        &self,
        call: &ApiCall,
        facts: Facts,
        rewrites: bool,
    ) -> Result<Admission, ServiceError> {
        if let Some(granted) = &call.granted {
            return Ok(Admission::new(call, granted.allowance(), Vec::new()));
        }
        let mut facts = self.recognised(call, facts).await?;
        let mut asked = Vec::new();
        let mut admission = self.introduce(call, &facts, &mut asked).await?;
        let tenant = admission.allowance.principal.tenant.clone();
        if !rewrites {
            admission.allowance.rewrites.clear();
        }
        // The last one asked is the one that changes it.
        let before = asked.len().saturating_sub(1);
        let earlier = asked.get(..before).unwrap_or_default();
        rewrites::change_model(&mut facts, &admission.allowance, earlier).await?;
        for policy in self.chain.iter().filter(|policy| policy.is_by_tenant()) {
            if !policy.concerns(&routing_key(&facts, tenant.as_deref())) {
                continue;
            }
            match decide(policy, call, &facts).await? {
                None | Some(Decision::Abstain) => {}
                Some(Decision::Deny(denial)) => return Err(ServiceError::Denied(denial)),
                Some(Decision::Allow(mut allowance)) => {
                    if !rewrites {
                        allowance.rewrites.clear();
                    }
                    let account = self.account(policy, &allowance);
                    admission.narrow(allowance, account);
                    rewrites::change_model(&mut facts, &admission.allowance, &asked).await?;
                }
            }
            asked.push(Arc::clone(policy));
        }
        rewrites::label(&mut admission.allowance);
        Ok(admission)
    }

    /// Ask the policies that are bound to no tenant in turn; the first that does not abstain decides.
    /// Where none of them has a say, everybody may do everything.
    async fn introduce(
        &self,
        call: &ApiCall,
        facts: &Facts,
        asked_so_far: &mut Vec<Arc<dyn DecidePolicy>>,
    ) -> Result<Admission, ServiceError> {
        let key = routing_key(facts, None);
        let mut asked = false;
        let free = self.chain.iter().filter(|policy| !policy.is_by_tenant());
        for policy in free.filter(|policy| policy.concerns(&key)) {
            let Some(decision) = decide(policy, call, facts).await? else {
                continue;
            };
            asked_so_far.push(Arc::clone(policy));
            asked = true;
            match decision {
                Decision::Abstain => {}
                Decision::Deny(denial) => return Err(ServiceError::Denied(denial)),
                Decision::Allow(allowance) => {
                    let account = self.account(policy, &allowance);
                    return Ok(Admission::new(call, allowance, vec![account]));
                }
            }
        }
        if !asked {
            let allowance = Allowance {
                principal: anonymous(),
                ..Allowance::default()
            };
            return Ok(Admission::new(call, allowance, Vec::new()));
        }
        Err(ServiceError::Denied(Denial {
            status: 403,
            kind: "permission_error".to_owned(),
            code: "no_policy_allows".to_owned(),
            message: "no policy of this server allows the request".to_owned(),
            retry_after_ms: None,
            headers: Vec::new(),
        }))
    }

    fn account(&self, policy: &Arc<dyn DecidePolicy>, allowance: &Allowance) -> Account {
        Account {
            policy: Arc::clone(policy),
            subject: allowance.principal.subject.clone(),
            tenant: allowance.principal.tenant.clone(),
            lease: allowance.lease.clone(),
            runtime: Handle::current(),
            open: OpenAccount::new(&self.open),
        }
    }
}

/// Caller where no policy has a say.
pub(crate) fn anonymous() -> Principal {
    Principal {
        subject: "anonymous".to_owned(),
        ..Principal::default()
    }
}

/// Verdict of a policy. `None` if it failed and is not required; otherwise a policy that fails refuses.
async fn decide(
    policy: &Arc<dyn DecidePolicy>,
    call: &ApiCall,
    facts: &Facts,
) -> Result<Option<Decision>, ServiceError> {
    match policy.authorize(&call.request_id, facts.clone()).await {
        Err(error) if !policy.is_required() && !error.fault.is_callers() => {
            tracing::warn!(request_id = %call.request_id, %error,
                "a policy that is not required failed and was passed over");
            Ok(None)
        }
        decision => Ok(Some(decision?)),
    }
}

pub(crate) fn routing_key<'a>(facts: &'a Facts, tenant: Option<&'a str>) -> RoutingKey<'a> {
    RoutingKey {
        tenant,
        route: &facts.route,
        model: facts.model.as_deref(),
    }
}

/// Facts of a request for policies.
pub(crate) fn facts(
    call: &ApiCall,
    model: Option<&str>,
    streaming: bool,
    max_tokens: Option<u32>,
) -> Facts {
    let lower = |(name, value): &(String, String)| (name.to_lowercase(), value.clone());
    let headers = call.headers.iter().map(lower);
    Facts {
        request_id: call.request_id.to_string(),
        route: call.route.to_owned(),
        method: call.method.to_owned(),
        peer: call.peer.clone(),
        headers: headers
            .filter(|(name, _)| name != IDENTITY_HEADER && name != METADATA_HEADER)
            .collect(),
        model: model.map(str::to_owned),
        streaming,
        max_tokens,
        tools: Vec::new(),
        server_tools: Vec::new(),
    }
}

/// Facts of a request that asks for an answer, for policies: `max_tokens` is over all choices.
pub(crate) fn answer_facts(
    call: &ApiCall,
    model: &str,
    max_tokens: Option<u32>,
    fields: &RequestFields,
) -> Facts {
    let mut facts = facts(call, Some(model), fields.stream, max_tokens);
    told_length::raise(&mut facts.headers, told_length::of_prompt(&fields.prompt));
    let labels = fields.metadata.clone();
    let labels = labels.map(|labels| (METADATA_HEADER.to_owned(), labels));
    facts.headers.extend(labels);
    Facts {
        tools: fields.tools.names().map(str::to_owned).collect(),
        server_tools: [fields.server_tools.clone(), fields.own_tools.names()].concat(),
        ..facts
    }
}

/// A request that may go on. When it is dropped, the policies that allowed it are told what it came
/// to, each on a task of its own.
pub struct Admission {
    allowance: Allowance,
    request_id: RequestId,
    route: &'static str,
    arrived: Instant,
    accounts: Vec<Account>,
    spent: Spent,
    /// Money that is reserved for the request.
    reserved: Option<Box<dyn Reserved>>,
}

/// Figures of a request so far, for the policies.
#[derive(Debug, Clone)]
pub(crate) struct Spent {
    pub(crate) model: String,
    pub(crate) usage: Usage,
    pub(crate) outcome: Outcome,
}

/// Account that a request counts against: its tenant, or a caller without one. The two have separate
/// name spaces.
pub fn account(principal: &Principal) -> Arc<str> {
    Arc::from(match &principal.tenant {
        Some(tenant) => format!("tenant {tenant}"),
        None => format!("caller {}", principal.subject),
    })
}

/// A policy that allowed a request, and what it said then.
struct Account {
    policy: Arc<dyn DecidePolicy>,
    subject: String,
    tenant: Option<String>,
    lease: Option<String>,
    runtime: Handle,
    open: OpenAccount,
}

impl Admission {
    fn new(call: &ApiCall, allowance: Allowance, accounts: Vec<Account>) -> Self {
        let account = account(&allowance.principal);
        Self {
            allowance,
            request_id: call.request_id.of_account(account),
            route: call.route,
            arrived: call.arrived,
            accounts,
            spent: Spent {
                model: String::new(),
                usage: Usage::default(),
                outcome: Outcome::Failed,
            },
            reserved: None,
        }
    }

    /// Hold what was reserved until the request has ended.
    pub(crate) fn hold(&mut self, reserved: Option<Box<dyn Reserved>>) {
        self.reserved = reserved;
    }

    /// Refuse a request that asks for tools which its caller may not have. Nothing is left out in
    /// silence: a model without a tool that the caller counts on would answer something else.
    ///
    /// # Errors
    /// When there is such a tool; the text names the first.
    pub(crate) fn check_tools(&self, fields: &RequestFields) -> Result<(), ServiceError> {
        let Allowance {
            principal,
            tools,
            server_tools,
            ..
        } = &self.allowance;
        let own = fields.tools.names().enumerate();
        let own = own.map(|(at, name)| ("tools", at, name, tools));
        let servers = fields.server_tools.iter().enumerate();
        let servers = servers.map(|(at, name)| ("server_tools", at, name.as_str(), server_tools));
        let run = fields.own_tools.names();
        let run = run.iter().enumerate();
        let run = run.map(|(at, name)| ("tools", at, name.as_str(), server_tools));
        let mut all = own.chain(servers).chain(run);
        let Some((field, at, name, _)) = all.find(|(_, _, name, grant)| !grant.permits(name))
        else {
            return Ok(());
        };
        Err(ServiceError::Denied(Denial {
            status: 403,
            kind: "permission_error".to_owned(),
            code: "tool_not_allowed".to_owned(),
            message: format!(
                "`{}` may not use the tool `{name}` ({field}[{at}]); leave it out, or ask the \
                 operator of this server to allow it",
                principal.subject
            ),
            retry_after_ms: None,
            headers: Vec::new(),
        }))
    }

    /// Millionths of the currency that so much costs, if it has a price.
    pub fn cost_micros(&self, usage: Usage, outcome: Outcome) -> Option<u64> {
        let reserved = self.reserved.as_ref()?;
        Some(reserved.cost_micros(usage, outcome))
    }

    /// Caller, and its terms.
    pub fn allowance(&self) -> &Allowance {
        &self.allowance
    }

    /// Account that the request counts against.
    pub fn account(&self) -> Arc<str> {
        account(&self.allowance.principal)
    }

    /// Attributes by which the plugins of the request are selected.
    pub(crate) fn routing_key<'a>(&'a self, model: &'a str) -> RoutingKey<'a> {
        RoutingKey {
            tenant: self.allowance.principal.tenant.as_deref(),
            route: self.route,
            model: Some(model),
        }
    }

    /// Another policy allows it as well. Who asks remains what the first said, and nothing becomes
    /// wider: the smaller limit holds, only tools that both grant may be used, and of priorities other than 0, which is none, the lower.
    fn narrow(&mut self, by: Allowance, account: Account) {
        let own = &mut self.allowance;
        own.max_tokens = match (own.max_tokens, by.max_tokens) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        if by.priority != 0 {
            own.priority = own.priority.min(by.priority);
        }
        own.tools = std::mem::take(&mut own.tools).and(by.tools);
        own.server_tools = std::mem::take(&mut own.server_tools).and(by.server_tools);
        own.headers.extend(by.headers);
        rewrites::merge(&mut own.rewrites, by.rewrites);
        self.accounts.push(account);
    }

    pub(crate) fn request_id(&self) -> &RequestId {
        &self.request_id
    }

    /// Time since the request arrived.
    pub(crate) fn elapsed(&self) -> Duration {
        self.arrived.elapsed()
    }

    /// Figures that the policies will be given. Until something is recorded, that is a failure that
    /// took no tokens.
    pub(crate) fn spent(&mut self) -> &mut Spent {
        &mut self.spent
    }
}

impl std::fmt::Debug for Admission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admission")
            .field("allowance", &self.allowance)
            .field("spent", &self.spent)
            .finish_non_exhaustive()
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        if let Some(reserved) = self.reserved.take() {
            reserved.settle(self.spent.usage, self.spent.outcome);
        }
        let wall_ms = u64::try_from(self.elapsed().as_millis()).unwrap_or(u64::MAX);
        for account in std::mem::take(&mut self.accounts) {
            let usage = UsageReport {
                request_id: self.request_id.to_string(),
                lease: account.lease,
                subject: account.subject,
                tenant: account.tenant,
                model: self.spent.model.clone(),
                prompt_tokens: self.spent.usage.prompt_tokens,
                cached_tokens: self.spent.usage.cached_tokens,
                completion_tokens: self.spent.usage.completion_tokens,
                finish: finish(self.spent.outcome),
                wall_ms,
            };
            let (policy, open) = (account.policy, account.open);
            let request = self.request_id.clone();
            account.runtime.spawn(async move {
                if let Err(error) = policy.account(&request, usage).await {
                    tracing::error!(request_id = %request, %error,
                        "a policy was not told of a request");
                }
                drop(open);
            });
        }
    }
}

/// The outcome in the words of the policy interface.
fn finish(outcome: Outcome) -> Finish {
    match outcome {
        Outcome::Finished(
            FinishReason::Stop | FinishReason::ToolCalls | FinishReason::ContentFilter,
        ) => Finish::Stop,
        Outcome::Finished(FinishReason::Length) => Finish::Length,
        Outcome::Cancelled => Finish::Cancelled,
        Outcome::Failed => Finish::Error,
    }
}

/// Policies that have not been told yet what a request came to.
#[derive(Default)]
pub(crate) struct OpenAccounts {
    count: AtomicUsize,
    closed: Notify,
}

impl OpenAccounts {
    /// Wait until every policy has been told of every request that has ended.
    pub(crate) async fn settle(&self) {
        loop {
            let closed = self.closed.notified();
            if self.count.load(Ordering::Acquire) == 0 {
                return;
            }
            closed.await;
        }
    }
}

struct OpenAccount {
    all: Arc<OpenAccounts>,
}

impl OpenAccount {
    fn new(all: &Arc<OpenAccounts>) -> Self {
        all.count.fetch_add(1, Ordering::AcqRel);
        Self {
            all: Arc::clone(all),
        }
    }
}

impl Drop for OpenAccount {
    fn drop(&mut self) {
        self.all.count.fetch_sub(1, Ordering::AcqRel);
        self.all.closed.notify_waiters();
    }
}
