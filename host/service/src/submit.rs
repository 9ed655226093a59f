//! Submission of a prompt's sequences to the runtime, in the first round and after tools have run.

use std::sync::Arc;
use std::time::Instant;

use mortise_engine::{BeamParams, BeamRequest, SequenceRequest, Share, SubmitError};
use mortise_plugin::Principal;
use mortise_tokenizer::Detokenizer;

use crate::check::Request;
use crate::choice::{Choice, ChoiceParts, ChoiceStream};
use crate::constraint::{MaskThreads, MatcherFault};
use crate::error::ServiceError;
use crate::latency::{Latency, TokenTimer};
use crate::model::ServedModel;
use crate::observer::ModelObserver;
use crate::plugin_routing::RequestPlugins;
use crate::plugins::{ParseSession, RequestId};
use crate::prepare::{self, Prepared};
use crate::refusal::invalid;
use crate::request::BeamFields;
use crate::tally::{RoundKind, Tally};
use crate::throughput::Throughputs;

/// Submits the sequences of one prompt, and holds what they have in common.
pub(crate) struct Submitter {
    pub(crate) model: Arc<ServedModel>,
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
}

/// Choice that a sequence is submitted for.
pub(crate) struct Slot {
    /// Number of the choice in its answer.
    pub(crate) number: u32,
    /// Index of the choice among those of its prompt.
    pub(crate) index: u32,
    pub(crate) round: RoundKind,
    /// Counts on over all rounds.
    pub(crate) tally: Arc<Tally>,
}

impl Submitter {
    pub(crate) fn model(&self) -> &ServedModel {
        &self.model
    }

    fn rejected(&self, error: SubmitError, request: &Request, max_tokens: u32) -> ServiceError {
        let load = self.model().backend.load();
        let retry_after = self.throughputs.retry_after(&self.name, &load);
        prepare::rejected(error, request.fields(), max_tokens, retry_after)
    }

    /// Submit one sequence, with a matcher and a parser session of its own.
    pub(crate) async fn choice(
        &self,
        request: &Request,
        prepared: &Prepared,
        slot: Slot,
        max_tokens: u32,
    ) -> Result<Choice, ServiceError> {
        let model = self.model();
        let fields = request.fields();
        let id = &self.request_id;
        let (constraint, fault) = match (&prepared.constraint, &self.plugins.grammar) {
            (None, _) => (None, MatcherFault::default()),
            (Some(_), None) => return Err(prepare::no_grammar(model, fields)),
            (Some(source), Some(grammar)) => {
                let matcher = grammar.compile(id, source).await;
                let matcher = matcher.map_err(|error| prepare::not_compiled(error, fields))?;
                let words = model.mask_tokens.div_ceil(32);
                let (constraint, fault) = self.masks.constrain(matcher, words);
                (Some(constraint), fault)
            }
        };
        let parser = self.parser(prepared).await?;
        let tokens = model
            .backend
            .submit(SequenceRequest {
                prompt: prepared.ids.clone(),
                max_tokens,
                stop_tokens: model.defaults.eos_tokens.clone(),
                sampling: prepare::sampling(model, fields, slot.index),
                logprobs: prepare::logprobs(request),
                priority: self.priority,
                share: self.share.clone(),
                salt: self.salt.clone(),
                constraint,
            })
            .map_err(|error| self.rejected(error, request, max_tokens))?;
        let stream = ChoiceStream { tokens, fault };
        Ok(self.assemble(request, prepared, slot, stream, parser))
    }

    /// Submit a beam search, whose best results are the choices, numbered from `first`.
    pub(crate) async fn beams(
        &self,
        request: &Request,
        prepared: &Prepared,
        beams: &BeamFields,
        max_tokens: u32,
        first: u32,
    ) -> Result<Vec<(Choice, Arc<Tally>)>, ServiceError> {
        let model = self.model();
        if prepared.constraint.is_some() {
            let message = "this model's answers follow a grammar, and beams are not constrained";
            return Err(invalid("beam_size", message));
        }
        let streams = model.backend.submit_beams(BeamRequest {
            prompt: prepared.ids.clone(),
            max_tokens,
            stop_tokens: model.defaults.eos_tokens.clone(),
            beams: BeamParams {
                size: beams.size,
                results: request.choices(),
                length_penalty: beams.length_penalty as f32,
                early_stopping: beams.early_stopping,
            },
            priority: self.priority,
            share: self.share.clone(),
            salt: self.salt.clone(),
        });
        let streams = streams.map_err(|error| self.rejected(error, request, max_tokens))?;
        let mut choices = Vec::with_capacity(streams.len());
        for (tokens, index) in streams.into_iter().zip(0..) {
            let parser = self.parser(prepared).await?;
            let stream = ChoiceStream {
                tokens,
                fault: MatcherFault::default(),
            };
            let slot = Slot {
                number: first + index,
                index,
                round: RoundKind::First,
                tally: Arc::default(),
            };
            let tally = Arc::clone(&slot.tally);
            let choice = self.assemble(request, prepared, slot, stream, parser);
            choices.push((choice, tally));
        }
        Ok(choices)
    }

    /// Open a parser session for one sequence.
    async fn parser(
        &self,
        prepared: &Prepared,
    ) -> Result<Option<Box<dyn ParseSession>>, ServiceError> {
        match &prepared.parser {
            Some((parser, setup)) => Ok(parser.open(&self.request_id, setup).await?),
            None => Ok(None),
        }
    }

    fn assemble(
        &self,
        request: &Request,
        prepared: &Prepared,
        slot: Slot,
        stream: ChoiceStream,
        parser: Option<Box<dyn ParseSession>>,
    ) -> Choice {
        let prompt = u32::try_from(prepared.ids.len()).unwrap_or(u32::MAX);
        slot.tally.add_prompt(slot.round, prompt);
        Choice::new(ChoiceParts {
            number: slot.number,
            stream,
            detokenizer: Detokenizer::new(
                Arc::clone(self.model().tokenizer.table()),
                prepared.keep_special,
                prepared.at_start,
            ),
            stop: prepared.stop.clone(),
            parser,
            reasoning: prepared
                .parser
                .as_ref()
                .is_some_and(|(_, setup)| setup.opens_reasoning),
            logprobs: request.fields().logprobs.is_some(),
            round: slot.round,
            tally: slot.tally,
            timer: TokenTimer::new(
                Arc::clone(&self.observer),
                Arc::clone(&self.latency),
                self.arrived,
            ),
        })
    }
}
