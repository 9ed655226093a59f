//! Embeddings by upstreams: the texts of a request go out in parts, one after the other.

use std::sync::Arc;

use mortise_engine::EngineLoad;
use mortise_models::{
    EmbeddingInput, RemoteEmbeddingFuture, RemoteEmbeddingRequest, RemoteEmbeddingRuntime,
    RemoteEmbeddings, RuntimeError, UpstreamApi, Usage,
};
use mortise_trace::Span;

use crate::affinity::beginning_of_input;
use crate::attempt::{UpstreamRequest, upstream};
use crate::dispatch::Dispatcher;
use crate::embedding_answer::EmbeddingAnswer;
use crate::embedding_body::{embedding_body, parts};
use crate::runtime::UpstreamRuntime;
use crate::vectors::{JSON, VectorRequest};

impl RemoteEmbeddingRuntime for UpstreamRuntime {
    fn embed(&self, request: RemoteEmbeddingRequest) -> RemoteEmbeddingFuture<'_> {
        let dispatcher = &self.dispatcher;
        Box::pin(async move {
            let _place = dispatcher.places.enter(&request.share.tenant, 0)?;
            match dispatcher.vectors(&request).await {
                Ok(made) => Ok(made),
                Err(error) => Err(dispatcher.told(error).await.into()),
            }
        })
    }

    fn has_prompts(&self) -> bool {
        self.dispatcher.config.api == UpstreamApi::Mortise
    }

    fn embedding_requires_allow_remote(&self) -> bool {
        self.dispatcher.config.require_allow_remote
    }

    fn text_length(&self) -> Option<usize> {
        self.dispatcher.config.context_length
    }

    fn embedding_load(&self) -> EngineLoad {
        self.dispatcher.load()
    }
}

impl Dispatcher {
    /// The vectors of all inputs of a request.
    async fn vectors(
        self: &Arc<Self>,
        request: &RemoteEmbeddingRequest,
    ) -> Result<RemoteEmbeddings, RuntimeError> {
        let mut vectors: Vec<Vec<f32>> = Vec::with_capacity(request.inputs.len());
        let mut tokens = Some(0_u32);
        let mut answers = 0;
        for part in parts(&request.inputs, self.config.embedding_batch) {
            let answer = self.vectors_of(request, part).await?;
            if let (Some(one), Some(other)) = (vectors.first(), answer.vectors.first())
                && one.len() != other.len()
            {
                let error = upstream(format!(
                    "answered with vectors of {} and of {} numbers",
                    one.len(),
                    other.len()
                ));
                self.log(&request.request_id, &error.to_string());
                return Err(error);
            }
            vectors.extend(answer.vectors);
            tokens = tokens
                .zip(answer.prompt_tokens)
                .map(|(sum, more)| sum.saturating_add(more));
            answers += 1;
        }
        let usage = Usage {
            prompt_tokens: tokens.unwrap_or(0),
            ..Usage::default()
        };
        self.counters.add(answers, usage);
        Ok(RemoteEmbeddings {
            vectors,
            prompt_tokens: tokens,
        })
    }

    /// The vectors of some of the inputs of a request.
    async fn vectors_of(
        &self,
        request: &RemoteEmbeddingRequest,
        inputs: &[EmbeddingInput],
    ) -> Result<EmbeddingAnswer, RuntimeError> {
        let body = embedding_body(inputs, &request.prompt, request.truncate, &self.config);
        let body = body.map_err(|refused| RuntimeError::Invalid(refused.to_string()))?;
        let span = Span::current();
        let asked = VectorRequest {
            request: UpstreamRequest {
                client: &self.client,
                timeouts: self.config.timeouts,
                request_id: &request.request_id,
                path: "embeddings",
                accept: JSON,
                body: body.into(),
                span: &span,
                repeatable: true,
            },
            texts: inputs.len(),
        };
        let beginning = self.beginning(|| beginning_of_input(inputs.first()));
        let who = (request.request_id.as_str(), &request.share.tenant);
        self.attempts(who, &beginning, &asked).await
    }
}
