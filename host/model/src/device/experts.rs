//! A layer's experts on a device: the router, tiles of parts by expert, their sum.

use std::sync::Arc;

use mortise_cuda::experts::{Common, ExpertLinear, Inputs, Router, combine, products, route};
use mortise_cuda::linear::Rows;
use mortise_cuda::rows::{Activation, gate_mul};
use mortise_cuda::{Buffer, Device, DeviceError, Matrix, Scalars};
use mortise_kernels::route::RouterScores;

use super::batch::{DeviceBatch, ExpertScratch};
use super::weights::{Encoded, Stack, encode, encode_numbers};
use crate::error::ModelError;
use crate::experts::{ExpertTensor, interleaved_source};
use crate::loader::Loader;
use crate::names::ExpertLayout;
use crate::spec::ExpertsSpec;
use crate::weights::WeightPrecision;

/// The experts of a layer.
#[derive(Debug)]
pub(super) struct DeviceExperts {
    spec: ExpertsSpec,
    router: Stack,
    correction: Option<Buffer<f32>>,
    gate_up: ExpertMatrices,
    down: ExpertMatrices,
    shared: Option<SharedExpert>,
}

/// Computes every row.
#[derive(Debug)]
struct SharedExpert {
    gate_up: Stack,
    down: Stack,
    /// Gives the number whose sigmoid is its share.
    gate: Option<Stack>,
    width: usize,
}

/// One matrix of each expert, one below the other.
#[derive(Debug)]
struct ExpertMatrices {
    matrix: Matrix,
    bias: Option<Buffer<f32>>,
}

impl DeviceExperts {
    pub(super) fn load(
        loader: &Loader<'_>,
        device: &Arc<dyn Device>,
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
        let [gate_up, down] = match &names.layout {
            ExpertLayout::Apart {
                prefix,
                gate_up,
                down,
            } => load_apart(loader, device, &name(prefix), (*gate_up, down), spec)?,
            ExpertLayout::Interleaved { .. } if loader.checkpoint.has_experts_apart() => {
                let parts = (["gate_proj", "up_proj"], "down_proj");
                load_apart(loader, device, &name("mlp.experts."), parts, spec)?
            }
            ExpertLayout::Interleaved { gate_up, down } => {
                load_interleaved(loader, device, [&name(gate_up), &name(down)], spec)?
            }
        };
        let gate_shape = |width: usize| ([width, width], hidden);
        let shared = spec.shared.map(|width| -> Result<_, ModelError> {
            let stacked = &names.shared_gate_up;
            let down_name = name(names.shared_down);
            Ok(SharedExpert {
                gate_up: Stack::of_names(loader, device, stacked, name, gate_shape(width), false)?,
                down: Stack::single(loader, device, down_name, [hidden, width], false)?,
                gate: match spec.shared_gate {
                    true => {
                        let gate = name(names.shared_gate);
                        Some(Stack::single(&precise, device, gate, [1, hidden], false)?)
                    }
                    false => None,
                },
                width,
            })
        });
        let correction = match spec.correction {
            true => Some(loader.vector(&name(names.correction), spec.experts)?),
            false => None,
        };
        let router = name(names.router);
        Ok(Self {
            router: Stack::single(&precise, device, router, [spec.experts, hidden], spec.bias)?,
            correction: correction
                .map(|correction| Buffer::of(device, &correction))
                .transpose()?,
            gate_up,
            down,
            shared: shared.transpose()?,
            spec,
        })
    }

    /// Matrices that every row is multiplied with.
    pub(super) fn stacks(&self) -> impl Iterator<Item = &Stack> {
        let shared = self.shared.iter();
        let shared = shared.flat_map(|s| [Some(&s.gate_up), Some(&s.down), s.gate.as_ref()]);
        std::iter::once(&self.router).chain(shared.flatten())
    }

    /// Bytes of the matrices of the experts of one row.
    pub(super) fn chosen_bytes(&self) -> usize {
        let all = self.gate_up.matrix.bytes() + self.down.matrix.bytes();
        all / self.spec.experts * self.spec.routing.chosen
    }

    /// Add what the experts give rows of `x` to those of `out`, or write it there.
    pub(super) fn forward(
        &self,
        batch: &DeviceBatch<'_>,
        scratch: &ExpertScratch,
        activation: Activation,
        (x, out): (&Buffer<f32>, &Buffer<f32>),
        scalars: Scalars,
    ) -> Result<(), DeviceError> {
        let (device, rows) = (batch.device, batch.rows);
        let routing = self.spec.routing;
        let plain = |stack: &Stack, x: &Buffer<f32>, out: &Buffer<f32>| {
            stack.apply(device, x, out, rows, Scalars::PLAIN, batch.workspace)
        };
        plain(&self.router, x, &scratch.logits)?;
        let router = Router {
            experts: self.spec.experts,
            chosen: routing.chosen,
            sigmoid: routing.scores == RouterScores::Sigmoid,
            correction: self.correction.as_ref().map(Buffer::all),
            normalised: routing.normalised,
            scale: routing.scale,
        };
        route(device, &router, scratch.logits.all(), rows, &scratch.routes)?;
        let (gate_up, gated) = (&batch.activations.gate_up, &batch.activations.gated);
        let inputs = (x.all(), Inputs::OfRows);
        let linear = self.gate_up.linear();
        products(
            device,
            &linear,
            &scratch.routes,
            rows,
            inputs,
            gate_up.all(),
        )?;
        let (width, parts) = (self.spec.intermediate, rows * routing.chosen);
        gate_mul(device, activation, gate_up.all(), width, parts, gated.all())?;
        let inputs = (gated.all(), Inputs::OfParts);
        let (linear, results) = (self.down.linear(), scratch.results.all());
        products(device, &linear, &scratch.routes, rows, inputs, results)?;
        let common = match &self.shared {
            None => None,
            Some(shared) => {
                plain(&shared.gate_up, x, gate_up)?;
                let width = shared.width;
                gate_mul(device, activation, gate_up.all(), width, rows, gated.all())?;
                plain(&shared.down, gated, &scratch.common)?;
                if let Some(gate) = &shared.gate {
                    plain(gate, x, &scratch.common_gates)?;
                }
                Some(Common {
                    results: scratch.common.all(),
                    gates: shared.gate.as_ref().map(|_| scratch.common_gates.all()),
                })
            }
        };
        let out = Rows {
            slice: out.all(),
            stride: batch.spec.hidden,
            count: rows,
        };
        combine(device, &scratch.routes, results, common, scalars, out)
    }
}

impl ExpertMatrices {
    fn linear(&self) -> ExpertLinear<'_> {
        ExpertLinear {
            matrix: &self.matrix,
            bias: self.bias.as_ref().map(Buffer::all),
        }
    }
}

/// One matrix of each expert on its way to the device, expert by expert.
struct Filling<'a> {
    device: &'a Arc<dyn Device>,
    architecture: &'static str,
    /// Rows of all experts, and columns.
    shape: [usize; 2],
    matrix: Option<Matrix>,
    filled: usize,
}

impl<'a> Filling<'a> {
    fn new(loader: &Loader<'_>, device: &'a Arc<dyn Device>, shape: [usize; 2]) -> Self {
        Self {
            device,
            architecture: loader.spec.architecture.name(),
            shape,
            matrix: None,
            filled: 0,
        }
    }

    /// Add the next rows. All are stored as the first are.
    fn push(&mut self, encoded: &Encoded<'_>) -> Result<(), ModelError> {
        let matrix = match &mut self.matrix {
            Some(matrix) if matrix.format() != encoded.format => {
                return Err(ModelError::NotOnDevice {
                    architecture: self.architecture,
                    feature: "experts that are stored in different ways".to_owned(),
                });
            }
            Some(matrix) => matrix,
            none => none.insert(Matrix::zeros(self.device, encoded.format, self.shape)?),
        };
        let rows = self.filled..self.filled + encoded.rows;
        self.filled = rows.end;
        Ok(matrix.write(rows, &encoded.bytes, &encoded.scales)?)
    }

    fn finish(self, bias: Option<Vec<f32>>) -> Result<ExpertMatrices, ModelError> {
        let matrix = match self.matrix {
            Some(matrix) => matrix,
            None => Matrix::zeros(self.device, mortise_cuda::Format::F32, self.shape)?,
        };
        let bias = bias.map(|bias| Buffer::of(self.device, &bias));
        Ok(ExpertMatrices {
            matrix,
            bias: bias.transpose()?,
        })
    }
}

/// Experts whose matrices are tensors of their own: gates and ups, then downs.
fn load_apart(
    loader: &Loader<'_>,
    device: &Arc<dyn Device>,
    prefix: &str,
    (gate_up, down): ([&str; 2], &str),
    spec: ExpertsSpec,
) -> Result<[ExpertMatrices; 2], ModelError> {
    let (hidden, width) = (loader.spec.hidden, spec.intermediate);
    let all = |parts: &[&str], shape: [usize; 2]| -> Result<ExpertMatrices, ModelError> {
        let [outputs, inputs] = shape;
        let whole = [spec.experts * parts.len() * outputs, inputs];
        let mut filling = Filling::new(loader, device, whole);
        let mut bias = Vec::new();
        for expert in 0..spec.experts {
            for part in parts {
                let name = format!("{prefix}{expert}.{part}");
                let weight = format!("{name}.weight");
                let tensor = loader.checkpoint.find(&weight, &shape)?;
                filling.push(&encode(&tensor, loader, &weight, shape)?)?;
                if spec.bias {
                    bias.extend(loader.vector(&format!("{name}.bias"), outputs)?);
                }
            }
        }
        filling.finish(spec.bias.then_some(bias))
    };
    Ok([
        all(&gate_up, [width, hidden])?,
        all(&[down], [hidden, width])?,
    ])
}

/// Experts whose matrices are parts of one tensor, with gates and ups by turns.
fn load_interleaved(
    loader: &Loader<'_>,
    device: &Arc<dyn Device>,
    [gate_up, down]: [&str; 2],
    spec: ExpertsSpec,
) -> Result<[ExpertMatrices; 2], ModelError> {
    let (hidden, width) = (loader.spec.hidden, spec.intermediate);
    let all = |name: &str, [outputs, inputs]: [usize; 2], source: &dyn Fn(usize) -> usize| {
        let shape = [spec.experts, outputs];
        let biases = loader
            .checkpoint
            .load_unordered(&format!("{name}_bias"), &shape)?
            .into_f32();
        let tensor = ExpertTensor::load(loader, name, [spec.experts, outputs, inputs])?;
        let mut filling = Filling::new(loader, device, [spec.experts * outputs, inputs]);
        let mut bias = Vec::new();
        for expert in 0..spec.experts {
            let numbers = tensor.expert(expert, WeightPrecision::AsStored, source);
            let encoded = encode_numbers(numbers.bytes(), loader, name, [outputs, inputs])?;
            filling.push(&encoded)?;
            bias.extend((0..outputs).map(|row| biases[expert * outputs + source(row)]));
        }
        filling.finish(Some(bias))
    };
    let gates_first = interleaved_source(width);
    Ok([
        all(gate_up, [2 * width, hidden], &gates_first)?,
        all(down, [hidden, width], &|row| row)?,
    ])
}
