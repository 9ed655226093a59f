//! Mixture of experts: a router selects some feed-forward layers for each token.
//!
//! Each expert computes the rows that were routed to it as one product. A row's parts are then added
//! best expert first, so that its result does not depend on the rows beside it.

use mortise_kernels::linear::{Activations, Forms};
use mortise_kernels::route::{Route, Routing, route};

use crate::error::ModelError;
use crate::gated_mlp::GatedMlp;
use crate::linear::{Linear, Residual};
use crate::loader::{Loader, StackPart};
use crate::mxfp4;
use crate::names::ExpertLayout;
use crate::rearrange::Unordered;
use crate::spec::ExpertsSpec;
use crate::stored_tensor::TensorPlace;
use crate::weights::{WeightNumbers, WeightPrecision};

/// The experts of a layer.
#[derive(Debug)]
pub(crate) struct Experts {
    routing: Routing,
    router: Linear,
    /// Selection bias, which does not change the weights of the experts.
    correction: Option<Vec<f32>>,
    experts: Vec<GatedMlp>,
    /// Shared expert with its gate, if it has one.
    shared: Option<(GatedMlp, Option<Linear>)>,
}

impl Experts {
    pub(crate) fn load(
        loader: &Loader<'_>,
        number: usize,
        spec: ExpertsSpec,
    ) -> Result<Self, ModelError> {
        let names = &loader.names.experts;
        let name = |part: &str| loader.layer_name(number, part);
        let hidden = loader.spec.hidden;
        let precise = Loader {
            precision: loader.precision.of_router(),
            ..*loader
        };
        let correction = match spec.correction {
            true => Some(loader.vector(&name(names.correction), spec.experts)?),
            false => None,
        };
        let experts = match &names.layout {
            ExpertLayout::Apart {
                prefix,
                gate_up,
                down,
            } => load_each(loader, number, prefix, *gate_up, down, spec)?,
            ExpertLayout::Interleaved { .. } if loader.checkpoint.has_experts_apart() => {
                let parts = ["gate_proj", "up_proj"];
                load_each(loader, number, "mlp.experts.", parts, "down_proj", spec)?
            }
            ExpertLayout::Interleaved { gate_up, down } => {
                load_interleaved(loader, &name(gate_up), &name(down), spec)?
            }
        };
        let shared = match spec.shared {
            None => None,
            Some(width) => Some((
                GatedMlp {
                    activation: loader.spec.feed_forward.activation,
                    gate_up: loader.stack(
                        &names.shared_gate_up,
                        name,
                        [width, width],
                        hidden,
                        false,
                    )?,
                    down: loader.matrix(name(names.shared_down), hidden, width, false)?,
                },
                match spec.shared_gate {
                    true => Some(precise.matrix(name(names.shared_gate), 1, hidden, false)?),
                    false => None,
                },
            )),
        };
        Ok(Self {
            routing: spec.routing,
            router: precise.matrix(name(names.router), spec.experts, hidden, spec.bias)?,
            correction,
            experts,
            shared,
        })
    }

    /// Forms of activations that the layer reads. Experts gather plain rows.
    pub(crate) fn forms(&self) -> Forms {
        let forms = Forms::PLAIN.and(self.router.forms());
        let Some((shared, gate)) = &self.shared else {
            return forms;
        };
        let forms = forms.and(shared.gate_up.forms());
        gate.as_ref().map_or(forms, |gate| forms.and(gate.forms()))
    }

    /// `residual.rows += residual.scale * experts(x)`.
    pub(crate) fn add(&self, x: &Activations<'_>, residual: Residual<'_>) {
        let logits = self.router.apply_to(x);
        let (rows, hidden) = (x.rows(), x.inputs());
        let chosen = self.routing.chosen;
        // Which parts each expert computes: part `row * chosen + rank` is a row's `rank`th best.
        let mut parts_of: Vec<Vec<(usize, f32)>> = vec![Vec::new(); self.experts.len()];
        let mut routes = Vec::new();
        for (row, logits) in logits.chunks_exact(self.experts.len()).enumerate() {
            route(
                &self.routing,
                logits,
                self.correction.as_deref(),
                &mut routes,
            );
            for (rank, Route { expert, share }) in routes.iter().enumerate() {
                parts_of[*expert].push((row * chosen + rank, *share));
            }
        }
        let mut computed = vec![0.0; rows * chosen * hidden];
        for (expert, parts) in self.experts.iter().zip(&parts_of) {
            if parts.is_empty() {
                continue;
            }
            let rows: Vec<f32> = parts
                .iter()
                .flat_map(|(part, _)| &x.plain()[part / chosen * hidden..][..hidden])
                .copied()
                .collect();
            let results = expert.apply(&Activations::new(rows, hidden, expert.gate_up.forms()));
            for ((part, share), result) in parts.iter().zip(results.chunks_exact(hidden)) {
                let computed = &mut computed[part * hidden..][..hidden];
                for (computed, result) in computed.iter_mut().zip(result) {
                    *computed = share * result;
                }
            }
        }
        let mut out = vec![0.0; rows * hidden];
        let sums = out.chunks_exact_mut(hidden.max(1));
        for (out, parts) in sums.zip(computed.chunks_exact((chosen * hidden).max(1))) {
            for part in parts.chunks_exact(hidden) {
                for (out, part) in out.iter_mut().zip(part) {
                    *out += part;
                }
            }
        }
        self.add_shared(x, &mut out);
        residual.add(&out);
    }

    fn add_shared(&self, x: &Activations<'_>, out: &mut [f32]) {
        let Some((shared, gate)) = &self.shared else {
            return;
        };
        let mut results = shared.apply(x);
        if let Some(gate) = gate {
            for (row, gate) in results.chunks_exact_mut(x.inputs()).zip(gate.apply_to(x)) {
                let share = 1.0 / (1.0 + (-gate).exp());
                for value in row {
                    *value *= share;
                }
            }
        }
        for (out, result) in out.iter_mut().zip(results) {
            *out += result;
        }
    }
}

/// Load experts with a tensor for each matrix.
fn load_each(
    loader: &Loader<'_>,
    number: usize,
    prefix: &str,
    gate_up: [&str; 2],
    down: &str,
    spec: ExpertsSpec,
) -> Result<Vec<GatedMlp>, ModelError> {
    let (hidden, width, biased) = (loader.spec.hidden, spec.intermediate, spec.bias);
    let expert = |expert: usize| {
        let name = |part: &str| loader.layer_name(number, &format!("{prefix}{expert}.{part}"));
        let [gate, up] = gate_up.map(|part| StackPart {
            name: name(part),
            outputs: width,
            biased,
        });
        Ok(GatedMlp {
            activation: loader.spec.feed_forward.activation,
            gate_up: loader.stacked(gate, [up], hidden)?,
            down: loader.matrix(name(down), hidden, width, biased)?,
        })
    };
    (0..spec.experts).map(expert).collect()
}

/// Load experts from stacked tensors with interleaved gates and ups.
fn load_interleaved(
    loader: &Loader<'_>,
    gate_up: &str,
    down: &str,
    spec: ExpertsSpec,
) -> Result<Vec<GatedMlp>, ModelError> {
    let (experts, hidden, width) = (spec.experts, loader.spec.hidden, spec.intermediate);
    let biases = |name: &str, width| {
        let shape = [experts, width];
        let biases = loader
            .checkpoint
            .load_unordered(&format!("{name}_bias"), &shape)?;
        Ok::<_, ModelError>(biases.into_f32())
    };
    let gate_up_biases = biases(gate_up, 2 * width)?;
    let down_biases = biases(down, hidden)?;
    let gate_ups = ExpertTensor::load(loader, gate_up, [experts, 2 * width, hidden])?;
    let downs = ExpertTensor::load(loader, down, [experts, hidden, width])?;
    let source = interleaved_source(width);
    let expert = |expert: usize| {
        let biases = &gate_up_biases[expert * 2 * width..][..2 * width];
        let biases = (0..2 * width).map(|row| biases[source(row)]).collect();
        let gate_up = gate_ups.expert(expert, loader.precision, &source);
        let down_bias = down_biases[expert * hidden..][..hidden].to_vec();
        let down = downs.expert(expert, loader.precision, |row| row);
        Ok(GatedMlp {
            activation: loader.spec.feed_forward.activation,
            gate_up: Linear::new(gate_up, Some(biases), 2 * width, hidden)?,
            down: Linear::new(down, Some(down_bias), hidden, width)?,
        })
    };
    (0..experts).map(expert).collect()
}

/// Source row of each row when interleaved gates and ups are put apart: first `width` gates, then
/// ups.
pub(crate) fn interleaved_source(width: usize) -> impl Fn(usize) -> usize {
    move |row| {
        if row < width {
            2 * row
        } else {
            2 * (row - width) + 1
        }
    }
}

/// One tensor for the matrices of all experts.
pub(crate) struct ExpertTensor {
    outputs: usize,
    inputs: usize,
    stored: StoredExperts,
}

enum StoredExperts {
    /// Inputs before outputs.
    Numbers(Unordered),
    /// Outputs before inputs: blocks and scales.
    Mxfp4(TensorPlace, TensorPlace),
}

impl ExpertTensor {
    /// Load `[experts, outputs, inputs]`.
    pub(crate) fn load(
        loader: &Loader<'_>,
        name: &str,
        shape: [usize; 3],
    ) -> Result<Self, ModelError> {
        let [experts, outputs, inputs] = shape;
        let checkpoint = loader.checkpoint;
        let (blocks, scales) = (format!("{name}_blocks"), format!("{name}_scales"));
        let stored = if inputs.is_multiple_of(mxfp4::BLOCK) && checkpoint.has_bytes(&blocks) {
            let count = inputs / mxfp4::BLOCK;
            StoredExperts::Mxfp4(
                checkpoint.load_bytes(&blocks, &[experts, outputs, count, mxfp4::BLOCK_BYTES])?,
                checkpoint.load_bytes(&scales, &[experts, outputs, count])?,
            )
        } else {
            StoredExperts::Numbers(checkpoint.load_unordered(name, &[experts, inputs, outputs])?)
        };
        Ok(Self {
            outputs,
            inputs,
            stored,
        })
    }

    /// Matrix of an expert; row `i` is stored row `source(i)`.
    pub(crate) fn expert(
        &self,
        expert: usize,
        precision: WeightPrecision,
        source: impl Fn(usize) -> usize,
    ) -> WeightNumbers {
        let (outputs, inputs) = (self.outputs, self.inputs);
        match &self.stored {
            StoredExperts::Numbers(numbers) => {
                let first = expert * inputs * outputs;
                numbers.matrix(outputs, inputs, precision, |output, input| {
                    first + input * outputs + source(output)
                })
            }
            StoredExperts::Mxfp4(blocks, scales) => {
                let blocks = mxfp4::Blocks {
                    blocks: blocks.bytes(),
                    scales: scales.bytes(),
                };
                let first = expert * outputs;
                blocks.matrix(outputs, inputs, precision, |row| first + source(row))
            }
        }
    }
}
