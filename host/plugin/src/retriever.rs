//! Retrievers: documents divided, queries rewritten and passages chosen by a plugin. What it says is held to the document
//! and to the candidates before anybody uses it.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use crate::attribution::{self, Control, attribute};
use crate::handle::PluginHandle;
use crate::limits::{MAX_CHUNK_COPIES, MAX_QUERY_BYTES, MAX_REWRITTEN_QUERIES};
use crate::versions::{RetrieverExports, convert};
use crate::{
    Assembly, Binding, CallContext, ChunkSizes, Component, Fault, LoadError, Passage,
    PassageBudget, PluginError, PluginHost, RetrieverContext, RetrieverTraits, SourceText,
};

/// Text of a control call.
const SMALLEST: &str = "a";

/// A retriever with its settings.
#[derive(Clone)]
pub struct Retriever {
    handle: PluginHandle<RetrieverExports>,
    traits: RetrieverTraits,
}

impl Retriever {
    /// Bind a component, preparing a first instance and asking for its traits. Needs a tokio
    /// runtime with time.
    ///
    /// # Errors
    /// When the component is no retriever, does not fit, refuses its settings, or does nothing.
    pub async fn bind(
        host: &PluginHost,
        component: &Arc<Component>,
        binding: Binding,
    ) -> Result<Self, LoadError> {
        let handle = PluginHandle::bind(host, component, binding).await?;
        let traits = describe(&handle).await;
        let traits = traits.map_err(|source| LoadError::Prepare {
            origin: component.label(),
            source: Box::new(source),
        })?;
        Ok(Self { handle, traits })
    }

    /// The component behind this handle.
    pub fn component(&self) -> &Arc<Component> {
        self.handle.component()
    }

    /// Work that it does.
    pub fn traits(&self) -> RetrieverTraits {
        self.traits
    }

    /// Places of the chunks of a document, rising.
    ///
    /// # Errors
    /// When the document is refused or takes more than the plugin may use, or the plugin fails.
    pub async fn chunk(
        &self,
        context: &CallContext,
        told: &RetrieverContext,
        document: SourceText,
        sizes: ChunkSizes,
    ) -> Result<Vec<Range<usize>>, PluginError> {
        match self.chunk_once(context, told, document, sizes).await {
            Err(error) => {
                let smallest = SourceText {
                    name: SMALLEST.to_owned(),
                    media_type: "text/plain".to_owned(),
                    text: SMALLEST.to_owned(),
                };
                let called = self.chunk_once(context, told, smallest, sizes);
                let control = async { Control::of(&called.await) };
                Err(attribute(self.handle.pool(), error, to_caller, control).await)
            }
            spans => spans,
        }
    }

    async fn chunk_once(
        &self,
        context: &CallContext,
        told: &RetrieverContext,
        document: SourceText,
        sizes: ChunkSizes,
    ) -> Result<Vec<Range<usize>>, PluginError> {
        let document = convert::source_text(document);
        self.handle
            .call(
                context,
                "retriever.chunk",
                self.handle.deadlines().chunk_ms,
                async |exports, store| {
                    let told = convert::retriever_context(&context.request_id, told);
                    let sizes = convert::chunk_sizes(sizes);
                    let said = exports.chunk.call(store, (&told, &document, sizes)).await?;
                    Ok(said.map(convert::spans))
                },
                |spans, _| {
                    check_spans(&document.text, &spans, sizes).map_err(Fault::InvalidResult)?;
                    Ok(spans)
                },
            )
            .await
    }

    /// The texts to search for in place of a query: at least one.
    ///
    /// # Errors
    /// When the query is refused or takes more than the plugin may use, or the plugin fails.
    pub async fn rewrite(
        &self,
        context: &CallContext,
        told: &RetrieverContext,
        query: &str,
    ) -> Result<Vec<String>, PluginError> {
        match self.rewrite_once(context, told, query).await {
            Err(error) => {
                let called = self.rewrite_once(context, told, SMALLEST);
                let control = async { Control::of(&called.await) };
                Err(attribute(self.handle.pool(), error, to_caller, control).await)
            }
            queries => queries,
        }
    }

    async fn rewrite_once(
        &self,
        context: &CallContext,
        told: &RetrieverContext,
        query: &str,
    ) -> Result<Vec<String>, PluginError> {
        self.handle
            .call(
                context,
                "retriever.rewrite",
                self.handle.deadlines().retrieve_ms,
                async |exports, store| {
                    let told = convert::retriever_context(&context.request_id, told);
                    exports.rewrite.call(store, (&told, query)).await
                },
                |queries, _| {
                    check_queries(&queries).map_err(Fault::InvalidResult)?;
                    Ok(queries)
                },
            )
            .await
    }

    /// The passages that a model is given.
    ///
    /// # Errors
    /// When they are refused or take more than the plugin may use, or the plugin fails.
    pub async fn assemble(
        &self,
        context: &CallContext,
        told: &RetrieverContext,
        query: &str,
        candidates: &[Passage],
        budget: PassageBudget,
    ) -> Result<Assembly, PluginError> {
        let called = self.assemble_once(context, told, query, candidates, budget);
        match called.await {
            Err(error) => {
                let called = self.assemble_once(context, told, SMALLEST, &[], budget);
                let control = async { Control::of(&called.await) };
                Err(attribute(self.handle.pool(), error, to_caller, control).await)
            }
            assembly => assembly,
        }
    }

    async fn assemble_once(
        &self,
        context: &CallContext,
        told: &RetrieverContext,
        query: &str,
        candidates: &[Passage],
        budget: PassageBudget,
    ) -> Result<Assembly, PluginError> {
        self.handle
            .call(
                context,
                "retriever.assemble",
                self.handle.deadlines().retrieve_ms,
                async |exports, store| {
                    let told = convert::retriever_context(&context.request_id, told);
                    let shown = convert::candidates(candidates);
                    let budget = convert::passage_budget(budget);
                    let asked = (&told, query, &*shown, budget);
                    let said = exports.assemble.call(store, asked).await?;
                    Ok(said.map(convert::assembly))
                },
                |assembly, _| {
                    check_assembly(&assembly, candidates, budget).map_err(Fault::InvalidResult)?;
                    Ok(assembly)
                },
            )
            .await
    }
}

async fn describe(handle: &PluginHandle<RetrieverExports>) -> Result<RetrieverTraits, PluginError> {
    handle
        .call(
            &CallContext::new("-"),
            "retriever.describe",
            handle.deadlines().retrieve_ms,
            async |exports, store| {
                let (traits,) = exports.describe.call_async(store, ()).await?;
                Ok(Ok(convert::retriever_traits(traits)))
            },
            |traits, _| match traits == RetrieverTraits::default() {
                true => Err(Fault::InvalidResult("does nothing".to_owned())),
                false => Ok(traits),
            },
        )
        .await
}

fn to_caller(fault: Fault) -> Fault {
    attribution::too_complex(fault, "send a smaller document, or a shorter query")
}

/// Hold spans to the text.
fn check_spans(text: &str, spans: &[Range<usize>], sizes: ChunkSizes) -> Result<(), String> {
    let (count, most) = (spans.len(), sizes.max_chunks as usize);
    if count == 0 || count > most {
        return Err(format!("made {count} chunks, not 1 to {most}"));
    }
    let mut before = None;
    let mut bytes = 0usize;
    for (number, span) in spans.iter().enumerate() {
        let (start, end) = (span.start, span.end);
        if end > text.len() {
            let length = text.len();
            return Err(format!(
                "ended chunk {number} at byte {end} of a text of {length}"
            ));
        }
        if start >= end {
            return Err(format!("made chunk {number} from byte {start} to {end}"));
        }
        if !text.is_char_boundary(start) || !text.is_char_boundary(end) {
            return Err(format!("cut chunk {number} in the middle of a character"));
        }
        if before.is_some_and(|(first, last)| start <= first || end <= last) {
            return Err(format!("made chunk {number} out of order"));
        }
        before = Some((start, end));
        bytes = bytes.saturating_add(end - start);
    }
    let most = text.len().saturating_mul(MAX_CHUNK_COPIES);
    match bytes > most {
        true => Err(format!(
            "made chunks of {bytes} bytes in all, of at most {most}"
        )),
        false => Ok(()),
    }
}

/// Hold rewritten queries to the contract.
fn check_queries(queries: &[String]) -> Result<(), String> {
    let count = queries.len();
    if count == 0 || count > MAX_REWRITTEN_QUERIES {
        return Err(format!(
            "made {count} queries of one, not 1 to {MAX_REWRITTEN_QUERIES}"
        ));
    }
    let wrong = |query: &String| query.trim().is_empty() || query.len() > MAX_QUERY_BYTES;
    match queries.iter().position(wrong) {
        Some(at) => Err(format!(
            "made query {at} blank, or of more than {MAX_QUERY_BYTES} bytes"
        )),
        None => Ok(()),
    }
}

/// Hold a choice to its candidates and its budget.
fn check_assembly(
    assembly: &Assembly,
    candidates: &[Passage],
    budget: PassageBudget,
) -> Result<(), String> {
    let count = assembly.chosen.len();
    if count > budget.passages as usize {
        let most = budget.passages;
        return Err(format!("chose {count} passages, of at most {most}"));
    }
    let mut known = BTreeSet::new();
    let mut tokens = 0u64;
    for index in &assembly.chosen {
        let Some(passage) = candidates.get(*index as usize) else {
            let count = candidates.len();
            return Err(format!("chose passage {index} of {count}"));
        };
        if !known.insert(index) {
            return Err(format!("chose passage {index} twice"));
        }
        tokens += u64::from(passage.tokens);
    }
    match tokens > u64::from(budget.tokens) {
        true => {
            let most = budget.tokens;
            Err(format!(
                "chose passages of {tokens} tokens, of at most {most}"
            ))
        }
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Joint;

    const SIZES: ChunkSizes = ChunkSizes {
        max_tokens: 10,
        overlap_tokens: 0,
        about_bytes: 40,
        max_chunks: 4,
    };

    #[test]
    #[allow(
        clippy::reversed_empty_ranges,
        clippy::single_range_in_vec_init,
        reason = "spans of a guest"
    )]
    fn spans_are_held_to_the_text() {
        let text = "wörld peace";
        let sound: [&[Range<usize>]; 3] = [&[0..6, 7..12], &[0..8, 4..12], &[3..6]];
        for spans in sound {
            assert_eq!(check_spans(text, spans, SIZES), Ok(()), "{spans:?}");
        }
        let wrong: [(&[Range<usize>], &str); 8] = [
            (&[], "made 0 chunks"),
            (&[0..1, 1..2, 2..4, 4..5, 5..6], "made 5 chunks"),
            (&[0..13], "byte 13 of a text of 12"),
            (&[4..4], "from byte 4 to 4"),
            (&[5..4], "from byte 5 to 4"),
            (&[0..2], "middle of a character"),
            (&[4..6, 0..12], "out of order"),
            (&[0..6, 1..6], "out of order"),
        ];
        for (spans, part) in wrong {
            let problem = check_spans(text, spans, SIZES).expect_err(part);
            assert!(problem.contains(part), "{problem}");
        }
    }

    #[test]
    fn chunks_repeat_the_text_so_often_and_no_more() {
        let text = "a".repeat(100);
        let sizes = ChunkSizes {
            max_chunks: 1000,
            ..SIZES
        };
        let spans: Vec<_> = (0..50).map(|at| at..at + 50).collect();
        let problem = check_spans(&text, &spans, sizes).expect_err("too many bytes");
        assert!(
            problem.contains("2500 bytes in all, of at most 400"),
            "{problem}"
        );
        assert_eq!(check_spans(&text, &spans[..8], sizes), Ok(()));
    }

    #[test]
    fn queries_are_bounded() {
        let of = |query: &str, count: usize| check_queries(&vec![query.to_owned(); count]);
        assert_eq!(of("q", MAX_REWRITTEN_QUERIES), Ok(()));
        assert!(of("q", 0).is_err() && of("q", MAX_REWRITTEN_QUERIES + 1).is_err());
        assert!(of(" \n", 1).is_err() && of(&"q".repeat(MAX_QUERY_BYTES + 1), 1).is_err());
    }

    #[test]
    fn a_choice_is_of_the_candidates_and_within_the_budget() {
        let passage = Passage {
            tokens: 10,
            ..Passage::default()
        };
        let candidates = vec![passage; 3];
        let budget = PassageBudget {
            passages: 2,
            tokens: 20,
        };
        let of = |chosen: &[u32], budget| {
            let assembly = Assembly {
                chosen: chosen.to_vec(),
                joint: Joint::Rule,
            };
            check_assembly(&assembly, &candidates, budget)
        };
        assert_eq!(of(&[2, 0], budget), Ok(()));
        assert_eq!(of(&[], budget), Ok(()));
        let tight = PassageBudget {
            tokens: 19,
            ..budget
        };
        for (chosen, budget, part) in [
            (&[0, 1, 2][..], budget, "chose 3 passages"),
            (&[3], budget, "passage 3 of 3"),
            (&[u32::MAX], budget, "passage 4294967295 of 3"),
            (&[1, 1], budget, "twice"),
            (&[0, 1], tight, "20 tokens, of at most 19"),
        ] {
            let problem = of(chosen, budget).expect_err(part);
            assert!(problem.contains(part), "{problem}");
        }
    }

    proptest! {
        #[test]
        fn no_span_that_passes_can_be_wrong(
            text in "\\PC{0,20}", spans in proptest::collection::vec((0usize..40, 0usize..40), 0..6),
        ) {
            let spans: Vec<_> = spans.into_iter().map(|(start, end)| start..end).collect();
            if check_spans(&text, &spans, SIZES).is_ok() {
                prop_assert!(spans.iter().all(|span| text.get(span.clone()).is_some_and(|t| !t.is_empty())));
                prop_assert!(spans.windows(2).all(|two| two[0].start < two[1].start));
            }
        }
    }
}
