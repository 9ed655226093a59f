//! Retrievers: what they say is held to the document and to the candidates, and their lies cost their own call.

use std::ops::Range;

use mortise_plugin::{
    Assembly, Binding, Fault, Joint, LoadError, Passage, PluginError, Retriever, RetrieverContext,
};

use crate::exercise::{BUDGET, SIZES, document};
use crate::guests::{binding, context, fault_of, shared};

fn told() -> RetrieverContext {
    RetrieverContext {
        collection: "vs_1".to_owned(),
        subject: "someone".to_owned(),
        tenant: Some("acme".to_owned()),
    }
}

/// A retriever that lies as a setting says.
fn lying(function: &str, lie: &str) -> Binding {
    Binding {
        settings: format!("{{\"{function}\":\"{lie}\"}}"),
        ..binding()
    }
}

async fn bind(binding: Binding) -> Result<Retriever, LoadError> {
    Retriever::bind(&shared().host, &shared().component, binding).await
}

async fn chunk(binding: Binding) -> Result<Vec<Range<usize>>, PluginError> {
    let retriever = bind(binding).await.unwrap();
    let (context, told) = (context(), told());
    retriever.chunk(&context, &told, document(), SIZES).await
}

async fn rewrite(binding: Binding, query: &str) -> Result<Vec<String>, PluginError> {
    let retriever = bind(binding).await.unwrap();
    retriever.rewrite(&context(), &told(), query).await
}

async fn assemble(binding: Binding) -> Result<Assembly, PluginError> {
    let retriever = bind(binding).await.unwrap();
    let passage = Passage {
        document: "a.txt".to_owned(),
        place: 3..9,
        tokens: 15,
        ..Passage::default()
    };
    let passages = [passage.clone(), passage.clone(), passage];
    let (context, told) = (context(), told());
    let chosen = retriever.assemble(&context, &told, "a query", &passages, BUDGET);
    chosen.await
}

#[tokio::test]
async fn a_retriever_divides_rewrites_and_chooses() {
    assert_eq!(chunk(binding()).await.unwrap(), [0..13, 13..21]);
    let queries = rewrite(binding(), "one|other").await.unwrap();
    assert_eq!(queries, ["one", "other"]);
    let expected = Assembly {
        chosen: vec![2],
        joint: Joint::Rule,
    };
    assert_eq!(assemble(binding()).await.unwrap(), expected);
    let idle = bind(lying("work", "none")).await.map(drop).unwrap_err();
    assert!(whole(&idle).contains("does nothing"), "{idle}");
}

/// An error with its sources.
fn whole(error: &LoadError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

#[tokio::test]
async fn a_retriever_is_told_for_whom_and_for_what() {
    let error = chunk(lying("spans", "told?")).await.unwrap_err();
    let Fault::Invalid(said) = fault_of(error, "retriever.chunk") else {
        panic!("no refusal");
    };
    for part in [
        "request-1",
        "vs_1",
        "someone",
        "acme",
        "a.txt",
        "text/plain",
        "max-tokens: 10",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let error = assemble(lying("choice", "told?")).await.unwrap_err();
    let Fault::Invalid(said) = fault_of(error, "retriever.assemble") else {
        panic!("no refusal");
    };
    for part in [
        "start: 3",
        "end: 9",
        "tokens: 15",
        "passages: 2",
        "tokens: 20",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[tokio::test]
async fn j4_lies_about_offsets_queries_and_choices_are_faults_of_their_call() {
    for (lie, part) in [
        ("none", "made 0 chunks"),
        ("beyond", "byte 22 of a text of 21"),
        ("far", "byte 4294967295 of a text of 21"),
        ("empty", "from byte 1 to 1"),
        ("backwards", "from byte 21 to 0"),
        ("torn", "middle of a character"),
        ("disorder", "chunk 1 out of order"),
        ("repeated", "chunk 1 out of order"),
        ("copies", "of at most 84"),
        ("flood", "made 101 chunks"),
    ] {
        let error = chunk(lying("spans", lie)).await.unwrap_err();
        match fault_of(error, "retriever.chunk") {
            Fault::InvalidResult(said) => assert!(said.contains(part), "{lie}: {said}"),
            other => panic!("{lie}: {other:?}"),
        }
    }
    for lie in ["none", "many", "blank", "essay"] {
        let error = rewrite(lying("queries", lie), "q").await.unwrap_err();
        let fault = fault_of(error, "retriever.rewrite");
        assert!(matches!(fault, Fault::InvalidResult(_)), "{lie}: {fault:?}");
    }
    for (lie, part) in [
        ("beyond", "passage 3 of 3"),
        ("twice", "passage 0 twice"),
        ("greedy", "3 passages, of at most 2"),
    ] {
        let error = assemble(lying("choice", lie)).await.unwrap_err();
        match fault_of(error, "retriever.assemble") {
            Fault::InvalidResult(said) => assert!(said.contains(part), "{lie}: {said}"),
            other => panic!("{lie}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn j2_an_answer_of_any_size_is_bounded() {
    let limit = Fault::Output {
        limit_bytes: binding().limits.output_bytes,
    };
    // Whatever the document: a small one is answered like this, too.
    let error = chunk(lying("spans", "bloat")).await.unwrap_err();
    assert_eq!(fault_of(error, "retriever.chunk"), limit);
    let error = rewrite(lying("queries", "bloat"), "q").await.unwrap_err();
    assert_eq!(fault_of(error, "retriever.rewrite"), limit);
    let error = assemble(lying("choice", "bloat")).await.unwrap_err();
    assert_eq!(fault_of(error, "retriever.assemble"), limit);
}

#[tokio::test]
async fn a_document_that_takes_too_much_is_its_callers_fault() {
    // The guest does what the text says, and does well with others.
    let mut binding = binding();
    binding.limits.deadlines.chunk_ms = 300;
    let retriever = bind(binding).await.unwrap();
    let document = mortise_plugin::SourceText {
        text: "loop".to_owned(),
        ..document()
    };
    let (context, told) = (context(), told());
    let chunked = retriever.chunk(&context, &told, document, SIZES).await;
    let fault = fault_of(chunked.unwrap_err(), "retriever.chunk");
    assert!(matches!(fault, Fault::TooComplex(_)), "{fault:?}");
}
