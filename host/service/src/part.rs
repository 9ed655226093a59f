//! One prompt of a request with the choices that answer it: admission, accounting, ranking.

use std::sync::Arc;

use mortise_models::{FinishReason, Usage};
use mortise_trace::Span;

use crate::admission::Admission;
use crate::content::Transcript;
use crate::event::Event;
use crate::latency::Latency;
use crate::observer::{ModelObserver, Outcome, Summary};
use crate::ranking::CandidateRanking;
use crate::response_cache::{AnswerRecording, CacheUse};
use crate::spans;
use crate::tally::TokenTally;

/// Parts that a [`PromptAnswer`] is made of.
pub(crate) struct PartSetup {
    pub(crate) model: Arc<str>,
    /// Number of the part's first choice while it is generated.
    pub(crate) first_candidate: u32,
    /// Number of the part's first choice in the answer.
    pub(crate) first_choice: u32,
    /// Ids of the prompt, where they are reported.
    pub(crate) prompt: Vec<u32>,
    /// Choices that are given, the best ones.
    pub(crate) given: u32,
    pub(crate) tallies: Vec<Arc<TokenTally>>,
    pub(crate) latency: Arc<Latency>,
    pub(crate) admission: Admission,
    /// Outcome of looking the answer up in the cache, if it was.
    pub(crate) cache: Option<CacheUse>,
    /// The answer as it is kept.
    pub(crate) recording: Option<AnswerRecording>,
    /// Texts for the log of contents, if there is one.
    pub(crate) transcript: Option<Transcript>,
    pub(crate) observer: Arc<dyn ModelObserver>,
    /// Span of the answer, which ends with the part.
    pub(crate) span: Span,
}

impl PartSetup {
    /// Number of the choices that guardrails look at: those that were made before were looked at then.
    pub(crate) fn watched(&self, choices: usize) -> usize {
        match self.cache {
            Some(CacheUse::Hit) => 0,
            Some(CacheUse::Miss) | None => choices,
        }
    }
}

/// One prompt while it is answered. When it ends or is dropped, the observer and the policies are
/// given its figures.
pub(crate) struct PromptAnswer {
    setup: PartSetup,
    /// Buffer where only the best choices are given.
    ranking: Option<CandidateRanking>,
    unfinished: usize,
    /// Reason of the first choice.
    finish: FinishReason,
    /// Set when the part ends.
    outcome: Option<Outcome>,
}

impl PromptAnswer {
    pub(crate) fn new(setup: PartSetup) -> Self {
        let candidates = setup.tallies.len();
        let ranked = (setup.given as usize) < candidates;
        Self {
            ranking: ranked.then(|| CandidateRanking::new(setup.given, candidates)),
            unfinished: candidates,
            finish: FinishReason::Stop,
            outcome: None,
            setup,
        }
    }

    /// Take an event of one of the part's choices; returns the events that are ready.
    pub(crate) fn accept(&mut self, event: Event, ready: &mut impl Extend<Event>) {
        // Of the prompt, and not of the choice: it is there before the choices are ranked.
        if let Event::Prompt { .. } = event {
            return self.give(event.renumbered(self.setup.first_choice), ready);
        }
        let first = self.setup.first_candidate;
        let candidate = match &event {
            Event::Delta { choice, .. }
            | Event::ServerToolCall { choice, .. }
            | Event::Finished { choice, .. } => choice.saturating_sub(first) as usize,
            Event::Prompt { .. } | Event::Completed { .. } | Event::Failed(_) => 0,
        };
        if let Event::Finished { choice, reason, .. } = &event {
            let (choice, reason) = (*choice, *reason);
            self.unfinished = self.unfinished.saturating_sub(1);
            if choice == first {
                self.finish = reason;
            }
        }
        match &mut self.ranking {
            None => self.give(event, ready),
            Some(ranking) => ranking.buffer(candidate, event),
        }
        if self.unfinished > 0 {
            return;
        }
        if let Some(ranking) = self.ranking.take() {
            let tallies = self.setup.tallies.iter();
            let scores: Vec<f64> = tallies.map(|tally| tally.mean_logprob()).collect();
            for event in ranking.decide(&scores, self.setup.first_choice) {
                self.give(event, ready);
            }
        }
        self.end(Outcome::Finished(self.finish));
        if let Some(recording) = self.setup.recording.take() {
            recording.complete(self.usage());
        }
    }

    fn give(&mut self, event: Event, ready: &mut impl Extend<Event>) {
        if let Some(recording) = &mut self.setup.recording {
            recording.note(&event);
        }
        if let Some(transcript) = &mut self.setup.transcript {
            transcript.note(&event);
        }
        ready.extend([event]);
    }

    /// Outcome of looking the answer up in the cache, if it was.
    pub(crate) fn cache(&self) -> Option<CacheUse> {
        self.setup.cache
    }

    /// Whether all choices are complete.
    pub(crate) fn is_finished(&self) -> bool {
        self.unfinished == 0
    }

    /// The part ends. Only the first call counts.
    pub(crate) fn end(&mut self, outcome: Outcome) {
        if self.outcome.is_some() {
            return;
        }
        self.outcome = Some(outcome);
        let usage = self.usage();
        let spent = self.setup.admission.spent();
        (spent.usage, spent.outcome) = (usage, outcome);
        self.setup.observer.ended(&self.summary());
        if let Some(transcript) = self.setup.transcript.take() {
            transcript.end(self.setup.admission.request_id(), outcome);
        }
        spans::end(&self.setup.span, &self.setup.model, outcome, usage);
    }

    /// Tokens so far.
    pub(crate) fn usage(&self) -> Usage {
        TokenTally::usage(self.setup.tallies.iter().map(Arc::as_ref))
    }

    /// Figures so far; a part that has not ended counts as cancelled.
    pub(crate) fn summary(&self) -> Summary<'_> {
        Summary {
            request_id: self.setup.admission.request_id(),
            model: &self.setup.model,
            replayed: self.setup.cache == Some(CacheUse::Hit),
            outcome: self.outcome.unwrap_or(Outcome::Cancelled),
            usage: self.usage(),
            queued: self.setup.latency.queued(),
            first_token: self.setup.latency.first_token(),
            elapsed: self.setup.admission.elapsed(),
            span: &self.setup.span,
        }
    }

    /// Ids of the prompt, where they are reported.
    pub(crate) fn prompt(&self) -> &[u32] {
        &self.setup.prompt
    }

    /// Admission of the request that the part belongs to.
    pub(crate) fn admission(&self) -> &Admission {
        &self.setup.admission
    }
}

impl Drop for PromptAnswer {
    fn drop(&mut self) {
        self.end(Outcome::Cancelled);
    }
}
