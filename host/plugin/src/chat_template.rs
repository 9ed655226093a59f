//! Rendering prompts through a plugin.

use std::sync::Arc;

use crate::pool::{Pool, Running};
use crate::v0_1::bindings::chat_template::Exported;
use crate::v0_1::convert;
use crate::{
    Binding, CallContext, Component, LoadError, PluginError, PluginHost, RenderedPrompt,
    TemplateInput,
};

/// A chat template, bound to a model.
#[derive(Clone)]
pub struct ChatTemplate {
    pool: Arc<Pool<Exported>>,
}

impl ChatTemplate {
    /// Bind a component, preparing a first instance. Needs a tokio runtime with time.
    ///
    /// # Errors
    /// When the component is no chat template, does not fit, or refuses its settings.
    pub async fn bind(
        host: &PluginHost,
        component: &Arc<Component>,
        binding: Binding,
    ) -> Result<Self, LoadError> {
        let pool = Pool::bind(host, component, binding).await?;
        Ok(Self { pool })
    }

    /// The component behind this handle.
    pub fn component(&self) -> &Arc<Component> {
        self.pool.component()
    }

    /// Render a conversation.
    ///
    /// # Errors
    /// When the conversation is refused, or the plugin fails.
    pub async fn render(
        &self,
        context: &CallContext,
        input: TemplateInput,
    ) -> Result<RenderedPrompt, PluginError> {
        const FUNCTION: &str = "chat-template.render";
        let input = convert::template_input(input);
        let deadline_ms = self.pool.grants().limits.deadlines.render_ms;
        let mut lease = self.pool.checkout(context, FUNCTION).await?;
        let running = lease.begin(FUNCTION, context, deadline_ms)?;
        let Running {
            call,
            exports,
            store,
        } = running;
        let template = exports.mortise_plugin_chat_template();
        let outcome = template.call_render(store, &input).await;
        let outcome = outcome.map(|rendered| rendered.map_err(convert::fault));
        lease.finish(call, outcome, |output, _| Ok(convert::rendered(output)))
    }
}
