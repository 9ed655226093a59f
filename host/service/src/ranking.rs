//! Ranking of choices where only the best are given: `best_of`.

use crate::event::Event;

/// Buffers the events of all candidates until their scores are known.
#[derive(Debug)]
pub(crate) struct CandidateRanking {
    /// Number of candidates that are given.
    keep: usize,
    /// Events of each candidate.
    buffered: Vec<Vec<Event>>,
}

impl CandidateRanking {
    /// Rank `candidates` candidates and give the best `keep`.
    pub(crate) fn new(keep: u32, candidates: usize) -> Self {
        Self {
            keep: keep as usize,
            buffered: (0..candidates).map(|_| Vec::new()).collect(),
        }
    }

    /// Buffer an event of a candidate.
    pub(crate) fn buffer(&mut self, candidate: usize, event: Event) {
        if let Some(events) = self.buffered.get_mut(candidate) {
            events.push(event);
        }
    }

    /// Events of the best candidates by `scores`, numbered from `first`. Equal candidates keep their
    /// order.
    pub(crate) fn decide(self, scores: &[f64], first: u32) -> Vec<Event> {
        let mut ranked: Vec<_> = self.buffered.into_iter().zip(scores).collect();
        ranked.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        let best = ranked.into_iter().take(self.keep).zip(first..);
        best.flat_map(|((events, _), number)| {
            events
                .into_iter()
                .map(move |event| event.renumbered(number))
        })
        .collect()
    }
}
