//! Batches that the model must refuse, and what it gives for those it takes.

use std::path::PathBuf;

use mortise_model::{
    Decoder, InputError, KvCache, KvType, LogitRows, ModelFolder, ModelInput, SequenceInput,
    WeightPrecision,
};

fn model(name: &str) -> Decoder {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/parity/data")
        .join(name);
    Decoder::load(&ModelFolder::open(path).unwrap(), WeightPrecision::AsStored).unwrap()
}

fn part<'a>(tokens: &'a [u32], first_position: usize, block_table: &'a [u32]) -> SequenceInput<'a> {
    SequenceInput {
        tokens,
        first_position,
        block_table,
        logits: LogitRows::Last,
    }
}

#[test]
fn wrong_batches_are_refused() {
    let model = model("qwen2-bias");
    let mut cache = KvCache::new(model.spec(), 20, KvType::F32).unwrap();
    let table: Vec<u32> = (0..20).collect();
    let mut check = |sequence: SequenceInput<'_>, expected: InputError| {
        let mut input = ModelInput::new();
        input.push(sequence);
        assert_eq!(model.forward(&input, &mut cache), Err(expected));
    };
    check(
        part(&[1, 144], 0, &table),
        InputError::Token {
            token: 144,
            vocabulary: 144,
        },
    );
    check(
        part(&[1], 256, &table),
        InputError::Context {
            tokens: 257,
            context: 256,
        },
    );
    check(
        part(&[1], usize::MAX, &table),
        InputError::Context {
            tokens: usize::MAX,
            context: 256,
        },
    );
    check(
        part(&[1], 16, &[0]),
        InputError::BlockTable {
            tokens: 17,
            blocks: 1,
        },
    );
    check(
        part(&[1], 0, &[20]),
        InputError::Block {
            block: 20,
            blocks: 20,
        },
    );
    let other = self::model("qwen3-qk-norm");
    let mut input = ModelInput::new();
    input.push(part(&[1], 0, &table));
    assert_eq!(other.forward(&input, &mut cache), Err(InputError::Cache));
}

#[test]
fn logits_are_given_for_the_rows_that_ask() {
    let model = model("qwen2-bias");
    let mut cache = KvCache::new(model.spec(), 3, KvType::F32).unwrap();
    let mut input = ModelInput::new();
    input.push(SequenceInput {
        logits: LogitRows::All,
        ..part(&[5, 6, 7], 0, &[0])
    });
    input.push(SequenceInput {
        logits: LogitRows::None,
        ..part(&[5, 6], 0, &[1])
    });
    input.push(part(&[5, 6], 0, &[2]));
    let logits = model.forward(&input, &mut cache).unwrap();
    let rows: Vec<&[f32]> = logits.rows().collect();
    assert_eq!(rows.len(), 4);
    assert!(rows.iter().all(|row| row.len() == 144));
    assert_eq!(rows[1], rows[3], "the same tokens at the same place");
    assert_eq!(
        model
            .forward(&ModelInput::new(), &mut cache)
            .unwrap()
            .rows()
            .len(),
        0
    );
}
