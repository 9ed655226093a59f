//! The decoder: one implementation for all families, driven by the [`ModelSpec`].

mod whole_texts;

pub use whole_texts::{EmbedText, RowsError};

use mortise_kernels::attention::AttentionRow;
use mortise_kernels::linear::{Activations, LogitScale, Scores, WantedLogits};

use crate::batch::BatchLayout;
use crate::checkpoint::Checkpoint;
use crate::error::{InputError, ModelError};
use crate::folder::{CONFIG_FILE, ModelFolder};
use crate::input::ModelInput;
use crate::kv_cache::{BLOCK_TOKENS, CachePlan, KvCache};
use crate::layers::Layer;
use crate::linear::{Linear, Table};
use crate::loader::Loader;
use crate::norm::Norm;
use crate::spec::ModelSpec;
use crate::weights::WeightPrecision;

/// A loaded model. Immutable: each call brings the KV cache.
#[derive(Debug)]
pub struct Decoder {
    spec: ModelSpec,
    vocabulary: Vocabulary,
    layers: Vec<Layer>,
    final_norm: Norm,
}

/// The matrices with a row for each token.
#[derive(Debug)]
enum Vocabulary {
    /// One is embedding and head.
    Tied(Linear),
    /// The embedding, and the head unless no logits are computed.
    Apart(Table, Option<Linear>),
}

/// Scores of all tokens, for each row that asked for them.
#[derive(Debug, Clone, PartialEq)]
pub struct Logits {
    values: Vec<f32>,
    vocabulary: usize,
}

impl Logits {
    /// Rows of `vocabulary` scores each. Numbers that fill no row are dropped.
    pub fn new(mut values: Vec<f32>, vocabulary: usize) -> Self {
        let vocabulary = vocabulary.max(1);
        values.truncate(values.len() / vocabulary * vocabulary);
        Self { values, vocabulary }
    }

    /// Rows, in the order of the batch.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[f32]> {
        self.values.chunks_exact(self.vocabulary)
    }
}

impl From<Logits> for Scores {
    fn from(logits: Logits) -> Self {
        Self::whole(logits.values, logits.vocabulary)
    }
}

impl Decoder {
    /// Read a model's files and check them.
    pub fn load(folder: &ModelFolder, precision: WeightPrecision) -> Result<Self, ModelError> {
        Self::load_parts(folder, precision, true)
    }

    /// Read a model that computes no logits.
    pub(crate) fn load_headless(
        folder: &ModelFolder,
        precision: WeightPrecision,
    ) -> Result<Self, ModelError> {
        Self::load_parts(folder, precision, false)
    }

    /// Read a model that computes logits of a few tokens only, with the rows of the head for these. Tokens that the
    /// model does not know are refused.
    pub(crate) fn load_for_tokens(
        folder: &ModelFolder,
        precision: WeightPrecision,
        tokens: &[u32],
    ) -> Result<(Self, Vec<f32>), ModelError> {
        let model = Self::load_headless(folder, precision)?;
        let spec = &model.spec;
        if let Some(token) = tokens.iter().find(|id| **id as usize >= spec.vocabulary) {
            return Err(ModelError::Field {
                file: CONFIG_FILE.to_owned(),
                field: "vocab_size".to_owned(),
                problem: format!("is {}; the tokenizer has token {token}", spec.vocabulary),
            });
        }
        let rows = match &model.vocabulary {
            Vocabulary::Apart(table, _) if spec.tied_embeddings => table.gather(tokens),
            Vocabulary::Tied(matrix) => matrix.gather(tokens),
            Vocabulary::Apart(..) => {
                let checkpoint = Checkpoint::open(folder)?;
                let names = spec.architecture.family().names;
                let loader = Loader {
                    checkpoint: &checkpoint,
                    spec,
                    names,
                    precision: precision.of_vocabulary(),
                };
                let head = loader.table(names.head, spec.vocabulary, spec.hidden)?;
                head.gather(tokens)
            }
        };
        Ok((model, rows))
    }

    fn load_parts(
        folder: &ModelFolder,
        precision: WeightPrecision,
        with_head: bool,
    ) -> Result<Self, ModelError> {
        let mut spec = ModelSpec::read(folder)?;
        let checkpoint = Checkpoint::open(folder)?;
        for rope in &mut spec.ropes {
            rope.divisors = checkpoint.rope_divisors(rope.turned / 2)?;
        }
        let names = spec.architecture.family().names;
        let loader = Loader {
            checkpoint: &checkpoint,
            spec: &spec,
            names,
            precision,
        };
        let of_vocabulary = Loader {
            precision: precision.of_vocabulary(),
            ..loader
        };
        let (rows, hidden) = (spec.vocabulary, spec.hidden);
        let matrix = |name: &str| of_vocabulary.matrix(name.to_owned(), rows, hidden, false);
        let vocabulary = if spec.tied_embeddings && with_head {
            Vocabulary::Tied(matrix(names.embedding)?)
        } else {
            let table = of_vocabulary.table(names.embedding, rows, hidden)?;
            let head = with_head.then(|| matrix(names.head)).transpose()?;
            Vocabulary::Apart(table, head)
        };
        // The number of layers is bounded, yet nothing is reserved for layers that may be missing.
        let mut layers = Vec::new();
        for number in 0..spec.layers {
            layers.push(Layer::load(&loader, number)?);
        }
        let final_norm = loader.norm(names.final_norm, spec.hidden)?;
        Ok(Self {
            vocabulary,
            layers,
            final_norm,
            spec,
        })
    }

    /// The shape of the model.
    pub fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    /// Serve texts of at most `tokens` tokens, where the model was made for more. Models whose
    /// positions are stretched for long texts only compute better so.
    pub fn limit_context(&mut self, tokens: usize) {
        self.spec.context = self.spec.context.min(tokens.max(1));
    }

    /// Compute a batch: store keys and values of its tokens in the cache and return the logits that
    /// it asks for, row by row in the order of the batch.
    pub fn forward(&self, input: &ModelInput, cache: &mut KvCache) -> Result<Logits, InputError> {
        let all = || vec![WantedLogits::All; input.logit_rows().len()];
        let scores = self.score(input, cache, all)?;
        Ok(Logits::new(scores.into_values(), self.spec.vocabulary))
    }

    /// Compute a batch as [`forward`](Self::forward) does, and of each row of logits that it asks for find
    /// what is wanted of it; the others are written nowhere. That is asked when the layers are computed:
    /// masks may be made meanwhile.
    ///
    /// # Panics
    /// If there are not as many wishes as rows.
    pub fn score(
        &self,
        input: &ModelInput,
        cache: &mut KvCache,
        wanted: impl FnOnce() -> Vec<WantedLogits>,
    ) -> Result<Scores, InputError> {
        let hidden = self.run_layers(input, cache)?;
        let Some((head, rows)) = self.head_rows(&hidden, input) else {
            return Ok(Scores::whole(Vec::new(), self.spec.vocabulary));
        };
        let scale = LogitScale {
            scale: self.spec.logit_scale,
            soft_cap: self.spec.logit_soft_cap,
        };
        Ok(head.scores(&rows, scale, &wanted()))
    }

    /// The hidden values of all rows of a batch behind the last layer.
    fn run_layers(&self, input: &ModelInput, cache: &mut KvCache) -> Result<Vec<f32>, InputError> {
        if !cache.fits(&self.spec) {
            return Err(InputError::Cache);
        }
        input.check(&self.spec, cache.blocks())?;
        let places = Places::new(input);
        let batch = places.batch(&self.spec, input);
        let mut hidden = self.embed_tokens(input.tokens());
        for (layer, cache) in self.layers.iter().zip(cache.layers_mut()) {
            layer.forward(&batch, cache, &mut hidden);
        }
        Ok(hidden)
    }

    /// The rows that stand for tokens.
    fn embed_tokens(&self, tokens: &[u32]) -> Vec<f32> {
        let mut hidden = match &self.vocabulary {
            Vocabulary::Tied(matrix) => matrix.gather(tokens),
            Vocabulary::Apart(table, _) => table.gather(tokens),
        };
        if self.spec.embedding_scale != 1.0 {
            for value in &mut hidden {
                *value *= self.spec.embedding_scale;
            }
        }
        hidden
    }

    /// The head, if there is one, and what it multiplies: the normalised rows whose logits are asked for.
    fn head_rows(
        &self,
        hidden: &[f32],
        input: &ModelInput,
    ) -> Option<(&Linear, Activations<'static>)> {
        let (Vocabulary::Tied(head) | Vocabulary::Apart(_, Some(head))) = &self.vocabulary else {
            return None;
        };
        let width = self.spec.hidden;
        let rows = input.logit_rows();
        let wanted: Vec<f32> = rows
            .iter()
            .flat_map(|row| &hidden[row * width..][..width])
            .copied()
            .collect();
        let normed = Activations::normed(&wanted, self.final_norm.op(), head.forms());
        Some((head, normed))
    }
}

/// Cache slots of the rows of a batch, and the positions that they attend to.
struct Places {
    rows: Vec<AttentionRow>,
    slots: Vec<(usize, usize)>,
}

impl Places {
    fn new(input: &ModelInput) -> Self {
        let rows = input.attention_rows();
        let tables = input.block_tables();
        let slots = rows
            .iter()
            .map(|row| {
                let block = tables[row.first_block + row.position / BLOCK_TOKENS];
                (block as usize, row.position % BLOCK_TOKENS)
            })
            .collect();
        Self { rows, slots }
    }

    /// The batch with its rotary tables, as layers read it.
    fn batch<'a>(&'a self, spec: &'a ModelSpec, input: &'a ModelInput) -> BatchLayout<'a> {
        let positions: Vec<u32> = self.rows.iter().map(|row| row.position as u32).collect();
        let growth = spec.attention.query_growth;
        BatchLayout {
            adapted: input.adapted(),
            spec,
            plan: CachePlan {
                slots: &self.slots,
                block_tables: input.block_tables(),
                rows: &self.rows,
            },
            ropes: spec
                .ropes
                .iter()
                .map(|rope| rope.table(&positions, spec.context))
                .collect(),
            query_factors: growth
                .map(|growth| positions.iter().map(|p| growth.factor(*p)).collect()),
        }
    }
}
