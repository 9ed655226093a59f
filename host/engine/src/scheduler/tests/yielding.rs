//! First tokens beside the flood of another tenant.

use super::{arrival, salted, scheduler, step};

#[test]
fn a_flood_delays_the_first_token_of_another_tenant_by_no_more_than_a_step() {
    let mut scheduler = scheduler(8, 256, 2000);
    scheduler.set_contended_chunk(32);
    for id in 0..100 {
        scheduler.enqueue(salted("flood", arrival(id, 200, 300)));
    }
    for _ in 0..20 {
        step(&mut scheduler);
    }
    // All places are taken and the queue is full of prompts: each time, the first step after its
    // arrival computes the whole prompt and nothing else.
    for id in 100..110 {
        scheduler.enqueue(salted("modest", arrival(id, 20, 30)));
        assert_eq!(step(&mut scheduler), [(id, 20)]);
        for _ in 0..9 {
            let plan = step(&mut scheduler);
            assert!(plan.contains(&(id, 1)), "{plan:?}");
            let prefill: usize = plan.iter().map(|(_, count)| count - 1).sum();
            assert!(prefill <= 32, "{plan:?}");
        }
        scheduler.remove(id);
        // Between two requests the steps stay as short.
        for _ in 0..10 {
            let plan = step(&mut scheduler);
            let prefill: usize = plan.iter().map(|(_, count)| count - 1).sum();
            assert!(prefill <= 32, "{plan:?}");
        }
    }
}

#[test]
fn newcomers_without_end_leave_a_flood_every_other_step() {
    let mut scheduler = scheduler(8, 256, 2000);
    scheduler.set_contended_chunk(32);
    for id in 0..8 {
        scheduler.enqueue(salted("flood", arrival(id, 4, 3000)));
    }
    step(&mut scheduler);
    let (mut decoded, mut since) = (0, 0);
    for id in 100..200 {
        // Each is of a tenant of its own, which has no virtual time behind it.
        scheduler.enqueue(salted(&id.to_string(), arrival(id, 3, 4)));
        let plan = step(&mut scheduler);
        assert!(plan.contains(&(id, 3)), "{plan:?}");
        since = match plan.iter().any(|(other, _)| *other < 8) {
            true => 0,
            false => since + 1,
        };
        assert!(since < 2, "the flood was left out of two steps in a row");
        decoded += usize::from(since == 0);
        scheduler.remove(id);
    }
    assert_eq!(decoded, 50);
}

#[test]
fn tenants_within_what_they_are_entitled_to_yield_no_step() {
    let mut scheduler = scheduler(8, 256, 2000);
    scheduler.set_contended_chunk(32);
    for id in 0..4 {
        scheduler.enqueue(salted("one", arrival(id, 4, 3000)));
    }
    step(&mut scheduler);
    scheduler.enqueue(salted("other", arrival(10, 20, 30)));
    let plan = step(&mut scheduler);
    assert_eq!(plan, [(0, 1), (1, 1), (2, 1), (3, 1), (10, 20)]);
}
