//! Matrices of a model, with whatever numbers they are stored as.

use mortise_kernels::floats::FloatMatrix;
use mortise_kernels::gate_mul::Activation;
use mortise_kernels::linear::{
    Activations, Forms, LogitScale, Matrix, RowOrder, Scores, Stack, WantedLogits,
};
use mortise_kernels::quant::PackedMatrix;

use crate::error::ModelError;
use crate::weights::{StoredNumbers, WeightNumbers};

/// Matrices of the same inputs that are multiplied as one, with an optional bias.
#[derive(Debug)]
pub(crate) struct Linear {
    parts: Vec<Part>,
    bias: Option<Vec<f32>>,
    outputs: usize,
    inputs: usize,
}

/// Rows that what a branch computes is added to.
#[derive(Debug)]
pub(crate) struct Residual<'a> {
    pub(crate) rows: &'a mut [f32],
    /// Factor of what is added.
    pub(crate) scale: f32,
}

impl Residual<'_> {
    /// Add rows.
    pub(crate) fn add(self, values: &[f32]) {
        for (row, value) in self.rows.iter_mut().zip(values) {
            *row += self.scale * value;
        }
    }
}

/// One matrix, packed in the order of the outputs.
#[derive(Debug)]
enum Part {
    Floats(FloatMatrix),
    Quantised(PackedMatrix),
}

impl Part {
    /// Pack numbers and release their pages of the mapped file.
    fn new(
        numbers: WeightNumbers,
        order: RowOrder,
        outputs: usize,
        inputs: usize,
    ) -> Result<Self, ModelError> {
        let part = match numbers.stored() {
            StoredNumbers::Floats(kind, bytes) => {
                Self::Floats(FloatMatrix::new(kind, bytes, order, outputs, inputs)?)
            }
            StoredNumbers::Blocks(kind, blocks) => {
                Self::Quantised(PackedMatrix::new(kind, blocks, order, outputs, inputs)?)
            }
        };
        numbers.release();
        Ok(part)
    }

    fn matrix(&self) -> Matrix<'_> {
        match self {
            Self::Floats(matrix) => Matrix::Floats(matrix),
            Self::Quantised(matrix) => Matrix::Quantised(matrix),
        }
    }
}

impl Linear {
    /// One matrix of `outputs * inputs` numbers, one row an output, and perhaps a bias.
    pub(crate) fn new(
        numbers: WeightNumbers,
        bias: Option<Vec<f32>>,
        outputs: usize,
        inputs: usize,
    ) -> Result<Self, ModelError> {
        Self::ordered(numbers, RowOrder::Plain, bias, outputs, inputs)
    }

    /// One matrix whose rows are in some order; its bias is in that of the outputs.
    pub(crate) fn ordered(
        numbers: WeightNumbers,
        order: RowOrder,
        bias: Option<Vec<f32>>,
        outputs: usize,
        inputs: usize,
    ) -> Result<Self, ModelError> {
        Ok(Self {
            parts: vec![Part::new(numbers, order, outputs, inputs)?],
            bias,
            outputs,
            inputs,
        })
    }

    /// Values of a row of results.
    pub(crate) fn outputs(&self) -> usize {
        self.outputs
    }

    /// Add the outputs of another matrix of the same inputs.
    pub(crate) fn append(mut self, more: Self) -> Self {
        self.bias = match (self.bias, more.bias) {
            (None, None) => None,
            (bias, more_bias) => {
                let mut bias = bias.unwrap_or_else(|| vec![0.0; self.outputs]);
                bias.extend(more_bias.unwrap_or_else(|| vec![0.0; more.outputs]));
                Some(bias)
            }
        };
        self.parts.extend(more.parts);
        self.outputs += more.outputs;
        self
    }

    /// Values of a row of activations.
    pub(crate) fn inputs(&self) -> usize {
        self.inputs
    }

    /// The forms of activations that products need.
    pub(crate) fn forms(&self) -> Forms {
        self.with_stack(|stack| stack.forms())
    }

    /// Multiply rows of activations.
    pub(crate) fn apply(&self, x: &[f32]) -> Vec<f32> {
        self.apply_to(&Activations::new(x, self.inputs, self.forms()))
    }

    /// Multiply rows of activations that have the [forms](Self::forms) of these weights.
    pub(crate) fn apply_to(&self, x: &Activations<'_>) -> Vec<f32> {
        let mut out = vec![0.0; x.rows() * self.outputs];
        self.with_stack(|stack| stack.write(x, &mut out));
        out
    }

    /// Multiply rows of activations and add the products to a residual.
    pub(crate) fn add(&self, x: Vec<f32>, residual: Residual<'_>) {
        self.add_of(&Activations::new(x, self.inputs, self.forms()), residual);
    }

    /// [`add`](Self::add), from activations in the [forms](Self::forms) of these weights.
    pub(crate) fn add_of(&self, x: &Activations<'_>, residual: Residual<'_>) {
        self.with_stack(|stack| stack.add(x, residual.scale, residual.rows));
    }

    /// The first half of the outputs as gates of the second, in the forms that the next product needs.
    pub(crate) fn gate(
        &self,
        x: &Activations<'_>,
        activation: Activation,
        forms: Forms,
    ) -> Activations<'static> {
        self.with_stack(|stack| stack.gate(x, activation, forms))
    }

    /// The products as logits, of each row what is wanted of it.
    pub(crate) fn scores(
        &self,
        x: &Activations<'_>,
        scale: LogitScale,
        wanted: &[WantedLogits],
    ) -> Scores {
        self.with_stack(|stack| stack.scores(x, scale, wanted))
    }

    fn with_stack<T>(&self, run: impl FnOnce(Stack<'_>) -> T) -> T {
        let matrices: Vec<Matrix<'_>> = self.parts.iter().map(Part::matrix).collect();
        run(Stack {
            matrices: &matrices,
            bias: self.bias.as_deref(),
        })
    }

    /// Copy rows of a single matrix in f32: the embedding of tokens.
    pub(crate) fn gather(&self, rows: &[u32]) -> Vec<f32> {
        let matrix = self.parts[0].matrix();
        gather(rows, self.inputs, |row, out| matrix.row(row, out))
    }
}

/// A matrix that rows are copied from and nothing is multiplied with. In a GGUF file it stays there.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) numbers: WeightNumbers,
    pub(crate) inputs: usize,
}

impl Table {
    /// Copy rows in f32.
    pub(crate) fn gather(&self, rows: &[u32]) -> Vec<f32> {
        gather(rows, self.inputs, |row, out| self.numbers.row(row, out))
    }
}

fn gather(rows: &[u32], inputs: usize, copy: impl Fn(usize, &mut [f32])) -> Vec<f32> {
    let mut out = vec![0.0; rows.len() * inputs];
    for (&row, out) in rows.iter().zip(out.chunks_exact_mut(inputs)) {
        copy(row as usize, out);
    }
    out
}
