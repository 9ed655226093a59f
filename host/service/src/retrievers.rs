//! Retrievers that serve, found by their names. They belong to no generation of models: what is ingested and searched is
//! no part of an answer.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock};

use mortise_plugin::{
    Assembly, ChunkSizes, Passage, PassageBudget, PluginError, RetrieverContext, RetrieverTraits,
    SourceText,
};

use crate::plugin_routing::ScopePredicate;
use crate::plugins::{PluginFuture, RequestId};
use crate::routing_key::RoutingKey;

/// Divides documents, rewrites queries and chooses passages (`retriever`).
pub trait Retrieve: Send + Sync {
    /// Name by which collections and requests choose it.
    fn name(&self) -> &str;

    /// Work that it does.
    fn traits(&self) -> RetrieverTraits;

    /// True if a caller of this tenant may use it.
    fn serves(&self, _tenant: Option<&str>) -> bool {
        true
    }

    /// True if work fails when the plugin breaks down. If not, the server's own way serves.
    fn is_required(&self) -> bool {
        true
    }

    /// Places of the chunks of a document.
    fn chunk<'a>(
        &'a self,
        request: &'a RequestId,
        told: &'a RetrieverContext,
        document: SourceText,
        sizes: ChunkSizes,
    ) -> PluginFuture<'a, Result<Vec<Range<usize>>, PluginError>>;

    /// Texts to search for in place of a query.
    fn rewrite<'a>(
        &'a self,
        request: &'a RequestId,
        told: &'a RetrieverContext,
        query: &'a str,
    ) -> PluginFuture<'a, Result<Vec<String>, PluginError>>;

    /// Passages that a model is given.
    fn assemble<'a>(
        &'a self,
        request: &'a RequestId,
        told: &'a RetrieverContext,
        query: &'a str,
        candidates: &'a [Passage],
        budget: PassageBudget,
    ) -> PluginFuture<'a, Result<Assembly, PluginError>>;
}

/// All retrievers by name.
#[derive(Default)]
pub struct Retrievers(RwLock<BTreeMap<String, Arc<dyn Retrieve>>>);

impl Retrievers {
    /// Serve these from the next piece of work on.
    pub fn replace(&self, all: Vec<Arc<dyn Retrieve>>) {
        let named = all.into_iter().map(|one| (one.name().to_owned(), one));
        let named = named.collect();
        let mut serving = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let replaced = std::mem::replace(&mut *serving, named);
        // Plugins may end with their last reference, which is not work for within the lock.
        drop(serving);
        drop(replaced);
    }

    /// The retriever of a name.
    pub fn get(&self, name: &str) -> Option<Arc<dyn Retrieve>> {
        let serving = self.0.read().unwrap_or_else(PoisonError::into_inner);
        serving.get(name).cloned()
    }
}

/// A retriever with its name, the callers who may use it, and what its failure means.
pub struct ScopedRetriever {
    /// The retriever.
    pub retriever: Arc<dyn Retrieve>,
    /// See [`Retrieve::name`].
    pub name: String,
    /// See [`Retrieve::serves`].
    pub scope: ScopePredicate,
    /// See [`Retrieve::is_required`].
    pub required: bool,
}

impl Retrieve for ScopedRetriever {
    fn name(&self) -> &str {
        &self.name
    }

    fn traits(&self) -> RetrieverTraits {
        self.retriever.traits()
    }

    fn serves(&self, tenant: Option<&str>) -> bool {
        // A retriever is chosen by its name: its binding has no patterns of routes and models.
        (self.scope)(&RoutingKey {
            tenant,
            route: "",
            model: None,
        })
    }

    fn is_required(&self) -> bool {
        self.required
    }

    fn chunk<'a>(
        &'a self,
        request: &'a RequestId,
        told: &'a RetrieverContext,
        document: SourceText,
        sizes: ChunkSizes,
    ) -> PluginFuture<'a, Result<Vec<Range<usize>>, PluginError>> {
        self.retriever.chunk(request, told, document, sizes)
    }

    fn rewrite<'a>(
        &'a self,
        request: &'a RequestId,
        told: &'a RetrieverContext,
        query: &'a str,
    ) -> PluginFuture<'a, Result<Vec<String>, PluginError>> {
        self.retriever.rewrite(request, told, query)
    }

    fn assemble<'a>(
        &'a self,
        request: &'a RequestId,
        told: &'a RetrieverContext,
        query: &'a str,
        candidates: &'a [Passage],
        budget: PassageBudget,
    ) -> PluginFuture<'a, Result<Assembly, PluginError>> {
        self.retriever
            .assemble(request, told, query, candidates, budget)
    }
}
