//! Log of what requests and answers said, redacted: off unless an operator asks for it.

use mortise_service::{ContentLog, LOOK_AHEAD, RequestTexts, TextGroup};
use wildmatch::WildMatch;

use crate::redact::redact;

/// Requests whose texts are written, and how much of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContentLogConfig {
    /// Bytes that are written of a prompt, and of an answer.
    pub bytes: usize,
    /// Patterns of the models' public names.
    pub models: Vec<String>,
    /// Patterns of the tenants; a caller without one has the empty name.
    pub tenants: Vec<String>,
}

/// Writes texts to the log, redacted and marked.
pub struct RedactedContent {
    bytes: usize,
    models: Vec<WildMatch>,
    tenants: Vec<WildMatch>,
}

impl RedactedContent {
    /// Writer for the requests that `config` names.
    pub fn new(config: &ContentLogConfig) -> Self {
        let patterns = |names: &[String]| names.iter().map(|name| WildMatch::new(name)).collect();
        Self {
            bytes: config.bytes,
            models: patterns(&config.models),
            tenants: patterns(&config.tenants),
        }
    }
}

impl ContentLog for RedactedContent {
    fn bytes(&self, model: &str, tenant: Option<&str>) -> Option<usize> {
        let fits = |patterns: &[WildMatch], name| patterns.iter().any(|one| one.matches(name));
        let wanted = fits(&self.models, model) && fits(&self.tenants, tenant.unwrap_or_default());
        wanted.then_some(self.bytes)
    }

    fn write(&self, content: &RequestTexts<'_>) {
        let mut marks = 0;
        let (prompt, prompt_cut) = written(content.prompt, content.bytes, &mut marks);
        let (answer, answer_cut) = written(content.answer, content.bytes, &mut marks);
        tracing::info!(
            target: "mortise::content",
            id = content.request_id,
            model = content.model,
            tenant = content.tenant,
            finish = content.outcome.name(),
            prompt,
            answer,
            redacted = marks,
            cut = prompt_cut || answer_cut,
            "content of a request, redacted"
        );
    }
}

/// Texts as they are written, in at most `bytes` bytes, and whether some was left out.
fn written(texts: &TextGroup, bytes: usize, marks: &mut usize) -> (String, bool) {
    let mut out = String::new();
    let mut cut = texts.cut;
    for section in &texts.sections {
        if out.len() >= bytes {
            cut = true;
            break;
        }
        if !out.is_empty() {
            out.push('\n');
        }
        out.push_str(&format!("[{}] ", section.name));
        // What follows the end of a section that was cut is not known, so its last bytes serve as look-ahead.
        let whole = match section.cut {
            true => section.text.len().saturating_sub(LOOK_AHEAD),
            false => section.text.len(),
        };
        let room = bytes.saturating_sub(out.len());
        cut |= section.cut || room < section.text.len();
        *marks += redact(&section.text, whole.min(room), &mut out);
    }
    // Marks may be longer than what they stand for; what is there is redacted, so that any end will do.
    if out.len() > bytes {
        out.truncate(out.floor_char_boundary(bytes));
        cut = true;
    }
    (out, cut)
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;

    fn texts(sections: &[(&'static str, &str, bool)]) -> TextGroup {
        let mut texts = TextGroup::default();
        let all = sections.iter();
        texts.sections = all
            .map(|(name, text, cut)| mortise_service::Section {
                name: Cow::Borrowed(name),
                text: (*text).to_owned(),
                cut: *cut,
            })
            .collect();
        texts
    }

    #[test]
    fn sections_are_named_redacted_and_bounded() {
        let two = texts(&[
            ("user", "I am a@b.example", false),
            ("choice 0", "Hi", false),
        ]);
        let mut marks = 0;
        let (out, cut) = written(&two, 100, &mut marks);
        assert_eq!(out, "[user] I am [redacted email]\n[choice 0] Hi");
        assert_eq!((marks, cut), (1, false));
        for bytes in 0..60 {
            let (out, cut) = written(&two, bytes, &mut marks);
            assert!(out.len() <= bytes && !out.contains("a@"), "{out}");
            assert_eq!(cut, bytes < 42, "{bytes}: {out}");
        }
    }

    #[test]
    fn the_end_of_a_text_that_was_cut_is_not_written() {
        let secret = format!("{}sk-abcdef", "x ".repeat(LOOK_AHEAD / 2));
        let (out, cut) = written(&texts(&[("user", &secret, true)]), 10_000, &mut 0);
        assert!(cut && !out.contains("sk-"), "{out}");
    }

    #[test]
    fn models_and_tenants_are_chosen_by_patterns() {
        let log = RedactedContent::new(&ContentLogConfig {
            bytes: 9,
            models: vec!["chat-*".to_owned()],
            tenants: vec!["acme".to_owned()],
        });
        assert_eq!(log.bytes("chat-1", Some("acme")), Some(9));
        for (model, tenant) in [
            ("other", Some("acme")),
            ("chat-1", Some("b")),
            ("chat-1", None),
        ] {
            assert_eq!(log.bytes(model, tenant), None);
        }
    }
}
