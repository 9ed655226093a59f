//! Selection against sorting, and rows that are looked through against lists of all their tokens.

use proptest::collection::vec;
use proptest::prelude::*;

use super::{
    Candidate, LogitScan, ScanScratch, WEIGHT_UNIT, draw, keep_min_p, keep_top_k, keep_top_p,
    log_total, top,
};
use crate::mask::apply_mask;

fn candidates(values: &[f32]) -> Vec<Candidate> {
    (0u32..)
        .zip(values)
        .map(|(id, &value)| Candidate { id, value })
        .collect()
}

fn sorted(values: &[f32]) -> Vec<Candidate> {
    let mut all = candidates(values);
    all.sort_by(|a, b| b.value.total_cmp(&a.value).then(a.id.cmp(&b.id)));
    all
}

fn by_id(mut kept: Vec<Candidate>) -> Vec<Candidate> {
    kept.sort_by_key(|candidate| candidate.id);
    kept
}

proptest! {
    #[test]
    fn selection_agrees_with_sorting(
        values in vec((0u8..40).prop_map(|v| f32::from(v) / 40.0), 1..80),
        k in 0usize..90, p in 0.01f32..1.0,
    ) {
        let order = sorted(&values);
        prop_assert_eq!(top(&values, k), order[..k.min(values.len())].to_vec());

        let mut kept = candidates(&values);
        keep_top_k(&mut kept, k);
        prop_assert_eq!(by_id(kept), by_id(order[..k.min(values.len())].to_vec()));

        let total: f64 = values.iter().map(|v| f64::from(*v)).sum();
        let mut mass = 0.0;
        let needed = order.iter().position(|candidate| {
            mass += f64::from(candidate.value);
            mass >= total * f64::from(p)
        });
        let mut kept = candidates(&values);
        keep_top_p(&mut kept, p);
        prop_assert_eq!(by_id(kept), by_id(order[..=needed.unwrap_or(values.len() - 1)].to_vec()));

        let mut kept = candidates(&values);
        keep_min_p(&mut kept, p);
        let limit = p * order[0].value;
        let expected = candidates(&values).into_iter().filter(|c| c.value >= limit);
        prop_assert_eq!(kept, expected.collect::<Vec<_>>());

        let mut scratch = ScanScratch::default();
        prop_assert_eq!(LogitScan::new(&values, &mut scratch).likeliest(), Some(order[0].id));
    }

    /// A scan keeps the candidates that filters keep of the full list, also of rows with equal
    /// logits, with some so close that their weights are equal, and with minus infinity.
    #[test]
    fn a_survey_keeps_what_filters_keep_of_all(
        (count, levels) in (1usize..700, prop_oneof![2f32..40.0, Just(1e7f32)]),
        (spread, seed) in (prop_oneof![Just(1e-6f32), 0.1f32..40.0], any::<u32>()),
        temperature in prop_oneof![Just(1.0f32), 0.05f32..4.0],
        (k, p, random) in (1usize..300, 0f32..1.0, any::<u64>()),
        words in prop::option::of(vec(any::<u32>(), 0..24)),
    ) {
        let mut state = seed;
        let mut logits: Vec<f32> = (0..count).map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let uniform = (state >> 8) as f32 / (1 << 24) as f32;
            if uniform > 0.97 { f32::NEG_INFINITY } else { (uniform * levels).round() / levels * spread }
        }).collect();
        let mut scratch = ScanScratch::default();
        let mut given = logits.clone();
        let mut scan = match &words {
            None => LogitScan::new(&given, &mut scratch),
            Some(words) => {
                let allowed = apply_mask(&mut logits, words);
                let (scan, found) = LogitScan::masked(&mut given, words, &mut scratch);
                prop_assert_eq!(found, allowed);
                scan
            }
        };
        let order = sorted(&logits);
        prop_assert_eq!(scan.top(k), &order[..k.min(count)]);
        let likeliest = order[0].value > f32::NEG_INFINITY;
        prop_assert_eq!(scan.likeliest(), likeliest.then_some(order[0].id));

        let (mut all, mut kept, mut found) = (Vec::new(), Vec::new(), Vec::new());
        scan.at_least(temperature, WEIGHT_UNIT, &mut all);
        for Candidate { id, value } in &all {
            let scaled = f64::from(logits[*id as usize] - order[0].value) / f64::from(temperature);
            prop_assert!((f64::from(*value) - scaled.exp()).abs() < 1e-5 * scaled.exp());
        }
        let light = logits.iter().filter(|logit| (*logit - order[0].value) / temperature < -27.7).count();
        prop_assert!(all.len() <= count && (!likeliest || all.len() + light >= count));

        kept.clone_from(&all);
        keep_top_k(&mut kept, k);
        scan.heaviest(temperature, k, &mut found);
        prop_assert_eq!(by_id(found.clone()), by_id(kept.clone()));
        kept.clone_from(&all);
        keep_top_p(&mut kept, p);
        scan.heaviest_part(temperature, p, &mut found);
        prop_assert_eq!(by_id(found.clone()), by_id(kept.clone()));
        kept.clone_from(&all);
        kept.retain(|one| one.value >= p);
        scan.at_least(temperature, p, &mut found);
        prop_assert_eq!(&found, &kept);
        prop_assert_eq!(scan.draw(temperature, random), draw(&mut all, random));
    }

    /// A draw does not depend on the order of the candidates.
    #[test]
    fn draws_follow_the_weights(
        values in vec((0u8..40).prop_map(|v| f32::from(v) / 40.0), 1..80), random in any::<u64>(),
    ) {
        let total: f64 = values.iter().map(|v| f64::from(*v)).sum();
        let place = random as f64 / 2f64.powi(64) * total;
        let mut shuffled = candidates(&values);
        shuffled.reverse();
        let drawn = draw(&mut shuffled, random);
        prop_assert_eq!(drawn, draw(&mut candidates(&values), random));
        let Some(drawn) = drawn else {
            prop_assert_eq!(total, 0.0);
            return Ok(());
        };
        let before: f64 = values[..drawn as usize].iter().map(|v| f64::from(*v)).sum();
        let after = before + f64::from(values[drawn as usize]);
        prop_assert!(before - 1e-6 <= place && place <= after + 1e-6);
        prop_assert!(values[drawn as usize] > 0.0);
    }

    #[test]
    fn weights_sum_up_to_the_softmax_s_divisor(logits in vec(-60f32..60.0, 1..50)) {
        let mut scratch = ScanScratch::default();
        let mut scan = LogitScan::new(&logits, &mut scratch);
        let total: f64 = logits.iter().map(|x| f64::from(*x).exp()).sum();
        let found = f64::from(log_total(scan.highest(), scan.total(1.0)));
        prop_assert!((found - total.ln()).abs() < 1e-5 * (1.0 + total.ln().abs()));
    }
}

#[test]
fn nothing_likely_gives_no_maximum() {
    let mut scratch = ScanScratch::default();
    for count in [1, 2, 200] {
        let mut logits = vec![f32::NEG_INFINITY; count];
        let mut scan = LogitScan::new(&logits, &mut scratch);
        assert!(scan.all_numbers());
        assert_eq!((scan.likeliest(), scan.draw(1.0, 7)), (None, None));
        assert_eq!(
            log_total(scan.highest(), scan.total(1.0)),
            f32::NEG_INFINITY
        );
        logits[count - 1] = f32::NAN;
        let scan = LogitScan::new(&logits, &mut scratch);
        assert_eq!((scan.likeliest(), scan.all_numbers()), (None, false));
        logits[count - 1] = f32::INFINITY;
        assert!(!LogitScan::new(&logits, &mut scratch).all_numbers());
        let (scan, allowed) = LogitScan::masked(&mut logits, &[0], &mut scratch);
        assert_eq!((scan.all_numbers(), allowed), (false, 0));
    }
    assert_eq!(draw(&mut [], 7), None);
}
