//! Whole texts through a decoder for their rows rather than for logits: layer by layer, so that the
//! keys and values of one layer only are held at a time.

use std::sync::Arc;

use super::{Decoder, Places};
use crate::error::{InputError, ModelError};
use crate::input::{LogitRows, ModelInput, SequenceInput};
use crate::kv_cache::{BLOCK_TOKENS, KvCache, KvType};
use crate::lora::Adapter;
use crate::spec::ModelSpec;

/// Rows that are computed at a time, which bounds what lies between the products.
const CHUNK_ROWS: usize = 512;

/// A text to compute, and the adapter that is applied to its rows.
#[derive(Debug, Clone, Copy)]
pub struct EmbedText<'a> {
    /// Tokens that the model knows, no more than its context.
    pub tokens: &'a [u32],
    /// An adapter that was checked against the model.
    pub adapter: Option<&'a Arc<Adapter>>,
}

/// Why rows were not computed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RowsError {
    /// A text cannot be computed.
    #[error(transparent)]
    Input(#[from] InputError),
    /// Keys and values of the texts do not fit into memory.
    #[error(transparent)]
    Cache(#[from] ModelError),
}

impl Decoder {
    /// The normalised rows of all tokens of all texts, text after text: `hidden` numbers each. A
    /// text's rows do not depend on the other texts.
    pub(crate) fn rows_of(&self, texts: &[EmbedText<'_>]) -> Result<Vec<f32>, RowsError> {
        let blocks = texts.iter();
        let blocks = blocks.map(|text| text.tokens.len().div_ceil(BLOCK_TOKENS));
        let one_layer = ModelSpec {
            layers: 1,
            ..self.spec.clone()
        };
        let mut cache = KvCache::new(&one_layer, blocks.sum(), KvType::F32)?;
        let inputs = chunks(texts);
        let places: Vec<Places> = inputs.iter().map(Places::new).collect();
        let mut parts = Vec::new();
        for (input, places) in inputs.iter().zip(&places) {
            input.check(&self.spec, cache.blocks())?;
            let hidden = self.embed_tokens(input.tokens());
            parts.push((places.batch(&self.spec, input), hidden));
        }
        for layer in &self.layers {
            for (batch, hidden) in &mut parts {
                // Earlier parts of a text come first, and leave keys and values of this layer.
                layer.forward(batch, &mut cache.layers_mut()[0], hidden);
            }
        }
        let rows: Vec<f32> = parts.into_iter().flat_map(|(_, hidden)| hidden).collect();
        Ok(self.final_norm.apply(&rows))
    }
}

/// The texts in batches of at most [`CHUNK_ROWS`] rows; a longer text goes on in the next. Each text
/// has blocks of its own.
fn chunks(texts: &[EmbedText<'_>]) -> Vec<ModelInput> {
    let mut inputs = Vec::new();
    let mut input = ModelInput::new();
    let mut blocks = 0;
    for EmbedText {
        tokens: text,
        adapter,
    } in texts
    {
        let table: Vec<u32> = (blocks..).take(text.len().div_ceil(BLOCK_TOKENS)).collect();
        blocks += table.len() as u32;
        let mut done = 0;
        while done < text.len() {
            let room = CHUNK_ROWS - input.rows();
            let tokens = &text[done..text.len().min(done + room)];
            let part = SequenceInput {
                tokens,
                first_position: done,
                block_table: &table,
                logits: LogitRows::None,
            };
            match adapter {
                Some(adapter) => input.push_adapted(part, adapter),
                None => input.push(part),
            }
            done += tokens.len();
            if input.rows() == CHUNK_ROWS {
                inputs.push(std::mem::take(&mut input));
            }
        }
    }
    if !input.is_empty() {
        inputs.push(input);
    }
    inputs
}
