//! The head of an encoder that scores pairs of texts: from the row of the first token to one number.

use super::{EncoderFamily, EncoderSpec, Reader};
use crate::error::ModelError;
use crate::linear::Linear;

/// A layer with a hyperbolic tangent, and the weights of the one label.
#[derive(Debug)]
pub(super) struct Head {
    dense: Linear,
    label: Vec<f32>,
    bias: f32,
}

impl Head {
    /// Read the head. `encoder` reads the tensors of the encoder, within which BERT has the first layer.
    pub(super) fn load(encoder: &Reader<'_>, spec: &EncoderSpec) -> Result<Self, ModelError> {
        let (hidden, whole) = (
            spec.hidden,
            Reader {
                prefix: "",
                ..*encoder
            },
        );
        let (dense, label) = match spec.family {
            EncoderFamily::Bert => {
                let dense = encoder.matrix("pooler.dense", hidden, hidden)?;
                (dense, "classifier")
            }
            EncoderFamily::Roberta => {
                let dense = whole.matrix("classifier.dense", hidden, hidden)?;
                (dense, "classifier.out_proj")
            }
        };
        let bias = whole.checkpoint.load_vector(&format!("{label}.bias"), 1)?;
        Ok(Self {
            dense,
            label: whole.table(label, 1, hidden)?.gather(&[0]),
            bias: bias.first().copied().unwrap_or_default(),
        })
    }

    /// The scores of rows, one a pair.
    pub(super) fn apply(&self, rows: &[f32]) -> Vec<f32> {
        let made = self.dense.apply(rows);
        let scores = made.chunks_exact(self.label.len()).map(|row| {
            let products = row.iter().zip(&self.label);
            let sum: f64 = products
                .map(|(value, weight)| f64::from(value.tanh()) * f64::from(*weight))
                .sum();
            (sum + f64::from(self.bias)) as f32
        });
        scores.collect()
    }
}
