//! Models that score pairs of texts: encoders with a head, and decoders whose next token is an answer.

use crate::decoder::{EmbedError, Model};
use crate::encoder::{Encoder, EncoderSpec, EncoderText};
use crate::error::{InputError, ModelError};
use crate::fields::Fields;
use crate::folder::ModelFolder;
use crate::limits::MODULES_MAX;
use crate::weights::WeightPrecision;

/// Step of a model of sentence-transformers whose score is the logit of one token over that of another.
const LOGIT_STEP: &str = "LogitScore";

/// A model that scores pairs of texts. Immutable.
#[derive(Debug)]
pub struct Reranker(Kind);

#[derive(Debug)]
enum Kind {
    Encoder(Box<Encoder>),
    Decoder(Box<Model>, Answers),
}

/// Rows of a decoder's head for the tokens of its two answers.
#[derive(Debug)]
struct Answers {
    yes: Vec<f32>,
    no: Vec<f32>,
}

/// Way in which a folder's model scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RerankerKind {
    /// An encoder that reads both texts.
    Encoder,
    /// A decoder that is asked, and answers with one of two tokens.
    Decoder,
}

impl Reranker {
    /// The way in which a folder's model scores, if its files say that it does.
    pub fn describes(folder: &ModelFolder) -> Result<Option<RerankerKind>, ModelError> {
        if EncoderSpec::describes_ranker(folder)? {
            return Ok(Some(RerankerKind::Encoder));
        }
        if folder.gguf().is_some() {
            return Ok(None);
        }
        let modules = Fields::read_list(folder, "modules.json", MODULES_MAX)?;
        for module in modules.iter().flatten() {
            let kind = module.text("type")?.unwrap_or_default();
            if kind.rsplit('.').next() == Some(LOGIT_STEP) {
                return Ok(Some(RerankerKind::Decoder));
            }
        }
        Ok(None)
    }

    /// Read an encoder with a head.
    pub fn load(folder: &ModelFolder, precision: WeightPrecision) -> Result<Self, ModelError> {
        let encoder = Encoder::load(folder, precision)?;
        Ok(Self(Kind::Encoder(Box::new(encoder))))
    }

    /// Read a decoder that answers with the token `yes` or the token `no`.
    pub fn load_decoder(
        folder: &ModelFolder,
        precision: WeightPrecision,
        (yes, no): (u32, u32),
    ) -> Result<Self, ModelError> {
        let (model, mut rows) = Model::load_for_tokens(folder, precision, &[yes, no])?;
        let no = rows.split_off(rows.len() / 2);
        Ok(Self(Kind::Decoder(
            Box::new(model),
            Answers { yes: rows, no },
        )))
    }

    /// Tokens that a pair may have.
    pub fn context(&self) -> usize {
        match &self.0 {
            Kind::Encoder(encoder) => encoder.spec().context,
            Kind::Decoder(model, _) => model.spec().context,
        }
    }

    /// Serve pairs of at most `tokens` tokens, where a decoder was made for more.
    pub fn limit_context(&mut self, tokens: usize) {
        if let Kind::Decoder(model, _) = &mut self.0 {
            model.limit_context(tokens);
        }
    }

    /// One score for each pair, in order: a logit, of which the logistic function is the probability that the second text
    /// is what the first asks for. A pair's score does not depend on the others.
    pub fn score(&self, pairs: &[EncoderText<'_>]) -> Result<Vec<f32>, EmbedError> {
        match &self.0 {
            Kind::Encoder(encoder) => Ok(encoder.score(pairs)?.unwrap_or_default()),
            Kind::Decoder(model, answers) => answered(model, answers, pairs),
        }
    }
}

fn answered(
    model: &Model,
    answers: &Answers,
    pairs: &[EncoderText<'_>],
) -> Result<Vec<f32>, EmbedError> {
    let context = model.spec().context;
    let texts: Vec<&[u32]> = pairs.iter().map(|pair| pair.tokens).collect();
    let unfit = |text: &&&[u32]| text.is_empty() || text.len() > context;
    if let Some(text) = texts.iter().find(unfit) {
        let tokens = text.len();
        return Err(InputError::Context { tokens, context }.into());
    }
    let width = model.spec().hidden;
    let rows = model.rows_of(&texts)?;
    let mut end = 0;
    let scores = texts.iter().map(|text| {
        end += text.len();
        let last = &rows[(end - 1) * width..end * width];
        logit(model, last, &answers.yes) - logit(model, last, &answers.no)
    });
    Ok(scores.collect())
}

/// The logit of a token by its row of the head.
fn logit(model: &Model, row: &[f32], head: &[f32]) -> f32 {
    let products = row.iter().zip(head);
    let sum: f64 = products
        .map(|(value, weight)| f64::from(*value) * f64::from(*weight))
        .sum();
    let logit = sum as f32 * model.spec().logit_scale;
    match model.spec().logit_soft_cap {
        Some(cap) => cap * (logit / cap).tanh(),
        None => logit,
    }
}
