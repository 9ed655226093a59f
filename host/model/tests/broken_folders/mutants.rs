//! Files of which a few bytes are others: they load and compute, or fail with a text.

use std::fs;
use std::sync::OnceLock;

use mortise_model::Decoder;
use mortise_model::GenerationConfig;
use mortise_model::KvCache;
use mortise_model::KvType;
use mortise_model::LogitRows;
use mortise_model::ModelFolder;
use mortise_model::ModelInput;
use mortise_model::SequenceInput;
use mortise_model::WeightPrecision;
use proptest::prelude::*;
use proptest::sample::Index;

use crate::{MODEL, original};

const MUTATED: [&str; 3] = ["config.json", "generation_config.json", "model.safetensors"];
/// Models that between them have every kind of field.
const MUTATED_MODELS: [&str; 6] = [
    MODEL,
    "gemma3-two-ropes",
    "phi3-longrope-long",
    "qwen3-moe-mixed",
    "gpt-oss-mxfp4",
    "deepseek-v3",
];

/// A model in memory of which one file differs in a few bytes.
fn mutant(
    model: usize,
    number: usize,
    mutations: &[(Index, u8)],
    cut: Option<Index>,
) -> ModelFolder {
    static ORIGINALS: OnceLock<[[&[u8]; 3]; 6]> = OnceLock::new();
    let read = |model, name| &*fs::read(original(model).join(name)).unwrap().leak();
    let all = || MUTATED_MODELS.map(|model| MUTATED.map(|name| read(model, name)));
    let mut files = ORIGINALS.get_or_init(all)[model];
    let mut bytes = files[number].to_vec();
    // Of the weights only the header is worth changing.
    let reach = bytes.len().min(2500);
    for (place, byte) in mutations {
        bytes[place.index(reach)] = *byte;
    }
    if let Some(cut) = cut {
        bytes.truncate(cut.index(bytes.len()));
    }
    files[number] = bytes.leak();
    ModelFolder::embedded(&[0, 1, 2].map(|file| (MUTATED[file], files[file])))
}

/// Check that a model which loads can compute.
fn check_computes(model: &Decoder) {
    let mut cache = KvCache::new(model.spec(), 1, KvType::F32).unwrap();
    let mut input = ModelInput::new();
    input.push(SequenceInput {
        tokens: &[0],
        first_position: 0,
        block_table: &[0],
        logits: LogitRows::Last,
    });
    let logits = model.forward(&input, &mut cache).unwrap();
    assert_eq!(logits.rows().len(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6000))]
    #[test]
    fn mutants_load_or_fail_and_never_panic(
        model in 0usize..6,
        file in 0usize..3,
        mutations in prop::collection::vec((any::<Index>(), prop_oneof![any::<u8>(), b' '..b'~']), 0..4),
        cut in prop::option::weighted(0.1, any::<Index>()),
    ) {
        let folder = mutant(model, file, &mutations, cut);
        if let Err(error) = GenerationConfig::read(&folder, 1 << 10) {
            prop_assert!(!error.to_string().is_empty());
        }
        match Decoder::load(&folder, WeightPrecision::AsStored) {
            Ok(model) => check_computes(&model),
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }
}
