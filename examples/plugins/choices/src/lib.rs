//! A grammar for answers that are one of a few texts, written as a JSON Schema: `{"enum": ["yes", "no"]}`.
//! It builds nothing but the list, so it is ready at once; everything else is `unsupported`, and a binding
//! with `on_failure = "fallback"` hands it to the grammar that is part of the server.

use mortise_plugin_sdk::grammar::{Allowed, Grammar, GrammarSource, Matcher, Status, Vocabulary};
use mortise_plugin_sdk::serde_json::Value;
use mortise_plugin_sdk::{Fault, NoSettings};

mortise_plugin_sdk::export!(grammar: Choices, settings: "settings.schema.json");

struct Choices {
    /// The bytes of each token that is text, in the order of their ids.
    tokens: Vec<(u32, Vec<u8>)>,
    /// Tokens that end an answer.
    ends: Vec<u32>,
}

impl Grammar for Choices {
    type Settings = NoSettings;

    fn prepare(_: NoSettings, vocabulary: Vocabulary) -> Result<Self, Fault> {
        let tokens = vocabulary.texts().map(|(id, bytes)| (id, bytes.to_vec()));
        Ok(Self {
            tokens: tokens.collect(),
            ends: vocabulary.eos.clone(),
        })
    }

    fn compile(&'static self, source: GrammarSource) -> Result<Box<dyn Matcher>, Fault> {
        let unsupported = || Fault::Unsupported("only a schema with `enum` alone".to_owned());
        let GrammarSource::JsonSchema(schema) = source else {
            return Err(unsupported());
        };
        let schema: Value = mortise_plugin_sdk::serde_json::from_str(&schema)
            .map_err(|error| Fault::Invalid(format!("the schema is not JSON: {error}")))?;
        let others = ["enum", "type", "title", "description", "$schema"];
        let object = schema.as_object().ok_or_else(unsupported)?;
        if object.keys().any(|key| !others.contains(&key.as_str())) {
            return Err(unsupported());
        }
        let values = object.get("enum").and_then(Value::as_array);
        let values = values.filter(|values| values.iter().all(Value::is_string));
        let texts = values.ok_or_else(unsupported)?.iter().map(Value::to_string);
        Ok(Box::new(OneOf {
            vocabulary: self,
            texts: texts.collect(),
            taken: vec![],
        }))
    }
}

impl Choices {
    fn bytes_of(&self, token: u32) -> Option<&[u8]> {
        let at = self
            .tokens
            .binary_search_by_key(&token, |(id, _)| *id)
            .ok()?;
        Some(&self.tokens[at].1)
    }
}

#[derive(Clone)]
struct OneOf {
    vocabulary: &'static Choices,
    texts: Vec<String>,
    /// Tokens so far.
    taken: Vec<u32>,
}

impl OneOf {
    /// The bytes that may follow what was taken.
    fn rests(&self) -> Vec<&[u8]> {
        let taken = self
            .taken
            .iter()
            .filter_map(|token| self.vocabulary.bytes_of(*token));
        let taken: Vec<u8> = taken.flatten().copied().collect();
        let texts = self.texts.iter();
        texts
            .filter_map(|text| text.as_bytes().strip_prefix(taken.as_slice()))
            .collect()
    }
}

impl Matcher for OneOf {
    fn status(&self) -> Status {
        // Each text ends with a quote, so none begins another.
        match self.rests().iter().any(|rest| rest.is_empty()) {
            true => Status::Finished,
            false => Status::Active,
        }
    }

    fn allowed(&self) -> Allowed {
        let rests = self.rests();
        if self.status() == Status::Finished {
            return Allowed::Only(self.vocabulary.ends.clone());
        }
        let fits = |bytes: &[u8]| rests.iter().any(|rest| rest.starts_with(bytes));
        let tokens = self.vocabulary.tokens.iter();
        Allowed::Only(tokens.filter(|(_, b)| fits(b)).map(|(id, _)| *id).collect())
    }

    fn accept(&mut self, token: u32) -> bool {
        let Some(bytes) = self.vocabulary.bytes_of(token) else {
            return false;
        };
        let fits = self.rests().iter().any(|rest| rest.starts_with(bytes));
        if fits {
            self.taken.push(token);
        }
        fits
    }

    fn rollback(&mut self, count: usize) -> bool {
        let left = self.taken.len().checked_sub(count);
        left.is_some_and(|left| {
            self.taken.truncate(left);
            true
        })
    }

    fn fork(&self) -> Box<dyn Matcher> {
        Box::new(self.clone())
    }
}
