//! Encoders of the BERT family: texts to vectors, and pairs of texts to scores.

mod head;
mod modern;
mod modern_spec;
mod spec;

use mortise_kernels::full_attention::full_attention;
use mortise_kernels::gelu::gelu_in_place;
use mortise_kernels::layer_norm::layer_norm_in_place;

pub(crate) use modern::ModernEncoder;
pub(crate) use modern_spec::ModernSpec;
pub(crate) use spec::check_labels;
pub use spec::{EncoderFamily, EncoderSpec};

use self::head::ClassifierHead;
use crate::checkpoint::Checkpoint;
use crate::error::{InputError, ModelError};
use crate::folder::ModelFolder;
use crate::linear::{Linear, Residual, Table};
use crate::pooling::PoolingSpec;
use crate::weights::WeightPrecision;

/// A loaded encoder. Immutable.
#[derive(Debug)]
pub struct Encoder {
    spec: EncoderSpec,
    tokens: Table,
    positions: Table,
    /// Embeddings of the first two segments, one of which is added to every token.
    segments: [Vec<f32>; 2],
    norm: Norm,
    layers: Vec<EncoderLayer>,
    head: Option<ClassifierHead>,
}

/// One text, or two as one, to be computed.
#[derive(Debug, Clone, Copy)]
pub struct EncoderText<'a> {
    /// Tokens, those around and between the texts included.
    pub tokens: &'a [u32],
    /// First token of the second segment; the number of tokens where all are of the first.
    pub second: usize,
}

impl<'a> EncoderText<'a> {
    /// A single text.
    fn single(tokens: &'a [u32]) -> Self {
        let second = tokens.len();
        Self { tokens, second }
    }
}

#[derive(Debug)]
struct Norm {
    weight: Vec<f32>,
    bias: Vec<f32>,
}

#[derive(Debug)]
struct EncoderLayer {
    qkv: Linear,
    attention_output: Linear,
    attention_norm: Norm,
    up: Linear,
    down: Linear,
    output_norm: Norm,
}

/// Reads tensors whose names begin alike.
struct Reader<'a> {
    checkpoint: &'a Checkpoint,
    prefix: &'static str,
    precision: WeightPrecision,
}

impl Reader<'_> {
    /// A matrix that rows are copied from.
    fn table(&self, name: &str, rows: usize, inputs: usize) -> Result<Table, ModelError> {
        let weight = format!("{}{name}.weight", self.prefix);
        let shape = [rows, inputs];
        let numbers = self
            .checkpoint
            .load_table(&weight, &shape, self.precision)?;
        Ok(Table { numbers, inputs })
    }

    /// A matrix with a bias.
    fn matrix(&self, name: &str, outputs: usize, inputs: usize) -> Result<Linear, ModelError> {
        let name = format!("{}{name}", self.prefix);
        let weight = format!("{name}.weight");
        let shape = [outputs, inputs];
        let numbers = self.checkpoint.load(&weight, &shape, self.precision)?;
        let bias = format!("{name}.bias");
        let bias = self.checkpoint.load_vector(&bias, outputs)?;
        Linear::new(numbers, Some(bias), outputs, inputs)
    }

    fn norm(&self, name: &str, width: usize) -> Result<Norm, ModelError> {
        let vector = |part: &str| {
            let name = format!("{}{name}.{part}", self.prefix);
            self.checkpoint.load_vector(&name, width)
        };
        Ok(Norm {
            weight: vector("weight")?,
            bias: vector("bias")?,
        })
    }

    fn layer(&self, spec: &EncoderSpec, number: usize) -> Result<EncoderLayer, ModelError> {
        let name = |part: &str| format!("encoder.layer.{number}.{part}");
        let (hidden, wide) = (spec.hidden, spec.intermediate);
        let qkv = ["query", "key", "value"].map(|part| name(&format!("attention.self.{part}")));
        let [query, key, value] = qkv.map(|name| self.matrix(&name, hidden, hidden));
        let one = |part: &str, outputs, inputs| self.matrix(&name(part), outputs, inputs);
        Ok(EncoderLayer {
            qkv: query?.append(key?).append(value?),
            attention_output: one("attention.output.dense", hidden, hidden)?,
            attention_norm: self.norm(&name("attention.output.LayerNorm"), hidden)?,
            up: one("intermediate.dense", wide, hidden)?,
            down: one("output.dense", hidden, wide)?,
            output_norm: self.norm(&name("output.LayerNorm"), hidden)?,
        })
    }
}

impl Encoder {
    /// Read a model's files and check them.
    pub fn load(folder: &ModelFolder, precision: WeightPrecision) -> Result<Self, ModelError> {
        let spec = EncoderSpec::read(folder)?;
        let checkpoint = Checkpoint::open(folder)?;
        let reader = |prefix| Reader {
            checkpoint: &checkpoint,
            prefix,
            precision,
        };
        const TOKENS: &str = "embeddings.word_embeddings";
        let hidden = spec.hidden;
        let named = match spec.family {
            EncoderFamily::Bert => "bert.",
            EncoderFamily::Roberta => "roberta.",
        };
        // Models with a head on top have their encoder under a name.
        let (reader, tokens) = match reader("").table(TOKENS, spec.vocabulary, hidden) {
            Err(ModelError::MissingTensor { .. }) if folder.gguf().is_none() => {
                let reader = reader(named);
                let tokens = reader.table(TOKENS, spec.vocabulary, hidden)?;
                (reader, tokens)
            }
            tokens => (reader(""), tokens?),
        };
        let segments = reader.table("embeddings.token_type_embeddings", spec.segments, hidden)?;
        let segments = [0, 1.min(spec.segments as u32 - 1)].map(|row| segments.gather(&[row]));
        let positions = spec.first_position + spec.context;
        let mut layers = Vec::new();
        for number in 0..spec.layers {
            layers.push(reader.layer(&spec, number)?);
        }
        Ok(Self {
            tokens,
            positions: reader.table("embeddings.position_embeddings", positions, hidden)?,
            segments,
            norm: reader.norm("embeddings.LayerNorm", hidden)?,
            layers,
            head: match spec.ranks {
                true => Some(ClassifierHead::load(&reader, &spec)?),
                false => None,
            },
            spec,
        })
    }

    /// Make other vectors than the files say.
    pub(crate) fn set_pooling(&mut self, pooling: PoolingSpec) {
        self.spec.pooling = pooling;
    }

    /// The shape of the model.
    pub fn spec(&self) -> &EncoderSpec {
        &self.spec
    }

    /// One vector for each text, in order. A text's vector does not depend on the others.
    pub fn embed(&self, texts: &[&[u32]]) -> Result<Vec<Vec<f32>>, InputError> {
        let texts: Vec<EncoderText<'_>> =
            texts.iter().map(|text| EncoderText::single(text)).collect();
        let hidden = self.rows(&texts)?;
        let mut rows = hidden.chunks_exact(self.spec.hidden);
        let vectors = texts.iter().map(|text| {
            let rows: Vec<&[f32]> = rows.by_ref().take(text.tokens.len()).collect();
            self.spec.pooling.apply(&rows)
        });
        Ok(vectors.collect())
    }

    /// One score for each pair of texts, in order, before any function of it; none without a head. A pair's score does
    /// not depend on the others.
    pub fn score(&self, pairs: &[EncoderText<'_>]) -> Result<Option<Vec<f32>>, InputError> {
        let Some(head) = &self.head else {
            return Ok(None);
        };
        let hidden = self.rows(pairs)?;
        let mut first = Vec::with_capacity(pairs.len() * self.spec.hidden);
        let mut at = 0;
        for pair in pairs {
            first.extend_from_slice(&hidden[at * self.spec.hidden..][..self.spec.hidden]);
            at += pair.tokens.len();
        }
        Ok(Some(head.apply(&first)))
    }

    /// Rows of all tokens behind the last layer, text after text.
    fn rows(&self, texts: &[EncoderText<'_>]) -> Result<Vec<f32>, InputError> {
        for text in texts {
            check(text.tokens, self.spec.context, self.spec.vocabulary)?;
        }
        let lengths: Vec<usize> = texts.iter().map(|text| text.tokens.len()).collect();
        let tokens: Vec<u32> = texts.iter().flat_map(|text| text.tokens).copied().collect();
        let mut hidden = self.tokens.gather(&tokens);
        let first = self.spec.first_position as u32;
        let positions: Vec<u32> = lengths
            .iter()
            .flat_map(|length| first..first + *length as u32)
            .collect();
        add(&mut hidden, &self.positions.gather(&positions));
        let segments = texts
            .iter()
            .flat_map(|text| (0..text.tokens.len()).map(|at| usize::from(at >= text.second)));
        for (row, segment) in hidden.chunks_exact_mut(self.spec.hidden).zip(segments) {
            add(row, &self.segments[segment]);
        }
        self.normalise(&mut hidden, &self.norm);
        for layer in &self.layers {
            self.forward(layer, &lengths, &mut hidden);
        }
        Ok(hidden)
    }

    fn forward(&self, layer: &EncoderLayer, lengths: &[usize], hidden: &mut [f32]) {
        let (heads, head_dim) = (self.spec.heads, self.spec.hidden / self.spec.heads);
        let qkv = layer.qkv.apply(hidden);
        let mut attended = vec![0.0; hidden.len()];
        full_attention(&qkv, lengths, heads, head_dim, None, &mut attended);
        layer.attention_output.add(attended, plain(hidden));
        self.normalise(hidden, &layer.attention_norm);
        let mut wide = layer.up.apply(hidden);
        gelu_in_place(&mut wide);
        layer.down.add(wide, plain(hidden));
        self.normalise(hidden, &layer.output_norm);
    }

    fn normalise(&self, rows: &mut [f32], norm: &Norm) {
        layer_norm_in_place(rows, &norm.weight, &norm.bias, self.spec.norm_epsilon);
    }
}

/// Refuse a text of no tokens, of too many, or with one that the model does not know.
fn check(text: &[u32], context: usize, vocabulary: usize) -> Result<(), InputError> {
    if text.is_empty() || text.len() > context {
        let tokens = text.len();
        return Err(InputError::Context { tokens, context });
    }
    match text.iter().find(|token| **token as usize >= vocabulary) {
        None => Ok(()),
        Some(&token) => Err(InputError::Token { token, vocabulary }),
    }
}

fn plain(rows: &mut [f32]) -> Residual<'_> {
    Residual { rows, scale: 1.0 }
}

fn add(to: &mut [f32], what: &[f32]) {
    for (to, what) in to.iter_mut().zip(what) {
        *to += what;
    }
}
