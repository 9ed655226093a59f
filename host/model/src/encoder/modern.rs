//! Encoders of the ModernBERT family: rotary positions, norms before the branches, gated layers, and attention to near tokens
//! in most layers.

use mortise_kernels::full_attention::full_attention;
use mortise_kernels::gelu::{gelu_in_place, gelu_mul};
use mortise_kernels::layer_norm::layer_norm_in_place;
use mortise_kernels::pool;
use mortise_kernels::rope::{RopeHeads, RopePairs, RopeTable};

use super::modern_spec::{ModernSpec, Reach};
use super::{EncoderText, plain};
use crate::checkpoint::Checkpoint;
use crate::error::{InputError, ModelError};
use crate::folder::ModelFolder;
use crate::linear::{Linear, Table};
use crate::pooling::PoolingSpec;
use crate::weights::WeightPrecision;

/// Rows that one task turns.
const ROWS_A_TASK: usize = 16;

/// A loaded encoder. Immutable.
#[derive(Debug)]
pub(crate) struct ModernEncoder {
    spec: ModernSpec,
    tokens: Table,
    norm: Vec<f32>,
    layers: Vec<ModernLayer>,
    final_norm: Vec<f32>,
    head: Option<ModernHead>,
}

#[derive(Debug)]
struct ModernLayer {
    reach: Reach,
    /// None in the first layer, since the embedding is normalised.
    attention_norm: Option<Vec<f32>>,
    qkv: Linear,
    attention_output: Linear,
    feed_forward_norm: Vec<f32>,
    gate_up: Linear,
    down: Linear,
}

/// From a row to the score of a pair.
#[derive(Debug)]
struct ModernHead {
    dense: Linear,
    norm: Vec<f32>,
    label: Vec<f32>,
    bias: f32,
}

/// Reads tensors whose names begin alike.
#[derive(Clone, Copy)]
struct Reader<'a> {
    checkpoint: &'a Checkpoint,
    prefix: &'static str,
    precision: WeightPrecision,
    spec: &'a ModernSpec,
}

impl Reader<'_> {
    fn table(&self, name: &str, rows: usize) -> Result<Table, ModelError> {
        let (weight, inputs) = (format!("{}{name}.weight", self.prefix), self.spec.hidden);
        let shape = [rows, inputs];
        let numbers = self
            .checkpoint
            .load_table(&weight, &shape, self.precision)?;
        Ok(Table { numbers, inputs })
    }

    fn matrix(&self, name: &str, outputs: usize, inputs: usize) -> Result<Linear, ModelError> {
        let (weight, shape) = (format!("{}{name}.weight", self.prefix), [outputs, inputs]);
        let numbers = self.checkpoint.load(&weight, &shape, self.precision)?;
        Linear::new(numbers, None, outputs, inputs)
    }

    fn norm(&self, name: &str) -> Result<Vec<f32>, ModelError> {
        let weight = format!("{}{name}.weight", self.prefix);
        self.checkpoint.load_vector(&weight, self.spec.hidden)
    }

    fn layer(&self, number: usize, reach: Reach) -> Result<ModernLayer, ModelError> {
        let (hidden, wide) = (self.spec.hidden, self.spec.intermediate);
        let name = |part: &str| format!("layers.{number}.{part}");
        let normed = number > 0;
        Ok(ModernLayer {
            reach,
            attention_norm: normed.then(|| self.norm(&name("attn_norm"))).transpose()?,
            qkv: self.matrix(&name("attn.Wqkv"), 3 * hidden, hidden)?,
            attention_output: self.matrix(&name("attn.Wo"), hidden, hidden)?,
            feed_forward_norm: self.norm(&name("mlp_norm"))?,
            gate_up: self.matrix(&name("mlp.Wi"), 2 * wide, hidden)?,
            down: self.matrix(&name("mlp.Wo"), hidden, wide)?,
        })
    }

    fn head(&self) -> Result<ModernHead, ModelError> {
        let hidden = self.spec.hidden;
        let bias = self.checkpoint.load_vector("classifier.bias", 1)?;
        Ok(ModernHead {
            dense: self.matrix("head.dense", hidden, hidden)?,
            norm: self.norm("head.norm")?,
            label: self.table("classifier", 1)?.gather(&[0]),
            bias: bias.first().copied().unwrap_or_default(),
        })
    }
}

impl ModernEncoder {
    /// Read a model's files and check them.
    pub(crate) fn load(
        folder: &ModelFolder,
        precision: WeightPrecision,
    ) -> Result<Self, ModelError> {
        let spec = ModernSpec::read(folder)?;
        let checkpoint = Checkpoint::open(folder)?;
        let whole = Reader {
            checkpoint: &checkpoint,
            prefix: "",
            precision,
            spec: &spec,
        };
        const TOKENS: &str = "embeddings.tok_embeddings";
        // Models with a head on top have their encoder under a name.
        let (reader, tokens) = match whole.table(TOKENS, spec.vocabulary) {
            Err(ModelError::MissingTensor { .. }) => {
                let prefix = "model.";
                let reader = Reader { prefix, ..whole };
                (reader, reader.table(TOKENS, spec.vocabulary)?)
            }
            tokens => (whole, tokens?),
        };
        let mut layers = Vec::new();
        for (number, reach) in spec.layers.iter().enumerate() {
            layers.push(reader.layer(number, *reach)?);
        }
        Ok(Self {
            tokens,
            norm: reader.norm("embeddings.norm")?,
            layers,
            final_norm: reader.norm("final_norm")?,
            head: spec.ranks.map(|_| whole.head()).transpose()?,
            spec,
        })
    }

    /// The shape of the model.
    pub(crate) fn spec(&self) -> &ModernSpec {
        &self.spec
    }

    /// Make other vectors than the files say.
    pub(crate) fn set_pooling(&mut self, pooling: PoolingSpec) {
        self.spec.pooling = pooling;
    }

    /// Take texts of at most `tokens` tokens, where the model was made for more.
    pub(crate) fn limit_context(&mut self, tokens: usize) {
        self.spec.context = self.spec.context.min(tokens.max(1));
    }

    /// One vector for each text, in order. A text's vector does not depend on the others.
    pub(crate) fn embed(&self, texts: &[&[u32]]) -> Result<Vec<Vec<f32>>, InputError> {
        self.pooled(texts, self.spec.pooling)
    }

    /// One score for each pair of texts, in order, before any function of it; none without a head.
    pub(crate) fn score(&self, pairs: &[EncoderText<'_>]) -> Result<Vec<f32>, InputError> {
        let (Some(head), Some(pooling)) = (&self.head, self.spec.ranks) else {
            return Ok(Vec::new());
        };
        let texts: Vec<&[u32]> = pairs.iter().map(|pair| pair.tokens).collect();
        let pooling = PoolingSpec {
            pooling,
            normalised: false,
        };
        let rows = self.pooled(&texts, pooling)?.concat();
        let mut made = head.dense.apply(&rows);
        gelu_in_place(&mut made);
        self.normalise(&mut made, &head.norm);
        let scores = made.chunks_exact(self.spec.hidden).map(|row| {
            let products = row.iter().zip(&head.label);
            let sum: f64 = products
                .map(|(value, weight)| f64::from(*value) * f64::from(*weight))
                .sum();
            (sum + f64::from(head.bias)) as f32
        });
        Ok(scores.collect())
    }

    fn pooled(&self, texts: &[&[u32]], pooling: PoolingSpec) -> Result<Vec<Vec<f32>>, InputError> {
        let hidden = self.rows(texts)?;
        let mut rows = hidden.chunks_exact(self.spec.hidden);
        let vectors = texts.iter().map(|text| {
            let rows: Vec<&[f32]> = rows.by_ref().take(text.len()).collect();
            pooling.apply(&rows)
        });
        Ok(vectors.collect())
    }

    /// Rows of all tokens behind the last norm, text after text.
    fn rows(&self, texts: &[&[u32]]) -> Result<Vec<f32>, InputError> {
        let spec = &self.spec;
        for text in texts {
            super::check(text, spec.context, spec.vocabulary)?;
        }
        let lengths: Vec<usize> = texts.iter().map(|text| text.len()).collect();
        let mut hidden = self.tokens.gather(&texts.concat());
        self.normalise(&mut hidden, &self.norm);
        let positions: Vec<u32> = lengths
            .iter()
            .flat_map(|length| 0..u32::try_from(*length).unwrap_or(u32::MAX))
            .collect();
        let mut tables: Vec<(f64, RopeTable)> = Vec::new();
        for layer in &self.layers {
            let theta = layer.reach.theta;
            if tables.iter().all(|(known, _)| *known != theta) {
                let frequencies = frequencies(theta, spec.hidden / spec.heads);
                tables.push((theta, RopeTable::new(&positions, &frequencies, 1.0)));
            }
            let table = tables.iter().find(|(known, _)| *known == theta);
            if let Some((_, table)) = table {
                self.forward(layer, &lengths, table, &mut hidden);
            }
        }
        self.normalise(&mut hidden, &self.final_norm);
        Ok(hidden)
    }

    fn forward(
        &self,
        layer: &ModernLayer,
        lengths: &[usize],
        table: &RopeTable,
        hidden: &mut [f32],
    ) {
        let (heads, head_dim) = (self.spec.heads, self.spec.hidden / self.spec.heads);
        let mut normed = hidden.to_vec();
        if let Some(norm) = &layer.attention_norm {
            self.normalise(&mut normed, norm);
        }
        let mut qkv = layer.qkv.apply(&normed);
        // Queries and keys stand side by side.
        let turned = RopeHeads {
            heads: 2 * heads,
            head_dim,
            first: 0,
            pairs: RopePairs::Halves,
        };
        let stride = 3 * self.spec.hidden;
        pool::for_each_piece(&mut qkv, ROWS_A_TASK * stride, |task, rows| {
            for (row, x) in rows.chunks_exact_mut(stride).enumerate() {
                table.apply_row(task * ROWS_A_TASK + row, x, turned);
            }
        });
        let mut attended = vec![0.0; hidden.len()];
        let within = layer.reach.within;
        full_attention(&qkv, lengths, heads, head_dim, within, &mut attended);
        layer.attention_output.add(attended, plain(hidden));
        normed.copy_from_slice(hidden);
        self.normalise(&mut normed, &layer.feed_forward_norm);
        let both = layer.gate_up.apply(&normed);
        let mut wide = vec![0.0; both.len() / 2];
        gelu_mul(&both, self.spec.intermediate, &mut wide);
        layer.down.add(wide, plain(hidden));
    }

    fn normalise(&self, rows: &mut [f32], weight: &[f32]) {
        let bias = vec![0.0; weight.len()];
        layer_norm_in_place(rows, weight, &bias, self.spec.norm_epsilon);
    }
}

/// Frequencies of the pairs of a head.
fn frequencies(theta: f64, head_dim: usize) -> Vec<f32> {
    let pairs = 0..head_dim / 2;
    pairs
        .map(|pair| theta.powf(-2.0 * pair as f64 / head_dim as f64) as f32)
        .collect()
}
