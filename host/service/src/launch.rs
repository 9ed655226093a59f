//! Submitting the sequences of a request: in its first round, and in those after tools have run.

use std::sync::Arc;
use std::time::Instant;

use mortise_engine::{BeamParams, BeamRequest, SequenceRequest, Share, SubmitError};
use mortise_models::Entry;

use crate::check::{Request, invalid};
use crate::choice::{Choice, ChoiceParts, ChoiceStream, Tally, Watch};
use crate::constraint::{MaskThreads, MatcherFault};
use crate::error::ServiceError;
use crate::lineup::RequestPlugins;
use crate::model::ServedModel;
use crate::observer::Observer;
use crate::pace::Paces;
use crate::plugins::{ParseSession, RequestId};
use crate::prepare::{self, Prepared};
use crate::request::BeamFields;
use mortise_tokenizer::Detokenizer;

/// What all sequences of a request have in common.
pub(crate) struct Launch {
    pub(crate) entry: Arc<Entry<ServedModel>>,
    pub(crate) plugins: RequestPlugins,
    pub(crate) name: Arc<str>,
    pub(crate) request_id: RequestId,
    pub(crate) masks: Arc<MaskThreads>,
    pub(crate) paces: Arc<Paces>,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) arrived: Instant,
    pub(crate) priority: i32,
    pub(crate) share: Share,
    pub(crate) salt: Option<Arc<str>>,
}

/// Which sequence of a choice is submitted.
pub(crate) enum Round {
    First,
    /// One that goes on after tools have run, and counts on.
    Later(Arc<Tally>),
}

impl Launch {
    pub(crate) fn model(&self) -> &ServedModel {
        &self.entry.value
    }

    fn refused(&self, error: SubmitError, request: &Request, max_tokens: u32) -> ServiceError {
        let load = self.model().backend.load();
        let retry_after = self.paces.retry_after(&self.name, &load);
        prepare::refused(error, request.fields(), max_tokens, retry_after)
    }

    /// Submit one sequence, with a matcher and a parser session of its own.
    pub(crate) async fn choice(
        &self,
        request: &Request,
        prepared: &Prepared,
        index: u32,
        max_tokens: u32,
        round: Round,
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
                stop_tokens: model.defaults.eos.clone(),
                sampling: prepare::sampling(model, fields, index),
                logprobs: prepare::logprobs(request),
                priority: self.priority,
                share: self.share.clone(),
                salt: self.salt.clone(),
                constraint,
            })
            .map_err(|error| self.refused(error, request, max_tokens))?;
        let stream = ChoiceStream { tokens, fault };
        Ok(self.assemble(request, prepared, stream, parser, round))
    }

    /// Submit a beam search, whose best results are the choices.
    pub(crate) async fn beams(
        &self,
        request: &Request,
        prepared: &Prepared,
        beams: &BeamFields,
        max_tokens: u32,
    ) -> Result<Vec<Choice>, ServiceError> {
        let model = self.model();
        if prepared.constraint.is_some() {
            let message = "this model's answers follow a grammar, and beams are not constrained";
            return Err(invalid("beam_size", message));
        }
        let streams = model.backend.submit_beams(BeamRequest {
            prompt: prepared.ids.clone(),
            max_tokens,
            stop_tokens: model.defaults.eos.clone(),
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
        let streams = streams.map_err(|error| self.refused(error, request, max_tokens))?;
        let mut choices = Vec::with_capacity(streams.len());
        for tokens in streams {
            let parser = self.parser(prepared).await?;
            let stream = ChoiceStream {
                tokens,
                fault: MatcherFault::default(),
            };
            choices.push(self.assemble(request, prepared, stream, parser, Round::First));
        }
        Ok(choices)
    }

    /// A parser session for one sequence.
    async fn parser(
        &self,
        prepared: &Prepared,
    ) -> Result<Option<Box<dyn ParseSession>>, ServiceError> {
        match &prepared.parser {
            Some((parser, setup)) => Ok(parser.open(&self.request_id, setup).await?),
            None => Ok(None),
        }
    }

    /// A choice of these tokens.
    fn assemble(
        &self,
        request: &Request,
        prepared: &Prepared,
        stream: ChoiceStream,
        parser: Option<Box<dyn ParseSession>>,
        round: Round,
    ) -> Choice {
        let (resumes, tally) = match round {
            Round::First => (false, Arc::default()),
            Round::Later(tally) => (true, tally),
        };
        Choice::new(ChoiceParts {
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
            resumes,
            tally,
            watch: Watch {
                model: Arc::clone(&self.name),
                observer: Arc::clone(&self.observer),
                last: match resumes {
                    true => None,
                    false => Some(self.arrived),
                },
                seen_token: resumes,
            },
        })
    }
}
