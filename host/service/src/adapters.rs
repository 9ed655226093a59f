//! The handles of `mortise-plugin` as the service's plugins.

use std::ops::Range;

use mortise_plugin::{
    AnswerPart, Assembly, CallContext, ChatTemplate, ChunkSizes, ComponentTools, Decision, Facts,
    Finish, Grammar, GrammarSource, GuardContext, GuardSession, GuardTraits, GuardVerdict,
    Guardrail, MatchStatus, MatchStep, Matcher, OutputParser, ParserEvent, ParserSession,
    ParserSetup, ParserTraits, Passage, PassageBudget, PluginError, Policy, QuotaCaller, QuotaUse,
    QuotasUntold, RenderedPrompt, Retriever, RetrieverContext, RetrieverTraits, ServerTool,
    SourceText, TemplateInput, ToolAnswer, ToolCaller, UsageReport,
};

use crate::plugins::{
    CompileGrammar, DecidePolicy, GuardAnswer, MatchTokens, ParseOutput, ParseSession,
    PluginFuture, RenderChat, RequestId, RunTool, WatchChoice,
};
use crate::retrievers::Retrieve;

fn context(request: &RequestId) -> CallContext {
    request.context()
}

impl RenderChat for ChatTemplate {
    fn render<'a>(
        &'a self,
        request: &'a RequestId,
        input: TemplateInput,
    ) -> PluginFuture<'a, Result<RenderedPrompt, PluginError>> {
        Box::pin(async move { ChatTemplate::render(self, &context(request), input).await })
    }
}

impl ParseOutput for OutputParser {
    fn traits(&self) -> ParserTraits {
        OutputParser::traits(self)
    }

    fn constraint<'a>(
        &'a self,
        request: &'a RequestId,
        setup: &'a ParserSetup,
        wanted: Option<&'a GrammarSource>,
    ) -> PluginFuture<'a, Result<Option<GrammarSource>, PluginError>> {
        Box::pin(
            async move { OutputParser::constraint(self, &context(request), setup, wanted).await },
        )
    }

    fn open<'a>(
        &'a self,
        request: &'a RequestId,
        setup: &'a ParserSetup,
    ) -> PluginFuture<'a, Result<Option<Box<dyn ParseSession>>, PluginError>> {
        Box::pin(async move {
            let session = OutputParser::open(self, &context(request), setup).await?;
            Ok(session.map(|session| Box::new(session) as Box<dyn ParseSession>))
        })
    }
}

impl ParseSession for ParserSession {
    fn feed<'a>(
        &'a mut self,
        text: &'a str,
        tokens: &'a [u32],
    ) -> PluginFuture<'a, Result<Vec<ParserEvent>, PluginError>> {
        Box::pin(ParserSession::feed(self, text, tokens))
    }

    fn close(
        self: Box<Self>,
        finish: Finish,
    ) -> PluginFuture<'static, Result<Vec<ParserEvent>, PluginError>> {
        Box::pin(ParserSession::close(*self, finish))
    }
}

impl CompileGrammar for Grammar {
    fn compile<'a>(
        &'a self,
        request: &'a RequestId,
        source: &'a GrammarSource,
    ) -> PluginFuture<'a, Result<Box<dyn MatchTokens>, PluginError>> {
        Box::pin(async move {
            let matcher = Grammar::compile(self, &context(request), source).await?;
            Ok(Box::new(matcher) as Box<dyn MatchTokens>)
        })
    }
}

impl MatchTokens for Matcher {
    fn mask<'a>(
        &'a mut self,
        mask: &'a mut Vec<u32>,
    ) -> PluginFuture<'a, Result<MatchStatus, PluginError>> {
        Box::pin(Matcher::mask(self, mask))
    }

    fn advance<'a>(
        &'a mut self,
        tokens: &'a [u32],
        mask: &'a mut Vec<u32>,
    ) -> PluginFuture<'a, Result<MatchStep, PluginError>> {
        Box::pin(Matcher::advance(self, tokens, mask))
    }
}

impl DecidePolicy for Policy {
    fn name(&self) -> &str {
        self.component().name()
    }

    fn quotas<'a>(
        &'a self,
        request: &'a RequestId,
        caller: &'a QuotaCaller,
    ) -> PluginFuture<'a, Result<Vec<QuotaUse>, QuotasUntold>> {
        Box::pin(async move { Policy::quotas(self, &context(request), caller).await })
    }

    fn identify<'a>(
        &'a self,
        request: &'a RequestId,
        facts: Facts,
    ) -> PluginFuture<'a, Result<Option<Decision>, PluginError>> {
        Box::pin(async move { Policy::identify(self, &context(request), facts).await })
    }

    fn authorize<'a>(
        &'a self,
        request: &'a RequestId,
        facts: Facts,
    ) -> PluginFuture<'a, Result<Decision, PluginError>> {
        Box::pin(async move { Policy::authorize(self, &context(request), facts).await })
    }

    fn account<'a>(
        &'a self,
        request: &'a RequestId,
        usage: UsageReport,
    ) -> PluginFuture<'a, Result<(), PluginError>> {
        Box::pin(async move { Policy::account(self, &context(request), usage).await })
    }
}

impl RunTool for ComponentTools {
    fn declarations(&self) -> Vec<ServerTool> {
        ComponentTools::declarations(self).cloned().collect()
    }

    fn call<'a>(
        &'a self,
        request: &'a RequestId,
        caller: &'a ToolCaller,
        name: &'a str,
        arguments: &'a str,
    ) -> PluginFuture<'a, Result<ToolAnswer, PluginError>> {
        Box::pin(async move {
            ComponentTools::call(self, &context(request), caller, name, arguments).await
        })
    }
}

impl GuardAnswer for Guardrail {
    fn name(&self) -> &str {
        self.component().name()
    }

    fn traits(&self) -> GuardTraits {
        Guardrail::traits(self)
    }

    fn check_input<'a>(
        &'a self,
        request: &'a RequestId,
        told: &'a GuardContext,
        messages: &'a str,
    ) -> PluginFuture<'a, Result<GuardVerdict, PluginError>> {
        Box::pin(
            async move { Guardrail::check_input(self, &context(request), told, messages).await },
        )
    }

    fn open<'a>(
        &'a self,
        request: &'a RequestId,
        told: &'a GuardContext,
    ) -> PluginFuture<'a, Result<Option<Box<dyn WatchChoice>>, PluginError>> {
        Box::pin(async move {
            let session = Guardrail::open(self, &context(request), told).await?;
            Ok(session.map(|session| Box::new(session) as Box<dyn WatchChoice>))
        })
    }
}

impl WatchChoice for GuardSession {
    fn feed<'a>(
        &'a mut self,
        part: &'a AnswerPart,
        text: &'a str,
        held: u32,
    ) -> PluginFuture<'a, Result<GuardVerdict, PluginError>> {
        Box::pin(GuardSession::feed(self, part, text, held))
    }

    fn close(
        self: Box<Self>,
        finish: Finish,
        held: u32,
    ) -> PluginFuture<'static, Result<GuardVerdict, PluginError>> {
        Box::pin(GuardSession::close(*self, finish, held))
    }
}

impl Retrieve for Retriever {
    fn name(&self) -> &str {
        self.component().name()
    }

    fn traits(&self) -> RetrieverTraits {
        Retriever::traits(self)
    }

    fn chunk<'a>(
        &'a self,
        request: &'a RequestId,
        told: &'a RetrieverContext,
        document: SourceText,
        sizes: ChunkSizes,
    ) -> PluginFuture<'a, Result<Vec<Range<usize>>, PluginError>> {
        Box::pin(
            async move { Retriever::chunk(self, &context(request), told, document, sizes).await },
        )
    }

    fn rewrite<'a>(
        &'a self,
        request: &'a RequestId,
        told: &'a RetrieverContext,
        query: &'a str,
    ) -> PluginFuture<'a, Result<Vec<String>, PluginError>> {
        Box::pin(async move { Retriever::rewrite(self, &context(request), told, query).await })
    }

    fn assemble<'a>(
        &'a self,
        request: &'a RequestId,
        told: &'a RetrieverContext,
        query: &'a str,
        candidates: &'a [Passage],
        budget: PassageBudget,
    ) -> PluginFuture<'a, Result<Assembly, PluginError>> {
        Box::pin(async move {
            let context = context(request);
            Retriever::assemble(self, &context, told, query, candidates, budget).await
        })
    }
}
