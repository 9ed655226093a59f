//! One call into a guest: its deadline, its counters, and the classification of its failures.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mortise_aot::BACKTRACE_FRAMES;
use wasmtime::{PoolConcurrencyLimitError, Store, Trap, UpdateDeadline, WasmBacktrace};

use crate::breaker::BreakerChange;
use crate::cpu_share::{CpuShare, LONG_CALL_EPOCHS};
use crate::state::{CallState, Grants, StoreData, escape};
use crate::stats::PluginCounters;
use crate::{Fault, Kind, PluginError};

/// Request that a call is made for; it tags the lines that the plugin logs.
#[derive(Debug, Clone)]
pub struct CallContext {
    /// The server's id of the request.
    pub request_id: Arc<str>,
    /// Owner whose share of instances the calls take; empty where nobody in particular asks.
    pub owner: Arc<str>,
    /// The span of the request, below which each call has a span `plugin.call` (at level debug).
    pub span: tracing::Span,
}

impl CallContext {
    /// A context for this request, which the current span belongs to.
    pub fn new(request_id: impl Into<Arc<str>>) -> Self {
        Self {
            request_id: request_id.into(),
            owner: Arc::from(""),
            span: tracing::Span::current(),
        }
    }

    /// The context for requests of this owner.
    #[must_use]
    pub fn of_owner(self, owner: Arc<str>) -> Self {
        Self { owner, ..self }
    }

    pub(crate) fn request_id(&self) -> Arc<str> {
        Arc::clone(&self.request_id)
    }
}

/// Result of a guest's function: the outer error is a trap, the inner one a fault that the guest returned.
pub(crate) type GuestResult<T> = wasmtime::Result<Result<T, Fault>>;

/// Misuse of a host function by the guest: the call ends with an invalid result.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Misuse(pub(crate) String);

/// A text in wasmtime's error for spent host call fuel, whose type is private. A test fails if it
/// changes.
const FUEL_EXHAUSTED: &str = "fuel allocated for hostcalls has been exhausted";

/// Longest text of a guest's fault that is passed on.
const MAX_FAULT_TEXT_BYTES: usize = 1024;

/// Advice where a trap has no text, of which the plugin is the reason.
const MUTE: &str = "the plugin is built without standard error, so it cannot say why: see docs/plugins/languages.md";

/// A call in progress. Dropping it unfinished counts as cancelled.
pub(crate) struct PluginCall {
    pub(crate) function: &'static str,
    deadline_ms: u64,
    started: Instant,
    counters: Option<Arc<PluginCounters>>,
}

impl Drop for PluginCall {
    fn drop(&mut self) {
        if let Some(counters) = self.counters.take() {
            counters.cancelled(self.function);
        }
    }
}

impl PluginCall {
    /// Leave the call out of the counters.
    pub(crate) fn uncounted(mut self) {
        self.counters = None;
    }
}

/// Wall-clock time that a call may take, as a multiple of its deadline.
const PATIENCE: u32 = 10;

/// Let a guest that runs longer than an epoch yield to other tasks, and stop it at its deadline.
///
/// A deadline counts the epochs in which the guest ran, not those in which it waited for a
/// processor: a busy machine ends no honest call. Wall-clock time bounds the wait.
///
/// A long call sleeps between its epochs as [`CpuShare`] says; sleep does not count towards the deadline.
pub(crate) fn interrupt_by_epochs(store: &mut Store<StoreData>, cpu_share: Arc<CpuShare>) {
    store.epoch_deadline_callback(move |mut context| {
        if let Some(profile) = context.data().grants.profile.clone() {
            let call = context.data().call.function;
            profile.sample(call, &WasmBacktrace::force_capture(&context));
        }
        let now = Instant::now();
        let faults = context.data().grants.fault_history.recent(now);
        let call = &mut context.data_mut().call;
        call.epochs += 1;
        if call.epochs >= call.epochs_max || now >= call.latest_end {
            call.expired = true;
            return Ok(UpdateDeadline::Interrupt);
        }
        let ran = now.saturating_duration_since(call.resumes_at);
        let rest = (call.epochs > LONG_CALL_EPOCHS || faults > 0)
            .then(|| cpu_share.rest_until(now, ran, call.epochs, faults))
            .flatten();
        call.resumes_at = rest.unwrap_or(now);
        let pause: Pin<Box<dyn Future<Output = ()> + Send>> = match rest {
            Some(until) => Box::pin(tokio::time::sleep_until(until.into())),
            None => Box::pin(tokio::task::yield_now()),
        };
        Ok(UpdateDeadline::YieldCustom(1, pause))
    });
}

/// Start the clock of a call.
pub(crate) fn begin(
    store: &mut Store<StoreData>,
    function: &'static str,
    request_id: Arc<str>,
    deadline_ms: u64,
) -> PluginCall {
    let state = store.data_mut();
    let deadline = Duration::from_millis(deadline_ms);
    state.call = CallState::new(function, request_id, deadline, deadline * PATIENCE);
    state.mask.slot = None;
    state.mask.written = false;
    let counters = Arc::clone(&state.grants.counters);
    let started = state.call.resumes_at;
    store.set_epoch_deadline(1);
    PluginCall {
        function,
        deadline_ms,
        started,
        counters: Some(counters),
    }
}

/// Outcome of a call.
pub(crate) enum CallOutcome<T> {
    /// The guest gave an answer that passed its check.
    Answered(T),
    /// The guest refused in an orderly way; the instance is fit for further calls.
    Refused(PluginError),
    /// The instance must not be used again.
    Broken(PluginError),
}

/// Functions whose work the caller's input or a model's text determines. Excess in them is attributed by a control call.
const CONTROLLED: [&str; 15] = [
    "chat-template.render",
    "guardrail.check-input",
    "guardrail.close",
    "guardrail.feed",
    "output-parser.constraint",
    "output-parser.open",
    "output-parser.feed",
    "output-parser.close",
    "policy.authorize",
    "policy.identify",
    "resource-drop",
    "retriever.chunk",
    "retriever.rewrite",
    "retriever.assemble",
    "tool.call",
];

/// Whether a fault in `function` is attributed by a control call (`attribution.rs`), and not when the call
/// ends.
pub(crate) fn is_deferred(kind: Kind, function: &str, fault: &Fault) -> bool {
    match kind {
        // A grammar is a program of the caller's: whatever breaks down on one may be its fault.
        Kind::Grammar if function.starts_with("grammar.") => fault.is_breakdown(),
        _ => CONTROLLED.contains(&function) && fault.is_excess(),
    }
}

/// Stop the clock, classify the outcome, check the answer, and count. A fault that
/// a control call settles is neither counted nor logged here.
pub(crate) fn finish<T, U>(
    store: &mut Store<StoreData>,
    call: PluginCall,
    outcome: wasmtime::Result<Result<T, Fault>>,
    check: impl FnOnce(T, &mut StoreData) -> Result<U, Fault>,
) -> CallOutcome<U> {
    let state = store.data_mut();
    let failure = match outcome {
        Ok(Ok(value)) => match check(value, state) {
            Ok(checked) => {
                stop(state, call, None);
                return CallOutcome::Answered(checked);
            }
            Err(fault) => Failure::Unsound(fault),
        },
        Ok(Err(fault)) => Failure::Returned(fault),
        Err(error) => Failure::Stopped(error),
    };
    let (error, broken) = failed(state, call, failure);
    match broken {
        true => CallOutcome::Broken(error),
        false => CallOutcome::Refused(error),
    }
}

/// Failure of a call.
enum Failure {
    /// The answer did not pass its check.
    Unsound(Fault),
    /// The guest returned a fault.
    Returned(Fault),
    /// The guest was stopped.
    Stopped(wasmtime::Error),
}

/// Stop the clock of a call, and count it with its fault, if it had one.
fn stop(state: &StoreData, mut call: PluginCall, fault: Option<&Fault>) {
    report_dropped_lines(state, call.function);
    if let Some(counters) = call.counters.take() {
        let memory = u64::try_from(state.memory.used).unwrap_or(u64::MAX);
        counters.memory_peak.fetch_max(memory, Ordering::Relaxed);
        counters.ended(call.function, call.started.elapsed(), fault);
    }
}

/// The error of a call that failed, counted and told, and whether its instance must not be used again. One function
/// for the calls of all types.
fn failed(state: &mut StoreData, call: PluginCall, failure: Failure) -> (PluginError, bool) {
    let function = call.function;
    let (fault, broken) = match failure {
        Failure::Unsound(fault) => {
            let broken = fault.is_breakdown();
            (fault, broken)
        }
        Failure::Returned(fault) => (shorten(told(fault, &mut state.call)), false),
        Failure::Stopped(error) => (classify(&error, state, call.deadline_ms), true),
    };
    let counted = !is_deferred(state.grants.kind, function, &fault);
    stop(state, call, Some(&fault).filter(|_| counted));
    let request_id = Arc::clone(&state.call.request_id);
    let error = PluginError {
        printed: state.call.printed.as_str().trim_end().into(),
        ..plugin_error(&state.grants, function, request_id, fault)
    };
    if counted {
        let message = match broken {
            true => "a plugin failed, its instance is replaced",
            false => "a plugin says that it failed",
        };
        report(&state.grants, &error, message);
    }
    if broken && error.fault.is_breakdown() {
        let now = Instant::now();
        state.grants.lost_instances.note(now);
        if counted {
            state.grants.fault_history.note(now);
        }
    }
    (error, broken)
}

/// Warn of log lines that the call wrote beyond its budget, at most once a second.
fn report_dropped_lines(state: &StoreData, function: &'static str) {
    let dropped = state.call.log_lines_dropped;
    if let Some(lines) = state.grants.log_rate.to_report(dropped) {
        tracing::warn!(target: "mortise::plugin", plugin = state.grants.component.name(),
            function, request = &*state.call.request_id, lines,
            "log lines beyond the limits of a call and of a plugin dropped");
    }
}

/// A fault with the names of the plugin.
pub(crate) fn plugin_error(
    grants: &Grants,
    function: &'static str,
    request_id: Arc<str>,
    fault: Fault,
) -> PluginError {
    PluginError {
        plugin: grants.component.name().into(),
        version: grants.component.version().into(),
        kind: grants.kind,
        function,
        request_id,
        fault,
        printed: Box::default(),
    }
}

/// A fault of a guest's own making in one line; further lines, such as a traceback, go with what it printed.
fn told(fault: Fault, call: &mut CallState) -> Fault {
    let Fault::Internal(text) = &fault else {
        return fault;
    };
    let Some((first, rest)) = text.split_once('\n') else {
        return fault;
    };
    call.printed.push_line(rest);
    Fault::Internal(first.to_owned())
}

/// Tell the operator all that is known of a breakdown; the caller of the API learns its kind only.
pub(crate) fn report(grants: &Grants, error: &PluginError, message: &'static str) {
    if !error.fault.is_breakdown() {
        return;
    }
    grants.counters.note_breakdown(error);
    // A plugin that breaks down on every request fills no log: the breakdown itself is told each time.
    let printed = escape(&error.printed);
    let printed = (!printed.is_empty() && grants.log_rate.admits(printed.len()))
        .then(|| tracing::field::display(printed));
    tracing::warn!(target: "mortise::plugin", plugin = &*error.plugin, version = &*error.version,
        kind = grants.kind.as_str(), function = error.function, request = &*error.request_id,
        fault = %escape(&error.fault.to_string()), printed, "{message}");
}

/// Tell the operator that a plugin is suspended, or called again.
pub(crate) fn tell_turn(grants: &Grants, turn: BreakerChange) {
    let (name, version) = (grants.component.name(), grants.component.version());
    let kind = grants.kind.as_str();
    match turn {
        BreakerChange::Suspended(pause) => {
            tracing::warn!(target: "mortise::plugin", plugin = name,
                version, kind, pause_ms = pause.as_millis(),
                "a plugin failed too often and is not called for a while");
        }
        BreakerChange::Resumed => tracing::info!(target: "mortise::plugin", plugin = name,
            version, kind, "a plugin is called again"),
    }
}

fn shorten(fault: Fault) -> Fault {
    match fault {
        Fault::Invalid(text) => Fault::Invalid(cut(text)),
        Fault::TooComplex(text) => Fault::TooComplex(cut(text)),
        Fault::Unsupported(text) => Fault::Unsupported(cut(text)),
        Fault::Internal(text) => Fault::Internal(cut(text)),
        Fault::ModelOutput(text) => Fault::ModelOutput(cut(text)),
        other => other,
    }
}

fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MAX_FAULT_TEXT_BYTES));
    text
}

/// Fault that a trap stands for. Order matters: our own marks first, then types, then guesses.
fn classify(error: &wasmtime::Error, state: &StoreData, deadline_ms: u64) -> Fault {
    if state.call.expired {
        return Fault::Deadline { deadline_ms };
    }
    if state.memory.denied {
        return Fault::Memory {
            limit_bytes: state.grants.limits.memory_bytes,
        };
    }
    if let Some(misuse) = error.downcast_ref::<Misuse>() {
        return Fault::InvalidResult(cut(misuse.0.clone()));
    }
    if error.downcast_ref::<PoolConcurrencyLimitError>().is_some() {
        return Fault::Overloaded {
            instances: state.grants.limits.max_instances,
        };
    }
    match error.downcast_ref::<Trap>() {
        Some(Trap::StackOverflow) => Fault::Stack,
        // Rust guests keep a second stack at the bottom of their memory, and running off its end
        // reads as an access outside of memory.
        Some(Trap::MemoryOutOfBounds) if is_deep(error) => Fault::Stack,
        Some(trap) => Fault::Trap(explain(&trap.to_string(), state)),
        None if spent_its_fuel(error) => Fault::Output {
            limit_bytes: state.grants.limits.output_bytes,
        },
        None => Fault::Trap(explain(&error.root_cause().to_string(), state)),
    }
}

/// Whether the guest handed more to the host than it may. Not asked of traps, whose chain holds a backtrace:
/// writing that out takes longer than all else that is done about a trap.
pub(crate) fn spent_its_fuel(error: &wasmtime::Error) -> bool {
    let mut chain = error.chain();
    chain.any(|cause| cause.to_string().contains(FUEL_EXHAUSTED))
}

/// Whether the backtrace is as long as we keep: runaway recursion.
fn is_deep(error: &wasmtime::Error) -> bool {
    let backtrace = error.downcast_ref::<WasmBacktrace>();
    backtrace.is_some_and(|trace| trace.frames().len() >= BACKTRACE_FRAMES)
}

/// The trap, with what the guest said last: a panic's message.
fn explain(trap: &str, state: &StoreData) -> String {
    let words = state.call.last_words.as_str().trim();
    let words: Vec<&str> = words
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with("note: run with"))
        .collect();
    if words.is_empty() {
        let component = &state.grants.component;
        let mute = !component.is_embedded() && !component.has_standard_error();
        return match mute {
            true => cut(format!("{trap}; {MUTE}")),
            false => cut(trap.to_owned()),
        };
    }
    cut(format!("{trap}, after printing: {}", words.join(" ")))
}
