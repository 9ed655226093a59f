//! Grammar masks: one bit a token.

/// Set the logits of tokens whose bit is 0 to minus infinity and count the others. Bit `i % 32` of
/// word `i / 32` belongs to token `i`; tokens beyond the mask are not allowed.
pub fn apply_mask(logits: &mut [f32], mask: &[u32]) -> usize {
    let mut allowed = 0;
    let covered = logits.len().min(mask.len() * 32);
    let (inside, beyond) = logits.split_at_mut(covered);
    for (chunk, &word) in inside.chunks_mut(32).zip(mask) {
        let word = if chunk.len() == 32 {
            word
        } else {
            word & ((1 << chunk.len()) - 1)
        };
        allowed += word.count_ones() as usize;
        if word == u32::MAX {
            continue;
        }
        for (bit, logit) in chunk.iter_mut().enumerate() {
            if word >> bit & 1 == 0 {
                *logit = f32::NEG_INFINITY;
            }
        }
    }
    beyond.fill(f32::NEG_INFINITY);
    allowed
}

/// Whether a mask allows any of so many tokens.
pub fn allows_any(mask: &[u32], tokens: usize) -> bool {
    let (whole, rest) = (tokens / 32, tokens % 32);
    let last = mask
        .get(whole)
        .is_some_and(|word| word & ((1 << rest) - 1) != 0);
    last || mask.iter().take(whole).any(|word| *word != 0)
}
