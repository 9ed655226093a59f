//! Plugins without WebAssembly, and a service around them, for tests.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use mortise_models::{
    Adapters, GenerationConfig, Generator, Listing, Model, ModelConfig, RenderedGenerator, Script,
    ScriptCodec, Scripted, ScriptedConversation, TokenGenerator,
};
use mortise_plugin::{
    Decision, Facts, Fault, Finish, GrammarSource, Kind, MatchStatus, MatchStep, ParserEvent,
    ParserSetup, ParserTraits, PluginError, RenderedPrompt, Segment, TemplateInput, UsageReport,
};
use mortise_test_tokenizers::{END, byte_level};
use mortise_tokenizer::{Tokenizer, TokenizerFiles};
use serde_json::Value;

use crate::plugin_routing::{ModelPlugins, PluginRoutes};
use crate::plugins::{
    CompileGrammar, DecidePolicy, MatchTokens, ParseOutput, ParseSession, PluginFuture, RenderChat,
    RequestId,
};
use crate::{
    ApiCall, ChatPrompt, ContentConstraint, Conversation, Delta, Event, FinishReason, LoadedModel,
    Message, Prompt, PromptEnd, Request, RequestFields, Role, ServedModel, ServerToolCall, Service,
    ServiceConfig, ServiceError, TemplateArguments, TokenLogprob, ToolDeclaration,
    ToolDeclarations, ToolName, Usage,
};

/// The tokenizer that a `tokenizer.json` describes.
pub(crate) fn load(json: &Value) -> Tokenizer {
    let bytes = json.to_string().into_bytes();
    Tokenizer::load(TokenizerFiles {
        tokenizer: &bytes,
        ..TokenizerFiles::default()
    })
    .expect("a good tokenizer")
}

fn kind_of(function: &str) -> Kind {
    let mut kinds = Kind::ALL.into_iter();
    let kind = kinds.find(|kind| function.starts_with(kind.as_str()));
    kind.expect("a function of some kind")
}

pub(crate) fn fault(function: &'static str, fault: Fault) -> PluginError {
    PluginError {
        plugin: "fake".into(),
        version: "0.0.1".into(),
        kind: kind_of(function),
        function,
        request_id: "request-1".into(),
        fault,
        printed: Box::default(),
    }
}

/// ChatML, with what the messages say as plain text.
#[derive(Default)]
pub(crate) struct FakeTemplate {
    pub(crate) stop: Vec<String>,
    pub(crate) opens_reasoning: bool,
    pub(crate) inputs: Mutex<Vec<TemplateInput>>,
}

impl RenderChat for FakeTemplate {
    fn render<'a>(
        &'a self,
        _: &'a RequestId,
        input: TemplateInput,
    ) -> PluginFuture<'a, Result<RenderedPrompt, PluginError>> {
        Box::pin(async move {
            let messages: Vec<Value> = serde_json::from_str(&input.messages).expect("JSON");
            let mut segments = Vec::new();
            for message in messages {
                let role = message["role"].as_str().expect("checked");
                segments.push(Segment::Special(format!("<|im_start|>{role}\n")));
                let content = message["content"].as_str().unwrap_or_default();
                segments.push(Segment::Plain(content.to_owned()));
                segments.push(Segment::Special("<|im_end|>\n".to_owned()));
            }
            segments.push(Segment::Special("<|im_start|>assistant\n".to_owned()));
            self.inputs.lock().expect("lock").push(input);
            Ok(RenderedPrompt {
                segments,
                stop: self.stop.clone(),
                opens_reasoning: self.opens_reasoning,
                by: None,
            })
        })
    }
}

/// `<think>…</think>` is reasoning, `<call>name {…}</call>` is a call, `FAULT` is a fault.
pub(crate) struct FakeParser;

impl ParseOutput for FakeParser {
    fn traits(&self) -> ParserTraits {
        ParserTraits::default()
    }

    fn constraint<'a>(
        &'a self,
        _: &'a RequestId,
        _: &'a ParserSetup,
        wanted: Option<&'a GrammarSource>,
    ) -> PluginFuture<'a, Result<Option<GrammarSource>, PluginError>> {
        Box::pin(async move { Ok(wanted.cloned()) })
    }

    fn open<'a>(
        &'a self,
        _: &'a RequestId,
        setup: &'a ParserSetup,
    ) -> PluginFuture<'a, Result<Option<Box<dyn ParseSession>>, PluginError>> {
        let session = FakeSession {
            held: String::new(),
            inside: setup.opens_reasoning.then_some("</think>"),
            calls: 0,
        };
        Box::pin(async move { Ok(Some(Box::new(session) as Box<dyn ParseSession>)) })
    }
}

struct FakeSession {
    held: String,
    /// The tag that is waited for.
    inside: Option<&'static str>,
    calls: u32,
}

impl FakeSession {
    fn parse(&mut self, last: bool) -> Result<Vec<ParserEvent>, PluginError> {
        let mut events = Vec::new();
        loop {
            let tags: &[&'static str] = match self.inside {
                None => &["<think>", "<call>", "FAULT"],
                Some("</think>") => &["</think>"],
                Some(_) => &["</call>"],
            };
            let found = tags
                .iter()
                .filter_map(|tag| Some((self.held.find(tag)?, *tag)))
                .min();
            let Some((at, tag)) = found else {
                if self.inside != Some("</call>") {
                    let kept = if last {
                        0
                    } else {
                        longest_start(&self.held, tags)
                    };
                    let text: String = self.held.drain(..self.held.len() - kept).collect();
                    self.text(text, &mut events);
                }
                return Ok(events);
            };
            let text: String = self.held.drain(..at).collect();
            self.held.drain(..tag.len());
            match tag {
                "FAULT" => return Err(fault("output-parser.session.feed", Fault::Stack)),
                "</call>" => self.call(&text, &mut events),
                _ => self.text(text, &mut events),
            }
            self.inside = match tag {
                "<think>" => Some("</think>"),
                "<call>" => Some("</call>"),
                _ => None,
            };
        }
    }

    fn text(&self, text: String, events: &mut Vec<ParserEvent>) {
        events.push(match self.inside {
            Some(_) => ParserEvent::Reasoning(text),
            None => ParserEvent::Content(text),
        });
    }

    fn call(&mut self, text: &str, events: &mut Vec<ParserEvent>) {
        let (name, arguments) = text.split_once(' ').expect("a well-formed call");
        let index = self.calls;
        self.calls += 1;
        events.push(ParserEvent::CallBegin {
            index,
            id: None,
            name: name.to_owned(),
        });
        events.push(ParserEvent::CallArguments {
            index,
            delta: arguments.to_owned(),
        });
        events.push(ParserEvent::CallEnd { index });
    }
}

/// Length of the longest end of `text` that begins a tag.
fn longest_start(text: &str, tags: &[&str]) -> usize {
    let begins = |length: &usize| {
        let at = text.len() - length;
        text.is_char_boundary(at) && tags.iter().any(|tag| tag.starts_with(&text[at..]))
    };
    (0..=text.len()).rev().find(begins).unwrap_or(0)
}

impl ParseSession for FakeSession {
    fn feed<'a>(
        &'a mut self,
        text: &'a str,
        _: &'a [u32],
    ) -> PluginFuture<'a, Result<Vec<ParserEvent>, PluginError>> {
        self.held.push_str(text);
        let events = self.parse(false);
        Box::pin(async move { events })
    }

    fn close(
        mut self: Box<Self>,
        _: Finish,
    ) -> PluginFuture<'static, Result<Vec<ParserEvent>, PluginError>> {
        Box::pin(async move { self.parse(true) })
    }
}

/// `Regex(text)` allows exactly that text, and `Lark(text)` is too complex behind it; anything else is
/// refused.
pub(crate) struct FakeGrammar {
    pub(crate) tokenizer: Arc<Tokenizer>,
}

impl CompileGrammar for FakeGrammar {
    fn compile<'a>(
        &'a self,
        _: &'a RequestId,
        source: &'a GrammarSource,
    ) -> PluginFuture<'a, Result<Box<dyn MatchTokens>, PluginError>> {
        Box::pin(async move {
            let (text, breaks_off) = match source {
                GrammarSource::Regex(text) => (text, false),
                GrammarSource::Lark(text) => (text, true),
                _ => {
                    let invalid = Fault::Invalid("only literal text".to_owned());
                    return Err(fault("grammar.compile", invalid));
                }
            };
            let mut ids: VecDeque<u32> = self.tokenizer.encode_plain(text).expect("encodes").into();
            if !breaks_off {
                ids.push_back(self.tokenizer.token_id(END).expect("a token"));
            }
            Ok(Box::new(Literal { ids, breaks_off }) as Box<dyn MatchTokens>)
        })
    }
}

struct Literal {
    ids: VecDeque<u32>,
    breaks_off: bool,
}

impl Literal {
    fn write(&self, mask: &mut [u32]) -> Result<MatchStatus, PluginError> {
        let Some(&id) = self.ids.front() else {
            let complex = Fault::TooComplex("no more of it".to_owned());
            return match self.breaks_off {
                true => Err(fault("grammar.advance", complex)),
                false => Ok(MatchStatus::Finished),
            };
        };
        mask[id as usize / 32] |= 1 << (id % 32);
        Ok(match self.ids.len() == 1 && !self.breaks_off {
            true => MatchStatus::Accepting,
            false => MatchStatus::Active,
        })
    }
}

impl MatchTokens for Literal {
    fn mask<'a>(
        &'a mut self,
        mask: &'a mut Vec<u32>,
    ) -> PluginFuture<'a, Result<MatchStatus, PluginError>> {
        let status = self.write(mask);
        Box::pin(async move { status })
    }

    fn advance<'a>(
        &'a mut self,
        tokens: &'a [u32],
        mask: &'a mut Vec<u32>,
    ) -> PluginFuture<'a, Result<MatchStep, PluginError>> {
        for id in tokens {
            assert_eq!(
                self.ids.pop_front(),
                Some(*id),
                "only allowed tokens are committed"
            );
        }
        let status = self.write(mask);
        Box::pin(async move {
            Ok(MatchStep {
                status: status?,
                forced: Vec::new(),
            })
        })
    }
}

/// Says what it is told, and remembers what it was told.
pub(crate) struct FakePolicy {
    pub(crate) decision: Result<Decision, PluginError>,
    pub(crate) facts: Mutex<Vec<Facts>>,
    pub(crate) accounts: Mutex<Vec<UsageReport>>,
}

impl FakePolicy {
    pub(crate) fn new(decision: Result<Decision, PluginError>) -> Arc<Self> {
        Arc::new(Self {
            decision,
            facts: Mutex::default(),
            accounts: Mutex::default(),
        })
    }

    pub(crate) fn accounts(&self) -> Vec<UsageReport> {
        self.accounts.lock().expect("lock").clone()
    }
}

impl DecidePolicy for FakePolicy {
    fn authorize<'a>(
        &'a self,
        _: &'a RequestId,
        facts: Facts,
    ) -> PluginFuture<'a, Result<Decision, PluginError>> {
        self.facts.lock().expect("lock").push(facts);
        Box::pin(async move { self.decision.clone() })
    }

    fn account<'a>(
        &'a self,
        _: &'a RequestId,
        usage: UsageReport,
    ) -> PluginFuture<'a, Result<(), PluginError>> {
        self.accounts.lock().expect("lock").push(usage);
        Box::pin(async { Ok(()) })
    }
}

/// A served model that generates `script` token by token.
pub(crate) fn model(script: Script) -> ServedModel {
    let tokenizer = Arc::new(load(&byte_level()));
    let (encoder, decoder) = (Arc::clone(&tokenizer), Arc::clone(&tokenizer));
    let codec = ScriptCodec {
        encode: Arc::new(move |text| encoder.encode_special(text).expect("encodes")),
        decode: Arc::new(move |ids| decoder.decode(ids, true)),
    };
    let generator = TokenGenerator {
        adapters: Arc::new(Adapters::new("demo", Err("its answers come from a script"))),
        runtime: Arc::new(Scripted::new(script, codec)),
        vocabulary_size: tokenizer.vocabulary_size(),
        generation: GenerationConfig::default().with_eos_tokens(tokenizer.token_id(END)),
        template_arguments: Arc::default(),
        tokenizer: Arc::clone(&tokenizer),
    };
    let plugins = ModelPlugins {
        chat_template: PluginRoutes::one(Arc::new(FakeTemplate::default())),
        parser: PluginRoutes::one(Arc::new(FakeParser)),
        grammar: PluginRoutes::one(Arc::new(FakeGrammar { tokenizer })),
    };
    served(Generator::Tokens(generator), plugins)
}

/// A served model whose runtime takes conversations and answers with `script`.
pub(crate) fn conversation_model(script: Script) -> ServedModel {
    let runtime = Arc::new(ScriptedConversation::new(script));
    served(Generator::Conversation(runtime), ModelPlugins::default())
}

/// A served model whose prompts are rendered and whose answers are parsed here; its runtime completes text with `script`.
pub(crate) fn rendered_model(script: Script) -> ServedModel {
    let tokenizer = Arc::new(load(&byte_level()));
    let decoder = Arc::clone(&tokenizer);
    let runtime = ScriptedConversation::new(script)
        .with_decoder(Arc::new(move |ids| decoder.decode(ids, true)));
    let generator = RenderedGenerator {
        runtime: Arc::new(runtime),
        vocabulary_size: tokenizer.vocabulary_size(),
        eos_tokens: tokenizer.token_id(END).into_iter().collect(),
        template_arguments: Arc::default(),
        tokenizer: Arc::clone(&tokenizer),
    };
    let plugins = ModelPlugins {
        chat_template: PluginRoutes::one(Arc::new(FakeTemplate::default())),
        parser: PluginRoutes::one(Arc::new(FakeParser)),
        grammar: PluginRoutes::one(Arc::new(FakeGrammar { tokenizer })),
    };
    served(Generator::Rendered(generator), plugins)
}

fn served(generator: Generator, plugins: ModelPlugins) -> ServedModel {
    let config = ModelConfig {
        name: "demo".to_owned(),
        aliases: vec!["alias".to_owned()],
        ..ModelConfig::of_path(None)
    };
    ServedModel {
        listing: Arc::new(Listing::of(&config)),
        loaded: Some(LoadedModel {
            model: Arc::new(Model {
                name: "demo".to_owned(),
                architecture: String::new(),
                generator: Some(generator),
                embedder: None,
                reranker: None,
                loaded_at: std::time::Instant::now(),
            }),
            plugins,
        }),
    }
}

/// Rename a model.
pub(crate) fn rename(served: &mut ServedModel, name: &str, aliases: &[&str]) {
    let listing = Arc::make_mut(&mut served.listing);
    listing.name = name.to_owned();
    listing.aliases = aliases.iter().map(|&alias| alias.to_owned()).collect();
    Arc::make_mut(&mut loaded(served).model).name = name.to_owned();
}

/// A model that is loaded.
pub(crate) fn loaded(served: &mut ServedModel) -> &mut LoadedModel {
    served.loaded.as_mut().expect("a loaded model")
}

/// Change the token generator of a model.
pub(crate) fn change<T>(
    served: &mut ServedModel,
    change: impl FnOnce(&mut TokenGenerator) -> T,
) -> T {
    match &mut Arc::make_mut(&mut loaded(served).model).generator {
        Some(Generator::Tokens(generator)) => change(generator),
        _ => panic!("it has no token generator"),
    }
}

/// The tokenizer of a model.
pub(crate) fn tokenizer(served: &mut ServedModel) -> Arc<Tokenizer> {
    change(served, |generator| Arc::clone(&generator.tokenizer))
}

pub(crate) fn says(text: &str) -> Script {
    Script {
        default: text.to_owned(),
        ..Script::default()
    }
}

pub(crate) fn service(model: ServedModel, policies: Vec<Arc<dyn DecidePolicy>>) -> Service {
    Service::new(
        ServiceConfig::default(),
        vec![model],
        policies,
        &[],
        Vec::new(),
    )
    .expect("a good setup")
}

pub(crate) fn call() -> ApiCall {
    ApiCall {
        request_id: RequestId::new("req-1"),
        route: "/v1/chat/completions",
        method: "POST",
        peer: "127.0.0.1".to_owned(),
        headers: vec![("Authorization".to_owned(), "Bearer x".to_owned())],
        arrived: Instant::now(),
        granted: None,
        waived_priority: 0,
    }
}

pub(crate) fn chat(user: &str) -> RequestFields {
    RequestFields {
        model: "demo".to_owned(),
        prompt: Prompt::Chat(ChatPrompt {
            conversation: Conversation::new(vec![Message::text(Role::User, user)])
                .expect("a conversation"),
            arguments: TemplateArguments::default(),
            template: None,
            end: PromptEnd::AssistantTurn,
        }),
        ..RequestFields::default()
    }
}

/// A constraint as OpenAI's callers give it.
pub(crate) fn constrained(source: GrammarSource) -> Option<ContentConstraint> {
    Some(ContentConstraint::new("response_format", source))
}

/// Declarations of tools of these names.
pub(crate) fn functions(names: &[&str]) -> ToolDeclarations {
    let declaration = |name: &&str| ToolDeclaration::new(ToolName::new(*name).expect("a name"));
    ToolDeclarations::new(names.iter().map(declaration).collect()).expect("distinct names")
}

/// All of an answer, choice by choice.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    pub(crate) choices: Vec<CollectedChoice>,
    pub(crate) usage: Option<Usage>,
    pub(crate) error: Option<ServiceError>,
}

#[derive(Debug, Default, Clone)]
pub(crate) struct CollectedChoice {
    pub(crate) content: String,
    pub(crate) reasoning: String,
    /// Id, name, arguments.
    pub(crate) calls: Vec<(String, String, String)>,
    pub(crate) server_calls: Vec<ServerToolCall>,
    pub(crate) finish: Option<FinishReason>,
    /// Each piece of content with the log-probabilities that came with it.
    pub(crate) pieces: Vec<(String, Vec<TokenLogprob>)>,
}

pub(crate) async fn collect(mut answer: crate::Answer) -> Collected {
    let mut all = Collected::default();
    while let Some(event) = answer.next().await {
        assert!(
            all.usage.is_none() && all.error.is_none(),
            "nothing follows the end"
        );
        match event {
            Event::Delta {
                choice,
                delta,
                logprobs,
                ..
            } => {
                let choice = at(&mut all, choice);
                assert_eq!(choice.finish, None, "nothing follows the end of a choice");
                match delta {
                    Delta::Content(text) => {
                        choice.content.push_str(&text);
                        choice.pieces.push((text, logprobs));
                    }
                    Delta::Reasoning(text) => choice.reasoning.push_str(&text),
                    Delta::CallBegin { index, id, name } => {
                        assert_eq!(index as usize, choice.calls.len());
                        choice.calls.push((id, name, String::new()));
                    }
                    Delta::CallArguments { index, delta } => {
                        choice.calls[index as usize].2.push_str(&delta);
                    }
                }
            }
            Event::Prompt { choice, .. } => panic!("log-probabilities of the prompt of {choice}"),
            Event::ServerToolCall { choice, call } => {
                let choice = at(&mut all, choice);
                assert_eq!(call.index as usize, choice.server_calls.len());
                choice.server_calls.push(call);
            }
            Event::Finished { choice, reason, .. } => at(&mut all, choice).finish = Some(reason),
            Event::Completed { usage } => all.usage = Some(usage),
            Event::Failed(error) => all.error = Some(error),
        }
    }
    all
}

fn at(all: &mut Collected, choice: u32) -> &mut CollectedChoice {
    let needed = choice as usize + 1;
    if all.choices.len() < needed {
        all.choices.resize(needed, CollectedChoice::default());
    }
    &mut all.choices[choice as usize]
}

pub(crate) async fn ask(
    service: &Service,
    fields: RequestFields,
) -> Result<Collected, ServiceError> {
    let request = Request::check(fields)?;
    Ok(collect(service.start(call(), request).await?).await)
}
