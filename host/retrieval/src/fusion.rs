//! Several rankings as one, and a choice of results that do not repeat one another.

use crate::ranked::best_of;

/// The rank at which a place in a ranking counts half: that of the paper on reciprocal rank fusion.
const RANK: f32 = 60.0;

/// Rows of all rankings, by the sum of the reciprocals of their ranks; 1 is the first place in each.
pub(crate) fn fuse(rankings: &[(&[(u32, f32)], f32)], most: usize) -> Vec<(u32, f32)> {
    let weights: f32 = rankings.iter().map(|(_, weight)| weight).sum();
    let scale = weights.max(f32::MIN_POSITIVE);
    let mut shares: Vec<(u32, f32)> = Vec::new();
    for (ranking, weight) in rankings {
        let ranks = (1u16..).zip(ranking.iter());
        shares.extend(ranks.map(|(rank, (row, _))| {
            let share = weight * (RANK + 1.0) / (RANK + f32::from(rank));
            (*row, share)
        }));
    }
    // Stable, so that the shares of a row are added in the order of the rankings.
    shares.sort_by_key(|(row, _)| *row);
    let of_rows = shares.chunk_by(|(one, _), (other, _)| one == other);
    let sums = of_rows.filter_map(|shares| {
        let sum: f32 = shares.iter().map(|(_, share)| share).sum();
        Some((shares.first()?.0, sum / scale))
    });
    best_of(sums, most)
}

/// Choose `most` results one by one: each that is good, and not like those before it. `weight` 1 minds the scores only, 0 the
/// difference only. Results stay in the order in which they were chosen.
pub(crate) fn diverse(
    mut from: Vec<(u32, f32)>,
    most: usize,
    weight: f32,
    similarity: impl Fn(u32, u32) -> f32,
) -> Vec<(u32, f32)> {
    // The likeness of each to the most similar of those that were chosen.
    let mut likeness = vec![f32::NEG_INFINITY; from.len()];
    let mut chosen: Vec<(u32, f32)> = Vec::new();
    while chosen.len() < most {
        let value = |(score, like): (f32, f32)| match chosen.is_empty() {
            true => score,
            false => weight * score - (1.0 - weight) * like,
        };
        let places = from.iter().zip(&likeness).enumerate();
        let next = places.max_by(|(a_at, (a, a_like)), (b_at, (b, b_like))| {
            let (a, b) = (value((a.1, **a_like)), value((b.1, **b_like)));
            a.total_cmp(&b).then(b_at.cmp(a_at))
        });
        let Some((place, _)) = next else {
            break;
        };
        let taken = from.remove(place);
        likeness.remove(place);
        for ((row, _), like) in from.iter().zip(&mut likeness) {
            *like = like.max(similarity(taken.0, *row));
        }
        chosen.push(taken);
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rankings_are_fused_by_their_ranks() {
        let (dense, lexical) = ([(7, 0.9), (8, 0.8)], [(8, 12.0), (9, 3.0)]);
        let fused = fuse(&[(&dense, 1.0), (&lexical, 1.0)], 10);
        let rows: Vec<u32> = fused.iter().map(|(row, _)| *row).collect();
        assert_eq!(rows, [8, 7, 9]);
        let expected = (61.0 / 62.0 + 1.0) / 2.0;
        assert!((fused[0].1 - expected).abs() < 1e-6);
        let first = fuse(&[(&dense, 0.3), (&dense, 0.7)], 1);
        assert_eq!(first.len(), 1);
        assert!((first[0].1 - 1.0).abs() < 1e-6);
    }

    #[test]
    fn results_that_say_the_same_are_passed_over() {
        let found = vec![(1, 0.9), (2, 0.89), (3, 0.5)];
        let like = |one: u32, other: u32| if one + other == 3 { 0.99 } else { 0.1 };
        let rows = |weight| -> Vec<u32> {
            let chosen = diverse(found.clone(), 2, weight, like);
            chosen.into_iter().map(|(row, _)| row).collect()
        };
        assert_eq!(rows(1.0), [1, 2]);
        assert_eq!(rows(0.5), [1, 3]);
        assert_eq!(diverse(found.clone(), 9, 0.5, like).len(), 3);
    }
}
