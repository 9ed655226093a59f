//! Calls to single plugins of a model, JSON in and JSON out, without a server and without inference. The offline
//! commands and `mortise plugin` use it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, bail};
use mortise_models::ModelFiles;
use mortise_plugin::{
    Decision, Facts, GrammarSource, Kind, MatchStatus, ParserEvent, ParserSetup, Rewrite, Segment,
    SystemPlace, TemplateInput, ToolAnswer, ToolCaller, ToolChoice, ToolGrant,
};
use mortise_plugin_manager::{AuthConfig, LoadedPlugins, ModelFacts};
use mortise_service::{
    DecidePolicy, GuardAnswer, OfflineError, ParserChunking, RequestId, RequestPlugins, Retrieve,
    RoutingKey, RunTool, check_grammar, parse_text, render_template,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::grants::Moment;
use crate::guardrail;
use crate::retriever;

/// The route that plugins are asked about where an input names none.
const ROUTE: &str = "/v1/chat/completions";

/// Bound plugins of one model and a runtime to call them on.
pub struct Harness {
    runtime: tokio::runtime::Runtime,
    text: Arc<ModelFiles>,
    plugins: RequestPlugins,
    policies: Vec<Arc<dyn DecidePolicy>>,
    tools: Vec<Arc<dyn RunTool>>,
    guardrails: Vec<Arc<dyn GuardAnswer>>,
    retrievers: Vec<Arc<dyn Retrieve>>,
    request: RequestId,
    /// Date for templates where a request names none.
    today: String,
    /// Deadline of all answers.
    until: Option<Instant>,
}

impl Harness {
    /// Bind plugins to a model. Templates are told the day of `now`, where a request does not say.
    pub fn open(
        plugins: LoadedPlugins,
        auth: &AuthConfig,
        text: Arc<ModelFiles>,
        now: Option<Moment>,
    ) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .context("cannot start a runtime")?;
        let facts = ModelFacts::of(
            &text.name,
            &text.architecture,
            &text.tokenizer,
            &text.defaults.eos_tokens,
            text.vocabulary_size,
        );
        let now = now.unwrap_or(Moment::GOLDEN);
        let binding = plugins.bind(auth, std::slice::from_ref(&facts));
        let bound = runtime.block_on(binding)?;
        let key = RoutingKey {
            tenant: None,
            route: ROUTE,
            model: Some(facts.name()),
        };
        Ok(Self {
            runtime,
            text,
            plugins: bound
                .plugins_of(&facts)
                .context("no plugins were bound for the model")?
                .select(&key),
            policies: bound.policies(),
            tools: bound.tools(),
            guardrails: bound.guardrails(),
            retrievers: bound.retrievers(),
            request: RequestId::new("offline"),
            today: now.today(),
            until: None,
        })
    }

    /// Give up what is not answered by then.
    pub fn until(self, until: Option<Instant>) -> Self {
        Self { until, ..self }
    }

    fn wait<T>(&self, work: impl Future<Output = T>) -> anyhow::Result<T> {
        self.runtime.block_on(async {
            match self.until {
                None => Ok(work.await),
                Some(until) => tokio::time::timeout_at(until.into(), work)
                    .await
                    .context("the time in which it should be answered is over"),
            }
        })
    }

    /// Ask the plugin of a kind.
    pub fn ask(&self, kind: Kind, request: Value) -> anyhow::Result<Value> {
        match kind {
            Kind::ChatTemplate => self.template(request),
            Kind::OutputParser => self.parse(request),
            Kind::Grammar => self.grammar(request),
            Kind::Policy => self.policy(request),
            Kind::Tool => self.tool(request),
            Kind::Guardrail => self.wait(guardrail::ask(
                &self.guardrails,
                &self.request,
                &self.text.name,
                read(request)?,
            ))?,
            Kind::Retriever => {
                let asked = retriever::ask(&self.retrievers, &self.request, read(request)?);
                self.wait(asked)?
            }
        }
    }

    /// Render a conversation.
    pub fn template(&self, request: Value) -> anyhow::Result<Value> {
        let request: TemplateRequest = read(request)?;
        let Some(template) = &self.plugins.chat_template else {
            bail!("the model has no chat template, and no plugin brings one");
        };
        let rendered = self.wait(render_template(
            &**template,
            &self.text.tokenizer,
            &self.request,
            TemplateInput {
                messages: request.messages.to_string(),
                tools: request.tools.map(|tools| tools.to_string()),
                arguments: request
                    .arguments
                    .map(|arguments| Value::Object(arguments).to_string()),
                add_generation_prompt: request.add_generation_prompt,
                continue_final_message: request.continue_final_message,
                today: request.today.unwrap_or_else(|| self.today.clone()),
            },
        ))??;
        // Plain neighbours are tokenized as one text, so they are shown as one.
        let mut segments: Vec<Segment> = Vec::new();
        for segment in rendered.segments {
            match (segments.last_mut(), segment) {
                (Some(Segment::Plain(text)), Segment::Plain(more)) => text.push_str(&more),
                (_, segment) => segments.push(segment),
            }
        }
        let segments = segments.into_iter().map(|segment| match segment {
            Segment::Special(text) => json!({"special": text}),
            Segment::Plain(text) => json!({"plain": text}),
        });
        Ok(json!({
            "prompt": rendered.text,
            "segments": segments.collect::<Vec<_>>(),
            "tokens": rendered.ids,
            "stop": rendered.stop,
            "opens_reasoning": rendered.opens_reasoning,
        }))
    }

    /// Parse a text.
    pub fn parse(&self, request: Value) -> anyhow::Result<Value> {
        let request: ParseRequest = read(request)?;
        let chunking = match (request.chunk, request.split) {
            (None, Some(characters)) => ParserChunking::At(characters),
            (None, None) => ParserChunking::Whole,
            (Some(0), _) => ParserChunking::Tokens,
            (Some(characters), _) => ParserChunking::Every(characters),
        };
        let setup = ParserSetup {
            tools: request
                .tools
                .map_or_else(|| "[]".to_owned(), |tools| tools.to_string()),
            tool_choice: match request.tool_choice {
                ChoiceRequest::None => ToolChoice::None,
                ChoiceRequest::Auto => ToolChoice::Auto,
                ChoiceRequest::Required => ToolChoice::Required,
                ChoiceRequest::Named(name) => ToolChoice::Named(name),
            },
            parallel: request.parallel,
            opens_reasoning: request.opens_reasoning,
        };
        let parser = self.plugins.parser.as_deref();
        let events = self.wait(parse_text(
            parser.context("no plugin parses this model's answers")?,
            &self.text.tokenizer,
            &self.request,
            &setup,
            &request.text,
            chunking,
        ))??;
        Ok(parsed(&events))
    }

    /// Compile a grammar and match texts against it.
    pub fn grammar(&self, request: Value) -> anyhow::Result<Value> {
        let mut request: GrammarRequest = read(request)?;
        let source = request.source()?;
        let mut texts = std::mem::take(&mut request.texts);
        // The empty text only shows whether the grammar compiles.
        let compile_only = texts.is_empty();
        if compile_only {
            texts.push(String::new());
        }
        let mut verdicts = Vec::with_capacity(texts.len());
        let grammar = self.plugins.grammar.as_deref();
        let grammar = grammar.context("no plugin compiles grammars for this model")?;
        for text in texts {
            let verdict = self.wait(check_grammar(
                grammar,
                &self.text.tokenizer,
                self.text.vocabulary_size,
                &self.request,
                &source,
                &text,
            ))?;
            match verdict {
                Ok(verdict) => verdicts.push(json!({
                    "text": text,
                    "matches": verdict.accepted,
                    "tokens": verdict.tokens,
                    "accepted_tokens": verdict.allowed_tokens,
                    "may_end": verdict.status != MatchStatus::Active,
                })),
                // A grammar that is refused is a result; a plugin that fails is not.
                Err(OfflineError::Plugin(error)) if error.fault.is_refusal() => {
                    return Ok(json!({"valid": false, "error": error.to_string()}));
                }
                Err(error) => return Err(error.into()),
            }
        }
        if compile_only {
            verdicts.clear();
        }
        Ok(json!({"valid": true, "texts": verdicts}))
    }

    /// Ask the policies in turn, as a request would.
    pub fn policy(&self, request: Value) -> anyhow::Result<Value> {
        let request: PolicyRequest = read(request)?;
        let facts = Facts {
            request_id: self.request.to_string(),
            route: request.route,
            method: request.method,
            peer: request.peer,
            headers: request.headers.into_iter().collect(),
            model: request.model,
            streaming: request.streaming,
            max_tokens: request.max_tokens,
            tools: request.tools,
            server_tools: request.server_tools,
        };
        for policy in &self.policies {
            let asked = policy.authorize(&self.request, facts.clone());
            let decided = self.wait(asked)??;
            if decided != Decision::Abstain {
                return Ok(decision(decided));
            }
        }
        Ok(json!({"abstain": true}))
    }

    /// Call a tool, or tell which there are.
    pub fn tool(&self, request: Value) -> anyhow::Result<Value> {
        let request: ToolRequest = read(request)?;
        let Some(name) = request.name else {
            let declared = self.tools.iter().flat_map(|tools| tools.declarations());
            let declared = declared.map(|tool| {
                json!({
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.parameters,
                })
            });
            return Ok(json!({"tools": declared.collect::<Vec<_>>()}));
        };
        let has = |tools: &&Arc<dyn RunTool>| {
            let declared = tools.declarations();
            declared.iter().any(|tool| tool.name == name)
        };
        let Some(tools) = self.tools.iter().find(has) else {
            bail!("the plugin has no tool `{name}`; an input without `name` lists those it has");
        };
        let caller = ToolCaller {
            call_id: "call_offline".to_owned(),
            model: self.text.name.clone(),
            subject: request.subject,
            tenant: request.tenant,
        };
        let arguments = match request.arguments {
            Value::String(text) => text,
            value => value.to_string(),
        };
        let called = tools.call(&self.request, &caller, &name, &arguments);
        Ok(answered(self.wait(called)??))
    }
}

/// Answer of a tool. A refusal is a result: the model would be told it.
fn answered(answer: ToolAnswer) -> Value {
    match answer {
        ToolAnswer::Result(text) => json!({"result": text}),
        ToolAnswer::Refused(text) => json!({"refused": text}),
    }
}

/// The JSON of a request as `T`.
fn read<T: for<'de> Deserialize<'de>>(request: Value) -> anyhow::Result<T> {
    serde_json::from_value(request).context("the input is not what this kind reads; see --help")
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TemplateRequest {
    messages: Value,
    #[serde(default)]
    tools: Option<Value>,
    #[serde(default)]
    arguments: Option<Map<String, Value>>,
    #[serde(default = "yes")]
    add_generation_prompt: bool,
    #[serde(default)]
    continue_final_message: bool,
    /// Date of today; if absent, the fixed date of the harness, so that outputs can be compared.
    #[serde(default)]
    today: Option<String>,
}

fn yes() -> bool {
    true
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ParseRequest {
    text: String,
    /// Characters in a piece; 0 feeds the model's tokens one by one.
    #[serde(default)]
    chunk: Option<usize>,
    /// Characters in the first of two pieces.
    #[serde(default)]
    split: Option<usize>,
    #[serde(default)]
    tools: Option<Value>,
    #[serde(default)]
    tool_choice: ChoiceRequest,
    #[serde(default = "yes")]
    parallel: bool,
    #[serde(default)]
    opens_reasoning: bool,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ChoiceRequest {
    None,
    #[default]
    Auto,
    Required,
    Named(String),
}

/// Events, and what they add up to.
fn parsed(events: &[ParserEvent]) -> Value {
    let (mut content, mut reasoning) = (String::new(), String::new());
    let mut calls: Vec<(Option<String>, String, String)> = Vec::new();
    let mut listed = Vec::with_capacity(events.len());
    for event in events {
        listed.push(match event {
            ParserEvent::Content(text) => {
                content.push_str(text);
                json!({"content": text})
            }
            ParserEvent::Reasoning(text) => {
                reasoning.push_str(text);
                json!({"reasoning": text})
            }
            ParserEvent::CallBegin { index, id, name } => {
                calls.push((id.clone(), name.clone(), String::new()));
                json!({"call_begin": {"index": index, "id": id, "name": name}})
            }
            ParserEvent::CallArguments { index, delta } => {
                if let Some((_, _, arguments)) = calls.get_mut(*index as usize) {
                    arguments.push_str(delta);
                }
                json!({"call_arguments": {"index": index, "delta": delta}})
            }
            ParserEvent::CallEnd { index } => json!({"call_end": index}),
        });
    }
    let calls = calls
        .into_iter()
        .map(|(id, name, arguments)| json!({"id": id, "name": name, "arguments": arguments}));
    json!({
        "content": content,
        "reasoning": reasoning,
        "tool_calls": calls.collect::<Vec<_>>(),
        "events": listed,
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GrammarRequest {
    #[serde(default)]
    json_object: bool,
    #[serde(default)]
    json_schema: Option<Value>,
    #[serde(default)]
    regex: Option<String>,
    #[serde(default)]
    lark: Option<String>,
    #[serde(default)]
    texts: Vec<String>,
}

impl GrammarRequest {
    fn source(&mut self) -> anyhow::Result<GrammarSource> {
        let mut given: Vec<GrammarSource> = Vec::new();
        if self.json_object {
            given.push(GrammarSource::JsonObject);
        }
        let schema = self.json_schema.take().map(|schema| schema.to_string());
        given.extend(schema.map(GrammarSource::JsonSchema));
        given.extend(self.regex.take().map(GrammarSource::Regex));
        given.extend(self.lark.take().map(GrammarSource::Lark));
        match (given.pop(), given.len()) {
            (Some(source), 0) => Ok(source),
            _ => bail!("give exactly one of json_object, json_schema, regex and lark"),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyRequest {
    #[serde(default = "chat_route")]
    route: String,
    #[serde(default = "post")]
    method: String,
    #[serde(default = "loopback")]
    peer: String,
    /// Names in lower case.
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    streaming: bool,
    #[serde(default)]
    max_tokens: Option<u32>,
    /// Names.
    #[serde(default)]
    tools: Vec<String>,
    /// Names.
    #[serde(default)]
    server_tools: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolRequest {
    /// Name of the tool to call; `None` lists the tools.
    #[serde(default)]
    name: Option<String>,
    /// Arguments: an object, or text as a model wrote it.
    #[serde(default = "no_arguments")]
    arguments: Value,
    #[serde(default = "anonymous")]
    subject: String,
    #[serde(default)]
    tenant: Option<String>,
}

fn no_arguments() -> Value {
    json!({})
}

fn anonymous() -> String {
    "anonymous".to_owned()
}

fn chat_route() -> String {
    ROUTE.to_owned()
}

fn post() -> String {
    "POST".to_owned()
}

fn loopback() -> String {
    "127.0.0.1".to_owned()
}

fn decision(decision: Decision) -> Value {
    match decision {
        Decision::Abstain => json!({"abstain": true}),
        Decision::Allow(allow) => json!({"allow": {
            "subject": allow.principal.subject,
            "tenant": allow.principal.tenant,
            "labels": object(allow.principal.labels),
            "priority": allow.priority,
            "max_tokens": allow.max_tokens,
            "tools": tool_grant(allow.tools),
            "server_tools": tool_grant(allow.server_tools),
            "headers": object(allow.headers),
            "lease": allow.lease,
            "rewrites": allow.rewrites.into_iter().map(rewrite).collect::<Map<_, _>>(),
        }}),
        Decision::Deny(deny) => json!({"deny": {
            "status": deny.status,
            "type": deny.kind,
            "code": deny.code,
            "message": deny.message,
            "retry_after_ms": deny.retry_after_ms,
            "headers": object(deny.headers),
        }}),
    }
}

fn rewrite(rewrite: Rewrite) -> (String, Value) {
    let name = rewrite.name().to_owned();
    let value = match rewrite {
        Rewrite::System { text, place } => {
            let place = match place {
                SystemPlace::IfAbsent => "if_absent",
                SystemPlace::Before => "before",
                SystemPlace::Instead => "instead",
            };
            json!({"text": text, "place": place})
        }
        Rewrite::MaxTokens(limit) => json!(limit),
        Rewrite::Model(name) => json!(name),
        Rewrite::Temperature(value) => json!(value),
    };
    (name, value)
}

fn tool_grant(grant: ToolGrant) -> Value {
    match grant {
        ToolGrant::All => json!("all"),
        ToolGrant::Only(names) => json!({"only": names}),
        ToolGrant::AllBut(names) => json!({"all_but": names}),
    }
}

fn object(pairs: Vec<(String, String)>) -> Value {
    let pairs = pairs.into_iter();
    Value::Object(
        pairs
            .map(|(name, value)| (name, Value::from(value)))
            .collect(),
    )
}
