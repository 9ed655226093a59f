//! Chat templates: rendering of prompts by a plugin.

use std::sync::atomic::Ordering::Relaxed;

use serde_json::Value;

use crate::attribution::{self, Control, attribute};
use crate::handle::kind_handle;
use crate::state::escape;
use crate::versions::{ChatTemplateExports, in_each_version};
use crate::{CallContext, Fault, PluginError, RenderedPrompt, Segment, TemplateInput};

/// Conversation of a control call.
const SMALLEST: &str = r#"[{"role":"user","content":"Hi"}]"#;

/// Stop strings that a template may add.
const MAX_STOPS: usize = 64;

/// Longest stop string: each of its bytes is a state of the matcher that looks for it.
const MAX_STOP_BYTES: usize = 1024;

kind_handle!(
    /// A chat template, bound to a model.
    ChatTemplate,
    ChatTemplateExports
);

impl ChatTemplate {
    /// Render a conversation.
    ///
    /// # Errors
    /// When the conversation is refused or takes more than the plugin may use, or the plugin fails.
    pub async fn render(
        &self,
        context: &CallContext,
        input: TemplateInput,
    ) -> Result<RenderedPrompt, PluginError> {
        let today = input.today.clone();
        let looked = self.handle.pool().grants().looked_for_tools.load(Relaxed);
        let tools = input.tools.clone().filter(|_| !looked);
        match self.render_once(context, input).await {
            Err(error) => {
                let smallest = TemplateInput {
                    messages: SMALLEST.to_owned(),
                    add_generation_prompt: true,
                    today,
                    ..TemplateInput::default()
                };
                let control = async { Control::of(&self.render_once(context, smallest).await) };
                Err(attribute(self.handle.pool(), error, to_caller, control).await)
            }
            Ok(rendered) => {
                if let Some(tools) = tools {
                    self.look_for_tools(context, &tools, &rendered);
                }
                Ok(rendered)
            }
        }
    }

    /// Warn of a template that shows the model no tools: it would never call any, and nobody would know why.
    /// The first prompt that should show some tells, for this binding.
    fn look_for_tools(&self, context: &CallContext, tools: &str, rendered: &RenderedPrompt) {
        let grants = self.handle.pool().grants();
        if grants.looked_for_tools.swap(true, Relaxed) {
            return;
        }
        if let Some(tool) = missing_tool(tools, &rendered.segments) {
            let model = grants.model.as_ref().map(|model| escape(&model.name));
            tracing::warn!(target: "mortise::plugin", plugin = grants.component.name(),
                version = grants.component.version(), model, request = &*context.request_id,
                tool = escape(&tool),
                "a request declares tools, and the chat template does not show them to the model");
        }
    }

    async fn render_once(
        &self,
        context: &CallContext,
        input: TemplateInput,
    ) -> Result<RenderedPrompt, PluginError> {
        self.handle
            .call(
                context,
                "chat-template.render",
                self.handle.deadlines().render_ms,
                async |exports, store| {
                    in_each_version!(exports, |exports, convert| {
                        let input = convert::template_input(input);
                        let template = exports.mortise_plugin_chat_template();
                        let said = template.call_render(store, &input).await?;
                        Ok(said.map(convert::rendered).map_err(convert::fault))
                    })
                },
                |prompt, _| {
                    let checked = check_stops(&prompt.stop).map_err(Fault::InvalidResult);
                    checked.map(|()| prompt)
                },
            )
            .await
    }
}

/// The name of a declared tool that the prompt does not hold, if there is one.
fn missing_tool(tools: &str, segments: &[Segment]) -> Option<String> {
    let declared: Vec<Value> = serde_json::from_str(tools).ok()?;
    let text = |segment: &Segment| match segment {
        Segment::Special(text) | Segment::Plain(text) => text.clone(),
    };
    let prompt: String = segments.iter().map(text).collect();
    let names = declared.iter().filter_map(|tool| {
        let name = tool.pointer("/function/name").or(tool.get("name"))?;
        name.as_str()
    });
    let mut missing = names.filter(|name| !prompt.contains(name));
    missing.next().map(str::to_owned)
}

fn to_caller(fault: Fault) -> Fault {
    attribution::too_complex(fault, "send fewer or shorter messages, tools and arguments")
}

/// Stop strings live as long as the answer, so that they are bounded more tightly than a prompt.
fn check_stops(stops: &[String]) -> Result<(), String> {
    if stops.len() > MAX_STOPS {
        return Err(format!(
            "gave {} stop strings of at most {MAX_STOPS}",
            stops.len()
        ));
    }
    match stops.iter().find(|stop| stop.len() > MAX_STOP_BYTES) {
        Some(stop) => Err(format!(
            "gave a stop string of {} bytes, of at most {MAX_STOP_BYTES}",
            stop.len()
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_that_no_segment_shows_is_found() {
        let tools = r#"[{"type": "function", "function": {"name": "rain"}}, {"name": "sun"}]"#;
        let plain = |text: &str| Segment::Plain(text.to_owned());
        let missing = |segments: &[Segment]| missing_tool(tools, segments);
        assert_eq!(missing(&[plain("ra"), plain("in and sun")]), None);
        assert_eq!(missing(&[plain("rain")]).as_deref(), Some("sun"));
        assert_eq!(missing(&[]).as_deref(), Some("rain"));
        assert_eq!(missing_tool("{", &[]), None);
    }
}
