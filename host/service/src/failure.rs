//! Failure of a plugin: the failure policy of its binding, laid around it. A
//! request that the plugin refuses as wrong stays refused.

use std::sync::Arc;

use mortise_plugin::{
    Decision, Facts, Finish, GrammarSource, GuardContext, GuardTraits, GuardVerdict, ParserEvent,
    ParserSetup, ParserTraits, PluginError, QuotaCaller, QuotaUse, QuotasUntold, RenderedPrompt,
    ServerTool, TemplateInput, ToolAnswer, ToolCaller, UsageReport,
};

use crate::plugin_routing::ScopePredicate;
use crate::plugins::{
    CompileGrammar, DecidePolicy, GuardAnswer, GuardMode, MatchTokens, ParseOutput, ParseSession,
    PluginFuture, RenderChat, RequestId, RunTool, WatchChoice,
};
use crate::routing_key::RoutingKey;

/// A plugin and the one that takes over the calls in which it breaks down.
pub struct Fallback<T: ?Sized> {
    /// Asked first.
    pub first: Arc<T>,
    /// Asked when the first has failed.
    pub second: Arc<T>,
}

impl RenderChat for Fallback<dyn RenderChat> {
    fn render<'a>(
        &'a self,
        request: &'a RequestId,
        input: TemplateInput,
    ) -> PluginFuture<'a, Result<RenderedPrompt, PluginError>> {
        Box::pin(async move {
            match self.first.render(request, input.clone()).await {
                Err(error) if !error.fault.is_callers() => {
                    took_over(request, &error);
                    self.second.render(request, input).await
                }
                rendered => rendered,
            }
        })
    }
}

impl CompileGrammar for Fallback<dyn CompileGrammar> {
    fn compile<'a>(
        &'a self,
        request: &'a RequestId,
        source: &'a GrammarSource,
    ) -> PluginFuture<'a, Result<Box<dyn MatchTokens>, PluginError>> {
        Box::pin(async move {
            match self.first.compile(request, source).await {
                Err(error) if !error.fault.is_callers() => {
                    took_over(request, &error);
                    self.second.compile(request, source).await
                }
                compiled => compiled,
            }
        })
    }
}

fn took_over(request: &RequestId, error: &PluginError) {
    tracing::warn!(request_id = %request, %error, "a plugin failed and its fallback took over");
}

/// An output parser whose failure leaves the answer as raw text: it becomes content.
pub struct RawOnFailure(pub Arc<dyn ParseOutput>);

impl ParseOutput for RawOnFailure {
    fn traits(&self) -> ParserTraits {
        self.0.traits()
    }

    fn constraint<'a>(
        &'a self,
        request: &'a RequestId,
        setup: &'a ParserSetup,
        wanted: Option<&'a GrammarSource>,
    ) -> PluginFuture<'a, Result<Option<GrammarSource>, PluginError>> {
        Box::pin(async move {
            match self.0.constraint(request, setup, wanted).await {
                Err(error) if !error.fault.is_callers() => {
                    left_raw(request, &error);
                    // The caller's own constraint is a promise of ours.
                    Ok(wanted.cloned())
                }
                constraint => constraint,
            }
        })
    }

    fn open<'a>(
        &'a self,
        request: &'a RequestId,
        setup: &'a ParserSetup,
    ) -> PluginFuture<'a, Result<Option<Box<dyn ParseSession>>, PluginError>> {
        Box::pin(async move {
            match self.0.open(request, setup).await {
                Ok(Some(session)) => Ok(Some(Box::new(RawSession {
                    parser: Some(session),
                    request: request.clone(),
                }) as Box<dyn ParseSession>)),
                Err(error) if !error.fault.is_callers() => {
                    left_raw(request, &error);
                    Ok(None)
                }
                opened => opened,
            }
        })
    }
}

fn left_raw(request: &RequestId, error: &PluginError) {
    tracing::warn!(request_id = %request, %error,
        "an output parser failed and the answer is passed on as it is");
}

/// Once its parser has failed, all text is content. What the parser held back is lost.
struct RawSession {
    parser: Option<Box<dyn ParseSession>>,
    request: RequestId,
}

impl ParseSession for RawSession {
    fn feed<'a>(
        &'a mut self,
        text: &'a str,
        tokens: &'a [u32],
    ) -> PluginFuture<'a, Result<Vec<ParserEvent>, PluginError>> {
        Box::pin(async move {
            if let Some(parser) = self.parser.as_mut() {
                match parser.feed(text, tokens).await {
                    Ok(events) => return Ok(events),
                    // What the model wrote is at fault, and no more of it is passed on.
                    Err(error) if error.fault.is_callers() => return Err(error),
                    Err(error) => left_raw(&self.request, &error),
                }
                self.parser = None;
            }
            Ok(vec![ParserEvent::Content(text.to_owned())])
        })
    }

    fn close(
        self: Box<Self>,
        finish: Finish,
    ) -> PluginFuture<'static, Result<Vec<ParserEvent>, PluginError>> {
        Box::pin(async move {
            let Some(parser) = self.parser else {
                return Ok(Vec::new());
            };
            match parser.close(finish).await {
                Err(error) if !error.fault.is_callers() => {
                    left_raw(&self.request, &error);
                    Ok(Vec::new())
                }
                events => events,
            }
        })
    }
}

/// Whether a plugin serves a tenant, or callers without one.
pub type TenantPredicate = Arc<dyn Fn(Option<&str>) -> bool + Send + Sync>;

/// A policy with the requests that it is asked about, and what its failure means.
pub struct ScopedPolicy {
    /// The policy.
    pub policy: Arc<dyn DecidePolicy>,
    /// See [`DecidePolicy::concerns`].
    pub scope: ScopePredicate,
    /// See [`DecidePolicy::concerns_tenant`].
    pub tenants: TenantPredicate,
    /// See [`DecidePolicy::is_by_tenant`].
    pub by_tenant: bool,
    /// See [`DecidePolicy::is_required`].
    pub required: bool,
}

impl DecidePolicy for ScopedPolicy {
    fn name(&self) -> &str {
        self.policy.name()
    }

    fn concerns_tenant(&self, tenant: Option<&str>) -> bool {
        (self.tenants)(tenant)
    }

    fn quotas<'a>(
        &'a self,
        request: &'a RequestId,
        caller: &'a QuotaCaller,
    ) -> PluginFuture<'a, Result<Vec<QuotaUse>, QuotasUntold>> {
        self.policy.quotas(request, caller)
    }

    fn concerns(&self, key: &RoutingKey<'_>) -> bool {
        (self.scope)(key)
    }

    fn is_by_tenant(&self) -> bool {
        self.by_tenant
    }

    fn is_required(&self) -> bool {
        self.required
    }

    fn identify<'a>(
        &'a self,
        request: &'a RequestId,
        facts: Facts,
    ) -> PluginFuture<'a, Result<Option<Decision>, PluginError>> {
        self.policy.identify(request, facts)
    }

    fn authorize<'a>(
        &'a self,
        request: &'a RequestId,
        facts: Facts,
    ) -> PluginFuture<'a, Result<Decision, PluginError>> {
        self.policy.authorize(request, facts)
    }

    fn account<'a>(
        &'a self,
        request: &'a RequestId,
        usage: UsageReport,
    ) -> PluginFuture<'a, Result<(), PluginError>> {
        self.policy.account(request, usage)
    }
}

/// Tools with the requests that may use them, and what their failure means.
pub struct ScopedTools {
    /// The tools.
    pub tools: Arc<dyn RunTool>,
    /// See [`RunTool::serves`].
    pub scope: ScopePredicate,
    /// See [`RunTool::is_required`].
    pub required: bool,
}

impl RunTool for ScopedTools {
    fn declarations(&self) -> Vec<ServerTool> {
        self.tools.declarations()
    }

    fn serves(&self, key: &RoutingKey<'_>) -> bool {
        (self.scope)(key)
    }

    fn is_required(&self) -> bool {
        self.required
    }

    fn call<'a>(
        &'a self,
        request: &'a RequestId,
        caller: &'a ToolCaller,
        name: &'a str,
        arguments: &'a str,
    ) -> PluginFuture<'a, Result<ToolAnswer, PluginError>> {
        self.tools.call(request, caller, name, arguments)
    }
}

/// A guardrail with the requests that it looks at, the time of its verdicts, and what its failure means.
pub struct ScopedGuardrail {
    /// The guardrail.
    pub guardrail: Arc<dyn GuardAnswer>,
    /// See [`GuardAnswer::serves`].
    pub scope: ScopePredicate,
    /// See [`GuardAnswer::is_required`].
    pub required: bool,
    /// See [`GuardAnswer::mode`].
    pub mode: GuardMode,
    /// See [`GuardAnswer::every`].
    pub every: u32,
}

impl GuardAnswer for ScopedGuardrail {
    fn name(&self) -> &str {
        self.guardrail.name()
    }

    fn traits(&self) -> GuardTraits {
        self.guardrail.traits()
    }

    fn serves(&self, key: &RoutingKey<'_>) -> bool {
        (self.scope)(key)
    }

    fn is_required(&self) -> bool {
        self.required
    }

    fn mode(&self) -> GuardMode {
        self.mode
    }

    fn every(&self) -> u32 {
        self.every
    }

    fn check_input<'a>(
        &'a self,
        request: &'a RequestId,
        told: &'a GuardContext,
        messages: &'a str,
    ) -> PluginFuture<'a, Result<GuardVerdict, PluginError>> {
        self.guardrail.check_input(request, told, messages)
    }

    fn open<'a>(
        &'a self,
        request: &'a RequestId,
        told: &'a GuardContext,
    ) -> PluginFuture<'a, Result<Option<Box<dyn WatchChoice>>, PluginError>> {
        self.guardrail.open(request, told)
    }
}
