//! Choices of which only the best are given: `best_of`.

use std::collections::VecDeque;

use crate::event::AnswerEvent;

/// Holds back the events of all candidates until it is known which are the best.
#[derive(Debug)]
pub(crate) struct Ranking {
    /// How many are given.
    keep: usize,
    /// Events of each candidate.
    held: Vec<Vec<AnswerEvent>>,
    ready: VecDeque<AnswerEvent>,
}

impl Ranking {
    /// The best `keep` of `candidates`.
    pub(crate) fn new(keep: u32, candidates: usize) -> Self {
        Self {
            keep: keep as usize,
            held: (0..candidates).map(|_| Vec::new()).collect(),
            ready: VecDeque::new(),
        }
    }

    /// Hold an event of a candidate back.
    pub(crate) fn hold(&mut self, candidate: u32, event: AnswerEvent) {
        if let Some(held) = self.held.get_mut(candidate as usize) {
            held.push(event);
        }
    }

    /// All candidates are complete. `scores` are theirs; equals keep their order.
    pub(crate) fn decide(&mut self, scores: &[f64]) {
        let mut held: Vec<_> = std::mem::take(&mut self.held)
            .into_iter()
            .zip(scores)
            .collect();
        held.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        for (index, (events, _)) in (0u32..).zip(held.into_iter().take(self.keep)) {
            self.ready
                .extend(events.into_iter().map(|event| renumbered(event, index)));
        }
    }

    /// The next event of the best.
    pub(crate) fn next(&mut self) -> Option<AnswerEvent> {
        self.ready.pop_front()
    }
}

fn renumbered(event: AnswerEvent, index: u32) -> AnswerEvent {
    match event {
        AnswerEvent::Delta {
            delta, logprobs, ..
        } => AnswerEvent::Delta {
            choice: index,
            delta,
            logprobs,
        },
        AnswerEvent::Finished { reason, .. } => AnswerEvent::Finished {
            choice: index,
            reason,
        },
        other => other,
    }
}
