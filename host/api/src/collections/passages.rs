//! Chunks as what a model reads: numbered, each once, within a budget of tokens.

use mortise_service::{Generator, Joint};

use super::embedding::TOKEN_BYTES;
use super::find::FoundChunk;
use crate::state::ApiState;

/// Tokens of a context that templates and instructions take.
const AROUND: usize = 192;

/// Tokens of documents where nobody knows the model's context.
const USUAL_BUDGET: usize = 2048;

/// Tokens that an answer is left where its limit is not given, as a part of the context.
const ANSWER_PART: usize = 4;

/// Tokens that all results of searches of one answer may take, as a part of the context.
const SEARCH_PART: usize = 2;

/// Tokens that documents may take.
#[derive(Clone)]
pub(crate) struct DocumentBudget {
    left: usize,
    generator: Option<Generator>,
}

impl DocumentBudget {
    /// Room of a model's context beside the question and the answer.
    pub(crate) fn of(state: &ApiState, model: &str, max_tokens: Option<u32>, query: &str) -> Self {
        let (mut budget, context) = Self::empty(state, model);
        let answer = |context: usize| match max_tokens {
            Some(tokens) => tokens as usize,
            None => context / ANSWER_PART,
        };
        let taken = budget.tokens(query) + AROUND;
        budget.left = context.map_or(USUAL_BUDGET, |context| {
            context.saturating_sub(taken + answer(context))
        });
        budget
    }

    /// Room for what all searches of an answer find.
    pub(super) fn of_searches(state: &ApiState, model: &str) -> Self {
        let (budget, context) = Self::empty(state, model);
        let left = context.map_or(USUAL_BUDGET, |context| context / SEARCH_PART);
        Self { left, ..budget }
    }

    /// Tokens that there is room for.
    pub(super) fn left(&self) -> usize {
        self.left
    }

    /// No room yet, and the tokens of the model's context, where they are known.
    fn empty(state: &ApiState, model: &str) -> (Self, Option<usize>) {
        let model = state.service.model(model).ok();
        let loaded = model.and_then(|model| Some(model.loaded.as_ref()?.model.clone()));
        let context = loaded.as_ref().and_then(|model| model.context_length());
        let generator = loaded.and_then(|model| model.generator.clone());
        (Self { left: 0, generator }, context)
    }

    /// Tokens of a text.
    pub(super) fn tokens(&self, text: &str) -> usize {
        let tokenizer = match &self.generator {
            Some(Generator::Tokens(tokens)) => Some(&tokens.tokenizer),
            Some(Generator::Rendered(rendered)) => Some(&rendered.tokenizer),
            _ => None,
        };
        let encoded = tokenizer.and_then(|tokenizer| tokenizer.encode_plain(text).ok());
        encoded.map_or(text.len() / TOKEN_BYTES + 1, |ids| ids.len())
    }
}

/// Add the best chunks that have room to those in use, without those that say the same as one of them. The number of
/// a chunk is its place among all, from 1.
pub(crate) fn add_distinct(
    used: &mut Vec<FoundChunk>,
    found: Vec<FoundChunk>,
    budget: &mut DocumentBudget,
) {
    for chunk in found {
        if used.iter().any(|other| same(other, &chunk)) {
            continue;
        }
        let tokens = budget.tokens(&numbered(used.len() + 1, &chunk));
        if tokens > budget.left {
            continue;
        }
        budget.left -= tokens;
        used.push(chunk);
    }
}

/// True if the second says nothing that the first does not.
pub(super) fn same(one: &FoundChunk, other: &FoundChunk) -> bool {
    let within = one.start <= other.start && other.end <= one.end;
    one.text == other.text || (one.file == other.file && within)
}

/// The line between two chunks that stand behind each other.
pub(crate) fn between(joint: Joint) -> &'static str {
    match joint {
        Joint::BlankLine => "",
        Joint::Rule => "---\n\n",
    }
}

/// A chunk as models read it.
pub(crate) fn numbered(number: usize, chunk: &FoundChunk) -> String {
    let name: String = chunk.name.chars().filter(|c| !c.is_control()).collect();
    format!("[{number}] {name}\n{}\n\n", chunk.text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> FoundChunk {
        FoundChunk {
            file: format!("file-{text}"),
            name: "a.txt".to_owned(),
            attributes: Default::default(),
            score: 1.0,
            similarity: 0.9,
            start: 0,
            end: 5,
            page: None,
            text: text.to_owned(),
        }
    }

    fn texts(chunks: &[&str], left: usize) -> Vec<String> {
        let mut budget = DocumentBudget {
            left,
            generator: None,
        };
        let mut used = Vec::new();
        let chunks = chunks.iter().map(|text| found(text)).collect();
        add_distinct(&mut used, chunks, &mut budget);
        used.into_iter().map(|chunk| chunk.text).collect()
    }

    #[test]
    fn feature_r9_documents_are_within_the_budget_and_said_once() {
        let many = ["alpha", "beta", "alpha", "gamma"];
        assert_eq!(texts(&many, 1000), ["alpha", "beta", "gamma"]);
        let none = DocumentBudget {
            left: 0,
            generator: None,
        };
        let each = none.tokens(&numbered(1, &found("alpha")));
        assert_eq!(texts(&many, 2 * each), ["alpha", "beta"]);
        assert!(texts(&many, 0).is_empty());
    }

    #[test]
    fn a_part_of_a_chunk_that_is_in_use_is_left_out() {
        let (whole, mut part) = (found("alpha"), found("alp"));
        (part.file, part.end) = (whole.file.clone(), 3);
        assert!(same(&whole, &part) && !same(&part, &whole));
        part.file = "another".to_owned();
        assert!(!same(&whole, &part));
    }
}
