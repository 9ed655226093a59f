//! Tenants that ask for more than there is, in simulated time: what each gets, and how long its first tokens take.

use std::collections::BTreeMap;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use super::{SequenceId, arrival, salted, scheduler};
use crate::scheduler::Scheduler;

/// Time of a step: the weights are read once, and each token is computed.
fn time_of(tokens: usize) -> u64 {
    40 + 2 * tokens as u64
}

/// Tokens computed in a step by sequence, and the sequences that came to a token.
fn step(scheduler: &mut Scheduler) -> (Vec<(SequenceId, usize)>, Vec<SequenceId>) {
    let plan = scheduler.schedule();
    let mut scored = Vec::new();
    for slice in &plan {
        scheduler.computed(slice);
        if slice.last {
            scheduler.extend(slice.id, 7);
            scored.push(slice.id);
        }
    }
    let counts = plan.iter().map(|slice| (slice.id, slice.count));
    (counts.collect(), scored)
}

#[test]
fn feature_q6_500_streams_of_equal_tenants_get_equal_shares_and_all_their_tokens() {
    const TENANTS: usize = 10;
    const STREAMS: usize = 500;
    let mut random = Pcg64::seed_from_u64(3);
    let mut scheduler = scheduler(32, 512, 8000);
    scheduler.set_prefill_chunk(64);
    scheduler.set_contended_chunk(32);
    // Lengths by tenant: the first sends long prompts and wants little, the last the other way round.
    let mut left: BTreeMap<SequenceId, usize> = BTreeMap::new();
    let tenant_of = |id: SequenceId| id as usize % TENANTS;
    for id in 0..STREAMS as SequenceId {
        let tenant = tenant_of(id);
        let prompt = random.random_range(10..20) + 20 * (TENANTS - tenant);
        let answer = 60 + 10 * tenant;
        let name = tenant.to_string();
        scheduler.enqueue(salted(&name, arrival(id, prompt, prompt + answer)));
        left.insert(id, answer);
    }
    let mut served = [0usize; TENANTS];
    let (mut compared, mut ended) = (0, 0);
    while !left.is_empty() {
        let (computed, scored) = step(&mut scheduler);
        assert!(!computed.is_empty(), "{} streams stand still", left.len());
        for (id, count) in computed {
            served[tenant_of(id)] += count;
        }
        for id in scored {
            let left_of = left.get_mut(&id).expect("a stream that goes on");
            *left_of -= 1;
            if *left_of == 0 {
                left.remove(&id);
                scheduler.remove(id);
                ended += 1;
            }
        }
        // While each has streams that wait, and beyond what one step gives.
        let waits = |tenant: usize| {
            let mut waiting = scheduler.waiting.keys();
            waiting.any(|id| tenant_of(*id) == tenant)
        };
        let total: usize = served.iter().sum();
        if total > 40_000 && (0..TENANTS).all(waits) {
            let mean = total as f64 / TENANTS as f64;
            for tokens in served {
                let off = (tokens as f64 / mean - 1.0).abs();
                assert!(off < 0.05, "{served:?}");
            }
            compared += 1;
        }
    }
    assert_eq!(ended, STREAMS, "each came to all of its tokens");
    assert!(compared > 100, "{compared} steps were compared");
}

/// Tokens of a prompt, and of its answer.
const ASKED: usize = 32;

/// Requests whose time to first token is measured, for each load.
fn measured() -> usize {
    let wanted = std::env::var("MORTISE_FLOOD_REQUESTS").ok();
    wanted.map_or(2_000, |count| count.parse().expect("a number of requests"))
}

/// The times to first token that half of the requests of a tenant, and one in a hundred, exceed. Both it and its neighbour
/// send one request in so much time, in the mean.
fn first_tokens(own: u64, neighbour: u64) -> [u64; 2] {
    let measured = measured();
    let mut random = Pcg64::seed_from_u64(11);
    let mut scheduler = scheduler(16, 256, 4000);
    scheduler.set_prefill_chunk(64);
    scheduler.set_contended_chunk(32);
    let mut next_id: SequenceId = 0;
    let mut begun: BTreeMap<SequenceId, u64> = BTreeMap::new();
    let mut left: BTreeMap<SequenceId, usize> = BTreeMap::new();
    let mut times = Vec::new();
    let (mut now, mut own_next, mut neighbour_next) = (0, 0, 0);
    while times.len() < measured {
        while own_next <= now {
            scheduler.enqueue(salted("own", arrival(next_id, ASKED, 2 * ASKED)));
            begun.insert(next_id, own_next);
            left.insert(next_id, ASKED);
            next_id += 1;
            own_next += random.random_range(1..2 * own);
        }
        while neighbour_next <= now {
            // A flood has so many places in the queue.
            if scheduler.queued() < 256 {
                scheduler.enqueue(salted("neighbour", arrival(next_id, ASKED, 2 * ASKED)));
                left.insert(next_id, ASKED);
                next_id += 1;
            }
            neighbour_next += random.random_range(1..2 * neighbour);
        }
        let (computed, scored) = step(&mut scheduler);
        let tokens: usize = computed.iter().map(|(_, count)| count).sum();
        now += time_of(tokens);
        for id in scored {
            if let Some(at) = begun.remove(&id) {
                times.push(now - at);
            }
            let left_of = left.get_mut(&id).expect("a stream that goes on");
            *left_of -= 1;
            if *left_of == 0 {
                left.remove(&id);
                scheduler.remove(id);
            }
        }
    }
    times.sort_unstable();
    [50, 99].map(|at| times[measured * at / 100])
}

#[test]
fn feature_q6_a_flood_raises_the_first_token_of_another_tenant_by_less_than_a_fifth() {
    // What a full batch takes for a request: its prompt, and its part of the steps that decode it.
    let request = 2 * ASKED as u64 + ASKED as u64 * time_of(16) / 16;
    let share = 2 * request;
    // A tenant that uses half of its share, or down to a twentieth, beside one that uses all of its own, or asks for it a
    // hundred times.
    for part in [2, 3, 4, 6, 10, 20] {
        let [median, slow] = first_tokens(part * share, share);
        let [flooded, slow_flooded] = first_tokens(part * share, share / 100);
        let more = |with: u64, without: u64| 100.0 * (with as f64 / without as f64 - 1.0);
        let (usual, rare) = (more(flooded, median), more(slow_flooded, slow));
        println!(
            "a share's part of 1/{part}: {usual:.0} % at the median, {rare:.0} % at the 99th percentile"
        );
        assert!(5 * flooded < 6 * median, "{median} and {flooded}");
        assert!(5 * slow_flooded < 6 * slow, "{slow} and {slow_flooded}");
    }
}
