//! Retrievers: documents are divided, queries rewritten and passages chosen.

use std::marker::PhantomData;
use std::ops::Range;

use serde::de::DeserializeOwned;

use crate::bindings::lifecycle::exports::mortise::plugin::lifecycle;
use crate::bindings::retriever::exports::mortise::plugin as wit;
use crate::{Fault, prepared};

pub use crate::bindings::retriever::exports::mortise::plugin::retriever::{
    Assembly, Budget, Candidate, Context, Document, Joint, Sizes, Traits,
};

/// A retriever. Make it a component with [`export!`](crate::export).
pub trait Retriever: Sized + 'static {
    /// The operator's table of the configuration; [`NoSettings`](crate::NoSettings) if there is none.
    type Settings: DeserializeOwned;

    /// Called once on each instance, first.
    ///
    /// # Errors
    /// Settings that make no sense: the server then does not take the plugin.
    fn prepare(settings: Self::Settings) -> Result<Self, Fault>;

    /// Functions that it has: at least one of the three. For the rest the server's own way serves.
    fn traits(&self) -> Traits;

    /// Divide a document: the places of its chunks in bytes, rising. Called if the traits have `chunk`.
    ///
    /// # Errors
    /// A fault fails the document's ingest, unless the operator said otherwise.
    fn chunk(
        &self,
        context: &Context,
        document: &Document,
        sizes: Sizes,
    ) -> Result<Vec<Range<usize>>, Fault> {
        let _ = (context, document, sizes);
        Err(Fault::Unsupported("it divides no documents".to_owned()))
    }

    /// The texts to search for in place of a query, 1 to 8. Called if the traits have `rewrite`.
    ///
    /// # Errors
    /// A fault refuses the request, unless the operator said otherwise.
    fn rewrite(&self, context: &Context, query: &str) -> Result<Vec<String>, Fault> {
        let _ = (context, query);
        Err(Fault::Unsupported("it rewrites no queries".to_owned()))
    }

    /// Choose passages, of which the best stands first. Called if the traits have `assemble`.
    ///
    /// # Errors
    /// As for [`rewrite`](Self::rewrite).
    fn assemble(
        &self,
        context: &Context,
        query: &str,
        candidates: &[Candidate],
        budget: Budget,
    ) -> Result<Assembly, Fault> {
        let _ = (context, query, candidates, budget);
        Err(Fault::Unsupported("it chooses no passages".to_owned()))
    }
}

impl Traits {
    /// Does nothing yet.
    pub const NONE: Self = Self {
        chunk: false,
        rewrite: false,
        assemble: false,
    };
}

impl Budget {
    /// The candidates of these indices, in this order, as far as they have room: one that has none is left out, and those
    /// behind it may still have.
    pub fn fill(
        self,
        candidates: &[Candidate],
        order: impl IntoIterator<Item = usize>,
    ) -> Vec<u32> {
        let (mut left, mut chosen) = (self.tokens, Vec::new());
        for index in order {
            let Some(candidate) = candidates.get(index) else {
                continue;
            };
            let Some(rest) = left.checked_sub(candidate.tokens) else {
                continue;
            };
            if chosen.len() >= self.passages as usize {
                break;
            }
            let index = index as u32;
            if !chosen.contains(&index) {
                left = rest;
                chosen.push(index);
            }
        }
        chosen
    }
}

/// Exports of [`export!`](crate::export) for a retriever.
#[doc(hidden)]
pub struct Component<R>(PhantomData<R>);

impl<R: Retriever> lifecycle::Guest for Component<R> {
    fn prepare() -> Result<(), Fault> {
        prepared::keep(R::prepare(prepared::settings()?)?)
    }
}

impl<R: Retriever> wit::retriever::Guest for Component<R> {
    fn describe() -> Traits {
        prepared::plugin::<R>().map_or(Traits::NONE, R::traits)
    }

    fn chunk(
        context: Context,
        document: Document,
        sizes: Sizes,
    ) -> Result<Vec<wit::retriever::Span>, Fault> {
        let spans = prepared::plugin::<R>()?.chunk(&context, &document, sizes)?;
        let spans = spans.into_iter().map(|span| wit::retriever::Span {
            start: span.start as u32,
            end: span.end as u32,
        });
        Ok(spans.collect())
    }

    fn rewrite(context: Context, query: String) -> Result<Vec<String>, Fault> {
        prepared::plugin::<R>()?.rewrite(&context, &query)
    }

    fn assemble(
        context: Context,
        query: String,
        candidates: Vec<Candidate>,
        budget: Budget,
    ) -> Result<Assembly, Fault> {
        prepared::plugin::<R>()?.assemble(&context, &query, &candidates, budget)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_filled_in_order_and_never_exceeded() {
        let candidate = |tokens| Candidate {
            document: "a.txt".to_owned(),
            start: 0,
            end: 1,
            text: "a".to_owned(),
            score: 1.0,
            similarity: 1.0,
            tokens,
        };
        let candidates = [candidate(5), candidate(9), candidate(2), candidate(2)];
        let budget = |passages, tokens| Budget { passages, tokens };
        assert_eq!(budget(4, 10).fill(&candidates, [0, 1, 2, 3]), [0, 2, 3]);
        assert_eq!(budget(2, 10).fill(&candidates, [3, 3, 0, 2]), [3, 0]);
        assert_eq!(budget(4, 1).fill(&candidates, 0..4), [0_u32; 0]);
        assert_eq!(budget(4, 10).fill(&candidates, [7, 2]), [2]);
    }
}
