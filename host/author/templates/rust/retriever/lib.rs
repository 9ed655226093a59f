//! A retriever: chunks are paragraphs, put together up to the size that is asked for; a query of several questions is
//! searched for as a whole and question by question; and of one document only so many passages are used:
//! `{"per_document": 2}`.

use std::collections::HashMap;
use std::ops::Range;

use mortise_plugin_sdk::Fault;
use mortise_plugin_sdk::retriever::{
    Assembly, Budget, Candidate, Context, Document, Joint, Retriever, Sizes, Traits,
};
use serde::Deserialize;

mortise_plugin_sdk::export!(retriever: Paragraphs, settings: "settings.schema.json");

/// Queries that one may become.
const MOST_QUERIES: usize = 8;

/// The settings, which are also the whole plugin.
#[derive(Deserialize)]
struct Paragraphs {
    #[serde(default = "two")]
    per_document: u32,
}

fn two() -> u32 {
    2
}

/// The places of the paragraphs of a text, without blank ones.
fn paragraphs(text: &str) -> impl Iterator<Item = Range<usize>> {
    let mut start = 0;
    text.split("\n\n").filter_map(move |part| {
        let place = start..start + part.len();
        start = place.end + 2;
        (!part.trim().is_empty()).then_some(place)
    })
}

impl Retriever for Paragraphs {
    type Settings = Self;

    fn prepare(settings: Self) -> Result<Self, Fault> {
        Ok(settings)
    }

    fn traits(&self) -> Traits {
        Traits {
            chunk: true,
            rewrite: true,
            assemble: true,
        }
    }

    fn chunk(
        &self,
        _: &Context,
        document: &Document,
        sizes: Sizes,
    ) -> Result<Vec<Range<usize>>, Fault> {
        // Two neighbours have more bytes than that, so that there are never too many chunks.
        let least = 2 * document.text.len() / sizes.max_chunks.max(1) as usize + 2;
        let bytes = least.max(sizes.about_bytes as usize);
        let mut chunks: Vec<Range<usize>> = Vec::new();
        for place in paragraphs(&document.text) {
            match chunks.last_mut() {
                Some(last) if place.end - last.start <= bytes => last.end = place.end,
                _ => chunks.push(place),
            }
        }
        Ok(chunks)
    }

    fn rewrite(&self, _: &Context, query: &str) -> Result<Vec<String>, Fault> {
        let questions = query.split_inclusive(['?', ';']).map(str::trim);
        let questions = questions.filter(|question| question.contains(char::is_alphanumeric));
        let questions: Vec<String> = questions.map(str::to_owned).collect();
        let mut queries = vec![query.to_owned()];
        if questions.len() > 1 {
            queries.extend(questions.into_iter().take(MOST_QUERIES - 1));
        }
        Ok(queries)
    }

    fn assemble(
        &self,
        _: &Context,
        _: &str,
        candidates: &[Candidate],
        budget: Budget,
    ) -> Result<Assembly, Fault> {
        let mut used: HashMap<&str, u32> = HashMap::new();
        let order = (0..candidates.len()).filter(|index| {
            let count = used.entry(&candidates[*index].document).or_default();
            *count += 1;
            *count <= self.per_document
        });
        Ok(Assembly {
            chosen: budget.fill(candidates, order),
            joint: Joint::BlankLine,
        })
    }
}
