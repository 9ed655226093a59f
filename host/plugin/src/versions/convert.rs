//! Conversions of what has not changed, between the types of the contract and the host's own.

use std::ops::Range;
use std::sync::Arc;

use super::bindings::v0_3::mortise::plugin::{
    chat_template as template, grammar, guardrail, output_parser as parser, reasoning, retriever,
    tool, types,
};
use crate::{
    AnswerPart, Assembly, ChunkSizes, Fault, Finish, GrammarSource, GuardContext, GuardTraits,
    GuardVerdict, Joint, MatchStatus, MatchStep, ParserEvent, ParserSetup, ParserTraits, Passage,
    PassageBudget, ReasoningMarks, Refusal, RenderedPrompt, RetrieverContext, RetrieverTraits,
    Segment, SourceText, TemplateInput, ToolAnswer, ToolCaller, ToolChoice,
};

/// A tool as its plugin declares it, before that is checked.
pub(crate) struct DeclaredTool {
    pub(crate) name: String,
    pub(crate) description: String,
    /// JSON text.
    pub(crate) parameters: String,
}

pub(crate) fn finish(finish: Finish) -> types::Finish {
    match finish {
        Finish::Stop => types::Finish::Stop,
        Finish::Length => types::Finish::Length,
        Finish::Cancelled => types::Finish::Cancelled,
        Finish::Error => types::Finish::Error,
    }
}

pub(crate) fn grammar_to_guest(source: &GrammarSource) -> types::GrammarSource {
    match source {
        GrammarSource::JsonObject => types::GrammarSource::JsonObject,
        GrammarSource::JsonSchema(text) => types::GrammarSource::JsonSchema(text.clone()),
        GrammarSource::Regex(text) => types::GrammarSource::Regex(text.clone()),
        GrammarSource::Lark(text) => types::GrammarSource::Lark(text.clone()),
    }
}

pub(crate) fn grammar_from_guest(source: types::GrammarSource) -> GrammarSource {
    match source {
        types::GrammarSource::JsonObject => GrammarSource::JsonObject,
        types::GrammarSource::JsonSchema(text) => GrammarSource::JsonSchema(text),
        types::GrammarSource::Regex(text) => GrammarSource::Regex(text),
        types::GrammarSource::Lark(text) => GrammarSource::Lark(text),
    }
}

pub(crate) fn template_input(input: TemplateInput) -> template::Input {
    template::Input {
        messages: input.messages,
        tools: input.tools,
        arguments: input.arguments,
        add_generation_prompt: input.add_generation_prompt,
        continue_final_message: input.continue_final_message,
        today: input.today,
    }
}

pub(crate) fn rendered(output: template::Output) -> RenderedPrompt {
    let segments = output.segments.into_iter();
    let segments = segments.map(|segment| match segment {
        template::Segment::Special(text) => Segment::Special(text),
        template::Segment::Plain(text) => Segment::Plain(text),
    });
    RenderedPrompt {
        segments: segments.collect(),
        stop: output.stop,
        opens_reasoning: output.opens_reasoning,
        by: None,
    }
}

pub(crate) fn parser_traits(
    traits: parser::Traits,
    marks: Option<reasoning::Marks>,
) -> ParserTraits {
    let marks = marks.map(|reasoning::Marks { open, close }| ReasoningMarks { open, close });
    ParserTraits {
        keep_special_tokens: traits.keep_special_tokens,
        reasoning: marks.map(Arc::new),
    }
}

pub(crate) fn parser_setup(setup: &ParserSetup) -> parser::Setup {
    parser::Setup {
        tools: setup.tools.clone(),
        tool_choice: match &setup.tool_choice {
            ToolChoice::None => parser::ToolChoice::None,
            ToolChoice::Auto => parser::ToolChoice::Auto,
            ToolChoice::Required => parser::ToolChoice::Required,
            ToolChoice::Named(name) => parser::ToolChoice::Named(name.clone()),
        },
        parallel: setup.parallel,
        opens_reasoning: setup.opens_reasoning,
    }
}

pub(crate) fn parser_events(events: Vec<parser::Event>) -> Vec<ParserEvent> {
    events.into_iter().map(parser_event).collect()
}

fn parser_event(event: parser::Event) -> ParserEvent {
    match event {
        parser::Event::Content(text) => ParserEvent::Content(text),
        parser::Event::Reasoning(text) => ParserEvent::Reasoning(text),
        parser::Event::CallBegin(begin) => ParserEvent::CallBegin {
            index: begin.index,
            id: begin.id,
            name: begin.name,
        },
        parser::Event::CallArguments(arguments) => ParserEvent::CallArguments {
            index: arguments.index,
            delta: arguments.delta,
        },
        parser::Event::CallEnd(index) => ParserEvent::CallEnd { index },
    }
}

pub(crate) fn match_status(status: grammar::Status) -> MatchStatus {
    match status {
        grammar::Status::Active => MatchStatus::Active,
        grammar::Status::Accepting => MatchStatus::Accepting,
        grammar::Status::Finished => MatchStatus::Finished,
    }
}

pub(crate) fn match_step(step: grammar::Step) -> MatchStep {
    MatchStep {
        status: match_status(step.status),
        forced: step.forced,
    }
}

pub(crate) fn declared(declaration: tool::Declaration) -> DeclaredTool {
    DeclaredTool {
        name: declaration.name,
        description: declaration.description,
        parameters: declaration.parameters,
    }
}

pub(crate) fn tool_context(request_id: &str, caller: &ToolCaller) -> tool::Context {
    tool::Context {
        request_id: request_id.to_owned(),
        call_id: caller.call_id.clone(),
        model: caller.model.clone(),
        subject: caller.subject.clone(),
        tenant: caller.tenant.clone(),
    }
}

/// A refusal is an answer: only the plugin's own defects are faults.
pub(crate) fn tool_answer(said: Result<String, tool::Failure>) -> Result<ToolAnswer, Fault> {
    match said {
        Ok(text) => Ok(ToolAnswer::Result(text)),
        Err(tool::Failure::Refused(text)) => Ok(ToolAnswer::Refused(text)),
        Err(tool::Failure::Internal(text)) => Err(Fault::Internal(text)),
    }
}

pub(crate) fn guard_traits(traits: guardrail::Traits) -> GuardTraits {
    GuardTraits {
        input: traits.input,
        content: traits.content,
        reasoning: traits.reasoning,
        call_arguments: traits.call_arguments,
    }
}

pub(crate) fn guard_context(request_id: &str, context: &GuardContext) -> guardrail::Context {
    guardrail::Context {
        request_id: request_id.to_owned(),
        model: context.model.clone(),
        subject: context.subject.clone(),
        tenant: context.tenant.clone(),
        holds: context.holds,
    }
}

pub(crate) fn answer_part(part: &AnswerPart) -> guardrail::Part {
    match part {
        AnswerPart::Content => guardrail::Part::Content,
        AnswerPart::Reasoning => guardrail::Part::Reasoning,
        AnswerPart::CallArguments { index, name } => {
            guardrail::Part::CallArguments(guardrail::Call {
                index: *index,
                name: name.clone(),
            })
        }
    }
}

pub(crate) fn guard_verdict(verdict: guardrail::Verdict) -> GuardVerdict {
    match verdict {
        guardrail::Verdict::Pass => GuardVerdict::Pass,
        guardrail::Verdict::Undecided => GuardVerdict::Undecided,
        guardrail::Verdict::Replace(text) => GuardVerdict::Replace(text),
        guardrail::Verdict::Refuse(refusal) => GuardVerdict::Refuse(Refusal {
            code: refusal.code,
            message: refusal.message,
        }),
    }
}

pub(crate) fn retriever_traits(traits: retriever::Traits) -> RetrieverTraits {
    RetrieverTraits {
        chunk: traits.chunk,
        rewrite: traits.rewrite,
        assemble: traits.assemble,
    }
}

pub(crate) fn retriever_context(
    request_id: &str,
    context: &RetrieverContext,
) -> retriever::Context {
    retriever::Context {
        request_id: request_id.to_owned(),
        collection: context.collection.clone(),
        subject: context.subject.clone(),
        tenant: context.tenant.clone(),
    }
}

pub(crate) fn source_text(document: SourceText) -> retriever::Document {
    retriever::Document {
        name: document.name,
        media_type: document.media_type,
        text: document.text,
    }
}

pub(crate) fn chunk_sizes(sizes: ChunkSizes) -> retriever::Sizes {
    retriever::Sizes {
        max_tokens: sizes.max_tokens,
        overlap_tokens: sizes.overlap_tokens,
        about_bytes: sizes.about_bytes,
        max_chunks: sizes.max_chunks,
    }
}

pub(crate) fn spans(spans: Vec<retriever::Span>) -> Vec<Range<usize>> {
    let spans = spans.into_iter();
    spans
        .map(|span| span.start as usize..span.end as usize)
        .collect()
}

pub(crate) fn candidates(passages: &[Passage]) -> Vec<retriever::Candidate> {
    let candidates = passages.iter().map(|passage| retriever::Candidate {
        document: passage.document.clone(),
        start: passage.place.start,
        end: passage.place.end,
        text: passage.text.clone(),
        score: passage.score,
        similarity: passage.similarity,
        tokens: passage.tokens,
    });
    candidates.collect()
}

pub(crate) fn passage_budget(budget: PassageBudget) -> retriever::Budget {
    retriever::Budget {
        passages: budget.passages,
        tokens: budget.tokens,
    }
}

pub(crate) fn assembly(assembly: retriever::Assembly) -> Assembly {
    Assembly {
        chosen: assembly.chosen,
        joint: match assembly.joint {
            retriever::Joint::BlankLine => Joint::BlankLine,
            retriever::Joint::Rule => Joint::Rule,
        },
    }
}
