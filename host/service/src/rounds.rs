//! One choice over its rounds: where the model calls tools of the server, they are run, what they said
//! is put before the model, and it goes on, until it answers or a limit is reached.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use serde_json::{Map, Value, json};

use crate::check::Request;
use crate::choice::{Choice, ChoiceEvent, Tally};
use crate::error::ServiceError;
use crate::event::{Delta, FinishReason, ServerToolCall};
use crate::launch::{Launch, Round};
use crate::prepare;
use crate::toolbox::{Chosen, Runner, WrittenCall, message};

/// What stands between the texts of two rounds.
const BETWEEN_ROUNDS: &str = "\n\n";

/// One choice, with all its rounds.
pub(crate) struct Rounds {
    choice: Choice,
    /// `None` if the request has opted in to no tool.
    tools: Option<Box<ToolRounds>>,
    ready: VecDeque<ChoiceEvent>,
}

/// What a choice needs to be continued.
pub(crate) struct ToolRounds {
    pub(crate) launch: Arc<Launch>,
    /// Grows by what the model and the tools said.
    pub(crate) request: Request,
    pub(crate) runner: Runner,
    /// Which choice, from 0.
    pub(crate) index: u32,
    /// Tokens to generate over all rounds.
    pub(crate) max_tokens: u32,
    pub(crate) turn: Turn,
}

impl Rounds {
    pub(crate) fn new(choice: Choice, tools: Option<ToolRounds>) -> Self {
        Self {
            choice,
            tools: tools.map(Box::new),
            ready: VecDeque::new(),
        }
    }

    pub(crate) fn tally(&self) -> Arc<Tally> {
        self.choice.tally()
    }

    /// The next event; `None` after `Finished` or `Failed`.
    pub(crate) async fn next(&mut self) -> Option<ChoiceEvent> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            // After a failure in between, the last round has ended and gives nothing more.
            let event = self.choice.next().await?;
            let Some(tools) = &mut self.tools else {
                return Some(event);
            };
            match event {
                ChoiceEvent::Delta { delta, logprobs } => {
                    let heard = tools.turn.hear(delta, &tools.runner.tools);
                    if let Some(delta) = heard {
                        return Some(ChoiceEvent::Delta { delta, logprobs });
                    }
                }
                ChoiceEvent::Finished(FinishReason::ToolCalls) if tools.turn.is_servers() => {
                    let tally = self.choice.tally();
                    match tools.go_on(&tally, &mut self.ready).await {
                        Ok(Some(choice)) => self.choice = choice,
                        Ok(None) => {
                            let end = ChoiceEvent::Finished(FinishReason::Length);
                            self.ready.push_back(end);
                        }
                        Err(error) => self.ready.push_back(ChoiceEvent::Failed(error)),
                    }
                }
                end => return Some(end),
            }
        }
    }
}

impl ToolRounds {
    /// Run the calls of the turn and submit the next sequence; `None` if a limit forbids one.
    async fn go_on(
        &mut self,
        tally: &Arc<Tally>,
        ready: &mut VecDeque<ChoiceEvent>,
    ) -> Result<Option<Choice>, ServiceError> {
        let over = self.runner.is_over();
        let called = self.runner.run(self.turn.calls()).await?;
        let told = called.iter().cloned().map(|call| ChoiceEvent::Delta {
            delta: Delta::ServerToolCall(call),
            logprobs: Vec::new(),
        });
        ready.extend(told);
        if over {
            return Ok(None);
        }
        let turn = self.turn.end();
        self.request = self.request.continued(turn.messages(&called));
        let launch = &self.launch;
        let (model, id) = (launch.model(), &launch.request_id);
        let prepared = prepare::prepare(model, &launch.plugins, id, &self.request).await?;
        let prompt = prepared.ids.len();
        let room = model.backend.context_length().saturating_sub(prompt);
        let room = u32::try_from(room).unwrap_or(u32::MAX);
        let left = self
            .max_tokens
            .saturating_sub(tally.completion_tokens.load(Relaxed));
        let max_tokens = left.min(room);
        if max_tokens == 0 {
            return Ok(None);
        }
        let round = Round::Later(Arc::clone(tally));
        let choice = launch.choice(&self.request, &prepared, self.index, max_tokens, round);
        let choice = choice.await?;
        let prompt = u32::try_from(prompt).unwrap_or(u32::MAX);
        tally.later_prompt_tokens.fetch_add(prompt, Relaxed);
        Ok(Some(choice))
    }
}

/// What the model said in one round.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    content: String,
    reasoning: String,
    /// By the parser's numbers.
    calls: Vec<Heard>,
    /// Calls of the client's tools.
    clients: u32,
    /// An earlier round had content.
    follows_content: bool,
}

#[derive(Debug)]
enum Heard {
    /// Of a tool that the server runs.
    Server(WrittenCall),
    /// Of a tool of the client's, with the number that the client is told.
    Client(u32),
}

impl Turn {
    /// Take note of a delta; what of it the client is told. The client does not hear of calls of the
    /// server's tools as calls, since it would have to answer them.
    fn hear(&mut self, delta: Delta, tools: &Chosen) -> Option<Delta> {
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
                self.calls.push(Heard::Server(WrittenCall {
                    id,
                    name,
                    arguments: String::new(),
                }));
                None
            }
            Delta::CallBegin { id, name, .. } => {
                let index = self.clients;
                self.clients += 1;
                self.calls.push(Heard::Client(index));
                Some(Delta::CallBegin { index, id, name })
            }
            Delta::CallArguments { index, delta } => match self.calls.get_mut(index as usize)? {
                Heard::Server(call) => {
                    call.arguments.push_str(&delta);
                    None
                }
                Heard::Client(index) => Some(Delta::CallArguments {
                    index: *index,
                    delta,
                }),
            },
            Delta::ServerToolCall(_) => None,
        }
    }

    /// Whether all calls are for the server to run. A turn that also calls a tool of the client's is
    /// the client's: it ends, and nothing is run of which the client would not see the result.
    fn is_servers(&self) -> bool {
        self.clients == 0 && !self.calls.is_empty()
    }

    fn calls(&self) -> Vec<WrittenCall> {
        let calls = self.calls.iter().filter_map(|heard| match heard {
            Heard::Server(call) => Some(call.clone()),
            Heard::Client(_) => None,
        });
        calls.collect()
    }

    /// Begin the next round; what was said in this one.
    fn end(&mut self) -> Self {
        let follows_content = self.follows_content || !self.content.is_empty();
        let next = Self {
            follows_content,
            ..Self::default()
        };
        std::mem::replace(self, next)
    }

    /// The turn and what the tools said, as messages.
    fn messages(&self, called: &[ServerToolCall]) -> Vec<Value> {
        let mut assistant = Map::new();
        assistant.insert("role".to_owned(), json!("assistant"));
        let content = (!self.content.is_empty()).then_some(&self.content);
        assistant.insert("content".to_owned(), json!(content));
        if !self.reasoning.is_empty() {
            // The name that templates know.
            assistant.insert("reasoning_content".to_owned(), json!(self.reasoning));
        }
        let calls = called.iter().map(|call| {
            json!({
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            })
        });
        assistant.insert("tool_calls".to_owned(), calls.collect());
        let assistant = Value::Object(assistant);
        std::iter::once(assistant)
            .chain(called.iter().map(message))
            .collect()
    }
}
