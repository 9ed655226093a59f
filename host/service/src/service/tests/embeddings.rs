use std::sync::Arc;
use std::time::{Duration, Instant};

use mortise_engine::{EngineLoad, Share};
use mortise_models::{
    Adapter, AdapterBase, Adapters, EmbedError, EmbeddingBackend, EmbeddingFuture,
    EmbeddingRuntime, TextEmbedder,
};

use crate::fakes::{call, loaded, model, says, service, tokenizer};
use crate::{EmbeddingInput, EmbeddingRequest, ServiceError};

/// An embedding model with a queue of this many tokens, that always ends in this way.
struct Busy {
    waiting_tokens: usize,
    error: EmbedError,
}

impl EmbeddingRuntime for Busy {
    fn dimensions(&self) -> usize {
        2
    }

    fn context_length(&self) -> usize {
        100
    }

    fn adapter_base(&self) -> AdapterBase {
        Err("it has no weights")
    }

    fn embed<'a>(
        &'a self,
        _: Vec<Vec<u32>>,
        _: Option<Arc<Adapter>>,
        _: &'a Share,
    ) -> EmbeddingFuture<'a> {
        let error = self.error.clone();
        Box::pin(async move { Err(error) })
    }

    fn load(&self) -> EngineLoad {
        EngineLoad {
            waiting_tokens: self.waiting_tokens,
            prefill_tokens: 500,
            ..EngineLoad::default()
        }
    }
}

/// Error of an embedding request, to a model that has made 250 tokens a second.
async fn asked(waiting_tokens: usize, error: EmbedError) -> ServiceError {
    let busy = Arc::new(Busy {
        waiting_tokens,
        error,
    });
    let mut served = model(says("x"));
    let tokenizer = tokenizer(&mut served);
    let described = Arc::make_mut(&mut loaded(&mut served).model);
    described.embedder = Some(EmbeddingBackend::Local(TextEmbedder {
        runtime: busy,
        tokenizer,
        prompts: Arc::default(),
        cache: Arc::default(),
        adapters: Arc::new(Adapters::new("demo", Err("it has no weights"))),
        adapter: None,
    }));
    described.generator = None;
    let service = service(served, Vec::new());
    let done = |prefill_tokens| EngineLoad {
        prefill_tokens,
        ..EngineLoad::default()
    };
    // To come, so that no window ends in the time that the test takes.
    let (begun, seconds) = (Instant::now(), Duration::from_secs);
    let after = |time| begun + seconds(3600) + seconds(time);
    service.throughputs.sample("demo", &done(0), after(0));
    service.throughputs.sample("demo", &done(500), after(2));
    let request = EmbeddingRequest {
        model: "demo".to_owned(),
        inputs: vec![EmbeddingInput::Text("hello".to_owned())],
        ..EmbeddingRequest::default()
    };
    match service.embed(&call(), request).await {
        Err(error) => error,
        Ok(_) => panic!("it makes no vectors"),
    }
}

#[tokio::test]
async fn whoever_finds_the_queue_full_is_told_when_it_will_be_empty() {
    for (waiting, seconds) in [(0, 1), (1000, 4), (1001, 5), (1_000_000, 60)] {
        let error = asked(waiting, EmbedError::QueueFull { limit: 7 }).await;
        let ServiceError::QueueFull {
            limit, retry_after, ..
        } = error
        else {
            panic!("{error}");
        };
        assert_eq!((limit, retry_after), (7, seconds), "{waiting} tokens");
    }
}

#[tokio::test]
async fn other_failures_keep_what_they_are() {
    let error = asked(0, EmbedError::Stopped).await;
    assert!(matches!(error, ServiceError::Stopping), "{error}");
    let error = asked(0, EmbedError::Failed("no memory".to_owned())).await;
    assert!(
        matches!(&error, ServiceError::Engine(m) if m == "no memory"),
        "{error}"
    );
}

/// A model that makes a vector of the tokens of a text, and counts the texts.
#[derive(Default)]
struct Counting(std::sync::atomic::AtomicUsize);

impl EmbeddingRuntime for Counting {
    fn dimensions(&self) -> usize {
        1
    }

    fn context_length(&self) -> usize {
        100
    }

    fn adapter_base(&self) -> AdapterBase {
        Err("it has no weights")
    }

    fn embed<'a>(
        &'a self,
        texts: Vec<Vec<u32>>,
        _: Option<Arc<Adapter>>,
        _: &'a Share,
    ) -> EmbeddingFuture<'a> {
        let counted = std::sync::atomic::Ordering::Relaxed;
        self.0.fetch_add(texts.len(), counted);
        let sum = |tokens: Vec<u32>| vec![tokens.iter().map(|token| *token as f32).sum()];
        Box::pin(async move { Ok(texts.into_iter().map(sum).collect()) })
    }

    fn load(&self) -> EngineLoad {
        EngineLoad::default()
    }
}

#[tokio::test]
async fn a_text_that_is_asked_for_again_is_not_computed_again() {
    let counting = Arc::new(Counting::default());
    let mut served = model(says("x"));
    let tokenizer = tokenizer(&mut served);
    let described = Arc::make_mut(&mut loaded(&mut served).model);
    described.embedder = Some(EmbeddingBackend::Local(TextEmbedder {
        runtime: Arc::clone(&counting) as _,
        tokenizer,
        prompts: Arc::default(),
        cache: Arc::default(),
        adapters: Arc::new(Adapters::new("demo", Err("it has no weights"))),
        adapter: None,
    }));
    described.generator = None;
    let service = service(served, Vec::new());
    let ask = async |texts: &[&str]| {
        let text = |text: &&str| EmbeddingInput::Text((*text).to_owned());
        let request = EmbeddingRequest {
            model: "demo".to_owned(),
            inputs: texts.iter().map(text).collect(),
            ..EmbeddingRequest::default()
        };
        service
            .embed(&call(), request)
            .await
            .map(|made| (made.vectors, made.usage.prompt_tokens))
    };
    let computed = || counting.0.load(std::sync::atomic::Ordering::Relaxed);
    let first = ask(&["hello", "world"]).await.expect("vectors");
    assert_eq!(computed(), 2);
    let again = ask(&["hello", "world"]).await.expect("vectors");
    assert_eq!(
        (computed(), &again),
        (2, &first),
        "all is known, and all tokens count"
    );
    let mixed = ask(&["world", "new", "hello"]).await.expect("vectors");
    assert_eq!(computed(), 3);
    assert_eq!((&mixed.0[0], &mixed.0[2]), (&first.0[1], &first.0[0]));
    let many = ["hello"; crate::limits::MAX_KEPT_INPUTS + 1];
    ask(&many).await.expect("vectors");
    assert_eq!(computed(), 3 + many.len(), "a request of many is computed");
}
