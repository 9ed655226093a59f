//! Load of a model by its files, and a first token.

use mortise_model::{
    Decoder, Encoder, EncoderSpec, KvCache, KvType, LogitRows, ModelFolder, ModelInput,
    SequenceInput, WeightPrecision,
};

/// Load a model as whatever it says it is, and compute one token.
pub(crate) fn run(folder: &ModelFolder) {
    let precision = WeightPrecision::AsStored;
    if EncoderSpec::describes(folder).unwrap_or(false) {
        if let Ok(encoder) = Encoder::load(folder, precision) {
            let _ = encoder.embed(&[&[0]]);
        }
        return;
    }
    let Ok(model) = Decoder::load(folder, precision) else {
        return;
    };
    let Ok(mut cache) = KvCache::new(model.spec(), 1, KvType::F32) else {
        return;
    };
    let mut input = ModelInput::new();
    input.push(SequenceInput {
        tokens: &[0],
        first_position: 0,
        block_table: &[0],
        logits: LogitRows::Last,
    });
    let logits = model.forward(&input, &mut cache).expect("a right batch");
    assert_eq!(logits.rows().len(), 1);
}
