//! Constraining generation through a plugin.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use wasmtime::Store;
use wasmtime::component::ResourceAny;

use crate::call::GuestResult;
use crate::handle::{Handle, kind_handle};
use crate::pool::{Lease, Pool};
use crate::state::State;
use crate::versions::{GrammarExports, in_each_version};
use crate::{CallContext, Fault, GrammarSource, MatchStatus, MatchStep, PluginError, Vocabulary};

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
                in_each_version!(exports, |exports, convert| {
                    let source = convert::grammar_to_guest(source);
                    let grammar = exports.mortise_plugin_grammar();
                    let said = grammar.call_compile(store, &source).await?;
                    Ok(said.map_err(convert::fault))
                })
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

/// What a matcher is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// A grammar of a caller's.
    Request,
    /// To see whether the plugin does well at all.
    Trial,
}

/// Find out whose fault a breakdown was, tell the breaker, and put it into the error.
///
/// A grammar is a program of the caller's, and one that is too much for the plugin must not make the
/// plugin look broken: one caller could have it suspended for all. So the plugin is asked to do the
/// same with the simplest grammar there is, on another instance. If it does, the grammar was to blame.
fn judge<'a>(
    pool: &'a Arc<Pool<GrammarExports>>,
    context: &'a CallContext,
    error: PluginError,
) -> Pin<Box<dyn Future<Output = PluginError> + Send + 'a>> {
    Box::pin(async move {
        if !error.fault.is_breakdown() {
            return error;
        }
        pool.let_try();
        match does_well(pool, context, error.function).await {
            Some(true) => {
                pool.record(Ok(()));
                let fault = match error.fault {
                    excess if excess.is_excess() => {
                        Fault::TooComplex(format!("{excess}; with a simpler one it would not"))
                    }
                    other => other,
                };
                PluginError { fault, ..error }
            }
            Some(false) => {
                pool.record(Err(&error));
                error
            }
            None => error,
        }
    })
}

/// Whether a function does with a matcher of any JSON object what it should; `None` if it could not be
/// called.
async fn does_well(
    pool: &Arc<Pool<GrammarExports>>,
    context: &CallContext,
    function: &str,
) -> Option<bool> {
    let grammar = Grammar {
        handle: Handle::of(pool),
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
    match called.map_err(|error| error.fault) {
        Ok(()) => Some(true),
        Err(Fault::Overloaded { .. } | Fault::Suspended { .. }) => None,
        Err(fault) if fault.is_breakdown() => Some(false),
        // An orderly refusal tells of the function that gave it.
        Err(_) => Some(is_opened || function == "grammar.compile"),
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
        self.lease.get_mut().release(std::mem::take(resources));
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
        guest: impl AsyncFnOnce(&GrammarExports, &mut Store<State>) -> GuestResult<T>,
        check: impl FnOnce(T, &mut State) -> Result<U, String>,
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
    /// was if the call fails.
    ///
    /// # Errors
    /// When the grammar is too complex to go on, the plugin fails, or the row is too short.
    pub async fn mask(&mut self, row: &mut [u32]) -> Result<MatchStatus, PluginError> {
        let resource = self.resource;
        self.call(
            "grammar.mask",
            async |exports, store| {
                store.data_mut().mask.slot = Some(SLOT);
                in_each_version!(exports, |exports, convert| {
                    let guest = exports.mortise_plugin_grammar().matcher();
                    let said = guest.call_mask(store, resource, SLOT).await?;
                    Ok(said.map(convert::match_status).map_err(convert::fault))
                })
            },
            |status, state| deliver(status, state, row).map(|()| status),
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
        row: &mut [u32],
    ) -> Result<MatchStep, PluginError> {
        let resource = self.resource;
        self.call(
            "grammar.advance",
            async |exports, store| {
                store.data_mut().mask.slot = Some(SLOT);
                in_each_version!(exports, |exports, convert| {
                    let guest = exports.mortise_plugin_grammar().matcher();
                    let said = guest.call_advance(store, resource, tokens, SLOT).await?;
                    Ok(said.map(convert::match_step).map_err(convert::fault))
                })
            },
            |step, state| {
                check_forced(&step.forced, step.status, state)?;
                deliver(step.status, state, row)?;
                Ok(step)
            },
        )
        .await
    }

    /// How many of these tokens, from the first, would be accepted.
    ///
    /// # Errors
    /// When the plugin fails.
    pub async fn probe(&mut self, tokens: &[u32]) -> Result<u32, PluginError> {
        let resource = self.resource;
        self.call(
            "grammar.probe",
            async |exports, store| {
                in_each_version!(exports, |exports, convert| {
                    let guest = exports.mortise_plugin_grammar().matcher();
                    let said = guest.call_probe(store, resource, tokens).await?;
                    Ok(said.map_err(convert::fault))
                })
            },
            |count, _| {
                if count as usize > tokens.len() {
                    return Err(format!("would accept {count} of {} tokens", tokens.len()));
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
            async |exports, store| {
                in_each_version!(exports, |exports, convert| {
                    let guest = exports.mortise_plugin_grammar().matcher();
                    let said = guest.call_rollback(store, resource, count).await?;
                    Ok(said.map_err(convert::fault))
                })
            },
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
            async |exports, store| {
                in_each_version!(exports, |exports, convert| {
                    let guest = exports.mortise_plugin_grammar().matcher();
                    let said = guest.call_fork(store, resource).await?;
                    Ok(said.map_err(convert::fault))
                })
            },
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

/// Copy the mask that the guest pushed to the caller's row.
fn deliver(status: MatchStatus, state: &mut State, row: &mut [u32]) -> Result<(), String> {
    let mask = &mut state.mask;
    let width = mask.words.len();
    let Some((used, rest)) = row.split_at_mut_checked(width) else {
        return Err(format!(
            "a mask has {width} words, the host's row {}",
            row.len()
        ));
    };
    match (mask.written, status) {
        (true, _) => {}
        (false, MatchStatus::Finished) => {
            let vocabulary = state.grants.vocabulary.as_deref();
            allow_end_only(&mut mask.words, vocabulary);
        }
        (false, _) => return Err("pushed no mask".to_owned()),
    }
    if status != MatchStatus::Finished && mask.words.iter().all(|word| *word == 0) {
        return Err("allows no token and has not finished".to_owned());
    }
    used.copy_from_slice(&mask.words);
    rest.fill(0);
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
fn check_forced(forced: &[u32], status: MatchStatus, state: &State) -> Result<(), String> {
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
