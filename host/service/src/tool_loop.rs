//! Tool loop of one choice: where the model calls tools of the server, they run, their results join
//! the conversation, and the model is prompted again, until it answers or a limit is reached.

use std::collections::VecDeque;
use std::sync::Arc;

use mortise_models::{Delta, FinishReason, OutputStream};

use crate::check::Request;
use crate::error::ServiceError;
use crate::event::{Event, ServerToolCall};
use crate::server_tools::{EnabledTools, ToolExecutor, WrittenCall, message};
use crate::submit::{ChoiceRound, ChoiceSlot, Submitter};
use crate::tally::{RoundKind, TokenTally};
use mortise_models::conversation::{ContentPart, Message, Role, ToolCall};

/// Separator between the content of two rounds.
const BETWEEN_ROUNDS: &str = "\n\n";

/// One choice over all rounds of its tool loop.
pub(crate) struct ToolLoop {
    choice: ChoiceRound,
    tally: Arc<TokenTally>,
    /// `None` if the request has enabled no tool of the server.
    state: Option<Box<ToolLoopState>>,
    ready: VecDeque<Event>,
}

/// State that further rounds of a choice need.
pub(crate) struct ToolLoopState {
    pub(crate) submitter: Arc<Submitter>,
    /// The request, with the messages of the rounds so far.
    pub(crate) request: Request,
    pub(crate) executor: ToolExecutor,
    /// Number of the choice in its answer.
    pub(crate) number: u32,
    /// Index of the choice among those of its prompt.
    pub(crate) index: u32,
    /// Tokens to generate over all rounds.
    pub(crate) max_tokens: u32,
    pub(crate) turn: AssistantTurn,
}

impl ToolLoop {
    pub(crate) fn new(
        choice: ChoiceRound,
        tally: Arc<TokenTally>,
        state: Option<ToolLoopState>,
    ) -> Self {
        Self {
            choice,
            tally,
            state: state.map(Box::new),
            ready: VecDeque::new(),
        }
    }

    /// Events of a runtime that is elsewhere, before the first is read.
    pub(crate) fn elsewhere(&mut self) -> Option<&mut OutputStream> {
        self.choice.elsewhere()
    }

    pub(crate) fn tally(&self) -> &Arc<TokenTally> {
        &self.tally
    }

    /// The next event; `None` after `Finished` or `Failed`.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            // After a failure between rounds, the last round has ended and gives nothing more.
            let event = self.choice.next().await?;
            let Some(state) = &mut self.state else {
                return Some(event);
            };
            match event {
                Event::Delta {
                    choice,
                    delta,
                    logprobs,
                    tokens,
                } => {
                    if let Some(delta) = state.turn.record(delta, &state.executor.tools) {
                        return Some(Event::Delta {
                            choice,
                            delta,
                            logprobs,
                            tokens,
                        });
                    }
                }
                Event::Finished {
                    choice,
                    reason: FinishReason::ToolCalls,
                    ..
                } if state.turn.calls_server_tools() => {
                    let span = state.submitter.span.clone();
                    let next = state.next_round(&self.tally, &mut self.ready);
                    match span.run(next).await {
                        Ok(Some(next)) => self.choice = next,
                        Ok(None) => self.ready.push_back(Event::Finished {
                            choice,
                            reason: FinishReason::Length,
                            stop: None,
                            tokens: Vec::new(),
                        }),
                        Err(error) => self.ready.push_back(Event::Failed(error)),
                    }
                }
                end => return Some(end),
            }
        }
    }
}

impl ToolLoopState {
    /// Run the calls of the turn and submit the next round; `None` if a limit forbids one.
    async fn next_round(
        &mut self,
        tally: &Arc<TokenTally>,
        ready: &mut VecDeque<Event>,
    ) -> Result<Option<ChoiceRound>, ServiceError> {
        let exhausted = self.executor.is_exhausted();
        let called = self.executor.run(self.turn.calls()).await?;
        let choice = self.number;
        let events = called.iter().cloned();
        ready.extend(events.map(|call| Event::ServerToolCall { choice, call }));
        if exhausted {
            return Ok(None);
        }
        let turn = self.turn.end();
        self.request = self.request.continued(turn.messages(&called));
        let submitter = &self.submitter;
        let prompt = match submitter.prepare(&self.request).await {
            Err(ServiceError::ContextLength { .. }) => return Ok(None),
            prompt => prompt?,
        };
        let left = self.max_tokens.saturating_sub(tally.completion());
        let max_tokens = left.min(submitter.room(&prompt));
        if max_tokens == 0 {
            return Ok(None);
        }
        let slot = ChoiceSlot {
            number: self.number,
            index: self.index,
            round: RoundKind::Later,
            tally: Arc::clone(tally),
        };
        let choice = submitter.choice(&self.request, &prompt, slot, max_tokens);
        Ok(Some(choice.await?))
    }
}

/// Output of the model in one round.
#[derive(Debug, Default)]
pub(crate) struct AssistantTurn {
    content: String,
    reasoning: String,
    /// Calls by the parser's index.
    calls: Vec<RoundCall>,
    /// Number of calls of the client's tools.
    client_calls: u32,
    /// An earlier round had content.
    follows_content: bool,
}

#[derive(Debug)]
enum RoundCall {
    /// Call of a tool that the server runs.
    Server(WrittenCall),
    /// Call of a tool of the client's, with the index that the client sees.
    Client(u32),
}

impl AssistantTurn {
    /// Record a delta; returns the delta that the client sees. Calls of the server's tools are not
    /// shown to the client as calls, since it would have to answer them.
    fn record(&mut self, delta: Delta, tools: &EnabledTools) -> Option<Delta> {
        match delta {
            Delta::Content(text) => {
                let first = self.content.is_empty() && !text.is_empty();
                self.content.push_str(&text);
                match first && self.follows_content {
                    true => Some(Delta::Content(format!("{BETWEEN_ROUNDS}{text}"))),
                    false => Some(Delta::Content(text)),
                }
            }
            Delta::Reasoning(text) => {
                self.reasoning.push_str(&text);
                Some(Delta::Reasoning(text))
            }
            Delta::CallBegin { id, name, .. } if tools.contains(&name) => {
                self.calls.push(RoundCall::Server(WrittenCall {
                    id,
                    name,
                    arguments: String::new(),
                }));
                None
            }
            Delta::CallBegin { id, name, .. } => {
                let index = self.client_calls;
                self.client_calls += 1;
                self.calls.push(RoundCall::Client(index));
                Some(Delta::CallBegin { index, id, name })
            }
            Delta::CallArguments { index, delta } => match self.calls.get_mut(index as usize)? {
                RoundCall::Server(call) => {
                    call.arguments.push_str(&delta);
                    None
                }
                RoundCall::Client(index) => Some(Delta::CallArguments {
                    index: *index,
                    delta,
                }),
            },
        }
    }

    /// Whether the turn calls tools of the server and no others. A turn that also calls a tool of
    /// the client's ends the choice, and nothing runs whose result the client would not see.
    fn calls_server_tools(&self) -> bool {
        self.client_calls == 0 && !self.calls.is_empty()
    }

    fn calls(&self) -> Vec<WrittenCall> {
        let calls = self.calls.iter().filter_map(|call| match call {
            RoundCall::Server(call) => Some(call.clone()),
            RoundCall::Client(_) => None,
        });
        calls.collect()
    }

    /// Start the next round; returns the turn of the one that ends.
    fn end(&mut self) -> Self {
        let follows_content = self.follows_content || !self.content.is_empty();
        let next = Self {
            follows_content,
            ..Self::default()
        };
        std::mem::replace(self, next)
    }

    /// The turn and the results of its calls, as messages.
    fn messages(&self, called: &[ServerToolCall]) -> Vec<Message> {
        let text = |text: &String| (!text.is_empty()).then(|| text.clone());
        let calls = called.iter().map(|call| ToolCall {
            id: call.id.clone(),
            name: call.name.clone(),
            arguments: call.arguments.clone(),
            ..ToolCall::default()
        });
        let assistant = Message {
            role: Role::Assistant {
                reasoning: text(&self.reasoning),
                calls: calls.collect(),
            },
            content: text(&self.content)
                .map(ContentPart::Text)
                .into_iter()
                .collect(),
            name: None,
        };
        std::iter::once(assistant)
            .chain(called.iter().map(message))
            .collect()
    }
}
