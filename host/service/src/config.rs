//! Configuration of a service.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mortise_models::{AliasTable, NameMatching};

use crate::content::{ContentLog, LogNoContent};
use crate::limits::MAX_CHOICES;
use crate::model::{AlwaysLoaded, HoldModels};
use crate::observer::{NoObserver, Observer};
use crate::plugins::RunTool;
use crate::recognition::{RecogniseCaller, RecogniseNobody};
use crate::response_cache::CacheConfig;
use crate::server_tools::ToolLimits;
use crate::spending::{Spend, SpendNothing};

/// Configuration of a service.
#[derive(Clone)]
pub struct ServiceConfig {
    /// Rules by which names match models.
    pub name_matching: NameMatching,
    /// Most tokens of a choice where neither the caller nor the model says.
    pub default_max_tokens: u32,
    /// Most choices of one request, up to [`MAX_CHOICES`].
    pub max_choices: u32,
    /// Threads that compute masks.
    pub mask_threads: usize,
    /// A mask that takes longer fails its sequence. A backstop, far above the deadlines that the plugin host
    /// sets to each call: its verdict says whose fault a slow mask is.
    pub mask_deadline: Duration,
    /// Weights by which tenants share the engines; a tenant that is not named has 1.
    pub tenant_weights: BTreeMap<String, u32>,
    /// True if tenants find what others have cached, and could tell from the time that it saves.
    pub share_prefixes: bool,
    /// Cache of whole answers.
    pub response_cache: CacheConfig,
    /// Tools that the server has without a plugin.
    pub built_in_tools: Vec<Arc<dyn RunTool>>,
    /// Limits of the server's tools.
    pub tools: ToolLimits,
    /// Listener for metrics.
    pub observer: Arc<dyn Observer>,
    /// Keeps models loaded while requests use them.
    pub holder: Arc<dyn HoldModels>,
    /// Names that stand for models and are switched while the server runs.
    pub aliases: Arc<AliasTable>,
    /// Recognises callers by their credentials.
    pub recognise: Arc<dyn RecogniseCaller>,
    /// Keeps account of what requests cost.
    pub spend: Arc<dyn Spend>,
    /// Writes what requests and answers said.
    pub content: Arc<dyn ContentLog>,
}

impl Default for ServiceConfig {
    fn default() -> Self {
        Self {
            name_matching: NameMatching::default(),
            default_max_tokens: 2048,
            max_choices: MAX_CHOICES,
            mask_threads: 2,
            mask_deadline: Duration::from_secs(600),
            tenant_weights: BTreeMap::new(),
            share_prefixes: false,
            response_cache: CacheConfig::default(),
            built_in_tools: Vec::new(),
            tools: ToolLimits::default(),
            observer: Arc::new(NoObserver),
            holder: Arc::new(AlwaysLoaded),
            aliases: Arc::default(),
            recognise: Arc::new(RecogniseNobody),
            spend: Arc::new(SpendNothing),
            content: Arc::new(LogNoContent),
        }
    }
}
