//! Rotary position embedding on halves: dimension `i` turns with dimension `i + head_dim / 2`.

/// Cosines and sines for each position: row `r` of both is `positions[r]` times each frequency.
#[derive(Debug, Default, Clone)]
pub struct RopeTable {
    half: usize,
    cos: Vec<f32>,
    sin: Vec<f32>,
}

impl RopeTable {
    /// The table of these positions. Scaled variants differ only in their frequencies.
    pub fn new(positions: &[u32], frequencies: &[f32]) -> Self {
        let angles = positions.iter().flat_map(|&position| {
            frequencies
                .iter()
                .map(move |frequency| position as f32 * frequency)
        });
        let (sin, cos) = angles.map(f32::sin_cos).unzip();
        Self {
            half: frequencies.len(),
            cos,
            sin,
        }
    }

    /// Turn the first `heads` heads of each row of `x`; rows are `stride` values apart.
    pub fn apply(&self, x: &mut [f32], stride: usize, heads: usize) {
        if self.half == 0 {
            return;
        }
        let head_dim = 2 * self.half;
        assert!(stride >= heads * head_dim && x.len() == self.cos.len() / self.half * stride);
        let tables = self
            .cos
            .chunks_exact(self.half)
            .zip(self.sin.chunks_exact(self.half));
        for (row, (cos, sin)) in x.chunks_exact_mut(stride).zip(tables) {
            for head in row[..heads * head_dim].chunks_exact_mut(head_dim) {
                let (low, high) = head.split_at_mut(self.half);
                for (((low, high), cos), sin) in low.iter_mut().zip(high).zip(cos).zip(sin) {
                    let (a, b) = (*low, *high);
                    *low = a * cos - b * sin;
                    *high = b * cos + a * sin;
                }
            }
        }
    }
}
