//! Chat templates: rendering of prompts by a plugin.

use crate::attribution::{self, Control, attribute};
use crate::handle::kind_handle;
use crate::versions::{ChatTemplateExports, in_each_version};
use crate::{CallContext, Fault, PluginError, RenderedPrompt, TemplateInput};

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
            rendered => rendered,
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
