//! Chat templates beside the one that serves: those that a request chooses by name, and one for requests with tools.

use std::sync::Arc;

use mortise_plugin::{PluginError, RenderedPrompt, TemplateInput};

use crate::error::ServiceError;
use crate::plugins::{NamedTemplates, PluginFuture, RenderChat, RequestId};
use crate::refusal::invalid;
use crate::request::ChosenTemplate;

/// A chat template with those beside it.
pub struct TemplateChoice {
    /// Renders requests that choose none.
    pub first: Arc<dyn RenderChat>,
    /// Renders those among them that have tools, as `tool_use` of `transformers` does.
    pub with_tools: Option<Arc<dyn RenderChat>>,
    /// Templates that requests may choose.
    pub named: NamedTemplates,
}

impl RenderChat for TemplateChoice {
    fn render<'a>(
        &'a self,
        request: &'a RequestId,
        input: TemplateInput,
    ) -> PluginFuture<'a, Result<RenderedPrompt, PluginError>> {
        match &self.with_tools {
            Some(template) if input.tools.is_some() => template.render(request, input),
            _ => self.first.render(request, input),
        }
    }

    fn named(&self) -> Option<&NamedTemplates> {
        Some(&self.named)
    }
}

/// The template that a request chooses among those beside `serving`.
pub(crate) fn chosen<'a>(
    serving: &'a Arc<dyn RenderChat>,
    choice: Option<&ChosenTemplate>,
    model: &str,
) -> Result<&'a Arc<dyn RenderChat>, ServiceError> {
    let Some(choice) = choice else {
        return Ok(serving);
    };
    let named = serving.named();
    if let Some(template) = named.and_then(|named| named.get(&choice.name)) {
        return Ok(template);
    }
    let names = named.into_iter().flatten();
    let names: Vec<String> = names.map(|(name, _)| format!("`{name}`")).collect();
    let message = match names.is_empty() {
        true => format!(
            "the operator of this server lets requests choose no chat template for the model `{model}`; leave \
             `{}` out",
            choice.field
        ),
        false => format!(
            "`{}` is the name of a chat template, and the model `{model}` has these: {}",
            choice.field,
            names.join(", ")
        ),
    };
    Err(invalid(choice.field, message))
}
