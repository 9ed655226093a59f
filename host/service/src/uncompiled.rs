//! Refusals of grammars that were not compiled, by the field that asked for them.
//!
//! A grammar of calls is put together from the marks of the model's format and the schemas of the tools and the answer.
//! Errors are told of the schema, which the caller wrote, and not of the text that was made of it.

use mortise_plugin::{Fault, GrammarSource, PluginError};
use mortise_tokenizer::SpecialToken;

use crate::error::ServiceError;
use crate::plugins::{CompileGrammar, RequestId};
use crate::refusal::{INVALID_SCHEMA, refuse};
use crate::request::{ContentConstraint, RequestFields};
use crate::schema_formats::without_annotations;
use crate::wanted::wanted;

/// A grammar that was not compiled. If it was put together, its schemas are compiled one by one to find the wrong one.
pub(crate) async fn find_wrong(
    grammar: &dyn CompileGrammar,
    id: &RequestId,
    source: &GrammarSource,
    error: PluginError,
    fields: &RequestFields,
    control: &[SpecialToken],
) -> ServiceError {
    let own = wanted(fields, control);
    if own.as_ref() == Some(source) || code_of(&error.fault, true).is_none() {
        return not_compiled(error, fields);
    }
    if let Some(own) = &own
        && let Err(error) = grammar.compile(id, own).await
    {
        return not_compiled(error, fields);
    }
    for (at, tool) in fields.tools.declarations().iter().enumerate() {
        let Some(schema) = tool.parameters.as_ref() else {
            continue;
        };
        let schema = serde_json::to_string(schema.members()).unwrap_or_default();
        let schema = without_annotations(&schema).unwrap_or(schema);
        let source = GrammarSource::JsonSchema(schema);
        let Err(error) = grammar.compile(id, &source).await else {
            continue;
        };
        let Some(code) = code_of(&error.fault, true) else {
            return error.into();
        };
        let text = format!(
            "the parameters of the tool `{}`: {}",
            tool.name, error.fault
        );
        return refuse(format!("tools[{at}]"), code, text);
    }
    let code = code_of(&error.fault, true).unwrap_or(INVALID_SCHEMA);
    let text = "no grammar can be made of the schemas of the tools and of the answer together";
    refuse(constraint_param(fields), code, text)
}

/// A grammar that was not compiled: where the caller is at fault, name the field that asked for it.
pub(crate) fn not_compiled(error: PluginError, fields: &RequestFields) -> ServiceError {
    match code_of(&error.fault, is_schema(fields)) {
        // Which plugin said so is no business of the caller's.
        Some(code) => refuse(constraint_param(fields), code, error.fault.to_string()),
        None => error.into(),
    }
}

/// The code of a fault of the caller's.
fn code_of(fault: &Fault, of_schema: bool) -> Option<&'static str> {
    match fault {
        Fault::Invalid(_) if of_schema => Some(INVALID_SCHEMA),
        Fault::Invalid(_) => Some("invalid_value"),
        Fault::TooComplex(_) => Some("too_complex"),
        Fault::Unsupported(_) => Some("unsupported_value"),
        _ => None,
    }
}

/// Field that asked for a constraint: the caller's grammar, or else tools that must be called.
fn constraint_param(fields: &RequestFields) -> &str {
    match &fields.constraint {
        Some(ContentConstraint { field, .. }) => field,
        None => "tools",
    }
}

/// True if the constraint is a JSON Schema: the caller's own, or one of a tool's parameters.
fn is_schema(fields: &RequestFields) -> bool {
    let source = fields
        .constraint
        .as_ref()
        .map(|constraint| &constraint.source);
    matches!(source, None | Some(GrammarSource::JsonSchema(_)))
}

/// A constraint that no plugin can compile: name the field that asked for it.
pub(crate) fn no_grammar(model: &str, fields: &RequestFields) -> ServiceError {
    refuse(
        constraint_param(fields),
        "no_grammar",
        format!("the model `{model}` has no grammar plugin, so answers cannot be constrained"),
    )
}
