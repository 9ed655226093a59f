//! Instructions that stand before texts of an embedding model, as sentence-transformers keeps them.

use std::collections::BTreeMap;

use crate::error::ModelError;
use crate::fields::{ObjectFields, brief};
use crate::folder::ModelFolder;
use crate::limits::{PROMPT_BYTES_MAX, PROMPTS_MAX};

const FILE: &str = "config_sentence_transformers.json";
const PROMPTS: &str = "prompts";
const DEFAULT: &str = "default_prompt_name";

/// Name of the instruction for questions.
const QUERY: &str = "query";
/// Names of the instruction for what is searched, of which the first that a model has counts.
const DOCUMENT: [&str; 3] = ["document", "passage", "corpus"];

/// Instructions of a model by name, each a text that is put before another.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EmbeddingPrompts {
    named: BTreeMap<String, String>,
    /// Name of the instruction where nothing is said about a text.
    default: Option<String>,
}

/// Use of a text, by which its instruction is chosen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum PromptUse {
    /// Default instruction of the model, if it has one; for requests that choose none.
    #[default]
    Usual,
    /// A text that is taken as it is.
    Plain,
    /// A question; as usual where the model has no instruction for questions.
    Query,
    /// Text that is searched; as usual where the model has no instruction for it.
    Document,
    /// The instruction of this name.
    Named(String),
}

/// Request for an instruction that the model does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the model has no instruction `{name}`; it has: {known}")]
pub struct PromptError {
    /// Name of the instruction.
    pub name: String,
    /// Names that there are, or `none`.
    pub known: String,
}

impl EmbeddingPrompts {
    /// Read the instructions of a model; none if its files name none.
    pub fn read(folder: &ModelFolder) -> Result<Self, ModelError> {
        if folder.gguf().is_some() {
            return Ok(Self::default());
        }
        let Some(config) = ObjectFields::read(folder, FILE)? else {
            return Ok(Self::default());
        };
        let Some(prompts) = config.object(PROMPTS)? else {
            return Ok(Self::default());
        };
        let count = prompts.names().count();
        if count > PROMPTS_MAX {
            let problem = format!("has {count} entries; at most {PROMPTS_MAX} are read");
            return Err(config.wrong(PROMPTS, problem));
        }
        let mut named = BTreeMap::new();
        for name in prompts.names() {
            let text = prompts.text(name)?.unwrap_or_default();
            if text.len() > PROMPT_BYTES_MAX || name.len() > PROMPT_BYTES_MAX {
                let problem = format!("has more than {PROMPT_BYTES_MAX} bytes");
                return Err(prompts.wrong(&brief(&name.into()), problem));
            }
            named.insert(name.to_owned(), text.to_owned());
        }
        let default = config.text(DEFAULT)?.map(str::to_owned);
        if let Some(name) = default.as_ref().filter(|name| !named.contains_key(*name)) {
            let name = brief(&name.as_str().into());
            return Err(config.wrong(DEFAULT, format!("is {name}, which is none of `{PROMPTS}`")));
        }
        Ok(Self { named, default })
    }

    /// The instructions with those of an operator, which come first.
    ///
    /// # Errors
    /// When there is none of the name of `default`.
    pub fn with(
        mut self,
        more: &BTreeMap<String, String>,
        default: Option<&str>,
    ) -> Result<Self, PromptError> {
        let more = more.iter().map(|(name, text)| (name.clone(), text.clone()));
        self.named.extend(more);
        if let Some(name) = default {
            self.of(name)?;
            self.default = Some(name.to_owned());
        }
        Ok(self)
    }

    /// The instruction for a text; empty if there is none.
    ///
    /// # Errors
    /// When it is asked for by a name that the model does not have.
    pub fn text(&self, used: &PromptUse) -> Result<&str, PromptError> {
        let first = |names: &[&str]| {
            let found = names.iter().find_map(|name| self.named.get(*name));
            found.map(String::as_str)
        };
        let usual = || self.default.as_deref().and_then(|name| first(&[name]));
        match used {
            PromptUse::Plain => Ok(""),
            PromptUse::Usual => Ok(usual().unwrap_or_default()),
            PromptUse::Query => Ok(first(&[QUERY]).or_else(usual).unwrap_or_default()),
            PromptUse::Document => Ok(first(&DOCUMENT).or_else(usual).unwrap_or_default()),
            PromptUse::Named(name) => self.of(name),
        }
    }

    fn of(&self, name: &str) -> Result<&str, PromptError> {
        let found = self.named.get(name).map(String::as_str);
        found.ok_or_else(|| {
            let known: Vec<&str> = self.named.keys().map(String::as_str).collect();
            PromptError {
                name: name.chars().take(100).collect(),
                known: match known.is_empty() {
                    true => "none".to_owned(),
                    false => known.join(", "),
                },
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(text: &str) -> (tempfile::TempDir, ModelFolder) {
        let made = tempfile::tempdir().expect("a folder");
        std::fs::write(made.path().join(FILE), text).expect("a file");
        let folder = ModelFolder::open(made.path()).expect("a folder");
        (made, folder)
    }

    fn read(text: &str) -> Result<EmbeddingPrompts, ModelError> {
        EmbeddingPrompts::read(&folder(text).1)
    }

    #[test]
    fn uses_of_texts_choose_instructions() {
        let e5 = r#"{"prompts": {"query": "query: ", "passage": "passage: "}}"#;
        let prompts = read(e5).expect("instructions");
        let text = |used| prompts.text(&used).map(str::to_owned);
        assert_eq!(text(PromptUse::Query), Ok("query: ".to_owned()));
        assert_eq!(text(PromptUse::Document), Ok("passage: ".to_owned()));
        assert_eq!(text(PromptUse::Usual), Ok(String::new()));
        let named = text(PromptUse::Named("poem".to_owned()));
        let error = named.expect_err("no such instruction").to_string();
        assert!(error.ends_with("passage, query"), "{error}");
        // The operator's come first, and a default holds where nothing else does.
        let more = [("query".to_owned(), "Q: ".to_owned())].into();
        let own = prompts.clone().with(&more, Some("passage"));
        let own = own.expect("instructions");
        let text = |used| own.text(&used).map(str::to_owned);
        assert_eq!(text(PromptUse::Query), Ok("Q: ".to_owned()));
        assert_eq!(text(PromptUse::Usual), Ok("passage: ".to_owned()));
        assert_eq!(text(PromptUse::Plain), Ok(String::new()));
        assert!(prompts.with(&more, Some("poem")).is_err());
    }

    #[test]
    fn wrong_instructions_are_refused_by_name() {
        let many: String = (0..=PROMPTS_MAX)
            .map(|at| format!(r#""p{at}": "","#))
            .collect();
        let long = "x".repeat(PROMPT_BYTES_MAX + 1);
        for (text, expected) in [
            (r#"{"prompts": []}"#.to_owned(), "`prompts`"),
            (r#"{"prompts": {"query": 1}}"#.to_owned(), "`prompts.query`"),
            (
                r#"{"prompts": {"a": ""}, "default_prompt_name": "b"}"#.to_owned(),
                "`default_prompt_name`",
            ),
            (format!(r#"{{"prompts": {{{many} "z": ""}}}}"#), "at most"),
            (format!(r#"{{"prompts": {{"a": "{long}"}}}}"#), "bytes"),
        ] {
            let error = read(&text).expect_err(expected).to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert_eq!(read("{}").expect("none"), EmbeddingPrompts::default());
    }
}
