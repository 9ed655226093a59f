//! The scheduler in situations that can be followed by hand.

use std::sync::Arc;

use super::{Arrival, Scheduler, SequenceId, StepLimits};
use crate::block_pool::{BlockPool, Salt};
use crate::fair_queue::Share;

mod tenants;
mod yielding;

const BLOCK_TOKENS: usize = 4;

fn scheduler(sequences: usize, tokens: usize, blocks: usize) -> Scheduler {
    let limits = StepLimits {
        sequences,
        tokens,
        per_tenant: 0,
        idle_tenant_s: 0,
    };
    Scheduler::new(limits, BlockPool::new(blocks, BLOCK_TOKENS, true))
}

/// A sequence whose tokens are its own.
fn arrival(id: SequenceId, prompt: usize, tokens_max: usize) -> Arrival {
    Arrival {
        id,
        prompt: (0..prompt as u32)
            .map(|token| token + 1000 * id as u32)
            .collect(),
        tokens_max,
        ..Arrival::default()
    }
}

fn from(tenant: &str, arrival: Arrival) -> Arrival {
    let share = Share {
        tenant: Arc::from(tenant),
        ..Share::default()
    };
    Arrival { share, ..arrival }
}

/// Plan a step, compute it, and extend every scored sequence by a token. Returns the computed tokens of each
/// sequence.
fn step(scheduler: &mut Scheduler) -> Vec<(SequenceId, usize)> {
    let plan = scheduler.schedule();
    for slice in &plan {
        scheduler.computed(slice);
        if slice.last {
            scheduler.extend(slice.id, 7);
        }
    }
    plan.iter().map(|slice| (slice.id, slice.count)).collect()
}

#[test]
fn admission_asks_for_the_tokens_there_are_and_not_for_those_to_come() {
    let mut scheduler = scheduler(4, 64, 8);
    // Together they might come to need 18 blocks; now they need 2 each.
    for id in 0..3 {
        scheduler.enqueue(arrival(id, 5, 24));
    }
    assert_eq!(
        step(&mut scheduler),
        [(0, 5), (1, 5)],
        "a block is kept back for each that runs"
    );
    assert_eq!(scheduler.queued(), 1);
    // The third fits when one has gone, and holds up those behind it until then.
    scheduler.enqueue(arrival(3, 1, 2));
    assert_eq!(step(&mut scheduler), [(0, 1), (1, 1)]);
    scheduler.remove(0);
    assert_eq!(step(&mut scheduler), [(1, 1), (2, 5), (3, 1)]);
}

#[test]
fn when_blocks_run_out_the_last_is_preempted_and_computed_again() {
    let mut scheduler = scheduler(2, 64, 5);
    scheduler.enqueue(arrival(0, 7, 20));
    scheduler.enqueue(arrival(1, 4, 20));
    // Two blocks and one; each decodes until the five are used up.
    let mut history = Vec::new();
    while scheduler.preempted() == 0 {
        history.push(step(&mut scheduler));
    }
    let last = history.pop().unwrap();
    assert_eq!(last, [(0, 1)], "the second gave way");
    assert!(scheduler.blocks(1).is_empty());
    let known = scheduler.tokens(1).len();
    while scheduler.tokens(0).len() < 20 {
        assert_eq!(step(&mut scheduler), [(0, 1)]);
    }
    scheduler.remove(0);
    // What is left of its blocks is found again; at least the last token is computed.
    let again = step(&mut scheduler);
    assert_eq!(again.len(), 1);
    assert_eq!(
        (
            again[0].0,
            again[0].1 + scheduler.tally().hit_tokens as usize
        ),
        (1, known)
    );
    assert_eq!(scheduler.tally().preemptions, 1);
    assert_eq!(scheduler.cached_tokens(1), 0, "it was its own work");
}

#[test]
fn feature_q3_a_long_prompt_never_delays_a_running_stream() {
    const BUDGET: usize = 64;
    let mut scheduler = scheduler(9, BUDGET, 2000);
    for id in 0..8 {
        scheduler.enqueue(arrival(id, 3, 4000));
    }
    step(&mut scheduler);
    scheduler.enqueue(arrival(8, 4096, 4100));
    let mut left = 4096;
    while left > 0 {
        let plan = step(&mut scheduler);
        let total: usize = plan.iter().map(|(_, count)| count).sum();
        assert!(total <= BUDGET, "a step is no longer than its budget");
        for id in 0..8 {
            assert!(
                plan.contains(&(id, 1)),
                "every stream gets a token in every step"
            );
        }
        let chunk = plan.iter().find(|(id, _)| *id == 8).unwrap().1;
        assert_eq!(chunk, left.min(BUDGET - 8), "the prompt gets all the rest");
        left -= chunk;
    }
}

#[test]
fn feature_q5_a_higher_priority_is_admitted_first_and_equals_in_order_of_arrival() {
    let mut scheduler = scheduler(1, 16, 4);
    for (id, priority) in [(0, 0), (1, -1), (2, 5), (3, 0), (4, 5)] {
        let arrival = arrival(id, 1, 4);
        scheduler.enqueue(Arrival {
            priority,
            ..arrival
        });
    }
    let mut order = Vec::new();
    while let Some(slice) = scheduler.schedule().first() {
        order.push(slice.id);
        scheduler.remove(slice.id);
    }
    assert_eq!(order, [2, 4, 0, 3, 1]);
}

#[test]
fn feature_q5_a_higher_priority_takes_the_place_of_a_lower_one() {
    let mut scheduler = scheduler(2, 16, 40);
    scheduler.enqueue(arrival(0, 3, 20));
    scheduler.enqueue(arrival(1, 3, 20));
    step(&mut scheduler);
    scheduler.enqueue(Arrival {
        priority: 1,
        ..arrival(2, 3, 20)
    });
    assert_eq!(step(&mut scheduler), [(0, 1), (2, 3)]);
    assert_eq!((scheduler.preempted(), scheduler.running()), (1, 2));
    scheduler.remove(2);
    let resumed = step(&mut scheduler);
    assert_eq!(
        resumed,
        [(0, 1), (1, 4)],
        "three tokens and the one it had generated"
    );
}

#[test]
fn a_reader_that_does_not_read_loses_its_place_to_one_who_does() {
    let mut scheduler = scheduler(1, 16, 40);
    scheduler.enqueue(arrival(0, 3, 20));
    step(&mut scheduler);
    scheduler.set_paused(0, true);
    assert_eq!(step(&mut scheduler), []);
    scheduler.enqueue(arrival(1, 3, 20));
    assert_eq!(step(&mut scheduler), [(1, 3)]);
    scheduler.set_paused(0, false);
    assert_eq!(
        step(&mut scheduler),
        [(1, 1)],
        "and gets one back when one is free"
    );
    scheduler.remove(1);
    assert_eq!(step(&mut scheduler), [(0, 4)]);
}

#[test]
fn a_prefix_is_computed_once() {
    let mut scheduler = scheduler(8, 64, 100);
    let prompt: Vec<u32> = (0..23).collect();
    let choice = |id| Arrival {
        prompt: prompt.clone(),
        ..arrival(id, 0, 40)
    };
    for id in 0..3 {
        scheduler.enqueue(choice(id));
    }
    // The others wait for the first and then compute what is not a full block.
    assert_eq!(step(&mut scheduler), [(0, 23)]);
    assert_eq!(step(&mut scheduler), [(0, 1), (1, 3), (2, 3)]);
    let cached: Vec<usize> = (0..3).map(|id| scheduler.cached_tokens(id)).collect();
    assert_eq!(cached, [0, 20, 20]);
    assert_eq!(
        scheduler.pool().used(),
        5 + 3,
        "five blocks in common and a last one each"
    );
    // Once more when all have gone; and for one whose prompt is full blocks only, all but the last.
    for id in 0..3 {
        scheduler.remove(id);
    }
    assert_eq!(scheduler.pool().used(), 0);
    scheduler.enqueue(choice(3));
    scheduler.enqueue(Arrival {
        prompt: prompt[..20].to_vec(),
        ..arrival(4, 0, 40)
    });
    assert_eq!(step(&mut scheduler), [(3, 3), (4, 4)]);
    let tally = scheduler.tally();
    assert_eq!(
        (tally.queried_tokens, tally.hit_tokens),
        (4 * 23 + 20, 3 * 20 + 16)
    );
}

#[test]
fn answers_are_found_as_part_of_the_next_prompt() {
    let mut scheduler = scheduler(2, 64, 100);
    scheduler.enqueue(arrival(0, 6, 40));
    for _ in 0..8 {
        step(&mut scheduler);
    }
    let mut prompt = scheduler.tokens(0).to_vec();
    scheduler.remove(0);
    assert_eq!(prompt.len(), 14);
    prompt.extend([1, 2, 3]);
    scheduler.enqueue(Arrival {
        prompt,
        ..arrival(1, 0, 40)
    });
    // Thirteen were computed: three full blocks.
    assert_eq!(step(&mut scheduler), [(1, 17 - 12)]);
    assert_eq!(scheduler.cached_tokens(1), 12);
}

#[test]
fn a_sequence_that_waits_for_a_prefix_goes_on_when_its_maker_has_gone() {
    let mut scheduler = scheduler(2, 8, 100);
    let prompt: Vec<u32> = (0..30).collect();
    for id in 0..2 {
        scheduler.enqueue(Arrival {
            prompt: prompt.clone(),
            ..arrival(id, 0, 40)
        });
    }
    assert_eq!(step(&mut scheduler), [(0, 8)]);
    scheduler.set_paused(0, true);
    assert_eq!(
        step(&mut scheduler),
        [(1, 8)],
        "the maker's reader does not read"
    );
    scheduler.set_paused(0, false);
    scheduler.remove(1);
    assert_eq!(step(&mut scheduler), [(0, 8)]);
    assert_eq!(
        scheduler.cached_tokens(0),
        8,
        "it has what the other computed meanwhile"
    );
}

#[test]
fn a_salt_keeps_prefixes_apart() {
    let mut scheduler = scheduler(4, 64, 100);
    let prompt: Vec<u32> = (0..23).collect();
    for (id, salt) in [(0, None), (1, Some("a")), (2, Some("b"))] {
        let salt = Salt::new(salt.map(Arc::from), None);
        scheduler.enqueue(Arrival {
            prompt: prompt.clone(),
            salt,
            ..arrival(id, 0, 40)
        });
    }
    assert_eq!(step(&mut scheduler), [(0, 23), (1, 23), (2, 18)]);
    let salt = Salt::new(Some(Arc::from("a")), None);
    scheduler.enqueue(Arrival {
        prompt,
        salt,
        ..arrival(3, 0, 40)
    });
    step(&mut scheduler);
    assert_eq!(
        (scheduler.cached_tokens(2), scheduler.cached_tokens(3)),
        (0, 20)
    );
}

#[test]
fn one_tenants_flood_does_not_keep_others_waiting() {
    const PLACES: usize = 4;
    let mut scheduler = scheduler(PLACES, 16, 2000);
    for id in 0..50 {
        scheduler.enqueue(from("flood", arrival(id, 8, 2000)));
    }
    for _ in 0..100 {
        step(&mut scheduler);
    }
    scheduler.enqueue(from("modest", arrival(50, 8, 2000)));
    // The flood gets a token a place and step, and may be ahead by the tokens of one step.
    let mut waited = 0;
    while scheduler.tokens(50).len() == 8 {
        step(&mut scheduler);
        waited += 1;
    }
    assert!(waited <= 16 / PLACES + 2, "{waited} steps");
    assert_eq!(scheduler.preempted(), 1);
    for _ in 0..40 {
        let plan = step(&mut scheduler);
        assert!(plan.contains(&(50, 1)), "and then it goes on undisturbed");
    }
}

/// Tokens that nine tenants get who each ask one thing after another.
fn goodput(flooded: bool) -> usize {
    let mut scheduler = scheduler(12, 64, 8000);
    for id in 0..if flooded { 100 } else { 0 } {
        scheduler.enqueue(from("flood", arrival(id, 8, 4000)));
    }
    let mut next_id = 100;
    let mut asking: Vec<Option<SequenceId>> = vec![None; 9];
    let mut served = 0;
    for _ in 0..2000 {
        for (tenant, id) in asking.iter_mut().enumerate() {
            if id.is_none() {
                let arrival = arrival(next_id, 8, 8 + 64);
                scheduler.enqueue(from(&tenant.to_string(), arrival));
                *id = Some(next_id);
                next_id += 1;
            }
        }
        step(&mut scheduler);
        for id in &mut asking {
            if id.is_some_and(|id| scheduler.tokens(id).len() == 8 + 64) {
                scheduler.remove(id.take().unwrap());
                served += 64;
            }
        }
    }
    served
}

#[test]
fn l2_nine_tenants_keep_nine_tenths_beside_a_flood() {
    let (alone, flooded) = (goodput(false), goodput(true));
    assert!(10 * flooded >= 9 * alone, "{flooded} of {alone} tokens");
}

#[test]
fn feature_q5_q6_tenants_that_always_have_work_share_by_weight() {
    let mut scheduler = scheduler(6, 32, 4000);
    let mut next_id = 0;
    let mut served = [0usize; 3];
    let mut owners: Vec<usize> = Vec::new();
    for _ in 0..4000 {
        for tenant in 0..3 {
            let mine = |id: &&SequenceId| owners[**id as usize] == tenant;
            let waiting = scheduler.waiting.keys().filter(mine).count();
            // The first sends short ones, the last long ones: what counts is what is computed.
            for _ in waiting..4 {
                let share = Share {
                    tenant: tenant.to_string().into(),
                    weight: [1, 2, 4][tenant],
                    key: Arc::from(""),
                };
                let length = [4, 12, 60][tenant];
                let arrival = arrival(next_id, length, length + 4 + 9 * tenant);
                scheduler.enqueue(Arrival { share, ..arrival });
                owners.push(tenant);
                next_id += 1;
            }
        }
        for slice in scheduler.schedule() {
            scheduler.computed(&slice);
            served[owners[slice.id as usize]] += slice.count;
            if slice.last {
                scheduler.extend(slice.id, 7);
                let task = scheduler.task(slice.id).unwrap();
                if task.tokens.len() == task.tokens_max {
                    scheduler.remove(slice.id);
                }
            }
        }
    }
    let total: usize = served.iter().sum();
    for (tenant, weight) in [1, 2, 4].into_iter().enumerate() {
        let share = served[tenant] * 700 / total;
        assert!(share.abs_diff(100 * weight) <= 7, "{served:?}");
    }
}

#[test]
fn drafts_use_what_the_budget_leaves_and_rejected_ones_are_released() {
    let mut scheduler = scheduler(2, 7, 100);
    let arrival = arrival(0, 0, 40);
    let prompt = vec![1, 2, 3, 4, 5, 6, 1, 2, 3];
    scheduler.enqueue(Arrival {
        prompt,
        draft_max: 8,
        ..arrival
    });
    let mut plan = scheduler.schedule();
    assert_eq!(scheduler.draft_room(&plan), [0], "no drafts behind prompts");
    scheduler.computed(&plan[0]);
    plan = scheduler.schedule();
    scheduler.computed(&plan[0]);
    scheduler.extend(0, 4);
    plan = scheduler.schedule();
    assert_eq!(
        scheduler.draft_room(&plan),
        [4],
        "half of the most at first"
    );
    scheduler.add_draft(&mut plan[0], vec![5, 6, 1, 2]);
    let before = scheduler.pool().used();
    // Two of four draft tokens are accepted.
    scheduler.computed(&plan[0]);
    for token in [5, 6] {
        scheduler.extend(0, token);
        scheduler.confirm_draft(0);
    }
    scheduler.extend(0, 9);
    scheduler.resolve_draft(&plan[0], 2);
    assert_eq!(before - scheduler.pool().used(), 0);
    let slice = &scheduler.schedule()[0];
    assert_eq!((slice.first, slice.count, slice.last), (12, 1, true));
    let tally = scheduler.tally();
    assert_eq!((tally.drafted_tokens, tally.accepted_tokens), (4, 2));
}

#[test]
fn prefill_chunks_are_shorter_while_a_sequence_decodes() {
    let mut scheduler = scheduler(3, 32, 100);
    scheduler.set_prefill_chunk(4);
    scheduler.enqueue(arrival(0, 40, 50));
    assert_eq!(step(&mut scheduler), [(0, 32)], "no sequence decodes");
    assert_eq!(step(&mut scheduler), [(0, 8)]);
    scheduler.enqueue(arrival(1, 6, 10));
    scheduler.enqueue(arrival(2, 9, 10));
    assert_eq!(step(&mut scheduler), [(0, 1), (1, 4)]);
    assert_eq!(step(&mut scheduler), [(0, 1), (1, 2), (2, 2)]);
    assert_eq!(step(&mut scheduler), [(0, 1), (1, 1), (2, 4)]);
    scheduler.remove(0);
    scheduler.remove(1);
    assert_eq!(
        step(&mut scheduler),
        [(2, 3)],
        "no sequence decodes any more"
    );
}

/// A sequence of a tenant whose tokens are its own, salted as the service does.
fn salted(tenant: &str, arrival: Arrival) -> Arrival {
    Arrival {
        salt: Salt::new(Some(Arc::from(tenant)), None),
        ..from(tenant, arrival)
    }
}

/// Prompts that are computed one after the other, each to its first token.
fn run_each(scheduler: &mut Scheduler, arrivals: impl Iterator<Item = Arrival>) -> usize {
    let mut cached = 0;
    for arrival in arrivals {
        let id = arrival.id;
        let prompt = arrival.prompt.len();
        scheduler.enqueue(arrival);
        while scheduler.tokens(id).len() == prompt {
            step(scheduler);
        }
        cached = scheduler.cached_tokens(id);
        scheduler.remove(id);
    }
    cached
}

#[test]
fn foreign_prompts_do_not_empty_a_tenants_prefix_cache() {
    let mut scheduler = scheduler(8, 64, 60);
    let modest = |id| Arrival {
        prompt: (0..81).collect(),
        ..salted("modest", arrival(id, 0, 90))
    };
    assert_eq!(run_each(&mut scheduler, std::iter::once(modest(0))), 0);
    // One after the other, far more than the cache holds.
    let flood = (1..20).map(|id| salted("flood", arrival(id, 100, 110)));
    run_each(&mut scheduler, flood);
    assert_eq!(run_each(&mut scheduler, std::iter::once(modest(20))), 80);
    // And at the same time.
    for id in 21..61 {
        scheduler.enqueue(salted("flood", arrival(id, 100, 140)));
    }
    for _ in 0..200 {
        for (id, _) in step(&mut scheduler) {
            if scheduler.tokens(id).len() == 140 {
                scheduler.remove(id);
            }
        }
    }
    scheduler.enqueue(modest(61));
    step(&mut scheduler);
    assert_eq!(scheduler.cached_tokens(61), 80);
}

#[test]
fn a_prompt_that_needs_the_whole_cache_still_runs() {
    let mut scheduler = scheduler(4, 64, 30);
    let modest = salted("modest", arrival(0, 41, 50));
    run_each(&mut scheduler, std::iter::once(modest));
    assert_eq!(scheduler.pool().shares().held("modest"), 10);
    let huge = salted("huge", arrival(1, 118, 120));
    run_each(&mut scheduler, std::iter::once(huge));
    assert_eq!(scheduler.pool().shares().held("modest"), 0);
}

#[test]
fn feature_q6_places_are_shared_by_weight_and_lent_while_they_are_free() {
    let mut scheduler = scheduler(8, 64, 2000);
    for id in 0..20 {
        scheduler.enqueue(from("a", arrival(id, 3, 4000)));
    }
    step(&mut scheduler);
    assert_eq!(scheduler.running(), 8, "alone it has all places");
    let weighted = |id| {
        let mut arrival = from("b", arrival(id, 3, 4000));
        arrival.share.weight = 3;
        arrival
    };
    for id in 20..40 {
        scheduler.enqueue(weighted(id));
    }
    let plan = step(&mut scheduler);
    let of_a = plan.iter().filter(|(id, _)| *id < 20).count();
    assert_eq!((plan.len(), of_a), (8, 2), "{plan:?}");
    assert_eq!(scheduler.preempted(), 6);
}
