//! Texts of requests and answers for a log of contents, where an operator asks for one. They are collected as they
//! pass and handed over once, when the answer has ended, so that a writer sees whole texts and no pieces.

use std::borrow::Cow;
use std::sync::Arc;

use mortise_models::Delta;
use mortise_models::conversation::{ContentPart, Message, Role};

use crate::event::Event;
use crate::observer::Outcome;
use crate::request::{Prompt, RequestFields};

/// Bytes that are collected of a text beyond those that are written, so that a writer recognises what stands across
/// the end.
pub const LOOK_AHEAD: usize = 512;

/// Texts of one request, told apart by their names.
const MAX_SECTIONS: usize = 64;

/// Writes what requests and answers said. Nothing of it may be written as it is: it has names, addresses and keys in it.
pub trait ContentLog: Send + Sync {
    /// Bytes that are written of a prompt, and of an answer, of this model to a caller of this tenant; `None`: nothing is.
    fn bytes(&self, model: &str, tenant: Option<&str>) -> Option<usize>;

    /// Write the texts of a request whose answer has ended. Must not block.
    fn write(&self, content: &RequestTexts<'_>);
}

/// Texts of a request whose answer has ended.
#[derive(Debug, Clone, Copy)]
pub struct RequestTexts<'a> {
    /// Server's id of the request.
    pub request_id: &'a str,
    /// Public name of the model.
    pub model: &'a str,
    /// Tenant of the caller.
    pub tenant: Option<&'a str>,
    /// Outcome.
    pub outcome: Outcome,
    /// Bytes that are written of the prompt, and of the answer.
    pub bytes: usize,
    /// Messages of the prompt, or its text.
    pub prompt: &'a TextGroup,
    /// Choices of the answer: contents, reasoning and calls.
    pub answer: &'a TextGroup,
}

/// Texts that belong together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TextGroup {
    /// In the order in which they began.
    pub sections: Vec<Section>,
    /// Some of it was left out.
    pub cut: bool,
    /// Bytes that may still be collected.
    room: usize,
}

/// A text with its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// Role of a message, or part of a choice.
    pub name: Cow<'static, str>,
    /// The text, joined of all of its pieces.
    pub text: String,
    /// Its end was left out.
    pub cut: bool,
}

impl TextGroup {
    fn new(bytes: usize) -> Self {
        Self {
            room: bytes.saturating_add(LOOK_AHEAD),
            ..Self::default()
        }
    }

    /// Begin a section.
    fn add(&mut self, name: impl Into<Cow<'static, str>>, text: &str) {
        if self.sections.len() < MAX_SECTIONS && self.room > 0 {
            self.sections.push(Section {
                name: name.into(),
                text: String::new(),
                cut: false,
            });
            let last = self.sections.len() - 1;
            self.extend(last, text);
        } else {
            self.cut = true;
        }
    }

    /// Append to the section of this name, which is begun if there is none.
    fn append(&mut self, name: &str, text: &str) {
        let mut sections = self.sections.iter();
        match sections.position(|section| section.name == name) {
            Some(at) => self.extend(at, text),
            None => self.add(name.to_owned(), text),
        }
    }

    fn extend(&mut self, at: usize, text: &str) {
        let Some(section) = self.sections.get_mut(at) else {
            return;
        };
        // What follows a gap is no continuation.
        let room = if section.cut { 0 } else { self.room };
        let fits = text.floor_char_boundary(room.min(text.len()));
        section.text.push_str(text.get(..fits).unwrap_or_default());
        self.room -= fits;
        if fits < text.len() {
            section.cut = true;
            self.cut = true;
        }
    }
}

/// Collector of the texts of one prompt and its answer.
pub(crate) struct Transcript {
    log: Arc<dyn ContentLog>,
    model: Arc<str>,
    tenant: Option<String>,
    bytes: usize,
    prompt: TextGroup,
    answer: TextGroup,
}

impl Transcript {
    /// Collector of a request, if its texts are written.
    pub(crate) fn begin(
        log: &Arc<dyn ContentLog>,
        model: &Arc<str>,
        tenant: Option<&str>,
        fields: &RequestFields,
    ) -> Option<Self> {
        let bytes = log.bytes(model, tenant)?;
        Some(Self {
            log: Arc::clone(log),
            model: Arc::clone(model),
            tenant: tenant.map(str::to_owned),
            bytes,
            prompt: prompt(fields, bytes),
            answer: TextGroup::new(bytes),
        })
    }

    /// Take what an event adds to the answer.
    pub(crate) fn note(&mut self, event: &Event) {
        let Event::Delta { choice, delta, .. } = event else {
            return;
        };
        match delta {
            Delta::Content(text) => self.answer.append(&format!("choice {choice}"), text),
            Delta::Reasoning(text) => {
                let name = format!("choice {choice} reasoning");
                self.answer.append(&name, text);
            }
            Delta::CallBegin { index, name, .. } => {
                let section = format!("choice {choice} call {index}");
                self.answer.append(&section, &format!("{name} "));
            }
            Delta::CallArguments { index, delta } => {
                let section = format!("choice {choice} call {index}");
                self.answer.append(&section, delta);
            }
        }
    }

    /// Write it: the answer has ended.
    pub(crate) fn end(self, request_id: &str, outcome: Outcome) {
        self.log.write(&RequestTexts {
            request_id,
            model: &self.model,
            tenant: self.tenant.as_deref(),
            outcome,
            bytes: self.bytes,
            prompt: &self.prompt,
            answer: &self.answer,
        });
    }
}

fn prompt(fields: &RequestFields, bytes: usize) -> TextGroup {
    let mut texts = TextGroup::new(bytes);
    match &fields.prompt {
        Prompt::Text(text) => texts.add("text", text),
        Prompt::Tokens(ids) => texts.add("tokens", &format!("{} ids", ids.len())),
        Prompt::Chat(chat) => {
            for message in chat.conversation.messages() {
                texts.add(role(&message.role), &text_of_message(message));
            }
        }
    }
    texts
}

fn role(role: &Role) -> &'static str {
    match role {
        Role::System => "system",
        Role::Developer => "developer",
        Role::User => "user",
        Role::Assistant { .. } => "assistant",
        Role::Tool { .. } => "tool",
    }
}

/// Text of a message; of images and recordings, that there is one.
fn text_of_message(message: &Message) -> String {
    let mut text = String::new();
    for part in &message.content {
        match part {
            ContentPart::Text(own) => text.push_str(own),
            ContentPart::Image(_) => text.push_str("[image]"),
            ContentPart::Audio(_) => text.push_str("[audio]"),
        }
    }
    if let Role::Assistant { calls, .. } = &message.role {
        for call in calls {
            text.push_str(&format!("\n{} {}", call.name, call.arguments));
        }
    }
    text
}

/// Writes nothing.
pub(crate) struct LogNoContent;

impl ContentLog for LogNoContent {
    fn bytes(&self, _: &str, _: Option<&str>) -> Option<usize> {
        None
    }

    fn write(&self, _: &RequestTexts<'_>) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_a_section_are_joined_whatever_comes_between() {
        let mut texts = TextGroup::new(100);
        for (name, text) in [("a", "sk-"), ("b", "x"), ("a", "secret"), ("b", "y")] {
            texts.append(name, text);
        }
        let joined: Vec<_> = texts.sections.iter().map(|one| one.text.as_str()).collect();
        assert_eq!(joined, ["sk-secret", "xy"]);
        assert!(!texts.cut);
    }

    #[test]
    fn texts_have_a_bound_and_say_that_they_were_cut() {
        let mut texts = TextGroup::new(10);
        texts.append("a", &"é".repeat(LOOK_AHEAD));
        texts.append("a", "more");
        texts.append("b", "more");
        let [section] = &texts.sections[..] else {
            panic!("{texts:?}")
        };
        assert_eq!(section.text.len(), 10 + LOOK_AHEAD);
        assert!(section.cut && texts.cut);
        let mut many = TextGroup::new(1000);
        (0..2 * MAX_SECTIONS).for_each(|number| many.append(&number.to_string(), "x"));
        assert_eq!((many.sections.len(), many.cut), (MAX_SECTIONS, true));
    }
}
