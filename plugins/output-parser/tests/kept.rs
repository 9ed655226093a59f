//! Arbitrary bytes in every format: nothing that a model writes is lost or made up.

#[path = "../../../tests/parsers/kept.rs"]
mod kept;

use kept::Input;
use mortise_plugin_sdk::formats::Format;
use proptest::prelude::*;

fn bytes() -> impl Strategy<Value = u8> {
    prop_oneof![6 => 0..32u8, 2 => 32..127u8, 1 => Just(127), 1 => any::<u8>()]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn feature_s14_nothing_is_lost_or_made_up(
        flags in 0..4u8,
        data in proptest::collection::vec(bytes(), 0..40),
    ) {
        for which in 0..Format::all().count() {
            let all: Vec<u8> = [which as u8, flags].into_iter().chain(data.iter().copied()).collect();
            Input::new(&all).unwrap().check();
        }
    }
}

#[test]
fn feature_s14_a_list_of_no_calls_is_kept() {
    let format = Format::all().position(|format| format == Format::Sarashina);
    let format = u8::try_from(format.unwrap()).unwrap();
    for flags in 0..4 {
        let mut data = vec![format, flags];
        data.extend_from_slice(b"a <|tool_calls|>() b <|tool_calls|> [] c");
        Input::new(&data).unwrap().check();
    }
}
