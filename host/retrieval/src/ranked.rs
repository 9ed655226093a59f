//! The best of many scored rows.

use std::cmp::Ordering;

/// Entries that are kept for one that is wanted, before the worst are dropped.
const ROOM: usize = 4;

/// Order of rows: the highest score first, equal scores by row.
fn order(a: &(u32, f32), b: &(u32, f32)) -> Ordering {
    b.1.total_cmp(&a.1).then(a.0.cmp(&b.0))
}

/// Select the `most` rows with the highest scores, best first; of equal scores the first row.
pub fn best(mut scored: Vec<(u32, f32)>, most: usize) -> Vec<(u32, f32)> {
    keep(&mut scored, most);
    scored.sort_unstable_by(order);
    scored
}

/// Select the `most` rows with the highest scores, best first, from rows in ascending order. Rows below the least of
/// the best so far are dropped at once.
pub(crate) fn best_of(rows: impl Iterator<Item = (u32, f32)>, most: usize) -> Vec<(u32, f32)> {
    if most == 0 {
        return Vec::new();
    }
    let room = most.saturating_mul(ROOM);
    let (mut kept, mut least) = (Vec::new(), f32::NEG_INFINITY);
    for (row, score) in rows {
        if score > least {
            kept.push((row, score));
            if kept.len() >= room {
                keep(&mut kept, most);
                least = kept.last().map_or(least, |(_, score)| *score);
            }
        }
    }
    best(kept, most)
}

/// Drop all but the `most` best. Of more than those, the worst that is kept is the last.
fn keep(scored: &mut Vec<(u32, f32)>, most: usize) {
    if scored.len() > most && most > 0 {
        scored.select_nth_unstable_by(most - 1, order);
    }
    scored.truncate(most);
}

/// The number `nth` in descending order, from 1; minus infinity if there are fewer. Reorders the numbers.
pub(crate) fn nth_highest(numbers: &mut [f32], nth: usize) -> f32 {
    match nth > 0 && nth <= numbers.len() {
        true => {
            *numbers
                .select_nth_unstable_by(nth - 1, |a, b| b.total_cmp(a))
                .1
        }
        false => f32::NEG_INFINITY,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_best_are_those_of_a_sorted_list(
            scores in prop::collection::vec(0u8..20, 0..200), most in 0usize..12,
        ) {
            let rows: Vec<(u32, f32)> = (0..).zip(scores.into_iter().map(f32::from)).collect();
            let mut sorted = rows.clone();
            sorted.sort_by(order);
            let mut numbers: Vec<f32> = rows.iter().map(|(_, score)| *score).collect();
            let nth = sorted.get(most.wrapping_sub(1)).map_or(f32::NEG_INFINITY, |(_, score)| *score);
            prop_assert_eq!(nth_highest(&mut numbers, most), nth);
            sorted.truncate(most);
            prop_assert_eq!(best_of(rows.iter().copied(), most), &sorted[..]);
            prop_assert_eq!(best(rows, most), sorted);
        }
    }
}
