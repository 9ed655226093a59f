//! Tools of a plugin, which the server runs while a model answers.

use std::sync::Arc;

use serde_json::Value;

use crate::attribution::{self, Control, Load, attribute, attribute_to_plugin};
use crate::handle::PluginHandle;
use crate::limits::MAX_TOOLS_PER_COMPONENT;
use crate::versions::convert::DeclaredTool;
use crate::versions::{ToolExports, convert};
use crate::{
    Binding, CallContext, Component, Fault, JsonSchema, LoadError, PluginError, PluginHost,
    ServerTool, ToolAnswer, ToolCaller,
};

/// Longest name of a tool.
const MAX_NAME_BYTES: usize = 64;

/// Longest description of a tool, and longest schema of its arguments: each stands in every prompt.
const MAX_DECLARATION_BYTES: usize = 64 << 10;

/// Longest text of a refusal that the model is told.
const MAX_REFUSAL_BYTES: usize = 1024;

/// Violations of a schema that the model is told at once.
const MAX_VIOLATIONS: usize = 5;

/// The tools of a component under its settings.
#[derive(Clone)]
pub struct ComponentTools {
    handle: PluginHandle<ToolExports>,
    offered: Arc<[Offered]>,
}

/// A tool and the schema that its arguments must follow.
struct Offered {
    declaration: ServerTool,
    schema: JsonSchema,
}

impl ComponentTools {
    /// Bind a component, preparing a first instance and asking for its tools. Needs a tokio runtime
    /// with time.
    ///
    /// # Errors
    /// When the component has no tools, does not fit, refuses its settings, or declares tools that
    /// make no sense.
    pub async fn bind(
        host: &PluginHost,
        component: &Arc<Component>,
        binding: Binding,
    ) -> Result<Self, LoadError> {
        let handle = PluginHandle::bind(host, component, binding).await?;
        let offered = describe(&handle).await;
        let offered = offered.map_err(|source| LoadError::Prepare {
            origin: component.label(),
            source: Box::new(source),
        })?;
        Ok(Self {
            handle,
            offered: offered.into(),
        })
    }

    /// The component behind this handle.
    pub fn component(&self) -> &Arc<Component> {
        self.handle.component()
    }

    /// The tools in the order in which the plugin names them.
    pub fn declarations(&self) -> impl Iterator<Item = &ServerTool> {
        self.offered.iter().map(|offered| &offered.declaration)
    }

    /// Run a tool. Arguments that are no JSON object, or do not follow the schema of the tool, are
    /// refused without calling the plugin; those that are large and take more than it may use are refused, too.
    ///
    /// # Errors
    /// When the plugin fails.
    pub async fn call(
        &self,
        context: &CallContext,
        caller: &ToolCaller,
        name: &str,
        arguments: &str,
    ) -> Result<ToolAnswer, PluginError> {
        let arguments = match self.check(name, arguments) {
            Ok(arguments) => arguments,
            Err(reason) => return Ok(ToolAnswer::Refused(shorten(reason))),
        };
        let load = Load::of(0, arguments.len());
        match self.call_once(context, caller, name, &arguments).await {
            Err(error) => {
                let error = self.attribute(error, load).await;
                match error.fault {
                    Fault::ModelOutput(reason) => Ok(ToolAnswer::Refused(shorten(reason))),
                    _ => Err(error),
                }
            }
            answer => answer,
        }
    }

    /// Attribute the excess of a call. A tool has effects, so no call is made to find out: the cause is large arguments
    /// if a call, or a description of the tools, went well lately, and else it is unknown.
    async fn attribute(&self, error: PluginError, load: Load) -> PluginError {
        let pool = self.handle.pool();
        if load == Load::Ordinary {
            return attribute_to_plugin(pool, error);
        }
        attribute(pool, error, to_model, async { Control::Unknown }).await
    }

    async fn call_once(
        &self,
        context: &CallContext,
        caller: &ToolCaller,
        name: &str,
        arguments: &str,
    ) -> Result<ToolAnswer, PluginError> {
        self.handle
            .call(
                context,
                "tool.call",
                self.handle.deadlines().tool_ms,
                async |exports, store| {
                    let told = convert::tool_context(&context.request_id, caller);
                    let asked = (name, arguments, &told);
                    let (said,) = exports.call.call_async(store, asked).await?;
                    Ok(convert::tool_answer(said))
                },
                |answer, _| {
                    Ok(match answer {
                        ToolAnswer::Refused(text) => ToolAnswer::Refused(shorten(text)),
                        result => result,
                    })
                },
            )
            .await
    }

    /// The arguments as JSON text that follows the schema of the tool. No text at all is what many
    /// models write for a call without arguments.
    fn check(&self, name: &str, arguments: &str) -> Result<String, String> {
        let offered = self.offered.iter();
        let offered = offered
            .into_iter()
            .find(|offered| offered.declaration.name == name)
            .ok_or_else(|| format!("there is no tool `{name}`"))?;
        let text = match arguments.trim() {
            "" => "{}",
            text => text,
        };
        let value: Value = serde_json::from_str(text)
            .map_err(|error| format!("the arguments are not JSON: {error}"))?;
        let violations = offered.schema.violations(&value);
        if violations.is_empty() {
            return Ok(text.to_owned());
        }
        let told = violations.iter().take(MAX_VIOLATIONS);
        let told: Vec<String> = told
            .map(|violation| match violation.pointer.as_str() {
                "" => violation.message.clone(),
                pointer => format!("{pointer}: {}", violation.message),
            })
            .collect();
        Err(format!(
            "the arguments do not follow the schema of `{name}`: {}",
            told.join("; ")
        ))
    }
}

fn to_model(fault: Fault) -> Fault {
    attribution::model_output(fault, "the tool, which takes shorter arguments only")
}

fn shorten(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MAX_REFUSAL_BYTES));
    text
}

async fn describe(handle: &PluginHandle<ToolExports>) -> Result<Vec<Offered>, PluginError> {
    handle
        .call(
            &CallContext::new("-"),
            "tool.describe",
            handle.deadlines().tool_ms,
            async |exports, store| {
                let (declared,) = exports.describe.call_async(store, ()).await?;
                Ok(Ok(declared.into_iter().map(convert::declared).collect()))
            },
            |declared, _| offered(declared).map_err(Fault::InvalidResult),
        )
        .await
}

/// Hold declarations to the contract.
fn offered(declared: Vec<DeclaredTool>) -> Result<Vec<Offered>, String> {
    let count = declared.len();
    if !(1..=MAX_TOOLS_PER_COMPONENT).contains(&count) {
        return Err(format!(
            "declared {count} tools, not 1 to {MAX_TOOLS_PER_COMPONENT}"
        ));
    }
    let mut offered: Vec<Offered> = Vec::with_capacity(count);
    for declaration in declared {
        let one = check_declaration(declaration)?;
        let name = &one.declaration.name;
        if offered.iter().any(|known| known.declaration.name == *name) {
            return Err(format!("declared the tool `{name}` twice"));
        }
        offered.push(one);
    }
    Ok(offered)
}

fn check_declaration(declared: DeclaredTool) -> Result<Offered, String> {
    let DeclaredTool {
        name,
        description,
        parameters,
    } = declared;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.bytes().all(plain) {
        return Err(format!(
            "named a tool \"{}\", not with 1 to {MAX_NAME_BYTES} letters, digits, `_` or `-`",
            shorten(name.escape_default().to_string())
        ));
    }
    for (what, text) in [("description", &description), ("schema", &parameters)] {
        if text.len() > MAX_DECLARATION_BYTES {
            return Err(format!(
                "gave the tool `{name}` a {what} of {} bytes, of at most {MAX_DECLARATION_BYTES}",
                text.len()
            ));
        }
    }
    let parameters: Value = serde_json::from_str(&parameters)
        .map_err(|error| format!("gave the tool `{name}` a schema that is not JSON: {error}"))?;
    if parameters["type"] != "object" {
        return Err(format!(
            "gave the tool `{name}` a schema whose `type` is not \"object\""
        ));
    }
    let schema = JsonSchema::compile(parameters.clone())
        .map_err(|error| format!("gave the tool `{name}` a schema that is none: {error}"))?;
    Ok(Offered {
        declaration: ServerTool {
            name,
            description,
            parameters,
        },
        schema,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declaration(name: &str, parameters: &str) -> DeclaredTool {
        DeclaredTool {
            name: name.to_owned(),
            description: "does something".to_owned(),
            parameters: parameters.to_owned(),
        }
    }

    const OBJECT: &str = r#"{"type":"object"}"#;

    fn refusal(declared: Vec<DeclaredTool>) -> String {
        offered(declared).err().expect("a refusal")
    }

    #[test]
    fn declarations_are_held_to_the_contract() {
        let two = vec![declaration("a", OBJECT), declaration("b-2_C", OBJECT)];
        assert_eq!(offered(two).ok().unwrap().len(), 2);
        for (name, parameters, part) in [
            ("", OBJECT, "named a tool"),
            ("a b", OBJECT, "named a tool"),
            ("a\n", OBJECT, "\\n"),
            ("f", "{", "not JSON"),
            ("f", "true", "`type`"),
            ("f", r#"{"type":"array"}"#, "`type`"),
            ("f", r#"{"type":"object","properties":5}"#, "is none"),
            (
                "f",
                r#"{"type":"object","$ref":"file:///etc/passwd"}"#,
                "may not refer",
            ),
        ] {
            let text = refusal(vec![declaration(name, parameters)]);
            assert!(text.contains(part), "{text}");
        }
        let long = "x".repeat(65);
        assert!(refusal(vec![declaration(&long, OBJECT)]).contains("named a tool"));
        let large = format!(r#"{{"type":"object","title":"{}"}}"#, "x".repeat(70_000));
        assert!(refusal(vec![declaration("f", &large)]).contains("at most 65536"));
        let twice = vec![declaration("f", OBJECT), declaration("f", OBJECT)];
        assert!(refusal(twice).contains("twice"));
        assert!(refusal(Vec::new()).contains("declared 0 tools"));
        let many = (0..65).map(|index| declaration(&format!("f{index}"), OBJECT));
        assert!(refusal(many.collect()).contains("declared 65 tools"));
    }
}
