//! The grammar that a caller wants for the content of an answer.

use mortise_plugin::GrammarSource;
use mortise_tokenizer::SpecialToken;

use crate::request::{RequestFields, Written};
use crate::schema_formats::without_annotations;
use crate::structural_tag::structural_tag;

/// The grammar that the caller wants for the content, of a model with these control tokens.
pub(crate) fn wanted(fields: &RequestFields, control: &[SpecialToken]) -> Option<GrammarSource> {
    let constraint = fields.constraint.as_ref()?;
    if let Some(Written::StructuralTag(tag)) = &constraint.written
        && let Ok(lark) = structural_tag(tag, control)
    {
        return Some(GrammarSource::Lark(lark));
    }
    let source = &constraint.source;
    let stripped = match source {
        GrammarSource::JsonSchema(schema) => without_annotations(schema),
        _ => None,
    };
    Some(stripped.map_or_else(|| source.clone(), GrammarSource::JsonSchema))
}
