//! Whole texts through a decoder for their rows rather than for logits: layer by layer, so that the
//! keys and values of one layer only are held at a time.

use super::{Model, Places};
use crate::error::{InputError, ModelError};
use crate::input::{LogitRows, ModelInput, SequenceInput};
use crate::kv_cache::{BLOCK_TOKENS, KvCache, KvType};
use crate::spec::ModelSpec;

/// Rows that are computed at a time, which bounds what lies between the products.
const CHUNK_ROWS: usize = 512;

/// Why rows were not computed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmbedError {
    /// A text cannot be computed.
    #[error(transparent)]
    Input(#[from] InputError),
    /// Keys and values of the texts do not fit into memory.
    #[error(transparent)]
    Cache(#[from] ModelError),
}

impl Model {
    /// The normalised rows of all tokens of all texts, text after text: `hidden` numbers each. A
    /// text's rows do not depend on the other texts. Texts must have tokens that the model knows, and
    /// no more than its context.
    pub(crate) fn rows_of(&self, texts: &[&[u32]]) -> Result<Vec<f32>, EmbedError> {
        let blocks = texts.iter().map(|text| text.len().div_ceil(BLOCK_TOKENS));
        let one_layer = ModelSpec {
            layers: 1,
            ..self.spec.clone()
        };
        let mut cache = KvCache::new(&one_layer, blocks.sum(), KvType::F32)?;
        let inputs = chunks(texts);
        let places: Vec<Places> = inputs.iter().map(Places::new).collect();
        let mut parts = Vec::new();
        for (input, places) in inputs.iter().zip(&places) {
            input.check(&one_layer, &cache)?;
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
fn chunks(texts: &[&[u32]]) -> Vec<ModelInput> {
    let mut inputs = Vec::new();
    let mut input = ModelInput::new();
    let mut blocks = 0;
    for text in texts {
        let table: Vec<u32> = (blocks..).take(text.len().div_ceil(BLOCK_TOKENS)).collect();
        blocks += table.len() as u32;
        let mut done = 0;
        while done < text.len() {
            let room = CHUNK_ROWS - input.rows();
            let tokens = &text[done..text.len().min(done + room)];
            input.push(SequenceInput {
                tokens,
                first_position: done,
                block_table: &table,
                logits: LogitRows::None,
            });
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
