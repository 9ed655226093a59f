//! Keys: digests of all that an answer follows from.

use mortise_models::conversation::{ContentPart, Role};
use sha2::{Digest as _, Sha256};

use crate::request::{Prompt, RequestFields};

/// Digest of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct RequestDigest(pub(super) [u8; 32]);

/// Attributes of a request that rules are about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CacheAttributes<'a> {
    pub(crate) model: &'a str,
    pub(crate) tenant: Option<&'a str>,
    pub(crate) route: &'a str,
}

/// All that an answer follows from beside the fields of its request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CacheScope<'a> {
    /// Account of the caller: nothing of one is found by another.
    pub(crate) account: &'a str,
    pub(crate) model: &'a str,
    pub(crate) route: &'a str,
    /// Models and plugins that serve together.
    pub(crate) generation: u64,
    /// Limit of the answer.
    pub(crate) max_tokens: u32,
}

impl CacheScope<'_> {
    /// Key of a request, with the ids of its prompt where they are known.
    pub(crate) fn key(&self, fields: &RequestFields, ids: Option<&[u32]>) -> RequestDigest {
        let mut fields = relevant(fields);
        // An open message is parsed otherwise than a new one, whatever the tokens.
        let end = match &fields.prompt {
            Prompt::Chat(chat) => Some(chat.end),
            Prompt::Text(_) | Prompt::Tokens(_) => None,
        };
        if ids.is_some() {
            fields.prompt = Prompt::default();
        }
        self.digest("same", &format!("{fields:?}{end:?}{ids:?}"))
    }

    fn digest(&self, kind: &str, text: &str) -> RequestDigest {
        let Self {
            account,
            model,
            route,
            generation,
            max_tokens,
        } = self;
        let mut digest = Sha256::new();
        // Quoted, so that no part runs into the next.
        let scope = format!("{kind:?}{account:?}{model:?}{route:?}{generation:?} {max_tokens:?}");
        digest.update(scope.as_bytes());
        digest.update(text.as_bytes());
        RequestDigest(digest.finalize().into())
    }
}

/// Fields that an answer follows from. One that is not named here counts.
fn relevant(fields: &RequestFields) -> RequestFields {
    RequestFields {
        stream: false,
        fairness_key: None,
        waived_priority: 0,
        labelled_priority: 0,
        // Policies have decided by them already.
        metadata: None,
        allow_remote: false,
        // Names of one model are one; the scope has it.
        model: String::new(),
        ..fields.clone()
    }
}

/// A question: the digest of all that is around it, and its vector.
#[derive(Debug, Clone)]
pub(crate) struct Likeness {
    pub(crate) around: RequestDigest,
    pub(crate) vector: Vec<f32>,
}

/// The text of the last message, if it is a user's, and the digest of all else.
pub(crate) fn likeness(
    scope: &CacheScope<'_>,
    fields: &RequestFields,
) -> Option<(RequestDigest, String)> {
    let mut fields = relevant(fields);
    let Prompt::Chat(chat) = &mut fields.prompt else {
        return None;
    };
    let mut messages = chat.conversation.messages().to_vec();
    let last = messages.pop().filter(|last| last.role == Role::User)?;
    let parts = last.content.iter().map(|part| match part {
        ContentPart::Text(text) => Some(text.as_str()),
        _ => None,
    });
    let text = parts.collect::<Option<Vec<&str>>>()?.join("\n");
    if text.trim().is_empty() {
        return None;
    }
    let around = format!(
        "{messages:?}{:?}{:?}{:?}{:?}",
        last.name, chat.arguments, chat.template, chat.end
    );
    fields.prompt = Prompt::default();
    Some((scope.digest("alike", &format!("{fields:?}{around}")), text))
}
