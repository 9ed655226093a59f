//! Rotary position embedding.

/// Pairing of rotary dimensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RopePairs {
    /// Dimension `i` with dimension `i + turned / 2`.
    Halves,
    /// Dimension `2 i` with dimension `2 i + 1`.
    Neighbours,
}

/// Rotary dimensions of a row: in each of the first `heads` heads, from `first` on, as many as the
/// table has cosines and sines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RopeHeads {
    /// Heads that turn.
    pub heads: usize,
    /// Numbers from one head to the next.
    pub head_dim: usize,
    /// Numbers of a head before those that turn.
    pub first: usize,
    /// Pairing of the dimensions.
    pub pairs: RopePairs,
}

/// Cosines and sines for each position: row `r` of both is `positions[r]` times each frequency.
#[derive(Debug, Default, Clone)]
pub struct RopeTable {
    half: usize,
    cos: Vec<f32>,
    sin: Vec<f32>,
}

impl RopeTable {
    /// The table of these positions, all cosines and sines times `magnitude`, which is 1 but in
    /// some scaled variants. Those differ only in it and in their frequencies.
    pub fn new(positions: &[u32], frequencies: &[f32], magnitude: f32) -> Self {
        let angles = positions.iter().flat_map(|&position| {
            frequencies
                .iter()
                .map(move |frequency| position as f32 * frequency)
        });
        let turn = |angle: f32| {
            let (sin, cos) = angle.sin_cos();
            (sin * magnitude, cos * magnitude)
        };
        let (sin, cos) = angles.map(turn).unzip();
        Self {
            half: frequencies.len(),
            cos,
            sin,
        }
    }

    /// Cosines, row by row.
    pub fn cosines(&self) -> &[f32] {
        &self.cos
    }

    /// Sines, row by row.
    pub fn sines(&self) -> &[f32] {
        &self.sin
    }

    /// Turn the heads of each row of `x`; rows are `stride` values apart.
    pub fn apply(&self, x: &mut [f32], stride: usize, heads: RopeHeads) {
        assert!(self.half == 0 || x.len() == self.cos.len() / self.half * stride);
        for (row, x) in x.chunks_exact_mut(stride).enumerate() {
            self.apply_row(row, x, heads);
        }
    }

    /// Turn the heads of row `row`, which begins with them.
    pub fn apply_row(&self, row: usize, x: &mut [f32], heads: RopeHeads) {
        let turned = 2 * self.half;
        if turned == 0 || heads.heads == 0 {
            return;
        }
        assert!(heads.first + turned <= heads.head_dim);
        let cos = &self.cos[row * self.half..][..self.half];
        let sin = &self.sin[row * self.half..][..self.half];
        let x = &mut x[..heads.heads * heads.head_dim];
        for head in x.chunks_exact_mut(heads.head_dim) {
            let head = &mut head[heads.first..][..turned];
            match heads.pairs {
                RopePairs::Halves => turn_halves(head, cos, sin),
                RopePairs::Neighbours => turn_neighbours(head, cos, sin),
            }
        }
    }
}

fn turn_halves(head: &mut [f32], cos: &[f32], sin: &[f32]) {
    let (low, high) = head.split_at_mut(cos.len());
    for (((low, high), cos), sin) in low.iter_mut().zip(high).zip(cos).zip(sin) {
        let (a, b) = (*low, *high);
        *low = a * cos - b * sin;
        *high = b * cos + a * sin;
    }
}

fn turn_neighbours(head: &mut [f32], cos: &[f32], sin: &[f32]) {
    for ((pair, cos), sin) in head.as_chunks_mut::<2>().0.iter_mut().zip(cos).zip(sin) {
        let [a, b] = *pair;
        *pair = [a * cos - b * sin, b * cos + a * sin];
    }
}
