//! One layer of a decoder: attention, then feed-forward, each added to what came in.

use std::borrow::Cow;

use crate::attention::{Attention, Batch};
use crate::error::ModelError;
use crate::feed_forward::FeedForward;
use crate::kv_cache::LayerCache;
use crate::loader::Loader;
use crate::norm::Norm;

/// One layer.
#[derive(Debug)]
pub(crate) struct Layer {
    attention: Branch<Attention>,
    feed_forward: Branch<FeedForward>,
}

/// What is added to the hidden values, with the norms before and after it.
#[derive(Debug)]
struct Branch<T> {
    norm: Option<Norm>,
    inner: T,
    output_norm: Option<Norm>,
}

impl Layer {
    pub(crate) fn load(loader: &Loader<'_>, number: usize) -> Result<Self, ModelError> {
        let names = loader.names;
        let norm = |part: Option<&str>| {
            part.map(|part| loader.norm(&loader.layer_name(number, part), loader.spec.hidden))
                .transpose()
        };
        Ok(Self {
            attention: Branch {
                norm: norm(names.attention_norm)?,
                inner: Attention::load(loader, number)?,
                output_norm: norm(names.attention_output_norm)?,
            },
            feed_forward: Branch {
                norm: norm(names.feed_forward_norm)?,
                inner: FeedForward::load(loader, number)?,
                output_norm: norm(names.feed_forward_output_norm)?,
            },
        })
    }

    /// Advance all rows of the batch by this layer.
    pub(crate) fn forward(&self, batch: &Batch<'_>, cache: &mut LayerCache, hidden: &mut [f32]) {
        let scale = batch.spec.residual_scale;
        self.attention.add(hidden, scale, |attention, x| {
            attention.forward(batch, cache, x)
        });
        self.feed_forward
            .add(hidden, scale, |feed_forward, x| feed_forward.forward(x));
    }
}

impl<T> Branch<T> {
    fn add(&self, hidden: &mut [f32], scale: f32, forward: impl FnOnce(&T, &[f32]) -> Vec<f32>) {
        let normed = match &self.norm {
            Some(norm) => Cow::Owned(norm.apply(hidden)),
            None => Cow::Borrowed(&*hidden),
        };
        let mut out = forward(&self.inner, &normed);
        if let Some(norm) = &self.output_norm {
            norm.apply_in_place(&mut out);
        }
        for (hidden, out) in hidden.iter_mut().zip(out) {
            *hidden += scale * out;
        }
    }
}
