//! The scheduler in a seeded simulation: random arrivals, pauses, cancellations and lengths, with
//! the ownership of every block checked after every step.

use std::collections::{BTreeMap, BTreeSet};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use super::{Scheduler, SequenceId, StepLimits};
use crate::block_pool::BlockPool;

const BLOCK_TOKENS: usize = 4;

/// What the simulation knows of a sequence.
struct Expected {
    prompt: usize,
    known: usize,
    computed: usize,
    tokens_max: usize,
    paused: bool,
}

struct Simulation {
    random: Pcg64,
    limits: StepLimits,
    blocks: usize,
    scheduler: Scheduler,
    sequences: BTreeMap<SequenceId, Expected>,
    arrivals_left: usize,
    next_id: SequenceId,
    finished: usize,
    cancelled: usize,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let mut random = Pcg64::seed_from_u64(seed);
        let sequences = random.random_range(1..9);
        let limits = StepLimits {
            sequences,
            tokens: sequences + random.random_range(0..20),
        };
        let blocks = random.random_range(4..40);
        Self {
            scheduler: Scheduler::new(limits, BlockPool::new(blocks, BLOCK_TOKENS)),
            arrivals_left: random.random_range(1..25),
            random,
            limits,
            blocks,
            sequences: BTreeMap::new(),
            next_id: 0,
            finished: 0,
            cancelled: 0,
        }
    }

    fn chance(&mut self, one_in: u32) -> bool {
        self.random.random_range(0..one_in) == 0
    }

    fn arrive(&mut self) {
        while self.arrivals_left > 0 && self.chance(2) {
            let tokens_max = self.random.random_range(2..=self.blocks * BLOCK_TOKENS);
            let prompt = self.random.random_range(1..tokens_max);
            let tokens_max = (prompt + 1).max(tokens_max - self.random.random_range(0..tokens_max));
            self.scheduler.enqueue(self.next_id, prompt, tokens_max, 0);
            let expected = Expected {
                prompt,
                known: prompt,
                computed: 0,
                tokens_max,
                paused: false,
            };
            self.sequences.insert(self.next_id, expected);
            self.next_id += 1;
            self.arrivals_left -= 1;
        }
    }

    fn disturb(&mut self) {
        let ids: Vec<SequenceId> = self.sequences.keys().copied().collect();
        for id in ids {
            if self.chance(40) {
                self.scheduler.remove(id);
                self.sequences.remove(&id);
                self.cancelled += 1;
            } else if self.chance(6) {
                let paused = self.chance(2);
                self.scheduler.set_paused(id, paused);
                // Waiting sequences cannot be paused: nothing has been sent to their readers.
                if !self.scheduler.blocks(id).is_empty() {
                    self.sequences.get_mut(&id).unwrap().paused = paused;
                }
            }
        }
    }

    fn step(&mut self) {
        let plan = self.scheduler.schedule();
        let total: usize = plan.iter().map(|slice| slice.count).sum();
        assert!(
            total <= self.limits.tokens,
            "the plan exceeds the token budget"
        );
        assert!(self.scheduler.running() <= self.limits.sequences);
        let mut seen = BTreeSet::new();
        let mut prefill_begun = false;
        for slice in &plan {
            assert!(seen.insert(slice.id), "a sequence appears twice");
            let expected = &self.sequences[&slice.id];
            assert!(!expected.paused, "a paused sequence is scheduled");
            assert!(slice.count > 0);
            assert_eq!(slice.first, expected.computed, "a gap in the cache");
            assert_eq!(slice.last, slice.first + slice.count == expected.known);
            let blocks = self.scheduler.blocks(slice.id).len();
            assert!(
                blocks * BLOCK_TOKENS >= slice.first + slice.count,
                "tokens without a block"
            );
            let decodes = slice.first >= expected.prompt;
            assert!(
                !(decodes && prefill_begun),
                "prompts come before a decoding sequence"
            );
            prefill_begun |= !decodes;
        }
        self.check_decoders_are_served(&seen);
        self.check_blocks();
        for slice in &plan {
            self.scheduler.computed(slice);
            let expected = self.sequences.get_mut(&slice.id).unwrap();
            expected.computed += slice.count;
            let stops = self.random.random_range(0..30) == 0;
            if slice.last && (expected.known + 1 == expected.tokens_max || stops) {
                self.scheduler.remove(slice.id);
                self.sequences.remove(&slice.id);
                self.finished += 1;
            } else if slice.last {
                self.scheduler.extend(slice.id);
                expected.known += 1;
            }
        }
        self.check_blocks();
    }

    fn check_decoders_are_served(&self, seen: &BTreeSet<SequenceId>) {
        for (id, expected) in &self.sequences {
            let decodes = expected.computed >= expected.prompt && !expected.paused;
            assert!(
                !decodes || seen.contains(id),
                "a decoding sequence was passed over"
            );
        }
    }

    /// No block has two owners, none is lost, none is out of range.
    fn check_blocks(&self) {
        let mut owned = BTreeSet::new();
        for (id, expected) in &self.sequences {
            let blocks = self.scheduler.blocks(*id);
            assert!(blocks.len() <= expected.tokens_max.div_ceil(BLOCK_TOKENS));
            for block in blocks {
                assert!((*block as usize) < self.blocks);
                assert!(owned.insert(*block), "block {block} has two owners");
            }
        }
        assert_eq!(owned.len(), self.scheduler.pool().used(), "blocks leak");
        assert_eq!(self.scheduler.pool().total(), self.blocks);
    }

    fn run(mut self) {
        let mut steps = 0;
        while self.arrivals_left > 0 || !self.sequences.is_empty() {
            self.arrive();
            self.disturb();
            self.step();
            steps += 1;
            assert!(steps < 100_000, "the sequences wait for one another");
        }
        assert_eq!(self.finished + self.cancelled, self.next_id as usize);
        assert_eq!(self.scheduler.pool().used(), 0, "blocks are left behind");
        assert_eq!(self.scheduler.running() + self.scheduler.waiting(), 0);
    }
}

#[test]
fn thousands_of_random_schedules_keep_every_promise() {
    for seed in 0..3000 {
        Simulation::new(seed).run();
    }
}

#[test]
fn a_sequence_that_does_not_fit_waits_for_blocks() {
    let limits = StepLimits {
        sequences: 4,
        tokens: 64,
    };
    let mut scheduler = Scheduler::new(limits, BlockPool::new(4, BLOCK_TOKENS));
    scheduler.enqueue(0, 5, 12, 0);
    scheduler.enqueue(1, 5, 8, 0);
    scheduler.enqueue(2, 1, 2, 0);
    let ids = |scheduler: &mut Scheduler| {
        let plan = scheduler.schedule();
        plan.iter()
            .map(|slice| (slice.id, slice.count))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        ids(&mut scheduler),
        [(0, 5)],
        "1 does not fit, and 2 stands behind it"
    );
    assert_eq!(scheduler.waiting(), 2);
    scheduler.remove(0);
    assert_eq!(ids(&mut scheduler), [(1, 5), (2, 1)]);
}

#[test]
fn decoding_goes_on_while_a_long_prompt_is_computed_in_chunks() {
    let limits = StepLimits {
        sequences: 2,
        tokens: 4,
    };
    let mut scheduler = Scheduler::new(limits, BlockPool::new(20, BLOCK_TOKENS));
    scheduler.enqueue(0, 1, 20, 0);
    scheduler.enqueue(1, 10, 20, 0);
    let mut shares = Vec::new();
    for _ in 0..5 {
        let plan = scheduler.schedule();
        for slice in &plan {
            scheduler.computed(slice);
            if slice.last {
                scheduler.extend(slice.id);
            }
        }
        shares.push(
            plan.iter()
                .map(|slice| (slice.id, slice.count))
                .collect::<Vec<_>>(),
        );
    }
    let chunk = |count| vec![(0, 1), (1, count)];
    assert_eq!(shares, [chunk(3), chunk(3), chunk(3), chunk(1), chunk(1)]);
}

#[test]
fn a_higher_priority_is_admitted_first_and_equals_in_order_of_arrival() {
    let limits = StepLimits {
        sequences: 1,
        tokens: 16,
    };
    let mut scheduler = Scheduler::new(limits, BlockPool::new(4, BLOCK_TOKENS));
    for (id, priority) in [(0, 0), (1, -1), (2, 5), (3, 0), (4, 5)] {
        scheduler.enqueue(id, 1, 4, priority);
    }
    let mut order = Vec::new();
    while let Some(slice) = scheduler.schedule().first() {
        order.push(slice.id);
        scheduler.remove(slice.id);
    }
    assert_eq!(order, [2, 4, 0, 3, 1]);
}
