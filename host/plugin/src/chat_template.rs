//! Chat templates: rendering of prompts by a plugin.

use std::sync::atomic::Ordering::Relaxed;

use serde_json::Value;

use crate::attribution::{self, Control, attribute};
use crate::handle::kind_handle;
use crate::state::escape;
use crate::versions::{ChatTemplateExports, convert};
use crate::{
    CallContext, ControlToken, Fault, NameAndVersion, PluginError, RenderedPrompt, Segment,
    TemplateInput,
};

/// Conversation of a control call.
const SMALLEST: &str = r#"[{"role":"user","content":"Hi"}]"#;

/// Stop strings that a template may add.
const MAX_STOPS: usize = 64;

/// Longest stop string: each of its bytes is a state of the matcher that looks for it.
const MAX_STOP_BYTES: usize = 1024;

/// Prompts of a binding that are looked at for control tokens in plain segments.
const LOOKED_AT: u32 = 32;

/// Longest plain text that is looked at.
const MAX_LOOKED_AT_BYTES: usize = 64 << 10;

/// Shortest control token that is looked for: shorter ones are ordinary text, too.
const MIN_TOKEN_BYTES: usize = 4;

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
        let said = self.looks_for_control_tokens(&input);
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
            Ok(mut rendered) => {
                let component = self.component();
                rendered.by = Some(NameAndVersion {
                    name: component.name().to_owned(),
                    version: component.version().to_owned(),
                });
                if let Some(tools) = tools {
                    self.look_for_tools(context, &tools, &rendered);
                }
                if let Some(said) = said {
                    self.look_for_control_tokens(context, &said, &rendered);
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

    /// Texts of the conversation, if its prompt is to be searched for control tokens, as the first prompts of a binding
    /// are.
    fn looks_for_control_tokens(&self, input: &TemplateInput) -> Option<String> {
        let grants = self.handle.pool().grants();
        if grants.prompts_looked_at.fetch_add(1, Relaxed) >= LOOKED_AT {
            // So that the count never comes round.
            grants.prompts_looked_at.store(LOOKED_AT, Relaxed);
            return None;
        }
        let more = [input.tools.as_deref(), input.arguments.as_deref()];
        let more = more.into_iter().flatten();
        Some(std::iter::once(&*input.messages).chain(more).collect())
    }

    /// Warn of a template that writes the text of a control token into a plain segment: the model would see its
    /// letters instead of the token.
    fn look_for_control_tokens(
        &self,
        context: &CallContext,
        said: &str,
        rendered: &RenderedPrompt,
    ) {
        let grants = self.handle.pool().grants();
        let Some(model) = &grants.model else {
            return;
        };
        if let Some(token) = plain_control_token(&model.control_tokens, said, &rendered.segments) {
            grants.prompts_looked_at.store(LOOKED_AT, Relaxed);
            tracing::warn!(target: "mortise::plugin", plugin = grants.component.name(),
                version = grants.component.version(), model = escape(&model.name),
                request = &*context.request_id, token = escape(token),
                "the chat template writes a control token into a plain segment, where it is encoded as ordinary \
                 text; put it into a special one");
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
                    let input = convert::template_input(input);
                    let said = exports.render.call(store, (&input,)).await?;
                    Ok(said.map(convert::rendered))
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

/// The text of a control token that stands in a plain segment and comes from the template: nothing of what is `said`
/// holds it.
fn plain_control_token<'a>(
    tokens: &'a [ControlToken],
    said: &str,
    segments: &[Segment],
) -> Option<&'a str> {
    let plain = segments.iter().filter_map(|segment| match segment {
        Segment::Plain(text) => Some(text.as_str()),
        Segment::Special(_) => None,
    });
    let plain: Vec<&str> = plain.collect();
    if plain.iter().map(|text| text.len()).sum::<usize>() > MAX_LOOKED_AT_BYTES {
        return None;
    }
    let texts = tokens.iter().map(|token| token.text.as_str());
    let mut found = texts.filter(|text| {
        text.len() >= MIN_TOKEN_BYTES
            && plain.iter().any(|plain| plain.contains(text))
            && !said.contains(text)
    });
    found.next()
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
    #[test]
    fn feature_w4_control_tokens_of_the_template_in_plain_text_are_found() {
        let token = |text: &str| ControlToken {
            id: 0,
            text: text.to_owned(),
            special: true,
        };
        let tokens = ["<|im_start|>", "<|im_end|>", "\n"].map(token);
        let plain = |text: &str| Segment::Plain(text.to_owned());
        let special = |text: &str| Segment::Special(text.to_owned());
        let found = |said: &str, segments: &[Segment]| {
            plain_control_token(&tokens, said, segments).map(str::to_owned)
        };
        let good = [
            special("<|im_start|>"),
            plain("user\nHi"),
            special("<|im_end|>"),
        ];
        assert_eq!(found("Hi", &good), None);
        let bad = [plain("<|im_start|>user\nHi"), special("<|im_end|>")];
        assert_eq!(found("Hi", &bad).as_deref(), Some("<|im_start|>"));
        // What a caller writes is to arrive plain.
        assert_eq!(found("say <|im_start|>", &bad), None);
        let long = [plain(&"x".repeat(MAX_LOOKED_AT_BYTES)), plain("<|im_end|>")];
        assert_eq!(found("", &long), None);
    }
}
