//! The head of an encoder that scores pairs of texts: from the row of the first token to one number.

use super::{EncoderFamily, EncoderSpec, Reader};
use crate::checkpoint::Checkpoint;
use crate::error::ModelError;
use crate::linear::Linear;

/// A layer with a hyperbolic tangent, which some GGUF files lack, and the weights of the one label.
#[derive(Debug)]
pub(super) struct ClassifierHead {
    dense: Option<Linear>,
    label: Vec<f32>,
    bias: f32,
}

impl ClassifierHead {
    /// Read the head. `encoder` reads the tensors of the encoder, within which BERT has the first layer.
    pub(super) fn load(encoder: &Reader<'_>, spec: &EncoderSpec) -> Result<Self, ModelError> {
        let (hidden, whole) = (
            spec.hidden,
            Reader {
                prefix: "",
                ..*encoder
            },
        );
        let of_roberta = || whole.matrix("classifier.dense", hidden, hidden);
        let (dense, label) = match (encoder.checkpoint, spec.family) {
            // Files of both families name a head as RoBERTa does. Those of BERT have none of its first layer.
            (Checkpoint::Gguf(_), _) => match of_roberta() {
                Err(ModelError::MissingTensor { .. }) => (None, "classifier.out_proj"),
                dense => (Some(dense?), "classifier.out_proj"),
            },
            (_, EncoderFamily::Bert) => {
                let dense = encoder.matrix("pooler.dense", hidden, hidden)?;
                (Some(dense), "classifier")
            }
            (_, EncoderFamily::Roberta) => (Some(of_roberta()?), "classifier.out_proj"),
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
        let made = self.dense.as_ref().map(|dense| {
            let mut made = dense.apply(rows);
            made.iter_mut().for_each(|value| *value = value.tanh());
            made
        });
        let rows = made.as_deref().unwrap_or(rows);
        let scores = rows.chunks_exact(self.label.len()).map(|row| {
            let products = row.iter().zip(&self.label);
            let sum: f64 = products
                .map(|(value, weight)| f64::from(*value) * f64::from(*weight))
                .sum();
            (sum + f64::from(self.bias)) as f32
        });
        scores.collect()
    }
}
