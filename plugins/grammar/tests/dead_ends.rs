//! Grammars after which no token may follow although the text is not complete.

use mortise_grammar::engine::{Engine, Vocabulary};
use mortise_grammar::error::GrammarError;
use mortise_grammar::matcher::Status;
use mortise_grammar::source::Source;
use serde_json::{Value, json};

/// All bytes, and the token that ends a text.
fn engine() -> Engine {
    let mut bytes: Vec<u8> = (0..=255).collect();
    bytes.extend(b"<eos>");
    let mut offsets: Vec<u32> = (0..=256).collect();
    offsets.push(261);
    let vocabulary = Vocabulary {
        bytes,
        offsets,
        eos: vec![256],
        control: vec![256],
    };
    Engine::new(&vocabulary).unwrap()
}

fn size() -> usize {
    257
}

fn schema(value: Value) -> Source {
    Source::JsonSchema(value.to_string())
}

/// Found when it is compiled or on the way, it is the caller's fault.
#[test]
fn dead_ends_are_the_callers_fault() {
    let lark = |text: &str| Source::Lark(text.to_owned());
    for source in [
        lark("start: \"x\" /[^\\s\\S]/"),
        lark("start: \"ab\" (\"c\" | \"d\") /[^\\s\\S]+/ \"e\""),
        lark("start: item+\nitem: \"<\" inner \">\"\ninner: /[^\\s\\S]/"),
        Source::Regex("ab[^\\s\\S]".to_owned()),
        schema(json!({"type": "string", "pattern": "^a[^\\s\\S]$"})),
        schema(
            json!({"type": "object", "required": ["a"], "additionalProperties": false,
            "properties": {"a": {"type": "string", "pattern": "^[^\\s\\S]$"}}}),
        ),
    ] {
        let mut engine = engine();
        let outcome = engine.compile(&source).and_then(|mut matcher| {
            // As a model would that takes the first token it may.
            for _ in 0..32 {
                let (mask, status) = matcher.mask()?;
                if status == Status::Finished {
                    break;
                }
                let words = mask.into_dense(size(), size().div_ceil(32));
                let allowed = (0..size() as u32)
                    .find(|token| words[*token as usize / 32] >> (token % 32) & 1 == 1);
                matcher.accept(&[allowed.expect("a token")])?;
            }
            Ok(())
        });
        assert!(
            matches!(outcome, Err(GrammarError::Invalid(_))),
            "{source:?}: {outcome:?}"
        );
    }
}
