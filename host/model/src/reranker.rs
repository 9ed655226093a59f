//! Models that score pairs of texts: encoders and decoders with a head, and decoders whose next token is an answer.

use crate::checkpoint::Checkpoint;
use crate::decoder::{Decoder, EmbedText, RowsError};
use crate::encoder::{Encoder, EncoderSpec, EncoderText, ModernEncoder, ModernSpec, check_labels};
use crate::error::{InputError, ModelError};
use crate::fields::ObjectFields;
use crate::folder::{CONFIG_FILE, ModelFolder};
use crate::limits::{MODULES_MAX, VOCABULARY_MAX};
use crate::pooling::pools_by_head;
use crate::spec::Architecture;
use crate::weights::WeightPrecision;

/// Step of a model of sentence-transformers whose score is the logit of one token over that of another.
const LOGIT_STEP: &str = "LogitScore";

/// A model that scores pairs of texts. Immutable.
#[derive(Debug)]
pub struct Reranker(Kind);

#[derive(Debug)]
enum Kind {
    Encoder(Box<Encoder>),
    Modern(Box<ModernEncoder>),
    Decoder(Box<Decoder>, Scoring),
}

/// Score of a decoder from a row.
#[derive(Debug)]
enum Scoring {
    /// Rows of its head for the tokens of its two answers.
    Answers { yes: Vec<f32>, no: Vec<f32> },
    /// Weights of the one label, and the padding token, whose row is not the last of a text.
    Label(Vec<f32>, Option<u32>),
}

/// Weights of a decoder's labels.
const LABELS: &str = "score.weight";

/// Way in which a folder's model scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RerankerKind {
    /// An encoder that reads both texts.
    Encoder,
    /// A decoder that is asked, and answers with one of two tokens.
    Decoder,
    /// A decoder with a head for one label.
    Classifier,
}

impl Reranker {
    /// The way in which a folder's model scores, if its files say that it does.
    pub fn describes(folder: &ModelFolder) -> Result<Option<RerankerKind>, ModelError> {
        let ranks = EncoderSpec::describes_ranker(folder)?;
        if ranks || ModernSpec::ranks(folder)? == Some(true) {
            return Ok(Some(RerankerKind::Encoder));
        }
        let Some(config) = ObjectFields::read(folder, CONFIG_FILE)? else {
            return Ok(None);
        };
        if folder.gguf().is_some() {
            let ranks = pools_by_head(&config)?;
            return Ok(ranks.then_some(RerankerKind::Classifier));
        }
        let class = config
            .get("architectures")
            .and_then(|classes| classes[0].as_str());
        if class.is_some_and(Architecture::scores) {
            return Ok(Some(RerankerKind::Classifier));
        }
        let modules = ObjectFields::read_list(folder, "modules.json", MODULES_MAX)?;
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
        if ModernSpec::ranks(folder)?.is_some() {
            let encoder = ModernEncoder::load(folder, precision)?;
            return Ok(Self(Kind::Modern(Box::new(encoder))));
        }
        let encoder = Encoder::load(folder, precision)?;
        Ok(Self(Kind::Encoder(Box::new(encoder))))
    }

    /// Read a decoder that answers with the token `yes` or the token `no`.
    pub fn load_decoder(
        folder: &ModelFolder,
        precision: WeightPrecision,
        (yes, no): (u32, u32),
    ) -> Result<Self, ModelError> {
        let (model, mut rows) = Decoder::load_for_tokens(folder, precision, &[yes, no])?;
        let no = rows.split_off(rows.len() / 2);
        Ok(Self(Kind::Decoder(
            Box::new(model),
            Scoring::Answers { yes: rows, no },
        )))
    }

    /// Read a decoder with a head for one label. A GGUF file may have one for two in its place, `yes` and `no`.
    pub fn load_classifier(
        folder: &ModelFolder,
        precision: WeightPrecision,
    ) -> Result<Self, ModelError> {
        let config =
            ObjectFields::read(folder, CONFIG_FILE)?.ok_or_else(|| folder.missing(CONFIG_FILE))?;
        let in_gguf = folder.gguf().is_some();
        if !in_gguf {
            check_labels(&config)?;
        }
        let padding = config.count("pad_token_id", 0..=VOCABULARY_MAX)?;
        let model = Decoder::load_headless(folder, precision)?;
        let checkpoint = Checkpoint::open(folder)?;
        let width = model.spec().hidden;
        let rows = |labels| {
            let weights =
                checkpoint.load_table(LABELS, &[labels, width], WeightPrecision::AsStored)?;
            let mut rows = vec![0.0; labels * width];
            for (label, row) in rows.chunks_exact_mut(width).enumerate() {
                weights.row(label, row);
            }
            Ok::<_, ModelError>(rows)
        };
        let scoring = match rows(1) {
            Err(ModelError::Shape { .. }) if in_gguf => {
                let mut yes = rows(2)?;
                let no = yes.split_off(width);
                Scoring::Answers { yes, no }
            }
            row => Scoring::Label(row?, padding.and_then(|id| u32::try_from(id).ok())),
        };
        Ok(Self(Kind::Decoder(Box::new(model), scoring)))
    }

    /// Tokens that a pair may have.
    pub fn context(&self) -> usize {
        match &self.0 {
            Kind::Encoder(encoder) => encoder.spec().context,
            Kind::Modern(encoder) => encoder.spec().context,
            Kind::Decoder(model, _) => model.spec().context,
        }
    }

    /// Serve pairs of at most `tokens` tokens, where a model with rotary positions was made for more.
    pub fn limit_context(&mut self, tokens: usize) {
        match &mut self.0 {
            Kind::Encoder(_) => {}
            Kind::Modern(encoder) => encoder.limit_context(tokens),
            Kind::Decoder(model, _) => model.limit_context(tokens),
        }
    }

    /// One score for each pair, in order: a logit, of which the logistic function is the probability that the second text
    /// is what the first asks for. A pair's score does not depend on the others.
    pub fn score(&self, pairs: &[EncoderText<'_>]) -> Result<Vec<f32>, RowsError> {
        match &self.0 {
            Kind::Encoder(encoder) => Ok(encoder.score(pairs)?.unwrap_or_default()),
            Kind::Modern(encoder) => Ok(encoder.score(pairs)?),
            Kind::Decoder(model, scoring) => scored(model, scoring, pairs),
        }
    }
}

fn scored(
    model: &Decoder,
    scoring: &Scoring,
    pairs: &[EncoderText<'_>],
) -> Result<Vec<f32>, RowsError> {
    let context = model.spec().context;
    let texts: Vec<&[u32]> = pairs.iter().map(|pair| pair.tokens).collect();
    let unfit = |text: &&&[u32]| text.is_empty() || text.len() > context;
    if let Some(text) = texts.iter().find(unfit) {
        let tokens = text.len();
        return Err(InputError::Context { tokens, context }.into());
    }
    let width = model.spec().hidden;
    let plain = texts.iter().map(|tokens| EmbedText {
        tokens,
        adapter: None,
    });
    let rows = model.rows_of(&plain.collect::<Vec<_>>())?;
    let mut first = 0;
    let scores = texts.iter().map(|text| {
        let last = first + last_of(text, scoring);
        first += text.len();
        let row = &rows[last * width..][..width];
        match scoring {
            Scoring::Answers { yes, no } => logit(model, row, yes) - logit(model, row, no),
            Scoring::Label(weights, _) => product(row, weights) as f32,
        }
    });
    Ok(scores.collect())
}

/// Place of the row that is scored: the last of a token that is not padding.
fn last_of(text: &[u32], scoring: &Scoring) -> usize {
    let padding = match scoring {
        Scoring::Label(_, padding) => *padding,
        Scoring::Answers { .. } => None,
    };
    let last = text.iter().rposition(|token| Some(*token) != padding);
    last.unwrap_or(0)
}

fn product(row: &[f32], weights: &[f32]) -> f64 {
    let products = row.iter().zip(weights);
    products
        .map(|(value, weight)| f64::from(*value) * f64::from(*weight))
        .sum()
}

/// The logit of a token by its row of the head.
fn logit(model: &Decoder, row: &[f32], head: &[f32]) -> f32 {
    let logit = product(row, head) as f32 * model.spec().logit_scale;
    match model.spec().logit_soft_cap {
        Some(cap) => cap * (logit / cap).tanh(),
        None => logit,
    }
}
