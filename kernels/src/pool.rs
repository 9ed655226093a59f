//! Threads that share the work of an op.
//!
//! An op splits its work into tasks; idle threads claim the next one from a counter. The caller
//! works too, so that an op ends even if no other thread ever gets to run: a thread that is held up
//! on a busy machine costs the task that it holds, not the whole op. Idle threads look for work for
//! some microseconds, as the next op of a layer comes soon, and then sleep.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time that an idle thread spins for work before it sleeps.
const LOOK: Duration = Duration::from_micros(30);
/// Looks between two questions for the time.
const LOOKS: usize = 32;

/// Threads that ops share their work with.
#[derive(Debug)]
pub struct ThreadPool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    /// Threads in all, the caller included.
    threads: usize,
    /// Rises with every job, so that it can be watched without the lock. Written under the lock.
    offered: AtomicUsize,
    /// Threads that work on the job beside the caller. Raised under the lock.
    helpers: AtomicUsize,
    state: Mutex<State>,
    wake: Condvar,
    done: Condvar,
}

#[derive(Default)]
struct State {
    job: Option<Job>,
    sleeping: usize,
    stop: bool,
    panic: Option<Box<dyn Any + Send>>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("State")
            .field("busy", &self.job.is_some())
            .field("sleeping", &self.sleeping)
            .finish_non_exhaustive()
    }
}

/// Work that is being done. What it points at lives until the job is taken back and no helper is
/// left, which is what the caller waits for.
#[derive(Clone, Copy)]
struct Job {
    run: *const (dyn Fn(usize) + Sync),
    next: *const AtomicUsize,
    tasks: usize,
}

#[allow(unsafe_code, reason = "a job is handed to other threads")]
// SAFETY: the closure is `Sync` and the counter atomic; both outlive every use, see `Job`.
unsafe impl Send for Job {}

impl Job {
    /// Do tasks until none is left.
    fn work(&self) {
        // SAFETY: the job is in its slot or a helper is counted, so that the caller, whose stack
        // both live on, has not returned.
        #[allow(unsafe_code, reason = "a job borrows from the stack of its caller")]
        let (run, next) = unsafe { (&*self.run, &*self.next) };
        loop {
            let task = next.fetch_add(1, Ordering::Relaxed);
            if task >= self.tasks {
                return;
            }
            run(task);
        }
    }
}

thread_local! {
    /// The pool that ops on this thread use.
    static CURRENT: RefCell<Option<Arc<Shared>>> = const { RefCell::new(None) };
    /// Whether this thread works on a task, within which nothing is shared again.
    static WORKING: Cell<bool> = const { Cell::new(false) };
}

impl ThreadPool {
    /// A pool of so many threads, of which the caller of an op is one; 0 is one for each processor.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub fn new(threads: usize) -> std::io::Result<Self> {
        let threads = wanted(threads);
        let shared = Arc::new(Shared {
            threads,
            offered: AtomicUsize::new(0),
            helpers: AtomicUsize::new(0),
            state: Mutex::default(),
            wake: Condvar::new(),
            done: Condvar::new(),
        });
        let mut pool = Self {
            shared,
            threads: Vec::new(),
        };
        for number in 1..threads {
            let shared = Arc::clone(&pool.shared);
            let thread = std::thread::Builder::new()
                .name(format!("mortise-compute-{number}"))
                .spawn(move || shared.help())?;
            pool.threads.push(thread);
        }
        Ok(pool)
    }

    /// The pool of so many threads that all who ask for as many have together: several engines of one process share
    /// the processors. While one uses the other threads, another computes on its own. It ends with the last who has it.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub fn shared(threads: usize) -> std::io::Result<Arc<Self>> {
        static POOLS: Mutex<BTreeMap<usize, Weak<ThreadPool>>> = Mutex::new(BTreeMap::new());
        let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
        let threads = wanted(threads);
        if let Some(pool) = pools.get(&threads).and_then(Weak::upgrade) {
            return Ok(pool);
        }
        let pool = Arc::new(Self::new(threads)?);
        pools.retain(|_, pool| pool.strong_count() > 0);
        pools.insert(threads, Arc::downgrade(&pool));
        Ok(pool)
    }

    /// Run something whose ops use this pool.
    pub fn install<T>(&self, run: impl FnOnce() -> T) -> T {
        struct Restore(Option<Arc<Shared>>);
        impl Drop for Restore {
            fn drop(&mut self) {
                CURRENT.set(self.0.take());
            }
        }
        let _restore = Restore(CURRENT.replace(Some(Arc::clone(&self.shared))));
        run()
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.shared.state().stop = true;
        self.shared.wake.notify_all();
        for thread in self.threads.drain(..) {
            // A thread's panic was given to the caller of its op already.
            let _ = thread.join();
        }
    }
}

/// Threads that an op called here can use.
pub fn threads() -> usize {
    if WORKING.get() { 1 } else { current().threads }
}

/// Run tasks `0..tasks`, each once, in any order and on any thread. Returns when all are done. Within
/// a task, and while another thread uses the pool, all is done by the caller.
///
/// # Panics
/// If a task does.
pub fn for_each(tasks: usize, run: impl Fn(usize) + Sync) {
    if tasks <= 1 || WORKING.get() {
        return (0..tasks).for_each(run);
    }
    current().run(tasks, &run);
}

/// Run tasks on pieces of `length` of a slice; the last may be shorter.
///
/// # Panics
/// If a task panics, or the length is 0.
pub fn for_each_piece<T: Send>(
    slice: &mut [T],
    length: usize,
    run: impl Fn(usize, &mut [T]) + Sync,
) {
    struct Start<T>(*mut T);
    #[allow(unsafe_code, reason = "tasks write to disjoint pieces")]
    // SAFETY: each task makes a slice of its own piece only, and `T` may be sent.
    unsafe impl<T: Send> Sync for Start<T> {}
    assert!(length > 0);
    let (start, total) = (Start(slice.as_mut_ptr()), slice.len());
    let start = &start;
    for_each(total.div_ceil(length), |task| {
        let first = task * length;
        // SAFETY: the piece lies within the slice, and pieces of different tasks are disjoint.
        #[allow(unsafe_code, reason = "tasks write to disjoint pieces")]
        let piece = unsafe {
            std::slice::from_raw_parts_mut(start.0.add(first), length.min(total - first))
        };
        run(task, piece);
    });
}

/// Number of threads, of which 0 is one for each processor.
fn wanted(threads: usize) -> usize {
    match threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        asked => asked,
    }
}

/// The pool of this thread, or the shared one with a thread for each processor.
fn current() -> Arc<Shared> {
    static COMMON: OnceLock<Arc<ThreadPool>> = OnceLock::new();
    if let Some(shared) = CURRENT.with_borrow(Clone::clone) {
        return shared;
    }
    let common = COMMON.get_or_init(|| {
        // Without more threads the caller does all.
        ThreadPool::shared(0)
            .or_else(|_| ThreadPool::shared(1))
            .expect("a pool of one needs no thread")
    });
    Arc::clone(&common.shared)
}

/// Marks this thread as working for as long as it lives.
struct Working;

impl Working {
    fn begin() -> Self {
        WORKING.set(true);
        Self
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        WORKING.set(false);
    }
}

impl Shared {
    /// No task runs under the lock, so that a panic leaves nothing half done.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, tasks: usize, run: &(dyn Fn(usize) + Sync)) {
        let next = AtomicUsize::new(0);
        // SAFETY: only the lifetime changes; the job is taken back, and its helpers have left,
        // before this function returns.
        #[allow(unsafe_code, reason = "a job borrows from the stack of its caller")]
        let run = unsafe {
            std::mem::transmute::<&(dyn Fn(usize) + Sync), &'static (dyn Fn(usize) + Sync)>(run)
        };
        let job = Job {
            run,
            next: &raw const next,
            tasks,
        };
        let offered = self.threads > 1 && self.offer(job);
        let own = {
            let _working = Working::begin();
            catch_unwind(AssertUnwindSafe(|| job.work()))
        };
        let panic = if offered { self.take_back() } else { None };
        match (own, panic) {
            (Err(panic), _) | (Ok(()), Some(panic)) => resume_unwind(panic),
            (Ok(()), None) => {}
        }
    }

    /// Offer the job to idle threads, unless they work on another one.
    fn offer(&self, job: Job) -> bool {
        let mut state = self.state();
        if state.job.is_some() || self.helpers.load(Ordering::Acquire) > 0 {
            return false;
        }
        state.job = Some(job);
        self.offered.fetch_add(1, Ordering::Release);
        let wanted = state.sleeping.min(job.tasks - 1);
        drop(state);
        for _ in 0..wanted {
            self.wake.notify_one();
        }
        true
    }

    /// Wait until no thread works on the job. Returns the panic of a helper, if there was one.
    fn take_back(&self) -> Option<Box<dyn Any + Send>> {
        self.state().job = None;
        look(|| self.helpers.load(Ordering::Acquire) == 0);
        let mut state = self.state();
        while self.helpers.load(Ordering::Acquire) > 0 {
            state = self
                .done
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.panic.take()
    }

    /// The life of a thread of the pool.
    fn help(&self) {
        let _working = Working::begin();
        let mut seen = 0;
        loop {
            look(|| self.offered.load(Ordering::Acquire) != seen);
            let mut state = self.state();
            while self.offered.load(Ordering::Acquire) == seen && !state.stop {
                state.sleeping += 1;
                state = self
                    .wake
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                state.sleeping -= 1;
            }
            if state.stop {
                return;
            }
            seen = self.offered.load(Ordering::Acquire);
            let Some(job) = state.job else {
                continue;
            };
            self.helpers.fetch_add(1, Ordering::AcqRel);
            drop(state);
            let outcome = catch_unwind(AssertUnwindSafe(|| job.work()));
            if let Err(panic) = outcome {
                self.state().panic.get_or_insert(panic);
            }
            if self.helpers.fetch_sub(1, Ordering::AcqRel) == 1 {
                // With the lock, so that this does not come between the caller's look and its sleep.
                let _state = self.state();
                self.done.notify_all();
            }
        }
    }
}

/// Wait a short while until something is so.
fn look(so: impl Fn() -> bool) {
    let begun = Instant::now();
    loop {
        for _ in 0..LOOKS {
            if so() {
                return;
            }
            std::hint::spin_loop();
        }
        if begun.elapsed() > LOOK {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};

    use super::{ThreadPool, for_each, for_each_piece, threads};

    #[test]
    fn every_task_is_done_once() {
        for size in [1, 2, 5] {
            let pool = ThreadPool::new(size).unwrap();
            pool.install(|| {
                assert_eq!(threads(), size);
                for tasks in [0, 1, 2, 7, 300] {
                    for _ in 0..50 {
                        let done: Vec<AtomicUsize> =
                            (0..tasks).map(|_| AtomicUsize::new(0)).collect();
                        for_each(tasks, |task| {
                            done[task].fetch_add(1, Ordering::Relaxed);
                        });
                        assert!(done.iter().all(|done| done.load(Ordering::Relaxed) == 1));
                    }
                }
            });
        }
    }

    #[test]
    fn pieces_cover_a_slice() {
        let pool = ThreadPool::new(3).unwrap();
        // Often, so that each thread writes what others have written and read before.
        for round in 0..100 {
            let mut numbers = vec![round; 100_001];
            pool.install(|| {
                for_each_piece(&mut numbers, 1000, |task, piece| {
                    assert_eq!(piece.len(), if task == 100 { 1 } else { 1000 });
                    for (place, number) in piece.iter_mut().enumerate() {
                        *number += task * 1000 + place;
                    }
                });
            });
            let mut found = numbers.iter().enumerate();
            assert!(found.all(|(index, number)| index + round == *number));
        }
    }

    #[test]
    fn a_task_that_shares_again_does_all_itself() {
        let pool = ThreadPool::new(3).unwrap();
        let sum = AtomicUsize::new(0);
        pool.install(|| {
            for_each(4, |_| {
                assert_eq!(threads(), 1);
                for_each(5, |inner| {
                    sum.fetch_add(inner, Ordering::Relaxed);
                });
            });
        });
        assert_eq!(sum.into_inner(), 40);
    }

    #[test]
    fn several_callers_share_one_pool() {
        let pool = ThreadPool::new(2).unwrap();
        let sum = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    pool.install(|| {
                        for _ in 0..200 {
                            for_each(9, |task| {
                                sum.fetch_add(task, Ordering::Relaxed);
                            });
                        }
                    });
                });
            }
        });
        assert_eq!(sum.into_inner(), 4 * 200 * 36);
    }

    #[test]
    fn a_pool_is_shared_by_all_who_want_as_many_threads() {
        let pool = ThreadPool::shared(7).unwrap();
        assert!(Arc::ptr_eq(&pool, &ThreadPool::shared(7).unwrap()));
        assert!(!Arc::ptr_eq(&pool, &ThreadPool::shared(6).unwrap()));
        let shared = Arc::downgrade(&pool.shared);
        drop(pool);
        assert_eq!(shared.strong_count(), 0, "it ends with the last who has it");
        ThreadPool::shared(7)
            .unwrap()
            .install(|| assert_eq!(threads(), 7));
    }

    #[test]
    fn a_panic_comes_to_the_caller_and_the_pool_goes_on() {
        let pool = ThreadPool::new(3).unwrap();
        for _ in 0..20 {
            let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                pool.install(|| for_each(30, |task| assert_ne!(task, 17)));
            }));
            let message = caught.unwrap_err();
            let message = message.downcast_ref::<String>().unwrap();
            assert!(message.contains("right: 17"), "{message}");
            let seen = Mutex::new(HashSet::new());
            pool.install(|| {
                for_each(30, |task| assert!(seen.lock().unwrap().insert(task)));
            });
            assert_eq!(seen.into_inner().unwrap().len(), 30);
        }
    }
}
