//! Rendering prompts through a plugin.

use crate::handle::kind_handle;
use crate::v0_1::bindings::chat_template::Exported;
use crate::v0_1::convert;
use crate::{CallContext, PluginError, RenderedPrompt, TemplateInput};

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
                |output, _| Ok(convert::rendered(output)),
            )
            .await
    }
}
