//! A grammar for answers that are one of a few words: the regular expression `yes|no|perhaps`, without
//! any other operator. Everything else is `unsupported`, and a binding with `on_failure = "fallback"`
//! hands it to the grammar that is part of the server.

use mortise_plugin_sdk::grammar::{Allowed, Grammar, GrammarSource, Matcher, Status, Vocabulary};
use mortise_plugin_sdk::{Fault, NoSettings};

mortise_plugin_sdk::export!(grammar: Words, settings: "settings.schema.json");

struct Words {
    /// The bytes of each token that is text, in the order of their ids.
    tokens: Vec<(u32, Vec<u8>)>,
    /// Tokens that end an answer.
    ends: Vec<u32>,
}

impl Grammar for Words {
    type Settings = NoSettings;

    fn prepare(_: NoSettings, vocabulary: Vocabulary) -> Result<Self, Fault> {
        let tokens = vocabulary.texts().map(|(id, bytes)| (id, bytes.to_vec()));
        Ok(Self {
            tokens: tokens.collect(),
            ends: vocabulary.eos.clone(),
        })
    }

    fn compile(&'static self, source: GrammarSource) -> Result<Box<dyn Matcher>, Fault> {
        let GrammarSource::Regex(pattern) = source else {
            return Err(Fault::Unsupported("only words, such as `yes|no`".to_owned()));
        };
        if pattern.contains(|c: char| r"\.^$*+?()[]{}".contains(c)) {
            let fault = format!("`{pattern}` has operators other than `|`");
            return Err(Fault::Unsupported(fault));
        }
        Ok(Box::new(OneOf {
            vocabulary: self,
            words: pattern.split('|').map(str::to_owned).collect(),
            taken: vec![],
        }))
    }
}

impl Words {
    fn bytes_of(&self, token: u32) -> Option<&[u8]> {
        let at = self.tokens.binary_search_by_key(&token, |(id, _)| *id).ok()?;
        Some(&self.tokens[at].1)
    }
}

#[derive(Clone)]
struct OneOf {
    vocabulary: &'static Words,
    words: Vec<String>,
    /// Tokens so far.
    taken: Vec<u32>,
}

impl OneOf {
    /// The bytes that may follow what was taken.
    fn rests(&self) -> Vec<&[u8]> {
        let taken = self.taken.iter().filter_map(|token| self.vocabulary.bytes_of(*token));
        let text: Vec<u8> = taken.flatten().copied().collect();
        let words = self.words.iter();
        words.filter_map(|word| word.as_bytes().strip_prefix(text.as_slice())).collect()
    }
}

impl Matcher for OneOf {
    fn status(&self) -> Status {
        let rests = self.rests();
        let complete = rests.iter().any(|rest| rest.is_empty());
        match (complete, rests.len()) {
            (true, 1) => Status::Finished,
            (true, _) => Status::Accepting,
            (false, _) => Status::Active,
        }
    }

    fn allowed(&self) -> Allowed {
        let rests = self.rests();
        let fits = |bytes: &[u8]| rests.iter().any(|rest| rest.starts_with(bytes));
        let tokens = self.vocabulary.tokens.iter();
        let mut allowed: Vec<u32> = tokens.filter(|(_, b)| fits(b)).map(|(id, _)| *id).collect();
        if self.status() != Status::Active {
            allowed.extend(&self.vocabulary.ends);
        }
        Allowed::Only(allowed)
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
