//! Adapters: our logits against those of `transformers` with `peft`, see `tests/parity/make_adapters.py`, and batches
//! of sequences with several.

use std::path::PathBuf;
use std::sync::Arc;

use mortise_model::{
    Adapter, BLOCK_TOKENS, Decoder, KvCache, LogitRows, ModelFolder, ModelInput, SequenceInput,
    WeightPrecision,
};
use proptest::prelude::*;

use super::references::References;
use super::{cache, check_close, folder, load, references, table};

/// Adapters with their bases.
const ADAPTERS: [(&str, &str); 8] = [
    ("llama-queries", "llama-rope-scaled"),
    ("llama-all", "llama-rope-scaled"),
    ("qwen2-root", "qwen2-bias"),
    ("gemma2-patterns", "gemma2-soft-caps"),
    ("mistral-one-layer", "mistral-plain"),
    ("phi3-stacked", "phi3-longrope-short"),
    ("qwen3-all", "qwen3-qk-norm"),
    ("qwen3-moe-attention", "qwen3-moe-shares"),
];
/// Adapters that are there as GGUF files too.
const AS_GGUF: [&str; 3] = ["llama-all", "phi3-stacked", "qwen3-all"];

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/parity/adapters")
        .join(name)
}

fn adapter(name: &str, model: &Decoder, scale: f32) -> Arc<Adapter> {
    let folder = ModelFolder::open(path(name)).unwrap();
    Arc::new(Adapter::load(&folder, model.spec(), scale).unwrap())
}

/// Parts of sequences in one batch: number, tokens, first position, adapter.
type Part<'a> = (usize, &'a [u32], usize, Option<&'a Arc<Adapter>>);

fn run(
    model: &Decoder,
    cache: &mut KvCache,
    parts: &[Part<'_>],
    sequences: usize,
) -> Vec<Vec<f32>> {
    let mut input = ModelInput::new();
    for (sequence, tokens, first_position, adapter) in parts {
        let table = table(*sequence, sequences);
        let sequence = SequenceInput {
            tokens,
            first_position: *first_position,
            block_table: &table,
            logits: LogitRows::All,
        };
        match adapter {
            Some(adapter) => input.push_adapted(sequence, adapter),
            None => input.push(sequence),
        }
    }
    let logits = model.forward(&input, cache).unwrap();
    let mut rows = logits.rows();
    let of = |count: usize| rows.by_ref().take(count).flatten().copied().collect();
    parts.iter().map(|part| part.1.len()).map(of).collect()
}

fn check_all(model: &Decoder, base: &str, name: &str, adapter: &Arc<Adapter>) {
    let expected = References::read(&path(name).join("reference.safetensors"));
    let vocabulary = model.spec().vocabulary;
    for (index, reference) in references(base).iter().enumerate() {
        let what = format!("{name}, prompt {index}");
        let prompt = &reference.prompt;
        let adapted = Some(adapter);
        let whole = run(model, &mut cache(model, 1), &[(0, prompt, 0, adapted)], 1).remove(0);
        let expected = expected.floats(&format!("prompt_logits.{index}"));
        check_close(&what, &whole, &expected, vocabulary);
        let mut chunked = Vec::new();
        let mut cache = cache(model, 1);
        for (number, tokens) in prompt.chunks(BLOCK_TOKENS - 1).enumerate() {
            let first = number * (BLOCK_TOKENS - 1);
            let part = (0, tokens, first, adapted);
            chunked.extend(run(model, &mut cache, &[part], 1).remove(0));
        }
        assert_eq!(chunked, whole, "{what}: chunks change the bits");
    }
}

#[test]
fn feature_a1_adapters_agree_with_peft() {
    for (name, base) in ADAPTERS {
        let model = load(base);
        check_all(&model, base, name, &adapter(name, &model, 1.0));
    }
}

#[test]
fn feature_a1_adapters_in_gguf_agree_with_peft() {
    for name in AS_GGUF {
        let (_, base) = ADAPTERS.iter().find(|(known, _)| *known == name).unwrap();
        let model = load(base);
        check_all(
            &model,
            base,
            name,
            &adapter(&format!("{name}.gguf"), &model, 1.0),
        );
    }
}

/// A base in GGUF has its queries and keys in another order on the disk, which nobody above sees.
#[test]
fn adapters_of_either_format_fit_a_base_of_either() {
    let gguf = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/gguf/data/llama-rope-scaled.gguf");
    let gguf = ModelFolder::open(gguf).unwrap();
    let model = Decoder::load(&gguf, WeightPrecision::F32).unwrap();
    for name in ["llama-all", "llama-all.gguf"] {
        let adapter = adapter(name, &model, 1.0);
        check_all(&model, "llama-rope-scaled", "llama-all", &adapter);
    }
}

#[test]
fn an_adapter_says_what_it_is() {
    let model = load("gemma2-soft-caps");
    let adapter = adapter("gemma2-patterns", &model, 1.0);
    assert_eq!(adapter.rank(), 7, "the highest");
    assert_eq!(adapter.alpha(), 8.0);
    assert_eq!(
        adapter.modules(),
        ["down_proj", "gate_proj", "o_proj", "q_proj"]
    );
    assert!(adapter.bytes() > 10_000);
}

/// A scale of nothing adds nothing, and rows without an adapter are computed as if there were none.
#[test]
fn rows_without_an_adapter_keep_their_bits() {
    for (base, name) in [
        ("llama-rope-scaled", "llama-all"),
        ("phi3-longrope-short", "phi3-stacked"),
    ] {
        // Quantised matrices are multiplied in another way than adapters.
        for precision in [WeightPrecision::F32, WeightPrecision::Q8_0] {
            let model =
                Decoder::load(&ModelFolder::open(folder(base)).unwrap(), precision).unwrap();
            let adapter = adapter(name, &model, 1.0);
            let reference = references(base).remove(1);
            let prompt = &reference.prompt[..];
            let alone = run(&model, &mut cache(&model, 1), &[(0, prompt, 0, None)], 1);
            let parts = [(0, prompt, 0, Some(&adapter)), (1, prompt, 0, None)];
            let both = run(&model, &mut cache(&model, 2), &parts, 2);
            assert_eq!(both[1], alone[0], "{name}, {precision:?}");
            assert_ne!(both[0], alone[0], "{name}, {precision:?}");
        }
    }
}

#[test]
fn an_adapter_of_another_model_is_refused() {
    let model = load("llama-rope-scaled");
    let other = load("mistral-plain");
    let adapter = adapter("llama-all", &model, 1.0);
    let mut input = ModelInput::new();
    let sequence = SequenceInput {
        tokens: &[5],
        first_position: 0,
        block_table: &[0],
        logits: LogitRows::Last,
    };
    input.push_adapted(sequence, &adapter);
    let error = other.forward(&input, &mut cache(&other, 1)).unwrap_err();
    assert_eq!(error, mortise_model::InputError::Adapter);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    /// Sequences with different adapters, and without, side by side in chunks of any size: each has the bits that
    /// it has alone.
    #[test]
    fn feature_a4_a_batch_of_mixed_adapters_gives_the_bits_of_each_alone(
        choices in prop::collection::vec((0usize..4, 1usize..24, 1u32..144), 2..7),
        quantised in any::<bool>(),
    ) {
        let precision = if quantised { WeightPrecision::Q8_0 } else { WeightPrecision::AsStored };
        let files = ModelFolder::open(folder("llama-rope-scaled")).unwrap();
        let model = Decoder::load(&files, precision).unwrap();
        let adapters = [
            None,
            Some(adapter("llama-queries", &model, 1.0)),
            Some(adapter("llama-all", &model, 0.7)),
            Some(adapter("llama-all.gguf", &model, -1.5)),
        ];
        let texts: Vec<Vec<u32>> = choices
            .iter()
            .map(|(_, length, seed)| (0..2 * *length as u32).map(|i| (i * 7 + seed * 13) % 144).collect())
            .collect();
        let sequences = texts.len();
        let mut together = vec![Vec::new(); sequences];
        let mut shared = KvCache::new(model.spec(), 8 * sequences, super::KvType::F32).unwrap();
        for half in 0..2 {
            let parts: Vec<Part<'_>> = texts
                .iter()
                .zip(&choices)
                .enumerate()
                .map(|(number, (text, (which, length, _)))| {
                    let tokens = &text[half * length..(half + 1) * length];
                    (number, tokens, half * length, adapters[*which].as_ref())
                })
                .collect();
            for (all, new) in together.iter_mut().zip(run(&model, &mut shared, &parts, sequences)) {
                all.extend(new);
            }
        }
        for (number, (text, (which, ..))) in texts.iter().zip(&choices).enumerate() {
            let part = (0, &text[..], 0, adapters[*which].as_ref());
            let alone = run(&model, &mut cache(&model, 1), &[part], 1).remove(0);
            prop_assert_eq!(&together[number], &alone, "sequence {}", number);
        }
    }
}
