//! Rows of activations in the forms that weights multiply with.

use std::borrow::Cow;

use crate::quant::QuantisedRows;
use crate::rms_norm::{RmsNorm, rms_norm};

/// Forms of activations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Forms {
    /// In f32, for weights in floating point.
    pub plain: bool,
    /// Rounded to eight bits, for packed weights.
    pub rounded: bool,
}

impl Forms {
    /// In f32 alone.
    pub const PLAIN: Self = Self {
        plain: true,
        rounded: false,
    };

    /// Union of two sets of forms.
    pub fn and(self, more: Self) -> Self {
        Self {
            plain: self.plain || more.plain,
            rounded: self.rounded || more.rounded,
        }
    }
}

/// Rows of activations, made once for all products that share them.
#[derive(Debug)]
pub struct Activations<'a> {
    plain: Option<Cow<'a, [f32]>>,
    rounded: Option<QuantisedRows>,
    rows: usize,
    inputs: usize,
}

impl<'a> Activations<'a> {
    /// Rows of `inputs` values each.
    ///
    /// # Panics
    /// If rows do not fill `x`, or rows are to be rounded and groups do not fill them.
    pub fn new(x: impl Into<Cow<'a, [f32]>>, inputs: usize, forms: Forms) -> Self {
        let x = x.into();
        assert!(inputs > 0 && x.len().is_multiple_of(inputs));
        let rounded = forms.rounded.then(|| QuantisedRows::new(&x, inputs));
        Self {
            rounded,
            rows: x.len() / inputs,
            inputs,
            plain: forms.plain.then_some(x),
        }
    }

    /// Output rows of a gate.
    pub(super) fn from_forms(
        plain: Option<Vec<f32>>,
        rounded: Option<QuantisedRows>,
        (rows, inputs): (usize, usize),
    ) -> Self {
        Self {
            plain: plain.map(Cow::Owned),
            rounded,
            rows,
            inputs,
        }
    }

    /// Normalised rows of `x`. Rows that are needed only in eight bits are not written in f32.
    ///
    /// # Panics
    /// As [`Activations::new`].
    pub fn normed(x: &[f32], norm: RmsNorm<'_>, forms: Forms) -> Activations<'static> {
        let inputs = norm.weight.len();
        assert!(inputs > 0 && x.len().is_multiple_of(inputs));
        if forms.plain {
            let mut normed = vec![0.0; x.len()];
            rms_norm(x, norm, &mut normed);
            return Activations::new(normed, inputs, forms);
        }
        Activations {
            plain: None,
            rounded: forms.rounded.then(|| QuantisedRows::normed(x, norm)),
            rows: x.len() / inputs,
            inputs,
        }
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Values of a row.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// All rows in f32.
    ///
    /// # Panics
    /// If they were not made in that form.
    pub fn plain(&self) -> &[f32] {
        let Some(plain) = &self.plain else {
            panic!("activations were made without the form that a product needs: f32");
        };
        plain
    }

    /// All rows rounded.
    ///
    /// # Panics
    /// If they were not made in that form.
    pub(super) fn rounded(&self) -> &QuantisedRows {
        let Some(rounded) = &self.rounded else {
            panic!("activations were made without the form that a product needs: eight bits");
        };
        rounded
    }
}
