//! The messages of a conversation, its request, and its file.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Bytes of a file that is read into a conversation.
const FILE_BYTES_MAX: u64 = 8 << 20;

/// Fields of all requests beside model and messages.
#[derive(Debug, Clone, Default)]
pub(super) struct ChatSettings {
    pub(super) temperature: Option<f64>,
    pub(super) max_tokens: Option<u32>,
    pub(super) seed: Option<i64>,
    pub(super) server_tools: Vec<String>,
    pub(super) allow_remote: bool,
}

/// Author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Role {
    User,
    Assistant,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Message {
    role: Role,
    content: String,
}

/// Contents of a file.
#[derive(Debug, Serialize, Deserialize)]
struct Saved {
    model: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    system: Option<String>,
    messages: Vec<Message>,
}

/// A conversation.
#[derive(Debug, Clone)]
pub(super) struct ChatHistory {
    pub(super) model: String,
    pub(super) system: Option<String>,
    messages: Vec<Message>,
    /// Texts of files for the next message.
    attached: String,
    settings: ChatSettings,
}

impl ChatHistory {
    pub(super) fn new(model: String, system: Option<String>, settings: ChatSettings) -> Self {
        Self {
            model,
            system,
            messages: Vec::new(),
            attached: String::new(),
            settings,
        }
    }

    /// Add a message of the user, with the files that were given for it.
    pub(super) fn say(&mut self, text: &str) {
        let mut content = std::mem::take(&mut self.attached);
        content.push_str(text);
        self.push(Role::User, content);
    }

    /// Add an answer.
    pub(super) fn answered(&mut self, content: String) {
        self.push(Role::Assistant, content);
    }

    fn push(&mut self, role: Role, content: String) {
        self.messages.push(Message { role, content });
    }

    /// Take back the last message of the user, which got no answer.
    pub(super) fn take_back(&mut self) {
        if self
            .messages
            .last()
            .is_some_and(|last| last.role == Role::User)
        {
            self.messages.pop();
        }
    }

    /// Take back the last answer. False if there is no message to answer.
    pub(super) fn retry(&mut self) -> bool {
        if self
            .messages
            .last()
            .is_some_and(|last| last.role == Role::Assistant)
        {
            self.messages.pop();
        }
        !self.messages.is_empty()
    }

    /// Forget all messages.
    pub(super) fn clear(&mut self) {
        self.messages.clear();
        self.attached.clear();
    }

    /// Put the text of a file before the next message. The number of its bytes.
    pub(super) fn attach(&mut self, path: &Path) -> anyhow::Result<usize> {
        let text = read(path)?;
        self.attached
            .push_str(&format!("File {}:\n\n{text}\n\n", path.display()));
        Ok(text.len())
    }

    /// Write the conversation to a file. One that is there is left as it is.
    pub(super) fn save(&self, path: &Path) -> anyhow::Result<()> {
        let saved = Saved {
            model: self.model.clone(),
            system: self.system.clone(),
            messages: self.messages.clone(),
        };
        let file = File::create_new(path)
            .with_context(|| format!("cannot make the file `{}`", path.display()))?;
        serde_json::to_writer_pretty(file, &saved)
            .with_context(|| format!("cannot write `{}`", path.display()))
    }

    /// Go on with the conversation of a file, with the model of this one. The number of its messages.
    pub(super) fn load(&mut self, path: &Path) -> anyhow::Result<usize> {
        let saved: Saved = serde_json::from_str(&read(path)?)
            .with_context(|| format!("`{}` is no file of /save", path.display()))?;
        self.clear();
        (self.system, self.messages) = (saved.system, saved.messages);
        Ok(self.messages.len())
    }

    /// The body of the request for the next answer.
    pub(super) fn request(&self) -> Value {
        let system = self.system.as_ref();
        let system = system.map(|text| json!({"role": "system", "content": text}));
        let messages = self.messages.iter().map(|message| json!(message));
        let messages: Vec<Value> = system.into_iter().chain(messages).collect();
        let mut body = json!({
            "model": self.model,
            "messages": messages,
            "stream": true,
            "stream_options": {"include_usage": true},
        });
        let ChatSettings {
            temperature,
            max_tokens,
            seed,
            server_tools,
            allow_remote,
        } = &self.settings;
        let tools = (!server_tools.is_empty()).then_some(server_tools);
        for (name, value) in [
            ("temperature", json!(temperature)),
            ("max_tokens", json!(max_tokens)),
            ("seed", json!(seed)),
            ("server_tools", json!(tools)),
            ("allow_remote", json!(allow_remote.then_some(true))),
        ] {
            if !value.is_null() {
                body[name] = value;
            }
        }
        body
    }
}

fn read(path: &Path) -> anyhow::Result<String> {
    let file = File::open(path).with_context(|| format!("cannot open `{}`", path.display()))?;
    let mut text = String::new();
    let read = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
    read.with_context(|| format!("cannot read `{}` as text", path.display()))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        bail!("`{}` has more than {FILE_BYTES_MAX} bytes", path.display());
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conversation() -> ChatHistory {
        ChatHistory::new(
            "m".to_owned(),
            Some("Be brief.".to_owned()),
            ChatSettings::default(),
        )
    }

    #[test]
    fn a_request_has_what_was_said_and_set() {
        let mut conversation = conversation();
        conversation.settings.seed = Some(7);
        conversation.say("Hi");
        conversation.answered("Ho".to_owned());
        let body = conversation.request();
        let roles = body["messages"].as_array().expect("messages").iter();
        let roles: Vec<&str> = roles
            .filter_map(|message| message["role"].as_str())
            .collect();
        assert_eq!(roles, ["system", "user", "assistant"]);
        assert_eq!(body["seed"], 7);
        assert!(body.get("temperature").is_none() && body.get("server_tools").is_none());
        assert!(conversation.retry());
        assert_eq!(conversation.messages.len(), 1);
        conversation.take_back();
        assert!(!conversation.retry());
    }
}
