//! Our logits against those of `transformers` on tiny models with random weights, see
//! `tests/parity/make_reference.py`.

mod lora;
mod references;

use std::path::PathBuf;

use mortise_kernels::linear::{RowLogits, WantedLogits};
use mortise_model::{
    Architecture, BLOCK_TOKENS, Decoder, KvCache, KvType, LogitRows, ModelFolder, ModelInput,
    ModelSpec, SequenceInput, WeightPrecision,
};
use references::References;

/// Largest difference, relative to the largest logit of the row.
const TOLERANCE: f32 = 1e-4;

fn data() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/parity/data")
}

fn folder(name: &str) -> PathBuf {
    data().join(name)
}

/// Names of all models that were made.
fn models() -> Vec<String> {
    let entries = std::fs::read_dir(data()).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn every_family_has_a_model() {
    let specs: Vec<ModelSpec> = models()
        .iter()
        .map(|name| ModelSpec::read(&ModelFolder::open(folder(name)).unwrap()).unwrap())
        .collect();
    for architecture in Architecture::all() {
        assert!(
            specs.iter().any(|spec| spec.architecture == architecture),
            "{} has no model in tests/parity/data",
            architecture.name()
        );
    }
}

fn load(name: &str) -> Decoder {
    let folder = ModelFolder::open(folder(name)).unwrap();
    Decoder::load(&folder, WeightPrecision::F32).unwrap()
}

/// The reference values of one prompt.
struct Reference {
    prompt: Vec<u32>,
    prompt_logits: Vec<f32>,
    greedy: Vec<u32>,
    decode_logits: Vec<f32>,
}

fn references(name: &str) -> Vec<Reference> {
    let file = References::read(&folder(name).join("reference.safetensors"));
    (0..3)
        .map(|index| Reference {
            prompt: file.tokens(&format!("prompt.{index}")),
            prompt_logits: file.floats(&format!("prompt_logits.{index}")),
            greedy: file.tokens(&format!("greedy.{index}")),
            decode_logits: file.floats(&format!("decode_logits.{index}")),
        })
        .collect()
}

#[test]
fn the_page_of_models_lists_exactly_the_supported_classes() {
    let readme = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/models.md");
    let readme = std::fs::read_to_string(readme).unwrap();
    let mut listed: Vec<&str> = readme
        .split('`')
        .filter(|word| word.ends_with("ForCausalLM"))
        .collect();
    let mut supported: Vec<&str> = Architecture::all().map(Architecture::name).collect();
    listed.sort_unstable();
    supported.sort_unstable();
    assert_eq!(listed, supported);
}

fn check_close(what: &str, found: &[f32], expected: &[f32], vocabulary: usize) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let rows = found.chunks(vocabulary).zip(expected.chunks(vocabulary));
    for (row, (found, expected)) in rows.enumerate() {
        let largest = expected
            .iter()
            .fold(0f32, |largest, value| largest.max(value.abs()));
        for (token, (found, expected)) in found.iter().zip(expected).enumerate() {
            let error = (found - expected).abs() / largest;
            assert!(
                error < TOLERANCE,
                "{what}, row {row}, token {token}: {found} is not {expected}"
            );
        }
    }
}

/// Block tables for sequences in one cache, interleaved so that neighbours belong to others.
fn table(sequence: usize, sequences: usize) -> Vec<u32> {
    (0..8)
        .map(|block| (block * sequences + sequence) as u32)
        .collect()
}

fn cache(model: &Decoder, sequences: usize) -> KvCache {
    KvCache::new(model.spec(), 8 * sequences, KvType::F32).unwrap()
}

/// Compute parts of sequences (number, tokens, first position) in one batch, all logits.
fn run(
    model: &Decoder,
    cache: &mut KvCache,
    parts: &[(usize, &[u32], usize)],
    sequences: usize,
) -> Vec<Vec<f32>> {
    let mut input = ModelInput::new();
    for (sequence, tokens, first_position) in parts {
        input.push(SequenceInput {
            tokens,
            first_position: *first_position,
            block_table: &table(*sequence, sequences),
            logits: LogitRows::All,
        });
    }
    let logits = model.forward(&input, cache).unwrap();
    let mut rows = logits.rows();
    parts
        .iter()
        .map(|(_, tokens, _)| {
            rows.by_ref()
                .take(tokens.len())
                .flatten()
                .copied()
                .collect()
        })
        .collect()
}

fn best(logits: &[f32]) -> u32 {
    mortise_kernels::select::top(logits, 1)[0].id
}

#[test]
fn whole_and_chunked_prefill_agree_with_transformers() {
    for name in &models() {
        let model = load(name);
        let vocabulary = model.spec().vocabulary;
        for (index, reference) in references(name).iter().enumerate() {
            let what = format!("{name}, prompt {index}");
            let prompt = &reference.prompt;
            let whole = run(&model, &mut cache(&model, 1), &[(0, prompt, 0)], 1).remove(0);
            check_close(&what, &whole, &reference.prompt_logits, vocabulary);
            for chunk in [1, 3, BLOCK_TOKENS] {
                let mut cache = cache(&model, 1);
                let mut chunked = Vec::new();
                for (number, tokens) in prompt.chunks(chunk).enumerate() {
                    chunked.extend(
                        run(&model, &mut cache, &[(0, tokens, number * chunk)], 1).remove(0),
                    );
                }
                assert_eq!(chunked, whole, "{what}: chunks of {chunk} change the bits");
            }
        }
    }
}

#[test]
fn greedy_decoding_agrees_with_transformers() {
    for name in &models() {
        let model = load(name);
        let vocabulary = model.spec().vocabulary;
        for (index, reference) in references(name).iter().enumerate() {
            let what = format!("{name}, prompt {index}");
            let mut cache = cache(&model, 1);
            let logits = run(&model, &mut cache, &[(0, &reference.prompt, 0)], 1).remove(0);
            let mut token = best(&logits[logits.len() - vocabulary..]);
            let mut decoded = Vec::new();
            for (step, expected) in reference.greedy.iter().enumerate() {
                assert_eq!(token, *expected, "{what}: token {step}");
                let position = reference.prompt.len() + step;
                let logits = run(&model, &mut cache, &[(0, &[token], position)], 1).remove(0);
                let mut input = ModelInput::new();
                input.push(SequenceInput {
                    tokens: &[token],
                    first_position: position,
                    block_table: &table(0, 1),
                    logits: LogitRows::Last,
                });
                token = best(&logits);
                let wanted = || vec![WantedLogits::Highest(None)];
                let mut scores = model.score(&input, &mut cache, wanted).unwrap();
                let Some(RowLogits::Highest(highest)) = scores.rows_mut().next() else {
                    panic!("one row was asked for");
                };
                let id = highest.candidate.map(|one| one.id);
                assert_eq!(id, Some(token), "{what}: the likeliest token alone");
                decoded.extend(logits);
            }
            let steps = reference.decode_logits.len();
            check_close(
                &what,
                &decoded[..steps],
                &reference.decode_logits,
                vocabulary,
            );
        }
    }
}

#[test]
fn a_batch_gives_the_bits_of_each_sequence_alone() {
    for name in &models() {
        let model = load(name);
        let references = references(name);
        let alone: Vec<Vec<f32>> = references
            .iter()
            .map(|reference| {
                let tokens = [&reference.prompt[..], &reference.greedy[..]].concat();
                run(&model, &mut cache(&model, 1), &[(0, &tokens, 0)], 1).remove(0)
            })
            .collect();
        // Sequence 0 decodes, 1 goes on with a chunk, 2 begins: all in the same passes.
        let tokens: Vec<Vec<u32>> = references
            .iter()
            .map(|reference| [&reference.prompt[..], &reference.greedy[..]].concat())
            .collect();
        let mut cache = cache(&model, 3);
        let mut together = vec![Vec::new(); 3];
        let mut done = [0; 3];
        for step in 0.. {
            let mut parts: Vec<(usize, &[u32], usize)> = Vec::new();
            for (sequence, chunk) in [(0, 1), (1, 7), (2, 19)] {
                let left = &tokens[sequence][done[sequence]..];
                if step >= 3 * sequence && !left.is_empty() {
                    parts.push((sequence, &left[..chunk.min(left.len())], done[sequence]));
                }
            }
            if parts.is_empty() {
                break;
            }
            for ((sequence, tokens, _), logits) in
                parts.iter().zip(run(&model, &mut cache, &parts, 3))
            {
                done[*sequence] += tokens.len();
                together[*sequence].extend(logits);
            }
        }
        assert_eq!(together, alone, "{name}");
    }
}

#[test]
fn reduced_precision_stays_close() {
    let precisions = [
        (WeightPrecision::Bf16, 0.02),
        (WeightPrecision::AsStored, 0.02),
        (WeightPrecision::Q8_0, 0.04),
    ];
    let models = models();
    let cases = models
        .iter()
        .flat_map(|name| precisions.map(|(precision, bound)| (name, precision, bound)));
    for (name, precision, bound) in cases {
        let folder = ModelFolder::open(folder(name)).unwrap();
        let model = Decoder::load(&folder, precision).unwrap();
        let reference = references(name).remove(1);
        let mut cache = KvCache::new(model.spec(), 8, KvType::Bf16).unwrap();
        let found = run(&model, &mut cache, &[(0, &reference.prompt, 0)], 1).remove(0);
        let largest = reference
            .prompt_logits
            .iter()
            .fold(0f32, |max, value| max.max(value.abs()));
        let errors = found
            .iter()
            .zip(&reference.prompt_logits)
            .map(|(a, b)| (a - b).abs());
        let mean = errors.sum::<f32>() / found.len() as f32;
        assert!(
            mean < bound * largest,
            "{name} in {precision:?}: mean error {mean} of {largest}"
        );
    }
}

/// Error by type of the KV cache, with weights in f32: the mean error over the largest logit. Measured were at most
/// 2.6e-4, 1.8e-3 and 4.2e-3; the bounds are about twice that.
#[test]
fn smaller_caches_stay_close() {
    // Where experts are chosen, a small error may choose others.
    for name in [
        "gemma2-soft-caps",
        "llama-rope-scaled",
        "mistral-plain",
        "qwen2-bias",
        "qwen3-qk-norm",
    ] {
        let folder = ModelFolder::open(folder(name)).unwrap();
        let model = Decoder::load(&folder, WeightPrecision::AsStored).unwrap();
        let reference = references(name).remove(1);
        let run = |kv_type| {
            let mut cache = KvCache::new(model.spec(), 8, kv_type).unwrap();
            run(&model, &mut cache, &[(0, &reference.prompt, 0)], 1).remove(0)
        };
        let exact = run(KvType::F32);
        let largest = exact.iter().fold(0f32, |max, value| max.max(value.abs()));
        for (kv_type, bound) in [
            (KvType::F16, 5e-4),
            (KvType::Bf16, 4e-3),
            (KvType::Q8_0, 8e-3),
        ] {
            let errors = run(kv_type);
            let errors = errors.iter().zip(&exact).map(|(a, b)| (a - b).abs());
            let mean = errors.sum::<f32>() / exact.len() as f32;
            assert!(
                mean > 0.0 && mean < bound * largest,
                "{name}, {kv_type:?}: mean error {mean} of {largest}"
            );
        }
    }
}
