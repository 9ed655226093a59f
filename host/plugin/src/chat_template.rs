//! Rendering prompts through a plugin.

use crate::handle::kind_handle;
use crate::v0_1::bindings::chat_template::Exported;
use crate::v0_1::convert;
use crate::{CallContext, PluginError, RenderedPrompt, TemplateInput};

/// Stop strings that a template may add.
const MAX_STOPS: usize = 64;

/// Longest stop string: each of its bytes is a state of the matcher that looks for it.
const MAX_STOP_BYTES: usize = 1024;

kind_handle!(
    /// A chat template, bound to a model.
    ChatTemplate,
    Exported
);

impl ChatTemplate {
    /// Render a conversation.
    ///
    /// # Errors
    /// When the conversation is refused, or the plugin fails.
    pub async fn render(
        &self,
        context: &CallContext,
        input: TemplateInput,
    ) -> Result<RenderedPrompt, PluginError> {
        let input = convert::template_input(input);
        self.handle
            .call(
                context,
                "chat-template.render",
                self.handle.deadlines().render_ms,
                async |exports, store| {
                    let template = exports.mortise_plugin_chat_template();
                    template.call_render(store, &input).await
                },
                |output, _| {
                    let prompt = convert::rendered(output);
                    check_stops(&prompt.stop).map(|()| prompt)
                },
            )
            .await
    }
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
