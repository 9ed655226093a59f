//! Size of what a post-processor would make, told from its entry before it runs: a template of a few bytes can name a
//! token with thousands of ids as often as it likes.

use serde_json::Value;

/// Most tokens that may stand around and between texts.
pub(crate) const AROUND_MAX: usize = 1024;
/// Most bytes of their names.
const NAME_BYTES_MAX: usize = 1 << 20;
/// Most tokens that the other kinds of post-processors add.
const FIXED: usize = 4;

/// Sum over the pieces of a template.
#[derive(Clone, Copy)]
struct AroundSize {
    tokens: usize,
    bytes: usize,
}

/// Whether a post-processor makes more of `texts` texts (1 or 2), of two tokens each, than is looked at.
pub(crate) fn is_too_large(processor: &Value, texts: usize) -> bool {
    let template = if texts == 1 { "single" } else { "pair" };
    let text = AroundSize {
        tokens: 2 * texts,
        bytes: 0,
    };
    let made = after(processor, template, text);
    made.tokens > AROUND_MAX + text.tokens || made.bytes > NAME_BYTES_MAX
}

/// Size of the output of a post-processor whose input is `text`.
fn after(processor: &Value, template: &str, text: AroundSize) -> AroundSize {
    match processor["type"].as_str() {
        Some("Sequence") => {
            let steps = processor["processors"].as_array();
            let steps = steps.map_or(&[][..], Vec::as_slice);
            steps
                .iter()
                .fold(text, |text, step| after(step, template, text))
        }
        Some("TemplateProcessing") => {
            let pieces = processor[template].as_array();
            let pieces = pieces.map_or(&[][..], Vec::as_slice);
            let none = AroundSize {
                tokens: 0,
                bytes: 0,
            };
            pieces.iter().fold(none, |sum, piece| {
                let piece = match piece["SpecialToken"]["id"].as_str() {
                    Some(id) => special(&processor["special_tokens"][id]),
                    None => text,
                };
                AroundSize {
                    tokens: sum.tokens.saturating_add(piece.tokens),
                    bytes: sum.bytes.saturating_add(piece.bytes),
                }
            })
        }
        _ => AroundSize {
            tokens: text.tokens.saturating_add(FIXED),
            ..text
        },
    }
}

/// Tokens of one name of a template.
fn special(entry: &Value) -> AroundSize {
    let ids = entry["ids"].as_array().map_or(0, Vec::len);
    let names = entry["tokens"].as_array().map_or(&[][..], Vec::as_slice);
    let bytes = names.iter().filter_map(Value::as_str).map(str::len);
    AroundSize {
        tokens: ids.max(names.len()),
        bytes: bytes.fold(0, usize::saturating_add),
    }
}
