//! Pool of the instances of one binding. An instance serves one call, session or matcher at a time; it goes
//! back only when its last call ended well, and is dropped in every other case.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;
use tracing::Instrument as _;
use wasmtime::Store;
use wasmtime::component::ResourceAny;

use crate::background;
use crate::binding::Binding;
use crate::breaker::BindingBreaker;
use crate::call::{self, CallContext, CallOutcome, GuestResult};
use crate::cpu_share::InUse;
use crate::engine::EPOCH;
use crate::instance::{Exports, Instance, LiveInstance};
use crate::prepared_memory::Snapshot;
use crate::state::{Grants, StoreData};
use crate::{
    Component, FairTurn, FairTurns, Fault, LoadError, PluginError, PluginHost, TurnBounds, linker,
};

/// Handles that one instance may hold: streams, sessions, matchers.
const MAX_HANDLES: usize = 1024;

/// Memory of an instance that goes on a thread of its own: giving it back takes a millisecond for
/// twenty MiB, in which a thread of the runtime answers nobody.
const LARGE_BYTES: usize = 4 << 20;

/// Times that idle instances are looked at while one that has grown is kept.
const LOOKS: u32 = 4;

/// Time to make an instance from which on one is made ahead of the call that needs it. A faster one is made by
/// that call: another thread would have to wake for it, and both would wait for each other in the
/// kernel, which changes one address space at a time.
const WORTH_REFILLING: Duration = Duration::from_millis(1);

/// Request id of calls that no request asked for.
pub(crate) const NO_REQUEST: &str = "-";

/// Value of a time at which nothing has happened yet.
const NEVER: u64 = u64::MAX;

/// Time for which a call that ended well stands for a control call that could not be made.
const LATELY: Duration = Duration::from_secs(60);

/// The instances of a binding.
pub(crate) struct InstancePool<E: Exports> {
    host: PluginHost,
    grants: Arc<Grants>,
    pre: E::Pre,
    /// Snapshot that instances begin with in place of being prepared, once there is one.
    snapshot: OnceLock<Snapshot<E>>,
    idle: Mutex<Vec<Instance<E>>>,
    /// One turn for each instance in use, by the owner of what it is used for; idle ones are made only by their return.
    turns: Arc<FairTurns>,
    refilling: AtomicBool,
    /// Somebody looks after instances that are idle for long. Changed under the lock of `idle`.
    tidying: AtomicBool,
    /// Nanoseconds that the latest instance took to make.
    made_in: AtomicU64,
    /// Milliseconds after `bound_at` at which a call last ended well, or [`NEVER`].
    answered_at: AtomicU64,
    bound_at: Instant,
    breaker: BindingBreaker,
    /// The runtime that the pool was bound in, for work that outlives a dropped handle.
    runtime: Handle,
}

impl<E: Exports> InstancePool<E> {
    /// Link the component, and prepare a first instance, so that a bad setting fails here.
    pub(crate) async fn bind(
        host: &PluginHost,
        component: &Arc<Component>,
        binding: Binding,
    ) -> Result<Arc<Self>, LoadError> {
        let grants = binding.into_grants(host, component, E::KIND)?;
        let unfit = |error: wasmtime::Error| LoadError::Interface {
            origin: component.label(),
            message: format!("{error:#}"),
        };
        let linker = linker::linker(host.engine(), component, E::KIND, component.image());
        let pre = linker.and_then(|linker| linker.instantiate_pre(component.compiled()));
        let pre = pre.map_err(unfit)?;
        let pre = E::find(pre, component.contract()).map_err(unfit)?;
        let (limits, counters) = (grants.limits.breaker.clone(), Arc::clone(&grants.counters));
        let pool = Arc::new(Self {
            host: host.clone(),
            turns: FairTurns::new(TurnBounds::instances(grants.limits.max_instances)),
            grants: Arc::new(grants),
            pre,
            snapshot: OnceLock::new(),
            idle: Mutex::new(Vec::new()),
            refilling: AtomicBool::new(false),
            tidying: AtomicBool::new(false),
            made_in: AtomicU64::new(0),
            answered_at: AtomicU64::new(NEVER),
            bound_at: Instant::now(),
            breaker: BindingBreaker::new(limits, counters),
            runtime: Handle::current(),
        });
        let first = pool.make(NO_REQUEST.into()).await;
        let first = first.map_err(|source| LoadError::Prepare {
            origin: component.label(),
            source: Box::new(source),
        })?;
        pool.put_back(first);
        pool.keep_prepared();
        Ok(pool)
    }

    pub(crate) fn host(&self) -> &PluginHost {
        &self.host
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Time that the latest instance took to make.
    pub(crate) fn latest_took(&self) -> Duration {
        Duration::from_nanos(self.made_in.load(Ordering::Relaxed))
    }

    /// Have instances begin with this from now on.
    pub(crate) fn begin_with(&self, snapshot: Snapshot<E>) {
        let snapshot = self.snapshot.get_or_init(|| snapshot);
        snapshot.bytes.show(&self.grants.counters);
        // The next instance takes no time that is worth making one ahead.
        self.made_in.store(0, Ordering::Relaxed);
    }

    pub(crate) fn component(&self) -> &Arc<Component> {
        &self.grants.component
    }

    pub(crate) fn grants(&self) -> &Grants {
        &self.grants
    }

    /// Take an instance out, waiting for one to come free for a bounded time.
    pub(crate) async fn checkout(
        self: &Arc<Self>,
        context: &CallContext,
        function: &'static str,
    ) -> Result<Lease<E>, PluginError> {
        if let Err(pause) = self.breaker.admit(Instant::now()) {
            let retry_after_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
            let fault = Fault::Suspended { retry_after_ms };
            return Err(self.refused(context.request_id(), function, fault));
        }
        let wait = Duration::from_millis(self.grants.limits.checkout_wait_ms);
        let mut turn = self.turns.try_take(&context.owner);
        if turn.is_none() {
            let taken = tokio::time::timeout(wait, self.turns.take(&context.owner));
            turn = taken.await.ok().flatten();
        }
        let Some(turn) = turn else {
            let instances = self.grants.limits.max_instances;
            let fault = Fault::Overloaded { instances };
            return Err(self.refused(context.request_id(), function, fault));
        };
        let in_use = self.host.cpu_share().enter();
        let idle = self.lock_idle().pop();
        let instance = match idle {
            Some(instance) => instance,
            None => self.make(context.request_id()).await?,
        };
        Ok(Lease {
            instance: Some(Box::new(instance)),
            usable: true,
            epochs: 0,
            pool: Arc::clone(self),
            turn: Some(turn),
            in_use: Some(in_use),
        })
    }

    /// A call that was not made.
    fn refused(&self, request_id: Arc<str>, function: &'static str, fault: Fault) -> PluginError {
        let counters = &self.grants.counters;
        counters.ended(function, Duration::ZERO, Some(&fault));
        call::plugin_error(&self.grants, function, request_id, fault)
    }

    fn lost(&self, request_id: Arc<str>, function: &'static str) -> PluginError {
        let reason = "the instance was lost in an earlier call".to_owned();
        call::plugin_error(&self.grants, function, request_id, Fault::Trap(reason))
    }

    /// A place for an instance, of which the host has so many; `None` if all are taken.
    pub(crate) fn place(&self) -> Option<OwnedSemaphorePermit> {
        // The pool has room for a memory each.
        let places = self.component().memories();
        let place = Arc::clone(self.host.instance_permits()).try_acquire_many_owned(places);
        place.ok()
    }

    /// A store for an instance that may hold so many handles.
    pub(crate) fn new_store(&self, handles: usize) -> Store<StoreData> {
        let mut store = Store::new(self.host.engine(), StoreData::new(Arc::clone(&self.grants)));
        store.limiter(|state| &mut state.memory);
        store.set_hostcall_fuel(self.grants.limits.output_bytes);
        store.set_max_component_handles(handles);
        call::interrupt_by_epochs(&mut store, Arc::clone(self.host.cpu_share()));
        store
    }

    /// Make an instance, prepared or with a prepared memory.
    async fn make(&self, request_id: Arc<str>) -> Result<Instance<E>, PluginError> {
        const FUNCTION: &str = "lifecycle.prepare";
        let Some(place) = self.place() else {
            let instances = self.host.max_instances();
            return Err(self.refused(request_id, FUNCTION, Fault::Overloaded { instances }));
        };
        let live = LiveInstance::new(Arc::clone(&self.grants.counters), place);
        let begun = Instant::now();
        let mut store = self.new_store(MAX_HANDLES);
        let prepare_ms = self.grants.limits.deadlines.prepare_ms;
        let call = call::begin(&mut store, FUNCTION, request_id, prepare_ms);
        let snapshot = self.snapshot.get();
        let outcome = match snapshot {
            Some(snapshot) => {
                store.data_mut().random = snapshot.random;
                E::instantiate(&snapshot.pre, &mut store).await.map(Ok)
            }
            None => self.instantiate(&mut store).await,
        };
        let ended = match outcome {
            // Nothing was prepared.
            Ok(Ok(exports)) if snapshot.is_some() => {
                call.uncounted();
                CallOutcome::Answered(exports)
            }
            outcome => call::finish(&mut store, call, outcome, |exports, _| Ok(exports)),
        };
        let took = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.made_in.store(took, Ordering::Relaxed);
        match ended {
            CallOutcome::Answered(exports) => Ok(Instance {
                prepared_bytes: store.data().memory.used,
                store,
                exports,
                uses: 0,
                idle_since: Instant::now(),
                _live: live,
            }),
            CallOutcome::Refused(error) | CallOutcome::Broken(error) => {
                self.record(Err(&error));
                Err(error)
            }
        }
    }

    /// Tell the breaker how a call ended, unless a control call settles that.
    fn record_call(&self, outcome: Result<(), &PluginError>) {
        let deferred =
            |error: &&PluginError| call::is_deferred(E::KIND, error.function, &error.fault);
        match outcome {
            Ok(()) => {
                let now = u64::try_from(self.bound_at.elapsed().as_millis()).unwrap_or(u64::MAX);
                self.answered_at.store(now, Ordering::Relaxed);
                self.record(outcome);
            }
            Err(error) if deferred(&error) => {}
            Err(_) => self.record(outcome),
        }
    }

    /// Whether a call ended well within the last [`LATELY`].
    pub(crate) fn answered_lately(&self) -> bool {
        let at = self.answered_at.load(Ordering::Relaxed);
        at != NEVER
            && self
                .bound_at
                .elapsed()
                .saturating_sub(Duration::from_millis(at))
                < LATELY
    }

    /// Count and log a fault, now that it is known whose it was.
    pub(crate) fn settle(&self, error: &PluginError, message: &'static str) {
        self.grants.counters.fault(error.function, &error.fault);
        if error.fault.is_breakdown() {
            self.grants.fault_history.note(Instant::now());
        }
        call::report(&self.grants, error, message);
    }

    /// Have the next call made even if the plugin is suspended.
    pub(crate) fn let_try(&self) {
        self.breaker.let_try(Instant::now());
    }

    /// Tell the breaker that the plugin did well, or did not.
    pub(crate) fn record(&self, outcome: Result<(), &PluginError>) {
        let failed = outcome.is_err_and(|error| error.fault.is_breakdown());
        if let Some(turn) = self.breaker.record(Instant::now(), failed) {
            call::tell_turn(&self.grants, turn);
        }
    }

    /// Make and prepare an instance.
    pub(crate) async fn instantiate(
        &self,
        store: &mut Store<StoreData>,
    ) -> wasmtime::Result<Result<E, Fault>> {
        let exports = E::instantiate(&self.pre, store).await?;
        let prepared = exports.prepare(store).await?;
        Ok(prepared.map(|()| exports))
    }

    fn put_back(self: &Arc<Self>, mut instance: Instance<E>) {
        instance.idle_since = Instant::now();
        let mut idle = self.lock_idle();
        if idle.len() < self.grants.limits.max_idle {
            let holds_much = instance.holds_much();
            idle.push(instance);
            if (idle.len() > 1 || holds_much) && !self.tidying.swap(true, Ordering::AcqRel) {
                let tidy = Self::tidy(Arc::downgrade(self));
                background::start(&self.runtime, Box::pin(tidy));
            }
            return;
        }
        // Unmapping memory is not work for within the lock.
        drop(idle);
        self.let_go(instance);
    }

    /// Look after idle instances as long as there is more than one, or the last one holds much memory.
    async fn tidy(pool: Weak<Self>) {
        let _next_one_may = ClearOnPanic(Weak::clone(&pool), |pool| &pool.tidying);
        while let Some(pool) = pool.upgrade() {
            if !pool.give_up_idle(Instant::now()) {
                return;
            }
            let limits = &pool.grants.limits;
            let kept = Duration::from_millis(limits.idle_grown_ms.min(limits.idle_ms));
            drop(pool);
            tokio::time::sleep((kept / LOOKS).max(EPOCH)).await;
        }
    }

    /// Drop instances that have been idle for long, all but the one that is used next, and that one too if
    /// it holds much memory. Returns whether there is anything left to look after.
    fn give_up_idle(self: &Arc<Self>, now: Instant) -> bool {
        let mut idle = self.lock_idle();
        let others = idle.len().saturating_sub(1);
        let outstayed = idle.extract_if(..others, |instance| instance.has_outstayed(now));
        let mut outstayed: Vec<_> = outstayed.collect();
        let is_over = |last: &Instance<E>| last.holds_much() && last.has_outstayed(now);
        if idle.len() == 1 {
            outstayed.extend(idle.pop_if(|last| is_over(last)));
        }
        let more = idle.len() > 1 || idle.last().is_some_and(Instance::holds_much);
        self.tidying.store(more, Ordering::Release);
        let none_left = idle.is_empty();
        drop(idle);
        for instance in outstayed {
            self.let_go(instance);
        }
        if none_left {
            self.refill();
        }
        more
    }

    /// Drop an instance.
    fn let_go(&self, instance: Instance<E>) {
        if instance.store.data().memory.used < LARGE_BYTES {
            return drop(instance);
        }
        drop(background::drop_on_a_thread(
            &self.runtime,
            Box::new(instance),
        ));
    }

    /// Drop an instance that broke down, in turn if it is large, and rest for what it has taken and not
    /// rested for, like any long call: who makes a plugin break down again and again slows nobody else.
    async fn let_go_broken(&self, instance: Instance<E>) {
        let call = &instance.store.data().call;
        let (resumes_at, epochs) = (call.resumes_at, call.epochs);
        if instance.store.data().memory.used < LARGE_BYTES {
            drop(instance);
        } else {
            let _turn = self.host.turn_to_go().await;
            // It ends without a panic of ours, or with the runtime.
            let _ = background::drop_on_a_thread(&self.runtime, Box::new(instance)).await;
        }
        let now = Instant::now();
        let ran = now.saturating_duration_since(resumes_at);
        let faults = self.grants.lost_instances.recent(now);
        if let Some(until) = self.host.cpu_share().rest_until(now, ran, epochs, faults) {
            tokio::time::sleep_until(until.into()).await;
        }
    }

    fn lock_idle(&self) -> std::sync::MutexGuard<'_, Vec<Instance<E>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Prepare a replacement in the background, so that the next call need not, if that takes long. At most
    /// one at a time, so that a plugin that always fails costs one preparation at a time.
    fn refill(self: &Arc<Self>) {
        if self.latest_took() < WORTH_REFILLING {
            return;
        }
        if !self.lock_idle().is_empty() || self.refilling.swap(true, Ordering::AcqRel) {
            return;
        }
        let Some(turn) = self.turns.try_take(&Arc::from("")) else {
            self.refilling.store(false, Ordering::Release);
            return;
        };
        let pool = Arc::clone(self);
        let refill = async move {
            let _next_one_may = ClearOnPanic(Arc::downgrade(&pool), |pool| &pool.refilling);
            // A failure has been logged and counted, and the next call meets it itself.
            if let Ok(instance) = pool.make(NO_REQUEST.into()).await {
                pool.put_back(instance);
            }
            pool.refilling.store(false, Ordering::Release);
            drop(turn);
        };
        background::start(&self.runtime, Box::pin(refill));
    }
}

/// Clears a flag that says that a task runs, if the task panics: else no other would ever be started.
struct ClearOnPanic<E: Exports>(Weak<InstancePool<E>>, fn(&InstancePool<E>) -> &AtomicBool);

impl<E: Exports> Drop for ClearOnPanic<E> {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(pool) = self.0.upgrade()
        {
            (self.1)(&pool).store(false, Ordering::Release);
        }
    }
}

/// An instance on loan. Dropping it gives the instance back if it is fit for another call.
pub(crate) struct Lease<E: Exports> {
    instance: Option<Box<Instance<E>>>,
    /// No call is under way, and none has failed.
    usable: bool,
    /// Epochs in which the guest ran during this loan.
    epochs: u64,
    pool: Arc<InstancePool<E>>,
    /// `None` once the loan was passed on by [`Lease::release`].
    turn: Option<FairTurn>,
    in_use: Option<InUse>,
}

impl<E: Exports> Lease<E> {
    pub(crate) fn pool(&self) -> &Arc<InstancePool<E>> {
        &self.pool
    }

    /// Make one call: start its clock, run it, check and count what came of it. If the future is
    /// dropped before it ends, the instance is lost: its guest stopped half way through.
    pub(crate) async fn call<T, U>(
        &mut self,
        context: &CallContext,
        function: &'static str,
        deadline_ms: u64,
        guest: impl AsyncFnOnce(&E, &mut Store<StoreData>) -> GuestResult<T>,
        check: impl FnOnce(T, &mut StoreData) -> Result<U, Fault>,
    ) -> Result<U, PluginError> {
        let usable = std::mem::replace(&mut self.usable, false);
        let instance = self.instance.as_mut().filter(|_| usable);
        let Some(instance) = instance else {
            return Err(self.pool.lost(context.request_id(), function));
        };
        let budget_ms = self.pool.grants.limits.budget_ms;
        if Duration::from_millis(budget_ms)
            <= EPOCH * u32::try_from(self.epochs).unwrap_or(u32::MAX)
        {
            self.instance = None;
            let fault = Fault::Budget { budget_ms };
            let grants = &self.pool.grants;
            let error = call::plugin_error(grants, function, context.request_id(), fault);
            grants.counters.ended(function, Duration::ZERO, None);
            if !call::is_deferred(E::KIND, function, &error.fault) {
                self.pool.settle(&error, "the budget of a request is spent");
                self.pool.record(Err(&error));
            }
            // A control call may need the place.
            self.give_back();
            return Err(error);
        }
        let request_id = context.request_id();
        let call = call::begin(&mut instance.store, function, request_id, deadline_ms);
        let span = tracing::debug_span!(target: "mortise::plugin", parent: &context.span,
            "plugin.call", plugin = self.pool.component().name(), "fn" = function);
        let outcome = guest(&instance.exports, &mut instance.store).instrument(span);
        let outcome = outcome.await;
        self.epochs += instance.store.data().call.epochs;
        let ended = call::finish(&mut instance.store, call, outcome, check);
        let result = match ended {
            CallOutcome::Answered(value) => {
                self.usable = true;
                Ok(value)
            }
            CallOutcome::Refused(error) => {
                self.usable = true;
                Err(error)
            }
            CallOutcome::Broken(error) => Err(error),
        };
        self.pool.record_call(result.as_ref().map(drop));
        if !self.usable {
            if let Some(instance) = self.instance.take() {
                self.pool.let_go_broken(*instance).await;
            }
            self.give_back();
        }
        result
    }

    /// Give the place back of an instance that is gone.
    fn give_back(&mut self) {
        self.turn = None;
        self.in_use = None;
        self.pool.refill();
    }

    /// Drop guest resources in the background, tell `settle` of a failure, and give the instance back. The runtime is
    /// that of the binding, since a matcher may be dropped on a thread of the engine's.
    pub(crate) fn release(
        &mut self,
        resources: Vec<ResourceAny>,
        settle: impl FnOnce(&Arc<InstancePool<E>>, PluginError) + Send + 'static,
    ) {
        if !self.usable {
            return;
        }
        let mut lease = Lease {
            instance: self.instance.take(),
            usable: std::mem::replace(&mut self.usable, false),
            // Dropping what a request leaves behind is not its work.
            epochs: 0,
            pool: Arc::clone(&self.pool),
            turn: self.turn.take(),
            in_use: self.in_use.take(),
        };
        let dropping = async move {
            if let Err(error) = lease.drop_resources(resources).await {
                settle(&lease.pool, error);
            }
        };
        background::start(&self.pool.runtime, Box::pin(dropping));
    }

    /// Drop guest resources, so that the instance is as it was before they were made; else it is lost.
    async fn drop_resources(&mut self, resources: Vec<ResourceAny>) -> Result<(), PluginError> {
        let context = CallContext::new(NO_REQUEST);
        let deadline_ms = self.pool.grants.limits.deadlines.close_ms;
        self.call(
            &context,
            "resource-drop",
            deadline_ms,
            async |_, store| {
                for resource in resources {
                    resource.resource_drop_async(&mut *store).await?;
                }
                Ok(Ok(()))
            },
            |(), _| Ok(()),
        )
        .await
    }
}

impl<E: Exports> Drop for Lease<E> {
    fn drop(&mut self) {
        if self.turn.is_none() {
            return;
        }
        let usable = self.usable;
        match self.instance.take().filter(|_| usable) {
            Some(mut instance) => {
                instance.uses += 1;
                if instance.is_spent() {
                    self.pool.let_go(*instance);
                    self.pool.refill();
                } else {
                    self.pool.put_back(*instance);
                }
            }
            None => self.pool.refill(),
        }
    }
}
