//! Parameters of a beam search, with their bounds.

/// Parameters of a beam search, in the terms of `transformers`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BeamParams {
    /// Continuations that are followed at once, 1 to 16 and no more than sequences fit in a step.
    pub size: u32,
    /// Continuations that are returned, the best ones; 1 to `size`.
    pub results: u32,
    /// Scores are log-probabilities divided by the length to this power: above 0 favours long
    /// continuations, below 0 short ones. -10 to 10.
    pub length_penalty: f32,
    /// Stopping rule.
    pub early_stopping: EarlyStopping,
}

/// Stopping rule of a beam search once as many continuations are complete as there are beams.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EarlyStopping {
    /// Stop when the best beam, if it ended now, would be worse than all complete continuations.
    #[default]
    Unlikely,
    /// Stop at once.
    Full,
    /// Stop when no beam can become better at any length.
    Never,
}

/// Most beams of a search.
pub const BEAMS_MAX: u32 = 16;

impl BeamParams {
    /// Check the bounds, for a model of `vocabulary` tokens and steps of at most `sequences` sequences.
    pub(crate) fn check(
        &self,
        stop_tokens: usize,
        vocabulary: usize,
        sequences: usize,
    ) -> Result<(), String> {
        let BeamParams {
            size,
            results,
            length_penalty,
            ..
        } = *self;
        let most = sequences.min(BEAMS_MAX as usize);
        if !(1..=most).contains(&(size as usize)) {
            return Err(format!(
                "a search with {size} beams; 1 to {most} are possible"
            ));
        }
        if !(1..=size).contains(&results) {
            return Err(format!(
                "{results} results of {size} beams; expected 1 to {size}"
            ));
        }
        if !(-10.0..=10.0).contains(&length_penalty) {
            return Err(format!(
                "`length_penalty` is {length_penalty}; expected -10 to 10"
            ));
        }
        let candidates = self.candidates(stop_tokens);
        if candidates > vocabulary {
            return Err(format!(
                "{size} beams look at {candidates} tokens; the model knows {vocabulary}"
            ));
        }
        Ok(())
    }

    /// Continuations that a step considers, so that `size` of them are left even if the others end.
    pub(crate) fn candidates(&self, stop_tokens: usize) -> usize {
        self.size as usize * (1 + stop_tokens).max(2)
    }
}
