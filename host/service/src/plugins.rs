//! Traits of the plugins that the service calls, so that the life of a request can be tested
//! without WebAssembly. The handles of `mortise-plugin` implement them.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use mortise_plugin::{
    AnswerPart, CallContext, Decision, Facts, Finish, GrammarSource, GuardContext, GuardTraits,
    GuardVerdict, MatchStatus, MatchStep, ParserEvent, ParserSetup, ParserTraits, PluginError,
    QuotaCaller, QuotaUse, QuotasUntold, RenderedPrompt, ServerTool, TemplateInput, ToolAnswer,
    ToolCaller, UsageReport,
};

use crate::routing_key::RoutingKey;

/// A future in a box, so that traits with it stay object safe.
pub type PluginFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The server's id of the request that plugins are called for, and the account whose share of their instances it takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestId {
    id: Arc<str>,
    account: Arc<str>,
}

impl RequestId {
    /// The id of a request whose caller is not known yet, or of a call that no request asked for.
    pub fn new(id: impl Into<Arc<str>>) -> Self {
        Self {
            id: id.into(),
            account: Arc::from(""),
        }
    }

    /// Request with the account that it counts against.
    #[must_use]
    pub fn of_account(&self, account: Arc<str>) -> Self {
        Self {
            id: Arc::clone(&self.id),
            account,
        }
    }

    /// Context of calls for this request.
    pub(crate) fn context(&self) -> CallContext {
        CallContext::new(Arc::clone(&self.id)).of_owner(Arc::clone(&self.account))
    }
}

impl std::ops::Deref for RequestId {
    type Target = str;

    fn deref(&self) -> &str {
        &self.id
    }
}

impl std::fmt::Display for RequestId {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.id)
    }
}

/// Chat templates by the names that requests give.
pub type NamedTemplates = BTreeMap<String, Arc<dyn RenderChat>>;

/// Renders conversations (`chat-template`).
pub trait RenderChat: Send + Sync {
    /// Render one conversation.
    fn render<'a>(
        &'a self,
        request: &'a RequestId,
        input: TemplateInput,
    ) -> PluginFuture<'a, Result<RenderedPrompt, PluginError>>;

    /// Templates that a request may choose in its place, by name.
    fn named(&self) -> Option<&NamedTemplates> {
        None
    }
}

/// Parses answers (`output-parser`).
pub trait ParseOutput: Send + Sync {
    /// Needs of the parser.
    fn traits(&self) -> ParserTraits;

    /// The grammar that the raw output must follow.
    fn constraint<'a>(
        &'a self,
        request: &'a RequestId,
        setup: &'a ParserSetup,
        wanted: Option<&'a GrammarSource>,
    ) -> PluginFuture<'a, Result<Option<GrammarSource>, PluginError>>;

    /// Open a session for one answer; none if there is nothing to parse.
    #[allow(
        clippy::type_complexity,
        reason = "a name for the type would hide what it holds"
    )]
    fn open<'a>(
        &'a self,
        request: &'a RequestId,
        setup: &'a ParserSetup,
    ) -> PluginFuture<'a, Result<Option<Box<dyn ParseSession>>, PluginError>>;
}

/// Session of one answer that is parsed (`output-parser.session`).
pub trait ParseSession: Send {
    /// Take more text, with the tokens that it came from.
    fn feed<'a>(
        &'a mut self,
        text: &'a str,
        tokens: &'a [u32],
    ) -> PluginFuture<'a, Result<Vec<ParserEvent>, PluginError>>;

    /// The answer has ended.
    fn close(
        self: Box<Self>,
        finish: Finish,
    ) -> PluginFuture<'static, Result<Vec<ParserEvent>, PluginError>>;
}

/// Compiles grammars (`grammar`).
pub trait CompileGrammar: Send + Sync {
    /// Compile a grammar; the matcher stands at the start of the text.
    fn compile<'a>(
        &'a self,
        request: &'a RequestId,
        source: &'a GrammarSource,
    ) -> PluginFuture<'a, Result<Box<dyn MatchTokens>, PluginError>>;
}

/// Matcher of one sequence that is constrained (`grammar.matcher`).
pub trait MatchTokens: Send {
    /// Write the mask of the present state.
    fn mask<'a>(
        &'a mut self,
        mask: &'a mut Vec<u32>,
    ) -> PluginFuture<'a, Result<MatchStatus, PluginError>>;

    /// Take tokens, then write the mask of the new state.
    fn advance<'a>(
        &'a mut self,
        tokens: &'a [u32],
        mask: &'a mut Vec<u32>,
    ) -> PluginFuture<'a, Result<MatchStep, PluginError>>;
}

/// Decides on requests (`policy`).
pub trait DecidePolicy: Send + Sync {
    /// Whether the policy has a say in this request. If not, it is as if it were not there.
    fn concerns(&self, _key: &RoutingKey<'_>) -> bool {
        true
    }

    /// Whether the policy is bound to tenants, and so asked once it is known who asks.
    fn is_by_tenant(&self) -> bool {
        false
    }

    /// Whether a request is refused when the policy breaks down. If not, a policy that broke down
    /// is as if it were not there.
    fn is_required(&self) -> bool {
        true
    }

    /// Name of the plugin, for operators.
    fn name(&self) -> &str {
        "policy"
    }

    /// Whether the policy may concern requests of callers of this tenant.
    fn concerns_tenant(&self, _tenant: Option<&str>) -> bool {
        true
    }

    /// Limits that requests of a caller count against, with their use. Nothing is taken for it.
    fn quotas<'a>(
        &'a self,
        _request: &'a RequestId,
        _caller: &'a QuotaCaller,
    ) -> PluginFuture<'a, Result<Vec<QuotaUse>, QuotasUntold>> {
        Box::pin(std::future::ready(Err(QuotasUntold::NotTold)))
    }

    /// Decide on one request by what is known before its body, without taking anything for it. `None` if
    /// the policy cannot be asked twice.
    fn identify<'a>(
        &'a self,
        _request: &'a RequestId,
        _facts: Facts,
    ) -> PluginFuture<'a, Result<Option<Decision>, PluginError>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Decide on one request.
    fn authorize<'a>(
        &'a self,
        request: &'a RequestId,
        facts: Facts,
    ) -> PluginFuture<'a, Result<Decision, PluginError>>;

    /// Learn what an allowed request came to.
    fn account<'a>(
        &'a self,
        request: &'a RequestId,
        usage: UsageReport,
    ) -> PluginFuture<'a, Result<(), PluginError>>;
}

/// Runs tools while a model answers (`tool`).
pub trait RunTool: Send + Sync {
    /// Declarations of the tools.
    fn declarations(&self) -> Vec<ServerTool>;

    /// Whether a request may use the tools.
    fn serves(&self, _key: &RoutingKey<'_>) -> bool {
        true
    }

    /// Whether an answer fails when the plugin breaks down. If not, the model is told that the tool
    /// failed.
    fn is_required(&self) -> bool {
        true
    }

    /// Run the tool `name` with `arguments`, as the model wrote them.
    fn call<'a>(
        &'a self,
        request: &'a RequestId,
        caller: &'a ToolCaller,
        name: &'a str,
        arguments: &'a str,
    ) -> PluginFuture<'a, Result<ToolAnswer, PluginError>>;
}

/// Time of a guardrail's verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuardMode {
    /// Text goes out at once, and a refusal that comes later ends the choice.
    Observe,
    /// Text waits for the verdict, at most so many tokens of it.
    Hold {
        /// Most tokens that wait.
        tokens: u32,
    },
}

/// Looks at what is asked and answered (`guardrail`).
pub trait GuardAnswer: Send + Sync {
    /// Name of the plugin, for logs.
    fn name(&self) -> &str;

    /// Parts that the guardrail looks at.
    fn traits(&self) -> GuardTraits;

    /// Whether the guardrail looks at a request.
    fn serves(&self, _key: &RoutingKey<'_>) -> bool {
        true
    }

    /// Whether a request fails when the plugin breaks down. If not, it goes on unguarded.
    fn is_required(&self) -> bool {
        true
    }

    /// Time of the guardrail's verdicts.
    fn mode(&self) -> GuardMode {
        GuardMode::Observe
    }

    /// Tokens of an answer after which the guardrail is asked again, at least 1.
    fn every(&self) -> u32 {
        1
    }

    /// Verdict on the messages of a request, as JSON.
    fn check_input<'a>(
        &'a self,
        request: &'a RequestId,
        told: &'a GuardContext,
        messages: &'a str,
    ) -> PluginFuture<'a, Result<GuardVerdict, PluginError>>;

    /// Open a session for one choice; none if there is nothing to look at.
    #[allow(
        clippy::type_complexity,
        reason = "a name for the type would hide what it holds"
    )]
    fn open<'a>(
        &'a self,
        request: &'a RequestId,
        told: &'a GuardContext,
    ) -> PluginFuture<'a, Result<Option<Box<dyn WatchChoice>>, PluginError>>;
}

/// Session of one choice that a guardrail looks at (`guardrail.session`).
pub trait WatchChoice: Send {
    /// Take the next text of a part, of which the last `held` bytes before it are held back.
    fn feed<'a>(
        &'a mut self,
        part: &'a AnswerPart,
        text: &'a str,
        held: u32,
    ) -> PluginFuture<'a, Result<GuardVerdict, PluginError>>;

    /// The choice has ended; of its last part, `held` bytes are held back.
    fn close(
        self: Box<Self>,
        finish: Finish,
        held: u32,
    ) -> PluginFuture<'static, Result<GuardVerdict, PluginError>>;
}
