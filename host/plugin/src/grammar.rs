//! Grammars: constrained decoding by a plugin.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use wasmtime::Store;
use wasmtime::component::ResourceAny;

use crate::attribution::{self, Control, Load, attribute, attribute_drop};
use crate::call::GuestResult;
use crate::handle::{PluginHandle, kind_handle};
use crate::pool::{InstancePool, Lease};
use crate::state::StoreData;
use crate::versions::{GrammarExports, convert};
use crate::{CallContext, Fault, GrammarSource, MatchStatus, MatchStep, PluginError, Vocabulary};

/// Defect of a mask after which no text can follow.
const DEAD_END: &str = "allows no token and has not finished";

/// The slot that the host hands to every call; a guest that names another one is in error.
const SLOT: u32 = 0;

kind_handle!(
    /// A grammar engine, bound to a vocabulary.
    Grammar,
    GrammarExports
);

impl Grammar {
    /// Compile a grammar. The matcher, with its forks, keeps an instance to itself.
    ///
    /// # Errors
    /// When the grammar is refused, or the plugin fails.
    pub async fn compile(
        &self,
        context: &CallContext,
        source: &GrammarSource,
    ) -> Result<Matcher, PluginError> {
        match self.open(context, source, Role::Request).await {
            Err(error) => Err(judge(self.handle.pool(), context, error).await),
            compiled => compiled,
        }
    }

    async fn open(
        &self,
        context: &CallContext,
        source: &GrammarSource,
        role: Role,
    ) -> Result<Matcher, PluginError> {
        let opened = self.handle.open(
            context,
            "grammar.compile",
            self.handle.deadlines().compile_ms,
            async |exports, store| {
                let source = convert::grammar_to_guest(source);
                exports.compile.call(store, (&source,)).await
            },
            |matcher, _| Ok(matcher),
        );
        let (matcher, lease) = opened.await?;
        Ok(Matcher {
            resource: matcher,
            shared: Arc::new(Shared {
                lease: tokio::sync::Mutex::new(lease),
                dropped: Mutex::new(Vec::new()),
            }),
            context: context.clone(),
            role,
        })
    }
}

/// Purpose of a matcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// To constrain a request.
    Request,
    /// A control call.
    Trial,
}

/// Attribute a fault by doing the same with the simplest grammar there is.
fn judge<'a>(
    pool: &'a Arc<InstancePool<GrammarExports>>,
    context: &'a CallContext,
    error: PluginError,
) -> Pin<Box<dyn Future<Output = PluginError> + Send + 'a>> {
    let control = simplest(pool, context, error.function);
    attribute(pool, error, to_caller, control)
}

fn to_caller(fault: Fault) -> Fault {
    match fault {
        Fault::InvalidResult(text) if text == DEAD_END => Fault::Invalid(
            "the grammar leads to a dead end: the text is not complete, and no token may follow"
                .to_owned(),
        ),
        fault => attribution::too_complex(fault, "send a simpler grammar"),
    }
}

/// The function with a matcher of any JSON object.
async fn simplest(
    pool: &Arc<InstancePool<GrammarExports>>,
    context: &CallContext,
    function: &str,
) -> Control {
    let grammar = Grammar {
        handle: PluginHandle::of(pool),
    };
    let words = pool.grants().vocabulary.as_ref();
    let mut row = vec![0; words.map_or(0, |vocabulary| vocabulary.mask_words())];
    let simplest = &GrammarSource::JsonObject;
    let opened = grammar.open(context, simplest, Role::Trial).await;
    let is_opened = opened.is_ok();
    let called = match (opened, function) {
        (Ok(mut matcher), "grammar.mask") => matcher.mask(&mut row).await.map(drop),
        (Ok(mut matcher), "grammar.advance") => matcher.advance(&[], &mut row).await.map(drop),
        (Ok(mut matcher), "grammar.probe") => matcher.probe(&[]).await.map(drop),
        (Ok(mut matcher), "grammar.rollback") => matcher.rollback(0).await,
        (Ok(mut matcher), "grammar.fork") => matcher.fork().await.map(drop),
        (opened, _) => opened.map(drop),
    };
    match Control::of(&called) {
        // An orderly refusal tells of the function that gave it.
        Control::Passed if called.is_err() && !is_opened && function != "grammar.compile" => {
            Control::Failed
        }
        control => control,
    }
}

/// The instance of a matcher and its forks.
struct Shared {
    lease: tokio::sync::Mutex<Lease<GrammarExports>>,
    /// Matchers that are gone, for the guest to drop.
    dropped: Mutex<Vec<ResourceAny>>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        let resources = self
            .dropped
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        // A grammar is a program of the caller's, and so is what it leaves behind.
        let resources = std::mem::take(resources);
        let settle = attribute_drop(Load::Caller);
        self.lease.get_mut().release(resources, settle);
    }
}

/// One sequence being constrained. After an error that is the plugin's own, every further call
/// fails; after a refusal, the state is as it was.
pub struct Matcher {
    resource: ResourceAny,
    shared: Arc<Shared>,
    context: CallContext,
    role: Role,
}

impl Matcher {
    /// Make one call on the instance of the matcher. All of them have the deadline of masks.
    async fn call<T, U>(
        &self,
        function: &'static str,
        guest: impl AsyncFnOnce(&GrammarExports, &mut Store<StoreData>) -> GuestResult<T>,
        check: impl FnOnce(T, &mut StoreData) -> Result<U, Fault>,
    ) -> Result<U, PluginError> {
        let mut lease = self.shared.lease.lock().await;
        let pool = Arc::clone(lease.pool());
        let deadline_ms = pool.grants().limits.deadlines.mask_ms;
        let called = lease.call(&self.context, function, deadline_ms, guest, check);
        let result = called.await;
        drop(lease);
        match result {
            Err(error) if self.role == Role::Request => {
                Err(judge(&pool, &self.context, error).await)
            }
            result => result,
        }
    }

    /// Write the mask of the present state to `row`: bit `i % 32` of word `i / 32` for token `i`.
    /// The row needs [`Vocabulary::mask_words`] words; further ones are cleared. It stays as it
    /// was if the call fails. The guest's mask is copied once, out of its memory: the row that it was
    /// copied to is swapped with the caller's.
    ///
    /// # Errors
    /// When the grammar is too complex to go on, the plugin fails, or the row is too short.
    pub async fn mask(&mut self, row: &mut Vec<u32>) -> Result<MatchStatus, PluginError> {
        let resource = self.resource;
        self.call(
            "grammar.mask",
            async |exports, store| {
                store.data_mut().mask.slot = Some(SLOT);
                let said = exports.mask.call(store, (resource, SLOT)).await?;
                Ok(said.map(convert::match_status))
            },
            |status, state| {
                let delivered = deliver(status, state, row).map_err(Fault::InvalidResult);
                delivered.map(|()| status)
            },
        )
        .await
    }

    /// Take tokens, then write the mask of the new state to `row`, as [`Matcher::mask`] does.
    ///
    /// # Errors
    /// When the grammar is too complex to go on, a token is refused, the plugin fails, or the row is
    /// too short.
    pub async fn advance(
        &mut self,
        tokens: &[u32],
        row: &mut Vec<u32>,
    ) -> Result<MatchStep, PluginError> {
        let resource = self.resource;
        self.call(
            "grammar.advance",
            async |exports, store| {
                store.data_mut().mask.slot = Some(SLOT);
                let taken = (resource, tokens, SLOT);
                let said = exports.advance.call(store, taken).await?;
                Ok(said.map(convert::match_step))
            },
            |step, state| {
                check_forced(&step.forced, step.status, state)
                    .and_then(|()| deliver(step.status, state, row))
                    .map_err(Fault::InvalidResult)?;
                Ok(step)
            },
        )
        .await
    }

    /// Number of these tokens, from the first, that would be accepted.
    ///
    /// # Errors
    /// When the plugin fails.
    pub async fn probe(&mut self, tokens: &[u32]) -> Result<u32, PluginError> {
        let resource = self.resource;
        self.call(
            "grammar.probe",
            async |exports, store| exports.probe.call(store, (resource, tokens)).await,
            |count, _| {
                if count as usize > tokens.len() {
                    let reason = format!("would accept {count} of {} tokens", tokens.len());
                    return Err(Fault::InvalidResult(reason));
                }
                Ok(count)
            },
        )
        .await
    }

    /// Take back the last `count` tokens.
    ///
    /// # Errors
    /// When there are not so many, or the plugin fails.
    pub async fn rollback(&mut self, count: u32) -> Result<(), PluginError> {
        let resource = self.resource;
        self.call(
            "grammar.rollback",
            async |exports, store| exports.rollback.call(store, (resource, count)).await,
            |(), _| Ok(()),
        )
        .await
    }

    /// An independent matcher in the present state. It lives in the same instance, so calls of the
    /// two wait for each other.
    ///
    /// # Errors
    /// When the plugin fails.
    pub async fn fork(&mut self) -> Result<Matcher, PluginError> {
        let resource = self.resource;
        let forked = self.call(
            "grammar.fork",
            async |exports, store| exports.fork.call(store, (resource,)).await,
            |forked, _| Ok(forked),
        );
        Ok(Matcher {
            resource: forked.await?,
            shared: Arc::clone(&self.shared),
            context: self.context.clone(),
            role: self.role,
        })
    }
}

impl Drop for Matcher {
    fn drop(&mut self) {
        let dropped = self.shared.dropped.lock();
        dropped
            .unwrap_or_else(PoisonError::into_inner)
            .push(self.resource);
    }
}

/// Swap the row that the guest's mask was copied to with the caller's row.
fn deliver(status: MatchStatus, state: &mut StoreData, row: &mut Vec<u32>) -> Result<(), String> {
    let mask = &mut state.mask;
    let width = mask.words.len();
    let wanted = row.len();
    if wanted < width {
        return Err(format!("a mask has {width} words, the host's row {wanted}"));
    }
    match (mask.written, status) {
        (true, _) => {}
        (false, MatchStatus::Finished) => {
            let vocabulary = state.grants.vocabulary.as_deref();
            allow_end_only(&mut mask.words, vocabulary);
        }
        (false, _) => return Err("pushed no mask".to_owned()),
    }
    if status != MatchStatus::Finished && mask.words.iter().all(|word| *word == 0) {
        return Err(DEAD_END.to_owned());
    }
    std::mem::swap(&mut mask.words, row);
    mask.words.resize(width, 0);
    row.resize(wanted, 0);
    Ok(())
}

fn allow_end_only(words: &mut [u32], vocabulary: Option<&Vocabulary>) {
    words.fill(0);
    for token in vocabulary.map(|v| v.eos.as_slice()).unwrap_or_default() {
        if let Some(word) = words.get_mut(*token as usize / 32) {
            *word |= 1 << (token % 32);
        }
    }
}

/// Tokens that must follow are tokens, and the mask of the same state allows the first of them.
fn check_forced(forced: &[u32], status: MatchStatus, state: &StoreData) -> Result<(), String> {
    let count = state.grants.vocabulary.as_ref().map_or(0, |v| v.len());
    if let Some(token) = forced.iter().find(|token| **token as usize >= count) {
        return Err(format!(
            "forces token {token}, and the vocabulary has {count}"
        ));
    }
    let allows = |token: u32| {
        let word = state.mask.words.get(token as usize / 32);
        word.is_some_and(|word| word >> (token % 32) & 1 == 1)
    };
    match forced.first() {
        Some(token) if status != MatchStatus::Finished && !allows(*token) => Err(format!(
            "forces token {token}, which its own mask does not allow"
        )),
        _ => Ok(()),
    }
}
