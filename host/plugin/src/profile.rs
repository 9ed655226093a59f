//! Sampling profiler of guests: at each epoch in which one runs, its call stack is recorded.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use wasmtime::WasmBacktrace;

/// Different stacks that are kept; the rest is counted together.
const MAX_STACKS: usize = 20_000;

/// Name under which stacks beyond the limit are counted.
const OTHER: &str = "(other)";

/// Samples of call stacks, one for each millisecond in which a guest ran. Times are those of an engine
/// that compiles as the server's does, so that shares are what they are there.
#[derive(Debug, Default)]
pub struct Profile {
    /// Samples of each stack, outermost function first.
    stacks: Mutex<HashMap<Vec<String>, u64>>,
}

/// Share of the time that a function had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FunctionShare {
    /// Its name as the compiler wrote it, if the component keeps names, or its number.
    pub function: String,
    /// Samples in the function itself.
    pub own: u64,
    /// Samples in it and in what it called.
    pub total: u64,
}

impl Profile {
    /// Note where a guest is. `call` is the function of the plugin that the host called.
    pub(crate) fn sample(&self, call: &str, backtrace: &WasmBacktrace) {
        let frames = backtrace.frames().iter().rev();
        let names = frames.map(|frame| match frame.func_name() {
            Some(name) => name.to_owned(),
            None => format!("function {}", frame.func_index()),
        });
        let mut stack: Vec<String> = std::iter::once(call.to_owned()).chain(names).collect();
        let mut stacks = self.lock();
        if stacks.len() >= MAX_STACKS && !stacks.contains_key(&stack) {
            stack = vec![OTHER.to_owned()];
        }
        *stacks.entry(stack).or_default() += 1;
    }

    /// Samples so far.
    pub fn samples(&self) -> u64 {
        self.lock().values().sum()
    }

    /// The stacks and how often each was met: the function that the host called, then those of the
    /// guest from the outermost on, by name.
    pub fn stacks(&self) -> BTreeMap<Vec<String>, u64> {
        let stacks = self.lock();
        let copied = stacks.iter().map(|(stack, count)| (stack.clone(), *count));
        copied.collect()
    }

    /// The functions by the time that they had themselves, most first.
    pub fn functions(&self) -> Vec<FunctionShare> {
        let mut shares: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for (stack, count) in &*self.lock() {
            // A function that calls itself is on the stack several times, and had the time once.
            for frame in stack.iter().collect::<BTreeSet<_>>() {
                shares.entry(frame.clone()).or_default().1 += count;
            }
            if let Some(innermost) = stack.last() {
                shares.entry(innermost.clone()).or_default().0 += count;
            }
        }
        let shares = shares.into_iter();
        let mut functions: Vec<FunctionShare> = shares
            .map(|(function, (own, total))| FunctionShare {
                function,
                own,
                total,
            })
            .collect();
        functions.sort_by_key(|share| std::cmp::Reverse((share.own, share.total)));
        functions
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Vec<String>, u64>> {
        self.stacks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up() {
        let profile = Profile::default();
        for (stack, count) in [("call;a;b", 5), ("call;a", 2), ("call;a;b;a", 1)] {
            let stack = stack.split(';').map(str::to_owned).collect();
            profile.lock().insert(stack, count);
        }
        assert_eq!(profile.samples(), 8);
        let counts: Vec<u64> = profile.stacks().into_values().collect();
        assert_eq!(counts, [2, 5, 1], "sorted by their frames");
        let share = |name: &str| {
            let functions = profile.functions();
            let found = functions.into_iter().find(|share| share.function == name);
            found.map(|share| (share.own, share.total)).unwrap()
        };
        assert_eq!(share("a"), (3, 8));
        assert_eq!(share("b"), (5, 6));
        assert_eq!(share("call"), (0, 8));
        assert_eq!(profile.functions()[0].function, "b");
    }
}
