//! The decoder on a device against `transformers`, on the tiny models that the decoder of the
//! processor is compared with; see `tests/parity/make_reference.py`. The device is the emulator,
//! which runs the GPU's kernels on the processor, and a GPU where there is one.

mod references;

use std::path::PathBuf;
use std::sync::Arc;

use mortise_cuda::Device;
use mortise_cuda_emulator::{Emulator, gpu};
use mortise_model::{
    Decoder, DeviceModel, DeviceSettings, KvCache, KvType, LogitRows, ModelError, ModelFolder,
    ModelInput, ModelSpec, SampleParams, SequenceInput, TokenSource, WeightPrecision,
};
use references::References;

/// Relative to the largest logit of all.
const TOLERANCE: f32 = 1e-4;
/// Blocks of a sequence.
const BLOCKS: usize = 8;

/// Below the sources, wherever those lie when this runs: it may have been built elsewhere.
fn data() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR");
    let package = package.unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    PathBuf::from(package).join("../../tests/parity/data")
}

fn folder(name: &str) -> ModelFolder {
    ModelFolder::open(data().join(name)).unwrap()
}

fn devices() -> Vec<Arc<dyn Device>> {
    let mut devices: Vec<Arc<dyn Device>> = vec![Arc::new(Emulator::new())];
    devices.extend(gpu());
    devices
}

fn load(
    name: &str,
    device: &Arc<dyn Device>,
    precision: WeightPrecision,
) -> Result<DeviceModel, ModelError> {
    load_from(&folder(name), device, precision)
}

fn load_from(
    folder: &ModelFolder,
    device: &Arc<dyn Device>,
    precision: WeightPrecision,
) -> Result<DeviceModel, ModelError> {
    let settings = DeviceSettings {
        precision,
        context: 4096,
        blocks: 3 * BLOCKS,
        kv_type: KvType::F32,
    };
    DeviceModel::load(folder, Arc::clone(device), settings)
}

/// One family each that the device computes, and what those have that others have not.
const MODELS: &[&str] = &[
    "gemma-tied",
    "gemma2-soft-caps",
    "gemma3-two-ropes",
    "gpt-oss-mxfp4",
    "gpt-oss-sinks",
    "granite-multipliers",
    "llama-rope-scaled",
    "ministral-layers",
    "mistral-window",
    "mixtral-experts",
    "olmo2-norm-after",
    "phi3-longrope-long",
    "qwen2-bias",
    "qwen2-moe-shared",
    "qwen3-moe-mixed",
    "qwen3-moe-shares",
    "qwen3-qk-norm",
    "smollm3-no-rope",
];

struct Reference {
    prompt: Vec<u32>,
    prompt_logits: Vec<f32>,
    greedy: Vec<u32>,
}

fn references(name: &str) -> Vec<Reference> {
    let file = References::read(&data().join(name).join("reference.safetensors"));
    (0..3)
        .map(|index| Reference {
            prompt: file.tokens(&format!("prompt.{index}")),
            prompt_logits: file.floats(&format!("prompt_logits.{index}")),
            greedy: file.tokens(&format!("greedy.{index}")),
        })
        .collect()
}

/// Blocks of a sequence, interleaved with those of others.
fn table(sequence: usize) -> Vec<u32> {
    (0..BLOCKS)
        .map(|block| (block * 3 + sequence) as u32)
        .collect()
}

fn batch(parts: &[(usize, &[u32], usize)], logits: LogitRows) -> ModelInput {
    let mut input = ModelInput::new();
    for (sequence, tokens, first_position) in parts {
        input.push(SequenceInput {
            tokens,
            first_position: *first_position,
            block_table: &table(*sequence),
            logits,
        });
    }
    input
}

/// Compute parts of sequences (number, tokens, first position) in one batch, all logits.
fn run(model: &mut DeviceModel, parts: &[(usize, &[u32], usize)]) -> Vec<Vec<f32>> {
    let logits = model.forward(&batch(parts, LogitRows::All)).unwrap();
    let mut rows = logits.rows();
    let of_part = |(_, tokens, _): &(usize, &[u32], usize)| {
        let rows = rows.by_ref().take(tokens.len());
        rows.flatten().copied().collect()
    };
    parts.iter().map(of_part).collect()
}

/// All logits of a prompt in parts of so few rows that nothing is rounded to 16 bits on the way.
fn run_exactly(model: &mut DeviceModel, prompt: &[u32]) -> Vec<f32> {
    let parts = prompt.chunks(8).enumerate();
    parts
        .flat_map(|(part, tokens)| run(model, &[(0, tokens, 8 * part)]).remove(0))
        .collect()
}

fn check_close(what: &str, found: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let largest = expected
        .iter()
        .fold(0f32, |most, value| most.max(value.abs()));
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (found - expected).abs() / largest;
        assert!(
            error < tolerance,
            "{what}, logit {index}: {found} is not {expected}"
        );
    }
}

fn best(logits: &[f32]) -> u32 {
    mortise_kernels::select::top(logits, 1)[0].id
}

#[test]
fn prompts_and_greedy_tokens_agree_with_transformers() {
    for device in devices() {
        for name in MODELS {
            let mut model = load(name, &device, WeightPrecision::F32).unwrap();
            let vocabulary = model.spec().vocabulary;
            for (index, reference) in references(name).iter().enumerate() {
                let what = format!("{name}, prompt {index}, on {}", device.name());
                let prompt = &reference.prompt;
                let logits = run(&mut model, &[(0, prompt, 0)]).remove(0);
                check_close(&what, &logits, &reference.prompt_logits, TOLERANCE);
                let mut token = best(&logits[logits.len() - vocabulary..]);
                for (step, expected) in reference.greedy.iter().enumerate() {
                    assert_eq!(token, *expected, "{what}: token {step}");
                    let last = [(0, &[token][..], prompt.len() + step)];
                    let input = batch(&last, LogitRows::Last);
                    let logits = model.forward(&input).unwrap();
                    token = best(logits.rows().next().unwrap());
                }
            }
        }
    }
}

/// Matrices stay as such files have them: rows of queries and keys in pairs, experts in one tensor,
/// blocks of eight and of four bits. Products with those are exact here.
#[test]
fn models_from_gguf_files_agree_with_transformers() {
    let file = |name: &str| {
        let path = data().join("../../gguf/data").join(format!("{name}.gguf"));
        ModelFolder::open(path).unwrap()
    };
    for device in devices() {
        for name in ["llama-rope-scaled", "mixtral-experts", "gpt-oss-mxfp4"] {
            let mut model = load_from(&file(name), &device, WeightPrecision::AsStored).unwrap();
            for reference in references(name) {
                let found = run_exactly(&mut model, &reference.prompt);
                check_close(name, &found, &reference.prompt_logits, TOLERANCE);
            }
        }
        let name = "llama-rope-scaled-q8_0";
        let exact = Decoder::load(&file(name), WeightPrecision::F32).unwrap();
        let mut cache = KvCache::new(exact.spec(), BLOCKS * 3, KvType::F32).unwrap();
        let prompt = &references("llama-rope-scaled")[2].prompt;
        let input = batch(&[(0, prompt, 0)], LogitRows::All);
        let expected = exact.forward(&input, &mut cache).unwrap();
        let expected: Vec<f32> = expected.rows().flatten().copied().collect();
        let mut model = load_from(&file(name), &device, WeightPrecision::AsStored).unwrap();
        check_close(name, &run_exactly(&mut model, prompt), &expected, TOLERANCE);
    }
}

/// Matrices of eight bits keep them where a kernel can: all of the first model, all of the second but
/// those whose blocks end within 128 columns.
#[test]
fn models_in_fp8_agree_with_transformers() {
    for device in devices() {
        for (name, bound) in [("llama-fp8-rows", TOLERANCE), ("qwen3-fp8-blocks", 0.02)] {
            let mut sizes = Vec::new();
            for precision in [WeightPrecision::AsStored, WeightPrecision::Bf16] {
                let mut model = load(name, &device, precision).unwrap();
                sizes.push(model.bytes_per_token());
                for reference in references(name) {
                    let found = match precision {
                        WeightPrecision::AsStored => run_exactly(&mut model, &reference.prompt),
                        _ => run(&mut model, &[(0, &reference.prompt, 0)]).remove(0),
                    };
                    let bound = if precision == WeightPrecision::Bf16 {
                        0.02
                    } else {
                        bound
                    };
                    check_close(name, &found, &reference.prompt_logits, bound);
                }
            }
            assert!(4 * sizes[0] < 3 * sizes[1], "{name}: {sizes:?} bytes");
        }
    }
}

/// Sequence 0 decodes, 1 goes on with a chunk, 2 begins: all in the same passes.
#[test]
fn a_mixed_batch_gives_what_each_sequence_gives_alone() {
    for device in devices() {
        for name in ["llama-rope-scaled", "gemma2-soft-caps", "qwen2-moe-shared"] {
            let references = references(name);
            let texts: Vec<Vec<u32>> = references
                .iter()
                .map(|reference| [&reference.prompt[..], &reference.greedy[..]].concat())
                .collect();
            let mut model = load(name, &device, WeightPrecision::F32).unwrap();
            let alone: Vec<Vec<f32>> = texts
                .iter()
                .map(|text| run(&mut model, &[(0, text, 0)]).remove(0))
                .collect();
            let (mut together, mut done) = (vec![Vec::new(); 3], [0; 3]);
            while done
                .iter()
                .zip(&texts)
                .any(|(done, text)| *done < text.len())
            {
                let parts: Vec<(usize, &[u32], usize)> = [(0, 1), (1, 7), (2, 19)]
                    .into_iter()
                    .filter(|(sequence, _)| done[*sequence] < texts[*sequence].len())
                    .map(|(sequence, chunk)| {
                        let left = &texts[sequence][done[sequence]..];
                        (sequence, &left[..chunk.min(left.len())], done[sequence])
                    })
                    .collect();
                let logits = run(&mut model, &parts);
                for ((sequence, tokens, _), logits) in parts.iter().zip(logits) {
                    done[*sequence] += tokens.len();
                    together[*sequence].extend(logits);
                }
            }
            for (together, alone) in together.iter().zip(&alone) {
                check_close(name, together, alone, TOLERANCE);
            }
        }
    }
}

/// The choice of the likeliest token of a row.
fn likeliest(row: usize) -> SampleParams {
    SampleParams {
        row,
        adjustments: Vec::new(),
        mask: None,
        temperature: 0.0,
        top_k: 0,
        min_p: 0.0,
        top_p: 1.0,
        random: 0,
        reported: None,
    }
}

/// Tokens of so many steps, each queued before anybody asks what the one before it chose.
fn decode_ahead(
    model: &mut DeviceModel,
    last: &[(usize, &[u32], usize)],
    steps: usize,
) -> Vec<Vec<u32>> {
    let mut sources = Vec::new();
    for step in 0..steps {
        let parts: Vec<_> = last
            .iter()
            .map(|(sequence, tokens, position)| (*sequence, *tokens, position + step))
            .collect();
        let input = batch(&parts, LogitRows::Last);
        model.queue(&input, &sources).unwrap();
        let rows = 0..last.len();
        model.sample(rows.clone().map(likeliest).collect()).unwrap();
        // From now on what stands in the batch does not count.
        sources = rows.map(|row| TokenSource { row, sample: row }).collect();
    }
    let mut tokens = vec![Vec::new(); last.len()];
    for _ in 0..steps {
        let chosen = model.sampled().unwrap();
        assert_eq!(chosen.len(), last.len());
        for (tokens, chosen) in tokens.iter_mut().zip(chosen) {
            tokens.push(chosen.token.unwrap().0);
        }
    }
    assert!(model.sampled().unwrap().is_empty());
    tokens
}

/// Choosing on the device, step after step without the host, gives the tokens of the host; and what
/// it stored in the cache serves the steps after it.
#[test]
fn tokens_chosen_on_the_device_are_the_greedy_ones() {
    const AHEAD: usize = 5;
    for device in devices() {
        for name in ["llama-rope-scaled", "qwen3-qk-norm"] {
            let references = references(name);
            let mut model = load(name, &device, WeightPrecision::F32).unwrap();
            let prompts: Vec<_> = references
                .iter()
                .enumerate()
                .map(|(sequence, reference)| (sequence, &reference.prompt[..], 0))
                .collect();
            model.forward(&batch(&prompts, LogitRows::None)).unwrap();
            let mut done = 0;
            while done + AHEAD < references[0].greedy.len() {
                let last: Vec<_> = references
                    .iter()
                    .enumerate()
                    .map(|(sequence, reference)| {
                        let position = reference.prompt.len() + done;
                        (sequence, &reference.greedy[done..=done], position)
                    })
                    .collect();
                let chosen = decode_ahead(&mut model, &last, AHEAD);
                for (chosen, reference) in chosen.iter().zip(&references) {
                    assert_eq!(chosen, &reference.greedy[done + 1..=done + AHEAD], "{name}");
                }
                done += AHEAD;
            }
            assert!(done > 0, "{name} has too few tokens to compare");
        }
    }
}

/// Rows come to the host one by one, and what is not there is refused.
#[test]
fn rows_that_are_asked_for_are_those_of_the_batch() {
    let device = devices().remove(0);
    let mut model = load("qwen3-qk-norm", &device, WeightPrecision::F32).unwrap();
    let (first, second) = (&[5u32, 6, 7][..], &[8u32][..]);
    let input = batch(&[(0, first, 0), (1, second, 0)], LogitRows::Last);
    let expected = model.forward(&input).unwrap();
    model.queue(&input, &[]).unwrap();
    model.wait().unwrap();
    for (row, expected) in expected.rows().enumerate() {
        assert_eq!(model.logit_row(row).unwrap(), expected);
    }
    let refused = model.logit_row(2).unwrap_err().to_string();
    assert!(refused.contains("2 rows"), "{refused}");
    assert!(model.sample(vec![likeliest(2)]).is_err());
    // Nothing was chosen yet.
    let source = TokenSource { row: 0, sample: 0 };
    assert!(model.queue(&input, &[source]).is_err());
    model.queue(&input, &[]).unwrap();
    model.sample(vec![likeliest(1)]).unwrap();
    assert!(
        model
            .queue(&input, &[TokenSource { row: 4, sample: 0 }])
            .is_err()
    );
    assert!(
        model
            .queue(&input, &[TokenSource { row: 0, sample: 1 }])
            .is_err()
    );
    let best = best(expected.rows().nth(1).unwrap());
    assert_eq!(model.sampled().unwrap()[0].token.unwrap().0, best);
}

/// Weights and caches of fewer bits, against the processor with the same.
#[test]
fn smaller_numbers_are_those_of_the_processor() {
    let name = "llama-rope-scaled";
    let reference = references(name).remove(1);
    // The processor rounds activations to eight bits for quantised weights, the device does not; its
    // tensor cores round queries to what keys are.
    for (precision, kv_type, bound) in [
        (WeightPrecision::AsStored, KvType::F16, 1e-3),
        (WeightPrecision::Bf16, KvType::Bf16, 8e-3),
        (WeightPrecision::AsStored, KvType::Q8_0, 3e-3),
        (WeightPrecision::Q8_0, KvType::F32, 0.04),
    ] {
        let host = Decoder::load(&folder(name), precision).unwrap();
        let mut cache = KvCache::new(host.spec(), 3 * BLOCKS, kv_type).unwrap();
        let input = batch(&[(0, &reference.prompt, 0)], LogitRows::All);
        let expected = host.forward(&input, &mut cache).unwrap();
        let expected: Vec<f32> = expected.rows().flatten().copied().collect();
        for device in devices() {
            let settings = DeviceSettings {
                precision,
                context: 4096,
                blocks: 3 * BLOCKS,
                kv_type,
            };
            let mut model = DeviceModel::load(&folder(name), device, settings).unwrap();
            let found = run_exactly(&mut model, &reference.prompt);
            let largest = expected
                .iter()
                .fold(0f32, |most, value| most.max(value.abs()));
            let errors = found.iter().zip(&expected).map(|(a, b)| (a - b).abs());
            let mean = errors.sum::<f32>() / found.len() as f32;
            assert!(
                found.len() == expected.len() && mean < bound * largest,
                "{precision:?}, {kv_type:?}: mean error {mean} of {largest}"
            );
        }
    }
}

#[test]
fn what_the_device_lacks_is_refused_by_name() {
    for device in devices() {
        for (name, feature) in [
            ("deepseek-v2-lite", "latent attention"),
            ("deepseek-v3", "experts in groups"),
            ("ministral3-yarn", "queries that grow"),
        ] {
            let error = load(name, &device, WeightPrecision::AsStored)
                .unwrap_err()
                .to_string();
            let class = ModelSpec::read(&folder(name)).unwrap().architecture.name();
            assert!(error.contains(feature) && error.contains(class), "{error}");
        }
    }
}
