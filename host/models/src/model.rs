//! The descriptor of a model: its names, its capabilities, and the runtimes behind them.

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use mortise_engine::{EngineLoad, Share, TenantLoad};
use mortise_model::{Adapter, EmbeddingPrompts, GenerationConfig};
use mortise_tokenizer::Tokenizer;

use crate::adapters::{AdapterError, Adapters};
use crate::capability::Capability;
use crate::catalogue::HasName;
use crate::config::ModelConfig;
use crate::conversation::TemplateArguments;
use crate::conversation_runtime::{ConversationRuntime, RuntimeEnd};
use crate::embedding_runtime::{EmbeddingFuture, EmbeddingRuntime};
use crate::features::{Conversations, Features};
use crate::remote_embedding::RemoteEmbedder;
use crate::text_reranker::TextReranker;
use crate::token_runtime::TokenRuntime;
use crate::vector_cache::{TextKey, VectorCache};

/// Names of a model, and what lists of models show of it, loaded or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// Public name.
    pub name: String,
    /// Further names.
    pub aliases: Vec<String>,
    /// Time at which the server learned of the model, in seconds since 1970.
    pub created: u64,
    /// Owner.
    pub owned_by: String,
    /// Flag of a hidden model: lists leave it out, and its names work.
    pub hidden: bool,
    /// Day on which it is to be removed, as `YYYY-MM-DD`.
    pub deprecation_date: Option<String>,
    /// Adapters that the configuration names.
    pub adapters: Vec<String>,
    /// Rendering of its conversations to prompts.
    pub conversations: Conversations,
}

impl Listing {
    /// The listing of a configured model.
    pub fn of(config: &ModelConfig) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let lifecycle = &config.lifecycle;
        Self {
            name: config.name.clone(),
            aliases: config.aliases.clone(),
            created: now.map_or(0, |elapsed| elapsed.as_secs()),
            owned_by: lifecycle.owned_by.clone().unwrap_or("mortise".to_owned()),
            hidden: lifecycle.hidden,
            deprecation_date: lifecycle.deprecation_date.clone(),
            adapters: config.loras.iter().map(|lora| lora.name.clone()).collect(),
            conversations: Conversations::of(config),
        }
    }

    /// Inputs and outputs of the model, once it is loaded with these capabilities.
    pub fn features(&self, capabilities: &[Capability]) -> Features {
        Features::of(self.conversations, capabilities)
    }
}

impl HasName for Listing {
    fn name(&self) -> &str {
        &self.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }
}

/// One loaded model. Each capability is there if its runtime is; a model that can only embed has nothing
/// that generates.
#[derive(Clone)]
pub struct Model {
    /// Public name.
    pub name: String,
    /// Architecture, as the model's files name it; empty if they do not tell, or the model runs elsewhere.
    pub architecture: String,
    /// Runtime that generates text.
    pub generator: Option<Generator>,
    /// Runtime that computes embeddings.
    pub embedder: Option<EmbeddingBackend>,
    /// Runtime that scores pairs of texts.
    pub reranker: Option<TextReranker>,
    /// Time at which the model was loaded.
    pub loaded_at: Instant,
}

/// Runtime that generates text, with what the service needs in front of it. The second and the third have the same kind
/// of runtime.
#[derive(Clone)]
pub enum Generator {
    /// Tokens in, tokens out.
    Tokens(TokenGenerator),
    /// Conversation in, events out.
    Conversation(Arc<dyn ConversationRuntime>),
    /// Tokens in, text out: a server elsewhere generates, and conversations are rendered and parsed here.
    Rendered(RenderedGenerator),
}

/// A token runtime with what translates between text and its tokens.
#[derive(Clone)]
pub struct TokenGenerator {
    /// Generates tokens.
    pub runtime: Arc<dyn TokenRuntime>,
    /// Text to tokens and back.
    pub tokenizer: Arc<Tokenizer>,
    /// Size of the vocabulary, padding included: bits of a mask.
    pub vocabulary_size: usize,
    /// Adapters that requests may choose.
    pub adapters: Arc<Adapters>,
    /// Settings where the caller does not say.
    pub generation: GenerationConfig,
    /// Arguments of the chat template where the caller gives none of their names.
    pub template_arguments: Arc<TemplateArguments>,
}

/// A runtime elsewhere with what renders prompts for it here.
#[derive(Clone)]
pub struct RenderedGenerator {
    /// Generates text.
    pub runtime: Arc<dyn ConversationRuntime>,
    /// Text to tokens. Its tokens must be those of the model elsewhere.
    pub tokenizer: Arc<Tokenizer>,
    /// Size of the vocabulary, padding included.
    pub vocabulary_size: usize,
    /// Tokens that end an answer.
    pub eos_tokens: Vec<u32>,
    /// Arguments of the chat template where the caller gives none of their names.
    pub template_arguments: Arc<TemplateArguments>,
}

/// Runtime that computes embeddings, with what the service needs in front of it.
#[derive(Clone)]
pub enum EmbeddingBackend {
    /// Tokens in, vectors out.
    Local(TextEmbedder),
    /// Texts in, vectors out: a server elsewhere encodes them.
    Remote(RemoteEmbedder),
}

/// An embedding runtime with its tokenizer.
#[derive(Clone)]
pub struct TextEmbedder {
    /// Computes vectors.
    pub runtime: Arc<dyn EmbeddingRuntime>,
    /// Text to tokens.
    pub tokenizer: Arc<Tokenizer>,
    /// Instructions that stand before texts.
    pub prompts: Arc<EmbeddingPrompts>,
    /// Vectors of texts that may be asked for again.
    pub cache: Arc<VectorCache>,
    /// Adapters that requests may choose.
    pub adapters: Arc<Adapters>,
    /// Adapter that the request has chosen.
    pub adapter: Option<Arc<Adapter>>,
}

impl Model {
    /// Capabilities of the model.
    pub fn capabilities(&self) -> Vec<Capability> {
        let generate = self.generator.as_ref().map(|_| Capability::Generate);
        let embed = self.embedder.as_ref().map(|_| Capability::Embed);
        let rerank = self.reranker.as_ref().map(|_| Capability::Rerank);
        generate.into_iter().chain(embed).chain(rerank).collect()
    }

    /// Bytes of memory that the model may take beside the growth of this process at the load: KV caches, whose pages
    /// are taken as they fill, and processes of the model.
    pub fn reserved_bytes(&self) -> u64 {
        match &self.generator {
            Some(Generator::Tokens(tokens)) => {
                let caches = tokens.runtime.loads().into_iter();
                caches.map(|load| load.kv_cache_bytes()).sum()
            }
            Some(Generator::Conversation(runtime)) => runtime.memory_bytes(),
            Some(Generator::Rendered(rendered)) => rendered.runtime.memory_bytes(),
            None => match &self.embedder {
                Some(EmbeddingBackend::Remote(remote)) => remote.runtime.process_bytes(),
                Some(EmbeddingBackend::Local(_)) | None => 0,
            },
        }
    }

    /// Adapters of the model; `None` if its runtime takes none.
    pub fn adapters(&self) -> Option<&Arc<Adapters>> {
        match &self.generator {
            Some(Generator::Tokens(tokens)) => Some(&tokens.adapters),
            Some(_) => None,
            None => self.text_embedder().map(|embedder| &embedder.adapters),
        }
    }

    /// Embedding runtime of this process; `None` where the model makes no embeddings, or another server does.
    pub fn text_embedder(&self) -> Option<&TextEmbedder> {
        match &self.embedder {
            Some(EmbeddingBackend::Local(embedder)) => Some(embedder),
            Some(EmbeddingBackend::Remote(_)) | None => None,
        }
    }

    /// Watch of the end of the model's runtime, if that may end by itself.
    pub fn end(&self) -> Option<RuntimeEnd> {
        match (&self.generator, &self.embedder) {
            (Some(Generator::Conversation(runtime)), _) => runtime.end(),
            (Some(Generator::Rendered(rendered)), _) => rendered.runtime.end(),
            (None, Some(EmbeddingBackend::Remote(remote))) => remote.runtime.process_end(),
            _ => None,
        }
    }

    /// Embedding model with an adapter, for one request.
    ///
    /// # Errors
    /// When no such adapter is loaded, or another server computes the vectors.
    pub fn embedding_with(&self, adapter: &str) -> Result<Self, AdapterError> {
        let embedder = match &self.embedder {
            None => None,
            Some(EmbeddingBackend::Local(embedder)) => {
                Some(EmbeddingBackend::Local(embedder.adapted(adapter)?))
            }
            Some(EmbeddingBackend::Remote(_)) => {
                return Err(AdapterError::Unsupported {
                    model: self.name.clone(),
                    reason: "another server computes its vectors".to_owned(),
                });
            }
        };
        Ok(Self {
            embedder,
            ..self.clone()
        })
    }

    /// Tokens that a prompt and its answer, or a text to embed, may have; `None` if only the runtime
    /// knows.
    pub fn context_length(&self) -> Option<usize> {
        match &self.generator {
            Some(Generator::Tokens(tokens)) => Some(tokens.runtime.context_length()),
            Some(Generator::Conversation(runtime)) => runtime.context_length(),
            Some(Generator::Rendered(rendered)) => rendered.runtime.context_length(),
            None => {
                let embedder = self.embedder.as_ref();
                let embeds = embedder.and_then(EmbeddingBackend::context_length);
                let reranker = self.reranker.as_ref();
                embeds.or_else(|| reranker.map(|reranker| reranker.runtime.context_length()))
            }
        }
    }

    /// Engines that generate or embed.
    pub fn replicas(&self) -> usize {
        match &self.generator {
            Some(Generator::Tokens(tokens)) => tokens.runtime.replicas(),
            _ => 1,
        }
    }

    /// Counters and gauges of each engine of the model's runtime.
    pub fn loads(&self) -> Vec<EngineLoad> {
        match &self.generator {
            Some(Generator::Tokens(tokens)) => tokens.runtime.loads(),
            _ => vec![self.load()],
        }
    }

    /// Figures of the tenants in the engines of the model; none where another server decides. Blocks.
    pub fn tenants(&self) -> Vec<TenantLoad> {
        match &self.generator {
            Some(Generator::Tokens(tokens)) => tokens.runtime.tenants(),
            _ => Vec::new(),
        }
    }

    /// Forget the cached prefixes that no sequence uses. Returns how many blocks held them. Blocks.
    pub fn clear_prefixes(&self) -> usize {
        match &self.generator {
            Some(Generator::Tokens(tokens)) => tokens.runtime.clear_prefixes(),
            _ => 0,
        }
    }

    /// Counters and gauges of the model's runtime.
    pub fn load(&self) -> EngineLoad {
        match (&self.generator, &self.embedder, &self.reranker) {
            (Some(generator), ..) => generator.load(),
            (None, Some(embedder), _) => embedder.load(),
            (None, None, Some(reranker)) => reranker.runtime.load(),
            (None, None, None) => EngineLoad::default(),
        }
    }
}

impl EmbeddingBackend {
    /// Tokens that a text may have; `None` if only the runtime knows.
    pub fn context_length(&self) -> Option<usize> {
        match self {
            Self::Local(embedder) => Some(embedder.runtime.context_length()),
            Self::Remote(remote) => remote.runtime.text_length(),
        }
    }

    /// Instructions that this server lays before texts.
    pub fn prompts(&self) -> &EmbeddingPrompts {
        match self {
            Self::Local(embedder) => &embedder.prompts,
            Self::Remote(remote) => &remote.prompts,
        }
    }

    /// Counters and gauges of the runtime.
    pub fn load(&self) -> EngineLoad {
        match self {
            Self::Local(embedder) => embedder.runtime.load(),
            Self::Remote(remote) => remote.runtime.embedding_load(),
        }
    }
}

impl TextEmbedder {
    /// Text embedder with an adapter, for one request.
    ///
    /// # Errors
    /// When no such adapter is loaded.
    fn adapted(&self, adapter: &str) -> Result<Self, AdapterError> {
        Ok(Self {
            adapter: Some(self.adapters.chosen(adapter)?),
            ..self.clone()
        })
    }

    /// Compute one vector for each text, in order, with the adapter if there is one.
    pub fn embed<'a>(&'a self, texts: Vec<Vec<u32>>, share: &'a Share) -> EmbeddingFuture<'a> {
        self.runtime.embed(texts, self.adapter.clone(), share)
    }

    /// Cache key of the vector of a text, for a tenant.
    pub fn key(&self, tenant: &Arc<str>, tokens: Vec<u32>) -> TextKey {
        TextKey {
            tenant: Arc::clone(tenant),
            adapter: self.adapter.as_ref().map(|adapter| adapter.number()),
            tokens,
        }
    }
}

impl TokenGenerator {
    /// Token generator with an adapter, for one request.
    ///
    /// # Errors
    /// When no such adapter is loaded.
    pub fn adapted(&self, adapter: &str) -> Result<Self, AdapterError> {
        Ok(Self {
            runtime: self.adapters.adapted(adapter, &self.runtime)?,
            ..self.clone()
        })
    }
}

impl Generator {
    /// Arguments of the chat template where a caller gives none of their names; none where another server renders.
    pub fn template_arguments(&self) -> Arc<TemplateArguments> {
        match self {
            Self::Tokens(tokens) => Arc::clone(&tokens.template_arguments),
            Self::Rendered(rendered) => Arc::clone(&rendered.template_arguments),
            Self::Conversation(_) => Arc::default(),
        }
    }

    /// Counters and gauges of the runtime.
    pub fn load(&self) -> EngineLoad {
        match self {
            Self::Tokens(tokens) => tokens.runtime.load(),
            Self::Conversation(runtime) => runtime.load(),
            Self::Rendered(rendered) => rendered.runtime.load(),
        }
    }
}

impl std::fmt::Debug for Model {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Model")
            .field("name", &self.name)
            .field("capabilities", &self.capabilities())
            .finish_non_exhaustive()
    }
}
