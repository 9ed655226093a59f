//! Schemas within Lark.

use mortise_grammar::source::Source;
use serde_json::json;

use super::takes;

#[test]
fn schemas_within_lark_are_rewritten_as_others_are() {
    let tool = json!({
        "type": "object", "properties": {"a": {"type": "string", "not": {"enum": ["no"]}}}, "required": ["a"],
        "additionalProperties": false,
    });
    let source = Source::Lark(format!("start: \"<\" args \">\"\nargs: %json {tool}\n"));
    assert!(takes(&source, r#"<{"a": "yes"}>"#));
    assert!(!takes(&source, r#"<{"a": "no"}>"#));
    assert!(takes(&source, r#"<{"a": "not"}>"#));
}
