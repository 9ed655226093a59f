//! A ragged batch: prefill chunks and decode rows of several sequences, side by side.

use std::sync::Arc;

use mortise_kernels::attention::AttentionRow;

use crate::error::InputError;
use crate::kv_cache::BLOCK_TOKENS;
use crate::lora::{AdaptedRows, Adapter};
use crate::spec::ModelSpec;

/// Rows of a sequence that need logits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogitRows {
    /// None: a prefill chunk that is not the last.
    None,
    /// The last row, from which the next token is sampled.
    Last,
    /// Every row.
    All,
}

/// Tokens of one sequence to compute in this batch.
#[derive(Debug, Clone, Copy)]
pub struct SequenceInput<'a> {
    /// Consecutive tokens.
    pub tokens: &'a [u32],
    /// Position of the first of them; the cache holds all before.
    pub first_position: usize,
    /// Blocks of the sequence in order, at least enough for all tokens so far.
    pub block_table: &'a [u32],
    /// Rows that need logits.
    pub logits: LogitRows,
}

/// One part of a batch, read back.
pub type SequenceView<'a> = SequenceInput<'a>;

/// A batch for one forward pass.
#[derive(Debug, Clone, Default)]
pub struct ModelInput {
    tokens: Vec<u32>,
    block_tables: Vec<u32>,
    sequences: Vec<Span>,
    adapted: Vec<AdaptedRows>,
}

/// Range of a sequence's rows in the batch.
#[derive(Debug, Clone, Copy)]
struct Span {
    first_row: usize,
    rows: usize,
    first_position: usize,
    first_block: usize,
    blocks: usize,
    logits: LogitRows,
}

impl ModelInput {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Add a sequence. A sequence may appear once in a batch.
    pub fn push(&mut self, sequence: SequenceInput<'_>) {
        self.sequences.push(Span {
            first_row: self.tokens.len(),
            rows: sequence.tokens.len(),
            first_position: sequence.first_position,
            first_block: self.block_tables.len(),
            blocks: sequence.block_table.len(),
            logits: sequence.logits,
        });
        self.tokens.extend_from_slice(sequence.tokens);
        self.block_tables.extend_from_slice(sequence.block_table);
    }

    /// Add a sequence whose rows an adapter is applied to.
    pub fn push_adapted(&mut self, sequence: SequenceInput<'_>, adapter: &Arc<Adapter>) {
        let first = self.rows();
        self.push(sequence);
        let rows = first..self.rows();
        let number = adapter.number();
        let mut groups = self.adapted.iter_mut();
        match groups.find(|group| group.adapter.number() == number) {
            Some(group) => group.rows.extend(rows),
            None => self.adapted.push(AdaptedRows {
                adapter: Arc::clone(adapter),
                rows: rows.collect(),
            }),
        }
    }

    /// Adapters with the rows that they are applied to.
    pub(crate) fn adapted(&self) -> &[AdaptedRows] {
        &self.adapted
    }

    /// Rows in all.
    pub fn rows(&self) -> usize {
        self.tokens.len()
    }

    /// Whether there is nothing to compute.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// The parts of the batch, in the order in which they were added.
    pub fn sequences(&self) -> impl Iterator<Item = SequenceView<'_>> {
        self.sequences.iter().map(|span| SequenceView {
            tokens: &self.tokens[span.first_row..][..span.rows],
            first_position: span.first_position,
            block_table: &self.block_tables[span.first_block..][..span.blocks],
            logits: span.logits,
        })
    }

    pub(crate) fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    pub(crate) fn block_tables(&self) -> &[u32] {
        &self.block_tables
    }

    /// The rows whose logits are wanted, ascending.
    pub(crate) fn logit_rows(&self) -> Vec<usize> {
        let rows = self.sequences.iter().flat_map(|span| {
            let last = span.first_row + span.rows;
            match span.logits {
                LogitRows::None => last..last,
                LogitRows::Last => last.saturating_sub(1).max(span.first_row)..last,
                LogitRows::All => span.first_row..last,
            }
        });
        rows.collect()
    }

    /// The positions that each row attends to.
    pub(crate) fn attention_rows(&self) -> Vec<AttentionRow> {
        let rows = self.sequences.iter().flat_map(|span| {
            (0..span.rows).map(|row| AttentionRow {
                first_block: span.first_block,
                position: span.first_position + row,
                ahead: 0,
            })
        });
        rows.collect()
    }

    /// Check a batch against the shape of the model and a cache of `blocks` blocks.
    pub(crate) fn check(&self, spec: &ModelSpec, blocks: usize) -> Result<(), InputError> {
        let mut adapters = self.adapted.iter().map(|group| &group.adapter);
        if !adapters.all(|adapter| adapter.fits(spec)) {
            return Err(InputError::Adapter);
        }
        let vocabulary = spec.vocabulary;
        if let Some(&token) = self
            .tokens
            .iter()
            .find(|token| **token as usize >= vocabulary)
        {
            return Err(InputError::Token { token, vocabulary });
        }
        if let Some(&block) = self
            .block_tables
            .iter()
            .find(|block| **block as usize >= blocks)
        {
            return Err(InputError::Block { block, blocks });
        }
        for span in &self.sequences {
            let tokens = span.first_position.saturating_add(span.rows);
            if tokens > spec.context {
                return Err(InputError::Context {
                    tokens,
                    context: spec.context,
                });
            }
            if tokens > span.blocks * BLOCK_TOKENS {
                return Err(InputError::BlockTable {
                    tokens,
                    blocks: span.blocks,
                });
            }
        }
        Ok(())
    }
}
