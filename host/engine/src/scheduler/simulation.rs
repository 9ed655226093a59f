//! The scheduler in a seeded simulation: random arrivals, pauses, cancellations, priorities, tenants, shared
//! prefixes, speculation, late masks, overlapped steps, and caches that are far too small. A fake model
//! checks that the cache holds exactly what each sequence expects; after every step all counts are
//! audited.
//!
//! `MORTISE_SIMULATIONS=1000000 cargo test --release -p mortise-engine schedules` runs more of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use super::{Arrival, PENDING_TOKEN, Scheduler, SequenceId, Slice, StepLimits};
use crate::block_pool::{BlockPool, Salt};
use crate::fair_queue::Share;
use crate::prompt_lookup::lookup;

const BLOCK_TOKENS: usize = 4;

/// Content of a cell of the fake cache: the hash of all tokens up to it, so that a cell that is overwritten
/// by another sequence shows.
fn hash(before: u64, token: u32) -> u64 {
    (before ^ u64::from(token) ^ 0x5DEE_CE66)
        .wrapping_mul(0x9E37_79B9_7F4A_7C15)
        .rotate_left(23)
}

/// The next token by the fake model. Half the time it repeats itself, so that drafts are accepted.
fn successor(tokens: &[u32]) -> u32 {
    let hash = tokens.iter().fold(3, |before, token| hash(before, *token));
    match tokens.len().checked_sub(5) {
        Some(before) if hash & 1 == 0 => tokens[before],
        _ => (hash >> 33) as u32 % 4,
    }
}

/// The simulation's own record of a sequence.
struct Expected {
    tokens: Vec<u32>,
    prompt: usize,
    tokens_max: usize,
    salt: Salt,
    paused: bool,
    /// Id of the first of the sequences that arrived together with one prompt.
    family: SequenceId,
    /// Flag of a late mask: the last token is computed, and no token is sampled from its logits yet.
    late: bool,
}

struct Simulation {
    random: Pcg64,
    limits: StepLimits,
    blocks: usize,
    draft_max: usize,
    /// Whether steps are planned while the tokens of the previous one are pending (overlap scheduling).
    overlapped: bool,
    /// Sequences whose last tokens are pending.
    pending: Vec<SequenceId>,
    prefixes: Vec<Vec<u32>>,
    scheduler: Scheduler,
    cells: Vec<u64>,
    sequences: BTreeMap<SequenceId, Expected>,
    arrivals_left: usize,
    next_id: SequenceId,
    finished: usize,
    cancelled: usize,
    branched: usize,
    /// Results that were discarded because their sequences had ended.
    discarded: usize,
    /// Steps in which sequences that wait for masks were preempted.
    unblocked: usize,
    /// Steps in which an absent tenant had blocks within its share.
    protected: usize,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let mut random = Pcg64::seed_from_u64(seed);
        let sequences = random.random_range(1..8);
        let limits = StepLimits {
            sequences,
            tokens: sequences + random.random_range(0..20),
            per_tenant: 0,
            idle_tenant_s: 0,
        };
        let blocks = random.random_range(3..28);
        let caching = random.random_range(0..5) > 0;
        let overlapped = random.random_range(0..3) == 0;
        let drafts = random.random_range(0..2) * random.random_range(0..6);
        let mut scheduler = Scheduler::new(limits, BlockPool::new(blocks, BLOCK_TOKENS, caching));
        let credit = random.random_range(0..=limits.tokens);
        scheduler.fair_queue.set_credit(credit);
        let mut tokens =
            |count: usize| -> Vec<u32> { (0..count).map(|_| random.random_range(0..4)).collect() };
        Self {
            overlapped,
            pending: Vec::new(),
            prefixes: vec![tokens(0), tokens(9), tokens(17), tokens(24)],
            scheduler,
            cells: vec![0; blocks * BLOCK_TOKENS],
            arrivals_left: random.random_range(1..20),
            draft_max: if overlapped { 0 } else { drafts },
            random,
            limits,
            blocks,
            sequences: BTreeMap::new(),
            next_id: 0,
            finished: 0,
            cancelled: 0,
            branched: 0,
            discarded: 0,
            unblocked: 0,
            protected: 0,
        }
    }

    fn chance(&mut self, one_in: u32) -> bool {
        self.random.random_range(0..one_in) == 0
    }

    fn arrive(&mut self) {
        while self.arrivals_left > 0 && self.chance(2) {
            self.arrivals_left -= 1;
            let capacity = self.blocks * BLOCK_TOKENS;
            let mut tokens = self.prefixes[self.random.random_range(0..4)].clone();
            let own = self.random.random_range(1..12);
            tokens.extend((0..own).map(|_| self.random.random_range(0..4u32)));
            tokens.truncate(capacity - 1);
            let prompt = tokens.len();
            let tokens_max = (prompt + self.random.random_range(1..40)).min(capacity);
            let priority = self.random.random_range(0..8) / 7;
            let tenant = self.random.random_range(0..3u32);
            let apart = (tenant == 2).then(|| Arc::from("apart"));
            let salt = Salt::new(apart, None);
            let scores_prompt = self.chance(8);
            let family = self.next_id;
            // Some requests have several choices, which arrive together.
            for _ in 0..if self.chance(4) { 3 } else { 1 } {
                self.scheduler.enqueue(Arrival {
                    id: self.next_id,
                    prompt: tokens.clone(),
                    tokens_max,
                    priority,
                    salt: salt.clone(),
                    share: Share {
                        tenant: tenant.to_string().into(),
                        weight: 1 + tenant,
                        key: Arc::from(""),
                    },
                    draft_max: self.draft_max,
                    scores_prompt,
                });
                let expected = Expected {
                    tokens: tokens.clone(),
                    prompt,
                    tokens_max,
                    salt: salt.clone(),
                    paused: false,
                    family,
                    late: false,
                };
                self.sequences.insert(self.next_id, expected);
                self.next_id += 1;
            }
        }
    }

    fn disturb(&mut self) {
        let ids: Vec<SequenceId> = self.sequences.keys().copied().collect();
        for id in ids {
            if self.chance(60) {
                self.scheduler.remove(id);
                self.sequences.remove(&id);
                self.cancelled += 1;
            } else if self.chance(8) {
                let paused = self.chance(2);
                self.scheduler.set_paused(id, paused);
                self.sequences.get_mut(&id).unwrap().paused = paused;
            }
        }
    }

    /// Branch sequences that arrived together with one prompt, as a beam search does: one goes on from the tokens of
    /// another.
    fn branch(&mut self) {
        if self.overlapped {
            return;
        }
        let ids: Vec<SequenceId> = self.sequences.keys().copied().collect();
        for pair in ids.windows(2) {
            let (parent, id) = (pair[0], pair[1]);
            let (Some(one), Some(other)) = (self.sequences.get(&parent), self.sequences.get(&id))
            else {
                continue;
            };
            if one.family != other.family || self.random.random_range(0..6) > 0 {
                continue;
            }
            let mut tokens = one.tokens.clone();
            let token = successor(&tokens);
            self.scheduler.branch(&[(id, parent, token)]);
            tokens.push(token);
            let expected = self.sequences.get_mut(&id).unwrap();
            expected.tokens = tokens;
            expected.late = false;
            self.branched += 1;
            self.end_if_complete(id);
        }
    }

    fn step(&mut self) {
        let held = self.protected();
        let mut plan = self.scheduler.schedule();
        if plan.is_empty() && self.scheduler.has_runnable() && self.chance(2) {
            self.scheduler.preempt_blocked();
            plan = self.scheduler.schedule();
            assert!(!plan.is_empty(), "a late mask holds up all others");
            self.unblocked += 1;
        }
        // Draft tokens take blocks afterwards, and with them shares of the cache change.
        self.check_ranks(&plan);
        self.draft(&mut plan);
        self.check_protected(held);
        self.check_plan(&plan);
        self.audit();
        for slice in &plan {
            self.compute(slice);
        }
        self.decide();
        for slice in &plan {
            if self.sequences.contains_key(&slice.id) {
                self.scheduler.computed(slice);
                self.sample(slice);
            } else {
                self.discarded += 1;
            }
        }
        self.sample_late();
        self.audit();
    }

    /// Blocks of tenants without sequences that no other tenant may have evicted: what they hold within
    /// their shares. With the number of evictions as a last resort.
    fn protected(&self) -> (u64, Vec<(String, usize)>) {
        let shares = self.scheduler.pool.shares();
        let tenants = (0..3).map(|tenant: u32| tenant.to_string());
        let held = tenants.filter_map(|tenant| {
            let share = shares.absent_share(&tenant)?;
            let held = shares.held(&tenant).min(share);
            Some((tenant, held))
        });
        (self.scheduler.pool.last_resorts(), held.collect())
    }

    fn check_protected(&mut self, (last_resorts, held): (u64, Vec<(String, usize)>)) {
        let pool = &self.scheduler.pool;
        if pool.last_resorts() > last_resorts {
            return;
        }
        for (tenant, held) in held {
            let share = pool.shares().absent_share(&tenant).unwrap_or(0);
            let held = held.min(share);
            self.protected += usize::from(held > 0);
            let now = pool.shares().held(&tenant);
            assert!(now >= held, "tenant {tenant} lost blocks within its share");
        }
    }

    /// Drafts by prompt lookup, and random ones.
    fn draft(&mut self, plan: &mut [Slice]) {
        let room = self.scheduler.draft_room(plan);
        for (slice, room) in plan.iter_mut().zip(room) {
            let draft = match self.random.random_range(0..3) {
                0 => (0..room).map(|_| self.random.random_range(0..4)).collect(),
                _ => lookup(self.scheduler.tokens(slice.id), room).to_vec(),
            };
            self.scheduler.add_draft(slice, draft);
        }
    }

    fn check_plan(&self, plan: &[Slice]) {
        let total: usize = plan
            .iter()
            .map(|slice| slice.count + slice.draft.len())
            .sum();
        assert!(
            total <= self.limits.tokens,
            "the plan exceeds the token budget"
        );
        assert!(self.scheduler.running() <= self.limits.sequences);
        let mut seen = BTreeSet::new();
        for slice in plan {
            assert!(seen.insert(slice.id), "a sequence appears twice");
            let expected = &self.sequences[&slice.id];
            assert!(!expected.paused, "a paused sequence is scheduled");
            assert!(!expected.late, "a sequence is computed again");
            assert!(slice.count > 0);
            let end = slice.first + slice.count;
            assert_eq!(slice.last, end == expected.tokens.len());
            assert!(slice.draft.is_empty() || (slice.last && slice.count == 1));
            assert!(expected.tokens.len() + slice.draft.len() < expected.tokens_max.max(end + 1));
            let blocks = self.scheduler.blocks(slice.id).len();
            assert!(
                blocks * BLOCK_TOKENS >= end + slice.draft.len(),
                "tokens without a block"
            );
        }
    }

    /// Sequences wait in the right order, and the first in rank always goes on.
    fn check_ranks(&self, plan: &[Slice]) {
        let scheduler = &self.scheduler;
        let planned = |id: SequenceId| plan.iter().any(|slice| slice.id == id);
        for task in scheduler
            .running
            .iter()
            .filter(|task| task.runnable() && task.decoding)
        {
            let spare = scheduler.pool.can_take(task.account);
            assert!(
                planned(task.id) || !spare,
                "a decoding sequence was passed over"
            );
        }
        if let Some(first) = scheduler.running.first()
            && first.runnable()
            && first.decoding
        {
            assert!(planned(first.id), "the first in rank was passed over");
        }
        if plan.is_empty() {
            // All that could run wait for blocks of one whose mask is late.
            let late = scheduler
                .running
                .iter()
                .any(|task| task.scored && !task.paused);
            let mut all = scheduler.running.iter().chain(scheduler.waiting.values());
            assert!(
                late || all.all(|task| !task.runnable()),
                "nothing is computed"
            );
        }
        let waiting = scheduler.waiting.values().filter(|task| task.runnable());
        let Some(highest) = waiting.map(|task| task.priority).max() else {
            return;
        };
        for running in &scheduler.running {
            assert!(
                running.priority >= highest,
                "a lower priority runs before a higher one"
            );
            assert!(!running.paused, "a paused sequence keeps others out");
        }
    }

    /// The counts agree with the blocks that sequences hold.
    fn audit(&self) {
        let mut references = BTreeMap::new();
        for (id, expected) in &self.sequences {
            let blocks = self.scheduler.blocks(*id);
            assert!(blocks.len() <= expected.tokens_max.div_ceil(BLOCK_TOKENS));
            for block in blocks {
                *references.entry(*block).or_insert(0) += 1;
            }
        }
        self.scheduler.pool().audit(&references);
        assert_eq!(references.len(), self.scheduler.pool().used());
    }

    /// The fake forward pass: earlier tokens must be in the cache, and written blocks must not be shared.
    fn compute(&mut self, slice: &Slice) {
        let table = self.scheduler.blocks(slice.id).to_vec();
        let cell = |at: usize| table[at / BLOCK_TOKENS] as usize * BLOCK_TOKENS + at % BLOCK_TOKENS;
        let expected = &self.sequences[&slice.id];
        let end = slice.first + slice.count;
        let mut state = u64::from(expected.salt != Salt::default());
        let tokens = expected.tokens[..end].iter().chain(&slice.draft);
        for (at, token) in tokens.enumerate() {
            state = hash(state, *token);
            if at < slice.first {
                assert_eq!(
                    self.cells[cell(at)],
                    state,
                    "the cache holds something else"
                );
                continue;
            }
            let block = table[at / BLOCK_TOKENS];
            let others = self.sequences.keys().filter(|id| **id != slice.id);
            let shared = others
                .clone()
                .any(|id| self.scheduler.blocks(*id).contains(&block));
            assert!(!shared, "a shared block is written");
            self.cells[cell(at)] = state;
        }
    }

    fn sample(&mut self, slice: &Slice) {
        if !slice.last {
            return;
        }
        if slice.draft.is_empty() && self.chance(10) {
            self.sequences.get_mut(&slice.id).unwrap().late = true;
            return;
        }
        if self.overlapped && !self.chance(6) {
            return self.keep_in_flight(slice.id);
        }
        let mut accepted = 0;
        while self.extend(slice.id) {
            let token = self.sequences[&slice.id].tokens.last();
            if slice.draft.get(accepted) != token {
                break;
            }
            accepted += 1;
            self.scheduler.confirm_draft(slice.id);
        }
        if self.sequences.contains_key(&slice.id) {
            self.scheduler.resolve_draft(slice, accepted);
            // Forced tokens.
            for _ in 0..if self.chance(12) { 3 } else { 0 } {
                if accepted < slice.draft.len() || !self.extend(slice.id) {
                    return;
                }
            }
        }
    }

    /// The next token is sampled on the device, and pending for the scheduler.
    fn keep_in_flight(&mut self, id: SequenceId) {
        let expected = self.sequences.get_mut(&id).unwrap();
        if expected.tokens.len() + 1 == expected.tokens_max {
            self.extend(id);
            return;
        }
        expected.tokens.push(successor(&expected.tokens));
        self.scheduler.extend(id, PENDING_TOKEN);
        self.pending.push(id);
    }

    /// Commit the pending tokens of the previous step.
    fn decide(&mut self) {
        for id in std::mem::take(&mut self.pending) {
            let Some(expected) = self.sequences.get(&id) else {
                continue;
            };
            let token = *expected.tokens.last().unwrap();
            self.scheduler.extend(id, token);
            assert_eq!(self.scheduler.tokens(id), expected.tokens);
            self.end_if_complete(id);
        }
    }

    fn sample_late(&mut self) {
        let late = self
            .sequences
            .iter()
            .filter(|(_, expected)| expected.late && !expected.paused);
        let late: Vec<SequenceId> = late.map(|(id, _)| *id).collect();
        for id in late {
            if self.chance(2) {
                self.sequences.get_mut(&id).unwrap().late = false;
                self.extend(id);
            }
        }
    }

    /// Commit the next token. Whether the sequence goes on.
    fn extend(&mut self, id: SequenceId) -> bool {
        let expected = self.sequences.get_mut(&id).unwrap();
        let token = successor(&expected.tokens);
        expected.tokens.push(token);
        self.scheduler.extend(id, token);
        assert_eq!(self.scheduler.tokens(id), expected.tokens);
        self.end_if_complete(id)
    }

    /// Whether the sequence goes on.
    fn end_if_complete(&mut self, id: SequenceId) -> bool {
        let expected = &self.sequences[&id];
        let stops = expected.tokens.len() >= expected.tokens_max
            || expected.tokens.last() == Some(&3) && expected.tokens.len().is_multiple_of(7);
        if stops {
            assert!(self.scheduler.cached_tokens(id) < expected.prompt);
            self.scheduler.remove(id);
            self.sequences.remove(&id);
            self.finished += 1;
        }
        !stops
    }

    /// Run to the end. Returns the scheduler's counters, and the simulation's own: discarded results, steps
    /// that preempted for late masks, and steps with protected blocks.
    fn run(mut self) -> (super::SchedulerTally, [usize; 3]) {
        let mut steps = 0;
        while self.arrivals_left > 0 || !self.sequences.is_empty() {
            self.arrive();
            self.disturb();
            self.branch();
            self.step();
            steps += 1;
            assert!(steps < 20_000, "the sequences wait for one another");
        }
        assert_eq!(self.finished + self.cancelled, self.next_id as usize);
        assert_eq!(self.scheduler.pool().used(), 0, "blocks are left behind");
        assert_eq!(self.scheduler.running() + self.scheduler.preempted(), 0);
        assert_eq!(self.scheduler.queued(), 0);
        let own = [self.discarded, self.unblocked, self.protected];
        (self.scheduler.tally(), own)
    }
}

#[test]
fn random_schedules_keep_every_promise() {
    let wanted = std::env::var("MORTISE_SIMULATIONS").ok();
    let count = wanted.map_or(20_000, |count| {
        count.parse().expect("a number of simulations")
    });
    let (mut all, mut own) = (super::SchedulerTally::default(), [0u64; 3]);
    for seed in 0..count {
        let outcome = std::panic::catch_unwind(|| Simulation::new(seed).run());
        let (tally, counted) = outcome.unwrap_or_else(|_| panic!("simulation {seed} failed"));
        for (sum, count) in own.iter_mut().zip(counted) {
            *sum += count as u64;
        }
        all.hit_tokens += tally.hit_tokens;
        all.preemptions += tally.preemptions;
        all.accepted_tokens += tally.accepted_tokens;
        all.drafted_tokens += tally.drafted_tokens;
        all.recomputed_tokens += tally.recomputed_tokens;
    }
    // What is never exercised is not tested.
    assert!(all.hit_tokens > count && all.preemptions > count && all.recomputed_tokens > count);
    assert!(own.iter().all(|sum| *sum > count / 8), "{own:?}");
    assert!(all.accepted_tokens > count && all.drafted_tokens > all.accepted_tokens);
}
