use std::sync::Arc;
use std::time::{Duration, Instant};

use mortise_engine::EngineLoad;
use mortise_models::{EmbedError, EmbeddingFuture, EmbeddingRuntime, TextEmbedder};

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

    fn embed(&self, _: Vec<Vec<u32>>) -> EmbeddingFuture<'_> {
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

/// What comes of a request to a model that has made 250 tokens a second.
async fn asked(waiting_tokens: usize, error: EmbedError) -> ServiceError {
    let busy = Arc::new(Busy {
        waiting_tokens,
        error,
    });
    let mut served = model(says("x"));
    let tokenizer = tokenizer(&mut served);
    let described = Arc::make_mut(&mut loaded(&mut served).model);
    described.embedder = Some(TextEmbedder {
        runtime: busy,
        tokenizer,
        prompts: Arc::default(),
    });
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
