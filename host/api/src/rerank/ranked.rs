//! Texts in the order of their scores.

/// A text by its index, with its score.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Ranked {
    pub(super) index: usize,
    pub(super) score: f32,
}

/// The `top` texts with the highest scores, likest first; equal ones in their order.
pub(super) fn ranked(scores: &[f32], top: Option<usize>) -> Vec<Ranked> {
    let scores = scores.iter().enumerate();
    let mut all: Vec<Ranked> = scores
        .map(|(index, score)| Ranked {
            index,
            score: *score,
        })
        .collect();
    all.sort_by(|one, other| other.score.total_cmp(&one.score));
    all.truncate(top.unwrap_or(usize::MAX));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_order_texts() {
        let order = |top| {
            let ranked = ranked(&[0.1, 0.9, 0.9, -1.0], top);
            ranked.iter().map(|one| one.index).collect::<Vec<_>>()
        };
        assert_eq!(order(None), [1, 2, 0, 3]);
        assert_eq!(order(Some(1)), [1]);
    }
}
