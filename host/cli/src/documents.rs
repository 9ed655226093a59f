//! Collections of documents, as the admin side asks for them.

use mortise_admin::{Ask, DocumentContent, Documents, Telling};
use mortise_api::{AllCollections, CollectionQuery};

/// The collections of the API.
pub(crate) struct Known(pub(crate) AllCollections);

fn question(ask: Ask<'_>) -> CollectionQuery<'_> {
    CollectionQuery {
        owner: ask.owner,
        peer: ask.peer,
        method: ask.method,
        below: ask.below,
        query: ask.query,
        body: ask.body,
    }
}

impl Documents for Known {
    fn list(&self) -> Telling<'_> {
        Box::pin(self.0.list())
    }

    fn watched(&self) -> Telling<'_> {
        Box::pin(self.0.watched())
    }

    fn ask<'a>(&'a self, ask: Ask<'a>) -> Telling<'a> {
        Box::pin(self.0.ask(question(ask)))
    }

    fn add<'a>(&'a self, ask: Ask<'a>, name: &'a str, content: DocumentContent) -> Telling<'a> {
        Box::pin(self.0.add(question(ask), name, content))
    }
}
