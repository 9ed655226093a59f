//! Retrievers of collections: the plugins that divide documents, rewrite queries and choose passages. Where there is none,
//! or it breaks down and may, the server's own way serves.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use mortise_http::Problem;
use mortise_retrieval::Format;
use mortise_retrieval::limits::MAX_RESULTS;
use mortise_service::{
    ChunkSizes, Fault, Joint, Passage, PassageBudget, PluginError, Principal, RequestId, Retrieve,
    RetrieverContext, ServiceError, SourceText, account_of,
};
use tokio::time::sleep;

use super::find::FoundChunk;
use super::limits::RERANKED;
use super::passages::{DocumentBudget, numbered, same};
use super::stored::Collection;
use crate::problem::problem_of;
use crate::state::ApiState;

/// Pause before a document is handed over again to a retriever that has no room, or is suspended.
pub(super) const PAUSE: Duration = Duration::from_secs(1);

/// Attempts.
pub(super) const ATTEMPTS: u32 = 90;

/// Party for whom a retriever is called.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RetrieverCaller<'a> {
    pub(crate) request: &'a str,
    pub(crate) subject: &'a str,
    pub(crate) tenant: Option<&'a str>,
}

/// A retriever with the context of its calls.
pub(crate) struct Retrieval {
    retriever: Arc<dyn Retrieve>,
    told: RetrieverContext,
    request: RequestId,
}

impl<'a> RetrieverCaller<'a> {
    /// A caller who asks in a request.
    pub(crate) fn of(request: &'a str, principal: &'a Principal) -> Self {
        Self {
            request,
            subject: &principal.subject,
            tenant: principal.tenant.as_deref(),
        }
    }
}

impl Retrieval {
    /// The retriever of a name; a problem that names `param` if there is none for the caller.
    pub(crate) fn named(
        state: &ApiState,
        name: &str,
        of: &str,
        asker: RetrieverCaller<'_>,
        param: &str,
    ) -> Result<Self, Problem> {
        let found = state.service.retrievers.get(name);
        match found.filter(|found| found.serves(asker.tenant)) {
            Some(retriever) => Ok(Self::new(retriever, of, asker)),
            None => {
                let message = format!("`{param}`: there is no retriever `{name}`");
                Err(Problem::invalid(param, message))
            }
        }
    }

    /// The retriever that works for a collection: its own, or else that of all, if it serves the caller.
    pub(crate) fn of(
        state: &ApiState,
        of: &Collection,
        asker: RetrieverCaller<'_>,
    ) -> Result<Option<Self>, Problem> {
        Self::kept(state, of.retriever(), &of.key.id, asker)
    }

    /// The retriever of a name that was good when it was stored; that of all without one.
    pub(super) fn kept(
        state: &ApiState,
        own: Option<&str>,
        of: &str,
        asker: RetrieverCaller<'_>,
    ) -> Result<Option<Self>, Problem> {
        let Some(name) = own.or(state.retriever.get().map(String::as_str)) else {
            return Ok(None);
        };
        match state.service.retrievers.get(name) {
            Some(found) if found.serves(asker.tenant) => Ok(Some(Self::new(found, of, asker))),
            Some(_) if own.is_none() => Ok(None),
            _ => {
                let message = format!("the retriever `{name}` is not there at present");
                let problem = Problem::new(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "retriever_unavailable",
                    message,
                );
                Err(problem.with_header("retry-after", "10"))
            }
        }
    }

    fn new(retriever: Arc<dyn Retrieve>, of: &str, asker: RetrieverCaller<'_>) -> Self {
        let principal = Principal {
            subject: asker.subject.to_owned(),
            tenant: asker.tenant.map(str::to_owned),
            ..Principal::default()
        };
        Self {
            retriever,
            told: RetrieverContext {
                collection: of.to_owned(),
                subject: principal.subject.clone(),
                tenant: principal.tenant.clone(),
            },
            request: RequestId::new(asker.request).of_account(account_of(&principal)),
        }
    }

    /// True if it divides documents.
    pub(super) fn chunks(&self) -> bool {
        self.retriever.traits().chunk
    }

    /// True if it rewrites queries.
    pub(crate) fn rewrites(&self) -> bool {
        self.retriever.traits().rewrite
    }

    /// True if it chooses passages.
    pub(crate) fn assembles(&self) -> bool {
        self.retriever.traits().assemble
    }

    /// Places of the chunks of a document; `None` where the server's own way is to serve.
    pub(super) async fn divide(
        &self,
        (name, format): (&str, Format),
        text: &str,
        sizes: ChunkSizes,
    ) -> Result<Option<Vec<std::ops::Range<usize>>>, PluginError> {
        let mut attempt = 0;
        loop {
            let document = SourceText {
                name: name.to_owned(),
                media_type: media_type(format).to_owned(),
                text: text.to_owned(),
            };
            let asked = (&self.request, &self.told);
            let spans = self.retriever.chunk(asked.0, asked.1, document, sizes);
            match spans.await {
                Ok(spans) => return Ok(Some(spans)),
                Err(error) if self.may_go_without(&error) => return Ok(None),
                Err(error) if busy(&error.fault) && attempt < ATTEMPTS => {
                    attempt += 1;
                    sleep(PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Texts to search for in place of a query.
    pub(crate) async fn queries(&self, query: &str) -> Result<Vec<String>, Problem> {
        if !self.rewrites() {
            return Ok(vec![query.to_owned()]);
        }
        let made = self.retriever.rewrite(&self.request, &self.told, query);
        match made.await {
            Ok(queries) => Ok(queries),
            Err(error) if self.may_go_without(&error) => Ok(vec![query.to_owned()]),
            Err(error) => Err(problem_of(ServiceError::Plugin(error))),
        }
    }

    /// Passages of those that were found that a model is given, in the order in which it reads them, and what stands
    /// between them. `None` where the server's own way is to serve.
    pub(crate) async fn assemble(
        &self,
        query: &str,
        found: &[FoundChunk],
        most: usize,
        budget: &DocumentBudget,
    ) -> Result<Option<(Vec<FoundChunk>, Joint)>, Problem> {
        if !self.assembles() {
            return Ok(None);
        }
        let mut distinct: Vec<&FoundChunk> = Vec::with_capacity(found.len());
        for chunk in found {
            if !distinct.iter().any(|other| same(other, chunk)) {
                distinct.push(chunk);
            }
        }
        let passages: Vec<Passage> = distinct
            .iter()
            .map(|chunk| passage(chunk, budget))
            .collect();
        let room = PassageBudget {
            passages: bounded(most),
            tokens: bounded(budget.left()),
        };
        let made = self
            .retriever
            .assemble(&self.request, &self.told, query, &passages, room);
        let assembly = match made.await {
            Ok(assembly) => assembly,
            Err(error) if self.may_go_without(&error) => return Ok(None),
            Err(error) => return Err(problem_of(ServiceError::Plugin(error))),
        };
        let chosen = assembly.chosen.iter();
        let chosen = chosen.filter_map(|index| distinct.get(*index as usize));
        let chosen = chosen.map(|chunk| FoundChunk::clone(chunk)).collect();
        Ok(Some((chosen, assembly.joint)))
    }

    /// True if a failure ends nothing, which is then told in the log.
    fn may_go_without(&self, error: &PluginError) -> bool {
        let may = !self.retriever.is_required() && !error.fault.is_callers();
        if may {
            tracing::warn!(
                request = &*self.request,
                retriever = self.retriever.name(),
                function = error.function,
                fault = error.fault.label(),
                "a retriever failed, and the server's own way serves"
            );
        }
        may
    }
}

/// Chunks to fetch where the best of them are chosen.
pub(crate) fn candidates(most: usize) -> usize {
    most.saturating_mul(RERANKED).min(MAX_RESULTS)
}

fn busy(fault: &Fault) -> bool {
    matches!(fault, Fault::Overloaded { .. } | Fault::Suspended { .. })
}

fn bounded(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn passage(chunk: &FoundChunk, budget: &DocumentBudget) -> Passage {
    // The number that it is given later is no longer than this one, and a rule may stand before it.
    let shown = format!("---\n\n{}", numbered(MAX_RESULTS, chunk));
    Passage {
        document: chunk.name.clone(),
        place: chunk.start..chunk.end,
        text: chunk.text.clone(),
        score: chunk.score,
        similarity: chunk.similarity,
        tokens: bounded(budget.tokens(&shown)),
    }
}

fn media_type(format: Format) -> &'static str {
    match format {
        Format::Text => "text/plain",
        Format::Markdown => "text/markdown",
        Format::Html => "text/html",
        Format::Pdf => "application/pdf",
    }
}
