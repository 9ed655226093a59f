//! Embeddings: authorize, encode, embed.

use std::sync::Arc;
use std::time::Instant;

use mortise_engine::Share;
use mortise_models::{
    EmbedError, EmbeddingBackend, EmbeddingInput, EmbeddingPrompts, FinishReason, Model, PromptUse,
    TextEmbedder, TextKey, Usage,
};

use crate::admission::{Admission, ApiCall};
use crate::conversation_choice::failure;
use crate::encoding;
use crate::error::ServiceError;
use crate::limits::{MAX_EMBEDDING_INPUTS, MAX_KEPT_INPUTS};
use crate::observer::{Outcome, Summary};
use crate::refusal::invalid;
use crate::service::{Service, UsedModel, account};
use crate::spans;
use crate::spending::Purchase;
use crate::told_length;
use mortise_tokenizer::{EncodeLimits, Tokenizer, TokenizerError};
use mortise_trace::Span;

/// Request for embeddings.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct EmbeddingRequest {
    /// The model's name.
    pub model: String,
    /// Texts, at most [`MAX_EMBEDDING_INPUTS`].
    pub inputs: Vec<EmbeddingInput>,
    /// Numbers of a vector, if the caller says.
    pub dimensions: Option<u32>,
    /// Texts that are longer than the context are cut.
    pub truncate: bool,
    /// Instruction before the texts.
    pub prompt: PromptUse,
    /// The texts may be sent to another server, where its operator asks for consent.
    pub allow_remote: bool,
}

/// Inputs, and the use by which the instruction before them is chosen.
pub(crate) struct PromptedInputs {
    pub(crate) inputs: Vec<EmbeddingInput>,
    pub(crate) prompt: PromptUse,
}

/// Inputs whose vectors are wanted, in groups that follow one another.
pub(crate) struct WantedVectors {
    pub(crate) groups: Vec<PromptedInputs>,
    /// Texts that are longer than the context are cut.
    pub(crate) truncate: bool,
    /// See [`EmbeddingRequest::allow_remote`].
    pub(crate) allow_remote: bool,
}

/// Vectors and their usage.
pub struct Embeddings {
    /// The public name of the model.
    pub model: String,
    /// Vectors, in the order of the inputs.
    pub vectors: Vec<Vec<f32>>,
    /// Tokens of all inputs, which are all prompt tokens.
    pub usage: Usage,
    /// The policy is told when this is dropped.
    pub admission: Admission,
}

impl Service {
    /// Compute embeddings of texts.
    ///
    /// # Errors
    /// When the request is refused, or the model fails.
    pub async fn embed(
        &self,
        call: &ApiCall,
        request: EmbeddingRequest,
    ) -> Result<Embeddings, ServiceError> {
        let name = request.model.clone();
        let span = spans::of_operation("embeddings", &name);
        let result = span.run(self.try_embed(call, request)).await;
        if let Ok(made) = &result {
            let tokens = i64::from(made.usage.prompt_tokens);
            span.set("gen_ai.usage.input_tokens", tokens);
        }
        if let Err(error) = &result {
            span.fail(error.kind());
            self.refused(&self.serving(), &name, error);
        }
        result
    }

    async fn try_embed(
        &self,
        call: &ApiCall,
        request: EmbeddingRequest,
    ) -> Result<Embeddings, ServiceError> {
        let call = call.of_length(ids_length(&request.inputs));
        let (mut admission, used) = self.admit(&call, &request.model).await?;
        let model = &used.loaded.model;
        if let EmbeddingBackend::Local(embedder) = embedder_of(model)? {
            check_dimensions(request.dimensions, embedder.runtime.dimensions())?;
        }
        let wanted = WantedVectors {
            groups: vec![PromptedInputs {
                inputs: request.inputs,
                prompt: request.prompt,
            }],
            truncate: request.truncate,
            allow_remote: request.allow_remote,
        };
        let mut vectors = self.vectors(&mut admission, model, wanted).await?;
        if let Some(wanted) = request.dimensions {
            // How many numbers the vectors of another server have is known once they are here.
            check_dimensions(Some(wanted), vectors.first().map_or(0, Vec::len))?;
            vectors
                .iter_mut()
                .for_each(|vector| shorten(vector, wanted));
        }
        self.finished(&mut admission, &used);
        Ok(Embeddings {
            model: model.name.clone(),
            vectors,
            usage: admission.spent().usage,
            admission,
        })
    }

    /// The vectors of texts, paid for.
    pub(crate) async fn vectors(
        &self,
        admission: &mut Admission,
        model: &Model,
        wanted: WantedVectors,
    ) -> Result<Vec<Vec<f32>>, ServiceError> {
        match embedder_of(model)? {
            EmbeddingBackend::Local(embedder) => {
                let inputs = prompted(&embedder.prompts, wanted.groups)?;
                self.vectors_here(admission, model, embedder, inputs, wanted.truncate)
                    .await
            }
            EmbeddingBackend::Remote(remote) => {
                self.vectors_elsewhere(admission, model, remote, wanted)
                    .await
            }
        }
    }

    /// The vectors of texts that this process computes, paid for.
    async fn vectors_here(
        &self,
        admission: &mut Admission,
        model: &Model,
        embedder: &TextEmbedder,
        inputs: Vec<EmbeddingInput>,
        truncate: bool,
    ) -> Result<Vec<Vec<f32>>, ServiceError> {
        let tokenizer = Arc::clone(&embedder.tokenizer);
        let context = embedder.runtime.context_length();
        let tenant = account(&admission.allowance().principal);
        let most = match truncate {
            true => usize::MAX,
            false => context,
        };
        let encoded = encoding::encode(&tenant, bytes(&inputs), most, move |limits| {
            encode(&tokenizer, limits, context, inputs)
        });
        let texts = encoded.await??;
        let tokens = texts.iter().map(Vec::len).sum();
        self.pay(admission, model, tokens).await?;
        let share = self.share(&admission.allowance().principal, None);
        let made = match texts.len() <= MAX_KEPT_INPUTS {
            true => remembered(embedder, &share, texts).await,
            false => embedder.embed(texts, &share).await,
        };
        made.map_err(|error| self.not_made(model, error))
    }

    /// Tell of a request that was answered.
    pub(crate) fn finished(&self, admission: &mut Admission, used: &UsedModel) {
        let outcome = Outcome::Finished(FinishReason::Stop);
        admission.spent().outcome = outcome;
        let usage = admission.spent().usage;
        used.observer.ended(&Summary {
            request_id: admission.request_id(),
            model: &used.loaded.model.name,
            replayed: false,
            outcome,
            usage,
            queued: None,
            first_token: None,
            elapsed: admission.elapsed(),
            span: &Span::current(),
        });
    }

    /// The error of a runtime that made nothing.
    pub(crate) fn not_made(&self, model: &Model, error: EmbedError) -> ServiceError {
        match error {
            EmbedError::QueueFull { limit } => ServiceError::QueueFull {
                limit,
                unit: "requests",
                retry_after: self.throughputs.retry_after(&model.name, &model.load()),
            },
            EmbedError::TenantQueueFull { waiting } => ServiceError::TenantQueueFull {
                waiting,
                retry_after: self.throughputs.retry_after(&model.name, &model.load()),
            },
            EmbedError::Stopped => ServiceError::Stopping,
            EmbedError::Failed(message) => ServiceError::Engine(message),
            EmbedError::Elsewhere(error) => match failure(error) {
                ServiceError::ContextLength {
                    prompt,
                    at_least,
                    context,
                    ..
                } => too_long(prompt, at_least, context),
                other => other,
            },
        }
    }

    /// Count the tokens of a request, and reserve their cost, before they are computed.
    pub(crate) async fn pay(
        &self,
        admission: &mut Admission,
        model: &Model,
        tokens: usize,
    ) -> Result<(), ServiceError> {
        admission.spent().usage.prompt_tokens = u32::try_from(tokens).unwrap_or(u32::MAX);
        let tokens = u64::try_from(tokens).unwrap_or(u64::MAX);
        self.reserve(admission, model, tokens, false).await
    }

    /// Reserve the cost of so many tokens, which are an estimate where another server counts them.
    pub(crate) async fn reserve(
        &self,
        admission: &mut Admission,
        model: &Model,
        tokens: u64,
        counted_elsewhere: bool,
    ) -> Result<(), ServiceError> {
        let purchase = Purchase {
            request_id: admission.request_id(),
            principal: &admission.allowance().principal,
            model: &model.name,
            prompt_tokens: tokens,
            answer_tokens: 0,
            counted_elsewhere,
        };
        let reserved = self.config.spend.reserve(purchase).await?;
        admission.hold(reserved);
        self.throughputs
            .sample(&model.name, &model.load(), Instant::now());
        Ok(())
    }
}

/// Vectors of a few texts: those that the tenant has asked for before, and others that are computed.
async fn remembered(
    embedder: &TextEmbedder,
    share: &Share,
    texts: Vec<Vec<u32>>,
) -> Result<Vec<Vec<f32>>, EmbedError> {
    let cache = &embedder.cache;
    let texts = texts.into_iter();
    let keys: Vec<TextKey> = texts
        .map(|tokens| embedder.key(&share.tenant, tokens))
        .collect();
    let known: Vec<Option<Arc<[f32]>>> = keys.iter().map(|key| cache.get(key)).collect();
    let unknown = keys.iter().zip(&known).filter(|(_, known)| known.is_none());
    let unknown: Vec<Vec<u32>> = unknown.map(|(key, _)| key.tokens.clone()).collect();
    let made = match unknown.is_empty() {
        true => Vec::new(),
        false => embedder.embed(unknown, share).await?,
    };
    let mut made = made.into_iter();
    let vectors = keys.into_iter().zip(known).map(|(key, known)| match known {
        Some(vector) => vector.to_vec(),
        None => {
            let vector = made.next().unwrap_or_default();
            cache.put(key, &vector);
            vector
        }
    });
    Ok(vectors.collect())
}

/// Get the embedding runtime of a model.
fn embedder_of(model: &Model) -> Result<&EmbeddingBackend, ServiceError> {
    model.embedder.as_ref().ok_or_else(|| {
        let does = match model.reranker {
            Some(_) => "scores pairs of texts",
            None => "generates text",
        };
        let message = format!("the model `{}` {does} and makes no embeddings", model.name);
        invalid("model", message)
    })
}

/// Inputs of all groups, each with the instruction that stands before its texts.
pub(crate) fn prompted(
    prompts: &EmbeddingPrompts,
    groups: Vec<PromptedInputs>,
) -> Result<Vec<EmbeddingInput>, ServiceError> {
    let mut all = Vec::new();
    for group in groups {
        all.extend(prompted_alike(prompts, group.inputs, &group.prompt)?);
    }
    Ok(all)
}

fn prompted_alike(
    prompts: &EmbeddingPrompts,
    inputs: Vec<EmbeddingInput>,
    used: &PromptUse,
) -> Result<Vec<EmbeddingInput>, ServiceError> {
    let prompt = prompts.text(used);
    let prompt = prompt.map_err(|error| invalid("prompt_name", error.to_string()))?;
    if prompt.is_empty() {
        return Ok(inputs);
    }
    let inputs = inputs.into_iter().map(|input| match input {
        EmbeddingInput::Text(text) => Ok(EmbeddingInput::Text(format!("{prompt}{text}"))),
        // What the caller has encoded has no place for an instruction.
        EmbeddingInput::Tokens(tokens) if *used == PromptUse::Usual => {
            Ok(EmbeddingInput::Tokens(tokens))
        }
        EmbeddingInput::Tokens(_) => {
            let message = "input has tokens, and an instruction stands before texts only";
            Err(invalid("input", message.to_owned()))
        }
    });
    inputs.collect()
}

fn check_dimensions(wanted: Option<u32>, dimensions: usize) -> Result<(), ServiceError> {
    match wanted {
        Some(wanted) if !(1..=dimensions).contains(&(wanted as usize)) => Err(invalid(
            "dimensions",
            format!("dimensions is {wanted}; this model's embeddings have 1 to {dimensions}"),
        )),
        _ => Ok(()),
    }
}

/// Keep the first numbers of a vector, scaled to the length of 1 again.
fn shorten(vector: &mut Vec<f32>, dimensions: u32) {
    if vector.len() <= dimensions as usize {
        return;
    }
    vector.truncate(dimensions as usize);
    let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
    if length > 0.0 {
        vector.iter_mut().for_each(|value| *value /= length);
    }
}

/// Bytes for which the inputs count that are given as ids.
pub(crate) fn ids_length(inputs: &[EmbeddingInput]) -> u64 {
    let lengths = inputs.iter().map(|input| match input {
        EmbeddingInput::Text(_) => 0,
        EmbeddingInput::Tokens(ids) => told_length::of_ids(ids),
    });
    lengths.sum()
}

/// Bytes of all texts.
pub(crate) fn bytes(inputs: &[EmbeddingInput]) -> usize {
    let lengths = inputs.iter().map(|input| match input {
        EmbeddingInput::Text(text) => text.len(),
        EmbeddingInput::Tokens(_) => 0,
    });
    lengths.sum()
}

/// Refuse no inputs, and too many.
pub(crate) fn check_count(inputs: usize) -> Result<(), ServiceError> {
    match (1..=MAX_EMBEDDING_INPUTS).contains(&inputs) {
        true => Ok(()),
        false => {
            let message = format!("input has {inputs} texts; expected 1 to {MAX_EMBEDDING_INPUTS}");
            Err(invalid("input", message))
        }
    }
}

fn encode(
    tokenizer: &Tokenizer,
    limits: EncodeLimits<'_>,
    context: usize,
    inputs: Vec<EmbeddingInput>,
) -> Result<Vec<Vec<u32>>, ServiceError> {
    check_count(inputs.len())?;
    let mut texts = Vec::with_capacity(inputs.len());
    for (index, input) in inputs.into_iter().enumerate() {
        let param = format!("input[{index}]");
        let mut tokens = match input {
            EmbeddingInput::Tokens(tokens) => {
                if let Some(unknown) = tokens.iter().find(|id| !tokenizer.table().contains(**id)) {
                    return Err(invalid(
                        &param,
                        format!("{unknown} is no token of this model"),
                    ));
                }
                tokens
            }
            EmbeddingInput::Text(text) => {
                tokenizer
                    .encode_text_within(&text, limits)
                    .map_err(|error| match error {
                        TokenizerError::TooLong { at_least } => {
                            too_long(at_least, true, limits.max_tokens)
                        }
                        error => invalid(&param, error.to_string()),
                    })?
            }
        };
        if tokens.is_empty() {
            return Err(invalid(&param, format!("{param} has no tokens")));
        }
        if tokens.len() > context && limits.max_tokens > context {
            cut(tokenizer, &mut tokens, context);
        }
        if tokens.len() > limits.max_tokens {
            return Err(too_long(tokens.len(), false, limits.max_tokens));
        }
        texts.push(tokens);
    }
    Ok(texts)
}

/// Cut a text to so many tokens. The token that ends a text stays its end.
fn cut(tokenizer: &Tokenizer, tokens: &mut Vec<u32>, most: usize) {
    let end = tokens
        .last()
        .copied()
        .filter(|id| tokenizer.table().is_special(*id));
    tokens.truncate(most);
    if let (Some(end), Some(last)) = (end, tokens.last_mut()) {
        *last = end;
    }
}

pub(crate) fn too_long(prompt: usize, at_least: bool, context: usize) -> ServiceError {
    ServiceError::ContextLength {
        param: "input",
        prompt,
        at_least,
        requested: 0,
        context,
    }
}
