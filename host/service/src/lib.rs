//! The life of a request: authorize, render, encode, constrain, submit; then detokenize, stop,
//! parse. No HTTP, no tensors, no wasmtime.

mod adapted;
mod adapters;
mod admission;
mod alias_routing;
mod answer;
mod beginning;
mod call_id;
mod check;
mod choice;
mod config;
mod constraint;
mod content;
mod conversation_choice;
mod conversation_prompt;
mod default_template;
mod description;
mod embedding;
mod encoding;
mod error;
mod event;
mod failure;
#[cfg(test)]
mod fakes;
mod gbnf;
mod guard;
mod held_calls;
mod identity;
mod inspect;
mod latency;
pub mod limits;
mod meant;
mod model;
mod named_templates;
mod observer;
mod offline;
mod own_tools;
mod part;
mod permitted;
mod plugin_routing;
mod plugins;
mod prepare;
mod prompt_scores;
mod quotas;
mod ranking;
mod reasoning_budget;
mod recognition;
mod refusal;
mod remote_embedding;
mod rendered_prompt;
mod reported_usage;
mod request;
mod response_cache;
mod retrievers;
mod rewrites;
mod routed;
mod routing_key;
mod sampling_advice;
mod schema_formats;
mod scoring;
mod server_tools;
mod service;
mod source;
mod spans;
mod spending;
mod stop;
mod structural_tag;
mod submit;
mod tally;
mod throughput;
mod token_spans;
mod told_length;
mod tool_loop;
mod uncompiled;
mod under_way;
mod wanted;

pub use admission::{Admission, ApiCall, Granted, account as account_of};
pub use answer::Answer;
pub use check::Request;
pub use config::ServiceConfig;
pub use content::{ContentLog, LOOK_AHEAD, RequestTexts, Section, TextGroup};
pub use description::{assumed_format, describe_model, vocabulary};
pub use embedding::{EmbeddingRequest, Embeddings};
pub use error::ServiceError;
pub use event::{Event, PromptScores, PromptToken, ServerToolCall, ToolOutcome};
pub use failure::{
    Fallback, RawOnFailure, ScopedGuardrail, ScopedPolicy, ScopedTools, TenantPredicate,
};
pub use identity::Identity;
pub use inspect::{DecodedText, EncodedPrompt, ParseRequest, ParsedText, TemplateUse};
pub use meant::adapted_name;
pub use model::{AlwaysLoaded, HoldModels, LoadedModel, ModelHold, ServedModel};
pub use mortise_engine::{EarlyStopping, EngineLoad};
pub use mortise_models::conversation::{
    Audio, BadToolName, ContentPart, Conversation, ConversationError, Detail, Image, ImageSource,
    JsonObject, KeyOrder, Message, Modality, PartOrigin, Role, TemplateArgumentError,
    TemplateArguments, TooDeep, ToolCall, ToolDeclaration, ToolDeclarations, ToolName, ToolsError,
    template_json,
};
pub use mortise_models::lifecycle::{
    AdapterRefusal, LifecycleError, LoadOverrides, ModelEvent, ModelState, ModelStatus, Override,
};
pub use mortise_models::{
    ADAPTER_SEPARATOR, AdapterConfig, AdapterError, AdapterStatus, Capability, Delta,
    EmbeddingBackend, EmbeddingInput, FinishReason, Generator, Model, PromptUse, TokenLogprob,
    Usage,
};
pub use mortise_plugin::{
    Assembly, ChunkSizes, Denial, DocumentReader, FairTurn, FairTurns, Fault, GrammarSource, Joint,
    Kind, Passage, PassageBudget, PluginError, Principal, ReadError, RetrieverContext, ServerTool,
    SourceText, ToolAnswer, ToolCaller, ToolChoice, ToolGrant, TurnBounds,
};
pub use named_templates::TemplateChoice;
pub use observer::{GuardedPart, ModelObserver, NoObserver, Observer, Outcome, Summary, ToolRun};
pub use offline::{
    GrammarVerdict, OfflineError, ParserChunking, RenderedText, check_grammar, parse_text,
    render_template,
};
pub use own_tools::OwnTools;
pub use plugin_routing::{ModelPlugins, PluginRoutes, RequestPlugins, ScopePredicate};
pub use plugins::{
    CompileGrammar, DecidePolicy, GuardAnswer, GuardMode, MatchTokens, NamedTemplates, ParseOutput,
    ParseSession, PluginFuture, RenderChat, RequestId, RunTool, WatchChoice,
};
pub use quotas::PolicyQuotas;
pub use recognition::{IDENTITY_HEADER, RecogniseCaller};
pub use refusal::INVALID_SCHEMA;
pub use request::{
    BeamFields, ChatPrompt, ChosenTemplate, ContentConstraint, Prompt, PromptEnd, PromptScoring,
    ReasoningBudget, RequestFields, Truncation, Written,
};
pub use response_cache::{CacheConfig, CacheFigures, CacheRule, CacheUse, Semantic};
pub use retrievers::{Retrieve, Retrievers, ScopedRetriever};
pub use routing_key::RoutingKey;
pub use sampling_advice::sampling_advice;
pub use scoring::{ScoreRequest, Scores};
pub use server_tools::{ServerToolsError, ToolLimits};
pub use service::{Service, SetupError};
pub use spending::{Purchase, Reserved, Spend};
pub use stop::StopMatcher;
pub use structural_tag::TagError;
pub use under_way::RequestUnderWay;
