//! Models from GGUF files: against `transformers`, against the same model from safetensors, and
//! quantised products against exact ones. The files are those of `tests/gguf/make_reference.py`.

mod references;

use std::path::PathBuf;

use half::f16;
use mortise_kernels::quant::BlockType;
use mortise_model::{
    Architecture, Decoder, GenerationConfig, KvCache, KvType, LogitRows, ModelFolder, ModelInput,
    ModelSpec, SequenceInput, WeightPrecision, vocabulary_size,
};
use mortise_test_support::gguf_file::{self, F32, GgufFile, text, u32};
use references::References;

const MODELS: [&str; 25] = [
    "llama-rope-scaled",
    "llama-rope-linear",
    "mistral-plain",
    "mistral-window",
    "ministral3-yarn",
    "qwen2-bias",
    "qwen3-qk-norm",
    "gemma-tied",
    "gemma2-soft-caps",
    "gemma3-two-ropes",
    "granite-multipliers",
    "olmo2-norm-after",
    "olmo3-window",
    "phi3-longrope-short",
    "phi3-longrope-long",
    "smollm3-fourth",
    "mixtral-experts",
    "qwen2-moe-shared",
    "qwen3-moe-mixed",
    "qwen3-moe-shares",
    "gpt-oss-sinks",
    "gpt-oss-mxfp4",
    "deepseek-v2-lite",
    "deepseek-v2-groups",
    "deepseek-v3",
];
/// Files in the layout of older converters, and the models that they hold.
const OLD_LAYOUTS: [(&str, &str); 2] = [
    ("deepseek-v2-lite-old", "deepseek-v2-lite"),
    ("mixtral-experts-old", "mixtral-experts"),
];
const PARTS: [&str; 3] = [
    "mixtral-experts-00001-of-00003.gguf",
    "mixtral-experts-00002-of-00003.gguf",
    "mixtral-experts-00003-of-00003.gguf",
];

fn data(folder: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests")
        .join(folder)
        .join("data")
}

fn from_gguf(name: &str, precision: WeightPrecision) -> Decoder {
    let folder = ModelFolder::open(data("gguf").join(format!("{name}.gguf"))).unwrap();
    Decoder::load(&folder, precision).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn from_folder(name: &str, precision: WeightPrecision) -> Decoder {
    let folder = ModelFolder::open(data("parity").join(name)).unwrap();
    Decoder::load(&folder, precision).unwrap()
}

fn eos_tokens(path: PathBuf) -> Vec<u32> {
    let folder = ModelFolder::open(path).unwrap();
    let vocabulary = vocabulary_size(&folder).unwrap().unwrap();
    GenerationConfig::read(&folder, vocabulary)
        .unwrap()
        .eos_tokens
}

/// All logits of sequences that are computed in one batch.
fn logits(model: &Decoder, sequences: &[&[u32]]) -> Vec<Vec<f32>> {
    let blocks = 8;
    let mut cache = KvCache::new(model.spec(), blocks * sequences.len(), KvType::F32).unwrap();
    let mut input = ModelInput::new();
    for (number, tokens) in sequences.iter().enumerate() {
        let table: Vec<u32> = (0..blocks)
            .map(|block| (block * sequences.len() + number) as u32)
            .collect();
        input.push(SequenceInput {
            tokens,
            first_position: 0,
            block_table: &table,
            logits: LogitRows::All,
        });
    }
    let logits = model.forward(&input, &mut cache).unwrap();
    let mut rows = logits.rows();
    sequences
        .iter()
        .map(|tokens| {
            rows.by_ref()
                .take(tokens.len())
                .flatten()
                .copied()
                .collect()
        })
        .collect()
}

/// Prompts and the logits of their positions.
fn references(name: &str) -> Vec<(Vec<u32>, Vec<f32>)> {
    let path = data("parity").join(name).join("reference.safetensors");
    let file = References::read(&path);
    let of = |index| {
        let prompt = file.tokens(&format!("prompt.{index}"));
        (prompt, file.floats(&format!("prompt_logits.{index}")))
    };
    (0..3).map(of).collect()
}

/// The largest difference, relative to the largest value.
fn distance(found: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(found.len(), expected.len());
    let largest = expected
        .iter()
        .fold(0f32, |most, value| most.max(value.abs()));
    let errors = found.iter().zip(expected).map(|(a, b)| (a - b).abs());
    errors.fold(0f32, f32::max) / largest
}

/// The root mean square of the differences, relative to that of the values.
fn deviation(found: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(found.len(), expected.len());
    let square = |sum: f32, value: f32| sum + value * value;
    let errors = found.iter().zip(expected).map(|(a, b)| a - b);
    let size = expected.iter().copied().fold(0.0, square);
    (errors.fold(0.0, square) / size).sqrt()
}

fn check_logits(file: &str, model: &Decoder, reference: &str) {
    for (prompt, expected) in references(reference) {
        let found = logits(model, &[&prompt]).remove(0);
        let error = distance(&found, &expected);
        assert!(error < 1e-4, "{file}: {error}");
    }
}

#[test]
fn logits_agree_with_transformers() {
    for (file, name) in MODELS
        .map(|name| (name, name))
        .into_iter()
        .chain(OLD_LAYOUTS)
    {
        check_logits(file, &from_gguf(file, WeightPrecision::F32), name);
        // Products with MXFP4 round their inputs.
        if !name.ends_with("mxfp4") {
            check_logits(file, &from_gguf(file, WeightPrecision::AsStored), name);
        }
    }
}

#[test]
fn every_family_has_a_gguf_file() {
    // There is no architecture for Ministral (the second was published under Mistral's).
    let without = [Architecture::Ministral];
    let found: Vec<Architecture> = MODELS
        .iter()
        .map(|name| {
            from_gguf(name, WeightPrecision::AsStored)
                .spec()
                .architecture
        })
        .collect();
    for architecture in Architecture::all().filter(|known| !without.contains(known)) {
        let name = architecture.name();
        assert!(found.contains(&architecture), "{name} has no GGUF file");
    }
}

#[test]
fn the_shape_is_that_of_the_folder() {
    for name in MODELS {
        let (gguf, folder) = (
            from_gguf(name, WeightPrecision::AsStored),
            from_folder(name, WeightPrecision::AsStored),
        );
        let (found, expected) = (gguf.spec(), folder.spec());
        if name != "mistral-plain" {
            // Without a window, Mistral is Llama.
            assert_eq!(found.architecture, expected.architecture, "{name}");
        }
        assert_eq!(found.vocabulary, expected.vocabulary, "{name}");
        assert_eq!(found.context, expected.context, "{name}");
        assert_eq!(found.kv_shape(), expected.kv_shape(), "{name}");
        assert_eq!(found.layer_specs, expected.layer_specs, "{name}");
        let experts = |spec: &ModelSpec| spec.feed_forward.experts;
        assert_eq!(experts(found), experts(expected), "{name}");
        assert_eq!(found.tied_embeddings, expected.tied_embeddings, "{name}");
        assert_eq!(found.norm_epsilon, expected.norm_epsilon, "{name}");
        assert_eq!(
            eos_tokens(data("gguf").join(format!("{name}.gguf"))),
            eos_tokens(data("parity").join(name)),
            "{name}"
        );
    }
}

#[test]
fn parts_of_a_model_are_found_from_any_of_them_and_from_their_folder() {
    let folder = data("gguf").join("split");
    for path in PARTS.map(|part| folder.join(part)).iter().chain([&folder]) {
        let model = ModelFolder::open(path).unwrap();
        let model = Decoder::load(&model, WeightPrecision::AsStored).unwrap();
        check_logits(&path.display().to_string(), &model, "mixtral-experts");
    }
}

/// The parts of the model in a folder of their own, to be spoiled.
fn copied_parts() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for part in PARTS {
        std::fs::copy(
            data("gguf").join("split").join(part),
            folder.path().join(part),
        )
        .unwrap();
    }
    folder
}

/// Error of opening a model, with its causes.
fn refusal(path: &std::path::Path) -> String {
    let error = ModelFolder::open(path).unwrap_err();
    let cause = std::error::Error::source(&error).map(ToString::to_string);
    format!("{error}: {}", cause.unwrap_or_default())
}

#[test]
fn parts_that_do_not_belong_together_are_refused_by_name() {
    let folder = copied_parts();
    let part = |number: usize| folder.path().join(PARTS[number]);
    let says = |expected: &[&str]| {
        let found = refusal(folder.path());
        for expected in expected {
            assert!(found.contains(expected), "{found} lacks {expected}");
        }
    };
    std::fs::remove_file(part(1)).unwrap();
    says(&["has no file", PARTS[1]]);
    std::fs::copy(part(2), part(1)).unwrap();
    says(&[PARTS[1], "`split.no` is 2; expected 1"]);
    let whole = std::fs::read(data("gguf").join("split").join(PARTS[1])).unwrap();
    std::fs::write(part(1), &whole[..whole.len() - 1000]).unwrap();
    says(&[PARTS[1], "the file ends before"]);
    // A part that says nothing of the others.
    std::fs::copy(data("gguf").join("mixtral-experts.gguf"), part(1)).unwrap();
    says(&[PARTS[1], "`split.no` is missing"]);
    std::fs::copy(part(0), folder.path().join("renamed.gguf")).unwrap();
    let found = refusal(&folder.path().join("renamed.gguf"));
    assert!(found.contains("is one of 3; name it"), "{found}");
    says(&["several GGUF models", "renamed.gguf", PARTS[0]]);
}

#[test]
fn parts_must_have_all_tensors_once() {
    let parts = |counts: [u16; 2], names: [&str; 2]| {
        let folder = tempfile::tempdir().unwrap();
        for (number, name) in names.into_iter().enumerate() {
            let mut file = GgufFile::default();
            if number == 0 {
                file.entry("general.architecture", text("llama"));
                file.entry("split.tensors.count", gguf_file::u16(counts[1]));
            }
            file.entry("split.no", gguf_file::u16(number as u16));
            file.entry("split.count", gguf_file::u16(counts[0]));
            file.tensor(name, &[1], F32, vec![0; 4]);
            let path = folder
                .path()
                .join(format!("m-0000{}-of-00002.gguf", number + 1));
            std::fs::write(path, file.bytes()).unwrap();
        }
        folder
    };
    assert!(ModelFolder::open(parts([2, 2], ["a", "b"]).path()).is_ok());
    for (counts, names, expected) in [
        (
            [2, 3],
            ["a", "b"],
            "is 3; all files together have 2 tensors",
        ),
        ([2, 2], ["a", "a"], "is in two of the files"),
        ([3, 2], ["a", "b"], "is one of 3; name it"),
        ([u16::MAX, 2], ["a", "b"], "65535 files; at most 1024"),
    ] {
        let found = refusal(parts(counts, names).path());
        assert!(found.contains(expected), "{found} lacks {expected}");
    }
}

/// How far logits of quantised products may be from those of exact ones. What differs is that
/// activations are rounded to eight bits, one part in 250 of the largest of 32; random weights, whose
/// attention is sharper than that of trained ones, amplify it from layer to layer.
const ROUNDING: f32 = 0.03;

#[test]
fn quantised_products_stay_close_to_exact_ones() {
    let exact = from_gguf("llama-rope-scaled-q8_0", WeightPrecision::F32);
    let quantised = from_gguf("llama-rope-scaled-q8_0", WeightPrecision::AsStored);
    for (prompt, reference) in references("llama-rope-scaled") {
        let expected = logits(&exact, &[&prompt]).remove(0);
        let error = deviation(&logits(&quantised, &[&prompt]).remove(0), &expected);
        assert!(error < 2.0 * ROUNDING, "{error}");
        // And quantising the weights did not make it another model.
        let error = deviation(&expected, &reference);
        assert!(error < 0.15, "{error}");
    }
}

/// A model of one layer whose matrices are random blocks of one format.
fn random_model(kind: BlockType) -> Vec<u8> {
    const HIDDEN: u64 = 256;
    const VOCABULARY: u64 = 96;
    let number = match kind {
        BlockType::Q4_0 => 2,
        BlockType::Q4_1 => 3,
        BlockType::Q5_0 => 6,
        BlockType::Q5_1 => 7,
        BlockType::Q8_0 => 8,
        BlockType::Q2K => 10,
        BlockType::Q3K => 11,
        BlockType::Q4K => 12,
        BlockType::Q5K => 13,
        BlockType::Q6K => 14,
        BlockType::Iq4Nl => 20,
        BlockType::Iq4Xs => 23,
        BlockType::Mxfp4 => 39,
    };
    let mut state = 88_172_645_463_325_252_u64;
    let mut byte = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as u8
    };
    let halves: &[usize] = match kind {
        BlockType::Q2K => &[80, 82],
        BlockType::Q3K => &[108],
        BlockType::Q6K => &[208],
        BlockType::Mxfp4 => &[],
        BlockType::Q4_1 | BlockType::Q5_1 | BlockType::Q4K | BlockType::Q5K => &[0, 2],
        _ => &[0],
    };
    let mut matrix = |outputs: u64, inputs: u64| {
        let blocks = (outputs * inputs) as usize / kind.weights();
        let mut bytes = Vec::new();
        for _ in 0..blocks {
            let mut block: Vec<u8> = (0..kind.bytes()).map(|_| byte()).collect();
            for &at in halves {
                // Weights of about ±0.1, whatever the range of the integers.
                let range = match kind {
                    BlockType::Q8_0 | BlockType::Iq4Nl => 128.0,
                    BlockType::Q6K | BlockType::Iq4Xs => 4096.0,
                    BlockType::Q4K | BlockType::Q5K | BlockType::Q3K => 512.0,
                    _ => 32.0,
                };
                let value = 0.1 / range * (1.0 + f32::from(byte()) / 256.0);
                block[at..at + 2].copy_from_slice(&f16::from_f32(value).to_le_bytes());
            }
            if kind == BlockType::Mxfp4 {
                block[0] = 119 + byte() % 4;
            }
            bytes.extend(block);
        }
        bytes
    };
    let ones = |count: u64| 1_f32.to_le_bytes().repeat(count as usize);
    let mut file = GgufFile::default();
    file.entry("general.architecture", text("llama"));
    for (key, value) in [
        ("block_count", 1),
        ("context_length", 128),
        ("embedding_length", HIDDEN as u32),
        ("feed_forward_length", 512),
        ("attention.head_count", 4),
        ("attention.head_count_kv", 2),
    ] {
        file.entry(&format!("llama.{key}"), u32(value));
    }
    file.entry(
        "llama.attention.layer_norm_rms_epsilon",
        gguf_file::f32(1e-5),
    );
    for (name, outputs, inputs) in [
        ("token_embd", VOCABULARY, HIDDEN),
        ("output", VOCABULARY, HIDDEN),
        ("blk.0.attn_q", HIDDEN, HIDDEN),
        ("blk.0.attn_k", HIDDEN / 2, HIDDEN),
        ("blk.0.attn_v", HIDDEN / 2, HIDDEN),
        ("blk.0.attn_output", HIDDEN, HIDDEN),
        ("blk.0.ffn_gate", 512, HIDDEN),
        ("blk.0.ffn_up", 512, HIDDEN),
        ("blk.0.ffn_down", HIDDEN, 512),
    ] {
        let data = matrix(outputs, inputs);
        file.tensor(&format!("{name}.weight"), &[outputs, inputs], number, data);
    }
    for name in ["output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"] {
        file.tensor(&format!("{name}.weight"), &[HIDDEN], F32, ones(HIDDEN));
    }
    file.bytes()
}

#[test]
fn every_format_serves_a_model_and_does_not_depend_on_the_batch() {
    let folder = tempfile::tempdir().unwrap();
    for kind in BlockType::ALL {
        let path = folder.path().join(format!("{}.gguf", kind.name()));
        std::fs::write(&path, random_model(kind)).unwrap();
        let folder = ModelFolder::open(&path).unwrap();
        let exact = Decoder::load(&folder, WeightPrecision::F32).unwrap();
        let quantised = Decoder::load(&folder, WeightPrecision::AsStored).unwrap();
        let prompts: Vec<Vec<u32>> = [5_u32, 9, 2]
            .map(|length| (0..length).map(|k| (k * 29 + length) % 96).collect())
            .into();
        let prompts: Vec<&[u32]> = prompts.iter().map(Vec::as_slice).collect();
        let together = logits(&quantised, &prompts);
        let expected = logits(&exact, &prompts);
        for (number, prompt) in prompts.iter().enumerate() {
            let error = deviation(&together[number], &expected[number]);
            assert!(error < ROUNDING, "{}: {error}", kind.name());
            let alone = logits(&quantised, &[prompt]).remove(0);
            assert_eq!(alone, together[number], "{}: alone differs", kind.name());
        }
    }
}

#[test]
fn safetensors_are_quantised_when_they_are_loaded() {
    // Rows of 64: `Q8_0`, and so for `Q4_K`, whose blocks would not fit.
    for precision in [WeightPrecision::Q8_0, WeightPrecision::Q4K] {
        let model = from_folder("llama-rope-scaled", precision);
        let other = from_gguf("llama-rope-scaled-q8_0", WeightPrecision::AsStored);
        for (prompt, reference) in references("llama-rope-scaled") {
            let found = logits(&model, &[&prompt]).remove(0);
            let error = deviation(&found, &reference);
            assert!(error < 0.15, "{precision:?}: {error}");
            // The file was quantised by other hands, to the same bits.
            assert_eq!(found, logits(&other, &[&prompt]).remove(0));
        }
    }
}
