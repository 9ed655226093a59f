//! Conversions of what every version of the contract has alike, between the types of the version whose
//! module this is a part of and the host's own.

use super::bindings::chat_template::exports::mortise::plugin::chat_template as template;
use super::bindings::grammar::exports::mortise::plugin::grammar;
use super::bindings::imports::mortise::plugin::types;
use super::bindings::output_parser::exports::mortise::plugin::output_parser as parser;
use super::bindings::policy::exports::mortise::plugin::policy;
use super::bindings::tool::exports::mortise::plugin::tool;
use crate::tools::Declared;
use crate::{
    Denial, Fault, Finish, GrammarSource, MatchStatus, MatchStep, ParserEvent, ParserSetup,
    ParserTraits, Principal, RenderedPrompt, Segment, TemplateInput, ToolAnswer, ToolCaller,
    ToolChoice,
};

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
    }
}

pub(crate) fn parser_traits(traits: parser::Traits) -> ParserTraits {
    ParserTraits {
        keep_special_tokens: traits.keep_special_tokens,
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

pub(crate) fn principal(principal: policy::Principal) -> Principal {
    Principal {
        subject: principal.subject,
        tenant: principal.tenant,
        labels: principal.labels,
    }
}

pub(crate) fn denial(deny: policy::Deny) -> Denial {
    Denial {
        status: deny.status,
        kind: deny.kind,
        code: deny.code,
        message: deny.message,
        retry_after_ms: deny.retry_after_ms,
        headers: deny.headers,
    }
}

pub(crate) fn declared(declaration: tool::Declaration) -> Declared {
    Declared {
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
