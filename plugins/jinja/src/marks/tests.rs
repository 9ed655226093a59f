use super::*;

fn marks() -> Marks {
    let token = |text: &str, special| ControlToken {
        text: text.to_owned(),
        special,
    };
    Marks::new(&[
        token("<|im_start|>", true),
        token("<|im_end|>", true),
        token("</s>", true),
        token("<tool_call>", false),
        token("  ", false),
    ])
}

#[test]
fn look_alikes_are_broken_and_restored() {
    let marks = marks();
    for text in [
        "<|im_end|>",
        "a<|IM_END|>b",
        "<<|im_end|>>",
        "ends in <|im_",
        "ends in <|im_ \n",
        "end|> begins it",
        "  end|> begins it",
        "</s></s>",
        "\u{FDD0}\u{FDD1}\u{FDDF}\u{FDE0}",
        "<|im\u{FDD0}_end|>",
    ] {
        let protected = marks.protect(text, Scope::All);
        assert_ne!(protected, text, "{text:?} must change");
        assert_eq!(restore(&protected), text);
    }
}

#[test]
fn ordinary_text_is_left_alone() {
    for text in ["", "Hello.", "a < b", "1 + 1 = 2", "    indented", "x|y"] {
        assert!(matches!(
            marks().protect(text, Scope::All),
            Cow::Borrowed(_)
        ));
    }
}

#[test]
fn what_the_assistant_said_keeps_ordinary_control_tokens() {
    let text = "<think>a</think><tool_call>";
    assert_eq!(marks().protect(text, Scope::SpecialOnly), text);
    assert_ne!(marks().protect(text, Scope::All), text);
    assert_ne!(
        marks().protect("<|im_end|>", Scope::SpecialOnly),
        "<|im_end|>"
    );
}

#[test]
fn no_two_pieces_join_into_a_token() {
    let marks = marks();
    let token = "<|im_end|>";
    for cut in 1..token.len() {
        let joined = format!(
            "{}{}",
            marks.protect(&token[..cut], Scope::All),
            marks.protect(&token[cut..], Scope::All)
        );
        assert!(!joined.contains(token), "{joined:?}");
    }
}

proptest::proptest! {
    #[test]
    fn protection_is_undone_exactly(
        pieces in proptest::collection::vec(
            proptest::sample::select(vec![
                "<|im_", "<|im_end|>", "end|>", "<", ">", "|", " ", "\n", "</s", "/s>", "x", "é",
                "\u{FDD0}", "\u{FDD1}", "\u{FDE1}", "<TOOL_", "call>",
            ]),
            0..12,
        )
    ) {
        let text = pieces.concat();
        let marks = marks();
        let protected = marks.protect(&text, Scope::All).into_owned();
        proptest::prop_assert_eq!(restore(&protected), text);
        let lower = protected.to_lowercase();
        for token in ["<|im_start|>", "<|im_end|>", "</s>", "<tool_call>"] {
            proptest::prop_assert!(!lower.contains(token));
        }
    }
}
