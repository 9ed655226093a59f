//! Grammar masks: one bit a token.

/// Set the logits of tokens whose bit is 0 to minus infinity and count the others. Bit `i % 32` of
/// word `i / 32` belongs to token `i`; tokens beyond the mask are not allowed.
#[inline(always)]
pub fn apply_mask(logits: &mut [f32], mask: &[u32]) -> usize {
    let mut allowed = 0;
    let covered = logits.len().min(mask.len() * 32);
    let (inside, beyond) = logits.split_at_mut(covered);
    let (whole, rest) = inside.as_chunks_mut::<32>();
    for (logits, &word) in whole.iter_mut().zip(mask) {
        allowed += word.count_ones() as usize;
        forbid(logits, word);
    }
    if let Some(word) = mask.get(whole.len()).filter(|_| !rest.is_empty()) {
        let word = word & ((1 << rest.len()) - 1);
        allowed += word.count_ones() as usize;
        forbid(rest, word);
    }
    beyond.fill(f32::NEG_INFINITY);
    allowed
}

/// At most 32 logits. Without a branch, so that it vectorises.
#[inline(always)]
fn forbid(logits: &mut [f32], word: u32) {
    for (bit, logit) in logits.iter_mut().enumerate() {
        let allowed = word & (1 << bit) != 0;
        *logit = if allowed { *logit } else { f32::NEG_INFINITY };
    }
}

/// Whether a mask allows any of so many tokens.
pub fn allows_any(mask: &[u32], tokens: usize) -> bool {
    let (whole, rest) = (tokens / 32, tokens % 32);
    let last = mask
        .get(whole)
        .is_some_and(|word| word & ((1 << rest) - 1) != 0);
    last || mask.iter().take(whole).any(|word| *word != 0)
}
