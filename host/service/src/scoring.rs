//! Scores of texts against questions: by a model that scores pairs, or as the cosines of embeddings.

use mortise_models::{EmbeddingInput, Model, PromptUse, TextReranker, Usage};
use mortise_tokenizer::{EncodeLimits, EncodedPair, TokenizerError};

use crate::admission::{Admission, ApiCall};
use crate::embedding::{PromptedInputs, WantedVectors, too_long};
use crate::encoding;
use crate::error::ServiceError;
use crate::limits::MAX_EMBEDDING_INPUTS;
use crate::refusal::invalid;
use crate::service::{Service, account};
use crate::spans;

/// Request for scores.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ScoreRequest {
    /// The model's name.
    pub model: String,
    /// Questions: one, or as many as there are texts.
    pub queries: Vec<String>,
    /// Texts to score.
    pub texts: Vec<String>,
    /// Texts that are longer than the context are cut.
    pub truncate: bool,
    /// Field that asks for scores before the logistic function, where it is set. Models that make embeddings have none.
    pub raw: Option<&'static str>,
    /// True for a search, in which an embedding model's instructions for questions and for documents are used.
    pub search: bool,
}

/// Scores and their usage.
pub struct Scores {
    /// The public name of the model.
    pub model: String,
    /// In the order of the texts: from 0 to 1 by a model that scores pairs, and cosines otherwise.
    pub values: Vec<f32>,
    /// Tokens of all inputs, which are all prompt tokens.
    pub usage: Usage,
    /// The policy is told when this is dropped.
    pub admission: Admission,
}

impl Service {
    /// Score texts.
    ///
    /// # Errors
    /// When the request is refused, or the model fails.
    pub async fn score(
        &self,
        call: &ApiCall,
        request: ScoreRequest,
    ) -> Result<Scores, ServiceError> {
        let name = request.model.clone();
        let span = spans::of_operation("rerank", &name);
        let result = span.run(self.try_score(call, request)).await;
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

    async fn try_score(
        &self,
        call: &ApiCall,
        request: ScoreRequest,
    ) -> Result<Scores, ServiceError> {
        let call = call.of_length(length(&request));
        let (mut admission, used) = self.admit(&call, &request.model).await?;
        let model = &used.loaded.model;
        check_count(&request)?;
        let values = match (&model.reranker, &model.embedder) {
            (Some(reranker), _) => {
                let raw = request.raw.is_some();
                let pairs = self.pairs(&mut admission, model, reranker, request).await?;
                let share = self.share(&admission.allowance().principal, None);
                let made = reranker.runtime.score(pairs, &share).await;
                let logits = made.map_err(|error| self.not_made(model, error))?;
                match raw {
                    true => logits,
                    false => logits.into_iter().map(logistic).collect(),
                }
            }
            (None, Some(_)) => self.cosines(&mut admission, model, request).await?,
            (None, None) => {
                let message = format!("the model `{}` generates text and scores none", model.name);
                return Err(invalid("model", message));
            }
        };
        self.finished(&mut admission, &used);
        Ok(Scores {
            model: model.name.clone(),
            values,
            usage: admission.spent().usage,
            admission,
        })
    }

    /// The inputs of a model that scores pairs, paid for.
    async fn pairs(
        &self,
        admission: &mut Admission,
        model: &Model,
        reranker: &TextReranker,
        request: ScoreRequest,
    ) -> Result<Vec<EncodedPair>, ServiceError> {
        let all = request.queries.iter().chain(&request.texts);
        let bytes = all.map(String::len).sum();
        let most = match request.truncate {
            true => usize::MAX,
            false => reranker.runtime.context_length(),
        };
        let tenant = account(&admission.allowance().principal);
        let reranker = reranker.clone();
        let encoded = encoding::encode(&tenant, bytes, most, move |limits| {
            encode(&reranker, limits, &request)
        });
        let pairs = encoded.await??;
        let tokens = pairs.iter().map(|pair| pair.tokens.len()).sum();
        self.pay(admission, model, tokens).await?;
        Ok(pairs)
    }

    async fn cosines(
        &self,
        admission: &mut Admission,
        model: &Model,
        request: ScoreRequest,
    ) -> Result<Vec<f32>, ServiceError> {
        if let Some(field) = request.raw {
            let message = format!(
                "{field}: the model `{}` makes embeddings, whose cosines are the scores; there are no others",
                model.name
            );
            return Err(invalid(field, message));
        }
        let many = request.queries.len();
        let (query, document) = match request.search {
            true => (PromptUse::Query, PromptUse::Document),
            false => (PromptUse::Usual, PromptUse::Usual),
        };
        let group = |texts: Vec<String>, prompt| PromptedInputs {
            inputs: texts.into_iter().map(EmbeddingInput::Text).collect(),
            prompt,
        };
        let wanted = WantedVectors {
            groups: vec![
                group(request.queries, query),
                group(request.texts, document),
            ],
            truncate: request.truncate,
            allow_remote: false,
        };
        let vectors = self.vectors(admission, model, wanted).await?;
        let (queries, texts) = vectors.split_at(many.min(vectors.len()));
        let scores = texts.iter().enumerate().map(|(index, text)| {
            let query = queries.get(index).or(queries.first());
            query.map_or(0.0, |query| cosine(query, text))
        });
        Ok(scores.collect())
    }
}

/// Bytes of all pairs: a question is read anew with each of its texts.
fn length(request: &ScoreRequest) -> u64 {
    let bytes = |texts: &[String]| texts.iter().map(|text| text.len() as u64).sum::<u64>();
    let times = match request.queries.len() {
        1 => request.texts.len() as u64,
        _ => 1,
    };
    let questions = bytes(&request.queries).saturating_mul(times);
    questions.saturating_add(bytes(&request.texts))
}

fn check_count(request: &ScoreRequest) -> Result<(), ServiceError> {
    let count = request.queries.len() + request.texts.len();
    match count <= MAX_EMBEDDING_INPUTS {
        true => Ok(()),
        false => {
            let message = format!("input has {count} texts; at most {MAX_EMBEDDING_INPUTS}");
            Err(invalid("input", message))
        }
    }
}

fn encode(
    reranker: &TextReranker,
    limits: EncodeLimits<'_>,
    request: &ScoreRequest,
) -> Result<Vec<EncodedPair>, ServiceError> {
    let context = reranker.runtime.context_length();
    let wrong = |param: String, error| match error {
        TokenizerError::TooLong { at_least } => too_long(at_least, true, context),
        error => invalid(param, error.to_string()),
    };
    let queries = request.queries.iter().enumerate().map(|(index, query)| {
        let encoded = reranker.encode(query, limits);
        encoded.map_err(|error| wrong(format!("input[{index}]"), error))
    });
    let queries: Vec<Vec<u32>> = queries.collect::<Result<_, _>>()?;
    let pairs = request.texts.iter().enumerate().map(|(index, text)| {
        let at = match request.queries.len() {
            1 => 0,
            _ => index,
        };
        let query = request.queries.get(at).zip(queries.get(at));
        let (query, tokens) = query.map_or(("", &[][..]), |(q, t)| (q.as_str(), t.as_slice()));
        let pair = reranker.pair((query, tokens), text, limits, request.truncate);
        let number = request.queries.len() + index;
        pair.map_err(|error| wrong(format!("input[{number}]"), error))
    });
    pairs.collect()
}

/// The probability that a logit stands for.
fn logistic(logit: f32) -> f32 {
    1.0 / (1.0 + (-logit).exp())
}

/// Cosine of the angle between two vectors; 0 if one of them has no length.
fn cosine(one: &[f32], other: &[f32]) -> f32 {
    let dot = |a: &[f32], b: &[f32]| -> f64 {
        let products = a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b));
        products.sum()
    };
    let lengths = (dot(one, one) * dot(other, other)).sqrt();
    match lengths > 0.0 {
        true => (dot(one, other) / lengths) as f32,
        false => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn likeness_is_the_cosine() {
        assert_eq!(cosine(&[3.0, 4.0], &[6.0, 8.0]), 1.0);
        assert_eq!(cosine(&[1.0, 0.0], &[0.0, 2.0]), 0.0);
        assert_eq!(cosine(&[1.0, 0.0], &[-5.0, 0.0]), -1.0);
        assert_eq!(cosine(&[0.0], &[1.0]), 0.0);
    }

    #[test]
    fn logits_become_probabilities() {
        assert_eq!(logistic(0.0), 0.5);
        assert_eq!((logistic(f32::MAX), logistic(f32::MIN)), (1.0, 0.0));
        assert!((logistic(2.0) - 0.880_797).abs() < 1e-6);
    }
}
