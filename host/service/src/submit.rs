//! Submission of a prompt's choices to the runtime, in the first round and after tools have run.

use std::sync::Arc;
use std::time::Instant;

use mortise_engine::{BeamParams, BeamRequest, SequenceRequest, Share, SubmitError};
use mortise_models::lifecycle::ModelLease;
use mortise_models::{Generator, OutputStream, TokenGenerator};
use mortise_plugin::Principal;
use mortise_tokenizer::Detokenizer;
use mortise_trace::Span;

use crate::admission::ApiCall;
use crate::check::Request;
use crate::choice::{Choice, ChoiceParts, ChoiceStream};
use crate::constraint::{MaskThreads, MatcherFault};
use crate::conversation_choice::{ConversationChoice, ConversationParts};
use crate::conversation_prompt::{self, ConversationModel, ConversationPrompt, TokenLimit};
use crate::error::ServiceError;
use crate::event::Event;
use crate::latency::{Latency, TokenTimer};
use crate::observer::ModelObserver;
use crate::plugin_routing::RequestPlugins;
use crate::plugins::{ParseSession, RequestId};
use crate::prepare::{self, Parsing, Prepared, TokenModel};
use crate::prompt_scores::{self, PromptText};
use crate::refusal::invalid;
use crate::rendered_prompt::{self, RenderedModel};
use crate::reported_usage::UsageBounds;
use crate::request::{BeamFields, Prompt, RequestFields};
use crate::spans;
use crate::spending::{self, Purchase};
use crate::tally::{RoundKind, TokenTally};
use crate::throughput::Throughputs;
use crate::uncompiled::{find_wrong, no_grammar};
use crate::under_way::WatchedAnswer;

/// Submits the sequences of one prompt, and holds what they have in common.
pub(crate) struct Submitter {
    pub(crate) target: SubmitTarget,
    pub(crate) plugins: RequestPlugins,
    /// Public name of the model.
    pub(crate) name: Arc<str>,
    pub(crate) principal: Principal,
    pub(crate) request_id: RequestId,
    pub(crate) masks: Arc<MaskThreads>,
    pub(crate) throughputs: Arc<Throughputs>,
    pub(crate) observer: Arc<dyn ModelObserver>,
    pub(crate) latency: Arc<Latency>,
    pub(crate) arrived: Instant,
    pub(crate) priority: i32,
    pub(crate) share: Share,
    pub(crate) salt: Option<Arc<str>>,
    /// Flag: a policy limits the tokens of an answer.
    pub(crate) limited: bool,
    /// Lease that keeps the model loaded until the last choice has ended.
    pub(crate) lease: Option<Arc<ModelLease>>,
    /// Span of the answer.
    pub(crate) span: Span,
}

/// Runtime that a prompt is submitted to.
pub(crate) enum SubmitTarget {
    /// Tokens in, tokens out.
    Tokens(TokenModel),
    /// Conversation in, events out.
    Conversation(ConversationModel),
    /// Tokens in, text out.
    Rendered(RenderedModel),
}

impl SubmitTarget {
    /// The runtime behind a generator; `name` is the public name of the model, with that of its adapter.
    pub(crate) fn of(name: &str, generator: &Generator) -> Self {
        let name = Arc::from(name);
        match generator {
            Generator::Tokens(generator) => Self::Tokens(TokenModel {
                name,
                generator: generator.clone(),
            }),
            Generator::Conversation(runtime) => Self::Conversation(ConversationModel {
                name,
                runtime: Arc::clone(runtime),
            }),
            Generator::Rendered(generator) => Self::Rendered(RenderedModel {
                name,
                generator: generator.clone(),
            }),
        }
    }
}

/// A prompt that is ready to be submitted.
pub(crate) enum ReadyPrompt {
    Tokens(Prepared),
    Conversation(ConversationPrompt),
}

/// One round of a choice while it is generated.
pub(crate) enum ChoiceRound {
    Tokens(Box<Choice>),
    Conversation(Box<ConversationChoice>),
}

impl ChoiceRound {
    /// Events of a runtime that is elsewhere, before the first is read.
    pub(crate) fn elsewhere(&mut self) -> Option<&mut OutputStream> {
        match self {
            Self::Tokens(_) => None,
            Self::Conversation(choice) => Some(choice.stream()),
        }
    }

    /// The next event; `None` after `Finished` or `Failed`.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        match self {
            Self::Tokens(choice) => choice.next().await,
            Self::Conversation(choice) => choice.next().await,
        }
    }
}

impl SubmitTarget {
    /// Public name of the model.
    pub(crate) fn name(&self) -> &Arc<str> {
        match self {
            Self::Tokens(model) => &model.name,
            Self::Conversation(model) => &model.name,
            Self::Rendered(model) => &model.name,
        }
    }
}

impl ReadyPrompt {
    /// Tokens of the prompt, as far as they are known before it is submitted.
    pub(crate) fn tokens(&self) -> usize {
        match self {
            Self::Tokens(prepared) => prepared.ids.len(),
            Self::Conversation(_) => 0,
        }
    }

    /// Ids of the prompt, where it was encoded here.
    pub(crate) fn ids(&self) -> Option<&[u32]> {
        match self {
            Self::Tokens(prepared) => Some(&prepared.ids),
            Self::Conversation(_) => None,
        }
    }

    /// Ids of the prompt, if the caller wants them.
    pub(crate) fn reported(&self, fields: &RequestFields) -> Vec<u32> {
        match self {
            Self::Tokens(prepared) if fields.return_tokens => prepared.ids.clone(),
            Self::Tokens(_) | Self::Conversation(_) => Vec::new(),
        }
    }
}

/// Choice that a sequence is submitted for.
pub(crate) struct ChoiceSlot {
    /// Number of the choice in its answer.
    pub(crate) number: u32,
    /// Index of the choice among those of its prompt.
    pub(crate) index: u32,
    pub(crate) round: RoundKind,
    /// Token counts of the choice over all rounds.
    pub(crate) tally: Arc<TokenTally>,
}

impl Submitter {
    /// Facts of the prompt that are listed while it is answered.
    pub(crate) fn watched(&self, tallies: &[Arc<TokenTally>]) -> WatchedAnswer {
        WatchedAnswer {
            id: self.request_id.clone(),
            model: Arc::clone(&self.name),
            principal: self.principal.clone(),
            arrived: self.arrived,
            tallies: tallies.to_vec(),
            latency: Arc::clone(&self.latency),
        }
    }

    /// Prepare a prompt for the runtime: render, encode and constrain it, where the runtime does not.
    pub(crate) async fn prepare(&self, request: &Request) -> Result<ReadyPrompt, ServiceError> {
        match &self.target {
            SubmitTarget::Tokens(model) => {
                let (tenant, id) = (&self.share.tenant, &self.request_id);
                let prompts = model.prompts();
                let prepared = prepare::prepare(prompts, &self.plugins, tenant, id, request);
                Ok(ReadyPrompt::Tokens(prepared.await?))
            }
            SubmitTarget::Conversation(model) => {
                let prompt = conversation_prompt::prepare(model, &self.plugins, request)?;
                Ok(ReadyPrompt::Conversation(prompt))
            }
            SubmitTarget::Rendered(model) => {
                rendered_prompt::check(model, request)?;
                let (tenant, id) = (&self.share.tenant, &self.request_id);
                let prompts = model.prompts();
                let prepared = prepare::prepare(prompts, &self.plugins, tenant, id, request);
                Ok(ReadyPrompt::Tokens(prepared.await?))
            }
        }
    }

    /// Most tokens of each choice, within the caller's limit, the policies' and the context.
    pub(crate) fn max_tokens(
        &self,
        request: &Request,
        prompt: &ReadyPrompt,
        allowed: Option<u32>,
        default: u32,
    ) -> Result<u32, ServiceError> {
        match &self.target {
            SubmitTarget::Tokens(model) => {
                prepare::max_tokens(model, request, prompt.tokens(), allowed, default)
            }
            SubmitTarget::Conversation(model) => Ok(conversation_prompt::max_tokens(
                model, request, allowed, default,
            )),
            SubmitTarget::Rendered(model) => {
                rendered_prompt::max_tokens(model, request, prompt.tokens(), allowed, default)
            }
        }
    }

    /// Tokens that the context has room for behind the prompt.
    pub(crate) fn room(&self, prompt: &ReadyPrompt) -> u32 {
        match &self.target {
            SubmitTarget::Tokens(model) => {
                let context = model.generator.runtime.context_length();
                let room = context.saturating_sub(prompt.tokens());
                u32::try_from(room).unwrap_or(u32::MAX)
            }
            // The runtime ends the answer where its context ends.
            SubmitTarget::Conversation(_) | SubmitTarget::Rendered(_) => u32::MAX,
        }
    }

    /// Tokens that are to be paid for: those of the prompt, and the most of each choice.
    pub(crate) fn purchase<'a>(
        &'a self,
        (call, asked): (&ApiCall, &Prompt),
        prompt: &ReadyPrompt,
        (max_tokens, choices): (u32, u32),
    ) -> Purchase<'a> {
        let counted_elsewhere = matches!(self.target, SubmitTarget::Conversation(_));
        Purchase {
            request_id: &self.request_id,
            principal: &self.principal,
            model: &self.name,
            prompt_tokens: match counted_elsewhere {
                true => spending::estimate(&call.headers, asked),
                false => u64::try_from(prompt.tokens()).unwrap_or(u64::MAX),
            },
            answer_tokens: u64::from(max_tokens) * u64::from(choices),
            counted_elsewhere,
        }
    }

    fn rejected(&self, error: SubmitError, request: &Request, max_tokens: u32) -> ServiceError {
        let load = match &self.target {
            SubmitTarget::Tokens(model) => model.generator.runtime.load(),
            SubmitTarget::Conversation(model) => model.runtime.load(),
            SubmitTarget::Rendered(model) => model.generator.runtime.load(),
        };
        let retry_after = self.throughputs.retry_after(&self.name, &load);
        prepare::rejected(error, request.fields(), max_tokens, retry_after)
    }

    /// Submit one choice.
    pub(crate) async fn choice(
        &self,
        request: &Request,
        prompt: &ReadyPrompt,
        slot: ChoiceSlot,
        max_tokens: u32,
    ) -> Result<ChoiceRound, ServiceError> {
        match (&self.target, prompt) {
            (SubmitTarget::Tokens(model), ReadyPrompt::Tokens(prepared)) => {
                let choice = self.sequence(model, request, prepared, slot, max_tokens);
                Ok(ChoiceRound::Tokens(Box::new(choice.await?)))
            }
            (SubmitTarget::Conversation(model), ReadyPrompt::Conversation(prompt)) => {
                let choice = self.conversation(model, request, prompt, slot, max_tokens);
                Ok(ChoiceRound::Conversation(Box::new(choice.await?)))
            }
            (SubmitTarget::Rendered(model), ReadyPrompt::Tokens(prepared)) => {
                let choice = self.rendered(model, request, prepared, slot, max_tokens);
                Ok(ChoiceRound::Conversation(Box::new(choice.await?)))
            }
            _ => Err(ServiceError::Engine(
                "the prompt was prepared for another runtime".to_owned(),
            )),
        }
    }

    /// Submit a conversation, with a session of the parser in front of the runtime.
    async fn conversation(
        &self,
        model: &ConversationModel,
        request: &Request,
        prompt: &ConversationPrompt,
        slot: ChoiceSlot,
        max_tokens: u32,
    ) -> Result<ConversationChoice, ServiceError> {
        let parser = self.parser(prompt.parser.as_ref()).await?;
        let (id, index) = (&self.request_id, slot.index);
        let limit = TokenLimit {
            max_tokens,
            given: self.limited || request.fields().max_tokens.is_some(),
        };
        let share = &self.share;
        let submitted =
            conversation_prompt::runtime_request(model, request, id, share, index, limit)?;
        let stream = model.runtime.submit(submitted);
        let stream = stream.map_err(|error| self.rejected(error, request, max_tokens))?;
        Ok(ConversationChoice::new(ConversationParts {
            number: slot.number,
            stream,
            _lease: self.lease.clone(),
            prompt_tokens: 0,
            bounds: UsageBounds::of_conversation(request, limit, model.runtime.context_length()),
            callable: request.callable(),
            parser,
            round: slot.round,
            tally: slot.tally,
            timer: self.timer(),
        }))
    }

    /// Submit a prompt that was rendered here, with a session of the parser that reads the answer.
    async fn rendered(
        &self,
        model: &RenderedModel,
        request: &Request,
        prepared: &Prepared,
        slot: ChoiceSlot,
        max_tokens: u32,
    ) -> Result<ConversationChoice, ServiceError> {
        let parser = self.parser(prepared.parser.as_ref()).await?;
        let (id, index) = (&self.request_id, slot.index);
        let share = &self.share;
        let submitted =
            rendered_prompt::runtime_request(request, prepared, id, share, index, max_tokens);
        let stream = model.generator.runtime.submit_rendered(submitted);
        let stream = stream.map_err(|error| self.rejected(error, request, max_tokens))?;
        Ok(ConversationChoice::new(ConversationParts {
            number: slot.number,
            stream,
            _lease: self.lease.clone(),
            prompt_tokens: u32::try_from(prepared.ids.len()).unwrap_or(u32::MAX),
            bounds: UsageBounds::of_encoded(prepared.ids.len(), max_tokens),
            callable: request.callable(),
            parser,
            round: slot.round,
            tally: slot.tally,
            timer: self.timer(),
        }))
    }

    /// Submit one sequence, with a matcher and a parser session of its own.
    async fn sequence(
        &self,
        model: &TokenModel,
        request: &Request,
        prepared: &Prepared,
        slot: ChoiceSlot,
        max_tokens: u32,
    ) -> Result<Choice, ServiceError> {
        let TokenGenerator {
            runtime,
            vocabulary_size,
            ..
        } = &model.generator;
        let fields = request.fields();
        let id = &self.request_id;
        let (constraint, fault) = match (&prepared.constraint, &self.plugins.grammar) {
            (None, _) => (None, MatcherFault::default()),
            (Some(_), None) => return Err(no_grammar(&model.name, fields)),
            (Some(source), Some(grammar)) => {
                let matcher = spans::part("grammar", async {
                    match grammar.compile(id, source).await {
                        Ok(matcher) => Ok(matcher),
                        Err(error) => {
                            let control = model.generator.tokenizer.control_tokens();
                            let grammar = grammar.as_ref();
                            Err(find_wrong(grammar, id, source, error, fields, control).await)
                        }
                    }
                });
                let matcher = matcher.await?;
                let words = vocabulary_size.div_ceil(32);
                let (constraint, fault) = self.masks.constrain(matcher, words);
                (Some(constraint), fault)
            }
        };
        let constraint = match &prepared.reasoning {
            Some(end) => {
                let table = model.generator.tokenizer.table();
                Some(end.around(constraint, table, prepared.at_start))
            }
            None => constraint,
        };
        let parser = self.parser(prepared.parser.as_ref()).await?;
        let tokens = runtime.submit(SequenceRequest {
            prompt: prepared.ids.clone(),
            max_tokens,
            stop_tokens: prepare::stop_tokens(model, fields),
            sampling: prepare::sampling(model, fields, slot.index)?,
            logprobs: prepare::logprobs(request),
            prompt_logprobs: prompt_scores::wanted(fields, slot.index, max_tokens),
            priority: self.priority_of(fields),
            share: self.share.clone(),
            salt: self.salt.clone(),
            adapter: None,
            constraint,
        });
        let tokens = tokens.map_err(|error| self.rejected(error, request, max_tokens))?;
        let lease = self.lease.clone();
        let stream = ChoiceStream {
            tokens,
            lease,
            fault,
        };
        Ok(self.assemble(model, request, prepared, slot, stream, parser))
    }

    /// Submit a beam search, whose best results are the choices, numbered from `first`.
    pub(crate) async fn beams(
        &self,
        request: &Request,
        prompt: &ReadyPrompt,
        beams: &BeamFields,
        max_tokens: u32,
        first: u32,
    ) -> Result<Vec<(ChoiceRound, Arc<TokenTally>)>, ServiceError> {
        let (SubmitTarget::Tokens(model), ReadyPrompt::Tokens(prepared)) = (&self.target, prompt)
        else {
            let message = "this model runs elsewhere and cannot search with beams";
            return Err(invalid("beam_size", message));
        };
        if prepared.constraint.is_some() {
            let message = "this model's answers follow a grammar, and beams are not constrained";
            return Err(invalid("beam_size", message));
        }
        let streams = model.generator.runtime.submit_beams(BeamRequest {
            prompt: prepared.ids.clone(),
            max_tokens,
            stop_tokens: prepare::stop_tokens(model, request.fields()),
            beams: BeamParams {
                size: beams.size,
                results: request.choices(),
                length_penalty: beams.length_penalty as f32,
                early_stopping: beams.early_stopping,
            },
            priority: self.priority_of(request.fields()),
            share: self.share.clone(),
            salt: self.salt.clone(),
            adapter: None,
        });
        let streams = streams.map_err(|error| self.rejected(error, request, max_tokens))?;
        let mut choices = Vec::with_capacity(streams.len());
        for (tokens, index) in streams.into_iter().zip(0..) {
            let parser = self.parser(prepared.parser.as_ref()).await?;
            let stream = ChoiceStream {
                tokens,
                lease: self.lease.clone(),
                fault: MatcherFault::default(),
            };
            let slot = ChoiceSlot {
                number: first + index,
                index,
                round: RoundKind::First,
                tally: Arc::default(),
            };
            let tally = Arc::clone(&slot.tally);
            let choice = self.assemble(model, request, prepared, slot, stream, parser);
            choices.push((ChoiceRound::Tokens(Box::new(choice)), tally));
        }
        Ok(choices)
    }

    /// Priority in the engine: what the policies gave, less what the caller waives.
    fn priority_of(&self, fields: &RequestFields) -> i32 {
        let waived = match fields.waived_priority {
            0 => fields.labelled_priority,
            waived => waived,
        };
        let waived = i32::try_from(waived).unwrap_or(i32::MAX);
        self.priority.saturating_sub(waived)
    }

    /// Open a parser session for one sequence.
    async fn parser(
        &self,
        parser: Option<&Parsing>,
    ) -> Result<Option<Box<dyn ParseSession>>, ServiceError> {
        match parser {
            Some((parser, setup)) => {
                let session = parser.open(&self.request_id, setup).await?;
                Ok(session.map(|session| spans::session(&self.span, session)))
            }
            None => Ok(None),
        }
    }

    fn timer(&self) -> TokenTimer {
        TokenTimer::new(
            Arc::clone(&self.observer),
            Arc::clone(&self.latency),
            self.arrived,
            self.span.clone(),
        )
    }

    fn assemble(
        &self,
        model: &TokenModel,
        request: &Request,
        prepared: &Prepared,
        slot: ChoiceSlot,
        stream: ChoiceStream,
        parser: Option<Box<dyn ParseSession>>,
    ) -> Choice {
        let prompt = u32::try_from(prepared.ids.len()).unwrap_or(u32::MAX);
        slot.tally.add_prompt(slot.round, prompt);
        Choice::new(ChoiceParts {
            number: slot.number,
            stream,
            detokenizer: Detokenizer::new(
                Arc::clone(model.generator.tokenizer.table()),
                prepared.keep_special,
                prepared.at_start,
            ),
            prompt: (request.fields().prompt_logprobs.is_some() && slot.index == 0).then(|| {
                let table = Arc::clone(model.generator.tokenizer.table());
                PromptText::new(table, request.fields().keep_special, prepared.ids.len())
            }),
            stop: prepared.stop.clone(),
            stops: request.fields().stop.clone(),
            include_stop: request.fields().include_stop,
            parser,
            reasoning: prepared
                .parser
                .as_ref()
                .is_some_and(|(_, setup)| setup.opens_reasoning),
            logprobs: request.fields().logprobs.is_some(),
            return_tokens: request.fields().return_tokens,
            round: slot.round,
            tally: slot.tally,
            timer: self.timer(),
        })
    }
}
