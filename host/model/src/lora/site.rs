//! An adapter's matrices at one place of a layer.

use mortise_kernels::linear::RowOrder;

use super::part::Site;
use super::{AdapterPart, Pair};
use crate::error::ModelError;
use crate::limits::ADAPTER_RANK_MAX;
use crate::linear::Linear;
use crate::spec::ModelSpec;
use crate::stored_tensor::StoredTensor;
use crate::weights::{NumberType, WeightNumbers, WeightPrecision, widen};

/// Matrices are packed in rows of so many.
const PACKED_ROWS: usize = 16;

/// Part of an adapter that is added to the outputs of one place.
#[derive(Debug)]
pub(super) struct SiteAdapter {
    /// From the inputs to the values of all ranks, one matrix below the other.
    narrow: Linear,
    inputs: usize,
    widened: Vec<Widened>,
}

/// From the values of one rank to outputs.
#[derive(Debug)]
struct Widened {
    matrix: Linear,
    /// The first of its values among those of all ranks.
    first_value: usize,
    rank: usize,
    /// The first of its outputs among those of the place.
    first_output: usize,
    scale: f32,
}

impl Pair {
    /// The rank: rows of the first matrix.
    pub(super) fn rank(&self) -> usize {
        self.matrices[0].place.shape.first().copied().unwrap_or(0)
    }

    /// Bytes that the matrices take when they are packed.
    pub(super) fn bytes(&self) -> u64 {
        let [narrow, wide] = [&self.matrices[0], &self.matrices[1]].map(|matrix| {
            let bytes = match matrix.numbers {
                NumberType::F16 | NumberType::Bf16 => 2,
                _ => 4,
            };
            let shape = &matrix.place.shape;
            let rows = shape
                .first()
                .map_or(0, |rows| rows.next_multiple_of(PACKED_ROWS));
            let product = rows.saturating_mul(shape.get(1).copied().unwrap_or(0));
            product.saturating_mul(bytes) as u64
        });
        narrow.saturating_add(wide)
    }

    /// Compare the sides of both matrices with the model's, and their ranks with each other.
    pub(super) fn check(&self) -> Result<(), ModelError> {
        let AdapterPart {
            outputs, inputs, ..
        } = self.part;
        let rank = self.rank();
        if !(1..=ADAPTER_RANK_MAX).contains(&rank) {
            return Err(ModelError::AdapterRank {
                tensor: self.names[0].clone(),
                found: rank,
                limit: ADAPTER_RANK_MAX,
            });
        }
        let sides = [[rank, inputs], [outputs, rank]];
        for ((matrix, name), sides) in self.matrices.iter().zip(&self.names).zip(sides) {
            matrix.place.check(name, &sides)?;
        }
        Ok(())
    }
}

/// The sites of a layer from the pairs that adapt it, which were checked.
pub(super) fn load(
    pairs: &[&Pair],
    spec: &ModelSpec,
    scale: f32,
) -> Result<[Option<SiteAdapter>; Site::COUNT], ModelError> {
    let mut sites = [const { None }; Site::COUNT];
    for (place, site) in sites.iter_mut().zip(Site::ALL) {
        let of_site = pairs.iter().filter(|pair| pair.part.site == site);
        let mut found: Option<SiteAdapter> = None;
        for pair in of_site {
            let rank = pair.rank();
            let AdapterPart {
                outputs, inputs, ..
            } = pair.part;
            let [narrow, wide] =
                [0, 1].map(|side| numbers(&pair.matrices[side], &pair.names[side]));
            let narrow = Linear::new(narrow?, None, rank, inputs)?;
            let mut widened = Widened {
                matrix: Linear::ordered(wide?, order(pair, spec), None, outputs, rank)?,
                first_value: 0,
                rank,
                first_output: pair.part.first,
                scale: (pair.scale * f64::from(scale)) as f32,
            };
            let adapter = match found.take() {
                None => SiteAdapter {
                    narrow,
                    inputs,
                    widened: vec![widened],
                },
                Some(mut adapter) => {
                    widened.first_value = adapter.narrow.outputs();
                    adapter.widened.push(widened);
                    adapter.narrow = adapter.narrow.append(narrow);
                    adapter
                }
            };
            found = Some(adapter);
        }
        *place = found;
    }
    Ok(sites)
}

/// In which order the rows of a pair's second matrix are stored.
fn order(pair: &Pair, spec: &ModelSpec) -> RowOrder {
    match pair.order {
        RowOrder::Plain => RowOrder::Plain,
        RowOrder::Paired { .. } => RowOrder::Paired {
            head: spec.head_dim,
        },
    }
}

/// The numbers of a matrix, all of which are finite.
fn numbers(matrix: &StoredTensor, name: &str) -> Result<WeightNumbers, ModelError> {
    let bytes = matrix.place.bytes();
    let values = widen(bytes, matrix.numbers);
    if let Some(place) = values.iter().position(|value| !value.is_finite()) {
        return Err(ModelError::NotFinite {
            tensor: name.to_owned(),
            place,
        });
    }
    let inputs = matrix.place.shape.last().copied().unwrap_or(1);
    Ok(match matrix.numbers {
        // The rank rarely fills blocks, and the matrices are small.
        NumberType::Blocks(_) => WeightNumbers::F32(values),
        stored => WeightNumbers::convert(bytes, stored, WeightPrecision::AsStored, inputs),
    })
}

impl SiteAdapter {
    /// Add `scale` times the product for some rows of `x` to the same rows of `out`, which have `width` values
    /// each. A row's sum does not depend on the other rows.
    pub(super) fn add(&self, x: &[f32], rows: &[usize], scale: f32, out: &mut [f32], width: usize) {
        let inputs = self.inputs;
        let gathered: Vec<f32> = rows
            .iter()
            .flat_map(|row| &x[row * inputs..][..inputs])
            .copied()
            .collect();
        let values = self.narrow.apply(&gathered);
        let all = self.narrow.outputs();
        for widened in &self.widened {
            let outputs = widened.matrix.outputs();
            let added = match widened.rank == all {
                true => widened.matrix.apply(&values),
                false => {
                    let own = values.chunks_exact(all);
                    let own = own.flat_map(|row| &row[widened.first_value..][..widened.rank]);
                    widened.matrix.apply(&own.copied().collect::<Vec<f32>>())
                }
            };
            let factor = scale * widened.scale;
            for (row, added) in rows.iter().zip(added.chunks_exact(outputs)) {
                let out = &mut out[row * width + widened.first_output..][..outputs];
                for (out, added) in out.iter_mut().zip(added) {
                    *out += factor * added;
                }
            }
        }
    }
}
