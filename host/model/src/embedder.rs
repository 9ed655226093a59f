//! Models that make vectors of texts: encoders, and decoders whose rows are pooled.

use std::sync::Arc;

use crate::decoder::{Decoder, EmbedText, RowsError};
use crate::encoder::{Encoder, EncoderSpec, ModernEncoder, ModernSpec};
use crate::error::{InputError, ModelError};
use crate::folder::ModelFolder;
use crate::pooling::{Pooling, PoolingSpec};
use crate::spec::ModelSpec;
use crate::weights::WeightPrecision;

/// A model that makes vectors of texts. Immutable.
#[derive(Debug)]
pub struct Embedder(Kind);

#[derive(Debug)]
enum Kind {
    Encoder(Box<Encoder>),
    Modern(Box<ModernEncoder>),
    Decoder(Box<Decoder>, PoolingSpec),
}

/// Settings of the operator, which override the model's files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EmbedderOptions {
    /// Pooling of the rows of a text.
    pub pooling: Option<Pooling>,
    /// Whether vectors get length 1.
    pub normalised: Option<bool>,
}

impl Embedder {
    /// Whether a folder holds an embedding model rather than one that generates: an encoder, or a decoder whose files,
    /// or whose operator, say how its rows are pooled.
    pub fn describes(folder: &ModelFolder, options: EmbedderOptions) -> Result<bool, ModelError> {
        Ok(options.pooling.is_some()
            || EncoderSpec::describes(folder)?
            || ModernSpec::ranks(folder)? == Some(false)
            || PoolingSpec::read(folder)?.is_some())
    }

    /// Read a model's files and check them. What neither files nor options say is the mean, of
    /// length 1, for encoders, and the last row, of length 1, for decoders.
    pub fn load(
        folder: &ModelFolder,
        precision: WeightPrecision,
        options: EmbedderOptions,
    ) -> Result<Self, ModelError> {
        let chosen = |read: PoolingSpec| PoolingSpec {
            pooling: options.pooling.unwrap_or(read.pooling),
            normalised: options.normalised.unwrap_or(read.normalised),
        };
        if EncoderSpec::describes(folder)? {
            let mut encoder = Encoder::load(folder, precision)?;
            encoder.set_pooling(chosen(encoder.spec().pooling));
            return Ok(Self(Kind::Encoder(Box::new(encoder))));
        }
        if ModernSpec::ranks(folder)? == Some(false) {
            let mut encoder = ModernEncoder::load(folder, precision)?;
            encoder.set_pooling(chosen(encoder.spec().pooling));
            return Ok(Self(Kind::Modern(Box::new(encoder))));
        }
        let read = PoolingSpec::read(folder)?.unwrap_or(PoolingSpec {
            pooling: Pooling::Last,
            normalised: true,
        });
        let model = Decoder::load_headless(folder, precision)?;
        Ok(Self(Kind::Decoder(Box::new(model), chosen(read))))
    }

    /// Numbers of a vector.
    pub fn dimensions(&self) -> usize {
        match &self.0 {
            Kind::Encoder(encoder) => encoder.spec().hidden,
            Kind::Modern(encoder) => encoder.spec().hidden,
            Kind::Decoder(model, _) => model.spec().hidden,
        }
    }

    /// Tokens that a text may have.
    pub fn context(&self) -> usize {
        match &self.0 {
            Kind::Encoder(encoder) => encoder.spec().context,
            Kind::Modern(encoder) => encoder.spec().context,
            Kind::Decoder(model, _) => model.spec().context,
        }
    }

    /// Serve texts of at most `tokens` tokens, where a model with rotary positions was made for more.
    pub fn limit_context(&mut self, tokens: usize) {
        match &mut self.0 {
            Kind::Encoder(_) => {}
            Kind::Modern(encoder) => encoder.limit_context(tokens),
            Kind::Decoder(model, _) => model.limit_context(tokens),
        }
    }

    /// Pooling and normalisation.
    pub fn pooling(&self) -> PoolingSpec {
        match &self.0 {
            Kind::Encoder(encoder) => encoder.spec().pooling,
            Kind::Modern(encoder) => encoder.spec().pooling,
            Kind::Decoder(_, pooling) => *pooling,
        }
    }

    /// The shape that adapters are checked against; `None` for encoders, which take none.
    pub fn adapter_base(&self) -> Option<Arc<ModelSpec>> {
        match &self.0 {
            Kind::Encoder(_) | Kind::Modern(_) => None,
            Kind::Decoder(model, _) => Some(Arc::new(model.spec().clone())),
        }
    }

    /// Compute one vector for each text, in order. A text's vector does not depend on the other texts.
    pub fn embed(&self, texts: &[&[u32]]) -> Result<Vec<Vec<f32>>, RowsError> {
        let plain = texts.iter().map(|tokens| EmbedText {
            tokens,
            adapter: None,
        });
        self.embed_adapted(&plain.collect::<Vec<_>>())
    }

    /// Compute one vector for each text, in order, with the adapter of each text; texts of one batch may have different
    /// adapters.
    ///
    /// # Errors
    /// When a text has no tokens or too many, or an adapter does not fit the model.
    pub fn embed_adapted(&self, texts: &[EmbedText<'_>]) -> Result<Vec<Vec<f32>>, RowsError> {
        let plain = || -> Result<Vec<&[u32]>, RowsError> {
            let adapted = texts.iter().any(|text| text.adapter.is_some());
            match adapted {
                true => Err(InputError::Adapter.into()),
                false => Ok(texts.iter().map(|text| text.tokens).collect()),
            }
        };
        let (model, pooling) = match &self.0 {
            Kind::Encoder(encoder) => return Ok(encoder.embed(&plain()?)?),
            Kind::Modern(encoder) => return Ok(encoder.embed(&plain()?)?),
            Kind::Decoder(model, pooling) => (model, *pooling),
        };
        let context = self.context();
        let mut lengths = texts.iter().map(|text| text.tokens.len());
        if let Some(tokens) = lengths.find(|length| !(1..=context).contains(length)) {
            return Err(InputError::Context { tokens, context }.into());
        }
        let rows = model.rows_of(texts)?;
        let mut rows = rows.chunks_exact(self.dimensions());
        let vectors = texts.iter().map(|text| {
            let rows: Vec<&[f32]> = rows.by_ref().take(text.tokens.len()).collect();
            pooling.apply(&rows)
        });
        Ok(vectors.collect())
    }
}
