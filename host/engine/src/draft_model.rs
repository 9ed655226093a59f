//! Speculative decoding with a draft model (Leviathan et al., 2023): a smaller model reads the same tokens
//! into a cache of its own and runs ahead for a few tokens.
//!
//! A draft token counts only if the sampler takes it from the large model's logits. The draft model
//! therefore samples with a copy of the sequence's sampler: with the same random numbers, two models that
//! agree on what is likely sample alike at any temperature.
//!
//! Keys and values of rejected draft tokens are discarded by moving back the count of computed tokens;
//! the next tokens overwrite them. Prompts are found in the draft model's own prefix cache.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use mortise_kernels::linear::{RowLogits, Scores, WantedLogits};
use mortise_model::{BLOCK_TOKENS, LogitRows, ModelInput, SequenceInput};

use crate::block_pool::{BlockPool, Salt};
use crate::cache_shares::AccountId;
use crate::cached_prefix::CachedPrefix;
use crate::forward::ForwardPass;
use crate::panics::panic_message;
use crate::sampler::Sampler;
use crate::scheduler::SequenceId;

/// A sequence that has room for draft tokens.
pub(crate) struct DraftRequest<'a> {
    pub(crate) id: SequenceId,
    /// All its tokens, at least one.
    pub(crate) tokens: &'a [u32],
    /// Most draft tokens.
    pub(crate) room: usize,
    /// Salt of its prefix.
    pub(crate) salt: Salt,
    /// A copy of its sampler, which drafting advances.
    pub(crate) sampler: Sampler,
    /// Tokens that end it.
    pub(crate) stop_tokens: &'a [u32],
    /// Vocabulary of the large model.
    pub(crate) vocabulary: usize,
}

/// A draft model with its cache.
pub(crate) struct DraftModel {
    model: Box<dyn ForwardPass>,
    pool: BlockPool,
    /// All blocks count for one account.
    account: AccountId,
    sequences: BTreeMap<SequenceId, DraftSequence>,
    /// Most tokens in a forward pass.
    step_tokens: usize,
    steps: u64,
    /// Calls of `propose` so far, the clock of least-recently-used eviction.
    calls: u64,
    /// Set when it failed: it is not called again.
    broken: bool,
}

/// The draft model's state of a sequence.
struct DraftSequence {
    kv: CachedPrefix,
    /// Draft tokens whose keys and values follow those of the known tokens.
    ahead: Vec<u32>,
    last_call: u64,
}

/// A draft that is being extended.
struct ActiveDraft {
    /// Index of the request.
    index: usize,
    /// Most tokens of the draft.
    most: usize,
}

impl DraftModel {
    pub(crate) fn new(model: Box<dyn ForwardPass>, step_tokens: usize) -> Self {
        let mut pool = BlockPool::new(model.cache_blocks(), BLOCK_TOKENS, true);
        let account = pool.enter(&Arc::from(""), 1);
        Self {
            model,
            pool,
            account,
            sequences: BTreeMap::new(),
            step_tokens,
            steps: 0,
            calls: 0,
            broken: false,
        }
    }

    pub(crate) fn steps(&self) -> u64 {
        self.steps
    }

    /// Forget all sequences and what is cached of them.
    pub(crate) fn begin_anew(&mut self) {
        self.sequences.clear();
        self.pool = self.pool.anew();
        self.account = self.pool.enter(&Arc::from(""), 1);
    }

    /// Drop sequences that have ended. Their full blocks stay in the cache until they are evicted.
    pub(crate) fn retain(&mut self, lives: impl Fn(SequenceId) -> bool) {
        let pool = &mut self.pool;
        self.sequences.retain(|id, sequence| {
            let lives = lives(*id);
            if !lives {
                sequence.kv.release(pool);
            }
            lives
        });
    }

    /// A draft for each request, which is empty where the draft model is still in prefill, has no room or
    /// failed. All sequences share each forward pass.
    pub(crate) fn propose(&mut self, mut wanted: Vec<DraftRequest<'_>>) -> Vec<Vec<u32>> {
        let mut drafts: Vec<Vec<u32>> = wanted.iter().map(|_| Vec::new()).collect();
        if self.broken {
            return drafts;
        }
        self.calls += 1;
        if let Err(error) = self.draft(&mut wanted, &mut drafts) {
            tracing::error!(%error, "the draft model failed; speculation is off from now on");
            self.broken = true;
            self.retain(|_| false);
        }
        drafts
    }

    fn draft(
        &mut self,
        wanted: &mut [DraftRequest<'_>],
        drafts: &mut [Vec<u32>],
    ) -> Result<(), String> {
        let mut active = self.read(wanted, drafts)?;
        loop {
            active.retain(|active| drafts[active.index].len() < active.most);
            if active.is_empty() {
                return Ok(());
            }
            let mut input = ModelInput::new();
            for ActiveDraft { index, .. } in &active {
                let (wanted, draft) = (&wanted[*index], &drafts[*index]);
                let Some(sequence) = self.sequences.get_mut(&wanted.id) else {
                    return Err("it lost track of a sequence".to_owned());
                };
                let last = draft.len() - 1;
                input.push(SequenceInput {
                    tokens: &draft[last..],
                    first_position: wanted.tokens.len() + last,
                    block_table: &sequence.kv.table,
                    logits: LogitRows::Last,
                });
                sequence.ahead.extend(&draft[last..]);
            }
            let wanted_logits = active
                .iter()
                .map(|active| wanted[active.index].wanted_logits(&*self.model));
            let mut scores = self.score(&input, wanted_logits.collect())?;
            let mut rows = scores.rows_mut();
            active.retain(|active| {
                let row = rows.next();
                row.is_some_and(|row| wanted[active.index].sample(row, &mut drafts[active.index]))
            });
        }
    }

    /// Compute the tokens that are new since the last call, and sample the first draft tokens.
    fn read(
        &mut self,
        wanted: &mut [DraftRequest<'_>],
        drafts: &mut [Vec<u32>],
    ) -> Result<Vec<ActiveDraft>, String> {
        let ids: Vec<SequenceId> = wanted.iter().map(|wanted| wanted.id).collect();
        let mut input = ModelInput::new();
        let mut left = self.step_tokens;
        let mut read = Vec::new();
        for (index, wanted) in wanted.iter().enumerate() {
            let Some((first, count, most)) = self.prepare(wanted, left, &ids) else {
                continue;
            };
            left -= count;
            let last = first + count == wanted.tokens.len();
            input.push(SequenceInput {
                tokens: &wanted.tokens[first..first + count],
                first_position: first,
                block_table: &self.sequences[&wanted.id].kv.table,
                logits: if last {
                    LogitRows::Last
                } else {
                    LogitRows::None
                },
            });
            read.push((index, first + count, last.then_some(most)));
        }
        if read.is_empty() {
            return Ok(Vec::new());
        }
        let asking = read.iter().filter(|(_, _, most)| most.is_some());
        let wanted_logits = asking.map(|(index, ..)| wanted[*index].wanted_logits(&*self.model));
        let mut scores = self.score(&input, wanted_logits.collect())?;
        let mut rows = scores.rows_mut();
        let mut active = Vec::new();
        for (index, end, most) in read {
            let wanted = &mut wanted[index];
            if let Some(sequence) = self.sequences.get_mut(&wanted.id) {
                sequence.kv.computed = end;
                sequence.kv.commit(wanted.tokens, &mut self.pool);
            }
            if let Some(most) = most
                && let Some(row) = rows.next()
                && wanted.sample(row, &mut drafts[index])
            {
                active.push(ActiveDraft { index, most });
            }
        }
        Ok(active)
    }

    /// The work for a sequence: the first token to compute, how many, and the most draft tokens behind
    /// them. `None` where nothing can be done for it now.
    fn prepare(
        &mut self,
        wanted: &DraftRequest<'_>,
        left: usize,
        ids: &[SequenceId],
    ) -> Option<(usize, usize, usize)> {
        let tokens = wanted.tokens;
        let most = wanted
            .room
            .min(self.model.context_length().saturating_sub(tokens.len()));
        if most == 0 || left == 0 {
            return None;
        }
        let sequence = self
            .sequences
            .entry(wanted.id)
            .or_insert_with(|| DraftSequence {
                kv: CachedPrefix::new(wanted.salt.clone()),
                ahead: Vec::new(),
                last_call: 0,
            });
        sequence.last_call = self.calls;
        let behind = &tokens[sequence.kv.computed..];
        let right = sequence.ahead.iter().zip(behind);
        let right = right.take_while(|(draft, token)| draft == token).count();
        sequence.ahead.clear();
        // The last token is computed for its logits, again if need be.
        sequence.kv.computed = (sequence.kv.computed + right).min(tokens.len() - 1);
        sequence.kv.advance(tokens, &mut self.pool);
        let first = sequence.kv.computed;
        if first < sequence.kv.committed * BLOCK_TOKENS {
            // Nothing is new, and shared blocks are not written again.
            return None;
        }
        let known = self.model.vocabulary();
        if tokens[first..].iter().any(|token| *token as usize >= known) {
            return None;
        }
        let count = (tokens.len() - first).min(left);
        let end = if first + count == tokens.len() {
            // The last draft token is not computed.
            tokens.len() + most - 1
        } else {
            first + count
        };
        self.find_blocks(wanted.id, end, ids)
            .then_some((first, count, most))
    }

    /// Allocate blocks for `tokens` tokens of a sequence, if need be from sequences that are not drafting
    /// now, the least recently used first.
    fn find_blocks(&mut self, id: SequenceId, tokens: usize, ids: &[SequenceId]) -> bool {
        let needed = self.pool.blocks_for(tokens);
        loop {
            let Some(sequence) = self.sequences.get_mut(&id) else {
                return false;
            };
            if sequence.kv.table.len() >= needed {
                return true;
            }
            if let Some(block) = self.pool.take(self.account) {
                sequence.kv.table.push(block);
                continue;
            }
            let idle = self
                .sequences
                .iter()
                .filter(|(other, sequence)| !ids.contains(other) && !sequence.kv.table.is_empty())
                .min_by_key(|(_, sequence)| sequence.last_call);
            let Some(idle) = idle.map(|(idle, _)| *idle) else {
                return false;
            };
            if let Some(mut idle) = self.sequences.remove(&idle) {
                idle.kv.release(&mut self.pool);
            }
        }
    }

    /// One forward pass. A panic becomes an error.
    fn score(
        &mut self,
        input: &ModelInput,
        wanted_logits: Vec<WantedLogits>,
    ) -> Result<Scores, String> {
        let model = &mut self.model;
        let mut wanted = || wanted_logits.clone();
        let scores = catch_unwind(AssertUnwindSafe(|| model.score(input, &mut wanted)))
            .map_err(|panic| format!("it panicked: {}", panic_message(&*panic)))?
            .map_err(|error| error.to_string())?;
        let (rows, found) = (wanted_logits.len(), scores.len());
        if found != rows {
            return Err(format!("it gave {found} rows of logits for {rows}"));
        }
        self.steps += 1;
        Ok(scores)
    }
}

impl DraftRequest<'_> {
    /// The logits that sampling needs.
    fn wanted_logits(&self, model: &dyn ForwardPass) -> WantedLogits {
        // Some models pad their vocabulary, and not equally.
        match self.sampler.is_greedy() && model.vocabulary() <= self.vocabulary {
            true => WantedLogits::Highest(None),
            false => WantedLogits::All,
        }
    }

    /// Sample the next draft token as the sequence would. Returns whether another may follow.
    fn sample(&mut self, row: RowLogits<'_>, draft: &mut Vec<u32>) -> bool {
        let token = match row {
            RowLogits::All(row) => {
                let known = row.len().min(self.vocabulary);
                self.sampler.sample(&mut row[..known], None, None)
            }
            RowLogits::Highest(highest) => Sampler::take_highest(highest),
        };
        let Ok(token) = token else {
            return false;
        };
        self.sampler.observe(token.id);
        draft.push(token.id);
        !self.stop_tokens.contains(&token.id)
    }
}
