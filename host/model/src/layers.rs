//! Decoder layer: attention and feed-forward, each with a residual connection.

use mortise_kernels::linear::{Activations, Forms};

use crate::attention::Attention;
use crate::batch::BatchLayout;
use crate::error::ModelError;
use crate::feed_forward::FeedForward;
use crate::kv_cache::LayerCache;
use crate::linear::Residual;
use crate::loader::Loader;
use crate::lora::{Adapted, Site};
use crate::norm::Norm;

/// One layer.
#[derive(Debug)]
pub(crate) struct Layer {
    number: usize,
    attention: Branch<Attention>,
    feed_forward: Branch<FeedForward>,
}

/// A residual branch with its input and output norms.
#[derive(Debug)]
struct Branch<T> {
    /// Values of a row.
    width: usize,
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
            number,
            attention: Branch {
                width: loader.spec.hidden,
                norm: norm(names.attention_norm)?,
                inner: Attention::load(loader, number)?,
                output_norm: norm(names.attention_output_norm)?,
            },
            feed_forward: Branch {
                width: loader.spec.hidden,
                norm: norm(names.feed_forward_norm)?,
                inner: FeedForward::load(loader, number)?,
                output_norm: norm(names.feed_forward_output_norm)?,
            },
        })
    }

    /// Run the layer on all rows of the batch.
    pub(crate) fn forward(
        &self,
        batch: &BatchLayout<'_>,
        cache: &mut LayerCache,
        hidden: &mut [f32],
    ) {
        let scale = batch.spec.residual_scale;
        let adapted = Adapted::new(batch.adapted, self.number);
        let forms = adapted.forms(self.attention.inner.forms(), Site::Qkv);
        self.attention
            .add(hidden, scale, forms, |inner, x, residual| {
                inner.add(batch, adapted, cache, x, residual);
            });
        let forms = adapted.forms(self.feed_forward.inner.forms(), Site::GateUp);
        self.feed_forward
            .add(hidden, scale, forms, |inner, x, residual| {
                inner.add(x, adapted, residual);
            });
    }
}

impl<T> Branch<T> {
    /// Residual branch: `hidden += scale * add(norm(hidden))`, with the output norm around `add` if
    /// there is one.
    fn add(
        &self,
        hidden: &mut [f32],
        scale: f32,
        forms: Forms,
        add: impl FnOnce(&T, &Activations<'_>, Residual<'_>),
    ) {
        let width = self.width;
        let x = match &self.norm {
            Some(norm) => Activations::normed(hidden, norm.op(), forms),
            None => Activations::new(hidden.to_vec(), width, forms),
        };
        let Some(norm) = &self.output_norm else {
            let rows = hidden;
            return add(&self.inner, &x, Residual { rows, scale });
        };
        let mut out = vec![0.0; hidden.len()];
        let rows = Residual {
            rows: &mut out,
            scale: 1.0,
        };
        add(&self.inner, &x, rows);
        norm.apply_in_place(&mut out);
        let rows = hidden;
        Residual { rows, scale }.add(&out);
    }
}
