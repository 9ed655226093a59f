//! Grammars as llguidance takes them, over a vocabulary of bytes.

#![allow(dead_code)] // Each suite has its part.

use llguidance::api::TopLevelGrammar;
use llguidance::{Matcher, ParserFactory};
use mortise_output_parser::style::Style;
use mortise_plugin_sdk::output_parser::GrammarSource;
use mortise_plugin_sdk::{ControlToken, Model};
use serde_json::json;
use toktrie::ApproximateTokEnv;

/// Ids beyond the bytes are control tokens of the test's vocabulary.
const MARKS: [&str; 5] = [
    "<tool_call>",
    "</tool_call>",
    "<think>",
    "</think>",
    "｜DSML｜",
];

pub(crate) fn model(
    template: &str,
    architecture: &str,
    control_tokens: Vec<ControlToken>,
) -> Model {
    Model {
        name: "a model".to_owned(),
        architecture: architecture.to_owned(),
        chat_template: Some(template.to_owned()),
        bos_token: String::new(),
        eos_token: String::new(),
        control_tokens,
    }
}

pub(crate) fn style(format: &str, reasoning: &str, control: bool) -> Style {
    let tokens = MARKS.iter().zip(256..).map(|(text, id)| ControlToken {
        id,
        text: (*text).to_owned(),
        special: false,
    });
    let model = model("", "", tokens.filter(|_| control).collect());
    let settings = json!({"format": format, "reasoning": reasoning});
    Style::new(&serde_json::from_value(settings).unwrap(), model)
}

/// Tokens of `text`, with marks as control tokens if the model has them.
pub(crate) fn tokens(style: &Style, text: &str) -> Vec<u32> {
    let mut tokens = Vec::new();
    let mut rest = text.as_bytes();
    while let Some(&first) = rest.first() {
        let mut marks = style.model.control_tokens.iter();
        let mark = marks.find(|token| rest.starts_with(token.text.as_bytes()));
        tokens.push(mark.map_or(u32::from(first), |token| token.id));
        rest = &rest[mark.map_or(1, |token| token.text.len())..];
    }
    tokens
}

pub(crate) fn takes(style: &Style, source: &GrammarSource, text: &str) -> bool {
    let mut matcher = matcher(source);
    let tokens = tokens(style, text);
    let taken = matcher.try_consume_tokens(&tokens).unwrap();
    taken == tokens.len() && matcher.is_accepting().unwrap()
}

fn matcher(source: &GrammarSource) -> Matcher {
    let GrammarSource::Lark(lark) = source else {
        panic!("not Lark: {source:?}");
    };
    let factory = ParserFactory::new_simple(&ApproximateTokEnv::single_byte_env()).unwrap();
    let parser = factory.create_parser(TopLevelGrammar::from_lark(lark.clone()));
    let matcher = Matcher::new(parser);
    assert!(!matcher.is_error(), "{lark}\n{:?}", matcher.get_error());
    matcher
}

/// Bytes that a model without any idea but that of a mark writes under a grammar, if it comes to an end soon.
pub(crate) fn walk(source: &GrammarSource, hint: &str, seed: u64) -> Option<String> {
    let mut matcher = matcher(source);
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) + 1;
    let mut text = Vec::new();
    for _ in 0..1500 {
        if matcher.is_stopped() || (matcher.is_accepting().unwrap() && text.len() > 200) {
            break;
        }
        let mask = matcher.compute_mask().unwrap();
        let all = (0x20..0x7f).chain([0x0a]);
        let allowed: Vec<u32> = all.filter(|&byte| mask.is_allowed(byte)).collect();
        let mut allowed = without_extremes(allowed, &text);
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        if state.is_multiple_of(8) || allowed.is_empty() {
            let hint: Vec<u32> = hint.bytes().map(u32::from).collect();
            let taken = matcher.try_consume_tokens(&hint).unwrap();
            text.extend(hint[..taken].iter().map(|&byte| byte as u8));
            if taken > 0 {
                continue;
            }
            if allowed.is_empty() {
                allowed.extend((0x80..=0xff).filter(|&byte| mask.is_allowed(byte)));
            }
        }
        // What ends a text or a list is chosen more often than it would be by chance.
        let ends = allowed.iter().copied();
        let ends: Vec<u32> = ends
            .filter(|byte| b"\"<]}|".contains(&(*byte as u8)))
            .collect();
        let from = if state.is_multiple_of(3) && !ends.is_empty() {
            &ends
        } else {
            &allowed
        };
        let token = from[(state >> 8) as usize % from.len()];
        matcher.consume_token(token).unwrap();
        text.push(token as u8);
    }
    let whole = matcher.is_accepting().unwrap();
    whole.then(|| String::from_utf8(text).unwrap())
}

/// Numbers that no float holds and halves of surrogate pairs are left to others: no reader of JSON takes them.
fn without_extremes(allowed: Vec<u32>, text: &[u8]) -> Vec<u32> {
    let digits = text
        .iter()
        .rev()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let extreme = |byte: u32| match byte as u8 {
        b'e' | b'E' => digits > 0,
        b'0'..=b'9' => digits > 8,
        b'u' => text.last() == Some(&b'\\'),
        _ => false,
    };
    let rest: Vec<u32> = allowed
        .iter()
        .copied()
        .filter(|&byte| !extreme(byte))
        .collect();
    if rest.is_empty() { allowed } else { rest }
}
