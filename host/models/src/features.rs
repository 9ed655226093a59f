//! Inputs and outputs of models, in the words of a form.

use serde::Serialize;

use crate::capability::Capability;
use crate::config::ModelConfig;
use crate::script::ScriptKind;
use crate::upstream_config::Rendering;

/// Rendering of a model's conversations to prompts: by whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conversations {
    /// Rendered by this server, by a chat template.
    Rendered,
    /// Passed to another server or a child process, which renders.
    Passed,
    /// Answered by a script, without rendering.
    Scripted,
}

impl Conversations {
    /// Rendering that the configuration of a model asks for.
    pub(crate) fn of(config: &ModelConfig) -> Self {
        let child = config.child.as_ref().map(|child| &child.upstream);
        let elsewhere = config.upstream.as_ref().or(child);
        let script = config.script.as_ref();
        if elsewhere.is_some_and(|upstream| upstream.rendering == Rendering::Upstream) {
            Self::Passed
        } else if script.is_some_and(|script| script.kind == ScriptKind::Conversation) {
            Self::Scripted
        } else {
            Self::Rendered
        }
    }
}

/// Inputs and outputs of a loaded model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Features {
    /// Kinds of content that messages to the model may have.
    pub modalities: &'static [&'static str],
    /// Kinds of files that messages to the model may have.
    pub file_inputs: &'static [&'static str],
    /// Flag of a model that answers conversations.
    pub multi_turn: bool,
    /// Values of a switch for reasoning.
    pub thinking_modes: &'static [&'static str],
    /// Formats of answers that a request may ask for.
    pub response_formats: &'static [&'static str],
}

impl Features {
    /// Features of a model with these capabilities.
    pub fn of(conversations: Conversations, capabilities: &[Capability]) -> Self {
        const NONE: &[&str] = &[];
        const TEXT: &[&str] = &["text"];
        // Whether the model elsewhere takes all of them is known there only.
        const PASSED: &[&str] = &["text", "image", "audio"];
        const FORMATS: &[&str] = &["text", "json_object", "json_schema"];
        const MODES: &[&str] = &["default", "enabled", "disabled"];
        let multi_turn = capabilities.contains(&Capability::Generate);
        let (modalities, thinking_modes, response_formats) = match (multi_turn, conversations) {
            (false, _) => (TEXT, NONE, NONE),
            (true, Conversations::Passed) => (PASSED, MODES, FORMATS),
            (true, Conversations::Scripted) => (TEXT, NONE, TEXT),
            (true, Conversations::Rendered) => (TEXT, MODES, FORMATS),
        };
        Self {
            modalities,
            file_inputs: NONE,
            multi_turn,
            thinking_modes,
            response_formats,
        }
    }
}
