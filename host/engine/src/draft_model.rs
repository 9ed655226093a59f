//! Guesses by a smaller model (speculative decoding: Leviathan et al., 2023), which reads the same
//! tokens into a cache of its own and goes on alone for a few.
//!
//! Guesses count only if they are what the sampler takes from the large model's logits. The draft
//! model therefore chooses with a copy of the sequence's sampler: with the same random numbers, two
//! models that agree on what is likely choose alike at any temperature.
//!
//! What the draft model has computed of wrong guesses is forgotten by counting: the next tokens are
//! written over them. Its prompts are found in its own prefix cache, as those of the large model are.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use mortise_kernels::linear::{RowLogits, Scores, WantedLogits};
use mortise_model::{BLOCK_TOKENS, LogitRows, ModelInput, SequenceInput};

use crate::block_pool::{BlockPool, Salt};
use crate::cached_prefix::CachedPrefix;
use crate::forward::ForwardPass;
use crate::sampler::Sampler;
use crate::scheduler::SequenceId;
use crate::sequence::panic_message;

/// A sequence that has room for a guess.
pub(crate) struct Wanted<'a> {
    pub(crate) id: SequenceId,
    /// All its tokens, at least one.
    pub(crate) tokens: &'a [u32],
    /// Most tokens to guess.
    pub(crate) room: usize,
    /// Who may share its blocks.
    pub(crate) salt: Salt,
    /// A copy, which the guesses use up.
    pub(crate) sampler: Sampler,
    /// Nothing follows these.
    pub(crate) stop_tokens: &'a [u32],
    /// Tokens that the large model knows.
    pub(crate) vocabulary: usize,
}

/// A draft model with its cache.
pub(crate) struct DraftModel {
    model: Box<dyn ForwardPass>,
    pool: BlockPool,
    sequences: BTreeMap<SequenceId, Followed>,
    /// Most tokens in a forward pass.
    step_tokens: usize,
    steps: u64,
    /// Calls of `propose` so far, which tell what was used how recently.
    calls: u64,
    /// It failed, and is not asked again.
    broken: bool,
}

/// How far the draft model has followed a sequence.
struct Followed {
    kv: CachedPrefix,
    /// Guesses whose keys and values follow those of the known tokens.
    ahead: Vec<u32>,
    last_call: u64,
}

/// A guess that may go on.
struct Going {
    /// Which of the wanted.
    index: usize,
    /// Most tokens of it.
    most: usize,
}

impl DraftModel {
    pub(crate) fn new(model: Box<dyn ForwardPass>, step_tokens: usize) -> Self {
        let pool = BlockPool::new(model.cache_blocks(), BLOCK_TOKENS, true);
        Self {
            model,
            pool,
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

    /// Forget the sequences that are gone. Their full blocks stay in the cache until room is needed.
    pub(crate) fn retain(&mut self, lives: impl Fn(SequenceId) -> bool) {
        let pool = &mut self.pool;
        self.sequences.retain(|id, followed| {
            let lives = lives(*id);
            if !lives {
                followed.kv.give_up(pool);
            }
            lives
        });
    }

    /// For each of `wanted` a guess, which is empty where the draft model has yet to read the prompt,
    /// has no room or cannot tell. All sequences go through the model together.
    pub(crate) fn propose(&mut self, mut wanted: Vec<Wanted<'_>>) -> Vec<Vec<u32>> {
        let mut guesses: Vec<Vec<u32>> = wanted.iter().map(|_| Vec::new()).collect();
        if self.broken {
            return guesses;
        }
        self.calls += 1;
        if let Err(error) = self.guess(&mut wanted, &mut guesses) {
            tracing::error!(%error, "the draft model failed; speculation is off from now on");
            self.broken = true;
            self.retain(|_| false);
        }
        guesses
    }

    fn guess(&mut self, wanted: &mut [Wanted<'_>], guesses: &mut [Vec<u32>]) -> Result<(), String> {
        let mut going = self.read(wanted, guesses)?;
        loop {
            going.retain(|going| guesses[going.index].len() < going.most);
            if going.is_empty() {
                return Ok(());
            }
            let mut input = ModelInput::new();
            for Going { index, .. } in &going {
                let (wanted, guess) = (&wanted[*index], &guesses[*index]);
                let Some(followed) = self.sequences.get_mut(&wanted.id) else {
                    return Err("it lost track of a sequence".to_owned());
                };
                let last = guess.len() - 1;
                input.push(SequenceInput {
                    tokens: &guess[last..],
                    first_position: wanted.tokens.len() + last,
                    block_table: &followed.kv.table,
                    logits: LogitRows::Last,
                });
                followed.ahead.extend(&guess[last..]);
            }
            let wishes = going
                .iter()
                .map(|going| wanted[going.index].wish(&*self.model));
            let mut scores = self.score(&input, wishes.collect())?;
            let mut rows = scores.rows_mut();
            going.retain(|going| {
                let row = rows.next();
                row.is_some_and(|row| wanted[going.index].choose(row, &mut guesses[going.index]))
            });
        }
    }

    /// Compute the tokens that are new since the last time, and choose the first guesses.
    fn read(
        &mut self,
        wanted: &mut [Wanted<'_>],
        guesses: &mut [Vec<u32>],
    ) -> Result<Vec<Going>, String> {
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
        let wishes = asking.map(|(index, ..)| wanted[*index].wish(&*self.model));
        let mut scores = self.score(&input, wishes.collect())?;
        let mut rows = scores.rows_mut();
        let mut going = Vec::new();
        for (index, end, most) in read {
            let wanted = &mut wanted[index];
            if let Some(followed) = self.sequences.get_mut(&wanted.id) {
                followed.kv.computed = end;
                followed.kv.commit(wanted.tokens, &mut self.pool);
            }
            if let Some(most) = most
                && let Some(row) = rows.next()
                && wanted.choose(row, &mut guesses[index])
            {
                going.push(Going { index, most });
            }
        }
        Ok(going)
    }

    /// Where to go on with a sequence: the first token to compute, how many, and the most to guess
    /// afterwards. `None` where nothing can be done for it now.
    fn prepare(
        &mut self,
        wanted: &Wanted<'_>,
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
        let followed = self.sequences.entry(wanted.id).or_insert_with(|| Followed {
            kv: CachedPrefix::new(wanted.salt.clone()),
            ahead: Vec::new(),
            last_call: 0,
        });
        followed.last_call = self.calls;
        let behind = &tokens[followed.kv.computed..];
        let right = followed.ahead.iter().zip(behind);
        let right = right.take_while(|(guess, token)| guess == token).count();
        followed.ahead.clear();
        // The last token is computed for its logits, again if need be.
        followed.kv.computed = (followed.kv.computed + right).min(tokens.len() - 1);
        followed.kv.advance(tokens, &mut self.pool);
        let first = followed.kv.computed;
        if first < followed.kv.committed * BLOCK_TOKENS {
            // Nothing is new, and what others may read is not written again.
            return None;
        }
        let known = self.model.vocabulary();
        if tokens[first..].iter().any(|token| *token as usize >= known) {
            return None;
        }
        let count = (tokens.len() - first).min(left);
        let end = if first + count == tokens.len() {
            // The last guess is not computed.
            tokens.len() + most - 1
        } else {
            first + count
        };
        self.find_blocks(wanted.id, end, ids)
            .then_some((first, count, most))
    }

    /// Give a sequence blocks for `tokens` tokens, if need be those of sequences that guess nothing
    /// now, the least recently used first.
    fn find_blocks(&mut self, id: SequenceId, tokens: usize, ids: &[SequenceId]) -> bool {
        let needed = self.pool.blocks_for(tokens);
        loop {
            let Some(followed) = self.sequences.get_mut(&id) else {
                return false;
            };
            if followed.kv.table.len() >= needed {
                return true;
            }
            if let Some(block) = self.pool.take() {
                followed.kv.table.push(block);
                continue;
            }
            let idle = self
                .sequences
                .iter()
                .filter(|(other, followed)| !ids.contains(other) && !followed.kv.table.is_empty())
                .min_by_key(|(_, followed)| followed.last_call);
            let Some(idle) = idle.map(|(idle, _)| *idle) else {
                return false;
            };
            if let Some(mut idle) = self.sequences.remove(&idle) {
                idle.kv.give_up(&mut self.pool);
            }
        }
    }

    /// One forward pass, fenced.
    fn score(&mut self, input: &ModelInput, wishes: Vec<WantedLogits>) -> Result<Scores, String> {
        let model = &mut self.model;
        let mut wanted = || wishes.clone();
        let scores = catch_unwind(AssertUnwindSafe(|| model.score(input, &mut wanted)))
            .map_err(|panic| format!("it panicked: {}", panic_message(&*panic)))?
            .map_err(|error| error.to_string())?;
        let (rows, found) = (wishes.len(), scores.len());
        if found != rows {
            return Err(format!("it gave {found} rows of logits for {rows}"));
        }
        self.steps += 1;
        Ok(scores)
    }
}

impl Wanted<'_> {
    /// What is wanted of a row of logits.
    fn wish(&self, model: &dyn ForwardPass) -> WantedLogits {
        // Some models have rows beyond the last token, and not equally many.
        match self.sampler.takes_likeliest() && model.vocabulary() <= self.vocabulary {
            true => WantedLogits::Highest(None),
            false => WantedLogits::All,
        }
    }

    /// Choose the next token of a guess as the sequence would. Whether another may come after it.
    fn choose(&mut self, row: RowLogits<'_>, guess: &mut Vec<u32>) -> bool {
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
        guess.push(token.id);
        !self.stop_tokens.contains(&token.id)
    }
}
