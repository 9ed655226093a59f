//! Between the types of the bindings and the host's own.

use std::time::{Duration, Instant};

use mortise_outbound::{Request, RequestError, Response};

use super::bindings::chat_template::exports::mortise::plugin::chat_template as template;
use super::bindings::grammar::exports::mortise::plugin::grammar;
use super::bindings::imports::mortise::plugin::{outbound_http, types};
use super::bindings::output_parser::exports::mortise::plugin::output_parser as parser;
use super::bindings::policy::exports::mortise::plugin::policy;
use super::bindings::tool::exports::mortise::plugin::tool;
use crate::{
    Allowance, Decision, Denial, Facts, Fault, Finish, GrammarSource, MatchStatus, ParserEvent,
    ParserSetup, ParserTraits, Principal, RenderedPrompt, Segment, TemplateInput, ToolAnswer,
    ToolCaller, ToolChoice, UsageReport,
};

impl From<types::Fault> for Fault {
    fn from(fault: types::Fault) -> Self {
        match fault {
            types::Fault::Invalid(text) => Fault::Invalid(text),
            types::Fault::Unsupported(text) => Fault::Unsupported(text),
            types::Fault::Internal(text) => Fault::Internal(text),
        }
    }
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

pub(crate) fn parser_event(event: parser::Event) -> ParserEvent {
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

pub(crate) fn facts(facts: Facts) -> policy::Facts {
    policy::Facts {
        request_id: facts.request_id,
        route: facts.route,
        method: facts.method,
        peer: facts.peer,
        headers: facts.headers,
        model: facts.model,
        streaming: facts.streaming,
        max_tokens: facts.max_tokens,
    }
}

pub(crate) fn usage(usage: UsageReport) -> policy::Usage {
    policy::Usage {
        request_id: usage.request_id,
        lease: usage.lease,
        subject: usage.subject,
        model: usage.model,
        prompt_tokens: usage.prompt_tokens,
        cached_tokens: usage.cached_tokens,
        completion_tokens: usage.completion_tokens,
        finish: finish(usage.finish),
        wall_ms: usage.wall_ms,
    }
}

pub(crate) fn decision(decision: policy::Decision) -> Decision {
    match decision {
        policy::Decision::Abstain => Decision::Abstain,
        policy::Decision::Allow(allow) => Decision::Allow(Allowance {
            principal: Principal {
                subject: allow.principal.subject,
                tenant: allow.principal.tenant,
                labels: allow.principal.labels,
            },
            priority: allow.priority,
            max_tokens: allow.max_tokens,
            headers: allow.headers,
            lease: allow.lease,
        }),
        policy::Decision::Deny(deny) => Decision::Deny(Denial {
            status: deny.status,
            kind: deny.kind,
            code: deny.code,
            message: deny.message,
            retry_after_ms: deny.retry_after_ms,
            headers: deny.headers,
        }),
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

/// A request that must be over when its call is.
pub(crate) fn http_request(request: outbound_http::Request, latest_end: Instant) -> Request {
    let left = latest_end.saturating_duration_since(Instant::now());
    let wanted = request.timeout_ms.map(u64::from).map(Duration::from_millis);
    Request {
        method: request.method,
        url: request.url,
        headers: request.headers,
        body: request.body,
        timeout: Some(wanted.map_or(left, |wanted| wanted.min(left))),
    }
}

pub(crate) fn http_response(response: Response) -> outbound_http::Response {
    outbound_http::Response {
        status: response.status,
        headers: response.headers,
        body: response.body,
    }
}

pub(crate) fn http_error(error: RequestError) -> outbound_http::Error {
    match error {
        RequestError::Invalid(text) => outbound_http::Error::Invalid(text),
        RequestError::Denied(text) => outbound_http::Error::Denied(text),
        RequestError::Unreachable(text) => outbound_http::Error::Unreachable(text),
        RequestError::Timeout => outbound_http::Error::Timeout,
        RequestError::TooLarge { .. } => outbound_http::Error::TooLarge,
    }
}
