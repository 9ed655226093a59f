//! Host side of the WebAssembly plugins: load, limit, call. The only crate that knows wasmtime.
//!
//! A [`PluginHost`] turns files into [`Component`]s. A component is bound to its surroundings as
//! one of its kinds: [`ChatTemplate`], [`OutputParser`], [`Grammar`], [`Policy`], [`ComponentTools`],
//! [`Guardrail`] or [`Retriever`]. Each binding has a pool of instances, and each instance serves one call,
//! session or matcher at a time.
//!
//! Every misbehaviour of a plugin (loop, bloat, trap, stack overflow, nonsense as an answer) ends as a [`PluginError`]
//! of the request that called the plugin. The instance is dropped and replaced. A call whose future is dropped loses
//! its instance too, since the guest stopped half way through.
//!
//! All calls are async: a guest that runs for longer than a millisecond yields to other tasks
//! until its deadline. They need a tokio runtime with time.

mod answer_rules;
mod attribution;
mod background;
mod binding;
mod breaker;
mod cache;
mod cache_trust;
mod call;
mod call_arguments;
mod chat_template;
mod compile_cost;
mod compiler;
mod component;
mod cpu_share;
mod document_reader;
mod engine;
mod error;
mod fair_turns;
mod grammar;
mod guardrail;
mod handle;
mod headers;
mod host;
mod imports;
mod instance;
mod json_schema;
mod keeper;
mod kind;
mod kinds;
mod ledger;
mod limits;
mod linker;
mod load_error;
mod log_rate;
mod mask_sink;
mod output_parser;

mod policy;
mod policy_headers;
mod pool;
mod prepared_memory;
mod profile;
mod quotas;
mod quotas_rest;
mod rate_counters;
mod retrieval;
mod retriever;
mod schema_cost;
mod secret;
mod snapshot;
mod state;
mod stats;
mod tools;
mod versions;
mod wasi;
mod wasm_file;

pub use binding::Binding;
pub use call::CallContext;
pub use call_arguments::{Arguments, Nesting, call_as_text};
pub use chat_template::ChatTemplate;
pub use component::{Component, ComponentSource, read_component};
pub use document_reader::{DocumentReader, ReadError};
pub use engine::epoch_restarts;
pub use error::{Cause, Fault, PluginError};
pub use fair_turns::{FairTurn, FairTurns, TurnBounds};
pub use grammar::{Grammar, Matcher};
pub use guardrail::{GuardSession, Guardrail};
pub use headers::HeaderGrant;
pub use host::PluginHost;
pub use json_schema::{JsonSchema, Violation};
pub use kind::Kind;
pub use kinds::*;
pub use ledger::{KeptBucket, Ledger};
pub use limits::{
    BreakerLimits, Deadlines, HostConfig, LOG_BYTES_PER_SECOND, Limits, MAX_CODE_BYTES,
    MAX_COMPONENT_BYTES, MAX_COUNTER_NAMES, MAX_FUNCTION_BYTES, MAX_FUNCTIONS, MAX_IMAGE_BYTES,
    MAX_LOG_BYTES_PER_CALL, MAX_MODULE_MEMORIES, MAX_NESTED, MAX_NESTED_INSTANCES, MAX_QUERY_BYTES,
    MAX_QUOTA_NAME_BYTES, MAX_QUOTA_TEXT_BYTES, MAX_REWRITTEN_QUERIES, MAX_TOOL_CALLS,
    MAX_TOOLS_PER_COMPONENT, MAX_WITHDRAWALS,
};
pub use load_error::LoadError;
pub use mortise_outbound::{
    AuthoritiesError as HttpAuthoritiesError, Grant as HttpGrant, HttpAuthorities, Network,
    NetworkError, Origin, OriginError, Outbound,
};
pub use output_parser::{OutputParser, ParserSession};
pub use policy::Policy;
pub use profile::{FunctionShare, Profile};
pub use quotas::{CallerQuota, QuotaCaller, QuotaUnit, QuotaUse, QuotasUntold};
pub use rate_counters::{
    CountersLost, Counting, Level, Rate, RateCounters, UNDER_WAY, Verdict, Withdrawal,
};
pub use retrieval::*;
pub use retriever::Retriever;
pub use secret::Secret;
pub use stats::{Breakdown, DURATION_BUCKETS, FunctionStats, PluginStats};
pub use tools::ComponentTools;
pub use wasm_file::{
    CASES_SECTION, MAX_SECTION_BYTES, SCHEMA_SECTION, SERVES_SECTION, Sections, VERSION_SECTION,
};
