//! Rows of a batch that have adapters.

use std::sync::Arc;

use mortise_kernels::linear::{Activations, Forms};

use super::Adapter;
use super::part::Site;
use crate::linear::{Linear, Residual};

/// An adapter with the rows of the batch that it is applied to.
#[derive(Debug, Clone)]
pub(crate) struct AdaptedRows {
    pub(crate) adapter: Arc<Adapter>,
    /// Ascending.
    pub(crate) rows: Vec<usize>,
}

/// The adapters of a batch at one layer. Without any, nothing is computed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Adapted<'a> {
    groups: &'a [AdaptedRows],
    layer: usize,
}

impl<'a> Adapted<'a> {
    /// No adapter at all.
    pub(crate) const NONE: Adapted<'static> = Adapted {
        groups: &[],
        layer: 0,
    };

    /// The adapters of a batch at a layer.
    pub(crate) fn new(groups: &'a [AdaptedRows], layer: usize) -> Self {
        Self { groups, layer }
    }

    /// True if some adapter adds to the outputs of a site.
    pub(crate) fn changes(&self, site: Site) -> bool {
        let mut groups = self.groups.iter();
        groups.any(|group| group.adapter.site(self.layer, site).is_some())
    }

    /// The forms of a site's inputs: adapters read them in f32 too.
    pub(crate) fn forms(&self, forms: Forms, site: Site) -> Forms {
        match self.changes(site) {
            true => forms.and(Forms::PLAIN),
            false => forms,
        }
    }

    /// Add `scale` times what the adapters compute of `x` to rows of `out`, which have `width` values each.
    pub(crate) fn add(&self, site: Site, x: &[f32], scale: f32, out: &mut [f32], width: usize) {
        for group in self.groups {
            if let Some(adapter) = group.adapter.site(self.layer, site) {
                adapter.add(x, &group.rows, scale, out, width);
            }
        }
    }

    /// Add the products of `x` with a matrix to a residual, and what the adapters of its site add to them.
    pub(crate) fn add_product(
        &self,
        matrix: &Linear,
        site: Site,
        x: Vec<f32>,
        residual: Residual<'_>,
    ) {
        if !self.changes(site) {
            return matrix.add(x, residual);
        }
        let Residual { rows, scale } = residual;
        let base = Activations::new(&x[..], matrix.inputs(), matrix.forms());
        let of_base = Residual {
            rows: &mut *rows,
            scale,
        };
        matrix.add_of(&base, of_base);
        self.add(site, &x, scale, rows, matrix.outputs());
    }
}
