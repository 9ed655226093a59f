//! Server tools: tools that the server runs itself while a model answers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mortise_plugin::{PluginError, Principal, ServerTool, ToolAnswer, ToolCaller};
use mortise_trace::Span;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::error::ServiceError;
use crate::event::{ServerToolCall, ToolOutcome};
use crate::observer::{ModelObserver, ToolRun};
use crate::own_tools::OwnTools;
use crate::plugins::{RequestId, RunTool};
use crate::refusal::{invalid, refuse};
use crate::routing_key::RoutingKey;
use crate::spans;
use mortise_models::conversation::{
    JsonObject, Message, Role, ToolDeclaration as Declaration, ToolName,
};

/// Limits of the tool loop of a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToolLimits {
    /// Rounds: times that a choice may call tools and be continued with their results.
    pub rounds: u32,
    /// Calls of a choice, over all rounds.
    pub calls: u32,
    /// Calls of a choice that run concurrently.
    pub parallel: usize,
    /// Time that all rounds of a choice may take together, generation not counted.
    pub time: Duration,
}

impl Default for ToolLimits {
    /// Five rounds are more than models were seen to need; a model that calls the same tool over and
    /// over does not come to an answer by calling it once more.
    fn default() -> Self {
        Self {
            rounds: 5,
            calls: 32,
            parallel: 8,
            time: Duration::from_secs(30),
        }
    }
}

/// Tools that a server cannot offer.
#[derive(Debug, thiserror::Error)]
pub enum ServerToolsError {
    /// Two plugins declare one name.
    #[error(
        "two plugins declare the tool `{0}`; leave one of them out, since a request names tools by these names"
    )]
    Duplicate(String),
    /// A declaration breaks the bounds of a conversation.
    #[error("the tool `{name}` cannot be offered: {problem}")]
    Declaration {
        /// Name of the tool.
        name: String,
        /// Description of the fault in the declaration.
        problem: String,
    },
}

/// All tools of a server by name.
#[derive(Default)]
pub(crate) struct ServerTools(HashMap<String, Tool>);

#[derive(Clone)]
struct Tool {
    declaration: Declaration,
    plugin: Arc<dyn RunTool>,
}

impl ServerTools {
    pub(crate) fn new(plugins: &[Arc<dyn RunTool>]) -> Result<Self, ServerToolsError> {
        let mut tools = HashMap::new();
        for plugin in plugins {
            for declared in plugin.declarations() {
                let tool = Tool {
                    declaration: declaration(&declared)?,
                    plugin: Arc::clone(plugin),
                };
                if tools.insert(declared.name.clone(), tool).is_some() {
                    return Err(ServerToolsError::Duplicate(declared.name));
                }
            }
        }
        Ok(Self(tools))
    }

    /// Tools that a request has opted in to.
    ///
    /// # Errors
    /// When the request may use no tool of some name. The message lists the tools that it may use, and
    /// none that are for other requests.
    pub(crate) fn select(
        &self,
        names: &[String],
        key: &RoutingKey<'_>,
    ) -> Result<EnabledTools, ServiceError> {
        let mut enabled = Vec::with_capacity(names.len());
        for (at, name) in names.iter().enumerate() {
            let tool = self.0.get(name).filter(|tool| tool.plugin.serves(key));
            let Some(tool) = tool else {
                return Err(self.unknown(at, name, key));
            };
            enabled.push(tool.clone());
        }
        Ok(EnabledTools(enabled))
    }

    fn unknown(&self, at: usize, name: &str, key: &RoutingKey<'_>) -> ServiceError {
        let serving = self.0.iter().filter(|(_, tool)| tool.plugin.serves(key));
        let mut known: Vec<&str> = serving.map(|(name, _)| name.as_str()).collect();
        known.sort_unstable();
        let known = match known.is_empty() {
            true => "no plugin offers this request any".to_owned(),
            false => format!("it has: {}", known.join(", ")),
        };
        refuse(
            format!("server_tools[{at}]"),
            "unknown_server_tool",
            format!("this server has no tool `{name}`; {known}"),
        )
    }
}

/// Tools that one request has opted in to.
#[derive(Clone)]
pub(crate) struct EnabledTools(Vec<Tool>);

impl EnabledTools {
    /// Add the tools that run for this request alone.
    ///
    /// # Errors
    /// When two have one name, or a declaration breaks the bounds of a conversation.
    pub(crate) fn with(mut self, own: &OwnTools) -> Result<Self, ServiceError> {
        for runner in own.tools() {
            for declared in runner.declarations() {
                let broken = |error: ServerToolsError| invalid("tools", error.to_string());
                if self.contains(&declared.name) {
                    let name = declared.name;
                    return Err(invalid(
                        "tools",
                        format!("the tool `{name}` is there twice"),
                    ));
                }
                self.0.push(Tool {
                    declaration: declaration(&declared).map_err(broken)?,
                    plugin: Arc::clone(runner),
                });
            }
        }
        Ok(self)
    }

    /// Declarations for the model.
    pub(crate) fn declarations(&self) -> Vec<Declaration> {
        let declarations = self.0.iter().map(|tool| tool.declaration.clone());
        declarations.collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    fn find(&self, name: &str) -> Option<&Tool> {
        self.0
            .iter()
            .find(|tool| tool.declaration.name.as_str() == name)
    }
}

/// Tool call as the model wrote it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct WrittenCall {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) arguments: String,
}

/// Runs the tool calls of one choice within its limits.
pub(crate) struct ToolExecutor {
    pub(crate) tools: EnabledTools,
    pub(crate) limits: ToolLimits,
    pub(crate) request_id: RequestId,
    pub(crate) model: Arc<str>,
    pub(crate) principal: Principal,
    pub(crate) observer: Arc<dyn ModelObserver>,
    /// Span of the answer.
    pub(crate) span: Span,
    /// Rounds so far.
    pub(crate) rounds: u32,
    /// Calls so far.
    pub(crate) calls: u32,
    /// Time that calls have taken so far.
    pub(crate) spent: Duration,
}

impl ToolExecutor {
    /// Run the calls of one round concurrently. Dropping the future cancels those under way. If the
    /// choice has had all its rounds, none is run.
    ///
    /// # Errors
    /// When a plugin fails whose failure policy is to fail the request.
    pub(crate) async fn run(
        &mut self,
        written: Vec<WrittenCall>,
    ) -> Result<Vec<ServerToolCall>, ServiceError> {
        let began = Instant::now();
        let until = began + self.limits.time.saturating_sub(self.spent);
        let mut runs = RunningCalls::new(self.limits.parallel, until);
        let mut done = Vec::with_capacity(written.len());
        for (at, call) in written.into_iter().enumerate() {
            let refusal = self.refusal();
            let (outcome, text) = match (refusal, self.tools.find(&call.name)) {
                (None, Some(tool)) => {
                    runs.start(at, tool, self.caller(&call), &self.request_id, &call);
                    (ToolOutcome::NotRun, String::new())
                }
                (refusal, _) => (ToolOutcome::NotRun, refusal.unwrap_or_default()),
            };
            done.push(ServerToolCall {
                index: self.calls,
                id: call.id,
                name: call.name,
                arguments: call.arguments,
                outcome,
                text,
            });
            self.calls = self.calls.saturating_add(1);
        }
        while let Some(ended) = runs.next().await? {
            let call = &mut done[ended.at];
            (call.outcome, call.text) = (ended.outcome, ended.text);
            self.record(call, ended.took);
        }
        self.rounds += 1;
        self.spent += began.elapsed();
        Ok(done)
    }

    /// Whether the choice has had all its rounds.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.rounds >= self.limits.rounds
    }

    /// Reason for which no further call is run.
    fn refusal(&self) -> Option<String> {
        let limits = &self.limits;
        if self.is_exhausted() {
            let rounds = limits.rounds;
            return Some(format!(
                "not run: an answer has at most {rounds} rounds of tools"
            ));
        }
        (self.calls >= limits.calls)
            .then(|| format!("not run: an answer has at most {} tool calls", limits.calls))
    }

    fn caller(&self, call: &WrittenCall) -> ToolCaller {
        ToolCaller {
            call_id: call.id.clone(),
            model: self.model.to_string(),
            subject: self.principal.subject.clone(),
            tenant: self.principal.tenant.clone(),
        }
    }

    /// Log a call and report it to the observer.
    fn record(&self, call: &ServerToolCall, took: Duration) {
        tracing::info!(
            request_id = %self.request_id,
            tool = call.name,
            call_id = call.id,
            outcome = call.outcome.name(),
            took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            argument_bytes = call.arguments.len(),
            result_bytes = call.text.len(),
            "tool called"
        );
        let failure = (call.outcome != ToolOutcome::Answered).then(|| call.outcome.name());
        spans::tool_ran(&self.span, &call.name, failure, took);
        self.observer.tool_ran(&ToolRun {
            tool: &call.name,
            outcome: call.outcome,
            took,
        });
    }
}

/// Calls in progress, each on a task of its own.
struct RunningCalls {
    tasks: JoinSet<Result<Ended, PluginError>>,
    /// Permits for calls that may run concurrently.
    slots: Arc<Semaphore>,
    until: tokio::time::Instant,
}

/// Outcome of a call.
struct Ended {
    at: usize,
    outcome: ToolOutcome,
    text: String,
    took: Duration,
}

impl RunningCalls {
    fn new(parallel: usize, until: Instant) -> Self {
        Self {
            tasks: JoinSet::new(),
            slots: Arc::new(Semaphore::new(parallel.max(1))),
            until: until.into(),
        }
    }

    fn start(
        &mut self,
        at: usize,
        tool: &Tool,
        caller: ToolCaller,
        request: &RequestId,
        call: &WrittenCall,
    ) {
        let (slots, until) = (Arc::clone(&self.slots), self.until);
        let plugin = Arc::clone(&tool.plugin);
        let request = request.clone();
        let (name, arguments) = (call.name.clone(), call.arguments.clone());
        self.tasks.spawn(async move {
            let began = Instant::now();
            let called = async {
                // The semaphore is never closed.
                let _slot = slots.acquire().await;
                plugin.call(&request, &caller, &name, &arguments).await
            };
            let said = tokio::time::timeout_at(until, called).await;
            let (outcome, text) = match said {
                Ok(Ok(ToolAnswer::Result(text))) => (ToolOutcome::Answered, text),
                Ok(Ok(ToolAnswer::Refused(text))) => (ToolOutcome::Refused, text),
                Ok(Err(error)) if plugin.is_required() => return Err(error),
                Ok(Err(error)) => {
                    tracing::warn!(request_id = %request, %error,
                        "a tool failed, and the model is told so");
                    (ToolOutcome::Failed, "the tool failed".to_owned())
                }
                Err(_) => {
                    let text = "the time that an answer has for tools is used up";
                    (ToolOutcome::Failed, text.to_owned())
                }
            };
            Ok(Ended {
                at,
                outcome,
                text,
                took: began.elapsed(),
            })
        });
    }

    async fn next(&mut self) -> Result<Option<Ended>, ServiceError> {
        match self.tasks.join_next().await {
            None => Ok(None),
            Some(Ok(ended)) => Ok(Some(ended?)),
            Some(Err(error)) => {
                // Its text is not for callers.
                tracing::error!(%error, "the task of a tool call panicked");
                Err(ServiceError::Engine("a tool broke off".to_owned()))
            }
        }
    }
}

/// The declaration of a plugin's tool as the model is shown it.
fn declaration(declared: &ServerTool) -> Result<Declaration, ServerToolsError> {
    let broken = |problem: String| ServerToolsError::Declaration {
        name: declared.name.clone(),
        problem,
    };
    let name = ToolName::new(&declared.name).map_err(|error| broken(error.to_string()))?;
    let Value::Object(schema) = &declared.parameters else {
        return Err(broken("its schema is not an object".to_owned()));
    };
    let schema = JsonObject::new(schema.clone()).map_err(|error| broken(error.to_string()))?;
    Ok(Declaration {
        description: Some(declared.description.clone()),
        parameters: Some(schema),
        ..Declaration::new(name)
    })
}

/// The result of a call as a message for the model.
pub(crate) fn message(call: &ServerToolCall) -> Message {
    let content = match call.outcome {
        ToolOutcome::Answered => call.text.clone(),
        ToolOutcome::Refused | ToolOutcome::Failed | ToolOutcome::NotRun => {
            format!("error: {}", call.text)
        }
    };
    let role = Role::Tool {
        call_id: call.id.clone(),
    };
    Message {
        name: Some(call.name.clone()),
        ..Message::text(role, content)
    }
}
