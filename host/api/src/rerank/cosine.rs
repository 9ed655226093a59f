//! Likeness of vectors, and texts in the order of it.

/// A text by its index, with its likeness to the query.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Ranked {
    pub(super) index: usize,
    pub(super) score: f32,
}

/// Cosine of the angle between two vectors; 0 if one of them has no length.
pub(super) fn cosine(one: &[f32], other: &[f32]) -> f32 {
    let dot = |a: &[f32], b: &[f32]| -> f64 {
        let products = a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b));
        products.sum()
    };
    let lengths = (dot(one, one) * dot(other, other)).sqrt();
    match lengths > 0.0 {
        true => (dot(one, other) / lengths) as f32,
        false => 0.0,
    }
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
    fn likeness_is_the_cosine_and_orders_texts() {
        assert_eq!(cosine(&[3.0, 4.0], &[6.0, 8.0]), 1.0);
        assert_eq!(cosine(&[1.0, 0.0], &[0.0, 2.0]), 0.0);
        assert_eq!(cosine(&[1.0, 0.0], &[-5.0, 0.0]), -1.0);
        assert_eq!(cosine(&[0.0], &[1.0]), 0.0);
        let order = |top| {
            let ranked = ranked(&[0.1, 0.9, 0.9, -1.0], top);
            ranked.iter().map(|one| one.index).collect::<Vec<_>>()
        };
        assert_eq!(order(None), [1, 2, 0, 3]);
        assert_eq!(order(Some(1)), [1]);
    }
}
