//! Warm-up: passes over a few tokens before an engine takes requests, so that the first of them is as fast as the next.
//! Pages of weights are read, threads have run once, and devices record what they repeat.

use std::panic::{AssertUnwindSafe, catch_unwind};

use mortise_kernels::linear::WantedLogits;
use mortise_model::{BLOCK_TOKENS, InputError, LogitRows, ModelInput, SampleParams, SequenceInput};

use crate::forward::{DeviceLogits, ForwardPass};
use crate::panics::panic_message;

/// Prompt tokens of the pass that is a prefill.
const PREFILL: usize = 32;
/// Sequences of the passes that decode.
const BATCHES: [usize; 4] = [1, 2, 4, 8];
/// Passes of a batch: a device computes a shape as it is, then records it, then repeats the recording.
const PASSES: usize = 3;

/// Compute a short prompt, and some tokens behind it in batches of several sizes, within `sequences`. What that leaves in
/// the cache belongs to no sequence, and is written over.
///
/// # Errors
/// When the model cannot compute them.
pub(crate) fn warm_up(model: &mut dyn ForwardPass, sequences: usize) -> Result<(), String> {
    let prompt = PREFILL.min(model.context_length().saturating_sub(1));
    let blocks = prompt.div_ceil(BLOCK_TOKENS);
    if prompt == 0 || blocks > model.cache_blocks() {
        return Ok(());
    }
    let table: Vec<u32> = (0..blocks as u32).collect();
    let tokens = vec![0; prompt];
    let mut prefill = ModelInput::new();
    prefill.push(SequenceInput {
        tokens: &tokens,
        first_position: 0,
        block_table: &table,
        logits: LogitRows::Last,
    });
    pass(model, &prefill, 1)?;
    let most = sequences.min(model.cache_blocks());
    for count in BATCHES.into_iter().filter(|count| *count <= most) {
        let mut decode = ModelInput::new();
        for block in 0..count as u32 {
            decode.push(SequenceInput {
                tokens: &tokens[..1],
                first_position: 0,
                block_table: &[block],
                logits: LogitRows::Last,
            });
        }
        let passes = if model.device().is_some() { PASSES } else { 1 };
        for _ in 0..passes {
            pass(model, &decode, count)?;
        }
    }
    Ok(())
}

/// One pass over a batch that samples from so many rows.
fn pass(model: &mut dyn ForwardPass, input: &ModelInput, rows: usize) -> Result<(), String> {
    let run = AssertUnwindSafe(|| match model.device() {
        Some(device) => on_device(device, input, rows),
        None => {
            let mut wanted = || vec![WantedLogits::Highest(None); rows];
            model.score(input, &mut wanted).map(drop)
        }
    });
    match catch_unwind(run) {
        Ok(done) => done.map_err(|error| error.to_string()),
        Err(panic) => Err(panic_message(&*panic).to_owned()),
    }
}

fn on_device(
    device: &mut dyn DeviceLogits,
    input: &ModelInput,
    rows: usize,
) -> Result<(), InputError> {
    device.queue(input, &[])?;
    let greedy = |row| SampleParams {
        row,
        adjustments: Vec::new(),
        mask: None,
        temperature: 0.0,
        top_k: 0,
        min_p: 0.0,
        top_p: 1.0,
        random: 0,
        reported: None,
    };
    device.sample((0..rows).map(greedy).collect())?;
    device.sampled().map(drop)
}
